"""Talks as people save them: lines like `Ann: text`, with or without a time before the name, `[18:04] Ann: text`, `18:04 <Ann> text`.

Whoever reads a file asks here whether it is a talk: the import of records makes a turn of each line, the agents without a model let each
stand alone.
"""

from __future__ import annotations

import re
from collections import Counter

_NAME = r"[^\W\d_][\w .'’-]{0,39}?"
_BEFORE = r"(?:\[(?P<date>[^\]\n]{4,40})\]|(?P<date2>\d[\d./:, -]{5,28}(?:[ap]\.?m\.?)?)\s*[-–—]?)"
TURN = re.compile(
    rf"^\s*(?:{_BEFORE}\s*)?(?:(?:\*\*)?(?P<name>{_NAME})(?:\*\*)?\s*:(?:\*\*)?|<(?P<nick>[\w .'’-]{{1,40}})>)(?:\s+(?P<text>.*)|\s*)$",
    re.IGNORECASE,
)
"""A line with which somebody begins to speak: when (`date` or `date2`), who (`name` or `nick`), and what."""
_LOOKED_AT = 20_000  # characters
_CLOCK = re.compile(r"\d[:.]\d\d")


def is_transcript(text: str) -> bool:
    """Whether most lines of a text are turns of a talk: names come again, or each has a time of day before it.

    Of a short talk somebody may have said one thing only: then most lines are of those who spoke more than once, or somebody asks.

    >>> is_transcript("Ann: is it shut?\\nBo: yes\\nAnn: and the gate?\\nCy: open"), is_transcript("Name: Ann\\nRent: 410\\nTerm: 3 years")
    (True, False)
    """
    lines = [line for line in text[:_LOOKED_AT].splitlines() if line.strip()]
    turns = [match for line in lines if (match := TURN.match(line)) and match["text"]]
    if len(turns) < 2 or len(turns) * 2 <= len(lines):
        return False
    names = Counter(speaker(turn).lower() for turn in turns)
    if len(names) <= max(len(turns) // 2, 2) or all(_CLOCK.search(turn["date"] or turn["date2"] or "") for turn in turns):
        return True
    return len(names) * 3 <= len(turns) * 2 or (
        len(names) < len(turns) and any(turn["text"].rstrip().endswith(("?", "？")) for turn in turns)
    )


def speaker(turn: re.Match[str]) -> str:
    """Who speaks in a line that `TURN` matches."""
    return (turn["name"] or turn["nick"]).strip()
