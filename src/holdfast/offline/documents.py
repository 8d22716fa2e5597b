"""Documents that sentences can be quoted from, cut into units, with a name for each section.

A section can be cited, `notes/queues.md#tail-latency`, and `Library.text_of` finds what such a citation stands for. Sentences that speak to
whoever reads them as an assistant are data like all the rest and never findings: `tainted_units` finds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from holdfast.errors import InputError
from holdfast.extract.selection import Passage, SourceText, TextUnit, cut
from holdfast.memory.instructions import find_instruction
from holdfast.text.dates import day_of_head, day_of_name
from holdfast.text.language import alternatives, read_lists
from holdfast.text.normalise import one_line
from holdfast.text.sentences import split_sentences

_MARKER = re.compile(r"^\s*(?:[-*+•‣◦▪]\s+(?:\[[ xX]\]\s+)?|>\s*)+")
_NUMBER = re.compile(r"\s*\(?\w{1,3}[.)]\s+")
ROW = re.compile(r"[^:;]{1,60}: [^;]*; ")
"""How a row of a table begins."""
_CLOSINGS = {name: alternatives(entry) for name, entry in read_lists("holdfast.offline", "closings").items()}
_CLOSING = re.compile(
    rf"[# ]*(?:(?:(?:{_CLOSINGS['thanks']}) )?(?:{_CLOSINGS['closing']})(?!\w)(?:(?:[ \t]+[^\W\d]+){{1,4}}(?=,\s*(?:\n|\Z)))?"
    rf"|(?P<word>{_CLOSINGS['closing_word']})(?=[ \t]*(?:[,!.;–—-]|\n|\Z)))",
    re.IGNORECASE,
)
_SIGNED = 8  # lines that stand below a letter at most: who wrote it, as what, for whom
_SIGNED_WORDS = 10
_CONTACT = re.compile(r"[\d@]|://")
_SMALL = re.compile(r"(?<!\w)(?=[^\W\d_]{4})[a-zß-öø-ÿа-яё]")
_ENDED = re.compile(r"[.!?;。！？；][\s\"'”»)\]*_]*\Z")
_HEAD = 3  # units in which a document may say when it was written


@dataclass(frozen=True)
class SourceDocument:
    """One text with a name that can be cited. `ref` is where its text is kept as raw data, once it is.

    `name`, `stated` and `author` are what the document says about itself: its title, the day it was written, who wrote it.
    """

    id: str
    text: str
    ref: str | None = None
    trust: str = "low"
    extra: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    stated: str = ""
    author: str = ""

    @cached_property
    def units(self) -> tuple[TextUnit, ...]:
        """Its sentences, items and headings, in order."""
        return tuple(part for unit in cut([SourceText(self.id, self.text)]) for part in self._sentences(unit))

    def _sentences(self, unit: TextUnit) -> list[TextUnit]:
        """The sentences of an item that has several and is no row of a table; the first keeps its mark. Of a letter's end its lines."""
        marker = _MARKER.match(unit.passage.text) or _NUMBER.match(unit.passage.text)
        first = marker.end() if marker else 0
        start = unit.passage.start
        if unit.kind == "sentence" and _closes(unit.passage.text.partition("\n")[0]):
            places = [(start + line.start(), start + line.end()) for line in re.finditer(r"\S.*\S|\S", unit.passage.text)]
        else:
            parts = split_sentences(unit.passage.text[first:]) if unit.kind == "item" and not ROW.match(bare_text(unit)) else []
            places = [(start if n == 0 else start + first + one.start, start + first + one.end) for n, one in enumerate(parts)]
        if len(places) < 2:
            return [unit]
        return [replace(unit, kind="sentence", passage=Passage(self.id, begin, end, self.text[begin:end])) for begin, end in places]

    @cached_property
    def title(self) -> str:
        """What it calls itself, its first heading, or else its first line; of a table or a list the name of its file."""
        first = self.name or (PurePosixPath(self.id).stem if self._listed else "")
        if not first:
            first = next((unit for unit in self.units[:_HEAD] if unit.kind == "heading"), self.units[0]).passage.text.split("\n")[0]
        return one_line(first.strip("#=- \t\n"))[:120]

    @cached_property
    def dated(self) -> str:
        """When it was written, as it says it: `2026-02-10`, or `2026-02` and `2026` where it names no day; empty if it does not say."""
        lines = [line for unit in self.units[:_HEAD] for line in unit.passage.text[:600].split("\n")]
        return self.stated or ("" if self._is_table else day_of_head(lines)) or day_of_name(self.id)

    @property
    def _listed(self) -> bool:
        """Whether it begins with an item or a line of a talk, which is no more its title than the others."""
        return not self.units or self.units[0].kind == "item" or self.units[0].passage.text.startswith("[")

    @property
    def _is_table(self) -> bool:
        """Whether it begins with rows: a date in one of them says nothing about the others."""
        heads = [bare_text(unit).partition(":")[0] for unit in self.units[:2] if unit.kind == "item"]
        return len(heads) == 2 and heads[0] == heads[1]

    @property
    def written(self) -> date | None:
        """The day it was written, the last that it can have been; None if it does not say."""
        if not self.dated:
            return None
        year, month, day = (*self.dated.split("-"), *("", "12", "28")[len(self.dated.split("-")) :])
        return date(int(year), int(month), int(day))

    def context(self, unit: TextUnit) -> tuple[str, ...]:
        """What a sentence of it stands under: the title, who wrote it, and the headings above."""
        above = [heading for heading in unit.heading if heading != self.title]
        return tuple(part for part in (self.title, self.author, *above) if part)

    def quote(self, first: int, last: int) -> str:
        """The words from one of its units to another, on one line, without the mark of a list item."""
        return _bare(self.text[self.units[first].passage.start : self.units[last].passage.end])

    def cite(self, unit: TextUnit) -> str:
        """The name of the section that a unit stands in."""
        return f"{self.id}#{slug(unit.heading[-1])}" if unit.heading and slug(unit.heading[-1]) else self.id


def bare_text(unit: TextUnit) -> str:
    """The words of a unit on one line, without the mark of a list item or a heading."""
    return _bare(unit.passage.text)


def _bare(text: str) -> str:
    return one_line(_MARKER.sub("", text)).strip("#").strip()


def slug(heading: str) -> str:
    """A heading as the end of an address, as code forges write it.

    >>> slug("Tail latency (p99)")
    'tail-latency-p99'
    """
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading.lower())).strip("-")


def section_name(source: str) -> tuple[str, str]:
    """A citation as document and section; the section is empty where the whole document is meant."""
    document, _, section = source.partition("#")
    return document, section


class Library:
    """The documents of one stage by their names, and what could not be read, with the reason."""

    def __init__(self, documents: Iterable[SourceDocument] = ()) -> None:
        self._documents: dict[str, SourceDocument] = {}
        self.not_read: dict[str, str] = {}
        for document in documents:
            self.add(document)

    def add(self, document: SourceDocument) -> None:
        """Take a document in. One of the same name and text is the same; of another text it is an InputError."""
        there = self._documents.get(document.id)
        if there is not None and there.text != document.text:
            raise InputError(f"Two sources are called {document.id!r}.", hint="Give every source a name of its own.")
        self._documents.setdefault(document.id, document)

    def __iter__(self) -> Iterator[SourceDocument]:
        return iter(self._documents.values())

    def __len__(self) -> int:
        return len(self._documents)

    def get(self, source: str) -> SourceDocument | None:
        """The document of a citation, with or without a section, or by its raw reference."""
        found = self._documents.get(source) or self._documents.get(section_name(source)[0])
        if found is None and source.startswith("raw:"):
            found = next((one for one in self if one.ref is not None and one.ref.startswith(source)), None)
        return found

    def text_of(self, source: str) -> str | None:
        """What a citation stands for: the section, or the whole document; None if there is no such thing."""
        document = self.get(source)
        if document is None:
            return None
        section = section_name(source)[1] if document.id != source else ""
        if not section:
            return document.text
        inside = [unit for unit in document.units if any(slug(heading) == section for heading in unit.heading)]
        return document.text[inside[0].passage.start : inside[-1].passage.end] if inside else None


_STRONG = frozenset(("override", "secrecy", "encoded", "promotion"))
_ORDERS = {name: f"(?:{alternatives(entry)})" for name, entry in read_lists("holdfast.offline", "orders").items()}
_TO_AN_ASSISTANT = re.compile(rf"\b{_ORDERS['to_an_assistant']}\b|{_ORDERS['to_an_assistant_wide']}", re.IGNORECASE)
_OVERRIDE = re.compile(
    rf"{_ORDERS['forget']}\s+(?:all\s+|any\s+)?(?:of\s+)?(?:the\s+|your\s+|my\s+|these\s+)?{_ORDERS['earlier']}\s+{_ORDERS['instructions']}",
    re.IGNORECASE,
)
"""However it is glued to what stands before it."""


def tainted_units(document: SourceDocument) -> frozenset[int]:
    """The numbers of the units that are an attempt to give an assistant orders, or go on from one.

    Advice to readers ("Do not use it in production") is no such thing. An order goes on in what stands behind it in its line, in a further
    order of its paragraph, and in the other half of a sentence that was taken apart. What else stands beside it is kept: whoever can write
    one line into a document shall not be able to hide the others.
    """
    units = document.units
    found: set[int] = set()
    for n, unit in enumerate(units):
        if unit.kind == "heading":
            continue
        if _orders(unit.passage.text):
            found.add(n)
        elif n and _is_half(document, n - 1) and _orders(f"{bare_text(units[n - 1])} {bare_text(unit)}"):
            found |= {n - 1, n}
    for n in sorted(found):
        found.update(_led_to(document, n))
        after = n + 1
        while after < len(units) and _stands_by(document, after - 1) and (after in found or _goes_on(document, after)):
            found.add(after)
            after += 1
    return frozenset(found)


def _orders(text: str) -> bool:
    found = find_instruction(text)
    if found is None:
        return _OVERRIDE.search(text) is not None
    return (found.rule in _STRONG and _speaks_to_reader(text)) or _TO_AN_ASSISTANT.search(text) is not None


def _stands_by(document: SourceDocument, number: int) -> bool:
    """Whether a unit and the one behind it stand in one paragraph or one list."""
    first, second = document.units[number : number + 2]
    listed = first.kind == second.kind == "item" and document.text[first.passage.end : second.passage.start].count("\n") < 2
    return first.kind != "heading" and (first.block == second.block or listed)


def _is_half(document: SourceDocument, number: int) -> bool:
    """Whether a unit and the one behind it may be one sentence: the first does not end."""
    first, second = document.units[number : number + 2]
    apart = first.kind == second.kind == "sentence"  # also with an empty line between them
    return (apart or _stands_by(document, number)) and _ENDED.search(first.passage.text) is None


def _led_to(document: SourceDocument, order: int) -> Iterator[int]:
    """The unit before an order that addresses it: "Assistants that read this:"."""
    if order and document.units[order - 1].kind == "sentence" and _is_half(document, order - 1):
        yield order - 1


def _goes_on(document: SourceDocument, number: int) -> bool:
    """Whether a unit behind an order belongs to it: in the same line, as its other half, or as a further order."""
    before, unit = document.units[number - 1], document.units[number]
    text = bare_text(unit)
    if unit.kind == "sentence" and "\n" not in document.text[before.passage.end : unit.passage.start]:
        return True
    return text[:1].islower() or (unit.kind == "sentence" and _is_half(document, number - 1)) or find_instruction(text) is not None


def closing_units(document: SourceDocument) -> frozenset[int]:
    """The numbers of the units with which a letter or mail ends: the words before the name ("Best regards,") and who signed it.

    A line below with figures or an address is no part of it: somebody may ask for a telephone number.
    """
    found: set[int] = set()
    for n, unit in enumerate(document.units):
        if unit.kind not in ("sentence", "heading") or (closing := _closes(unit.passage.text)) is None:
            continue
        if closing["word"] and unit.kind == "heading":
            continue
        found.add(n)
        block = unit.block if re.search(r"\w", unit.passage.text[closing.end() :]) else None
        for below in range(n + 1, min(n + 1 + _SIGNED, len(document.units))):
            line = document.units[below]
            fits = _is_name(line.passage.text) if block is None else line.block == block and _signs(line.passage.text)
            if line.kind not in ("sentence", "heading") or not fits:
                break
            block = line.block
            found.update([below] if _CONTACT.search(line.passage.text) is None else [])
    return frozenset(found)


def _closes(line: str) -> re.Match[str] | None:
    """The words with which a line ends a letter, if it does: nothing but a name stands beside them."""
    closing = _CLOSING.match(line)
    if closing is None:
        return None
    beside = line[closing.end() :]
    signed = _is_name(beside) or (not closing["word"] and beside.startswith(",") and _signs(beside))
    return closing if signed and not _CONTACT.search(beside) else None


def _is_name(text: str) -> bool:
    """Whether a text can be the name below a letter, or has no words: none of them begins with a small letter, but for short ones."""
    return _signs(text) and _SMALL.search(text) is None


def _signs(text: str) -> bool:
    """Whether a line can stand in what is below a letter: it is short and no sentence. The dot of "Kiel, Tel." ends none."""
    words, end = text.split(), text.rstrip()
    sentence = re.search(r"\w[。！？]\Z", end) or (end.endswith((".", ":", "?", "!")) and len(words) > 2 and _SMALL.search(text))
    return len(words) <= _SIGNED_WORDS and not sentence and not text[:1].islower()


def _speaks_to_reader(text: str) -> bool:
    return re.search(rf"\b{_ORDERS['to_the_reader']}\b", text, re.IGNORECASE) is not None or not text.isascii()
