"""A knowledge store in PostgreSQL: full text over our own terms, vectors by pgvector, and the ranking that the other stores have (K2, K3).

    store = PostgresStore("postgresql://ada@db.example/agents", collection="notes")
    store.add([Record("The staging server is called heron.", tags=("infra",))])
    store.search("how is the staging server called?")

The server finds candidates, by words and by meaning, each with an index; what they and their neighbours say is then compared with the
question exactly. Without an embedder the store works by words alone and needs no pgvector.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from itertools import islice
from os import PathLike
from types import TracebackType
from typing import Self

from holdfast.clock import Clock, SystemClock
from holdfast.durable.postgres import Postgres, lock_key, scripts
from holdfast.errors import InputError
from holdfast.events import Bus
from holdfast.knowledge.base import packed
from holdfast.knowledge.postgres_candidates import Candidates
from holdfast.knowledge.postgres_ranking import rank
from holdfast.knowledge.postgres_vectors import Pieces, prepare
from holdfast.knowledge.postgres_writing import Writer, read_record
from holdfast.knowledge.records import Hit, Record
from holdfast.knowledge.store import AddReport, Filter, Progress, Stats, check_question, holds
from holdfast.search.embedding import Embedder, load_embedder
from holdfast.text.needle import Needle
from holdfast.tokens.counter import TokenCounter

_BATCH = 256
_PAGE = 1000
_LONGEST_NAME = 200


class PostgresStore:
    """The records of one collection. Meets `KnowledgeStore`; reaches the server when it is first needed.

    `database` is an address, or a `Postgres` that is open already. `embedder` is a name for `load_embedder`, or an embedder.
    """

    def __init__(
        self,
        database: str | Postgres,
        *,
        collection: str = "knowledge",
        embedder: str | Embedder | None = "auto",
        rerank: bool = False,
        rerank_model: str | None = None,
        schema: str = "holdfast",
        base: str | PathLike[str] | None = None,
        clock: Clock | None = None,
        bus: Bus | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        if not collection.strip() or "\0" in collection or len(collection) > _LONGEST_NAME:
            raise InputError(f"{collection[:40]!r} is not a name for a collection.", hint=f"Use 1 to {_LONGEST_NAME} characters.")
        self.collection = collection
        self._given = database
        self._wanted = embedder
        self._rerank = rerank
        self._rerank_model = rerank_model
        self._schema = schema
        self._base = base
        self._clock = clock or SystemClock()
        self._bus = bus
        self._counter = counter
        self._opening = threading.RLock()
        self._opened: tuple[Postgres, int, Pieces | None] | None = None

    # Writing

    def add(self, records: Iterable[Record], *, progress: Progress | None = None) -> AddReport:
        total = len(records) if isinstance(records, Collection) else None
        pending = iter(records)
        report = AddReport()
        while batch := list(islice(pending, _BATCH)):
            report += self._writer().add(batch)
            if progress is not None:
                progress(len(report.ids), total)
        return report

    def forget(self, ids: Iterable[str]) -> int:
        return len(self._writer().forget([id for id in dict.fromkeys(ids) if "\0" not in id]))

    def forget_text(self, text: str) -> list[str]:
        needle = Needle(text)
        return self._writer().forget([record.id for record in self.records() if holds(needle, record)])

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
        database, number, pieces = self._open()
        moment = now or self._clock.now()
        candidates = Candidates(database, number, pieces, chosen)
        found = candidates.find(question, moment, max(top_k * 4, 100))
        hits = rank(found, question, moment, top_k)
        return hits if budget is None else packed(hits, budget, self._counter)

    def get(self, id: str) -> Record | None:
        database, number, _ = self._open()
        if "\0" in id:
            return None
        row = database.one("SELECT record::text FROM knowledge_records WHERE collection = %s AND id = %s", [number, id])
        return None if row is None else read_record(row[0])

    def records(
        self, *, tags: Collection[str] = (), after: datetime | None = None, before: datetime | None = None, session: str | None = None
    ) -> Iterator[Record]:
        chosen = Filter.of(tags, after, before, session)
        database, number, _ = self._open()
        last = 0
        query = "SELECT number, record::text FROM knowledge_records WHERE collection = %s AND number > %s ORDER BY number LIMIT %s"
        while rows := database.rows(query, [number, last, _PAGE]):
            last = rows[-1][0]
            for _, text in rows:
                record = read_record(text)
                if chosen.admits(record):
                    yield record

    def stats(self) -> Stats:
        database, number, pieces = self._open()
        row = database.one(
            "SELECT count(*), count(DISTINCT session), min(time), max(time) FROM knowledge_records WHERE collection = %s", [number]
        )
        records, sessions, oldest, newest = row or (0, 0, None, None)
        tags = "SELECT tag, count(*) FROM knowledge_records, unnest(tags) tag WHERE collection = %s GROUP BY 1 ORDER BY 2 DESC, 1"
        kinds = "SELECT kind, count(*) FROM knowledge_records WHERE collection = %s GROUP BY 1 ORDER BY 2 DESC, 1"
        size = database.one("SELECT pg_total_relation_size('knowledge_records') + pg_total_relation_size('knowledge_terms')")
        return Stats(
            "postgres",
            f"{database.shown} ({self.collection})",
            int(records),
            int(sessions),
            vectors=pieces.count() if pieces is not None else 0,
            bytes=(int(size[0]) if size else 0) + (pieces.size() if pieces is not None else 0),
            oldest=_utc(oldest),
            newest=_utc(newest),
            tags=dict(database.rows(tags, [number])),
            kinds=dict(database.rows(kinds, [number])),
            problems=self._problems(),
        )

    def close(self) -> None:
        with self._opening:
            opened, self._opened = self._opened, None
        if opened is not None and opened[0] is not self._given:
            opened[0].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _problems(self) -> tuple[str, ...]:
        if self._rerank or self._rerank_model:
            return ("the PostgreSQL store compares word by word instead of by a cross-encoder (rerank_model)",)
        return ()

    def _writer(self) -> Writer:
        database, number, pieces = self._open()
        return Writer(database, number, pieces, lock_key(self._schema, "knowledge", self.collection))

    def _open(self) -> tuple[Postgres, int, Pieces | None]:
        """The database with its tables, the number of the collection, and its vectors, where there is an embedder."""
        with self._opening:
            if self._opened is None:
                given = self._given
                database = Postgres(given, schema=self._schema, base=self._base, clock=self._clock) if isinstance(given, str) else given
                try:
                    self._opened = self._prepared(database)
                except BaseException:
                    if database is not given:
                        database.close()
                    raise
            return self._opened

    def _prepared(self, database: Postgres) -> tuple[Postgres, int, Pieces | None]:
        wanted = self._wanted
        embedder = load_embedder(wanted) if isinstance(wanted, str) else wanted
        database.migrate("knowledge", scripts("holdfast.knowledge", prefix="records"))
        if embedder is not None:
            prepare(database, embedder.dimension)
        known = "SELECT number FROM knowledge_collections WHERE name = %s"
        row = database.one(known, [self.collection])
        if row is None:
            with database.transaction(lock_key(self._schema, "knowledge", self.collection)) as step:
                step.execute("INSERT INTO knowledge_collections (name) VALUES (%s) ON CONFLICT DO NOTHING", [self.collection])
                step.proof = (known, [self.collection])
            row = database.one(known, [self.collection])
        number = int(row[0]) if row else 0
        return database, number, None if embedder is None else Pieces(database, number, embedder)


def _utc(moment: datetime | None) -> datetime | None:
    from datetime import UTC

    return None if moment is None else moment.astimezone(UTC)
