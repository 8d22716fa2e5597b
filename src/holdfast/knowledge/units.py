"""What is found as one thing: a turn, a round, a note. Pure functions over records.

In a conversation with an assistant neither half of an exchange says much alone, so a person's turn and what was answered are one unit.
Between people, and for notes and documents, every record is a unit of its own, and its neighbours lend it their words instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from holdfast.knowledge.records import Record, reading_order


@dataclass(frozen=True, slots=True)
class Unit:
    """One or more records that are found together. `round` says that it is a person's turn with what an assistant answered."""

    records: tuple[Record, ...]
    round: bool = False

    @property
    def head(self) -> Record:
        """The record that stands for the whole: the first, which in a round is what the person said."""
        return self.records[0]

    @property
    def asked(self) -> tuple[Record, ...]:
        """What a person said of it; all of it where nobody is an assistant, or nobody else is there."""
        return tuple(record for record in self.records if record.role != "assistant") or self.records


def units_of(records: Iterable[Record]) -> list[list[Unit]]:
    """The units of all records, those of a session together and in their order. Neighbours never cross such a list."""
    ordered = sorted(records, key=reading_order)
    found: list[list[Unit]] = []
    for session, members in groupby(ordered, key=attrgetter("session")):
        if session is None:
            found += [[Unit((record,))] for record in members]
        else:
            found += units_of_session(list(members))
    return found


def units_of_session(records: Sequence[Record]) -> list[list[Unit]]:
    """The units of one session: first its conversation, by position, then each record without a position by itself."""
    placed = sorted((record for record in records if record.position is not None), key=reading_order)
    alone = [[Unit((record,))] for record in records if record.position is None]
    if not placed:
        return alone
    if not any(record.role == "assistant" for record in placed):
        return [[Unit((record,)) for record in placed], *alone]
    return [[Unit(tuple(one), round=True) for one in _rounds(placed)], *alone]


def _rounds(records: Iterable[Record]) -> Iterable[list[Record]]:
    current: list[Record] = []
    for record in records:
        if current and record.role != "assistant":
            yield current
            current = []
        current.append(record)
    if current:
        yield current
