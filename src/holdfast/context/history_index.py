"""The full-text index of one thread's archive: derived from the log, caught up when somebody searches, thrown away when in doubt.

Nothing durable waits for it. When its file is damaged, of a newer version, or cannot be written, the same index is made in memory.

What it finds by words, among any number of messages, is ranked again by words, meaning and what stands beside it (K3, S9): only these
candidates and their neighbours are compared by meaning, with the one ranking of `search/`. Vectors are made when a message is a candidate
for the first time and kept in the index, a bounded number at a time: a long archive that nobody has searched before costs no more than a
short one.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import date, datetime
from functools import cache, lru_cache
from math import log
from typing import TYPE_CHECKING, Any

from holdfast.context.records import MessageRecord, record_from
from holdfast.durable.disk import REAL
from holdfast.durable.lock import Lock
from holdfast.errors import Damaged, Locked, StorageError
from holdfast.search.embedding import load_embedder
from holdfast.search.fulltext import Document, Found, FullTextIndex, Indexed, Shape
from holdfast.search.pieces import cut_for_meaning
from holdfast.search.plain_ranking import Entry
from holdfast.search.questions import Asked, certainty, logistic, weigh
from holdfast.storage.backend import ABSENT, Backend, Records

if TYPE_CHECKING:
    from holdfast.search.segments import Compact

SHAPE = Shape({"text": 1.0, "calls": 0.7, "when": 0.4}, window=(0.5, 0.25), full_neighbour=20.0, b=0.6, rarity=1.5)
SPOKEN = frozenset({"human", "ai", "tool", "system"})
"""What is searched unless something else is asked for: not summaries, reminders and the results of searching, which only echo."""

_RECALLING = frozenset({"search_history", "read_history"})
_COMPANIONS = ("", "-wal", "-shm", "-journal")
_BATCH = 1000


def document_of(record: MessageRecord, place: int) -> Document:
    """A message as the index takes it.

    What people say to each other is one scope: its neighbours lend it words. An answer or a tool's result stands by itself, as a round does
    in knowledge: beside a message that fits, one that only borrows its words would take the place of another that fits too.
    """
    calls = [f"{name} {arguments_text(given)}" for name, given in record.calls if name not in _RECALLING]
    if record.name:
        calls.append(record.name)
    fields = {"text": record.said, "calls": "\n".join(calls), "when": _date_words(record.time[:10])}
    kind = kind_of(record)
    return Document(str(record.seq), fields, kind, record.time, scope="" if kind == "human" else str(record.seq), ref=place)


def kind_of(record: MessageRecord) -> str:
    """Who speaks, or what else the message is."""
    marks = record.marks
    for mark in ("summary", "reminder"):
        if mark in marks:
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


def arguments_text(given: Any) -> str:
    """The arguments of a call as one text."""
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)


@lru_cache(maxsize=64)
def _date_words(day: str) -> str:
    """The words of an ISO date."""
    try:
        moment = date.fromisoformat(day)
    except ValueError:
        return ""
    return f"{moment.day} {moment:%B %Y %A}"


# Ranking what was found

CANDIDATES = 100
_REACH = 2  # neighbours on each side that are compared too
_AT_ONCE, _BESIDES = 200, 32  # pieces that one search embeds at most: of what it looks at, and of others that wait
_OF_TOOLS = 20  # of the candidates, pieces of what tools gave that are compared by meaning
_READ = 5000  # characters of a question that are embedded

Said = Callable[[Indexed], str]
"""The words of a piece, with the name of who said it where there is one."""


@cache
def vectors() -> Compact | None:
    """The embedder of all archives of this process; None where the extra `vectors` is not installed."""
    embedder = load_embedder("auto")
    if embedder is None:
        return None
    from holdfast.search.segments import Compact

    return Compact(embedder)


def one_thread() -> ThreadPoolExecutor:
    """The thread in which all archives of this process are compared by meaning; a forked child gets one of its own."""
    return _thread_of(os.getpid())


@cache
def _thread_of(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "history")


def by_words(question: str, found: Sequence[Found], index: FullTextIndex) -> list[Found]:
    """These candidates in their order, each with how sure it is by its words alone."""
    rarity, all_of_it = weigh(question, index).rarity, log(index.records + 2)
    rated = []
    for hit in found:
        shared = sum(rarity.get(term, 0.0) * index.met(gain, rarity.get(term, 0.0)) for term, gain in hit.matched.items())
        rated.append(replace(hit, score=logistic(_WORDS[0] * shared / all_of_it + _WORDS[1])))
    return rated


def by_meaning(
    question: str, found: Sequence[Found], index: FullTextIndex, said: Said, compact: Compact, *, kinds: Collection[str], top_k: int
) -> list[Found]:
    """The best of these candidates in the order of the one ranking, each document once and with how sure it is."""
    from holdfast.search.corpus import Corpus
    from holdfast.search.ranking import rank
    from holdfast.search.segments import build

    candidates = {one.row: one for one in found}
    near = {row + step for row in candidates for step in range(-_REACH, _REACH + 1)}
    indexed = {row: piece for row, piece in index.indexed(near).items() if row in candidates or piece.kind in kinds}
    meanings = _meanings(index, indexed, list(candidates), said, compact)
    rarity = weigh(question, index).rarity
    corpus = Corpus.of([build(list(_entries(indexed, meanings, rarity.keys(), compact.dimension)), compact.dimension)])

    def kept(rows: Sequence[int]) -> dict[int, bytes]:
        return {row: meanings[row][1] for row in rows if row in meanings}

    result = rank(
        _asked(question, compact),
        corpus,
        known=index,
        allowed=corpus.rows_with(candidates),
        tokens=lambda rows: corpus.tokens_of(rows, corpus.meaning, compact.token_dimension, kept),
        limit=2 * top_k,  # a long document may be in it by several of its pieces
    )
    information = sum(rarity.values()) / log(index.records + 2)
    best: dict[str, Found] = {}
    for one in result:
        hit = candidates[one.members[0]]
        if hit.id not in best:
            best[hit.id] = replace(hit, score=certainty(one.token, one.sentence, information))
    return list(best.values())[:top_k]


_WORDS = (9.7, -5.3)
"""How sure a hit is by its words alone, see `search/questions.py: certainty`."""


def _asked(question: str, compact: Compact) -> Asked:
    (embedding,) = compact.embedder.embed([question[:_READ]], question=True)
    vector, tokens = compact.asked(embedding)
    return Asked(question, vector, tokens, embedding.words)


def _entries(
    indexed: Mapping[int, Indexed], meanings: Mapping[int, tuple[bytes, bytes]], asked: Collection[str], dimension: int
) -> Iterable[Entry]:
    """What the ranking knows of each piece: how often it has the terms that are asked for, how long it is, its vectors.

    Pieces that follow each other in one scope are neighbours.
    """
    from holdfast.search.segments import with_vectors

    run = ""
    for row in sorted(indexed):
        piece, before = indexed[row], indexed.get(row - 1)
        if before is None or before.scope != piece.scope:
            run = str(row)
        terms = [*piece.terms["text"], *piece.terms["calls"]]
        counts = Counter(term for term in terms if term in asked)
        entry = Entry(row, run, row, 0, _moment(piece.time), None, counts, piece.language, row, size=len(terms))
        yield with_vectors(entry, meanings[row][0], dimension) if row in meanings else entry


def _meanings(
    index: FullTextIndex, indexed: Mapping[int, Indexed], first: Sequence[int], said: Said, compact: Compact
) -> dict[int, tuple[bytes, bytes]]:
    """The vectors of these pieces. Those that have none yet get some: the candidates first, then what stands beside them, then others.

    What a tool gave is long, and mostly found by its words: of that only the best candidates get vectors.
    """
    known = index.meanings(indexed) if index.note("meanings") == compact.name else {}
    lacking = [row for row in dict.fromkeys([*first, *indexed]) if row in indexed and row not in known]
    given = [row for row in first if row in indexed and indexed[row].kind == "tool"][:_OF_TOOLS]
    missing = [row for row in lacking if indexed[row].kind != "tool" or row in given][:_AT_ONCE]
    if not missing:
        return known
    more = index.indexed(set(index.without_meaning(_BESIDES, but="tool")) - indexed.keys()) if known else {}
    texts = {row: cut_for_meaning(said(piece)) for row, piece in [*((row, indexed[row]) for row in missing), *more.items()]}
    made = compact.embed({row.to_bytes(8, "big"): pieces for row, pieces in texts.items()})
    fresh = {int.from_bytes(key, "big"): (meaning.vectors, meaning.tokens) for key, meaning in made.items()}
    with suppress(StorageError):  # they are made again by the next search
        index.keep_meanings(fresh, by=compact.name)
    return known | fresh


def _moment(time: str) -> int | None:
    try:
        return int(datetime.fromisoformat(time).timestamp() * 1000)
    except ValueError:
        return None
