"""A knowledge store in PostgreSQL: full text over our own terms, vectors by pgvector, and the ranking that the other stores have (K2, K3).

    store = PostgresStore("postgresql://ada@db.example/agents", collection="notes")
    store.add([Record("The staging server is called heron.", tags=("infra",))])
    store.search("how is the staging server called?")

The server finds candidates, by words and by meaning, each with an index; they and their neighbours are then ranked exactly, as in every
other store. Without an embedder the store works by words alone and needs no pgvector.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from os import PathLike
from typing import TYPE_CHECKING

from holdfast.clock import Clock
from holdfast.durable.postgres import Postgres, lock_key, scripts
from holdfast.errors import InputError
from holdfast.events import Bus
from holdfast.knowledge.base import BaseStore
from holdfast.knowledge.indexing import hits_of
from holdfast.knowledge.postgres_search import CandidateSearch, conditions
from holdfast.knowledge.postgres_vectors import Vectors, prepare
from holdfast.knowledge.postgres_writing import Writer, read_record
from holdfast.knowledge.records import Hit, Record
from holdfast.knowledge.store import AddReport, Filter, Stats, holds
from holdfast.search.embedding import Embedder, load_embedder
from holdfast.search.reranking import Reranker
from holdfast.text.needle import Needle
from holdfast.tokens.counter import TokenCounter

if TYPE_CHECKING:
    from holdfast.search.vectors import Compact

_PAGE = 1000
_LONGEST_NAME = 200


class PostgresStore(BaseStore):
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
        rerank_model: str | Reranker | None = None,
        schema: str = "holdfast",
        base: str | PathLike[str] | None = None,
        clock: Clock | None = None,
        bus: Bus | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        if not collection.strip() or "\0" in collection or len(collection) > _LONGEST_NAME:
            raise InputError(f"{collection[:40]!r} is not a name for a collection.", hint=f"Use 1 to {_LONGEST_NAME} characters.")
        super().__init__(rerank=rerank, rerank_model=rerank_model, clock=clock, bus=bus, counter=counter)
        self.collection = collection
        self._given = database
        self._wanted = embedder
        self._schema = schema
        self._base = base
        self._opening = threading.RLock()
        self._opened: tuple[Postgres, int, Vectors | None] | None = None
        self._behind = False
        """Whether there may be records without vectors: added without an embedder, or by an older version."""

    # Writing

    def _add(self, batch: list[Record]) -> AddReport:
        return self._writer().add(batch)

    def forget(self, ids: Iterable[str]) -> int:
        return len(self._writer().forget([id for id in dict.fromkeys(ids) if "\0" not in id]))

    def forget_text(self, text: str) -> list[str]:
        needle = Needle(text)
        return self._writer().forget([record.id for record in self.records() if holds(needle, record)])

    # Reading

    def _find(self, question: str, chosen: Filter, now: datetime, limit: int) -> list[Hit]:
        database, number, vectors = self._open()
        if self._behind:
            self._behind = self._writer().embed_more()
        found = CandidateSearch(database, number, vectors, chosen).ranked(question, now, limit)
        members = [one for ranked in found for one in ranked.members]
        rows = database.rows("SELECT number, record::text FROM knowledge_records WHERE number = ANY(%s)", [members])
        return hits_of(found, {one: read_record(text) for one, text in rows})

    def get(self, id: str) -> Record | None:
        database, number, _ = self._open()
        if "\0" in id:
            return None
        row = database.one("SELECT record::text FROM knowledge_records WHERE collection = %s AND id = %s", [number, id])
        return None if row is None else read_record(row[0])

    def _listed(self, chosen: Filter) -> Iterator[Record]:
        database, number, _ = self._open()
        where, values = conditions(number, chosen)
        query = f"SELECT r.number, r.record::text FROM knowledge_records r WHERE {where} AND r.number > %s ORDER BY r.number LIMIT %s"  # noqa: S608
        last = 0
        while rows := database.rows(query, [*values, last, _PAGE]):
            last = rows[-1][0]
            yield from (read_record(text) for _, text in rows)

    def stats(self) -> Stats:
        database, number, vectors = self._open()
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
            vectors=vectors.count() if vectors is not None else 0,
            bytes=(int(size[0]) if size else 0) + (vectors.size() if vectors is not None else 0),
            oldest=_utc(oldest),
            newest=_utc(newest),
            tags=dict(database.rows(tags, [number])),
            kinds=dict(database.rows(kinds, [number])),
            problems=self._reranker_problems,
        )

    def close(self) -> None:
        with self._opening:
            opened, self._opened = self._opened, None
        if opened is not None and opened[0] is not self._given:
            opened[0].close()

    def _writer(self) -> Writer:
        database, number, vectors = self._open()
        return Writer(database, number, vectors, lock_key(self._schema, "knowledge", self.collection))

    def _open(self) -> tuple[Postgres, int, Vectors | None]:
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

    def _prepared(self, database: Postgres) -> tuple[Postgres, int, Vectors | None]:
        wanted = self._wanted
        embedder = load_embedder(wanted) if isinstance(wanted, str) else wanted
        compact = None if embedder is None else _compact(embedder)
        database.migrate("knowledge", scripts("holdfast.knowledge", prefix="records"))
        if compact is not None:
            prepare(database, compact.dimension)
        known = "SELECT number FROM knowledge_collections WHERE name = %s"
        row = database.one(known, [self.collection])
        if row is None:
            with database.transaction(lock_key(self._schema, "knowledge", self.collection)) as step:
                step.execute("INSERT INTO knowledge_collections (name) VALUES (%s) ON CONFLICT DO NOTHING", [self.collection])
                step.proof = (known, [self.collection])
            row = database.one(known, [self.collection])
        number = int(row[0]) if row else 0
        vectors = None if compact is None else Vectors(database, number, compact)
        Writer(database, number, vectors, lock_key(self._schema, "knowledge", self.collection)).analyse_again()
        self._behind = vectors is not None
        return database, number, vectors


def _compact(embedder: Embedder) -> Compact:
    from holdfast.search.vectors import Compact  # numpy is there where an embedder is

    return Compact(embedder)


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC)
