"""Documents that sentences can be quoted from: files as plain Markdown, cut into units, with a name for each section.

HTML and JSON become Markdown; the words are never changed, only what surrounds them goes: markup, scripts, navigation. A section can be
cited, `notes/queues.md#tail-latency`, and `Library.text_of` finds what such a citation stands for. Sentences that speak to whoever
reads them as an assistant are data like all the rest and never findings: `tainted_units` finds them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import Any

from holdfast.errors import InputError
from holdfast.extract.passages import Passage, SourceText, TextUnit, cut
from holdfast.memory.instructions import find_instruction
from holdfast.text.dates import Span, find_dates
from holdfast.text.html import joined_blocks, read_html
from holdfast.text.normalise import one_line, strip_invisible
from holdfast.text.word_lists import alternatives, read_lists

_TITLES = ("title", "name", "heading", "subject", "page", "id")
_ITEM = re.compile(r"[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]+\S")
_TITLE_LINE = re.compile(r"(?!\s*[-*+#>|•=`])\s{0,3}[\w\"“(].{0,78}[^\s.!?:;,。！？]")
_PROSE = 4  # words from which on a JSON text counts as a sentence and not as a value


def readable(data: bytes | str, suffix: str) -> str:
    """The text of a file by the ending of its name. What is not UTF-8 shows as U+FFFD; a BOM and characters that draw nothing go.

    Of a page what its reader does not see is not there either: that is where instructions and false figures are planted.
    """
    ending = suffix.lower().lstrip(".")
    if ending in ("html", "htm", "xhtml"):
        data = read_html(data).text
    text = data if isinstance(data, str) else data.decode("utf-8-sig", errors="replace")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    if ending in ("txt", "text", ""):
        text = _from_text(text)
    elif ending == "json":
        text = _from_json(text)
    elif ending in ("jsonl", "ndjson"):
        text = "\n\n".join(_from_json(line) for line in text.splitlines() if line.strip())
    return strip_invisible(text)


def _from_text(text: str) -> str:
    """Plain text, with the lines that stand alone or above a list marked as the headings that they are."""
    lines = text.split("\n")
    marked: list[str] = []
    for n, line in enumerate(lines):
        after = lines[n + 1] if n + 1 < len(lines) else ""
        alone = (n == 0 or not lines[n - 1].strip()) and (not after.strip() or _ITEM.match(after) is not None)
        marked.append(f"{'#' if not any(marked) else '##'} {line.strip()}" if alone and _TITLE_LINE.fullmatch(line) else line)
    return "\n".join(marked)


def _from_json(text: str) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the JSON cannot be read: {error}.", hint="Mend the file, or leave it out with `globs`.") from error
    blocks: list[str] = []
    _write_json(value, 1, blocks)
    return joined_blocks(blocks)


def _write_json(value: Any, level: int, blocks: list[str], name: str = "") -> None:
    """Objects become sections under their title, long texts paragraphs, short values items."""
    if level > 40:
        return
    if isinstance(value, dict):
        title = next((key for key in _TITLES if isinstance(value.get(key), str) and value[key].strip()), None)
        if title is not None:
            blocks.append(f"{'#' * min(level, 6)} {one_line(value[title])}")
        for key, member in value.items():
            if key != title:
                _write_json(member, level + (title is not None), blocks, str(key))
    elif isinstance(value, list):
        for member in value:
            _write_json(member, level, blocks, name)
    elif isinstance(value, str) and len(value.split()) >= _PROSE:
        blocks.append(value.strip())
    elif value is not None and str(value).strip():
        blocks.append(f"- {name}: {one_line(str(value))}" if name else f"- {one_line(str(value))}")


_REFERENCE = date(2000, 6, 15)
_YEARS = range(1950, 2101)
_AFTER_UNIT = re.compile(r"(?<=\d ms\.)\s+(?=[A-Z])|(?<=\dms\.)\s+(?=[A-Z])")


@dataclass(frozen=True)
class SourceDocument:
    """One text with a name that can be cited. `ref` is where its text is kept as raw data, once it is."""

    id: str
    text: str
    ref: str | None = None
    trust: str = "low"
    extra: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def units(self) -> tuple[TextUnit, ...]:
        """Its sentences, items, rows and headings, in order."""
        return tuple(_parted(cut([SourceText(self.id, self.text)])))

    @cached_property
    def title(self) -> str:
        """Its first heading, or else its first line."""
        first = next((unit.passage.text for unit in self.units[:6] if unit.kind == "heading"), None)
        if first is None:
            first = self.units[0].passage.text.split("\n")[0] if self.units else self.id
        return re.sub(r"\s+", " ", first.strip("#=- \t\n"))[:120]

    @property
    def written(self) -> date | None:
        """When it says that it was written: the last day of the first full date in its head; None if it does not say."""
        return self._date.end if self._date is not None else None

    @property
    def dated(self) -> str:
        """When it was written, as it says it: `2026-02-10`, or `2026-02` and `2026` where it names no day."""
        if self._date is None:
            return ""
        days = (self._date.end - self._date.start).days
        return self._date.end.isoformat()[: 10 if days <= 7 else 7 if days <= 31 else 4]

    @cached_property
    def _date(self) -> Span | None:
        head = "\n".join(unit.passage.text for unit in self.units[:5])[:1200]
        spans = [span for span in find_dates(head, _REFERENCE) if re.search(r"\b\d{4}\b", span.text) and span.end.year in _YEARS]
        return spans[0] if spans else None

    def cite(self, unit: TextUnit) -> str:
        """The name of the section that a unit stands in."""
        return f"{self.id}#{slug(unit.heading[-1])}" if unit.heading and slug(unit.heading[-1]) else self.id


def _parted(units: Iterable[TextUnit]) -> Iterator[TextUnit]:
    """The units, with those parted that hold two sentences: "was 11 ms. At 50,000" looks like the title of a lady to a splitter."""
    for unit in units:
        passage, start = unit.passage, 0
        for match in _AFTER_UNIT.finditer(passage.text) if unit.kind == "sentence" else ():
            yield replace(unit, passage=_piece(passage, start, match.start()))
            start = match.end()
        yield unit if start == 0 else replace(unit, passage=_piece(passage, start, len(passage.text)))


def _piece(passage: Passage, start: int, end: int) -> Passage:
    return Passage(passage.source, passage.start + start, passage.start + end, passage.text[start:end])


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
    """The documents of one stage by their names."""

    def __init__(self, documents: Iterable[SourceDocument] = ()) -> None:
        self._documents: dict[str, SourceDocument] = {}
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
    return re.search(rf"\b{_ORDERS['to_the_reader']}\b", text, re.IGNORECASE) is not None or not text.isascii()
