"""The one ranking: how well a unit answers a question, by words, meaning, word-by-word likeness, time and speaker.

Stores deliver candidates as a `Corpus` and what they know about all of their records as `Statistics`; `rank` scores them, the same for
every adapter. Each ingredient has a scale of its own, and they are added up by `Weights`:

    token     word by word: how well each word of the question is met by some word of a piece (or, a little less, of its neighbours), 0 to 1
    sentence  meaning: the cosine of the best piece
    context   meaning in context: the mean cosine of the whole unit and, at a lower weight, of its neighbours
    keyword   BM25 over the unit and its neighbours, as the share of the most that the question could score
    time      1 inside the period that the question names, falling outside
    speaker   1 if the question names who said it
    wish      1 if it states a standing wish (`pieces`) and there is anything that joins it to the question

No ingredient is scaled by what else was found, so a score does not depend on how many candidates were looked at. `plain_ranking` is the
same without vectors and without numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from holdfast.search.corpus import Corpus, CorpusStatistics, beside
from holdfast.search.pieces import WISH
from holdfast.search.plain_ranking import COMMON, DATE, EXACT, K1, SHOWN, WINDOW, B
from holdfast.search.questions import Asked, Ranked, Sought, Statistics, Weights, named_speaker, token_weights, weigh, weights_in_use
from holdfast.search.segments import NOTHING, WORD_SCALE, Segment, product

Floats = NDArray[np.float32]
Units = NDArray[np.int64]
Tokens = Callable[[NDArray[np.int64]], NDArray[np.int8]]
"""For rows of the corpus: the bytes of the vectors of all their words, row by row and piece by piece."""

_CONTEXT = (0.7, 0.49)  # what neighbours at distance 1 and 2 add to the meaning of a turn
_OWN, _NEAR, _REACH = 0.95, 0.8, 2  # word by word, in talk: what another piece of the same turn counts, a neighbour, and how far they reach
_CANDIDATES, _DEEPER = 100, 4  # units that are looked at word by word: at least so many, and so many times what is wanted
_MANY = 20_000  # units: of more, only those that are about near enough are compared exactly
_WORTH = 300


def rank(
    asked: Asked,
    corpus: Corpus,
    *,
    known: Statistics | None = None,
    allowed: NDArray[np.bool_] | None = None,
    tokens: Tokens | None = None,
    limit: int = 10,
    weights: Weights | None = None,
) -> list[Ranked]:
    """The units that answer the question best, best first and at most `limit`; only those of which some row is allowed.

    `known` are the statistics of the store; without them those of the allowed rows. `tokens` reads the vectors of words: it is asked for
    the most promising units and their neighbours only.
    """
    weights = weights or weights_in_use()
    scope = None if allowed is None else np.unique(corpus.unit_of[allowed])
    if not corpus.units or (scope is not None and not len(scope)):
        return []
    known = known or CorpusStatistics(corpus, allowed)
    sought = weigh(asked.text, known)
    keywords = _keyword_scores(sought, known.average, corpus, scope)
    score = weights.keyword * keywords.total
    by_word = asked.tokens is not None and len(asked.tokens) > 0 and tokens is not None
    time, speaker = _time(asked, corpus.day), _speaker(named_speaker(asked.text, known), corpus)
    wish = _wishes(corpus, None if asked.vector is not None else keywords.total > 0)
    bonus = np.zeros(corpus.units, np.float32)
    for part, values in ((weights.time, time), (weights.speaker, speaker), (weights.wish, wish)):
        if values is not None:
            bonus += part * values
    sentence = None
    if asked.vector is not None:
        if (corpus.units if scope is None else len(scope)) > _MANY:
            about = (weights.sentence + weights.context) * coarse_scores(asked.vector, corpus)
            scope = _best(score + bonus + about, scope, max(_WORTH, 2 * _DEEPER * limit))
        sentence, context = meaning_scores(asked.vector, corpus, scope)
        score += weights.sentence * sentence + weights.context * context
    if not by_word:
        score *= weights.filled
    score += bonus
    chosen = _best(score, scope, max(_CANDIDATES, _DEEPER * limit))
    total, token = score[chosen], None
    if by_word and asked.tokens is not None and tokens is not None:
        token = late_scores(asked.tokens, token_weights(asked.words, sought), corpus, chosen, tokens)
        total = total + weights.token * token
    newest = np.maximum(corpus.moment[corpus.order[corpus.unit_starts[chosen]]], NOTHING + 1)  # so that its negative fits
    places = np.lexsort((-chosen, -newest, -np.round(total, EXACT)))
    shown = places[total[places] > 0][:limit].tolist()
    parts = (sentence, time, speaker, wish)
    return [_ranked(int(chosen[place]), float(total[place]), corpus, keywords, token, place, parts) for place in shown]


def _ranked(
    unit: int,
    score: float,
    corpus: Corpus,
    keywords: _Keywords,
    token: Floats | None,
    place: int,
    parts: tuple[Floats | None, Floats | None, Floats | None, Floats | None],
) -> Ranked:
    members = corpus.numbers[corpus.order[corpus.unit_starts[unit] : corpus.unit_starts[unit + 1]]]
    sentence, time, speaker, wish = (None if part is None else float(part[unit]) for part in parts)
    own = None if token is None else float(token[place])
    words, keyword = keywords.words_of(unit), float(keywords.total[unit])
    return Ranked(unit, tuple(members.tolist()), score, words, keyword, sentence, own, time, speaker, bool(wish))


def _best(score: Floats, scope: Units | None, count: int) -> Units:
    """The best of the scope, in the order of their numbers, so that nothing depends on how they were found."""
    values = score if scope is None else score[scope]
    if len(values) <= count:
        return np.arange(len(values)) if scope is None else scope
    places = np.sort(np.argpartition(-values, count - 1)[:count])
    return places if scope is None else scope[places]


def _time(asked: Asked, day: NDArray[np.int64]) -> Floats | None:
    """How near each unit is to the periods that the question names; None if it names none."""
    if not asked.periods:
        return None
    best = np.zeros(len(day), np.float32)
    for first, last, fade in asked.periods:
        away = np.maximum(np.maximum(first - day, day - last), 0)
        best = np.maximum(best, 1.0 - away / fade).astype(np.float32)
    return np.where(day < 0, np.float32(0.0), best)


def _speaker(name: str | None, corpus: Corpus) -> Floats | None:
    """1 for what was said by the speaker with this name; None if there is none."""
    if name is None:
        return None
    said_by = np.zeros(len(corpus.speakers) + 1, np.float32)  # the last is for units without a speaker
    said_by[corpus.speaker_codes().get(name, [])] = 1.0
    return said_by[corpus.speaker]


def _wishes(corpus: Corpus, joined: NDArray[np.bool_] | None) -> Floats | None:
    """1 for what states a standing wish, among the units that are joined to the question; None if there is no wish."""
    rows, _ = corpus.postings(WISH)
    if not len(rows):
        return None
    stated = np.zeros(corpus.units, np.float32)
    stated[corpus.unit_of[rows]] = 1.0
    return stated if joined is None else stated * joined


# Keywords


@dataclass(slots=True)
class _Keywords:
    """What the terms of a question give to which units."""

    total: Floats
    gains: dict[str, tuple[Units, Floats]] = field(default_factory=dict)

    def words_of(self, unit: int) -> tuple[str, ...]:
        """The terms that a unit holds or borrows, the weightiest first."""
        given: dict[str, float] = {}
        for term, (units, gains) in self.gains.items():
            place = int(np.searchsorted(units, unit))
            if place < len(units) and units[place] == unit:
                given[term] = float(gains[place])
        return tuple(sorted(given, key=lambda term: (-round(given[term], EXACT), term))[:SHOWN])


def _keyword_scores(sought: Sought, average: float, corpus: Corpus, scope: Units | None) -> _Keywords:
    """BM25 of all units: what each term gives to those that hold it, or stand beside one that does, as a share of `sought.most`."""
    found = _Keywords(np.zeros(corpus.units, np.float32))
    near = None if scope is None else _near(scope, corpus)
    for term, weight in sought.rarity.items():
        touched, some = _amounts(term, sought.held[term] <= COMMON, corpus, near)
        damping = K1 * (1 - B + B / average * corpus.length[touched])
        gain = (weight * (K1 + 1) * some / (some + damping)).astype(np.float32)
        found.gains[term] = (touched, gain)
        found.total[touched] += gain
    if sought.most:
        found.total /= sought.most * (K1 + 1)
    return found


def _near(scope: Units, corpus: Corpus) -> NDArray[np.bool_]:
    """The units of the scope and those that can lend them words."""
    found = np.zeros(corpus.units, np.bool_)
    found[scope] = True
    for distance in range(1, len(WINDOW) + 1):
        for step in (distance, -distance):
            other, near = beside(scope, step, corpus.line)
            found[other[near]] = True
    return found


def _amounts(term: str, lent: bool, corpus: Corpus, near: NDArray[np.bool_] | None) -> tuple[Units, Floats]:
    """The units that hold a term, have it in their date, or borrow it, and how much of it."""
    rows, counts = corpus.postings(term)
    if near is not None:
        inside = near[corpus.unit_of[rows]]
        rows, counts = rows[inside], counts[inside]
    holding, amount = _by_unit(corpus.unit_of[rows], counts, corpus.units)
    units, amounts = [holding], [amount]
    if lent:
        share = amount * corpus.share[holding]
        for distance, part in enumerate(WINDOW, 1):
            for step in (distance, -distance):
                other, beside_it = beside(holding, step, corpus.line)
                units.append(other[beside_it])
                amounts.append(part * share[beside_it])
    dated = corpus.dated(term)
    if dated is not None:
        units.append(np.flatnonzero(dated))
        amounts.append(np.full(len(units[-1]), DATE, np.float32))
    return _by_unit(np.concatenate(units), np.concatenate(amounts), corpus.units) if len(units) > 1 else (holding, amount)


def _by_unit(units: Units, amounts: Floats, total: int) -> tuple[Units, Floats]:
    """The units that occur, in order, and the sum of the amounts of each."""
    if len(units) * 8 < total:
        touched, places = np.unique(units, return_inverse=True)
        return touched, np.bincount(places, amounts, minlength=len(touched)).astype(np.float32)
    summed = np.bincount(units, amounts, minlength=total)
    touched = np.flatnonzero(summed)
    return touched, summed[touched].astype(np.float32)


def meaning_scores(question: Floats, corpus: Corpus, scope: Units | None = None) -> tuple[Floats, Floats]:
    """For every unit (of the scope, else 0): the cosine of its best piece, and that of itself with its neighbours."""
    if scope is not None:
        return _of_scope(question, corpus, scope)
    top, mean = np.zeros(len(corpus.order), np.float32), np.zeros(len(corpus.order), np.float32)
    for segment, start in zip(corpus.segments, corpus.starts, strict=False):
        here = segment.filled
        if len(here) and segment.dimension == len(question):
            part: slice | NDArray[np.int64] = slice(start, start + len(segment)) if len(here) == len(segment) else here + start
            top[part], mean[part] = _row_meanings(question, segment, here)
    best, whole = _best_and_mean_by_unit(top, mean, corpus)
    total, weight = whole.copy(), corpus.meant.astype(np.float32)
    for distance, part_of in enumerate(_CONTEXT, 1):
        after, before = corpus.follows(distance)
        total[:-distance] += part_of * whole[distance:] * after
        total[distance:] += part_of * whole[:-distance] * before
        weight[:-distance] += part_of * after
        weight[distance:] += part_of * before
    return best, np.asarray(total / np.maximum(weight, 1.0), dtype=np.float32)


def coarse_scores(question: Floats, corpus: Corpus) -> Floats:
    """For every unit about how near it is to the question: a fifth of the work, to choose those that are worth an exact look."""
    nearest = np.zeros(len(corpus.order), np.float32)
    for segment, start in zip(corpus.segments, corpus.starts, strict=False):
        if segment.dimension == len(question):
            short, rows = segment.coarse
            likeness = product(short, question[: short.shape[1]])
            if len(rows) == len(segment):
                nearest[start : start + len(segment)] = likeness
            else:
                np.maximum.at(nearest, rows + start, likeness)
    nearest *= corpus.spoken
    best = nearest[corpus.order[corpus.unit_starts[:-1]]]
    several = np.flatnonzero(np.diff(corpus.unit_starts) > 1)
    if len(several):
        rows, places = corpus.rows_of(several)
        found = np.zeros(len(several), np.float32)
        np.maximum.at(found, places, nearest[rows])
        best[several] = found
    return best


def _best_and_mean_by_unit(top: Floats, mean: Floats, corpus: Corpus) -> tuple[Floats, Floats]:
    """The best and the mean of the rows of each unit whose meaning counts. Most units have one row."""
    heads = corpus.order[corpus.unit_starts[:-1]]
    best, whole = top[heads], mean[heads]
    several = np.flatnonzero(np.diff(corpus.unit_starts) > 1)
    if len(several):
        rows, places = corpus.rows_of(several)
        said = corpus.with_meaning[rows]
        count = np.maximum(np.bincount(places[said], minlength=len(several)), 1)
        whole[several] = np.bincount(places[said], mean[rows[said]], minlength=len(several)) / count
        found = np.zeros(len(several), np.float32)
        np.maximum.at(found, places[said], top[rows[said]])
        best[several] = found
    return best, whole


def _of_scope(question: Floats, corpus: Corpus, scope: Units) -> tuple[Floats, Floats]:
    around = with_neighbours(scope, corpus, len(_CONTEXT))
    rows, places = corpus.rows_of(around)
    said = corpus.with_meaning[rows]
    rows, places = rows[said], places[said]
    top, mean = np.zeros(len(rows), np.float32), np.zeros(len(rows), np.float32)
    for segment, start in zip(corpus.segments, corpus.starts, strict=False):
        inside = np.flatnonzero((rows >= start) & (rows < start + len(segment)))
        if len(inside) and segment.dimension == len(question):
            top[inside], mean[inside] = _row_meanings(question, segment, rows[inside] - start)
    count = np.bincount(places, minlength=len(around))
    best, whole, total = (np.zeros(corpus.units, np.float32) for _ in range(3))
    weight = np.zeros(corpus.units, np.float32)
    np.maximum.at(best, around[places], top)
    whole[around] = np.bincount(places, mean, minlength=len(around)) / np.maximum(count, 1)
    meant = corpus.meant
    total[scope], weight[scope] = whole[scope], meant[scope]
    for distance, part in enumerate(_CONTEXT, 1):
        for step in (distance, -distance):
            other, near = beside(scope, step, corpus.line)
            near &= meant[other]
            total[scope[near]] += part * whole[other[near]]
            weight[scope[near]] += part
    return best, np.asarray(total / np.maximum(weight, 1.0), dtype=np.float32)


def _row_meanings(question: Floats, segment: Segment, here: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """The cosine of the best piece, and of the mean of all pieces, for some rows of a segment that have pieces."""
    starts = segment["piece_starts"]
    if len(here) == len(segment.filled):
        if np.any(here[1:] < here[:-1]):  # a sum over a stretch needs its rows in order
            places = np.searchsorted(segment.filled, here)
            top, mean = _row_meanings(question, segment, segment.filled)
            return top[places], mean[places]
        begins, ends = starts[here], starts[here + 1]
        likeness = product(segment.floats, question)
    else:
        counts = starts[here + 1] - starts[here]
        ends = np.cumsum(counts)
        begins = ends - counts
        likeness = product(segment.vectors_of(np.arange(counts.sum()) - np.repeat(begins - starts[here], counts)), question)
    summed = np.append(0.0, np.cumsum(likeness, dtype=np.float64))
    total = (summed[ends] - summed[begins]) / np.maximum(segment["length"][here], 1e-6)
    return np.maximum.reduceat(likeness, begins), total.astype(np.float32)


def with_neighbours(units: Units, corpus: Corpus, reach: int) -> Units:
    """The units and those that stand beside them, in order."""
    found = [units]
    for step in (step for distance in range(1, reach + 1) for step in (distance, -distance)):
        other, near = beside(units, step, corpus.line)
        found.append(other[near])
    return np.unique(np.concatenate(found))


def late_scores(question: Floats, weights: Sequence[float], corpus: Corpus, chosen: Units, tokens: Tokens) -> Floats:
    """For the chosen units: how well the words of the question are met by those of a piece, each by its weight (together 1), 0 to 1.

    In talk a word may also be met in another piece of the same turn, or in a neighbour; then it counts a little less. It counts in full if
    the turn before met it and ends with a question: this is the answer.
    """
    weight = np.array(weights, np.float32)
    around = with_neighbours(chosen, corpus, _REACH)
    rows, places = corpus.rows_of(around)
    said = corpus.with_meaning[rows]
    rows, places = rows[said], places[said]
    of_row, counts = corpus.pieces_of(rows)
    met = _met(question, counts, tokens(rows))
    owner = places[of_row]
    by_unit = np.zeros((len(around), len(weight)), np.float32)
    np.maximum.at(by_unit, owner, met)
    context = np.where(corpus.line[around, None] >= 0, np.float32(_OWN), np.float32(0.0)) * by_unit
    for distance in range(1, _REACH + 1):
        for step in (distance, -distance):
            other, near = beside(around, step, corpus.line)
            place = np.minimum(np.searchsorted(around, other), len(around) - 1)
            near &= around[place] == other
            lent = np.full(len(around), _NEAR**distance, np.float32)
            if step == -1:
                lent[corpus.asking[other]] = 1.0
            context[near] = np.maximum(context[near], lent[near, None] * by_unit[place[near]])
    result = np.zeros(len(around), np.float32)
    np.maximum.at(result, owner, product(np.maximum(met, context[owner]), weight))
    return np.asarray(result[np.searchsorted(around, chosen)], dtype=np.float32)


def _met(question: Floats, counts: NDArray[np.int64], vectors: NDArray[np.int8]) -> Floats:
    """For every piece and word of the question: the square of the best cosine among the words of the piece."""
    met = np.zeros((len(counts), len(question)), np.float32)
    if not len(vectors):
        return met
    likeness = np.maximum(product(vectors.astype(np.float32), question.T / WORD_SCALE), 0.0)
    begins = np.cumsum(counts) - counts
    filled = np.flatnonzero(counts)
    met[filled] = np.maximum.reduceat(likeness, begins[filled], axis=0) ** 2
    return met
