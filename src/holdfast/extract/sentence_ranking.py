"""What makes a unit worth choosing: it answers the question, it is central to the text, it stands where writers put what matters.

All scores are between 0 and 1 and follow from the texts alone: the same input gives the same numbers on every machine.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.extract.answer_types import AskedQuestion, Wanted, offers
from holdfast.extract.passages import TextUnit
from holdfast.text.language import guess_language
from holdfast.text.words import terms


@dataclass(frozen=True, slots=True)
class RelevanceWeights:
    """How the parts of relevance count. The defaults were chosen on the development half of `benchmarks/data/extract`."""

    k1: float = 0.9  # saturation of a term: sentences are short, a second occurrence says little
    b: float = 0.1  # how far long sentences pay for their length
    neighbour: float = 0.25  # what a term of the sentence before is worth; less for those further away
    heading: float = 0.4  # what a term of the headings above is worth
    kindred: float = 0.5  # what a word of the same root is worth ("decide", "decision")
    topic: float = 0.6  # what is left of a term's weight when the whole source is about it
    coverage: float = 0.3  # how much it counts that many of the question's words are met, and not one of them often
    lacking: float = 0.45  # what is left of a unit's score when it lacks the kind of thing that is asked for


# How sure it is that an answer of this kind shows by its form: a date always does, a reason often has no mark.
_SHOWS: dict[Wanted, float] = {
    "date": 1.0, "time": 1.0, "number": 1.0, "money": 1.0, "duration": 1.0, "measure": 1.0, "share": 1.0, "person": 0.8, "place": 0.6,
    "reason": 0.5, "means": 0.4,
}  # fmt: skip


def unit_terms(units: Sequence[TextUnit]) -> list[list[str]]:
    """The terms of every unit, all of one source in that source's language."""
    languages: dict[str, str] = {}
    texts: dict[str, list[str]] = {}
    for unit in units:
        texts.setdefault(unit.passage.source, []).append(unit.passage.text)
    for source, pieces in texts.items():
        languages[source] = guess_language("\n".join(pieces)[:4000])
    return [terms(unit.passage.text, languages[unit.passage.source]) for unit in units]


def relevance(
    units: Sequence[TextUnit], found: Sequence[Sequence[str]], question: AskedQuestion, weights: RelevanceWeights | None = None
) -> list[float]:
    """How well each unit answers the question: BM25 over its own and its surroundings' terms, and whether it holds what is asked for.

    What a whole source is about tells its sentences apart from other sources' and not from each other, so every unit of the
    source gets credit for it and none much.
    """
    weights = weights or RelevanceWeights()
    asked = _asked(question, found, weights)
    idf = _idf(found)
    rare = _rare(len(found))
    worth = {term: idf.get(term, rare) * weight for term, weight in question.terms.items()}
    total = sum(worth.values()) or 1.0
    counts = [_weighed(_wanted_counts(own, asked)) for own in found]
    headings = _heading_counts(units, question.language, asked)
    topics = _topics(units, counts, headings)
    length = [len(own) or 1 for own in found]
    average = sum(length) / len(length) if length else 1.0
    scores = []
    for n, unit in enumerate(units):
        about = topics[unit.passage.source]
        tf = _soft_counts(n, units, counts, headings[n], about, weights)
        norm = weights.k1 * (1 - weights.b + weights.b * length[n] / average)
        score = sum(
            worth[term] * (weights.topic if term in about else 1.0) * value * (weights.k1 + 1) / (value + norm)
            for term, value in tf.items()
        )
        covered = sum(worth[term] * min(value, 1.0) for term, value in counts[n].items()) / total
        score *= 1 - weights.coverage + weights.coverage * covered
        scores.append(0.0 if unit.kind == "heading" else score * _fitness(unit, question, weights))
    best = max(scores, default=0.0) or 1.0
    return [score / best for score in scores]


def _topics(units: Sequence[TextUnit], counts: Sequence[dict[str, float]], headings: Sequence[dict[str, float]]) -> dict[str, set[str]]:
    """For each source the asked terms that it is about as a whole: they stand in its title or its first sentence."""
    topics: dict[str, set[str]] = {}
    opened: set[str] = set()
    for unit, own, above in zip(units, counts, headings, strict=True):
        source = unit.passage.source
        if source in opened:
            continue
        topics.setdefault(source, set()).update(own, above)
        if unit.kind != "heading":
            opened.add(source)
    return topics


def _asked(question: AskedQuestion, found: Sequence[Sequence[str]], weights: RelevanceWeights) -> dict[str, tuple[str, float]]:
    """For each term of the texts that counts: the term of the question it stands for, and how much it is worth."""
    asked = {term: (term, 1.0) for term in question.terms}
    roots: dict[str, list[str]] = {}
    for term in question.terms:
        if len(term) >= 4 and term.isascii() and term.isalpha():
            roots.setdefault(term[:4], []).append(term)
    for term in dict.fromkeys(term for own in found for term in own):
        if term in asked or not (len(term) >= 4 and term.isascii() and term.isalpha()):
            continue
        for other in roots.get(term[:4], ()):
            if _kindred(term, other):
                asked[term] = (other, weights.kindred)
                break
    return asked


def _kindred(term: str, other: str) -> bool:
    """Whether two stems share their root: all but the ending of the shorter one."""
    same = 0
    for a, b in zip(term, other, strict=False):
        if a != b:
            break
        same += 1
    return same >= max(4, math.ceil(0.75 * min(len(term), len(other)))) and abs(len(term) - len(other)) <= 4


def _wanted_counts(own: Sequence[str], asked: Mapping[str, tuple[str, float]]) -> Counter[tuple[str, float]]:
    return Counter(asked[term] for term in own if term in asked)


def _weighed(counted: Counter[tuple[str, float]]) -> dict[str, float]:
    weighed: dict[str, float] = {}
    for (term, worth), count in counted.items():
        weighed[term] = weighed.get(term, 0.0) + worth * count
    return weighed


def _idf(found: Sequence[Sequence[str]]) -> dict[str, float]:
    df = Counter(term for own in found for term in dict.fromkeys(own))
    return {term: math.log(1 + (len(found) - n + 0.5) / (n + 0.5)) for term, n in df.items()}


def _rare(units: int) -> float:
    return math.log(1 + (units + 0.5) / 0.5)


def _heading_counts(units: Sequence[TextUnit], language: str, asked: Mapping[str, tuple[str, float]]) -> list[dict[str, float]]:
    made: dict[tuple[str, ...], dict[str, float]] = {}
    for unit in units:
        if unit.heading not in made:
            made[unit.heading] = _weighed(_wanted_counts(terms(" ".join(unit.heading), language), asked)) if unit.heading else {}
    return [made[unit.heading] for unit in units]


def _soft_counts(
    n: int,
    units: Sequence[TextUnit],
    counts: Sequence[dict[str, float]],
    heading: dict[str, float],
    about: set[str],
    weights: RelevanceWeights,
) -> dict[str, float]:
    """A unit's own terms, and at a discount those around it: a neighbour or a heading supplies what "it" refers to."""
    soft = dict(counts[n])
    around = [(heading, weights.heading), (dict.fromkeys(about, 1.0), weights.neighbour)]
    for away, share in ((-1, 1.0), (1, 0.6), (-2, 0.5), (2, 0.2)):
        other = n + away
        if 0 <= other < len(units) and units[other].passage.source == units[n].passage.source:
            around.append((counts[other], weights.neighbour * share))
    for supplied, share in around:
        for term, value in supplied.items():
            if term not in counts[n]:
                soft[term] = max(soft.get(term, 0.0), min(value, 1.0) * share)
    return soft


def _fitness(unit: TextUnit, question: AskedQuestion, weights: RelevanceWeights) -> float:
    """1 for a unit that holds what is asked for, less for one that lacks it, the less the surer it would show."""
    fitness = 1.0
    for wanted in sorted(question.wanted):
        if not offers(unit.passage.text, wanted):
            fitness *= 1 - (1 - weights.lacking) * _SHOWS[wanted]
    return fitness


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
