"""Likeness of units to a question by vectors: of their best piece, in their context, and word by word (late interaction)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from holdfast.search.corpus import Corpus, beside
from holdfast.search.segments import Segment
from holdfast.search.vectors import WORD_SCALE

Floats = NDArray[np.float32]
Units = NDArray[np.int64]
Tokens = Callable[[NDArray[np.int64]], NDArray[np.int8]]
"""For rows of the corpus: the bytes of the vectors of all their words, row by row and piece by piece."""

_CONTEXT = (0.7, 0.49)  # what neighbours at distance 1 and 2 add to the meaning of a turn
_OWN, _NEAR, _REACH = 0.95, 0.8, 2  # word by word, in talk: what another piece of the same turn counts, a neighbour, and how far they reach


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
    best, whole = _by_unit(top, mean, corpus)
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
            likeness = short @ question[: short.shape[1]]
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


def _by_unit(top: Floats, mean: Floats, corpus: Corpus) -> tuple[Floats, Floats]:
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
        likeness = segment.floats @ question
    else:
        counts = starts[here + 1] - starts[here]
        ends = np.cumsum(counts)
        begins = ends - counts
        likeness = segment.vectors_of(np.arange(counts.sum()) - np.repeat(begins - starts[here], counts)) @ question
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

    In talk a word may also be met in another piece of the same turn, or in a neighbour; then it counts a little less.
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
            context[near] = np.maximum(context[near], _NEAR**distance * by_unit[place[near]])
    result = np.zeros(len(around), np.float32)
    np.maximum.at(result, owner, np.maximum(met, context[owner]) @ weight)
    return np.asarray(result[np.searchsorted(around, chosen)], dtype=np.float32)


def _met(question: Floats, counts: NDArray[np.int64], vectors: NDArray[np.int8]) -> Floats:
    """For every piece and word of the question: the square of the best cosine among the words of the piece."""
    met = np.zeros((len(counts), len(question)), np.float32)
    if not len(vectors):
        return met
    likeness = np.maximum(vectors.astype(np.float32) @ (question.T / WORD_SCALE), 0.0)
    begins = np.cumsum(counts) - counts
    filled = np.flatnonzero(counts)
    met[filled] = np.maximum.reduceat(likeness, begins[filled], axis=0) ** 2
    return met
