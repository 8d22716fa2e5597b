"""The vectors of a collection in PostgreSQL: how they are kept, and which records are nearest to a question by the index of pgvector.

A text is embedded once: its hash finds the vectors that any collection of the database has for it already. Nearness by the index only
finds candidates; they are ranked by the same bytes that every other store keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.durable.postgres import Postgres, Row, Transaction, lock_key, scripts
from holdfast.durable.postgres_connection import driver
from holdfast.errors import InputError, StorageError, StoreUnavailable
from holdfast.knowledge.indexing import texts_of
from holdfast.knowledge.records import Record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdfast.search.vectors import Compact, Meaning

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
        with database.transaction(lock_key(database.schema, "migrations")) as step:
            step.execute(
                f"CREATE INDEX IF NOT EXISTS {index} ON knowledge_pieces "
                f"USING hnsw ((vector::halfvec({int(dimension)})) halfvec_cosine_ops) WHERE dimension = {int(dimension)}"
            )
            step.proof = ("SELECT 1 FROM pg_indexes WHERE schemaname = %s AND indexname = %s", [database.schema, index])


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

    def embed(self, records: Iterable[Record]) -> tuple[dict[bytes, Meaning], int]:
        """The meanings of these records that are not kept yet, by their hash, and how many texts had to be embedded."""
        wanted = {self.compact.hash_of(pieces): pieces for record in records if (pieces := texts_of(record))}
        known = {bytes(hash) for (hash,) in self._database.rows(_KNOWN, [list(wanted)])}
        missing = {hash: pieces for hash, pieces in wanted.items() if hash not in known}
        return self.compact.embed(missing), sum(map(len, missing.values()))

    def put(self, step: Transaction, number: int, record: Record, made: Mapping[bytes, Meaning]) -> None:
        """Keep the vectors of a record, in place of those it had. What was not made is copied from where it is."""
        from holdfast.search.vectors import Meaning, read_vectors  # numpy is there where vectors are

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
        else:  # somebody forgot the other one meanwhile
            meaning = self.compact.embed({hash: pieces})[hash]
        values = [number, self.compact.name, hash, len(pieces), meaning.vectors, meaning.tokens]
        step.execute(
            "INSERT INTO knowledge_meanings (record, embedder, hash, pieces, vectors, tokens) VALUES (%s, %s, %s, %s, %s, %s)", values
        )
        _, _, vectors = read_vectors(meaning.vectors, self._size)
        step.many(
            _INSERT_PIECE,
            [(number, place, self._collection, self.compact.name, self._size, _written(one)) for place, one in enumerate(vectors.tolist())],
        )

    def missing(self, limit: int) -> list[Row]:
        """Records that have no vectors of this embedder yet, for example because they were added without one."""
        return self._database.rows(
            """
            SELECT number, record::text FROM knowledge_records r WHERE collection = %s AND role IS DISTINCT FROM 'assistant'
            AND NOT EXISTS (SELECT 1 FROM knowledge_meanings m WHERE m.record = r.number AND m.embedder = %s) LIMIT %s
            """,
            [self._collection, self.compact.name, limit],
        )

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


_INSERT_MEANING = "INSERT INTO knowledge_meanings (record, embedder, hash, pieces, vectors, tokens) VALUES (%s, %s, %s, %s, %s, %s)"
_INSERT_PIECE = """
INSERT INTO knowledge_pieces (record, place, collection, embedder, dimension, vector) VALUES (%s, %s, %s, %s, %s, %s::halfvec)
"""
_KNOWN = "SELECT DISTINCT hash FROM knowledge_meanings WHERE hash = ANY(%s)"


def _written(vector: Sequence[float]) -> str:
    return "[" + ",".join(f"{value:.5g}" for value in vector) + "]"
