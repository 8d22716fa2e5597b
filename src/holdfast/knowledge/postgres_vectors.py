"""The vectors of a collection in pgvector: which texts get one, how they are kept, and which pieces are nearest to a question.

A piece is embedded once: its hash finds the vectors that any collection of the database has for it already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from holdfast.durable.postgres import Postgres, Row, Transaction, lock_key, scripts
from holdfast.durable.postgres_connection import driver
from holdfast.errors import InputError, StorageError, StoreUnavailable
from holdfast.knowledge.records import Record
from holdfast.search.embedding import Embedder, Embedding
from holdfast.search.pieces import cut_for_meaning

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LARGEST = 4000  # numbers in a vector that an index of pgvector takes as halfvec
_SCALE = 127.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A piece as the ranking sees it: the vectors of its words."""

    tokens: NDArray[np.float32]
    words: tuple[str, ...]


def prepare(database: Postgres, dimension: int) -> None:
    """The tables for vectors of this size, and their index. StoreUnavailable, saying what to do, where pgvector is not there."""
    if not 1 <= dimension <= _LARGEST:
        raise InputError(f"the embedder's vectors have {dimension} numbers, and PostgreSQL indexes up to {_LARGEST}.")
    index = f"knowledge_pieces_{int(dimension)}"
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


class Pieces:
    """The pieces of one collection, under one embedder."""

    def __init__(self, database: Postgres, collection: int, embedder: Embedder) -> None:
        self._database = database
        self._collection = collection
        self.embedder = embedder
        self._size = int(embedder.dimension)

    # Writing

    def embed(self, records: Iterable[Record]) -> tuple[dict[bytes, Embedding], int]:
        """The embeddings of all pieces of these records, by their hash, and how many had to be computed."""
        wanted = {_hash(text): text for record in records for text in _texts(record)}
        missing = {hash: text for hash, text in wanted.items() if hash not in self._known(wanted)}
        made = self.embedder.embed(list(missing.values())) if missing else []
        return dict(zip(missing, made, strict=True)), len(missing)

    def put(self, step: Transaction, number: int, record: Record, made: Mapping[bytes, Embedding]) -> None:
        """Keep the pieces of a record, in place of those it had. What was not made is copied from where it is."""
        step.execute("DELETE FROM knowledge_pieces WHERE record = %s AND embedder = %s", [number, self.embedder.name])
        for place, text in enumerate(_texts(record)):
            hash = _hash(text)
            one = made.get(hash)
            if one is None and not self._copied(step, number, place, hash):
                (one,) = self.embedder.embed([text])  # somebody forgot the other one meanwhile
            if one is not None:
                vector, tokens = _written(one.vector), None if one.tokens is None else _small(one.tokens)
                step.execute(
                    "INSERT INTO knowledge_pieces VALUES (%s, %s, %s, %s, %s, %s, %s::halfvec, %s, %s)",
                    [number, place, self._collection, self.embedder.name, hash, self._size, vector, tokens, list(one.words)],
                )

    def _copied(self, step: Transaction, number: int, place: int, hash: bytes) -> bool:
        """Take the vectors of the same text from another record."""
        found = step.execute(
            """
            INSERT INTO knowledge_pieces SELECT %s, %s, %s, embedder, hash, dimension, vector, tokens, words FROM knowledge_pieces
            WHERE hash = %s AND embedder = %s LIMIT 1
            """,
            [number, place, self._collection, hash, self.embedder.name],
        )
        return bool(found.rowcount)

    def _known(self, hashes: Iterable[bytes]) -> set[bytes]:
        query = "SELECT DISTINCT hash FROM knowledge_pieces WHERE hash = ANY(%s) AND embedder = %s"
        return {bytes(hash) for (hash,) in self._database.rows(query, [list(hashes), self.embedder.name])}

    # Reading

    def nearest(self, step: Transaction, question: Embedding, where: str, values: Sequence[Any], limit: int) -> list[int]:
        """The numbers of the records whose pieces are nearest to the question, by the index. `where` is about `r`, their record."""
        step.execute("SELECT set_config('hnsw.ef_search', %s, true), set_config('hnsw.iterative_scan', 'strict_order', true)", [str(limit)])
        kind = f"halfvec({self._size})"
        rows = step.rows(
            f"""
            SELECT p.record FROM knowledge_pieces p JOIN knowledge_records r ON r.number = p.record
            WHERE p.dimension = {self._size} AND p.collection = %s AND p.embedder = %s AND {where}
            ORDER BY p.vector::{kind} <=> %s::{kind} LIMIT %s
            """,  # noqa: S608 - the size is a number, and `where` is made of our own words
            [self._collection, self.embedder.name, *values, _written(question.vector), limit],
        )
        return list(dict.fromkeys(number for (number,) in rows))

    def likeness(self, step: Transaction, question: Embedding, numbers: Sequence[int]) -> dict[int, float]:
        """The cosine of the best piece of each record."""
        kind = f"halfvec({self._size})"
        rows = step.rows(
            f"""
            SELECT record, max(1 - (vector::{kind} <=> %s::{kind})) FROM knowledge_pieces
            WHERE record = ANY(%s) AND embedder = %s AND dimension = {self._size} GROUP BY record
            """,  # noqa: S608 - the size is a number
            [_written(question.vector), list(numbers), self.embedder.name],
        )
        return {number: float(value) for number, value in rows}

    def tokens(self, step: Transaction, numbers: Sequence[int]) -> dict[int, list[Seen]]:
        """The pieces of these records with the vectors of their words."""
        query = "SELECT record, tokens, words FROM knowledge_pieces WHERE record = ANY(%s) AND embedder = %s AND tokens IS NOT NULL"
        found: dict[int, list[Seen]] = {}
        for number, tokens, words in step.rows(query, [list(numbers), self.embedder.name]):
            found.setdefault(number, []).append(self._seen(tokens, words))
        return found

    def missing(self, limit: int) -> list[Row]:
        """Records that have no vectors of this embedder yet, for example because they were added without one."""
        return self._database.rows(
            """
            SELECT number, record::text FROM knowledge_records r WHERE collection = %s AND record ->> 'role' IS DISTINCT FROM 'assistant'
            AND NOT EXISTS (SELECT 1 FROM knowledge_pieces p WHERE p.record = r.number AND p.embedder = %s) LIMIT %s
            """,
            [self._collection, self.embedder.name, limit],
        )

    def count(self) -> int:
        """How many vectors there are."""
        row = self._database.one("SELECT count(*) FROM knowledge_pieces WHERE collection = %s", [self._collection])
        return int(row[0]) if row else 0

    def size(self) -> int:
        """How many bytes the vectors of all collections take."""
        row = self._database.one("SELECT pg_total_relation_size('knowledge_pieces')")
        return int(row[0]) if row else 0

    def _seen(self, tokens: bytes, words: Sequence[str]) -> Seen:
        import numpy as np

        table = np.frombuffer(bytes(tokens), dtype=np.int8).reshape(-1, self._size).astype(np.float32) / _SCALE
        return Seen(table, tuple(words))


def _texts(record: Record) -> list[str]:
    """What of a record is embedded: an assistant's words are many and say little that was asked; they are found by words alone."""
    return [] if record.role == "assistant" else cut_for_meaning(record.text)


def _hash(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()


def _written(vector: NDArray[np.float32]) -> str:
    return "[" + ",".join(f"{float(value):.5g}" for value in vector) + "]"


def _small(tokens: NDArray[np.float32]) -> bytes:
    import numpy as np

    return bytes(np.clip(np.rint(tokens * _SCALE), -127, 127).astype(np.int8).tobytes())
