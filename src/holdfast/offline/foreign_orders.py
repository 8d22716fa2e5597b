"""Sentences of sources that speak to whoever reads them as an assistant. They are data like all the rest, and never findings."""

from __future__ import annotations

import re

from holdfast.memory.instructions import find_instruction
from holdfast.offline.sources import Document

_STRONG = frozenset(("override", "secrecy", "encoded", "promotion"))
_TO_AN_ASSISTANT = re.compile(
    r"\b(?:ai|llm|language model|assistants?|chatbots?|agents? reading"
    r"|your (?:report|answer|summary|instructions|prompt|system prompt|output|response|task)"
    r"|previous instructions|system prompt|the task description)\b|(?:助手|アシスタント|인공지능)",
    re.IGNORECASE,
)

_OVERRIDE = re.compile(
    r"(?:ignore|disregard|forget|override)\s+(?:all\s+|any\s+)?(?:of\s+)?(?:the\s+|your\s+|my\s+|these\s+)?(?:previous|prior|earlier|above|preceding)\s+"
    r"(?:instructions?|prompts?|rules|orders|directions)",
    re.IGNORECASE,
)
"""However it is glued to what stands before it."""


def tainted_units(document: Document) -> frozenset[int]:
    """The numbers of the units that are, or stand in one section with, an attempt to give an assistant orders.

    Advice to readers ("Do not use it in production") is no such thing. A whole section goes, because what stands beside an order was
    written by the same hand.
    """
    sections: set[tuple[tuple[str, ...], int]] = set()
    for unit in document.units:
        text = unit.passage.text
        found = find_instruction(text)
        if unit.kind == "heading" or (found is None and not _OVERRIDE.search(text)):
            continue
        if found is None or (found.rule in _STRONG and _speaks_to_reader(text)) or _TO_AN_ASSISTANT.search(text):
            sections.add((unit.heading, unit.block if len(unit.heading) <= 1 else -1))
    return frozenset(
        n for n, unit in enumerate(document.units) if (unit.heading, -1) in sections or (unit.heading, unit.block) in sections
    )  # fmt: skip


def _speaks_to_reader(text: str) -> bool:
    return (
        re.search(r"\b(?:you|your|ignore|disregard|forget|never|do not|don't|always|must)\b", text, re.IGNORECASE) is not None
        or not text.isascii()
    )
