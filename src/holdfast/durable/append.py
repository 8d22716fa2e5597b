"""A log that only grows: JSON Lines with a checksum in each record, readable by a person, safe for many writers.

`append` returns after the sync. Damage is never hidden and never spreads: reading gives every record that checks out and names
every stretch that does not. A tail torn by a crash is cut off before the next append, and kept in a file beside the log.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate
from os import PathLike
from typing import Any

from holdfast.durable.disk import REAL, Disk, closing, open_in, read_whole, write_all
from holdfast.durable.records import START, Damage, Entry, find_end, line_of, segments
from holdfast.durable.replace import replace
from holdfast.errors import Damaged, StorageError, SyncFailed

_CHUNK = 1 << 20
_WINDOW = 1 << 16


@dataclass(frozen=True)
class Reading:
    """Everything in a log: the records that check out, in order, and what does not check out."""

    records: tuple[dict[str, Any], ...]
    damage: tuple[Damage, ...]


class AppendLog:
    """The log at `path`. Many objects, threads and processes may append to one log; they take turns at `path.lock`.

    The first line of a file says the `schema` of its records; a log of a newer schema than ours is refused. After SyncFailed
    this object refuses to write: what the kernel dropped cannot be known. A new object starts on a fresh descriptor.
    """

    def __init__(self, path: str | PathLike[str], *, schema: int = 1, disk: Disk = REAL, timeout: float | None = 10.0) -> None:
        self.path = os.fspath(path)
        self.schema = schema
        self._disk = disk
        self._timeout = timeout
        self._threads = threading.RLock()
        self._inside = False
        self._checked = False
        self._given_up: str | None = None

    def append(self, record: Mapping[str, Any]) -> int:
        """Add a record; on return it survives a power cut. Gives its position, for `read_at`."""
        return self.append_many([record])[0]

    def append_many(self, records: Iterable[Mapping[str, Any]]) -> list[int]:
        """Add records with one sync for all; gives their positions.

        WriteFailed means that none is in the log. After a crash before the return any of them may be there, each whole.
        """
        lines = [line_of(record) for record in records]
        if not lines:
            return []
        with self.locked():
            return self._append(lines)

    def scan(self) -> Iterator[Entry | Damage]:
        """Records and damage in the order of the file, read piece by piece. No file is an empty log.

        Takes no lock: an append that is under way may show as damage at the tail.
        """
        bad: Damage | None = None
        for position, segment in segments(self._chunks()):
            found = find_end(segment)
            if found is None:
                bad = _joined(bad, position, segment)
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
                yield Entry(position, end, record)
            bad = _joined(None, end, rest[not broken :]) if rest not in (b"\n", b"") else None
        if bad is not None:
            yield Damage(bad.position, bad.length, bad.reason, tail=True)

    def read(self) -> Reading:
        """The whole log at once."""
        items = list(self.scan())
        return Reading(
            tuple(item.record for item in items if isinstance(item, Entry)),
            tuple(item for item in items if isinstance(item, Damage)),
        )

    def read_at(self, position: int) -> dict[str, Any]:
        """The record at a position that `append` or `scan` gave. Damaged if there is none that checks out."""
        chunks = self._chunks(position) if position >= 0 else iter(())
        _, segment = next(segments(chunks, position), (position, b""))
        found = find_end(segment)
        if found is None:
            raise Damaged(f"{self.path} has no sound record at byte {position}.", path=self.path, position=position)
        return found[0]

    def rewrite(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Put these records in place of all there are, in one step: for pruning. Positions given before are void."""
        lines = [line_of(record) for record in records]
        with self.locked():
            self._refuse_if_given_up()
            next(self.scan(), None)  # refuses a log of a newer schema
            replace(self.path, b"".join([self._header(), *lines]), disk=self._disk)

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

    def _lock(self) -> AbstractContextManager[object]:
        return self._disk.lock(f"{self._disk.resolve(self.path)}.lock", self._timeout)

    def _append(self, lines: list[bytes]) -> list[int]:
        self._refuse_if_given_up()
        target = self._disk.resolve(self.path)
        folder = os.path.dirname(target)
        handle = open_in(self._disk, folder, lambda: self._disk.open_log(target))
        try:
            size = self._ready(handle)
            new = size == 0
            if new:
                lines = [self._header(), *lines]
            positions = list(accumulate((len(line) for line in lines[:-1]), initial=size))
            self._write(handle, size, b"".join(lines))
        except BaseException:
            with suppress(StorageError):
                self._disk.close(handle)
            raise
        with self._giving_up():  # from here on the records are in the log, and an error leaves in doubt whether they stay
            self._disk.close(handle)
            if new or not self._checked:
                self._disk.sync_folder(folder)  # whoever made the file may have died before its name was on the disk
        self._checked = True
        return positions[1:] if new else positions

    def _write(self, handle: int, before: int, data: bytes) -> None:
        """Write and sync, or leave the log as it was before."""
        try:
            write_all(self._disk, handle, data)
            with self._giving_up():
                self._disk.sync(handle)
        except StorageError:
            with suppress(StorageError):  # if this fails too, the next append finds the torn tail and cuts it
                self._disk.truncate(handle, before)
            raise

    @contextmanager
    def _giving_up(self) -> Iterator[None]:
        """An error inside is the end of writing through this object."""
        try:
            yield
        except (StorageError, OSError) as error:
            self._given_up = str(error)
            if isinstance(error, SyncFailed):
                raise
            raise SyncFailed(f"{self.path} may not hold what was appended last: {error}", path=self.path, operation="append") from error

    def _refuse_if_given_up(self) -> None:
        if self._given_up is not None:
            raise SyncFailed(
                f"{self.path} is not written to any more: {self._given_up}",
                path=self.path,
                operation="append",
                hint="Check the disk, then open the log anew.",
            )

    def _ready(self, handle: int) -> int:
        """Make the end of the file fit for an append, and give its size. The first time the last record is checked as well."""
        size = self._disk.size(handle)
        if size == 0 or (self._checked and self._disk.read(handle, size - 1, 1) == b"\n"):
            return size
        if not self._checked:
            self._check_schema(self._first(handle))
        end, broken = _sound_end(self._disk, handle, size)
        if end < size:
            self._keep_aside(end, self._disk.read(handle, end, size - end))
            self._disk.truncate(handle, end)
        if broken:  # a whole record that only lacks its line break: an append cut short at the last byte
            write_all(self._disk, handle, b"\n")
            end += 1
        if end < size or broken:
            with self._giving_up():
                self._disk.sync(handle)
        return end

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
        return line_of({"holdfast": "log", "schema": self.schema})

    def _check_schema(self, header: Mapping[str, Any]) -> None:
        found = header.get("schema", self.schema)
        if not isinstance(found, int) or found > self.schema:
            raise StorageError(
                f"{self.path} has schema {found}, and this version knows up to {self.schema}.",
                path=self.path,
                operation="open",
                hint="It was written by a newer version: use that one.",
            )

    def _chunks(self, offset: int = 0) -> Iterator[bytes]:
        try:
            handle = self._disk.open(self.path)
        except FileNotFoundError:
            return
        with closing(self._disk, handle):
            while chunk := self._disk.read(handle, offset, _CHUNK):
                offset += len(chunk)
                yield chunk


def _joined(bad: Damage | None, position: int, piece: bytes) -> Damage:
    """Neighbouring bad pieces are one damage: what tore them apart may itself be damage."""
    if bad is not None:
        return Damage(bad.position, bad.length + len(piece), bad.reason)
    if not piece.strip(b"\0"):
        reason = "NUL bytes: space that was given to the file, but never written"
    elif piece.startswith(START):
        reason = "the checksum does not match, or the record is not whole"
    else:
        reason = "not the beginning of a record"
    return Damage(position, len(piece), reason)


def _sound_end(disk: Disk, handle: int, size: int) -> tuple[int, bool]:
    """Where the last sound record ends, and whether its line break is missing. Looks at no more of the file than it must."""
    window = _WINDOW
    while True:
        begin = max(size - window, 0)
        data = disk.read(handle, begin, size - begin)
        stop, at = size - begin, data.rfind(START)
        while at >= 0:
            found = find_end(data[at:stop])
            if found is not None:
                end = at + found[1]
                return (begin + end + 1, False) if data[end : end + 1] == b"\n" else (begin + end, True)
            stop, at = at, data.rfind(START, 0, at)
        if begin == 0:
            return 0, False
        window *= 8
