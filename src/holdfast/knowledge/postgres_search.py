"""Candidates of a search in PostgreSQL: by words and by vectors (pgvector), each from an index, with their neighbours.

The rarest words of a question and the nearest vectors decide which records are looked at. How good they are is said by `search.ranking`,
as for every other store: it gets the candidates with what they need, and the statistics of all records from the counters of the collection.
A text is embedded once: its hash finds the vectors that any collection of the database has for it already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from holdfast.durable.postgres import Postgres, Row, Transaction, lock_key, scripts
from holdfast.durable.postgres_connection import driver
from holdfast.errors import InputError, StorageError, StoreUnavailable
from holdfast.knowledge.base import ROLES, numpy_installed, texts_of
from holdfast.knowledge.records import Record
from holdfast.knowledge.store import Filter
from holdfast.search.pieces import MARKS
from holdfast.search.plain_ranking import WINDOW, Entry, PlainIndex
from holdfast.search.questions import Asked, Ranked, Sought, average_size, common_languages, date_part, weigh

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdfast.search.segments import Compact, Embedded, Meaning


_LARGEST = 4000  # numbers in a vector that an index of pgvector takes as halfvec


def prepare(database: Postgres, dimension: int) -> None:
    """The tables for vectors of this size, and their index. StoreUnavailable, saying what to do, where pgvector is not there."""
    if not 1 <= dimension <= _LARGEST:
        raise InputError(f"the embedder's vectors have {dimension} numbers, and PostgreSQL indexes up to {_LARGEST}.")
    index = f"knowledge_pieces_near_{int(dimension)}"
    known = database.one("SELECT 1 FROM pg_indexes WHERE schemaname = %s AND indexname = %s", [database.schema, index])
    place = _extension(database) if known is None else None
    if known is None and place is None:
        _make_extension(database)
    _look_in_its_schema(database)
    database.migrate("knowledge vectors", scripts("holdfast.knowledge", prefix="vectors"))
    if known is None:
        _make_pieces_again(database)
        with database.transaction(lock_key(database.schema, "migrations")) as step:
            step.execute(
                f"CREATE INDEX IF NOT EXISTS {index} ON knowledge_pieces "
                f"USING hnsw ((vector::halfvec({int(dimension)})) halfvec_cosine_ops) WHERE dimension = {int(dimension)}"
            )
            step.proof = ("SELECT 1 FROM pg_indexes WHERE schemaname = %s AND indexname = %s", [database.schema, index])


def _make_pieces_again(database: Postgres) -> None:
    """Make the table of pieces from the meanings of the records, where it is missing; nothing is embedded for it.

    It is the one table that needs the extension, which is in no dump of our schema: restored into a database without it, it is left out.
    """
    if database.one(_HAS_PIECES) == (True,):
        return
    with database.transaction(lock_key(database.schema, "migrations")) as step:
        if step.one(_HAS_PIECES) == (True,):
            return  # another process was quicker
        (script,) = scripts("holdfast.knowledge", prefix="pieces")
        step.execute(script)
        after: Row = (0, "")
        while rows := step.rows(_MEANINGS, [*after, _PAGE]):
            after = rows[-1][:2]
            for record, embedder, collection, pieces, kept in rows:
                _put_pieces(step, record, collection, embedder, bytes(kept), len(kept) // pieces - _BESIDE)


def _put_pieces(step: Transaction, record: int, collection: int, embedder: str, kept: bytes, size: int) -> None:
    """The vectors of a record once more, in the form that the index takes."""
    from holdfast.search.segments import read_vectors  # numpy is there where vectors are

    _, _, vectors = read_vectors(kept, size)
    step.many(_INSERT_PIECE, [(record, place, collection, embedder, size, _written(one)) for place, one in enumerate(vectors.tolist())])


def _extension(database: Postgres) -> str | None:
    row = database.one("SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'")
    return None if row is None else str(row[0])


def _look_in_its_schema(database: Postgres) -> None:
    place = _extension(database)
    if place is not None and place not in (database.schema, "public"):
        database.look_in(place)


def _make_extension(database: Postgres) -> None:
    try:
        with database.transaction(lock_key(database.schema, "migrations")) as step:
            step.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
            step.proof = ("SELECT 1 FROM pg_extension WHERE extname = %s", ["vector"])
    except (driver().Error, StorageError) as error:
        raise StoreUnavailable(
            f"the database {database.shown} has no pgvector, and it could not be switched on ({type(error).__name__}).",
            path=database.shown,
            operation="open",
            hint="Install pgvector on the server and run `CREATE EXTENSION vector` as an administrator, or set `embedder: none`.",
        ) from error


class Vectors:
    """The vectors of one collection, under one embedder."""

    def __init__(self, database: Postgres, collection: int, compact: Compact) -> None:
        self._database = database
        self._collection = collection
        self.compact = compact
        self._size = int(compact.dimension)

    # Writing

    def embed(self, records: Iterable[Record]) -> Embedded:
        """The meanings of these records that are not kept yet, by their hash, as far as the embedder answers."""
        wanted = {self.compact.hash_of(pieces): pieces for record in records if (pieces := texts_of(record))}
        known = {bytes(hash) for (hash,) in self._database.rows(_KNOWN, [list(wanted)])}
        missing = {hash: pieces for hash, pieces in wanted.items() if hash not in known}
        return self.compact.embed_most(missing)

    def put(self, step: Transaction, number: int, record: Record, made: Mapping[bytes, Meaning]) -> None:
        """Keep the vectors of a record, in place of those it had. What was not made is copied from where it is, or is `missing`."""
        from holdfast.search.segments import Meaning  # numpy is there where vectors are

        for table in ("knowledge_meanings", "knowledge_pieces"):
            step.execute(f"DELETE FROM {table} WHERE record = %s", [number])  # noqa: S608 - our own names
        pieces = texts_of(record)
        if not pieces:
            return
        hash = self.compact.hash_of(pieces)
        row = None if hash in made else step.one("SELECT vectors, tokens FROM knowledge_meanings WHERE hash = %s LIMIT 1", [hash])
        if hash in made:
            meaning = made[hash]
        elif row is not None:
            meaning = Meaning(bytes(row[0]), bytes(row[1]))
        else:
            return
        values = [number, self.compact.name, hash, len(pieces), meaning.vectors, meaning.tokens]
        step.execute(
            "INSERT INTO knowledge_meanings (record, embedder, hash, pieces, vectors, tokens) VALUES (%s, %s, %s, %s, %s, %s)", values
        )
        _put_pieces(step, number, self._collection, self.compact.name, meaning.vectors, self._size)

    def missing(self, limit: int) -> list[Row]:
        """Records that have no vectors of this embedder yet, for example because they were added without one."""
        return self._database.rows(f"SELECT number, record::text {_MISSING} LIMIT %s", [self._collection, self.compact.name, limit])

    def waiting(self) -> int:
        """How many these are."""
        row = self._database.one(f"SELECT count(*) {_MISSING}", [self._collection, self.compact.name])
        return int(row[0]) if row else 0

    def others(self) -> bool:
        """Whether records of the collection have vectors of another embedder only."""
        joined = "knowledge_meanings m JOIN knowledge_records r ON r.number = m.record"
        query = f"SELECT m.embedder = %s FROM {joined} WHERE r.collection = %s ORDER BY 1 DESC LIMIT 1"  # noqa: S608 - our own words
        row = self._database.one(query, [self.compact.name, self._collection])
        return row is not None and not row[0]

    def drop(self) -> None:
        """Remove all vectors of the collection, of whatever embedder."""
        of_ours = "record IN (SELECT number FROM knowledge_records WHERE collection = %s)"
        with self._database.transaction() as step:
            for table in ("knowledge_meanings", "knowledge_pieces"):
                step.execute(f"DELETE FROM {table} WHERE {of_ours}", [self._collection])  # noqa: S608 - our own names

    # Reading

    def nearest(self, step: Transaction, question: NDArray[np.float32], where: str, values: Sequence[Any], limit: int) -> list[int]:
        """The numbers of the records whose pieces are nearest to the question, by the index. `where` is about `r`, their record."""
        step.execute("SELECT set_config('hnsw.ef_search', %s, true), set_config('hnsw.iterative_scan', 'strict_order', true)", [str(limit)])
        kind = f"halfvec({self._size})"
        rows = step.rows(
            f"""
            SELECT p.record FROM knowledge_pieces p JOIN knowledge_records r ON r.number = p.record
            WHERE p.dimension = {self._size} AND p.collection = %s AND p.embedder = %s AND {where}
            ORDER BY p.vector::{kind} <=> %s::{kind} LIMIT %s
            """,  # noqa: S608 - the size is a number, and `where` is made of our own words
            [self._collection, self.compact.name, *values, _written(question.tolist()), limit],
        )
        return list(dict.fromkeys(number for (number,) in rows))

    def vectors(self, step: Transaction, numbers: Sequence[int]) -> dict[int, bytes]:
        """The vectors of the pieces of these records, as they are kept."""
        return self._kept(step, "vectors", numbers)

    def tokens(self, step: Transaction, numbers: Sequence[int]) -> dict[int, bytes]:
        """The vectors of the words of these records, as they are kept."""
        return self._kept(step, "tokens", numbers)

    def _kept(self, step: Transaction, column: str, numbers: Sequence[int]) -> dict[int, bytes]:
        query = f"SELECT record, {column} FROM knowledge_meanings WHERE record = ANY(%s) AND embedder = %s"  # noqa: S608 - our own names
        return {number: bytes(kept) for number, kept in step.rows(query, [list(numbers), self.compact.name])}

    def count(self) -> int:
        """How many vectors of pieces there are."""
        row = self._database.one("SELECT count(*) FROM knowledge_pieces WHERE collection = %s", [self._collection])
        return int(row[0]) if row else 0

    def size(self) -> int:
        """How many bytes the vectors of all collections take."""
        row = self._database.one("SELECT pg_total_relation_size('knowledge_pieces') + pg_total_relation_size('knowledge_meanings')")
        return int(row[0]) if row else 0


_INSERT_PIECE = """
INSERT INTO knowledge_pieces (record, place, collection, embedder, dimension, vector) VALUES (%s, %s, %s, %s, %s, %s::halfvec)
"""
_MISSING = """
FROM knowledge_records r WHERE collection = %s AND role IS DISTINCT FROM 'assistant'
AND NOT EXISTS (SELECT 1 FROM knowledge_meanings m WHERE m.record = r.number AND m.embedder = %s)
"""
_HAS_PIECES = "SELECT to_regclass('knowledge_pieces') IS NOT NULL"
_MEANINGS = """
SELECT m.record, m.embedder, r.collection, m.pieces, m.vectors FROM knowledge_meanings m JOIN knowledge_records r ON r.number = m.record
WHERE (m.record, m.embedder) > (%s, %s) AND m.pieces > 0 ORDER BY m.record, m.embedder LIMIT %s
"""
_PAGE = 500
_BESIDE = 6  # bytes that are kept of each piece beside a byte for each number of its vector: see `segments.read_vectors`
_KNOWN = "SELECT DISTINCT hash FROM knowledge_meanings WHERE hash = ANY(%s)"


def _written(vector: Sequence[float]) -> str:
    return "[" + ",".join(f"{value:.5g}" for value in vector) + "]"


_ENOUGH = 4000  # records that the words which are looked up may have together
_NEAR = len(WINDOW)  # places around a candidate that may be answers too: so far it lends them its words
_SEEN = 2 * _NEAR  # places around it that are fetched: so far these borrow from others
_VOCABULARY = 3000
_FEWEST, _MOST = 100, 400  # candidates that each way of looking gives
_ON_THE_DAY = 50
_SHARES = {"day": 30, "month": 12, "year": 1}  # one record in so many has a given day, month or year in its date
_SPOKEN = "role IS DISTINCT FROM 'assistant'"


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A record that was fetched. `away` says how many places it is from one that was found: 0 is found itself."""

    entry: Entry
    away: int
    fits: bool


class CollectionStatistics:
    """What the counters of a collection say of its records; under a filter what is counted of those that fit (`questions.Statistics`)."""

    def __init__(self, step: Transaction, collection: int, chosen: Filter) -> None:
        self._step = step
        self._collection = collection
        self._where, self._values = conditions(collection, chosen)
        self._empty = chosen.empty

    @cached_property
    def _totals(self) -> tuple[int, int, int, int]:
        """Records, those that are no answers, the terms of these, and the terms of answers."""
        query = "SELECT records, spoken, size, answer_size FROM knowledge_collections WHERE number = %s"
        counted = f"""
            SELECT count(*), count(*) FILTER (WHERE {_SPOKEN}), coalesce(sum(size) FILTER (WHERE {_SPOKEN}), 0),
                coalesce(sum(size) FILTER (WHERE role = 'assistant'), 0) FROM knowledge_records r WHERE {self._where}
            """  # noqa: S608 - our own words
        row = self._step.one(query, [self._collection]) if self._empty else self._step.one(counted, self._values)
        records, spoken, size, answer_size = row or (0, 0, 0, 0)
        return int(records), int(spoken), int(size), int(answer_size)

    @property
    def records(self) -> int:
        return self._totals[0]

    @property
    def spoken(self) -> int:
        return self._totals[1]

    @property
    def average(self) -> float:
        records, spoken, size, answer_size = self._totals
        return average_size(size, spoken, answer_size, records - spoken)

    @cached_property
    def languages(self) -> Sequence[str]:
        query = "SELECT language, records FROM knowledge_languages WHERE collection = %s"
        return common_languages({code: int(records) for code, records in self._step.rows(query, [self._collection])})

    def held(self, wanted: Collection[str]) -> Mapping[str, tuple[int, int]]:
        query = "SELECT term, records, spoken FROM knowledge_terms WHERE collection = %s AND term = ANY(%s)"
        found = {term: (int(records), int(spoken)) for term, records, spoken in self._step.rows(query, [self._collection, list(wanted)])}
        if self._empty or not found:
            return found
        counted = f"""
            SELECT q.term, count(*), count(*) FILTER (WHERE {_SPOKEN}) FROM unnest(%s::text[]) q (term)
            JOIN knowledge_records r ON r.counts ? q.term WHERE {self._where} GROUP BY 1
            """  # noqa: S608 - our own words
        inside = {term: (int(records), int(spoken)) for term, records, spoken in self._step.rows(counted, [list(found), *self._values])}
        return {term: inside.get(term, (0, 0)) for term in found}

    def beginning_with(self, head: str) -> list[str]:
        query = "SELECT term FROM knowledge_terms WHERE collection = %s AND term >= %s AND term < %s || chr(1114111) LIMIT %s"
        return [term for (term,) in self._step.rows(query, [self._collection, head, head, _VOCABULARY])]

    def speakers(self, names: Collection[str]) -> Collection[str]:
        query = f"SELECT DISTINCT speaker FROM knowledge_records r WHERE {self._where} AND speaker = ANY(%s) AND {_SPOKEN}"  # noqa: S608 - ours
        return [name for (name,) in self._step.rows(query, [*self._values, list(names)])]


class CandidateSearch:
    """Looks for candidates in one collection, under one filter, and has them ranked."""

    def __init__(self, database: Postgres, collection: int, vectors: Vectors | None, chosen: Filter) -> None:
        self._database = database
        self._collection = collection
        self._vectors = vectors
        self._filter = chosen
        self._where, self._values = conditions(collection, chosen)

    def ranked(self, asked: Asked, limit: int) -> list[Ranked]:
        """The best answers, best first."""
        with self._database.transaction() as step:
            known = CollectionStatistics(step, self._collection, self._filter)
            sought = weigh(asked.text, known)
            if not sought.most and not asked.periods and asked.vector is None:
                return []
            seeds = self._seeds(step, asked, sought, min(max(4 * limit, _FEWEST), _MOST))
            found = self._around(step, seeds, [*sought.rarity, *MARKS])
            allowed = {one.entry.number for one in found if one.fits and one.away <= _NEAR}
            entries = [one.entry for one in found]
            if not numpy_installed():
                return PlainIndex(entries).rank(asked, known=known, allowed=allowed, limit=limit)
            return self._by_vectors(step, asked, known, entries, allowed, limit)

    def _by_vectors(
        self, step: Transaction, asked: Asked, known: CollectionStatistics, entries: Sequence[Entry], allowed: set[int], limit: int
    ) -> list[Ranked]:
        from holdfast.search.corpus import Corpus
        from holdfast.search.ranking import rank
        from holdfast.search.segments import build, with_vectors

        vectors = self._vectors
        if vectors is None:
            corpus = Corpus.of([build(entries, 0)] if entries else [])
            return rank(asked, corpus, known=known, allowed=corpus.rows_with(allowed), limit=limit)
        size, words = vectors.compact.dimension, vectors.compact.token_dimension
        kept = vectors.vectors(step, [entry.number for entry in entries])
        corpus = Corpus.of([build([with_vectors(entry, kept.get(entry.number), size) for entry in entries], size)] if entries else [])
        return rank(
            asked,
            corpus,
            known=known,
            allowed=corpus.rows_with(allowed),
            tokens=lambda rows: corpus.tokens_of(rows, corpus.numbers, words, lambda numbers: vectors.tokens(step, numbers)),
            limit=limit,
        )

    def _seeds(self, step: Transaction, asked: Asked, sought: Sought, limit: int) -> list[int]:
        """The numbers of the records that were found by themselves; those of the days that the question names once more."""
        scopes = [(self._where, self._values)]
        scopes += [_within(self._where, self._values, *period) for period in asked.periods]
        found: dict[int, None] = {}
        if self._filter != (wider := Filter(session=self._filter.session)):  # what does not fit may stand beside what does
            found.update(dict.fromkeys(self._by_words(step, sought, *conditions(self._collection, wider), limit)))
        for place, (where, values) in enumerate(scopes):
            found.update(dict.fromkeys(self._by_words(step, sought, where, values, limit)))
            if asked.vector is not None and self._vectors is not None:
                found.update(dict.fromkeys(self._vectors.nearest(step, asked.vector, where, values, limit)))
            if place:  # a day that was named is reason enough
                query = f"SELECT r.number FROM knowledge_records r WHERE {where} ORDER BY r.time DESC, r.number LIMIT %s"  # noqa: S608 - ours
                found.update(dict.fromkeys(number for (number,) in step.rows(query, [*values, _ON_THE_DAY])))
        return list(found)

    def _by_words(self, step: Transaction, sought: Sought, where: str, values: Sequence[Any], limit: int) -> list[int]:
        looked_up: list[str] = []
        together = 0
        for term in sorted(sought.held, key=lambda term: (self._expected(term, sought), term)):
            together += self._expected(term, sought)
            if together > _ENOUGH and (looked_up or not sought.held[term]):
                break
            looked_up.append(term)
        if not looked_up:
            return []
        rows = step.rows(
            f"""
            SELECT r.number FROM knowledge_records r WHERE {where} AND r.terms @@ %s::tsquery
            ORDER BY (SELECT sum(q.weight * (r.counts ->> q.term)::real / ((r.counts ->> q.term)::real + 1))
                      FROM unnest(%s::text[], %s::real[]) q (term, weight)) DESC NULLS LAST, r.number DESC
            LIMIT %s
            """,  # noqa: S608 - `where` is made of our own words
            [*values, " | ".join(_quoted(term) for term in looked_up), list(sought.rarity), list(sought.rarity.values()), limit],
        )
        return [number for (number,) in rows]

    def _expected(self, term: str, sought: Sought) -> int:
        """About how many records have a term in their text or in their date."""
        return sought.held[term] + sought.records // _SHARES.get(date_part(term)[0], sought.records + 1)

    def _around(self, step: Transaction, seeds: Sequence[int], terms: Sequence[str]) -> list[_Candidate]:
        """These records, and those at the places around them in their sessions, with how often each of the terms comes."""
        rows = step.rows(
            f"""
            WITH seeds AS (SELECT number, collection, session, position FROM knowledge_records WHERE number = ANY(%s)),
            near AS (
                SELECT number, 0 AS away FROM seeds
                UNION ALL SELECT n.number, n.away FROM seeds s CROSS JOIN LATERAL (
                    SELECT o.number, row_number() OVER (ORDER BY o.position) AS away FROM knowledge_records o
                    WHERE o.collection = s.collection AND o.session = s.session AND o.position > s.position
                    ORDER BY o.position LIMIT {_SEEN}) n
                UNION ALL SELECT n.number, n.away FROM seeds s CROSS JOIN LATERAL (
                    SELECT o.number, row_number() OVER (ORDER BY o.position DESC) AS away FROM knowledge_records o
                    WHERE o.collection = s.collection AND o.session = s.session AND o.position <= s.position AND o.number <> s.number
                    ORDER BY o.position DESC LIMIT {_SEEN}) n
            ), around AS (SELECT number, min(away) AS away FROM near GROUP BY number)
            SELECT r.number, a.away, r.session, r.position, r.role, r.time, r.speaker, r.size, {self._where},
                ARRAY(SELECT coalesce((r.counts ->> q.term)::int, 0)
                      FROM unnest(%s::text[]) WITH ORDINALITY q (term, place) ORDER BY q.place)
            FROM around a JOIN knowledge_records r ON r.number = a.number ORDER BY r.number
            """,  # noqa: S608 - our own words and numbers
            [list(seeds), *self._values, list(terms)],
        )
        found = []
        for number, away, session, position, role, time, speaker, size, fits, counts in rows:
            moment = None if time is None else round(time.timestamp() * 1000)
            held = {term: count for term, count in zip(terms, counts, strict=True) if count}
            entry = Entry(number, session, position, ROLES[role], moment, speaker, held, "en", size=size)
            found.append(_Candidate(entry, int(away), bool(fits)))
        return found


def conditions(collection: int, chosen: Filter) -> tuple[str, list[Any]]:
    """A filter as a condition on a record `r`."""
    parts, values = ["r.collection = %s"], [collection]
    more: list[Any] = []
    if chosen.tags:
        parts.append("r.tags @> %s")
        more.append(sorted(chosen.tags))
    if chosen.after is not None:
        parts.append("r.time >= %s")
        more.append(chosen.after)
    if chosen.before is not None:
        parts.append("r.time < %s")
        more.append(chosen.before)
    if chosen.session is not None:
        parts.append("(r.session = %s OR starts_with(r.session, %s))")
        more += [chosen.session, chosen.session.rstrip("/") + "/"]
    return " AND ".join(parts), [*values, *more]


def _within(where: str, values: Sequence[Any], first: int, last: int, fade: int) -> tuple[str, list[Any]]:
    """The condition for the days of a period and those over which nearness to it fades."""
    epoch = datetime.combine(date(1970, 1, 1), datetime.min.time(), UTC)
    start, end = epoch + timedelta(days=first - fade), epoch + timedelta(days=last + fade + 1)
    return f"{where} AND r.time >= %s AND r.time < %s", [*values, start, end]


def _quoted(term: str) -> str:
    """A term as a lexeme of a tsquery."""
    return "'" + term.replace("\\", "\\\\").replace("'", "''") + "'"
