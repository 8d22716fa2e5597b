"""Keyword ranking of units, in memory and without anything to install: BM25 over fields and neighbours, with time and speaker as bonuses.

A turn of a conversation between people is understood from those around it, so it borrows their words at half the weight per step. A round
with an assistant is long and complete: it borrows nothing, but what the person said counts once more by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from heapq import nlargest
from itertools import count
from math import log, sqrt

from holdfast.knowledge.periods import asked_periods, date_words, nearness
from holdfast.knowledge.records import Hit, Record, Why
from holdfast.knowledge.units import Unit, units_of_session
from holdfast.search.questions import analysed, asked_terms, lookalikes
from holdfast.text.language import guess_language
from holdfast.text.normalise import fold
from holdfast.text.words import terms, tokenise

_WINDOW = (0.5, 0.25, 0.125, 0.0625)
_DATE_WEIGHT = 0.5
_TURN = (0.9, 0.4)  # k1 and b of BM25: short texts say a word once
_ROUND = (2.0, 0.75)
_ASKED = (1.2, 0.75)
_TIME_BONUS, _SPEAKER_BONUS = 1.0, 0.4  # in standard deviations of the keyword score
_SHOWN_WORDS = 8
_MOST_SPEAKERS = 1000  # with more names than that, one of them stands in every other question by chance


@dataclass(frozen=True, slots=True)
class Analysis:
    """The terms of a record with how often each comes, and the language they were made in."""

    counts: Mapping[str, int]
    language: str = "en"

    @property
    def size(self) -> int:
        """How many terms there are."""
        return sum(self.counts.values())


def analyse(record: Record) -> Analysis:
    """The terms under which a record is found: those of its text, its speaker and its title."""
    language = guess_language(record.text[:4000])
    title = record.extra.get("title")
    names = " ".join(name for name in (record.speaker, title) if isinstance(name, str))
    found = analysed(terms(record.text, language))
    if names:
        found += analysed(terms(names, language))
    return Analysis(Counter(found), language)


@dataclass(slots=True)
class _Entry:
    """A unit in the index: what it is, how long, and who its neighbours are."""

    unit: Unit
    counts: Mapping[str, int]
    asked: Mapping[str, int]
    dates: tuple[str, ...]
    size: float = 0.0
    asked_size: float = 0.0
    near: tuple[tuple[int, float], ...] = ()
    speakers: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Field:
    """Postings of one way to read the units, with what BM25 needs to know of their lengths."""

    postings: dict[str, dict[int, int]] = field(default_factory=dict)
    units: int = 0
    size: float = 0.0

    def put(self, number: int, counts: Mapping[str, int], size: float) -> None:
        for term, times in counts.items():
            self.postings.setdefault(term, {})[number] = times
        self.units += 1
        self.size += size

    def drop(self, number: int, counts: Mapping[str, int], size: float) -> None:
        for term in counts:
            found = self.postings[term]
            del found[number]
            if not found:
                del self.postings[term]
        self.units -= 1
        self.size -= size

    @property
    def average(self) -> float:
        return max(self.size / self.units, 1.0) if self.units else 1.0


class LexicalIndex:
    """Units of records by their terms. Not safe for many threads: its owner holds a lock."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._sessions: dict[str, list[int]] = {}
        self._languages: Counter[str] = Counter()
        self._turns, self._rounds, self._asked, self._dates = _Field(), _Field(), _Field(), _Field()
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: str, members: Iterable[tuple[Record, Analysis]]) -> None:
        """Make these the records of a session (or the one record of that id that has no session), in place of those there were."""
        for number in self._sessions.pop(key, ()):
            self._drop(number)
        found = list(members)
        analysis = {record.id: one for record, one in found}
        numbers: list[int] = []
        for chain in units_of_session([record for record, _ in found]):
            numbers += self._put_chain(chain, analysis)
        if numbers:
            self._sessions[key] = numbers

    def _put_chain(self, chain: Sequence[Unit], analysis: Mapping[str, Analysis]) -> list[int]:
        numbers = [next(self._numbers) for _ in chain]
        entries = [_entry(unit, analysis) for unit in chain]
        for place, (number, entry) in enumerate(zip(numbers, entries, strict=True)):
            if not entry.unit.round:
                near = [
                    (at, weight) for step, weight in enumerate(_WINDOW, 1) for at in (place - step, place + step) if 0 <= at < len(chain)
                ]
                entry.near = tuple((numbers[at], weight) for at, weight in near)
                entry.size = sum(entry.counts.values()) + sum(weight * sum(entries[at].counts.values()) for at, weight in near)
            self._entries[number] = entry
            (self._rounds if entry.unit.round else self._turns).put(number, entry.counts, entry.size)
            if entry.unit.round:
                self._asked.put(number, entry.asked, entry.asked_size)
            self._dates.put(number, dict.fromkeys(entry.dates, 1), 0)
            self._languages.update(analysis[record.id].language for record in entry.unit.records)
        return numbers

    def _drop(self, number: int) -> None:
        entry = self._entries.pop(number)
        (self._rounds if entry.unit.round else self._turns).drop(number, entry.counts, entry.size)
        if entry.unit.round:
            self._asked.drop(number, entry.asked, entry.asked_size)
        self._dates.drop(number, dict.fromkeys(entry.dates, 1), 0)

    def search(self, question: str, now: datetime, limit: int, admits: Callable[[Record], bool] | None = None) -> list[Hit]:
        """The units that answer the question in some way, best first; only those of which `admits` lets a record pass."""
        scope = self._entries if admits is None else {n: e for n, e in self._entries.items() if any(map(admits, e.unit.records))}
        if not scope:
            return []
        gains = self._gains(question, scope)
        periods = asked_periods(question, now)
        speaker = _named_speaker(question, scope.values())
        scores = {number: sum(words.values()) for number, words in gains.items()}
        mean, deviation = _spread(scores.values(), len(scope))
        rated: list[tuple[float, float, int, float]] = []
        for number, entry in scope.items():
            time = entry.unit.head.time
            near = nearness(time, periods) if periods else 0.0
            score = scores.get(number, 0.0)
            if score > 0 or near > 0:
                bonus = _TIME_BONUS * near + (_SPEAKER_BONUS if speaker in entry.speakers else 0.0)
                rated.append(((score - mean) / deviation + bonus, time.timestamp() if time else 0.0, number, near))
        hits = []
        for total, _, number, near in nlargest(limit, rated):
            entry = scope[number]
            words = gains.get(number, {})
            why = Why(
                words=tuple(sorted(words, key=lambda term: -words[term])[:_SHOWN_WORDS]),
                keyword=round(scores.get(number, 0.0), 4),
                time=round(near, 4) if periods else None,
                speaker=float(speaker in entry.speakers) if speaker else None,
            )
            hits.append(Hit(entry.unit.head, total, why, entry.unit.records if len(entry.unit.records) > 1 else ()))
        return hits

    def _gains(self, question: str, scope: Mapping[int, _Entry]) -> dict[int, dict[str, float]]:
        """What each term of the question adds to each unit."""
        gains: dict[int, dict[str, float]] = {}
        for term, weight in self._asked_for(question).items():
            for number, gain in self._term_gains(term):
                if number in scope:
                    one = gains.setdefault(number, {})
                    one[term] = one.get(term, 0.0) + weight * gain
        return gains

    def _asked_for(self, question: str) -> dict[str, float]:
        """The terms that the index knows, weighted by how rare they are; for an unknown word those that are written much like it."""
        found: dict[str, float] = {}
        for term in asked_terms(question, [code for code, _ in self._languages.most_common(4)]):
            if self._frequency(term):
                found[term] = self._rarity(term)
                continue
            for other, weight in lookalikes(term, self._beginning_with).items():
                found[other] = max(found.get(other, 0.0), weight * self._rarity(other))
        return found

    def _frequency(self, term: str) -> int:
        dated = len(self._dates.postings.get(term, ())) if term in self._dates.postings else 0
        return max(len(self._turns.postings.get(term, ())) + len(self._rounds.postings.get(term, ())), dated)

    def _rarity(self, term: str) -> float:
        frequency = self._frequency(term)
        return log(1 + (len(self._entries) - frequency + 0.5) / (frequency + 0.5))

    def _beginning_with(self, head: str) -> list[str]:
        return [term for one in (self._turns, self._rounds) for term in one.postings if term.startswith(head)]

    def _term_gains(self, term: str) -> Iterable[tuple[int, float]]:
        """BM25 without the rarity: at most 1 for each unit."""
        weights: dict[int, float] = dict.fromkeys(self._dates.postings.get(term, ()), _DATE_WEIGHT)
        for number, times in self._turns.postings.get(term, {}).items():
            weights[number] = weights.get(number, 0.0) + times
            for other, weight in self._entries[number].near:
                weights[other] = weights.get(other, 0.0) + weight * times
        for number, times in self._rounds.postings.get(term, {}).items():
            weights[number] = weights.get(number, 0.0) + times
        asked = self._asked.postings.get(term, {})
        for number, amount in weights.items():
            entry = self._entries[number]
            if entry.unit.round:
                whole = _saturated(amount, entry.size / self._rounds.average, _ROUND)
                yield number, (whole + _saturated(asked.get(number, 0), entry.asked_size / self._asked.average, _ASKED)) / 2
            else:
                yield number, _saturated(amount, entry.size / self._turns.average, _TURN)


def _saturated(amount: float, length: float, setting: tuple[float, float]) -> float:
    k1, b = setting
    return amount / (amount + k1 * (1 - b + b * length)) if amount else 0.0


def _entry(unit: Unit, analysis: Mapping[str, Analysis]) -> _Entry:
    counts: Counter[str] = Counter()
    for record in unit.records:
        counts.update(analysis[record.id].counts)
    asked: Counter[str] = Counter()
    if unit.round:
        for record in unit.asked:
            asked.update(analysis[record.id].counts)
    time = unit.head.time
    dates = tuple(dict.fromkeys(analysed(terms(date_words(time), "en")))) if time else ()
    speakers = frozenset(_name(record.speaker) for record in unit.asked if record.speaker)
    return _Entry(unit, counts, asked, dates, float(counts.total()), float(asked.total()), speakers=speakers)


def _spread(scores: Iterable[float], number: int) -> tuple[float, float]:
    """Mean and standard deviation over all units, of which those that are not given have 0."""
    found = list(scores)
    mean = sum(found) / number
    variance = sum(score * score for score in found) / number - mean * mean
    return mean, sqrt(variance) if variance > 1e-12 else 1.0


def _named_speaker(question: str, entries: Iterable[_Entry]) -> str | None:
    """The one speaker whom the question names; None if it names nobody, or several."""
    speakers = set().union(*{entry.speakers for entry in entries})
    if not speakers or len(speakers) > _MOST_SPEAKERS:
        return None
    words = f" {_name(question[:20_000])} "
    named = {name for name in speakers if f" {name} " in words}
    return named.pop() if len(named) == 1 else None


@lru_cache(maxsize=4096)
def _name(text: str) -> str:
    """A name, or a text that may hold one, as its bare words: "Ann's" is "ann"."""
    return " ".join(fold(word.text).removesuffix("'s") for word in tokenise(text))
