"""Following a log from where one left off, and noticing that it is another log by now.

A `Bookmark` says how far somebody has read and what stood there: when the log was rewritten (something was forgotten) or has lost its
tail in a power cut, the bookmark no longer fits and reading begins anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from holdfast.durable.disk import Disk, closing
from holdfast.durable.records import Damage, Entry, find_end, parse, segments

_EDGE = 512
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Bookmark:
    """How far a log was read: the byte after the last sound record, and a digest of the log's beginning and of what lies before."""

    position: int = 0
    digest: str = ""

    def written(self) -> str:
        """As text, to be kept beside what was made from the log."""
        return json.dumps([self.position, self.digest])


START = Bookmark()


def read_bookmark(text: str | None) -> Bookmark:
    """What `written` gave; the start for anything else."""
    try:
        position, digest = json.loads(text or "")
    except (ValueError, TypeError):
        return START
    return Bookmark(position, digest) if isinstance(position, int) and isinstance(digest, str) else START


class Trail:
    """Reads the log at `path` piecewise. Takes no lock: an append that is under way shows as damage at the tail, and is read later."""

    def __init__(self, path: str, disk: Disk) -> None:
        self.path = path
        self.disk = disk

    def size(self) -> int:
        """How many bytes the log has; none if there is no file."""
        try:
            handle = self.disk.open(self.path)
        except FileNotFoundError:
            return 0
        with closing(self.disk, handle):
            return self.disk.size(handle)

    def fits(self, bookmark: Bookmark) -> bool:
        """Whether the log is still the one that was read up to here."""
        return bookmark == START or self.bookmark(bookmark.position) == bookmark

    def bookmark(self, position: int) -> Bookmark:
        """A bookmark at the end of a record."""
        if position == 0:
            return START
        try:
            handle = self.disk.open(self.path)
        except FileNotFoundError:
            return START
        with closing(self.disk, handle):
            edges = self.disk.read(handle, 0, min(_EDGE, position)) + self.disk.read(handle, max(position - _EDGE, 0), min(_EDGE, position))
        return Bookmark(position, blake2b(edges, digest_size=10).hexdigest())

    def follow(self, bookmark: Bookmark = START) -> Iterator[Entry | Damage]:
        """Records and damage after the bookmark, in order. Damage at the very end is marked as `tail`."""
        bad: Damage | None = None
        for position, segment in segments(self._chunks(bookmark.position), bookmark.position):
            found = find_end(segment)
            if found is None and not segment.strip():
                continue  # the line break of a record that was read before it had one
            if found is None:
                bad = Damage(bad.position if bad else position, (bad.length if bad else 0) + len(segment), "the record does not check out")
                continue
            if bad is not None:
                yield bad
            record, length = found
            whole = segment[length : length + 1] == b"\n"
            end = position + length + whole
            if not (position == 0 and "holdfast" in record):
                yield Entry(position, end, record)
            rest = position + len(segment) - end
            bad = Damage(end, rest, "not the beginning of a record") if rest > 0 else None
        if bad is not None:
            yield Damage(bad.position, bad.length, bad.reason, tail=True)

    def read(self, place: tuple[int, int]) -> dict[str, Any] | None:
        """The record between two positions, or None if it is not there any more."""
        start, end = place
        try:
            handle = self.disk.open(self.path)
        except FileNotFoundError:
            return None
        with closing(self.disk, handle):
            return parse(self.disk.read(handle, start, end - start).removesuffix(b"\n"))

    def _chunks(self, offset: int) -> Iterator[bytes]:
        try:
            handle = self.disk.open(self.path)
        except FileNotFoundError:
            return
        with closing(self.disk, handle):
            while chunk := self.disk.read(handle, offset, _CHUNK):
                offset += len(chunk)
                yield chunk
