"""A log for people who watch: one JSON object a line, added at once and synced never. What must survive a power cut is kept elsewhere.

A kill loses nothing, because the kernel has what was written; a power cut may lose the end. A line that was torn is passed over by every
reader and closed by the next writer.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from os import PathLike
from typing import Any

from holdfast.durable.disk import REAL, Disk, closing, open_in, write_all

_LOOK_BACK = 65_536
_PIECE = 1_048_576


class LineLog:
    """Lines of one file. Safe for many threads and any number of readers; one process adds at a time, by a lock or lease of its own.

    With `most_bytes` the older half goes when the file has grown over it.
    """

    def __init__(self, path: str | PathLike[str], *, disk: Disk = REAL, most_bytes: int | None = None) -> None:
        self.path = os.fspath(path)
        self._disk, self._most = disk, most_bytes
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """How many bytes there are: a number to wait for a change of. 0 where there is no file."""
        try:
            with closing(self._disk, self._disk.open(self.path)) as handle:
                return self._disk.size(handle)
        except FileNotFoundError:
            return 0

    def append(self, record: Mapping[str, Any]) -> int:
        """Add a line, and say how large the file is then. Raises a StorageError where it cannot be written."""
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
        with self._lock:
            folder = self._disk.resolve(self.path).rpartition("/")[0]
            handle = open_in(self._disk, folder, lambda: self._disk.open_log(self.path), durable=False)
            with closing(self._disk, handle):
                size = self._disk.size(handle)
                if size and self._disk.read(handle, size - 1, 1) != b"\n":
                    line = b"\n" + line
                if self._most is not None and size > self._most:
                    size = self._shorten(handle, size)
                write_all(self._disk, handle, line, size)
                return size + len(line)

    def read(self, after: int = 0) -> tuple[list[dict[str, Any]], int]:
        """The records that begin at this byte or later, and where the next one will."""
        found: list[dict[str, Any]] = []
        try:
            handle = self._disk.open(self.path)
        except FileNotFoundError:
            return found, 0
        with closing(self._disk, handle):
            size = self._disk.size(handle)
            at = after if 0 <= after <= size else 0
            rest = b""
            while at < size:
                data = self._disk.read(handle, at, min(_PIECE, size - at))
                if not data:
                    break
                at += len(data)
                whole, _, rest = (rest + data).rpartition(b"\n")
                found += [record for line in whole.split(b"\n") if (record := _record(line)) is not None]
            return found, at - len(rest)

    def last(self) -> dict[str, Any] | None:
        """The newest record, or None."""
        try:
            handle = self._disk.open(self.path)
        except FileNotFoundError:
            return None
        with closing(self._disk, handle):
            size, back = self._disk.size(handle), _LOOK_BACK
            while True:
                start = max(0, size - back)
                for line in reversed(self._disk.read(handle, start, size - start).split(b"\n")[1 if start else 0 :]):
                    if (record := _record(line)) is not None:
                        return record
                if not start:
                    return None
                back *= 8

    def _shorten(self, handle: int, size: int) -> int:
        """Let the older half go. Readers who were in it begin anew."""
        kept = self._disk.read(handle, size // 2, size - size // 2).partition(b"\n")[2]
        self._disk.truncate(handle, 0)
        write_all(self._disk, handle, kept, 0)
        return len(kept)


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line) if line.strip() else None
    except ValueError:  # torn
        return None
    return found if isinstance(found, dict) else None
