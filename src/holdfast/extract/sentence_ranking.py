"""What makes a unit worth choosing where no question is asked: it is central to the text, it stands where writers put what matters.

All scores are between 0 and 1 and follow from the texts alone: the same input gives the same numbers on every machine.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from holdfast.extract.passages import TextUnit
from holdfast.text.language import guess_language
from holdfast.text.words import terms


def unit_terms(units: Sequence[TextUnit]) -> list[list[str]]:
    """The terms of every unit, all of one source in that source's language."""
    languages: dict[str, str] = {}
    texts: dict[str, list[str]] = {}
    for unit in units:
        texts.setdefault(unit.passage.source, []).append(unit.passage.text)
    for source, pieces in texts.items():
        languages[source] = guess_language("\n".join(pieces)[:4000])
    return [terms(unit.passage.text, languages[unit.passage.source]) for unit in units]


def _idf(found: Sequence[Sequence[str]]) -> dict[str, float]:
    df = Counter(term for own in found for term in dict.fromkeys(own))
    return {term: math.log(1 + (len(found) - n + 0.5) / (n + 0.5)) for term, n in df.items()}


def centrality(found: Sequence[Sequence[str]], *, rounds: int = 8) -> list[float]:
    """How much each unit shares with the others: a random walk between units and their terms, as TextRank does it.

    Walking through the terms instead of comparing all pairs keeps it linear in the length of the text.
    """
    rows, holders = _shares(found)
    score = [1.0 / len(rows)] * len(rows) if rows else []
    for _ in range(rounds):
        flow = [0.0] * len(holders)
        for row, own in zip(rows, score, strict=True):
            for term, weight in row:
                flow[term] += own * weight
        spread = [amount / held for amount, held in zip(flow, holders, strict=True)]
        score = [0.15 / len(rows) + 0.85 * sum([spread[term] * weight for term, weight in row]) for row in rows]
    return _scaled([value * _damp(len(own)) for value, own in zip(score, found, strict=True)])


def _shares(found: Sequence[Sequence[str]]) -> tuple[list[list[tuple[int, float]]], list[float]]:
    """For each unit its terms as numbers with their share of its weight, and for each term the sum of its shares."""
    idf = _idf(found)
    numbers = {term: n for n, term in enumerate(idf)}
    holders = [0.0] * len(numbers)
    rows = []
    for own in found:
        distinct = list(dict.fromkeys(own))
        total = sum(idf[term] for term in distinct) or 1.0
        row = [(numbers[term], idf[term] / total) for term in distinct]
        for term, weight in row:
            holders[term] += weight
        rows.append(row)
    return rows, holders


def _damp(length: int) -> float:
    """Units of one or two words are central to nothing."""
    return min(1.0, length / 5)


def _scaled(values: list[float]) -> list[float]:
    low, high = min(values, default=0.0), max(values, default=0.0)
    return [(value - low) / (high - low) if high > low else 0.5 for value in values]


def positions(units: Sequence[TextUnit]) -> list[float]:
    """Where writers put what matters: the beginning of a source first, its end next, the first sentence of a paragraph."""
    scores = []
    for n, unit in enumerate(units):
        ahead = 1 / (1 + unit.place * 0.5)
        behind = 0.5 / (1 + (unit.siblings - 1 - unit.place) * 0.5)
        opens = n == 0 or units[n - 1].block != unit.block or units[n - 1].passage.source != unit.passage.source
        scores.append(min(1.0, max(ahead, behind) + (0.15 if opens else 0.0)))
    return scores
