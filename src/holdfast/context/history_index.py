"""The full-text index of one thread's archive: derived from the log, caught up when somebody searches, thrown away when in doubt.

Nothing durable waits for it. When its file is damaged, of a newer version, or cannot be written, the same index is made in memory.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from holdfast.context.history_ranking import CANDIDATES, by_meaning, by_words, one_thread, vectors
from holdfast.context.records import MessageRecord, record_from
from holdfast.durable.disk import REAL
from holdfast.durable.lock import Lock
from holdfast.errors import Damaged, Locked, StorageError
from holdfast.search.fulltext import Document, Found, FullTextIndex, Indexed, Shape
from holdfast.storage.backend import ABSENT, Backend, Records

SHAPE = Shape({"text": 1.0, "calls": 0.7, "when": 0.4}, window=(0.5, 0.25), full_neighbour=20.0, b=0.6, rarity=1.5)
SPOKEN = frozenset({"human", "ai", "tool", "system"})
"""What is searched unless something else is asked for: not summaries, reminders and the results of searching, which only echo."""

_RECALLING = frozenset({"search_history", "read_history"})
_COMPANIONS = ("", "-wal", "-shm", "-journal")
_BATCH = 1000


def document_of(record: MessageRecord, place: int) -> Document:
    """A message as the index takes it."""
    calls = [f"{name} {_arguments(given)}" for name, given in record.calls if name not in _RECALLING]
    if record.name:
        calls.append(record.name)
    fields = {"text": record.said, "calls": "\n".join(calls), "when": _date_words(record.time)}
    return Document(str(record.seq), fields, kind=kind_of(record), time=record.time, ref=place)


def kind_of(record: MessageRecord) -> str:
    """Who speaks, or what else the message is."""
    for mark in ("summary", "reminder"):
        if mark in record.marks:
            return mark
    return "recall" if record.role == "tool" and record.name in _RECALLING else record.role


class HistoryIndex:
    """The index at `path`, or in memory without one, made from the log under `key`."""

    def __init__(self, path: str | None, backend: Backend, key: str) -> None:
        self._file = self._path = path
        self._backend = backend
        self._key = key
        self._index: FullTextIndex | None = None
        self._inode = 0

    def search(
        self, query: str, top_k: int, *, kinds: frozenset[str], after: str | None, before: str | None, meaning: bool = True
    ) -> list[Found]:
        """The messages that answer best, among all that the log holds now; without `meaning` by their words alone."""
        try:
            return self._ranked(query, top_k, kinds, after, before, meaning)
        except (Damaged, sqlite3.Error):  # every statement is ours, so one that fails met a file that is not what we wrote
            self._discard()
        except Locked:
            raise
        except StorageError:
            self._path = None  # no room, no right to write, a newer version's file: then in memory
            self.close()
        return self._ranked(query, top_k, kinds, after, before, meaning)

    def _ranked(self, query: str, top_k: int, kinds: frozenset[str], after: str | None, before: str | None, meaning: bool) -> list[Found]:
        index, compact = self._caught_up(), vectors() if meaning else None
        if compact is None:
            return by_words(query, index.search(query, top_k, kinds=kinds, after=after, before=before), index)
        found = index.search(query, max(top_k, CANDIDATES), kinds=kinds, after=after, before=before)
        if not found:
            return []
        # in one thread for all: every thread that does this keeps some hundred megabytes for good
        return one_thread().submit(by_meaning, query, found, index, self._said, compact, kinds=kinds, top_k=top_k).result()

    def _said(self, piece: Indexed) -> str:
        values = self._backend.at(self._key, piece.ref)
        record = record_from(values) if values is not None else None
        if not isinstance(record, MessageRecord):
            return ""
        start, stop = piece.piece
        words = record.said[start:stop] or " ".join(piece.terms.get("calls", ()))
        return f"{record.name}: {words}" if record.name and record.role == "human" else words

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
        if index.note("seen") == (self._backend.mark(self._key) or ABSENT):
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
        seen = index.note("seen")
        while True:
            piece = self._backend.read(self._key, after=seen, limit=_BATCH)
            if piece.whole and seen is not None:
                index.clear()  # the log is not the one that was read: something was forgotten, or it was put back from a copy
            if not piece.records and piece.mark == seen:
                return
            index.add(_documents(piece), notes={"seen": piece.mark})
            seen = piece.mark
            if len(piece.records) < _BATCH:
                return


def remove_index(path: str) -> None:
    """Remove an index with everything that SQLite keeps beside it: it can be made again from the log."""
    for ending in _COMPANIONS:
        with suppress(FileNotFoundError):
            os.unlink(path + ending)  # noqa: PTH108  # paths are plain text in this room's lower half
    with suppress(FileNotFoundError):
        REAL.sync_folder(os.path.dirname(path))  # noqa: PTH120


def _documents(piece: Records) -> Iterator[Document]:
    for values, place in zip(piece.records, piece.places, strict=True):
        record = record_from(values)
        if isinstance(record, MessageRecord):
            yield document_of(record, place)


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
