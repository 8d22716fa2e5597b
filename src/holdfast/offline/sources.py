"""Where a researcher reads: a folder of files, a knowledge store, raw data of earlier stages. All of it comes as `Document`s.

A document's sections can be named, `notes/queues.md#tail-latency`, and `Library.text_of` finds what such a name stands for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError, InputError
from holdfast.extract.passages import Passage, Source, Unit, cut
from holdfast.offline.readable import readable
from holdfast.text.dates import Span, find_dates

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
