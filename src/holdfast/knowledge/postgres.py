"""A knowledge store in PostgreSQL: full text over our own terms, vectors by pgvector, and the ranking that the other stores have (K2, K3).

    store = PostgresStore("postgresql://ada@db.example/agents", collection="notes")
    store.add([Record("The staging server is called heron.", tags=("infra",))])
    store.search("how is the staging server called?")

A `Writer` adds and forgets: rows, how often each term comes, and vectors change in one transaction. To search, the server finds candidates
by words and by meaning (`postgres_search`); they and their neighbours are then ranked exactly, as in every other store. Without an embedder
the store works by words alone and needs no pgvector.
"""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

from holdfast.durable import strict_json
from holdfast.durable.postgres import Postgres, Row, Transaction, lock_key, scripts
from holdfast.errors import Damaged, InputError, StorageError
from holdfast.knowledge.base import BaseStore, StoreSettings, analyse, form_of_analysis, hits_of, no_embedder, of_another_embedder, texts_of
from holdfast.knowledge.patience import Patience
from holdfast.knowledge.postgres_search import CandidateSearch, Vectors, conditions, prepare
from holdfast.knowledge.records import Hit, Record, from_json, merged, to_json
from holdfast.knowledge.store import AddReport, Filter, Progress, Stats, holds
from holdfast.search.embedding import PROBE, Embedder, embedded, load_embedder
from holdfast.search.questions import MONTH_NAMES, analysed, bare_name
from holdfast.text.needle import Needle
from holdfast.text.words import terms

if TYPE_CHECKING:
    from holdfast.search.segments import Compact, Embedded, Meaning


_LAGGING = 64  # records without vectors that one `add` makes up for


class Writer:
    """Changes one collection. Writers take turns at its lock; embedding is done before."""

    def __init__(self, database: Postgres, collection: int, vectors: Vectors | None, lock: int, patience: Patience) -> None:
        self._database = database
        self._collection = collection
        self._vectors = vectors
        self._lock = lock
        self._patience = patience
        self._form = form_of_analysis()

    def add(self, batch: Sequence[Record]) -> AddReport:
        """Keep the records of a batch."""
        wanted: dict[str, Record] = {}
        for record in batch:
            wanted[record.id] = merged(wanted[record.id], record) if record.id in wanted else record
        changed = self._changed(wanted, self._there(self._database.rows, wanted))
        lagging = self._lagging()
        embedded = self._embedded([*changed.values(), *(record for _, record in lagging)])
        made, computed = (embedded.meanings, embedded.pieces) if embedded is not None else ({}, 0)
        updated = added = 0
        if changed or lagging:
            with self._database.transaction(self._lock) as step:
                there = self._there(step.rows, wanted)
                changed = self._changed(wanted, there)
                updated = sum(1 for id in changed if id in there)
                added = len(changed) - updated
                self._write(step, changed, there, made)
                for number, record in lagging:
                    self._put_vectors(step, number, record, made)
        if embedded is not None:
            self._note(embedded)
        return AddReport(added, updated, len(batch) - len(changed), computed, tuple(record.id for record in batch))

    def forget(self, ids: Sequence[str]) -> list[str]:
        """Remove these records and all that was made from them; says which there were."""
        if not ids:
            return []
        with self._database.transaction(self._lock) as step:
            query = f"DELETE FROM knowledge_records WHERE collection = %s AND id = ANY(%s) RETURNING id, {_COUNTED}"  # noqa: S608 - ours
            gone = step.rows(query, [self._collection, list(ids)])
            self._count(step, [], [_Counted(*row[1:]) for row in gone])
        return [row[0] for row in gone]

    def analyse_again(self) -> None:
        """Analyse and count what was written in another way, by an older version for example."""
        query = "SELECT id FROM knowledge_records WHERE collection = %s AND analysis <> %s LIMIT %s"
        while ids := [id for (id,) in self._database.rows(query, [self._collection, self._form, _LAGGING])]:
            with self._database.transaction(self._lock) as step:
                there = self._there(step.rows, ids)
                self._write(step, {id: old.record for id, old in there.items()}, there, {})

    def embed_more(self) -> bool:
        """Embed some of what has no vectors yet; says whether there may be more that can get some now."""
        if not self._lagging():
            return False
        return self.add([]).embedded > 0 or not self._patience.trouble

    def _embedded(self, records: Sequence[Record]) -> Embedded | None:
        """What came of embedding these; None where nothing was asked for."""
        return self._vectors.embed(records) if self._vectors is not None and records and self._patience.asks else None

    def _note(self, made: Embedded) -> None:
        """What came of embedding, for the next time and for who watches."""
        waiting = self._vectors.waiting() if self._vectors is not None and (made.fault is not None or self._patience.trouble) else 0
        if made.fault is not None:
            self._patience.failed(made.fault, waiting)
        elif made.pieces and self._patience.trouble:
            self._patience.worked(waiting=waiting > 0)

    def _lagging(self) -> list[tuple[int, Record]]:
        rows = self._vectors.missing(_LAGGING) if self._vectors is not None and self._patience.asks_again else []
        return [(number, read_record(text)) for number, text in rows]

    def _there(self, ask: Callable[[str, Sequence[Any]], list[Row]], wanted: Iterable[str]) -> dict[str, _Old]:
        query = f"SELECT id, number, record::text, {_COUNTED} FROM knowledge_records WHERE collection = %s AND id = ANY(%s)"  # noqa: S608 - ours
        rows = ask(query, [self._collection, list(wanted)])
        return {id: _Old(number, read_record(text), _Counted(*counted)) for id, number, text, *counted in rows}

    def _changed(self, wanted: Mapping[str, Record], there: Mapping[str, _Old]) -> dict[str, Record]:
        found = {id: merged(there[id].record, record) if id in there else record for id, record in wanted.items()}
        return {id: record for id, record in found.items() if id not in there or record != there[id].record}

    def _write(self, step: Transaction, changed: Mapping[str, Record], there: Mapping[str, _Old], made: Mapping[bytes, Meaning]) -> None:
        news: list[_Counted] = []
        for id, record in changed.items():
            counts, language = analyse(record)
            new = _Counted({term: times for term, times in counts.items() if term}, language, record.role, self._form)
            news.append(new)
            row = [_encoded(to_json(record)), record.session, record.position, record.time, record.kind, list(record.tags)]
            row += [language, _encoded(new.counts), list(dict.fromkeys((*new.counts, *_date_terms(record)))), self._form, record.role]
            row += [bare_name(record.speaker) if record.speaker else None, sum(counts.values())]
            if id in there:
                number = there[id].number
                step.execute(_UPDATE, [*row, number])
            else:
                made_row = step.one(_INSERT, [*row, self._collection, id])
                number = int(made_row[0]) if made_row else 0
            if id not in there or texts_of(there[id].record) != texts_of(record):
                self._put_vectors(step, number, record, made)
        self._count(step, news, [there[id].counted for id in changed if id in there])

    def _put_vectors(self, step: Transaction, number: int, record: Record, made: Mapping[bytes, Meaning]) -> None:
        if self._vectors is not None:
            self._vectors.put(step, number, record, made)

    def _count(self, step: Transaction, news: Sequence[_Counted], olds: Sequence[_Counted]) -> None:
        """Bring the counters of the collection in line, and leave a mark by which the change can be told."""
        terms, spoken, languages = Counter[str](), Counter[str](), Counter[str]()
        totals = Counter[str]()
        for sign, counted in (*((1, one) for one in news), *((-1, one) for one in olds if one.analysis)):
            said = counted.role != "assistant"
            for term in counted.counts:
                terms[term] += sign
                spoken[term] += sign * said
            languages[counted.language] += sign
            totals.update({"records": sign, "spoken": sign * said, "size" if said else "answer_size": sign * counted.size})
        touched = [term for term in terms if terms[term] or spoken[term]]
        step.execute(_TERMS, [self._collection, touched, [terms[term] for term in touched], [spoken[term] for term in touched]])
        step.execute(_UNUSED_TERMS, [self._collection, touched])
        step.execute(_LANGUAGES, [self._collection, list(languages), list(languages.values())])
        step.execute(_UNUSED_LANGUAGES, [self._collection, list(languages)])
        token = secrets.token_hex(8)
        step.execute(_TOTALS, [*(totals[name] for name in ("records", "spoken", "size", "answer_size")), token, self._collection])
        step.proof = ("SELECT 1 FROM knowledge_collections WHERE number = %s AND token = %s", [self._collection, token])


@dataclass(frozen=True, slots=True)
class _Counted:
    """What of a record is in the counters of its collection. Nothing is where `analysis` is empty."""

    counts: Mapping[str, int]
    language: str
    role: str | None
    analysis: str
    stored: int | None = None

    @property
    def size(self) -> int:
        return sum(self.counts.values()) if self.stored is None else self.stored


@dataclass(frozen=True, slots=True)
class _Old:
    """A record as it is in the database."""

    number: int
    record: Record
    counted: _Counted


_COUNTED = "counts, language, role, analysis, size"
_TERMS = """
INSERT INTO knowledge_terms (collection, term, records, spoken)
SELECT %s, t.name, t.more, t.spoken FROM unnest(%s::text[], %s::bigint[], %s::bigint[]) t (name, more, spoken)
ON CONFLICT (collection, term) DO UPDATE
SET records = knowledge_terms.records + excluded.records, spoken = knowledge_terms.spoken + excluded.spoken
"""
_UNUSED_TERMS = "DELETE FROM knowledge_terms WHERE collection = %s AND term = ANY(%s) AND records <= 0"
_LANGUAGES = """
INSERT INTO knowledge_languages (collection, language, records)
SELECT %s, t.name, t.more FROM unnest(%s::text[], %s::bigint[]) t (name, more)
ON CONFLICT (collection, language) DO UPDATE SET records = knowledge_languages.records + excluded.records
"""
_UNUSED_LANGUAGES = "DELETE FROM knowledge_languages WHERE collection = %s AND language = ANY(%s) AND records <= 0"
_TOTALS = """
UPDATE knowledge_collections
SET records = records + %s, spoken = spoken + %s, size = size + %s, answer_size = answer_size + %s, token = %s WHERE number = %s
"""
_INSERT = """
INSERT INTO knowledge_records
    (record, session, position, time, kind, tags, language, counts, terms, analysis, role, speaker, size, collection, id)
VALUES (%s::json, %s, %s, %s, %s, %s, %s, %s::jsonb, array_to_tsvector(%s::text[]), %s, %s, %s, %s, %s, %s) RETURNING number
"""
_UPDATE = """
UPDATE knowledge_records SET (record, session, position, time, kind, tags, language, counts, terms, analysis, role, speaker, size)
    = ROW (%s::json, %s::text, %s::bigint, %s::timestamptz, %s::text, %s::text[], %s::text, %s::jsonb, array_to_tsvector(%s::text[]),
           %s::text, %s::text, %s::text, %s::integer)
WHERE number = %s
"""


def read_record(text: str) -> Record:
    """The record in a row. Damaged if somebody made it something else."""
    try:
        return from_json(strict_json.decode(text.encode()))
    except InputError as error:
        raise Damaged(f"a record in the database cannot be read: {error.message}", hint="Look at the table knowledge_records.") from error


def _date_terms(record: Record) -> list[str]:
    """The words of a record's day, by which it is looked for as well."""
    time = record.time
    return [] if time is None else analysed(terms(f"{time.day} {MONTH_NAMES[time.month - 1]} {time.year}", "en"))


def _encoded(value: Any) -> str:
    return strict_json.encode(value, readable=False).decode()


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
        schema: str = "holdfast",
        base: str | PathLike[str] | None = None,
        **settings: Unpack[StoreSettings],
    ) -> None:
        if not collection.strip() or "\0" in collection or len(collection) > _LONGEST_NAME:
            raise InputError(f"{collection[:40]!r} is not a name for a collection.", hint=f"Use 1 to {_LONGEST_NAME} characters.")
        super().__init__(**settings)
        self.collection = collection
        self._given = database
        self._wanted = embedder
        self._schema = schema
        self._base = base
        self._opening = threading.RLock()
        self._opened: tuple[Postgres, int, Vectors | None] | None = None
        self._unreached = False
        """Whether the embedder could not even be asked how large its vectors are."""
        self._behind = False
        """Whether there may be records without vectors: added without an embedder, or by an older version."""
        self._stale: Vectors | None = None
        """The vectors that have to be asked for, because those that are there were made by another embedder."""

    # Writing

    def _add(self, batch: list[Record]) -> AddReport:
        report = self._writer().add(batch)
        self._behind = self._behind or bool(self._patience.trouble)
        return report

    def forget(self, ids: Iterable[str]) -> int:
        return len(self._writer().forget([id for id in dict.fromkeys(ids) if "\0" not in id]))

    def forget_text(self, text: str) -> list[str]:
        needle = Needle(text)
        return self._writer().forget([record.id for record in self.records() if holds(needle, record)])

    def reembed(self, *, progress: Progress | None = None) -> int:
        database, number, vectors = self._open()
        vectors = self._stale or vectors
        if vectors is None:
            raise no_embedder()
        embedded(vectors.compact.embedder, [PROBE])  # what there is stays as it is where nothing would take its place
        self._patience.worked()
        vectors.drop()
        with self._opening:
            self._stale, self._opened = None, (database, number, vectors)
        done = 0
        while self._writer().embed_more():
            done += self.batch
            if progress is not None:
                progress(done, None)
        self._behind = bool(self._patience.trouble)
        if self._behind:
            raise StorageError(
                self._patience.trouble, path=self.collection, operation="reembed", hint="What has no vectors is found by words."
            )
        return vectors.count()

    # Reading

    def _find(self, question: str, chosen: Filter, now: datetime, limit: int) -> list[Hit]:
        database, number, vectors = self._open()
        if self._behind and self._patience.asks_again:
            self._behind = self._writer().embed_more() or bool(self._patience.trouble)
        asked = self._question_of(question, now, None if vectors is None else vectors.compact, self._waiting_records)
        found = CandidateSearch(database, number, vectors, chosen).ranked(asked, limit)
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
        problem = self._unused_vectors() or self._patience.problem(self._waiting_records())
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
            problems=(*([problem] if problem else ()), *self._reranker_problems),
        )

    def _unused_vectors(self) -> str:
        return "" if self._stale is None else of_another_embedder(self.collection)

    def _waiting_records(self) -> int:
        """How many records have no vectors yet."""
        with self._opening:
            vectors = self._opened[2] if self._opened is not None else None
        return vectors.waiting() if vectors is not None else 0

    def close(self) -> None:
        with self._opening:
            self._closed = True
            opened, self._opened = self._opened, None
        if opened is not None and opened[0] is not self._given:
            opened[0].close()

    def _writer(self) -> Writer:
        database, number, vectors = self._open()
        return Writer(database, number, vectors, lock_key(self._schema, "knowledge", self.collection), self._patience)

    def _open(self) -> tuple[Postgres, int, Vectors | None]:
        """The database with its tables, the number of the collection, and its vectors, where there is an embedder."""
        with self._opening:
            self._check_open(self.collection)
            if self._opened is None:
                given = self._given
                database = Postgres(given, schema=self._schema, base=self._base, clock=self._clock) if isinstance(given, str) else given
                try:
                    self._opened = self._prepared(database)
                except BaseException:
                    if database is not given:
                        database.close()
                    raise
            elif self._unreached and self._patience.asks:
                self._opened = self._prepared(self._opened[0])
            return self._opened

    def _prepared(self, database: Postgres) -> tuple[Postgres, int, Vectors | None]:
        wanted = self._wanted
        embedder = load_embedder(wanted) if isinstance(wanted, str) else wanted
        compact, fault = None, None
        try:
            compact = None if embedder is None else _compact(embedder)
        except StorageError as error:
            fault = error
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
        if vectors is not None and getattr(embedder, "on_request", False) and vectors.others():
            self._stale, vectors = vectors, None
        Writer(database, number, vectors, lock_key(self._schema, "knowledge", self.collection), self._patience).analyse_again()
        self._behind = vectors is not None
        self._unreached = fault is not None
        if fault is not None:
            self._patience.failed(fault, 0)
        return database, number, vectors


def _compact(embedder: Embedder) -> Compact:
    from holdfast.search.segments import Compact  # numpy is there where an embedder is

    return Compact(embedder)


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC)
