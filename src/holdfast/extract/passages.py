"""Sources, passages of them word for word, and the units that a source is cut into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from holdfast.errors import InputError
from holdfast.text.sentences import UnitKind, split_sentences


@dataclass(frozen=True, slots=True)
class Source:
    """A text and what it is called."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a source, word for word: `text` is `source.text[start:end]` of the source with that id."""

    source: str
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Unit:
    """A passage that may be chosen: a sentence, list item, table row, heading or block of code, and where it stands.

    `order` counts the units of all sources, `place` those of its own source. `heading` is what it stands under, from the
    outermost heading inwards.
    """

    passage: Passage
    kind: UnitKind
    order: int
    place: int
    siblings: int
    block: int
    heading: tuple[str, ...]


def cut(sources: Iterable[Source]) -> list[Unit]:
    """All units of all sources, in order. Raises InputError when two sources have one id: a passage could not be traced."""
    units: list[Unit] = []
    seen: set[str] = set()
    for source in sources:
        if source.id in seen:
            raise InputError(f"Two sources are called {source.id!r}.", hint="Give every source an id of its own.")
        seen.add(source.id)
        units.extend(_units(source, len(units)))
    return units


def _units(source: Source, first: int) -> Iterator[Unit]:
    sentences = split_sentences(source.text)
    path: list[tuple[int, str]] = []
    for place, sentence in enumerate(sentences):
        if sentence.kind == "heading":
            level = _level(source.text, sentence.text, sentence.end)
            path = [above for above in path if above[0] < level]
        passage = Passage(source.id, sentence.start, sentence.end, sentence.text)
        heading = tuple(text for _, text in path)
        yield Unit(passage, sentence.kind, first + place, place, len(sentences), sentence.block, heading)
        if sentence.kind == "heading":
            path.append((level, sentence.text.lstrip("# ").rstrip("# ")))


def _level(text: str, heading: str, end: int) -> int:
    """1 for the outermost: by its hashes, or by the line drawn below it."""
    hashes = len(heading) - len(heading.lstrip("#"))
    return hashes or (2 if text[end : end + 8].lstrip().startswith("-") else 1)
