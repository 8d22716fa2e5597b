"""A log that only grows: JSON Lines with a checksum in each record, readable by a person, safe for many writers.

`append` returns after the sync. Damage is never hidden and never spreads: reading gives every record that checks out and names
every stretch that does not. A tail torn by a crash is cut off before the next append, and kept in a file beside the log.

A log that is `growing` ends in blanks, which are no record and no damage: a write inside a file's size leaves the records of the file
system as they are, and to sync those is most of what a sync costs. The last append takes the blanks away; after a crash they stay until
then.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from os import PathLike
from types import TracebackType
from typing import Any, NamedTuple

from holdfast.durable.disk import REAL, Disk, Identity, closing, open_in, read_whole, write_all
from holdfast.durable.log_records import (
    BLANK,
    START,
    Damage,
    Entry,
    find_end,
    joined,
    last_append,
    line_of,
    lines_of,
    parse,
    place_of,
    segments,
    whole_appends,
)
from holdfast.durable.replace import replace
from holdfast.errors import Damaged, DiskFull, StorageError, SyncFailed

_CHUNK = 1 << 20
_WINDOW = 1 << 17
_EDGE = 512
_SEEN = 64


@dataclass(frozen=True)
class Reading:
    """What is in a log: the records that check out, in order, and what does not check out.

    `mark` stands for the end of what was read, to go on from there; None if there was no log. `whole` unless it began at such a mark.
    `torn` holds the bytes of each damage.
    """

    records: tuple[dict[str, Any], ...]
    damage: tuple[Damage, ...]
    mark: str | None = None
    whole: bool = True
    positions: tuple[int, ...] = ()
    """Of each record, for `read_at`."""
    torn: tuple[bytes, ...] = ()


class _Left(NamedTuple):
    """The file as an append left it: its identity, its size, where the records end, the mark of that end, and what that is made of."""

    facts: tuple[int, ...]
    size: int
    end: int
    mark: str
    head: bytes
    tail: bytes

    def after(self, facts: tuple[int, ...], size: int, data: bytes) -> _Left:
        """The same when `data` was added."""
        end, head = self.end + len(data), (self.head + data)[:_EDGE] if len(self.head) < _EDGE else self.head
        tail = (self.tail + data)[-_EDGE:]
        return _Left(facts, size, end, _mark(end, head, tail if end > _EDGE else head), head, tail)


class AppendLog:
    """The log at `path`. Many objects, threads and processes may append to one log; they take turns at `path.lock`.

    The first line of a file says the `schema` of its records; a log of a newer schema than ours is refused. After SyncFailed
    this object refuses to write: what the kernel dropped cannot be known. A new object starts on a fresh descriptor. Without `locking`
    whoever uses it keeps the other writers out. `room` is by how many bytes a log that is growing is made larger at a time.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        schema: int = 1,
        disk: Disk = REAL,
        timeout: float | None = 10.0,
        locking: bool = True,
        room: int = 1 << 16,
    ) -> None:
        self.path = os.fspath(path)
        self._locking = locking
        self._room = room
        self.schema = schema
        self._disk = disk
        self._timeout = timeout
        self._threads = threading.RLock()
        self._inside = False
        self._checked = False
        self._given_up: str | None = None
        self._left: _Left | None = None
        self._handle: int | None = None  # kept open while the log is growing

    def __del__(self) -> None:
        with suppress(BaseException):  # nobody is there whom an error could be told
            self.close()

    def close(self) -> None:
        """Give back what is held open between two appends of a log that is growing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(StorageError, OSError):  # everything that was written through it is synced
                self._disk.close(handle)

    def append(self, record: Mapping[str, Any]) -> int:
        """Add a record; on return it survives a power cut. Gives its position, for `read_at`."""
        return self.append_many([record])[0]

    def append_many(
        self,
        records: Iterable[Mapping[str, Any]],
        *,
        as_one: bool = False,
        growing: bool = False,
        check: Callable[[str | None], None] | None = None,
    ) -> list[int]:
        """Add records with one sync for all; gives their positions.

        WriteFailed means that none is in the log. After a crash before the return any of them may be there, each whole; with `as_one`
        all of them or none. `growing` says that more will follow soon; `check` is called with the log's mark first, and may raise.
        """
        lines = lines_of(records, as_one=as_one)
        if not lines:
            return []
        with self.locked() if self._locking else nullcontext():
            left = self._left if self._is_as_left() else None
            if check is not None:
                check(left.mark if left is not None else self.mark())
            return self._append(lines, left, growing=growing)

    def scan(self) -> Iterator[Entry | Damage]:
        """Records and damage in the order of the file, read piece by piece. No file is an empty log.

        Takes no lock: an append that is under way may show as damage at the tail.
        """
        handle = self._opened()
        if handle is not None:
            with closing(self._disk, handle):
                yield from self._scan(handle, 0)

    def read(self, after: str | None = None, limit: int | None = None) -> Reading:
        """The whole log at once; with `after`, a mark, only what came later, unless the log is not the one of that mark any more.

        At most `limit` records, if that is given: `mark` is where to go on.
        """
        handle = self._opened()
        if handle is None:
            return Reading((), ())
        with closing(self._disk, handle):
            start = self._position(handle, after)
            entries: list[Entry] = []
            damage: list[Damage] = []
            for item in self._scan(handle, start or 0):
                if isinstance(item, Damage):
                    damage.append(item)
                    continue
                entries.append(item)
                if len(entries) == limit:
                    break
            mark = self._mark_at(handle, entries[-1].end if entries else start or self._head_end(handle))
            torn = tuple(self._disk.read(handle, item.position, item.length) for item in damage)
        records, positions = tuple(entry.record for entry in entries), tuple(entry.position for entry in entries)
        return Reading(records, tuple(damage), mark, start is None, positions, torn)

    def mark(self) -> str | None:
        """Stands for the end of the log: another one after an append or a rewriting. None if there is no log, or nothing in its file."""
        handle = self._opened()
        if handle is None:
            return None
        with closing(self._disk, handle):
            left = self._left
            if left is not None and self._is_still(left, self._disk.identity(handle), handle):
                return left.mark
            return self._mark_at(handle, _sound_end(self._disk, handle, self._disk.size(handle))[0])

    def cut_back(self, mark: str | None) -> bool:
        """Take away all that was appended after `mark` (None: all), durably. False, and nothing happens, if it is no mark of this log.

        For undoing an append as part of a larger step: called with the log locked since that mark was read.
        """
        handle = self._opened(writing=True)
        if handle is None:
            return True
        with closing(self._disk, handle):
            position = 0 if mark is None else self._position(handle, mark)
            if position is not None:
                self._disk.truncate(handle, position)
                with self._giving_up():
                    self._disk.sync(handle)
        return position is not None

    def read_at(self, position: int) -> dict[str, Any]:
        """The record at a position that `append` or `scan` gave. Damaged if there is none that checks out."""
        found, handle = None, self._opened() if position >= 0 else None
        if handle is not None:
            with closing(self._disk, handle):
                _, segment = next(segments(self._chunks(handle, position), position), (position, b""))
                found = find_end(segment)
        if found is None:
            raise Damaged(f"{self.path} has no sound record at byte {position}.", path=self.path, position=position)
        return found[0]

    def last(self) -> dict[str, Any] | None:
        """The newest record of a whole append, without reading the others. None if there is none."""
        handle = self._opened()
        if handle is None:
            return None
        with closing(self._disk, handle):
            _, data, found = _last_append(self._disk, handle, self._disk.size(handle))
        record = None if found is None else find_end(data[data.rfind(START, 0, found[0]) : found[0]])
        return None if record is None or "holdfast" in record[0] else record[0]

    @property
    def last_mark(self) -> str | None:
        """The mark after the last append of this object; None where it could not be learned. Asks nothing of the disk."""
        return self._left.mark if self._left is not None else None

    def rewrite(self, records: Iterable[Mapping[str, Any]]) -> str:
        """Put these records in place of all there are, in one step: for pruning. Gives the new mark; positions given before are void."""
        lines = [line_of(record) for record in records]
        with self.locked():
            self._refuse_if_given_up()
            next(self.scan(), None)  # refuses a log of a newer schema
            data = b"".join([self._header(), *lines])
            self.close()
            replace(self.path, data, disk=self._disk)
        return _mark(len(data), data[:_EDGE], data[-_EDGE:])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps every other writer out, to read, decide and append as one step. The same thread may append inside."""
        with self._threads:
            if self._inside:
                yield
                return
            with self._lock():
                self._inside = True
                try:
                    yield
                finally:
                    self._inside = False

    def _opened(self, *, writing: bool = False) -> int | None:
        try:
            if not writing:
                return self._disk.open(self.path)
            return self._disk.open_log(self.path) if self._disk.kind(self.path) is not None else None
        except FileNotFoundError:
            return None

    def _scan(self, handle: int, start: int) -> Iterator[Entry | Damage]:
        return whole_appends(self._pieces(handle, start), start)

    def _pieces(self, handle: int, start: int) -> Iterator[Entry | Damage]:
        bad: Damage | None = None
        for position, segment in segments(self._chunks(handle, start), start):
            if bad is None and position and segment[16:17] == b'"' and segment.endswith(b"}\n"):
                whole = parse(segment[:-1])
                if whole is not None:  # the ordinary case
                    yield Entry(position, position + len(segment), whole)
                    continue
            found = find_end(segment)
            if found is None:
                if position == start > 0 and segment.rstrip(BLANK) in (b"\n", b""):
                    continue  # the line break of a record that was read before it had one, or only room for more
                bad = joined(bad, position, segment)
                continue
            record, length = found
            if bad is not None:
                yield bad
            rest = segment[length:]
            broken = not rest.startswith(b"\n")
            end = position + length + (not broken)
            if position == 0 and "holdfast" in record:
                self._check_schema(record)
            else:
                yield Entry(position, end, record, *place_of(segment)) if segment[16:17] == b" " else Entry(position, end, record)
            bad = joined(None, end, rest[not broken :]) if rest.rstrip(BLANK) not in (b"\n", b"") else None
        if bad is not None:
            yield Damage(bad.position, bad.length, bad.reason, tail=True)

    def _mark_at(self, handle: int, position: int) -> str | None:
        """The position, and a digest of the log's beginning, which is another one after each rewriting, and of what lies before it."""
        if position == 0:
            return None
        head = self._disk.read(handle, 0, min(_EDGE, position))
        return _mark(position, head, self._disk.read(handle, position - _EDGE, _EDGE) if position > _EDGE else head)

    def _position(self, handle: int, mark: str | None) -> int | None:
        """The position that a mark stands for, or None if it stands for none in this log."""
        number = (mark or "").partition(":")[0]
        position = int(number) if number.isdecimal() else 0
        return position if position and mark == self._mark_at(handle, position) else None

    def _head_end(self, handle: int) -> int:
        """The end of the first line, where that is the one that says the schema."""
        head = self._disk.read(handle, 0, _EDGE)
        first = find_end(head[: head.find(b"\n") + 1]) if b"\n" in head else None
        return first[1] + 1 if first is not None and "holdfast" in first[0] else 0

    def _lock(self) -> AbstractContextManager[object]:
        return self._disk.lock(f"{self._disk.resolve(self.path)}.lock", self._timeout) if self._locking else nullcontext()

    def _is_as_left(self) -> bool:
        """Whether the file that is held open is the one at the path, and nobody else wrote to it since this object did."""
        left, handle = self._left, self._handle
        return left is not None and handle is not None and self._is_still(left, self._disk.identity(self.path), handle)

    def _is_still(self, left: _Left, found: Identity | None, handle: int) -> bool:
        if found is None or found.facts != left.facts:
            return False
        if left.size == left.end:
            return True  # any append would have made it larger
        start = max(left.end - _SEEN, 0)  # one in the same tick of the clock would not, but would stand where there were blanks
        return self._disk.read(handle, start, left.end - start + 1) == left.tail[start - left.end :] + BLANK

    def _append(self, lines: list[bytes], left: _Left | None, *, growing: bool) -> list[int]:
        self._refuse_if_given_up()
        if left is None:
            self.close()
        handle = self._handle if self._handle is not None else self._open_for_append()
        self._handle = None
        try:
            end, size = (left.end, left.size) if left is not None else self._ready(handle)
            self._left = None
            new = end == 0
            if new:
                lines = [self._header(), *lines]
            positions = list(accumulate((len(line) for line in lines[:-1]), initial=end))
            data = b"".join(lines)
            size = self._write(handle, end, size, data, growing=growing)
            self._note_end(handle, left, end, size, data)
        except BaseException:
            with suppress(StorageError):
                self._disk.close(handle)
            raise
        with self._giving_up():  # from here on the records are in the log, and an error leaves in doubt whether they stay
            if growing:
                self._handle = handle
            else:
                self._disk.close(handle)
            if new or not self._checked:  # whoever made the file may have died before its name was on the disk
                self._disk.sync_folder(os.path.dirname(self._disk.resolve(self.path)))
        self._checked = True
        return positions[1:] if new else positions

    def _open_for_append(self) -> int:
        if self._checked:
            with suppress(FileNotFoundError):  # else its folder is gone by now
                return self._disk.open_log(self.path)
        target = self._disk.resolve(self.path)
        return open_in(self._disk, os.path.dirname(target), lambda: self._disk.open_log(target))

    def _note_end(self, handle: int, left: _Left | None, end: int, size: int, data: bytes) -> None:
        """Remember the new end, so that it need not be looked for. An error here is none of the append."""
        with suppress(StorageError):
            identity = self._disk.identity(handle)
            if identity is None:
                return
            if left is None:
                head = self._disk.read(handle, 0, min(_EDGE, end))
                before = self._disk.read(handle, max(end - _EDGE, 0), min(_EDGE, end)) if len(data) < _EDGE else b""
                left = _Left((), 0, end, "", head, before)
            self._left = left.after(identity.facts, size, data)

    def _write(self, handle: int, end: int, size: int, data: bytes, *, growing: bool) -> int:
        """Write and sync, or leave the log as it was before. Gives the size of the file."""
        stop = end + len(data)
        try:
            if growing and stop > size:
                size = self._write_with_room(handle, end, data)
            else:
                write_all(self._disk, handle, data, at=end)
                size = max(size, stop)
            with self._giving_up():
                self._disk.sync(handle, content_only=True)
        except StorageError:
            with suppress(StorageError):  # if this fails too, the next append finds the torn tail and cuts it
                self._disk.truncate(handle, end)
            raise
        if not growing and size > stop:
            with suppress(StorageError):  # blanks that stay, or come back with the power, are harmless
                self._disk.truncate(handle, stop)
                size = stop
        return size

    def _write_with_room(self, handle: int, end: int, data: bytes) -> int:
        try:
            write_all(self._disk, handle, data + BLANK * self._room, at=end)
        except DiskFull:  # the record alone may still fit
            self._disk.truncate(handle, end)
            write_all(self._disk, handle, data, at=end)
            return end + len(data)
        return end + len(data) + self._room

    def _giving_up(self) -> _GivingUp:
        return _GivingUp(self)

    def give_up(self, error: Exception) -> SyncFailed:
        """Write no more through this object; the error to raise because of this one."""
        self._given_up = str(error)
        if isinstance(error, SyncFailed):
            return error
        return SyncFailed(f"{self.path} may not hold what was appended last: {error}", path=self.path, operation="append")

    def _refuse_if_given_up(self) -> None:
        if self._given_up is not None:
            raise SyncFailed(
                f"{self.path} is not written to any more: {self._given_up}",
                path=self.path,
                operation="append",
                hint="Check the disk, then open the log anew.",
            )

    def _ready(self, handle: int) -> tuple[int, int]:
        """Make the end of the file fit for an append; where the records end, and its size. It is checked unless this object wrote it."""
        size = self._disk.size(handle)
        left = self._left
        if size == 0:
            return 0, 0
        if self._checked and left is not None and self._is_still(left, self._disk.identity(handle), handle):
            return left.end, size
        if not self._checked:
            self._check_schema(self._first(handle))
        end, broken = _sound_end(self._disk, handle, size)
        rest = self._disk.read(handle, end, size - end)
        torn = bool(rest.rstrip(BLANK))
        if torn:
            self._keep_aside(end, rest)
            self._disk.truncate(handle, end)
        if broken:  # a whole record that only lacks its line break: an append cut short at the last byte
            write_all(self._disk, handle, b"\n", at=end)
            end += 1
        if torn or broken:
            with self._giving_up():
                self._disk.sync(handle)
        return end, end if torn else max(size, end)

    def _first(self, handle: int) -> dict[str, Any]:
        _, segment = next(segments([self._disk.read(handle, 0, 4096)]))
        found = find_end(segment)
        return found[0] if found and "holdfast" in found[0] else {}

    def _keep_aside(self, position: int, data: bytes) -> None:
        base = f"{self._disk.resolve(self.path)}.damaged-{position}"
        number = 0
        while self._disk.kind(path := f"{base}.{number}" if number else base) is not None:
            if read_whole(self._disk, path) == data:  # kept before, by a process that died before it could cut
                self._disk.sync_folder(os.path.dirname(path))
                return
            number += 1
        replace(path, data, disk=self._disk)

    def _header(self) -> bytes:
        return line_of({"holdfast": "log", "schema": self.schema, "generation": os.urandom(6).hex()})

    def _check_schema(self, header: Mapping[str, Any]) -> None:
        found = header.get("schema", self.schema)
        if not isinstance(found, int) or found > self.schema:
            raise StorageError(
                f"{self.path} has schema {found}, and this version knows up to {self.schema}.",
                path=self.path,
                operation="open",
                hint="It was written by a newer version: use that one.",
            )

    def _chunks(self, handle: int, offset: int) -> Iterator[bytes]:
        while chunk := self._disk.read(handle, offset, _CHUNK):
            offset += len(chunk)
            yield chunk


class _GivingUp:
    """An error inside is the end of writing through a log. A class because a generator costs more than most of the calls inside."""

    __slots__ = ("_log",)

    def __init__(self, log: AppendLog) -> None:
        self._log = log

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, (StorageError, OSError)) and (raised := self._log.give_up(error)) is not error:
            raise raised from error


def _mark(position: int, head: bytes, tail: bytes) -> str:
    return f"{position}:{blake2b(head + tail, digest_size=10).hexdigest()}"


def _sound_end(disk: Disk, handle: int, size: int) -> tuple[int, bool]:
    """Where the last whole append ends, and whether its line break is missing."""
    begin, _, found = _last_append(disk, handle, size)
    return (0, False) if found is None else (begin + found[0], found[1])


def _last_append(disk: Disk, handle: int, size: int) -> tuple[int, bytes, tuple[int, bool] | None]:
    """The end of a log with its last whole append: where that piece begins, its bytes, and what `last_append` says of it."""
    window = _WINDOW
    while True:
        begin = max(size - window, 0)
        data = disk.read(handle, begin, size - begin)
        found = last_append(data)
        if found is not None or begin == 0:
            return begin, data, found
        window *= 8
