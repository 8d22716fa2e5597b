"""What a thread's archive holds, in short: one small entry per record, learned from the log and kept in memory. No files here.

It answers the two questions that make the archive safe to call twice: is this already there, and in which order was it said.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.context.records import MessageRecord, Record
from holdfast.context.view import MARK


@dataclass(frozen=True, slots=True)
class Held:
    """A record that is there: its names, and its place in the log."""

    seq: int
    id: str
    mark: str
    after: str | None
    time: str
    tokens: int
    reference: bool
    place: tuple[int, int]


class Catalogue:
    """The records of one thread. Not safe for threads by itself: who uses it holds the thread's lock."""

    def __init__(self) -> None:
        self.messages: list[Held] = []
        self.summaries: list[Held] = []
        self.next_seq = 1
        self._ids: dict[str, list[int]] = {}
        self._marks: set[tuple[str, str]] = set()
        self._order: list[int] | None = None

    def learn(self, values: Mapping[str, Any], place: tuple[int, int]) -> None:
        """Take note of a record as it stands in the log. One that is there twice is noted once."""
        if isinstance(number := values.get("next"), int):  # after something was forgotten its numbers are not given again
            self.next_seq = max(self.next_seq, number)
        kind, key = values.get("kind"), (str(values.get("id")), str(values.get("mark")))
        if kind not in ("message", "summary") or key in self._marks:
            return
        self._marks.add(key)
        held = _held(values, place)
        self.next_seq = max(self.next_seq, held.seq + 1)
        if kind == "summary":
            self.summaries.append(held)
            return
        self._order = None
        self._ids.setdefault(held.id, []).append(len(self.messages))
        self.messages.append(held)

    def admit(self, records: Iterable[Record], *, time: str) -> list[Record]:
        """The records that are not there yet, numbered, in their order.

        A reference to a message that is there is none; a message that was edited is another version under the same id.
        """
        admitted: list[Record] = []
        seen: set[tuple[str, str]] = set()
        number = self.next_seq
        for record in records:
            key = (record.id, record.mark)
            if key in self._marks or key in seen or self._stands_for_held(record):
                continue
            seen.add(key)
            admitted.append(dataclasses.replace(record, seq=number, time=record.time or time))
            number += 1
        return admitted

    def holds(self, id: str) -> bool:
        """Whether a message of this id is there, other than as a mere reference."""
        return any(not self.messages[index].reference for index in self._ids.get(id, ()))

    def find(self, id: str) -> int | None:
        """The index of the newest whole version of a message; `#12` is the message with number 12."""
        versions = self._ids.get(id, [])
        if not versions and id.startswith("#") and id[1:].isascii() and id[1:].isdecimal():
            return next((index for index, held in enumerate(self.messages) if held.seq == int(id[1:])), None)
        whole = [index for index in versions if not self.messages[index].reference]
        return next(reversed(whole or versions), None)

    def versions(self, id: str) -> list[int]:
        """The indices of all versions of a message, oldest first."""
        return list(self._ids.get(id, ()))

    def order(self) -> list[int]:
        """The indices of all messages in the order of the conversation: the order of the log, but each after the one it followed.

        A tool result that was archived before the messages around it finds its place when they come.
        """
        if self._order is None:
            self._order = list(self._walk())
        return self._order

    def _stands_for_held(self, record: Record) -> bool:
        return isinstance(record, MessageRecord) and "archived" in record.marks and self.holds(record.id)

    def _walk(self) -> Iterator[int]:
        if all(held.after is None for held in self.messages):
            yield from range(len(self.messages))
            return
        followers: dict[int, list[int]] = {}
        heads: list[int] = []
        for index, held in enumerate(self.messages):
            before = self._ids.get(held.after or "")
            if before and before[0] != index:
                followers.setdefault(before[0], []).append(index)
            else:
                heads.append(index)
        done: set[int] = set()
        for head in [*heads, *range(len(self.messages))]:  # the second part only matters for links that go round in a circle
            pending = [head]
            while pending:
                index = pending.pop()
                if index not in done:
                    done.add(index)
                    yield index
                    pending.extend(reversed(followers.get(index, ())))


def _held(values: Mapping[str, Any], place: tuple[int, int]) -> Held:
    extras = values.get("extras")
    marks = extras.get("additional_kwargs", {}).get(MARK) if extras else None  # looked at without making a record: there are many
    return Held(
        seq=values.get("seq", 0),
        id=values["id"],
        mark=values["mark"],
        after=values.get("after"),
        time=values.get("time", ""),
        tokens=values.get("tokens") or 0,
        reference=isinstance(marks, Mapping) and "archived" in marks,
        place=place,
    )
