"""Pairs of sentences about the same thing that do not agree: another number, another date, or a yes against a no.

Only plain cases count. Two sentences with other names are about other things, and figures that change together with their
dates are a development, not a contradiction.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from holdfast.extract.passages import Passage, Source, cut
from holdfast.extract.ranking import unit_terms
from holdfast.text.dates import Span, find_dates
from holdfast.text.language import guess_language
from holdfast.text.likeness import Differences, compare
from holdfast.text.normalise import normalise
from holdfast.text.polarity import without_negations

Kind = Literal["number", "date", "negation"]

_REFERENCE = date(2000, 6, 15)  # what "last Friday" counts from is the same for both, so any day serves
_FIGURES = re.compile(r"\d+")
_ABOUT_THE_SAME = 0.6  # of the shorter sentence's content words
_COMPANY = 40  # sentences that may share a term before it says too little to bring two together


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two passages that do not agree, in what, and what each says. For a negation the values are empty."""

    first: Passage
    second: Passage
    kind: Kind
    first_value: str
    second_value: str
    shared: float


def find_disagreements(sources: Iterable[Source], *, within: bool = True) -> list[Disagreement]:
    """All disagreements between the sentences of the sources, in order. `within=False` looks only between different sources."""
    units = [unit for unit in cut(sources) if unit.kind in ("sentence", "item", "row")]
    found: list[Disagreement] = []
    for a, b in _candidates(unit_terms(units)):
        first, second = units[a].passage, units[b].passage
        if within or first.source != second.source:
            disagreement = disagreement_of(first, second)
            if disagreement is not None:
                found.append(disagreement)
    return found


def _candidates(found: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """Pairs that share at least two terms that are not everywhere."""
    holders: dict[str, list[int]] = {}
    for n, own in enumerate(found):
        for term in dict.fromkeys(own):
            holders.setdefault(term, []).append(n)
    common: Counter[tuple[int, int]] = Counter()
    for numbers in holders.values():
        if 2 <= len(numbers) <= _COMPANY:
            common.update((a, b) for i, a in enumerate(numbers) for b in numbers[i + 1 :])
    return sorted(pair for pair, shared in common.items() if shared >= 2)


def disagreement_of(first: Passage, second: Passage) -> Disagreement | None:
    """In what two passages about the same thing disagree, or None."""
    differs = compare(first.text, second.text)
    if differs.shared < _ABOUT_THE_SAME or (differs.names[0] and differs.names[1] and not _only_dates(differs, first.text, second.text)):
        return None
    dates = _other_dates(first.text, second.text)
    numbers = _other_numbers(differs, first.text, second.text)
    if dates and numbers:
        return None  # each time its figure: a development
    if numbers:
        return Disagreement(first, second, "number", *numbers, differs.shared)
    if dates:
        return Disagreement(first, second, "date", dates[0].text, dates[1].text, differs.shared)
    if _turned_round(differs, first.text, second.text):
        return Disagreement(first, second, "negation", "", "", differs.shared)
    return None


def _turned_round(differs: Differences, first: str, second: str) -> bool:
    """Whether one denies what the other says: the same words but for the negation, or one word and its opposite."""
    if differs.opposites and not differs.negation:
        return True
    if not differs.negation:
        return False
    language = guess_language(f"{first}\n{second}")
    bare = compare(without_negations(normalise(first), language), without_negations(normalise(second), language), language)
    return bare.shared >= 0.75 and not (bare.words[0] and bare.words[1])


def _other_dates(first: str, second: str) -> tuple[Span, Span] | None:
    """The first dates of both that exclude each other; None when one has none or they overlap."""
    mine, theirs = find_dates(first, _REFERENCE), find_dates(second, _REFERENCE)
    if not mine or not theirs:
        return None
    if any(a.start <= b.end and b.start <= a.end for a in mine for b in theirs):
        return None
    return mine[0], theirs[0]


def _other_numbers(differs: Differences, first: str, second: str) -> tuple[str, str] | None:
    """Numbers that only one of both has, dates left out."""
    mine = sorted(differs.numbers[0] - _in_dates(first))
    theirs = sorted(differs.numbers[1] - _in_dates(second))
    return (", ".join(mine), ", ".join(theirs)) if mine and theirs else None


def _in_dates(text: str) -> set[str]:
    spans = find_dates(text, _REFERENCE)
    return {piece for span in spans for piece in (span.text, *span.text.split(), *_FIGURES.findall(span.text))}


def _only_dates(differs: Differences, first: str, second: str) -> bool:
    """Whether the names that differ are names of months and days."""
    for names, text in zip(differs.names, (first, second), strict=True):
        spoken = " ".join(span.text.lower() for span in find_dates(text, _REFERENCE))
        if any(name not in spoken for name in names):
            return False
    return True
