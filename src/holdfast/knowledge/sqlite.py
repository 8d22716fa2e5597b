"""A knowledge store in one SQLite file: keywords, vectors and word-by-word likeness, fused (K2, K3). The default.

    store = SqliteStore("knowledge.db")
    store.add([Record("The staging server is called heron.", tags=("infra",))])
    store.search("how is the staging server called?")

The records are the truth, and an add is one transaction of records, vectors and index. Without the extra `vectors` the store works by
keywords alone; what was added then gets its vectors when the extra is there.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from logging import WARNING
from os import PathLike
from typing import TYPE_CHECKING, ClassVar

from holdfast.clock import Clock
from holdfast.durable.database import database_faults, open_database, transaction
from holdfast.errors import StorageError
from holdfast.events import Bus, Event
from holdfast.knowledge import sqlite_rows as rows
from holdfast.knowledge.base import BaseStore, KeywordsOnly, no_embedder, of_another_embedder
from holdfast.knowledge.indexing import asked_of, entry_of, hits_of, numpy_installed
from holdfast.knowledge.records import Hit, Record
from holdfast.knowledge.store import AddReport, Filter, Progress, Stats, holds
from holdfast.search.embedding import Embedder, Reranker, load_embedder
from holdfast.search.plain_ranking import Entry, PlainIndex
from holdfast.search.questions import Asked, Ranked
from holdfast.text.needle import Needle
from holdfast.tokens.counter import TokenCounter

if TYPE_CHECKING:
    from holdfast.knowledge.sqlite_index import SegmentIndex
    from holdfast.search.corpus import Corpus

_PAGE = 1000


@dataclass(frozen=True, kw_only=True)
class IndexRebuilt(Event):
    """Parts of an index could not be used and are made again from the records."""

    component: ClassVar[str] = "Knowledge"
    text: ClassVar[str] = "{path}: {segments} parts of the index were damaged or made in another way; they are made again"
    level: ClassVar[int] = WARNING
    path: str
    segments: int


class SqliteStore(BaseStore):
    """Meets `KnowledgeStore`. Safe for many threads and processes."""

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        embedder: str | Embedder | None = "auto",
        rerank: bool = False,
        rerank_model: str | Reranker | None = None,
        clock: Clock | None = None,
        bus: Bus | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        super().__init__(rerank=rerank, rerank_model=rerank_model, clock=clock, bus=bus, counter=counter)
        self._lock = threading.RLock()
        self._embedder = load_embedder(embedder) if isinstance(embedder, str) else embedder
        self.database = open_database(path, migrations=[rows.schema()], threads=True)
        self.path = self.database.path
        self._seen: object = None
        self._index: SegmentIndex | None = None
        self._plain: PlainIndex | None = None
        self._entries: dict[int, Entry] = {}
        try:
            self.database.execute("PRAGMA cache_size=-32768")  # 32 MB: the vectors of words are read in many small parts
            self.database.execute("PRAGMA secure_delete=ON")  # what is forgotten is overwritten, not only unlinked
            if numpy_installed():
                self._index = self._made_index()
        except BaseException:
            self.database.close()
            raise
        if self._embedder is None and embedder == "auto":
            self._bus.emit(KeywordsOnly(path=self.path))

    # Writing

    def _add(self, batch: list[Record]) -> AddReport:
        return self.put(batch)

    def put(
        self,
        batch: Sequence[Record],
        *,
        gone: Iterable[str] = (),
        exactly: bool = False,
        also: Callable[[sqlite3.Connection], None] | None = None,
    ) -> AddReport:
        """Keep these records and drop those with the ids `gone`, in one transaction; `also` is done in it as well.

        With `exactly` a record takes the place of the one with its id without its tags.
        """
        index = self._index
        with self._faults("read"), self._lock:
            self._refresh()
            unknown = [record for record in batch if rows.known(self.database, record.id) is None] if index else []
        made, embedded = index.embed(batch if len(unknown) < len(batch) else unknown) if index else ({}, 0)
        counts = {"added": 0, "updated": 0, "unchanged": 0}
        with self._changing() as database:
            self._delete(database, gone)
            fresh: dict[int, Record] = {}
            for record in batch:
                change = rows.put(database, record, exactly=exactly)
                counts[change.kind] += 1
                if change.replaced is not None:
                    fresh.pop(change.replaced, None)
                    self._take_out([change.replaced])
                    change = rows.replace(database, change)
                if change.anew:
                    fresh[change.number] = change.record
            if index is not None:
                index.put(list(fresh.items()), made)
            if also is not None:
                also(database)
        return AddReport(embedded=embedded, ids=tuple(record.id for record in batch), **counts)

    def forget(self, ids: Iterable[str]) -> int:
        with self._lock:
            with self._changing() as database:
                found = self._delete(database, ids)
            if found:
                self.scrub()
        return found

    def forget_text(self, text: str) -> list[str]:
        needle = Needle(text)
        found = [record.id for record in self.records() if holds(needle, record)]
        self.forget(found)
        return found

    def reembed(self, *, progress: Progress | None = None) -> int:
        index = self._index
        if index is None or self._embedder is None:
            raise no_embedder()
        with self._lock:
            with self._changing():
                index.begin_anew()
            embedded = self._index_waiting(index, progress)
            index.refresh()
        return embedded

    def _delete(self, database: sqlite3.Connection, ids: Iterable[str]) -> int:
        found = [known[0] for id in dict.fromkeys(ids) if (known := rows.known(database, id)) is not None]
        self._take_out(found)
        rows.delete(database, found)
        return len(found)

    def _take_out(self, numbers: list[int]) -> None:
        if self._index is not None:
            self._index.take_out(numbers)
        elif numbers:
            marks = ",".join(map(str, numbers))
            query = f"SELECT DISTINCT segment FROM records WHERE number IN ({marks}) AND segment IS NOT NULL"  # noqa: S608  # numbers only
            rows.drop_segments(self.database, [number for (number,) in self.database.execute(query).fetchall()])

    def scrub(self) -> None:
        """Rewrite the file, so that nothing of what was forgotten is left in it or in its write-ahead log."""
        with self._lock, self._faults("scrub"):
            self.database.execute("VACUUM")
            self.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # Reading

    def _find(self, question: str, chosen: Filter, now: datetime, limit: int) -> list[Hit]:
        asked = asked_of(question, now, None if self._index is None else self._index.compact)
        with self._lock, self._faults("search"):
            found = self._by_words(asked, chosen, limit) if self._index is None else self._ranked(self._index, asked, chosen, limit)
            return hits_of(found, rows.by_numbers(self.database, [number for one in found for number in one.members]))

    def _ranked(self, index: SegmentIndex, asked: Asked, chosen: Filter, limit: int) -> list[Ranked]:
        from holdfast.search.ranking import rank

        self._refresh()
        corpus = index.corpus
        allowed = None if chosen.empty else corpus.rows_with(rows.numbers(self.database, chosen))
        return rank(asked, corpus, allowed=allowed, tokens=index.tokens if index.compact is not None else None, limit=limit)

    def _by_words(self, asked: Asked, chosen: Filter, limit: int) -> list[Ranked]:
        if self._changed() or self._plain is None:
            stored = rows.numbers(self.database, Filter())
            fresh = rows.by_numbers(self.database, stored - self._entries.keys())
            self._entries = {number: entry for number, entry in self._entries.items() if number in stored}
            self._entries |= {number: entry_of(number, record) for number, record in fresh.items()}
            self._plain = PlainIndex(self._entries[number] for number in sorted(self._entries))
        allowed = None if chosen.empty else rows.numbers(self.database, chosen)
        return self._plain.rank(asked, allowed=allowed, limit=limit)

    def get(self, id: str) -> Record | None:
        with self._lock, self._faults("read"):
            found = rows.known(self.database, id)
        return None if found is None else found[1]

    def _listed(self, chosen: Filter) -> Iterator[Record]:
        last = 0
        while True:
            with self._lock, self._faults("read"):
                page = rows.listed(self.database, chosen, last, _PAGE)
            if not page:
                return
            last = page[-1][0]
            yield from (rows.read(text) for _, text in page)

    def stats(self) -> Stats:
        with self._lock, self._faults("read"):
            stale = self._unused_vectors()
            return Stats(
                "sqlite", self.path, problems=(*([stale] if stale else ()), *self._reranker_problems), **rows.summary(self.database)
            )

    def _unused_vectors(self) -> str:
        return of_another_embedder(self.path) if self._index is not None and self._index.stale else ""

    def close(self) -> None:
        with self._lock:
            self.database.close()

    # The index

    def _made_index(self) -> SegmentIndex:
        from holdfast.knowledge.sqlite_index import SegmentIndex
        from holdfast.search.vectors import Compact

        compact = None if self._embedder is None else Compact(self._embedder)
        return SegmentIndex(self.database, compact, lambda segments: self._bus.emit(IndexRebuilt(path=self.path, segments=segments)))

    def _changed(self) -> bool:
        """Whether anybody wrote since this was last asked."""
        now = self.version()
        changed, self._seen = now != self._seen, now
        return changed

    def corpus(self) -> Corpus:
        """The index of all records as they are now. Needs numpy."""
        with self._lock, self._faults("search"):
            assert self._index is not None, "numpy is not installed"  # noqa: S101
            self._refresh()
            return self._index.corpus

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A change of the file by who keeps tables of its own beside the records."""
        with self._faults("write"), self._changing() as database:
            yield database

    def version(self) -> object:
        """Another one whenever anybody has written."""
        with self._lock:
            return self.database.execute("PRAGMA data_version").fetchone()[0], self.database.total_changes

    def _refresh(self) -> None:
        """Bring the index to what the file holds now; index what waits for it."""
        index = self._index
        if index is None or not self._changed():
            return
        unusable = index.refresh()
        if unusable:
            with self._changing():
                index.repair(unusable)
        self._index_waiting(index)
        index.refresh()

    def _index_waiting(self, index: SegmentIndex, progress: Progress | None = None) -> int:
        """Index the records that wait for it; says how many texts were embedded."""
        done = embedded = 0
        while waiting := list(rows.waiting(self.database, self.batch)):
            made, texts = index.embed([record for _, record in waiting])
            embedded += texts
            with self._changing():
                index.put(
                    [(number, record) for number, record in rows.waiting(self.database, self.batch) if (number, record) in waiting], made
                )
            done += len(waiting)
            if progress is not None:
                progress(done, None)
        return embedded

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, transaction(self.database) as database:
            yield database

    @contextmanager
    def _faults(self, operation: str) -> Iterator[None]:
        try:
            with database_faults(self.path, operation):
                yield
        except sqlite3.ProgrammingError as error:
            if "closed" not in str(error):
                raise
            raise StorageError(f"the store {self.path} is closed.", path=self.path, operation=operation, hint="Open it again.") from None
