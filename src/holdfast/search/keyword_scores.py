"""B of the ranking: BM25 over units and their neighbours, as the share of the most that the question could score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log

import numpy as np
from numpy.typing import NDArray

from holdfast.search.corpus import WINDOW, Corpus, beside
from holdfast.search.questions import analysed, asked_terms, lookalikes
from holdfast.text.language import guess_language
from holdfast.text.words import keys, tokenise

Floats = NDArray[np.float32]
Units = NDArray[np.int64]

_K1, _B = 1.2, 0.5
_DATE = 0.5  # what a word of a unit's date counts against one of its text
_COMMON = 2_000  # units: a word in more of them is not lent to neighbours, it says too little for the time that it takes
_SHOWN = 8


@dataclass(slots=True)
class Keywords:
    """What the terms of a question give to which units."""

    total: Floats
    gains: dict[str, tuple[Units, Floats]] = field(default_factory=dict)
    rarity: dict[str, float] = field(default_factory=dict)
    """How rare each term is among the units."""
    spoken: dict[str, float] = field(default_factory=dict)
    """How rare each term is in what is compared word by word."""
    most: float = 0.0

    def words_of(self, unit: int) -> tuple[str, ...]:
        """The terms that a unit holds or borrows, the weightiest first."""
        given: dict[str, float] = {}
        for term, (units, gains) in self.gains.items():
            place = int(np.searchsorted(units, unit))
            if place < len(units) and units[place] == unit:
                given[term] = float(gains[place])
        return tuple(sorted(given, key=lambda term: (-given[term], term))[:_SHOWN])


@dataclass(frozen=True, slots=True)
class _Scope:
    """The units that count for how rare and how long things are."""

    units: int
    allowed: NDArray[np.bool_] | None
    near: NDArray[np.bool_] | None
    """The allowed units and those that can lend them words."""
    average: float


def keyword_scores(question: str, corpus: Corpus, allowed: NDArray[np.bool_] | None = None) -> Keywords:
    """The scores of all units; how rare a word is, and how long a unit is on average, is counted over the allowed ones."""
    found = Keywords(np.zeros(corpus.units, np.float32))
    sizes = corpus.size if allowed is None else corpus.size[allowed]
    if not len(sizes):
        return found
    scope = _Scope(len(sizes), allowed, None if allowed is None else _near(allowed, corpus), max(float(sizes.mean()), 1.0))
    for forms in _forms(question, corpus.languages()):
        known = {term: 1.0 for term in forms if corpus.has(term) or corpus.dated(term) is not None}
        if not known:
            for term in forms:
                known |= lookalikes(term, corpus.terms_beginning_with)
        best = log(1 + (scope.units + 0.5) / 0.5) if not known else 0.0
        for term, likeness in known.items():
            if term not in found.gains:
                _add(found, term, likeness, corpus, scope)
            best = max(best, found.rarity[term])
        found.most += best
    if found.most:
        found.total /= found.most * (_K1 + 1)
    return found


def _near(allowed: NDArray[np.bool_], corpus: Corpus) -> NDArray[np.bool_]:
    units = np.flatnonzero(allowed)
    found = allowed.copy()
    for distance in range(1, len(WINDOW) + 1):
        for step in (distance, -distance):
            other, near = beside(units, step, corpus.line)
            found[other[near]] = True
    return found


def _forms(question: str, languages: Sequence[str]) -> list[list[str]]:
    """The words of a question that say something, each in the forms that the languages of the index give it; each word once."""
    codes = list(dict.fromkeys([guess_language(question[:4000]), *languages, "en"]))
    known = set(asked_terms(question, languages))
    found: dict[tuple[str, ...], None] = {}
    for word in tokenise(question[:20_000]):
        forms = dict.fromkeys(term for code in codes for term in analysed(keys(word, code)) if term in known)
        if forms:
            found[tuple(forms)] = None
    return [list(forms) for forms in found]


def _add(found: Keywords, term: str, likeness: float, corpus: Corpus, scope: _Scope) -> None:
    """Add what a term gives to every unit that holds it, or stands beside one that does."""
    rows, counts = corpus.postings(term)
    if scope.near is not None:
        inside = scope.near[corpus.unit_of[rows]]
        rows, counts = rows[inside], counts[inside]
    holding, amount = _by_unit(corpus.unit_of[rows], counts, corpus.units)
    held = len(holding) if scope.allowed is None else int(scope.allowed[holding].sum())
    found.rarity[term] = likeness * _rarity(held, scope.units)
    said = rows[corpus.spoken[rows]]
    said = said if scope.allowed is None else said[scope.allowed[corpus.unit_of[said]]]
    found.spoken[term] = _rarity(len(said), scope.units)
    units, amounts = [holding], [amount]
    if len(holding) <= _COMMON:
        lent = amount * corpus.share[holding]
        for distance, part in enumerate(WINDOW, 1):
            for step in (distance, -distance):
                other, near = beside(holding, step, corpus.line)
                units.append(other[near])
                amounts.append(part * lent[near])
    dated = corpus.dated(term)
    if dated is not None:
        units.append(np.flatnonzero(dated))
        amounts.append(np.full(len(units[-1]), _DATE, np.float32))
    touched, some = _by_unit(np.concatenate(units), np.concatenate(amounts), corpus.units) if len(units) > 1 else (holding, amount)
    damping = _K1 * (1 - _B + _B / scope.average * corpus.size[touched])
    gain = (found.rarity[term] * (_K1 + 1) * some / (some + damping)).astype(np.float32)
    found.gains[term] = (touched, gain)
    found.total[touched] += gain


def _by_unit(units: Units, amounts: Floats, total: int) -> tuple[Units, Floats]:
    """The units that occur, in order, and the sum of the amounts of each."""
    if len(units) * 8 < total:
        touched, places = np.unique(units, return_inverse=True)
        return touched, np.bincount(places, amounts, minlength=len(touched)).astype(np.float32)
    summed = np.bincount(units, amounts, minlength=total)
    touched = np.flatnonzero(summed)
    return touched, summed[touched].astype(np.float32)


def _rarity(held: int, units: int) -> float:
    return log(1 + max(units - held + 0.5, 0.0) / (held + 0.5))
