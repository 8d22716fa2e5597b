"""Sources, passages of them word for word, the units that a source is cut into, and whether a claim is in a source (`ground`).

Grounding is how facts are checked by their quote: word for word, but for case and punctuation, nearly, or not at all. "Nearly" never
bridges another number, another name or a negation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from holdfast.errors import InputError
from holdfast.text.likeness import Differences, compare
from holdfast.text.normalise import normalise, normalise_with_offsets
from holdfast.text.sentences import UnitKind, split_sentences


@dataclass(frozen=True, slots=True)
class SourceText:
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
class TextUnit:
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


def cut(sources: Iterable[SourceText]) -> list[TextUnit]:
    """All units of all sources, in order. Raises InputError when two sources have one id: a passage could not be traced."""
    units: list[TextUnit] = []
    seen: set[str] = set()
    for source in sources:
        if source.id in seen:
            raise InputError(f"Two sources are called {source.id!r}.", hint="Give every source an id of its own.")
        seen.add(source.id)
        units.extend(_units(source, len(units)))
    return units


def _units(source: SourceText, first: int) -> Iterator[TextUnit]:
    sentences = split_sentences(source.text)
    path: list[tuple[int, str]] = []
    for place, sentence in enumerate(sentences):
        if sentence.kind == "heading":
            path = [above for above in path if above[0] < sentence.level]
        passage = Passage(source.id, sentence.start, sentence.end, sentence.text)
        heading = tuple(text for _, text in path)
        yield TextUnit(passage, sentence.kind, first + place, place, len(sentences), sentence.block, heading)
        if sentence.kind == "heading":
            path.append((sentence.level, sentence.text.lstrip("# ").rstrip("# ")))


_WINDOW = 3  # a claim may gather up to so many neighbouring sentences
_NEARLY = 0.75
_EDGES = re.compile(r"^[\s\"'“”‘’«».,;:!?…()\[\]-]+|[\s\"'“”‘’«».,;:!?…()\[\]-]+$")


@dataclass(frozen=True, slots=True)
class Grounding:
    """What a source has for a claim: how well it fits (`score`, 1 for the first two kinds), and the passage, if any."""

    kind: Literal["exact", "normalised", "near", "absent"]
    score: float
    passage: Passage | None = None

    def __bool__(self) -> bool:
        return self.kind != "absent"


def ground(claim: str, sources: Iterable[SourceText], *, threshold: float = _NEARLY) -> Grounding:
    """The best grounding of a claim in any of the sources; the first source wins a tie.

    >>> ground("“costs 40 Euros”", [Source("a", "It  costs 40 euros.")]).kind
    'normalised'
    """
    best = Grounding("absent", 0.0)
    if not claim.strip():
        return best
    listed = list(sources)
    for look in (_exact, _normalised):
        for source in listed:
            found = look(claim, source)
            if found is not None:
                return found
    for source in listed:
        near = _near(claim, source)
        if near.score > best.score:
            best = near
    return best if best.score >= threshold else Grounding("absent", best.score)


def _exact(claim: str, source: SourceText) -> Grounding | None:
    start = _find(source.text, claim)
    return Grounding("exact", 1.0, _passage(source, start, start + len(claim))) if start >= 0 else None


def _find(text: str, wanted: str) -> int:
    """Where a text has the wanted one as whole words, -1 if nowhere: "port 80" is not in "port 8080"."""
    start = text.find(wanted)
    while start >= 0 and not _whole_words(text, start, start + len(wanted)):
        start = text.find(wanted, start + 1)
    return start


def _normalised(claim: str, source: SourceText) -> Grounding | None:
    wanted = normalise(_EDGES.sub("", claim))
    if not wanted:
        return None
    if wanted not in normalise(source.text):  # quick; the way back is made only when it is needed
        return None
    form = normalise_with_offsets(source.text)
    at = _find(form.text, wanted)
    if at < 0:
        return None
    return Grounding("normalised", 1.0, _passage(source, *form.original(at, at + len(wanted))))


def _whole_words(text: str, start: int, end: int) -> bool:
    """Whether the stretch begins and ends where words do. Scripts without spaces have no such places."""
    before = start > 0 and text[start - 1].isascii() and text[start - 1].isalnum() and text[start].isalnum()
    after = end < len(text) and text[end].isascii() and text[end].isalnum() and text[end - 1].isalnum()
    return not before and not after


def _near(claim: str, source: SourceText) -> Grounding:
    """The sentence, or the few neighbouring ones, that support the claim best."""
    best, place = 0.0, (0, 0)
    sentences = [unit for unit in split_sentences(source.text) if unit.kind != "code"]
    singles = [compare(claim, unit.text) for unit in sentences]
    for n, first in enumerate(sentences):
        for size in range(1, min(_WINDOW, len(sentences) - n) + 1):
            window = singles[n : n + size]
            if size > 1 and not (window[0].shared and window[-1].shared):
                continue  # a sentence at the edge that shares nothing adds nothing
            end = sentences[n + size - 1].end
            differs = window[0] if size == 1 else compare(claim, source.text[first.start : end])
            # Several sentences: the one that speaks of the claim most says whether it is denied.
            closest = max(window, key=lambda single: single.shared)
            score = _support(differs, denied=closest.negation) - 0.02 * (size - 1)
            if score > best:
                best, place = score, (first.start, end)
    return Grounding("near", best, _passage(source, *place)) if best else Grounding("absent", 0.0)


def _support(differs: Differences, *, denied: bool) -> float:
    """How far a stretch of source supports a claim. More in the source is no harm; more in the claim is."""
    if differs.numbers[0] or differs.names[0] or denied or differs.opposites:
        return min(0.5, differs.score)
    if differs.shared < 0.5:
        return differs.score
    return max(differs.score, min(0.99, differs.shared - 0.12 * len(differs.words[0])))


def _passage(source: SourceText, start: int, end: int) -> Passage:
    return Passage(source.id, start, end, source.text[start:end])
