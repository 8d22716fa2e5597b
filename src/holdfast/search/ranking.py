"""How well a unit answers a question: words, meaning, word-by-word likeness, time and speaker, each on its own scale, added up.

    M  word by word: how well each word of the question is met by some word of a piece (or, a little less, of its neighbours), 0 to 1
    D  meaning: the cosine of the best piece
    C  meaning in context: the mean cosine of the whole unit and, at a lower weight, of its neighbours
    B  keywords: BM25 over the unit and its neighbours, as the share of the most that the question could score
    T  time: 1 inside the period that the question names, falling outside;  S  speaker: 1 if the question names who said it

No ingredient is scaled by what else was found, so a score does not depend on how large the store is or how many candidates were looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.search.corpus import Corpus
from holdfast.search.keyword_scores import Keywords, keyword_scores
from holdfast.search.likeness_scores import Tokens, coarse_scores, late_scores, meaning_scores
from holdfast.text.words import tokenise

Floats = NDArray[np.float32]
Units = NDArray[np.int64]

_CANDIDATES, _DEEPER = 100, 4  # units that are looked at word by word: at least so many, and so many times what is wanted
_MANY = 20_000  # units: of more, only those that are about near enough are compared exactly
_WORTH = 300
_MOST_SPEAKERS = 1000  # with more names than that, one of them stands in every other question by chance


@dataclass(frozen=True, slots=True)
class Weights:
    """What each ingredient counts. Without vectors of words the others fill their place."""

    token: float = 1.0
    sentence: float = 0.25
    context: float = 0.3
    keyword: float = 0.45
    time: float = 0.1
    speaker: float = 0.04


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as the ranking needs it. `periods` are first and last day (since 1970) and over how many days nearness fades."""

    text: str
    vector: Floats | None = None
    tokens: Floats | None = None
    words: tuple[str, ...] = ()
    """The word to which each of `tokens` belongs."""
    periods: Sequence[tuple[int, int, int]] = ()


@dataclass(frozen=True, slots=True)
class Ranked:
    """A unit that was found, its score, and what each ingredient said of it; None means that it was not asked."""

    unit: int
    score: float
    words: tuple[str, ...]
    keyword: float
    sentence: float | None
    token: float | None
    time: float | None
    speaker: float | None


def rank(
    asked: Asked,
    corpus: Corpus,
    *,
    allowed: NDArray[np.bool_] | None = None,
    tokens: Tokens | None = None,
    limit: int = 10,
    weights: Weights | None = None,
) -> list[Ranked]:
    """The units that answer the question best, best first and at most `limit`; only `allowed` ones, by unit.

    `tokens` reads the vectors of words: it is asked for the most promising units and their neighbours only.
    """
    weights = weights or Weights()
    scope = None if allowed is None else np.flatnonzero(allowed)
    if not corpus.units or (scope is not None and not len(scope)):
        return []
    keywords = keyword_scores(asked.text, corpus, allowed)
    score = weights.keyword * keywords.total
    time, speaker = _time(asked, corpus.day), _speaker(asked.text, corpus, scope)
    bonus = np.zeros(corpus.units, np.float32)
    for part, values in ((weights.time, time), (weights.speaker, speaker)):
        if values is not None:
            bonus += part * values
    sentence = None
    if asked.vector is not None:
        if (corpus.units if scope is None else len(scope)) > _MANY:
            about = (weights.sentence + weights.context) * coarse_scores(asked.vector, corpus)
            scope = _best(score + bonus + about, scope, max(_WORTH, 2 * _DEEPER * limit))
        sentence, context = meaning_scores(asked.vector, corpus, scope)
        score += weights.sentence * sentence + weights.context * context
    token = None
    if asked.tokens is not None and len(asked.tokens) and tokens is not None:
        chosen = _best(score + bonus, scope, max(_CANDIDATES, _DEEPER * limit))
        token = late_scores(asked.tokens, asked.words, corpus, chosen, tokens, keywords.spoken)
        total = score[chosen] + weights.token * token
    else:
        chosen = _best(score + bonus, scope, limit)
        total = score[chosen] * (1 + weights.token / (weights.sentence + weights.context + weights.keyword))
    total = total + bonus[chosen]
    newest = corpus.moment[corpus.order[corpus.unit_starts[chosen]]]
    places = np.lexsort((-chosen, -newest, -np.round(total, 9)))
    shown = places[total[places] > 0][:limit].tolist()
    return [_ranked(int(chosen[place]), place, float(total[place]), keywords, sentence, token, time, speaker) for place in shown]


def _ranked(
    unit: int,
    place: int,
    score: float,
    keywords: Keywords,
    sentence: Floats | None,
    token: Floats | None,
    time: Floats | None,
    speaker: Floats | None,
) -> Ranked:
    return Ranked(
        unit,
        score,
        keywords.words_of(unit),
        float(keywords.total[unit]),
        None if sentence is None else float(sentence[unit]),
        None if token is None else float(token[place]),
        None if time is None else float(time[unit]),
        None if speaker is None else float(speaker[unit]),
    )


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


def _speaker(question: str, corpus: Corpus, scope: Units | None) -> Floats | None:
    """1 for what was said by the one speaker whom the question names; None if it names nobody, or several."""
    if scope is None:
        codes = list(range(len(corpus.speakers)))
    else:
        present = np.bincount(corpus.speaker[scope] + 1, minlength=len(corpus.speakers) + 1)[1:]
        codes = np.flatnonzero(present).tolist()
    if not codes or len(codes) > _MOST_SPEAKERS:
        return None
    said = f" {_name(question[:20_000])} "
    named = [code for code in codes if f" {_name(corpus.speakers[code])} " in said]
    if len({_name(corpus.speakers[code]) for code in named}) != 1:
        return None
    said_by = np.zeros(len(corpus.speakers) + 1, np.float32)  # the last is for units without a speaker
    said_by[named] = 1.0
    return said_by[corpus.speaker]


def _name(text: str) -> str:
    """A name, or a text that may hold one, as its bare words: "Ann's" is "ann"."""
    return " ".join(word.text.lower().removesuffix("'s").removesuffix("’s") for word in tokenise(text))
