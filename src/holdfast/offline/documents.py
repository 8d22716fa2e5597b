"""Documents that sentences can be quoted from: files as plain Markdown, cut into units, with a name for each section.

HTML and JSON become Markdown; the words are never changed, only what surrounds them goes: markup, scripts, navigation. A section can be
cited, `notes/queues.md#tail-latency`, and `Library.text_of` finds what such a citation stands for. Sentences that speak to whoever
reads them as an assistant are data like all the rest and never findings: `tainted_units` finds them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError, InputError
from holdfast.extract.passages import Passage, Source, Unit, cut
from holdfast.memory.instructions import find_instruction
from holdfast.text.dates import Span, find_dates
from holdfast.text.normalise import strip_invisible

_SKIPPED = frozenset(
    ("script", "style", "nav", "footer", "header", "aside", "template", "svg", "noscript", "form", "button", "select", "iframe", "head")
)
_BLOCKS = frozenset(
    (
        "p",
        "div",
        "section",
        "article",
        "main",
        "ul",
        "ol",
        "table",
        "thead",
        "tbody",
        "blockquote",
        "dl",
        "dt",
        "dd",
        "figure",
        "figcaption",
        "body",
        "hr",
        "address",
    )
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_TITLES = ("title", "name", "heading", "subject", "page", "id")
_ITEM = re.compile(r"[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]+\S")
_TITLE_LINE = re.compile(r"(?!\s*[-*+#>|•=`])\s{0,3}[\w\"“(].{0,78}[^\s.!?:;,。！？]")
_PROSE = 4  # words from which on a JSON text counts as a sentence and not as a value


def readable(data: bytes | str, suffix: str) -> str:
    """The text of a file by the ending of its name. What is not UTF-8 shows as U+FFFD; a BOM and characters that draw nothing go."""
    text = data if isinstance(data, str) else data.decode("utf-8-sig", errors="replace")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    ending = suffix.lower().lstrip(".")
    if ending in ("html", "htm", "xhtml"):
        text = _from_html(text)
    elif ending in ("txt", "text", ""):
        text = _from_text(text)
    elif ending == "json":
        text = _from_json(text)
    elif ending in ("jsonl", "ndjson"):
        text = "\n\n".join(_from_json(line) for line in text.splitlines() if line.strip())
    return strip_invisible(text)


class _Reader(HTMLParser):
    """Writes the readable parts of a page as Markdown blocks."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[str] = []
        self._line: list[str] = []
        self._prefix = ""
        self._skipping: list[str] = []
        self._cells: list[str] | None = None
        self._keeps_space = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SKIPPED or self._skipping:
            if tag in _SKIPPED:
                self._skipping.append(tag)
            return
        if tag in _HEADINGS:
            self._end_block("#" * _HEADINGS[tag] + " ")
        elif tag == "li":
            self._end_block("- ")
        elif tag == "pre":
            self._end_block("")
            self._keeps_space = True
        elif tag == "tr":
            self._end_block("")
            self._cells = []
        elif tag == "br":
            self._line.append("\n")
        elif tag in _BLOCKS:
            self._end_block("")

    def handle_endtag(self, tag: str) -> None:
        if self._skipping:
            if tag in self._skipping:
                while self._skipping and self._skipping.pop() != tag:
                    pass
            return
        if tag in ("td", "th") and self._cells is not None:
            self._cells.append(self._taken())
        elif tag == "tr" and self._cells is not None:
            row = f"| {' | '.join(self._cells)} |" if any(self._cells) else ""
            self._cells = None
            self._line = [row]
            self._end_block("")
        elif tag == "pre":
            code = "".join(self._line).strip("\n")
            self._line = []
            self._keeps_space = False
            if code.strip():
                self.blocks.append(f"```\n{code}\n```")
        elif tag in _HEADINGS or tag == "li" or tag in _BLOCKS:
            self._end_block("")

    def handle_data(self, data: str) -> None:
        if not self._skipping:
            self._line.append(data)

    def close(self) -> None:
        super().close()
        self._end_block("")

    def _taken(self) -> str:
        raw = "".join(self._line)
        self._line = []
        if self._keeps_space:
            return raw
        return "\n".join(line for line in (re.sub(r"[ \t\n]+", " ", piece).strip() for piece in raw.split("\n\n")) if line)

    def _end_block(self, prefix: str) -> None:
        text = self._taken()
        if text.strip():
            self.blocks.append(self._prefix + text)
        self._prefix = prefix


def _from_html(text: str) -> str:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return _joined(reader.blocks)


def _joined(blocks: list[str]) -> str:
    """The blocks with a blank line between them, but not inside a list or a table."""
    pieces: list[str] = []
    for before, block in zip(["", *blocks], blocks, strict=False):
        together = any(before.startswith(mark) and block.startswith(mark) for mark in ("- ", "| "))
        pieces.append(("\n" if together else "\n\n" if before else "") + block)
    return "".join(pieces) + "\n"


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
    return _joined(blocks)


def _write_json(value: Any, level: int, blocks: list[str], name: str = "") -> None:
    """Objects become sections under their title, long texts paragraphs, short values items."""
    if level > 40:
        return
    if isinstance(value, dict):
        title = next((key for key in _TITLES if isinstance(value.get(key), str) and value[key].strip()), None)
        if title is not None:
            blocks.append(f"{'#' * min(level, 6)} {_one_line(value[title])}")
        for key, member in value.items():
            if key != title:
                _write_json(member, level + (title is not None), blocks, str(key))
    elif isinstance(value, list):
        for member in value:
            _write_json(member, level, blocks, name)
    elif isinstance(value, str) and len(value.split()) >= _PROSE:
        blocks.append(value.strip())
    elif value is not None and str(value).strip():
        blocks.append(f"- {name}: {_one_line(str(value))}" if name else f"- {_one_line(str(value))}")


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


ENDINGS = (".md", ".markdown", ".txt", ".rst", ".html", ".htm", ".json", ".jsonl")
_LARGEST = 20_000_000  # bytes of one file: what is larger is no document that somebody wrote
_REFERENCE = date(2000, 6, 15)
_YEARS = range(1950, 2101)
_AFTER_UNIT = re.compile(r"(?<=\d ms\.)\s+(?=[A-Z])|(?<=\dms\.)\s+(?=[A-Z])")


@dataclass(frozen=True)
class Document:
    """One text with a name that can be cited. `ref` is where its text is kept as raw data, once it is."""

    id: str
    text: str
    ref: str | None = None
    trust: str = "low"
    extra: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """Its sentences, items, rows and headings, in order."""
        return tuple(_parted(cut([Source(self.id, self.text)])))

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
        """The same as it says it: `2026-02-10`, or `2026-02` and `2026` where it names no day."""
        if self._date is None:
            return ""
        days = (self._date.end - self._date.start).days
        return self._date.end.isoformat()[: 10 if days <= 7 else 7 if days <= 31 else 4]

    @cached_property
    def _date(self) -> Span | None:
        head = "\n".join(unit.passage.text for unit in self.units[:5])[:1200]
        spans = [span for span in find_dates(head, _REFERENCE) if re.search(r"\b\d{4}\b", span.text) and span.end.year in _YEARS]
        return spans[0] if spans else None

    def cite(self, unit: Unit) -> str:
        """The name of the section that a unit stands in."""
        return f"{self.id}#{slug(unit.heading[-1])}" if unit.heading and slug(unit.heading[-1]) else self.id


def _parted(units: Iterable[Unit]) -> Iterator[Unit]:
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

    def __init__(self, documents: Iterable[Document] = ()) -> None:
        self._documents: dict[str, Document] = {}
        for document in documents:
            self.add(document)

    def add(self, document: Document) -> None:
        """Take a document in. One of the same name and text is the same; of another text it is an InputError."""
        there = self._documents.get(document.id)
        if there is not None and there.text != document.text:
            raise InputError(f"Two sources are called {document.id!r}.", hint="Give every source a name of its own.")
        self._documents.setdefault(document.id, document)

    def __iter__(self) -> Iterator[Document]:
        return iter(self._documents.values())

    def __len__(self) -> int:
        return len(self._documents)

    def get(self, source: str) -> Document | None:
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


def read_folder(folder: Path, globs: Sequence[str] = ("**/*",), *, key: str = "sources.folder") -> list[Document]:
    """The documents below a folder whose paths fit one of the patterns, by path. ConfigError if there is no such folder, or nothing in it.

    Links that lead out of the folder are not followed.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise ConfigError(
            f"the folder {str(folder)!r} {what}.", key=key, hint="Give the path of a folder with .md, .txt, .html or .json files."
        )
    root = folder.resolve()
    found: dict[str, Document] = {}
    for pattern in globs:
        if pattern.startswith(("/", "~")) or ".." in Path(pattern).parts:
            raise ConfigError(f"the pattern {pattern!r} leads out of the folder.", key="sources.globs", hint="Write it like `**/*.md`.")
        for path in root.glob(pattern):
            name = path.relative_to(root).as_posix()
            hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
            if (
                name not in found
                and not hidden
                and path.suffix.lower() in ENDINGS
                and path.is_file()
                and path.resolve().is_relative_to(root)
            ):
                found[name] = _document(path, name)
    documents = [found[name] for name in sorted(found) if found[name].text.strip()]
    if not documents:
        raise ConfigError(
            f"there is nothing to read in {str(folder)!r}.",
            key=key,
            hint=f"Put {', '.join(ENDINGS)} files there, or change `sources.globs`.",
        )
    return documents


def _document(path: Path, name: str) -> Document:
    try:
        if path.stat().st_size > _LARGEST:
            raise InputError(f"{name} has more than {_LARGEST // 1_000_000} MB.", hint="Split it, or leave it out with `sources.globs`.")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror or error}.") from error
    try:
        return Document(name, readable(data, path.suffix))
    except InputError as error:
        raise InputError(f"{name}: {error.message}", hint=error.hint) from error


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
