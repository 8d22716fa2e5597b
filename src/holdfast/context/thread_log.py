"""One thread's part of the archive on disk: its log, what is known of it in memory, and its index."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from holdfast.context.forgetting import Oblivion
from holdfast.context.history_index import START, Bookmark, HistoryIndex, Trail
from holdfast.context.records import MessageRecord, Record, record_from, written
from holdfast.context.view import MARK
from holdfast.durable.append import AppendLog
from holdfast.durable.disk import REAL, Disk, closing, read_whole
from holdfast.durable.records import Damage, Entry
from holdfast.durable.replace import replace, sweep
from holdfast.errors import Locked, NotWritable
from holdfast.ids import RandomIds


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


LOG_NAME = "archive.jsonl"
INDEX_NAME = "archive.sqlite"
SCHEMA = 1


class ThreadLog:
    """The archive of the thread whose folder this is. Safe for many threads and processes.

    The log alone is asked what is there: before anything is decided the part that others have written since is read.
    """

    def __init__(self, folder: str, disk: Disk, timeout: float | None) -> None:
        self.path = os.path.join(folder, LOG_NAME)  # noqa: PTH118  # a disk knows paths as text
        self._folder = folder
        self._disk = disk
        self._log = AppendLog(self.path, schema=SCHEMA, disk=disk, timeout=timeout)
        self._trail = Trail(self.path, disk)
        self.index = HistoryIndex(self._index_path, self._trail)
        self._lock = threading.RLock()
        self._catalogue = Catalogue()
        self._bookmark = START
        self._damage: list[Damage] = []

    def add(self, records: Sequence[Record], time: str) -> int:
        """Write what is not there yet; on return all of it survives a power cut. Says how many were written."""
        with self._lock, self._log.locked():
            fresh = self.catalogue().admit(records, time=time)
            self._log.append_many(written(record) for record in fresh)
            return len(fresh)

    def catalogue(self) -> Catalogue:
        """What the log holds now."""
        with self._lock:
            if not self._trail.fits(self._bookmark):
                self._catalogue, self._bookmark, self._damage = Catalogue(), START, []
            if self._trail.size() != self._bookmark.position:
                self._learn()
            return self._catalogue

    def _learn(self) -> None:
        end = self._bookmark.position
        for item in self._trail.follow(self._bookmark):
            if isinstance(item, Damage):
                if not item.tail:
                    self._damage.append(item)
                continue
            end = item.end
            self._catalogue.learn(item.record, (item.position, item.end))
        self._bookmark = self._trail.bookmark(end)

    def read(self, held: Held) -> Record | None:
        """The record that the catalogue names, or None if it was forgotten just now."""
        values = self._trail.read(held.place)
        record = record_from(values) if values is not None else None
        return record if record is not None and record.id == held.id else None

    def read_at(self, position: int) -> MessageRecord | None:
        """The message at a position that the index gave."""
        item = next(iter(self._trail.follow(Bookmark(position))), None)
        record = record_from(item.record) if isinstance(item, Entry) and item.position == position else None
        return record if isinstance(record, MessageRecord) else None

    def records(self) -> Iterator[Record]:
        """All records in the order of the log, each once."""
        seen: set[tuple[str, str]] = set()
        for item in self._trail.follow():
            record = record_from(item.record) if isinstance(item, Entry) else None
            if record is not None and (record.id, record.mark) not in seen:
                seen.add((record.id, record.mark))
                yield record

    def damage(self) -> list[Damage]:
        """What does not check out. The tail is looked at with all writers kept out: an append under way is no damage."""
        with self._lock:
            self.catalogue()
            try:
                with self._log.locked():
                    self.catalogue()
                    tails = [item for item in self._trail.follow(self._bookmark) if isinstance(item, Damage)]
            except (Locked, NotWritable):  # somebody is writing, or we may only read: what lies before the tail is known all the same
                tails = []
            return [*self._damage, *tails]

    def forget(self, oblivion: Oblivion) -> tuple[list[Record], int]:
        """Rewrite the log without what is to be forgotten. Gives what went, and how many damaged stretches or files went with it."""
        with self._lock, self._log.locked():
            records = list(self.records())
            gone = [record for record in records if oblivion.takes(record)]
            damaged = [self._bytes(item) for item in self._trail.follow() if isinstance(item, Damage)]
            harmless = [data for data in damaged if not oblivion.shows_in(data)]
            files = [path for path in self._damaged_files() if oblivion.shows_in(read_whole(self._disk, path))]
            if gone or len(harmless) < len(damaged):
                kept = [oblivion.scrubbed(record) for record in records if not oblivion.takes(record)]
                self._rewrite(kept, len(gone), harmless)
            self._remove(files)
            return gone, len(damaged) - len(harmless) + len(files)

    def keep_only(self, keep: Callable[[Record], bool]) -> list[Record]:
        """Rewrite the log with what is kept; without anything left, remove it. Gives what went."""
        with self._lock, self._log.locked():
            records = list(self.records())
            kept = [record for record in records if keep(record)]
            damaged = [self._bytes(item) for item in self._trail.follow() if isinstance(item, Damage)]
            if records and not kept:
                with self.index.removed():
                    self._remove([self.path, *self._damaged_files()])
            elif len(kept) < len(records):
                self._rewrite(kept, len(records) - len(kept), damaged)
            return [record for record in records if not keep(record)]

    def size(self) -> int:
        """The bytes of the log."""
        return self._trail.size()

    def close(self) -> None:
        """Let go of the index."""
        with self._lock:
            self.index.close()

    @property
    def _index_path(self) -> str | None:
        return os.path.join(self._folder, INDEX_NAME) if self._disk is REAL else None  # noqa: PTH118  # SQLite needs the real one

    def _rewrite(self, kept: Sequence[Record], gone: int, damaged: Sequence[bytes]) -> None:
        """The log anew, beginning with a note that something went. Damaged stretches are kept beside it."""
        number = self.catalogue().next_seq
        note = {"schema": SCHEMA, "kind": "forgotten", "count": gone, "next": number, "generation": RandomIds().new()}
        for data in damaged:
            replace(f"{self.path}.damaged-{RandomIds().new()}", data, disk=self._disk)
        with self.index.removed():
            self._log.rewrite([note, *(written(record) for record in kept)])
        sweep(self._folder, disk=self._disk)

    def _remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError):
                self._disk.unlink(path)
        if paths:
            self._disk.sync_folder(self._folder)

    def _bytes(self, damage: Damage) -> bytes:
        with closing(self._disk, self._disk.open(self.path)) as handle:
            return self._disk.read(handle, damage.position, damage.length)

    def _damaged_files(self) -> list[str]:
        names = self._disk.list(self._folder) if self._disk.kind(self._folder) == "folder" else []
        return [os.path.join(self._folder, name) for name in names if name.startswith((f"{LOG_NAME}.damaged-", f"{INDEX_NAME}.damaged-"))]  # noqa: PTH118
