"""The keyword, time, speaker and wish part of the ranking in plain Python: what is searched where numpy is not installed (K2).

`Entry` (what any ranking knows of a record), the formula and its constants are defined here; `ranking` computes the same over arrays and
adds the vectors. A property test holds the two together (tests/property/test_one_ranking.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from heapq import nsmallest
from typing import TYPE_CHECKING

from holdfast.search.pieces import WISH
from holdfast.search.questions import (
    ANSWER,
    Asked,
    Ranked,
    Statistics,
    Weights,
    average_size,
    bare_name,
    common_languages,
    date_part,
    named_speaker,
    weigh,
    weights_in_use,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Entry:
    """One record. `role` is 1 for a person, 2 for an assistant, 0 else; `moment` is in milliseconds since 1970."""

    number: int
    session: str | None
    position: int | None
    role: int
    moment: int | None
    speaker: str | None
    counts: Mapping[str, int]
    language: str
    meaning: int = 0
    """The number under which its vectors are kept, 0 for none."""
    scales: NDArray[np.float32] | None = None
    words: NDArray[np.uint16] | None = None
    vectors: NDArray[np.int8] | None = None
    size: int | None = None
    """How many terms it has, where `counts` holds only some of them."""

    @property
    def length(self) -> int:
        """How many terms it has."""
        return sum(self.counts.values()) if self.size is None else self.size


K1, B = 1.2, 0.5
"""BM25: how soon a word that comes again counts no more, and how much a long record is held back."""
WINDOW = (0.5, 0.25, 0.125, 0.0625)
"""How much of their words the neighbours at distance 1, 2, ... lend."""
FULL = 40.0
"""Terms of a neighbour that count in full; of a longer one only a part does, so that a page does not colour what stands beside it."""
COMMON = 2_000
"""Records: a word in more of them is not lent to neighbours, it says too little for the time that it takes."""
DATE = 0.5
"""What a word of a unit's date counts against one of its text."""
SHOWN = 8
"""Words that a result names as its reason."""
EXACT = 6
"""Decimals of a score: what differs less is equal, and the newer comes first."""
DAY = 86_400_000
"""Milliseconds of a day."""
_EPOCH = date(1970, 1, 1)
_NEVER = -(1 << 63)


def saturated(amount: float, length: float, k1: float = K1, b: float = B) -> float:
    """BM25 of one term without its rarity, 0 to k1 + 1: `amount` is how often it comes, `length` that of the text against the average."""
    return (k1 + 1) * amount / (amount + k1 * (1 - b + b * length)) if amount else 0.0


@dataclass(slots=True)
class _Unit:
    """What is found as one thing: a turn, a note, or a round (a person's turn and what an assistant answered)."""

    entries: list[Entry]
    line: str | None
    """The conversation between people in which it has neighbours; None where it has none."""
    size: float = 0.0
    mass: float = 0.0
    length: float = 0.0
    """How many terms a record of it has on average, with the neighbours that lend it words."""
    share: float = 0.0
    """How much of its words it lends to its neighbours."""
    day: int = -1

    def weight(self, entry: Entry) -> float:
        """What a word of one of its entries counts: less in an assistant's answer."""
        answer = entry.role == 2 and entry is not self.entries[0] and entry.session is not None and entry.position is not None
        return ANSWER if answer else 1.0


class PlainIndex:
    """Records in memory, ranked by their words. For one thread at a time."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = list(entries)
        self._units = _units(self._entries)
        self._postings: defaultdict[str, list[tuple[int, Entry]]] = defaultdict(list)
        for number, unit in enumerate(self._units):
            unit.size = sum(entry.length * unit.weight(entry) for entry in unit.entries)
            unit.mass = sum(unit.weight(entry) for entry in unit.entries)
            unit.share = min(1.0, FULL / max(unit.size, 1.0))
            moment = unit.entries[0].moment
            unit.day = -1 if moment is None else moment // DAY
            for entry in unit.entries:
                for term in entry.counts:
                    self._postings[term].append((number, entry))
        for number, unit in enumerate(self._units):
            lent = [(part, self._units[other]) for other, part in self._beside(number)]
            size = unit.size + sum(part * other.share * other.size for part, other in lent)
            unit.length = size / (unit.mass + sum(part * other.share for part, other in lent))

    def rank(
        self,
        asked: Asked,
        *,
        known: Statistics | None = None,
        allowed: Container[int] | None = None,
        limit: int = 10,
        weights: Weights | None = None,
    ) -> list[Ranked]:
        """The units that answer the question best, best first and at most `limit`; only those of which some record's number is allowed.

        `known` are the statistics of the store; without them those of the allowed records.
        """
        weights = weights or weights_in_use()
        known = known or _Statistics(self, allowed)
        scope = {at for at, unit in enumerate(self._units) if allowed is None or any(one.number in allowed for one in unit.entries)}
        sought = weigh(asked.text, known)
        name = named_speaker(asked.text, known)
        gains: defaultdict[int, dict[str, float]] = defaultdict(dict)
        for term, rarity in sought.rarity.items():
            for at, amount in self._amounts(term, sought.held[term] <= COMMON).items():
                gains[at][term] = rarity * saturated(amount, self._units[at].length / known.average)
        found: list[tuple[float, int, int, Ranked]] = []
        for at in scope if asked.periods or name is not None else scope & gains.keys():
            unit = self._units[at]
            head = unit.entries[0]
            keyword = sum(gains[at].values()) / (sought.most * (K1 + 1)) if at in gains and sought.most else 0.0
            time = nearness(unit.day, asked.periods) if asked.periods else None
            speaker = float(bare_name(head.speaker) == name if head.speaker else False) if name is not None else None
            wish = keyword > 0 and any(WISH in entry.counts for entry in unit.entries)
            score = weights.keyword * weights.filled * keyword + weights.time * (time or 0.0) + weights.speaker * (speaker or 0.0)
            score += weights.wish * wish
            if score > 0:
                shown = sorted(gains[at], key=lambda term: (-round(gains[at][term], EXACT), term))[:SHOWN] if at in gains else ()
                numbers = tuple(entry.number for entry in unit.entries)
                ranked = Ranked(at, numbers, score, tuple(shown), keyword, None, None, time, speaker, wish)
                found.append((-round(score, EXACT), -(_NEVER if head.moment is None else head.moment), -at, ranked))
        return [ranked for *_, ranked in nsmallest(limit, found)]

    def _beside(self, number: int) -> list[tuple[int, float]]:
        """The neighbours of a unit, and how much of their words each lends."""
        line = self._units[number].line
        if line is None:
            return []
        places = [(number + step, part) for distance, part in enumerate(WINDOW, 1) for step in (distance, -distance)]
        return [(other, part) for other, part in places if 0 <= other < len(self._units) and self._units[other].line == line]

    def _amounts(self, term: str, lent: bool) -> dict[int, float]:
        """The units that hold a term, have it in their date, or borrow it, and how much of it."""
        own: defaultdict[int, float] = defaultdict(float)
        for at, entry in self._postings.get(term, ()):
            own[at] += min(entry.counts[term], 255) * self._units[at].weight(entry)
        found = defaultdict(float, own)
        if lent:
            for at, amount in own.items():
                for other, part in self._beside(at):
                    found[other] += part * amount * self._units[at].share
        for at in self._dated(term):
            found[at] += DATE
        return found

    def _dated(self, term: str) -> list[int]:
        part, value = date_part(term)
        return [at for at, parts in enumerate(self._dates) if parts is not None and parts[part] == value] if part else []

    @cached_property
    def _dates(self) -> list[Mapping[str, int] | None]:
        days = [None if unit.day < 0 else _EPOCH + timedelta(days=unit.day) for unit in self._units]
        return [None if day is None else {"day": day.day, "month": day.month, "year": day.year} for day in days]


class _Statistics:
    """The statistics of all records of an index, or of the allowed ones (`questions.Statistics`)."""

    def __init__(self, index: PlainIndex, allowed: Container[int] | None) -> None:
        self._postings = index._postings
        self._entries = [one for one in index._entries if allowed is None or one.number in allowed]
        self._allowed = allowed
        answers = [one.length for one in self._entries if one.role == 2]
        spoken = [one.length for one in self._entries if one.role != 2]
        self.records = len(self._entries)
        self.spoken = len(spoken)
        self.average = average_size(sum(spoken), len(spoken), sum(answers), len(answers))
        self.languages = common_languages(Counter(one.language for one in index._entries))

    def held(self, wanted: Collection[str]) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for term in wanted:
            if term in self._postings:
                inside = [entry for _, entry in self._postings[term] if self._allowed is None or entry.number in self._allowed]
                found[term] = (len(inside), sum(1 for entry in inside if entry.role != 2))
        return found

    def beginning_with(self, head: str) -> list[str]:
        return [term for term in self._postings if term.startswith(head)]

    def speakers(self, names: Collection[str]) -> set[str]:
        return {name for one in self._entries if one.role != 2 and one.speaker and (name := bare_name(one.speaker)) in names}


def _units(entries: Iterable[Entry]) -> list[_Unit]:
    """The units of all entries in reading order: conversations first, then what has no place in one."""
    found: list[_Unit] = []
    sessions: defaultdict[str, list[Entry]] = defaultdict(list)
    alone: list[Entry] = []
    for entry in entries:
        if entry.session is not None and entry.position is not None:
            sessions[entry.session].append(entry)
        else:
            alone.append(entry)
    for session, members in sessions.items():
        members.sort(key=_order)
        answered = any(entry.role == 2 for entry in members)
        for place, entry in enumerate(members):
            if place and answered and entry.role == 2:
                found[-1].entries.append(entry)
            else:
                found.append(_Unit([entry], None if answered else session))
    return found + [_Unit([entry], None) for entry in sorted(alone, key=_order)]


def _order(entry: Entry) -> tuple[int, int, int]:
    position, moment = (_NEVER if value is None else value for value in (entry.position, entry.moment))
    return (position, moment, entry.number)


def nearness(day: int, periods: Sequence[tuple[int, int, int]]) -> float:
    """How near a day is to the periods that a question names: 1 inside, falling to 0 outside; 0 where it is not known (-1).

    >>> nearness(8, [(5, 7, 2)])
    0.5
    """
    if day < 0 or not periods:
        return 0.0
    return max(0.0, *(1.0 - max(first - day, day - last, 0) / fade for first, last, fade in periods))
