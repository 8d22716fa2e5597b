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
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime
from importlib.util import find_spec
from itertools import islice
from logging import WARNING
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self

from holdfast.clock import Clock, SystemClock
from holdfast.durable.database import database_faults, open_database, transaction
from holdfast.errors import StorageError
from holdfast.events import Bus, Event
from holdfast.events import bus as default_bus
from holdfast.knowledge import sqlite_records as rows
from holdfast.knowledge.lexical import LexicalIndex, analyse
from holdfast.knowledge.moments import asked_periods
from holdfast.knowledge.records import Hit, Record, Why
from holdfast.knowledge.shortlist import packed
from holdfast.knowledge.store import AddReport, Filter, Needle, Progress, Stats, check_question
from holdfast.search.embedding import Embedder, load_embedder
from holdfast.search.reranking import Reranker, load_reranker
from holdfast.tokens.counter import TokenCounter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdfast.knowledge.sqlite_shelf import Shelf
    from holdfast.search.corpus import Corpus
    from holdfast.search.ranking import Asked, Ranked

_BATCH = 256
_PAGE = 1000
_RERANKED = 50
_READ = 5000  # characters of a question that are embedded
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, kw_only=True)
class KeywordsOnly(Event):
    """A store has no embedder."""

    component: ClassVar[str] = "Knowledge"
    text: ClassVar[str] = "{path} is searched by keywords alone: install holdfast[vectors] for search by meaning"
    level: ClassVar[int] = WARNING
    path: str


@dataclass(frozen=True, kw_only=True)
class IndexRebuilt(Event):
    """Parts of an index could not be used and are made again from the records."""

    component: ClassVar[str] = "Knowledge"
    text: ClassVar[str] = "{path}: {segments} parts of the index were damaged or made in another way; they are made again"
    level: ClassVar[int] = WARNING
    path: str
    segments: int


@dataclass(frozen=True, kw_only=True)
class RerankerMissing(Event):
    """The cross-encoder that was asked for is not there."""

    component: ClassVar[str] = "Knowledge"
    text: ClassVar[str] = "the reranker {model} is not used ({reason}); results are ranked word by word instead"
    level: ClassVar[int] = WARNING
    model: str
    reason: str


class SqliteStore:
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
        self._clock = clock or SystemClock()
        self._bus = bus or default_bus
        self._counter = counter
        self._lock = threading.RLock()
        self._embedder = load_embedder(embedder) if isinstance(embedder, str) else embedder
        self._problems: list[str] = []
        self._reranker = self._chosen_reranker(rerank, rerank_model)
        self._database = open_database(path, migrations=[rows.schema()], threads=True)
        self.path = self._database.path
        self._seen: object = None
        self._shelf: Shelf | None = None
        self._words: LexicalIndex | None = None
        try:
            self._database.execute("PRAGMA cache_size=-32768")  # 32 MB: the vectors of words are read in many small parts
            self._database.execute("PRAGMA secure_delete=ON")  # what is forgotten is overwritten, not only unlinked
            if find_spec("numpy") is not None:
                self._shelf = self._made_shelf()
        except BaseException:
            self._database.close()
            raise
        if self._embedder is None and embedder == "auto":
            self._bus.emit(KeywordsOnly(path=self.path))

    # Writing

    def add(self, records: Iterable[Record], *, progress: Progress | None = None) -> AddReport:
        total = len(records) if isinstance(records, Collection) else None
        pending = iter(records)
        report = AddReport()
        while batch := list(islice(pending, _BATCH)):
            report += self._add(batch)
            if progress is not None:
                progress(len(report.ids), total)
        return report

    def _add(self, batch: list[Record]) -> AddReport:
        shelf = self._shelf
        with self._faults("read"), self._lock:
            self._refresh()
            unknown = [record for record in batch if rows.known(self._database, record.id) is None] if shelf else []
        made, embedded = shelf.embed(batch if len(unknown) < len(batch) else unknown) if shelf else ({}, 0)
        counts = {"added": 0, "updated": 0, "unchanged": 0}
        with self._changing() as database:
            fresh: dict[int, Record] = {}
            for record in batch:
                change = rows.put(database, record)
                counts[change.kind] += 1
                if change.replaced is not None:
                    fresh.pop(change.replaced, None)
                    self._take_out([change.replaced])
                    change = rows.replace(database, change)
                if change.anew:
                    fresh[change.number] = change.record
            if shelf is not None:
                shelf.put(list(fresh.items()), made)
        return AddReport(embedded=embedded, ids=tuple(record.id for record in batch), **counts)

    def forget(self, ids: Iterable[str]) -> int:
        wanted = list(dict.fromkeys(ids))
        with self._lock:
            with self._changing() as database:
                found = [known[0] for id in wanted if (known := rows.known(database, id)) is not None]
                self._take_out(found)
                rows.delete(database, found)
            if found:
                self._scrub()
        return len(found)

    def forget_text(self, text: str) -> list[str]:
        needle = Needle(text)
        found = [record.id for record in self.records() if record in needle]
        self.forget(found)
        return found

    def _take_out(self, numbers: list[int]) -> None:
        if self._shelf is not None:
            self._shelf.take_out(numbers)
        elif numbers:
            marks = ",".join(map(str, numbers))
            query = f"SELECT DISTINCT segment FROM records WHERE number IN ({marks}) AND segment IS NOT NULL"  # noqa: S608  # numbers only
            rows.drop_segments(self._database, [number for (number,) in self._database.execute(query).fetchall()])

    def _scrub(self) -> None:
        """Rewrite the file, so that nothing of what was forgotten is left in it or in its write-ahead log."""
        with self._faults("scrub"):
            self._database.execute("VACUUM")
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # Reading

    def search(
        self,
        query: str,
        *,
        top_k: int = 10,
        tags: Collection[str] = (),
        after: datetime | None = None,
        before: datetime | None = None,
        session: str | None = None,
        budget: int | None = None,
        now: datetime | None = None,
    ) -> list[Hit]:
        question = check_question(query, top_k, budget)
        chosen = Filter.of(tags, after, before, session)
        moment = now or self._clock.now()
        depth = max(top_k, _RERANKED) if self._reranker is not None else top_k
        if self._shelf is not None:
            hits = self._by_meaning(self._shelf, question, chosen, moment, depth)
        else:
            hits = self._by_words(question, chosen, moment, depth)
        if self._reranker is not None and hits:
            hits = _reranked(self._reranker, question, hits)
        hits = hits[:top_k]
        return hits if budget is None else packed(hits, budget, self._counter)

    def _by_meaning(self, shelf: Shelf, question: str, chosen: Filter, now: datetime, limit: int) -> list[Hit]:
        from holdfast.search.ranking import rank

        asked = self._asked(shelf, question, now)
        with self._lock, self._faults("search"):
            self._refresh()
            corpus = shelf.corpus
            allowed = None if chosen.empty else self._allowed(corpus, chosen)
            found = rank(asked, corpus, allowed=allowed, tokens=shelf.tokens if shelf.compact is not None else None, limit=limit)
            return self._hits(corpus, found)

    def _asked(self, shelf: Shelf, question: str, now: datetime) -> Asked:
        """The question as the ranking needs it: its days, and its vectors where there is an embedder."""
        from holdfast.search.ranking import Asked

        periods = [
            (period.start.toordinal() - _EPOCH, period.end.toordinal() - _EPOCH, period.fade) for period in asked_periods(question, now)
        ]
        if shelf.compact is None:
            return Asked(question, periods=periods)
        (embedding,) = shelf.compact.embedder.embed([question[:_READ]], question=True)
        vector, tokens = shelf.compact.asked(embedding)
        return Asked(question, vector, tokens, embedding.words, periods)

    def _allowed(self, corpus: Corpus, chosen: Filter) -> NDArray[np.bool_]:
        """The units of which some record fits."""
        import numpy  # the short name is taken by the annotations

        condition, values = rows.clause_of(chosen)
        query = f"SELECT number FROM records WHERE {condition}"  # noqa: S608  # our own words
        numbers = numpy.fromiter((number for (number,) in self._database.execute(query, values)), dtype=numpy.int64)
        allowed = numpy.zeros(corpus.units, numpy.bool_)
        allowed[corpus.unit_of[numpy.isin(corpus.numbers, numbers)]] = True
        return allowed

    def _hits(self, corpus: Corpus, found: list[Ranked]) -> list[Hit]:
        numbers = [corpus.numbers[corpus.order[corpus.unit_starts[one.unit] : corpus.unit_starts[one.unit + 1]]].tolist() for one in found]
        records = rows.by_numbers(self._database, [number for unit in numbers for number in unit])
        hits = []
        for one, unit in zip(found, numbers, strict=True):
            members = tuple(records[number] for number in unit if number in records)
            if members:
                hits.append(Hit(members[0], one.score, _why(one), members if len(members) > 1 else ()))
        return hits

    def _by_words(self, question: str, chosen: Filter, now: datetime, limit: int) -> list[Hit]:
        with self._lock, self._faults("search"):
            if self._changed() or self._words is None:
                self._words = LexicalIndex()
                sessions: dict[str, list[Record]] = {}
                for record in self._all(Filter()):
                    sessions.setdefault(f"s{record.session}" if record.session is not None else f"r{record.id}", []).append(record)
                for key, members in sessions.items():
                    self._words.put(key, [(record, analyse(record)) for record in members])
            return self._words.search(question, now, limit, None if chosen.empty else chosen.admits)

    def get(self, id: str) -> Record | None:
        with self._lock, self._faults("read"):
            found = rows.known(self._database, id)
        return None if found is None else found[1]

    def records(
        self, *, tags: Collection[str] = (), after: datetime | None = None, before: datetime | None = None, session: str | None = None
    ) -> Iterator[Record]:
        return self._all(Filter.of(tags, after, before, session))

    def _all(self, chosen: Filter) -> Iterator[Record]:
        last = 0
        while True:
            with self._lock, self._faults("read"):
                page = rows.listed(self._database, chosen, last, _PAGE)
            if not page:
                return
            last = page[-1][0]
            yield from (rows.read(text) for _, text in page)

    def stats(self) -> Stats:
        with self._lock, self._faults("read"):
            return Stats("sqlite", self.path, problems=tuple(self._problems), **rows.summary(self._database))

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # The index

    def _made_shelf(self) -> Shelf:
        from holdfast.knowledge.sqlite_shelf import Shelf
        from holdfast.search.meaning import Compact

        compact = None if self._embedder is None else Compact(self._embedder)
        return Shelf(self._database, compact, lambda segments: self._bus.emit(IndexRebuilt(path=self.path, segments=segments)))

    def _changed(self) -> bool:
        """Whether anybody wrote since this was last asked."""
        (version,) = self._database.execute("PRAGMA data_version").fetchone()
        now = (version, self._database.total_changes)
        changed, self._seen = now != self._seen, now
        return changed

    def _refresh(self) -> None:
        """Bring the index to what the file holds now; index what waits for it."""
        shelf = self._shelf
        if shelf is None or not self._changed():
            return
        unusable = shelf.refresh()
        if unusable:
            with self._changing():
                shelf.repair(unusable)
        while waiting := list(rows.waiting(self._database, _BATCH)):
            made, _ = shelf.embed([record for _, record in waiting])
            with self._changing():
                shelf.put(
                    [(number, record) for number, record in rows.waiting(self._database, _BATCH) if (number, record) in waiting], made
                )
        shelf.refresh()

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, transaction(self._database) as database:
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

    def _chosen_reranker(self, wanted: bool, model: str | Reranker | None) -> Reranker | None:
        if not wanted and model is None:
            return None
        if model is not None and not isinstance(model, str):
            return model
        reranker, reason = load_reranker(model)
        if reranker is None:
            self._problems.append(f"the reranker is not used: {reason}")
            self._bus.emit(RerankerMissing(model=model or "(none named)", reason=reason))
        return reranker


def _why(one: Ranked) -> Why:
    return Why(
        words=one.words,
        keyword=round(one.keyword, 4),
        sentence=_rounded(one.sentence),
        token=_rounded(one.token),
        time=_rounded(one.time),
        speaker=one.speaker,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _reranked(reranker: Reranker, question: str, hits: list[Hit]) -> list[Hit]:
    """The hits in the order that the reranker gives them."""
    values = reranker.score(question, [hit.text for hit in hits])
    order = sorted(range(len(hits)), key=lambda place: (-values[place], place))
    return [replace(hits[place], score=values[place], why=replace(hits[place].why, rerank=values[place])) for place in order]
