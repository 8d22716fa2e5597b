"""The full-text index of one thread's archive: derived from the log, caught up when somebody searches, thrown away when in doubt.

Nothing durable waits for it. When its file is damaged, of a newer version, or cannot be written, the same index is made in memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from itertools import islice
from typing import Any

from holdfast.context.records import MessageRecord, record_from
from holdfast.durable.disk import REAL, Disk, closing
from holdfast.durable.lock import Lock
from holdfast.durable.records import Damage, Entry, find_end, parse, segments
from holdfast.errors import Damaged, Locked, StorageError
from holdfast.search.fulltext import Document, Found, FullTextIndex, Shape

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


SHAPE = Shape({"text": 1.0, "calls": 0.7, "when": 0.4}, window=(0.5, 0.25), full_neighbour=20.0, b=0.6, rarity=1.5)
SPOKEN = frozenset({"human", "ai", "tool", "system"})
"""What is searched unless something else is asked for: not summaries, reminders and the results of searching, which only echo."""

_RECALLING = frozenset({"search_history", "read_history"})
_COMPANIONS = ("", "-wal", "-shm", "-journal")
_BATCH = 1000


def document_of(record: MessageRecord, position: int) -> Document:
    """A message as the index takes it."""
    calls = [f"{name} {_arguments(given)}" for name, given in record.calls if name not in _RECALLING]
    if record.role == "tool" and record.name:
        calls.append(record.name)
    fields = {"text": record.text, "calls": "\n".join(calls), "when": _date_words(record.time)}
    return Document(str(record.seq), fields, kind=kind_of(record), time=record.time, ref=position)


def kind_of(record: MessageRecord) -> str:
    """Who speaks, or what else the message is."""
    for mark in ("summary", "reminder"):
        if mark in record.marks:
            return mark
    return "recall" if record.role == "tool" and record.name in _RECALLING else record.role


class HistoryIndex:
    """The index at `path`, or in memory without one. `trail` is the log that it is made from."""

    def __init__(self, path: str | None, trail: Trail) -> None:
        self._file = self._path = path
        self._trail = trail
        self._index: FullTextIndex | None = None
        self._inode = 0

    def search(self, query: str, top_k: int, *, kinds: frozenset[str], after: str | None, before: str | None) -> list[Found]:
        """The best messages by full text, among all that the log holds now."""
        try:
            return self._caught_up().search(query, top_k, kinds=kinds, after=after, before=before)
        except Damaged:
            self._discard()
        except Locked:
            raise
        except StorageError:
            self._path = None  # no room, no right to write, a newer version's file: then in memory
            self.close()
        return self._caught_up().search(query, top_k, kinds=kinds, after=after, before=before)

    def close(self) -> None:
        """Let go of the file."""
        index, self._index = self._index, None
        if index is not None:
            index.close()

    @contextmanager
    def removed(self) -> Iterator[None]:
        """Inside, the index is gone and nobody fills a new one: for changing the log so that no word of it stays behind here."""
        self.close()
        if self._file is None:
            yield
            return
        with Lock(f"{self._file}.lock", timeout=60.0):
            remove_index(self._file)
            yield

    def _discard(self) -> None:
        self.close()
        if self._path is not None:
            try:
                remove_index(self._path)
            except OSError:
                self._path = None

    def _caught_up(self) -> FullTextIndex:
        index = self._opened()
        bookmark = read_bookmark(index.note("seen"))
        if self._trail.size() == bookmark.position and self._trail.fits(bookmark):
            return index
        if self._path is None:
            self._catch_up(index)
            return index
        with suppress(Locked), Lock(f"{self._path}.lock", timeout=10.0):  # somebody else is at it: what is there will do
            self._catch_up(index)
        return index

    def _opened(self) -> FullTextIndex:
        """The open index; opened anew if its file was removed or replaced meanwhile."""
        if self._index is not None and self._path is not None and self._inode != _inode(self._path):
            self.close()
        if self._index is None:
            self._index = FullTextIndex(self._path or ":memory:", SHAPE)
            self._inode = _inode(self._path) if self._path is not None else 0
        return self._index

    def _catch_up(self, index: FullTextIndex) -> None:
        bookmark = read_bookmark(index.note("seen"))
        if not self._trail.fits(bookmark):
            index.clear()
            bookmark = START
        entries = (item for item in self._trail.follow(bookmark) if isinstance(item, Entry))
        for batch in _batches(entries):
            index.add(_documents(batch), notes={"seen": self._mark(batch).written()})

    def _mark(self, batch: Sequence[Entry]) -> Bookmark:
        return self._trail.bookmark(batch[-1].end)


def remove_index(path: str) -> None:
    """Remove an index with everything that SQLite keeps beside it: it can be made again from the log."""
    for ending in _COMPANIONS:
        with suppress(FileNotFoundError):
            os.unlink(path + ending)  # noqa: PTH108  # paths are plain text in this room's lower half
    with suppress(FileNotFoundError):
        REAL.sync_folder(os.path.dirname(path))  # noqa: PTH120


def _documents(batch: Sequence[Entry]) -> Iterator[Document]:
    for entry in batch:
        record = record_from(entry.record)
        if isinstance(record, MessageRecord):
            yield document_of(record, entry.position)


def _batches(entries: Iterator[Entry]) -> Iterator[list[Entry]]:
    while batch := list(islice(entries, _BATCH)):
        yield batch


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino  # noqa: PTH116
    except OSError:
        return -1


def _arguments(given: Any) -> str:
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)


def _date_words(time: str) -> str:
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        return ""
    return f"{moment.day} {moment:%B %Y %A}"
