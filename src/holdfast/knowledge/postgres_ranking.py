"""How good each candidate is: words with those of the neighbours, meaning, and word by word; time and speaker as bonuses. No database here.

The formulas are those of the other stores; means and deviations are over the candidates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from math import sqrt

from holdfast.knowledge.periods import nearness
from holdfast.knowledge.postgres_candidates import Candidate, Found, near_enough
from holdfast.knowledge.records import Hit, Why, reading_order
from holdfast.knowledge.units import Unit, units_of_session
from holdfast.text.normalise import fold
from holdfast.text.words import tokenise

_LENDS = (0.5, 0.25, 0.125, 0.0625)  # what a neighbour's words weigh, one to four steps away
_TURN, _ROUND, _ASKED = (0.9, 0.4), (2.0, 0.75), (1.2, 0.75)  # k1 and b of BM25
_KEYWORD, _MEANING, _WORDS = 0.5, 0.5, 1.0
_TIME, _SPEAKER = 1.0, 0.4
_SHORTLIST = 60  # units that are compared word by word
_SHOWN_WORDS = 8


@dataclass(slots=True)
class _Place:
    """A unit among its neighbours, and what each ingredient says of it."""

    unit: Unit
    numbers: tuple[int, ...]
    counts: Mapping[str, float]
    asked: Mapping[str, float]
    answers: bool
    chain: list[_Place] = field(default_factory=list, repr=False)
    at: int = 0
    gains: dict[str, float] = field(default_factory=dict)
    keyword: float = 0.0
    meaning: float | None = None
    words: float | None = None
    near: float = 0.0
    speaks: bool = False
    score: float = 0.0

    def around(self, steps: int) -> list[tuple[int, _Place]]:
        """The neighbours, with how far each is."""
        found = [(step, at) for step in range(1, steps + 1) for at in (self.at - step, self.at + step)]
        return [(step, self.chain[at]) for step, at in found if 0 <= at < len(self.chain)]


def rank(found: Found, question: str, now: datetime, top_k: int) -> list[Hit]:
    """The best answers among the candidates, best first."""
    places = [place for place in _places(found.rows) if place.answers and any(map(found.admits, place.unit.records))]
    if not places:
        return []
    _by_words(places, found.asked)
    speaker = _named(question, places)
    for place in places:
        likes = [found.likeness[number] for number in place.numbers if number in found.likeness]
        place.meaning = max(likes, default=None)
        place.near = nearness(place.unit.head.time, found.periods)
        place.speaks = speaker is not None and speaker in _speakers(place.unit)
    if found.question is None:
        places = [place for place in places if place.keyword > 0 or place.near > 0]
    _fuse(places)
    best = sorted(places, key=_order, reverse=True)[: max(_SHORTLIST, 3 * top_k)]
    if found.question is not None and found.question.tokens is not None and len(found.weights):
        _word_by_word(best, found)
        _fuse(best)
        best.sort(key=_order, reverse=True)
    return [_hit(place, found, speaker) for place in best[:top_k]]


def _order(place: _Place) -> tuple[float, float, str]:
    time = place.unit.head.time
    return (place.score, time.timestamp() if time else 0.0, place.unit.head.id)


def _places(rows: Sequence[Candidate]) -> list[_Place]:
    """The units of the records that were fetched, each with its neighbours."""
    by_id = {row.record.id: row for row in rows}
    found: list[_Place] = []
    ordered = sorted((row.record for row in rows), key=reading_order)
    for session, members in groupby(ordered, key=lambda record: record.session):
        records = list(members)
        chains = [[Unit((record,))] for record in records] if session is None else units_of_session(records)
        for units in chains:
            chain = [_place(unit, by_id) for unit in units]
            for at, place in enumerate(chain):
                place.chain, place.at = chain, at
            found += chain
    return found


def _place(unit: Unit, by_id: Mapping[str, Candidate]) -> _Place:
    rows = [by_id[record.id] for record in unit.records]
    asked = [by_id[record.id] for record in unit.asked]
    answers = any(near_enough(row) for row in rows)
    return _Place(unit, tuple(row.number for row in asked), _summed(rows), _summed(asked) if unit.round else {}, answers)


def _summed(rows: Sequence[Candidate]) -> Mapping[str, float]:
    if len(rows) == 1:
        return rows[0].analysis.counts
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row.analysis.counts)
    return total


# Words


def _by_words(places: Sequence[_Place], asked: Mapping[str, float]) -> None:
    """BM25 of each place: a turn with the words of its neighbours, a round as a whole and by what was asked."""
    sizes = {id(place): sum(place.counts.values()) for one in places for place in (one, *(other for _, other in one.around(len(_LENDS))))}
    lengths = [_length(place, sizes) for place in places]
    average = max(sum(lengths) / len(lengths), 1.0)
    asked_sizes = [sum(place.asked.values()) for place in places if place.unit.round]
    asked_average = max(sum(asked_sizes) / len(asked_sizes), 1.0) if asked_sizes else 1.0
    for place, length in zip(places, lengths, strict=True):
        for term, weight in asked.items():
            if place.unit.round:
                whole = _saturated(place.counts.get(term, 0.0), length / average, _ROUND)
                by_person = _saturated(place.asked.get(term, 0.0), sum(place.asked.values()) / asked_average, _ASKED)
                gain = (whole + by_person) / 2
            else:
                amount = place.counts.get(term, 0.0) + sum(
                    _LENDS[step - 1] * other.counts.get(term, 0.0) for step, other in place.around(len(_LENDS))
                )
                gain = _saturated(amount, length / average, _TURN)
            if gain:
                place.gains[term] = weight * gain
        place.keyword = sum(place.gains.values())


def _length(place: _Place, sizes: Mapping[int, float]) -> float:
    own = sizes[id(place)]
    return own if place.unit.round else own + sum(_LENDS[step - 1] * sizes[id(other)] for step, other in place.around(len(_LENDS)))


def _saturated(amount: float, length: float, setting: tuple[float, float]) -> float:
    k1, b = setting
    return amount / (amount + k1 * (1 - b + b * length)) if amount else 0.0


def _word_by_word(places: Sequence[_Place], found: Found) -> None:
    wanted = {number for place in places for number in place.numbers}
    wanted |= {number for place in places if not place.unit.round for _, other in place.around(2) for number in other.numbers}
    seen = found.tokens(sorted(wanted))
    if found.question is None or found.question.tokens is None:
        return
    from holdfast.knowledge.late_words import WordByWord  # numpy is there: somebody made vectors

    compare = WordByWord(found.question.tokens, found.weights)

    def pieces(place: _Place) -> list[object]:
        return [piece.tokens for number in place.numbers for piece in seen.get(number, ())]

    for place in places:
        around = [] if place.unit.round else [(step, pieces(other)) for step, other in place.around(2)]
        place.words = compare(pieces(place), around)


# Together


def _fuse(places: Sequence[_Place]) -> None:
    """The ingredients in standard deviations, added up, and the bonuses on top."""
    parts = [
        (_KEYWORD, _standard([place.keyword for place in places])),
        (_MEANING, _standard([place.meaning for place in places])),
        (_WORDS, _standard([place.words for place in places])),
    ]
    total = _standard([sum(weight * values[at] for weight, values in parts) for at in range(len(places))])
    for place, value in zip(places, total, strict=True):
        place.score = value + _TIME * place.near + _SPEAKER * place.speaks


def _standard(values: Sequence[float | None]) -> list[float]:
    """Each value less the mean, in standard deviations. What was not measured is as low as the lowest."""
    known = [value for value in values if value is not None]
    if not known:
        return [0.0] * len(values)
    lowest = min(known)
    filled = [lowest if value is None else value for value in values]
    mean = sum(filled) / len(filled)
    deviation = sqrt(sum((value - mean) ** 2 for value in filled) / len(filled))
    return [(value - mean) / deviation for value in filled] if deviation > 1e-9 else [0.0] * len(filled)


def _hit(place: _Place, found: Found, speaker: str | None) -> Hit:
    why = Why(
        words=tuple(sorted(place.gains, key=lambda term: -place.gains[term])[:_SHOWN_WORDS]),
        keyword=round(place.keyword, 4),
        sentence=None if place.meaning is None else round(place.meaning, 4),
        token=None if place.words is None else round(place.words, 4),
        time=round(place.near, 4) if found.periods else None,
        speaker=float(place.speaks) if speaker else None,
    )
    return Hit(place.unit.head, place.score, why, place.unit.records if len(place.unit.records) > 1 else ())


def _named(question: str, places: Sequence[_Place]) -> str | None:
    """The one speaker whom the question names; None if it names nobody, or several."""
    words = f" {_bare(question[:20_000])} "
    named = {name for place in places for name in _speakers(place.unit) if name and f" {name} " in words}
    return named.pop() if len(named) == 1 else None


def _speakers(unit: Unit) -> set[str]:
    return {_bare(record.speaker) for record in unit.asked if record.speaker}


def _bare(text: str) -> str:
    """A name, or a text that may hold one, as its bare words: "Ann's" is "ann"."""
    return " ".join(fold(word.text).removesuffix("'s") for word in tokenise(text))
