"""One thread's archive: its log behind the storage seam, what is known of its records in memory, and its full-text index."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.clock import RandomIds
from holdfast.context.history_index import HistoryIndex
from holdfast.context.records import MessageRecord, Record, record_from, restored, written
from holdfast.context.view import MARK
from holdfast.errors import InputError, RevisionConflict
from holdfast.storage.backend import ABSENT, Append, Backend, Delete, Put, Records
from holdfast.text.needle import Needle
from holdfast.validation import thread_folder

Result = TypeVar("Result")
SCHEMA = 1
_TRIES = 5
_PIECE = 1000
_OURS = frozenset({"schema", "kind", "seq", "time", "mark", "after", "covers", "role", "type", "exact", "tokens"})  # nobody's words


def log_key(thread: str) -> str:
    """Where the log of a thread is kept."""
    return f"threads/{thread_folder(thread)}/archive.jsonl"


@dataclass(frozen=True, slots=True)
class RecordInfo:
    """What is known of a record without reading it: its names, and its place in the log."""

    seq: int
    id: str
    mark: str
    after: str | None
    time: str
    tokens: int
    reference: bool
    place: int


class RecordIndex:
    """In-memory index of one thread's records. Not thread-safe: who uses it holds the thread's lock.

    It answers the two questions that make the archive safe to call twice: is this already there, and in which order was it said.
    """

    def __init__(self) -> None:
        self.messages: list[RecordInfo] = []
        self.summaries: list[RecordInfo] = []
        self.next_seq = 1
        self._ids: dict[str, list[int]] = {}
        self._marks: set[tuple[str, str]] = set()
        self._order: list[int] | None = None

    def learn(self, values: Mapping[str, Any], place: int) -> None:
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
            stands_for_held = isinstance(record, MessageRecord) and "archived" in record.marks and self.holds(record.id)
            if key in self._marks or key in seen or stands_for_held:
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


def _held(values: Mapping[str, Any], place: int) -> RecordInfo:
    extras = values.get("extras")
    marks = extras.get("additional_kwargs", {}).get(MARK) if extras else None  # looked at without making a record: there are many
    return RecordInfo(
        seq=values.get("seq", 0),
        id=values["id"],
        mark=values["mark"],
        after=values.get("after"),
        time=values.get("time", ""),
        tokens=values.get("tokens") or 0,
        reference=isinstance(marks, Mapping) and "archived" in marks,
        place=place,
    )


class Doomed:
    """What is to be forgotten: the records that hold a text, wherever it stands in them, or have one of the ids. They go as a whole."""

    def __init__(self, *, text: str | None = None, ids: Collection[str] | None = None) -> None:
        if (text is None) == (ids is None):
            raise InputError("say what to forget: either a text or ids.")
        self._ids = None if ids is None else {ids} if isinstance(ids, str) else set(ids)
        self._needle = Needle(text) if text is not None else Needle(*self._ids) if self._ids else None

    def takes(self, record: Record) -> bool:
        """Whether this record goes."""
        if self._ids is not None:
            return record.id in self._ids
        said = {key: value for key, value in written(record).items() if key not in _OURS}
        return self._needle is not None and self._needle.in_value(restored(said))

    def scrubbed(self, record: Record) -> Record:
        """A record that stays, without links whose name shows what is forgotten."""
        if self._ids is not None or self._needle is None:
            return record
        if isinstance(record, MessageRecord):
            return dataclasses.replace(record, after=None) if self._needle.in_text(record.after or "") else record
        return dataclasses.replace(record, covers=tuple(id for id in record.covers if not self._needle.in_text(id)))

    def shows_in(self, data: bytes) -> bool:
        """Whether bytes that are no sound record any more still show it."""
        return self._needle is not None and self._needle.in_bytes(data)


class ThreadLog:
    """The archive of one thread. Safe for many threads and processes.

    The log alone is asked what is there: before anything is decided the part that others have written since is read.
    """

    def __init__(self, backend: Backend, thread: str, index_path: str | None, timeout: float | None) -> None:
        self.key = log_key(thread)
        self.index = HistoryIndex(index_path, backend, self.key)
        self._backend = backend
        self._timeout = timeout
        self._lock = threading.RLock()
        self._known = RecordIndex()
        self._mark = ABSENT

    def add(self, records: Sequence[Record], time: str) -> int:
        """Write what is not there yet; on return all of it survives a power cut. Says how many were written."""
        with self._lock:
            for _ in range(_TRIES):
                try:
                    return self._add(records, time)
                except RevisionConflict:
                    continue  # another process wrote first
            with self._backend.locked(self.key, self._timeout):
                while True:
                    try:
                        return self._add(records, time)
                    except RevisionConflict:
                        continue  # one of those that have not waited: each of them wrote something

    def known(self) -> RecordIndex:
        """What the log holds now."""
        with self._lock:
            if (self._backend.mark(self.key) or ABSENT) != self._mark:
                self._learn(self._backend.read(self.key, after=None if self._mark == ABSENT else self._mark))
            return self._known

    def is_empty(self) -> bool:
        """Whether nobody has written to it."""
        return self._backend.mark(self.key) is None

    def read(self, place: int, id: str | None = None) -> Record | None:
        """The record at a place that an index gave, or None if it was forgotten just now. With `id` only the one of this name."""
        values = self._backend.at(self.key, place)
        record = record_from(values) if values is not None else None
        return record if record is not None and id in (None, record.id) else None

    def records(self) -> Iterator[Record]:
        """All records in the order of the log, each once."""
        seen: set[tuple[str, str]] = set()
        for piece in self._pieces():
            for values in piece.records:
                record = record_from(values)
                if record is not None and (record.id, record.mark) not in seen:
                    seen.add((record.id, record.mark))
                    yield record

    def damage(self) -> list[str]:
        """What does not check out, in words."""
        return [words for piece in self._pieces() for words in piece.damage]

    def forget(self, doomed: Doomed) -> tuple[list[Record], int]:
        """Rewrite the log without what is to be forgotten. Gives what went, and how many damaged stretches or files went with it."""

        def once() -> tuple[list[Record], int]:
            reading, records = self._everything()
            gone = [record for record in records if doomed.takes(record)]
            harmless = [data for data in reading.torn if not doomed.shows_in(data)]
            if gone or len(harmless) < len(reading.torn):
                kept = [doomed.scrubbed(record) for record in records if not doomed.takes(record)]
                self._rewrite(kept, len(gone), harmless, reading.mark)
            aside = [key for key in self._set_aside() if (stored := self._backend.get(key)) is not None and doomed.shows_in(stored.data)]
            self._backend.write(*(Delete(key) for key in aside))
            return gone, len(reading.torn) - len(harmless) + len(aside)

        return self._rebased(once)

    def keep_only(self, keep: Callable[[Record], bool]) -> list[Record]:
        """Rewrite the log with what is kept; without anything left, remove it. Gives what went."""

        def once() -> list[Record]:
            reading, records = self._everything()
            kept = [record for record in records if keep(record)]
            if records and not kept:
                with self.index.removed():
                    self._backend.write(Delete(self.key, expect=reading.mark), *(Delete(key) for key in self._set_aside()))
            elif len(kept) < len(records):
                self._rewrite(kept, len(records) - len(kept), reading.torn, reading.mark)
            return [record for record in records if not keep(record)]

        return self._rebased(once)

    def size(self) -> int:
        """The bytes of the log."""
        return sum(item.size for item in self._backend.list(self.key) if item.key == self.key)

    def close(self) -> None:
        """Let go of the full-text index."""
        with self._lock:
            self.index.close()

    def _add(self, records: Sequence[Record], time: str) -> int:
        fresh = self.known().admit(records, time=time)
        if fresh:
            self._backend.write(Append(self.key, [written(record) for record in fresh], expect=self._mark, as_one=False))
        return len(fresh)

    def _learn(self, reading: Records) -> None:
        if reading.whole:
            self._known = RecordIndex()
        for values, place in zip(reading.records, reading.places, strict=True):
            self._known.learn(values, place)
        self._mark = reading.mark

    def _pieces(self) -> Iterator[Records]:
        """The log in pieces, so that not all of it is in memory at once."""
        mark = None
        while True:
            piece = self._backend.read(self.key, after=mark, limit=_PIECE)
            yield piece
            if len(piece.records) < _PIECE:
                return
            mark = piece.mark

    def _everything(self) -> tuple[Records, list[Record]]:
        reading = self._backend.read(self.key)
        records = [record for values in reading.records if (record := record_from(values)) is not None]
        return reading, list({(record.id, record.mark): record for record in records}.values())

    def _rebased(self, step: Callable[[], Result]) -> Result:
        """Do a step; again on what is there now if somebody wrote meanwhile."""
        with self._lock:
            for _ in range(_TRIES):
                try:
                    return step()
                except RevisionConflict:
                    continue
            return step()

    def _rewrite(self, kept: Sequence[Record], gone: int, torn: Sequence[bytes], expect: str) -> None:
        """The log anew, beginning with a note that something went. Damaged stretches are kept beside it."""
        note = {"schema": SCHEMA, "kind": "forgotten", "count": gone, "next": self.known().next_seq, "generation": RandomIds().new()}
        for data in torn:
            self._backend.write(Put(f"{self.key}.damaged-{RandomIds().new()}", data))
        with self.index.removed():
            self._backend.rewrite(self.key, [note, *(written(record) for record in kept)], expect=expect)
        self._backend.sweep(f"{self.key.rpartition('/')[0]}/", holding=lambda _: True)

    def _set_aside(self) -> list[str]:
        """What was found damaged and kept: of the log, and of the index of an older version."""
        folder = self.key.rpartition("/")[0]
        return [item.key for item in self._backend.list(f"{folder}/archive.") if ".damaged-" in item.key]
