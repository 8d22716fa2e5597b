"""Which pieces of which records are in a vector store, which are still to be put there, and which are to be taken out.

The ledger stands in the SQLite file that holds the records, and changes in one transaction with them: whatever is interrupted, the next
call knows what is left to do. The small form of the vectors is kept here too, because no `VectorStore` gives vectors back.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID, uuid5

from holdfast.knowledge import sqlite_rows as rows
from holdfast.knowledge.indexing import texts_of
from holdfast.knowledge.records import Record, to_json
from holdfast.search.vectors import Meaning

_TABLES = """
CREATE TABLE IF NOT EXISTS pieces (
    key    TEXT PRIMARY KEY,   -- its id in the vector store
    record TEXT NOT NULL,      -- the id of its record; empty when it is to be taken out
    state  TEXT NOT NULL       -- due, there, gone
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS pieces_by_record ON pieces (record);
CREATE INDEX IF NOT EXISTS pieces_to_do ON pieces (state) WHERE state <> 'there';
CREATE TABLE IF NOT EXISTS vector_form (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
_SPACE = UUID("6d1b9a36-7a55-5f0e-9c1d-0f2f4c0e8b77")
_MANY = 500  # values in one statement


@dataclass(frozen=True)
class VectorForm:
    """Whose vectors are in the vector store, and where in it."""

    embedder: str
    dimension: int
    collection: str
    target: str


def keys_of(record: Record, *, shared: bool) -> list[str]:
    """The keys of a record's pieces: another text has other keys, and where the record is shared, another record has too."""
    also = json.dumps(to_json(record), sort_keys=True) if shared else ""
    return [str(uuid5(_SPACE, json.dumps([record.id, place, text, also]))) for place, text in enumerate(texts_of(record))]


class PieceLedger:
    """The ledger in one database. `shared` says that the vector store holds the records themselves too. Changes need a transaction."""

    def __init__(self, database: sqlite3.Connection, *, shared: bool) -> None:
        self._database = database
        self._shared = shared
        database.executescript(_TABLES)

    # Writing

    def follow(self, database: sqlite3.Connection, ids: Iterable[str]) -> None:
        """Note what has to be done after these records were changed or dropped."""
        for id in dict.fromkeys(ids):
            known = rows.known(database, id)
            wanted = set(keys_of(known[1], shared=self._shared)) if known is not None else set()
            have = {key for (key,) in database.execute("SELECT key FROM pieces WHERE record = ?", (id,))}
            database.executemany("UPDATE pieces SET record = '', state = 'gone' WHERE key = ?", [(key,) for key in have - wanted])
            database.executemany("INSERT OR REPLACE INTO pieces VALUES (?, ?, 'due')", [(key, id) for key in wanted - have])

    def placed(self, database: sqlite3.Connection, record: Record, meaning: Meaning, hash: bytes) -> None:
        """A record's pieces are in the vector store now. What was changed meanwhile stays to be done."""
        keys = keys_of(record, shared=self._shared)
        database.executemany("UPDATE pieces SET state = 'there' WHERE key = ? AND record = ?", [(key, record.id) for key in keys])
        row = database.execute("SELECT number FROM meanings WHERE hash = ?", (hash,)).fetchone()
        number = row[0] if row is not None else None
        if number is None:
            values = (hash, meaning.vectors, meaning.tokens)
            number = database.execute("INSERT INTO meanings (hash, vectors, tokens) VALUES (?, ?, ?)", values).lastrowid
        known = rows.known(database, record.id)
        if known is not None and texts_of(known[1]) == texts_of(record):
            database.execute("UPDATE records SET meaning = ? WHERE id = ?", (number, record.id))

    def dropped(self, database: sqlite3.Connection, keys: Iterable[str]) -> None:
        """These pieces are no longer in the vector store."""
        database.executemany("DELETE FROM pieces WHERE key = ? AND state = 'gone'", [(key,) for key in keys])

    def begin_anew(self, database: sqlite3.Connection, form: VectorForm) -> None:
        """All pieces of all records are to be put into the vector store, in this form. Nothing of another form is kept."""
        database.execute("DELETE FROM pieces")
        database.execute("UPDATE records SET meaning = NULL")
        database.execute("DELETE FROM meanings")
        self.set_form(database, form)
        self.follow(database, [id for (id,) in database.execute("SELECT id FROM records").fetchall()])

    def set_form(self, database: sqlite3.Connection, form: VectorForm) -> None:
        database.execute("INSERT OR REPLACE INTO vector_form VALUES ('form', ?)", (json.dumps(asdict(form)),))

    # Reading

    @property
    def form(self) -> VectorForm | None:
        """The form of what is in the vector store; None as long as nothing is."""
        row = self._database.execute("SELECT value FROM vector_form WHERE name = 'form'").fetchone()
        return None if row is None else VectorForm(**json.loads(row[0]))

    def count(self, state: str) -> int:
        return int(self._database.execute("SELECT count(*) FROM pieces WHERE state = ?", (state,)).fetchone()[0])

    @property
    def anything_to_do(self) -> bool:
        return self._database.execute("SELECT 1 FROM pieces WHERE state <> 'there' LIMIT 1").fetchone() is not None

    def gone(self, limit: int) -> list[str]:
        return [key for (key,) in self._database.execute("SELECT key FROM pieces WHERE state = 'gone' LIMIT ?", (limit,))]

    def there(self) -> list[str]:
        return [key for (key,) in self._database.execute("SELECT key FROM pieces WHERE state = 'there'")]

    def due(self, limit: int) -> list[Record]:
        """Records with pieces that are to be put into the vector store."""
        query = (
            """SELECT r.record FROM (SELECT DISTINCT record FROM pieces WHERE state = 'due' LIMIT ?) p JOIN records r ON r.id = p.record"""
        )
        return [rows.read(text) for (text,) in self._database.execute(query, (limit,))]

    def numbers(self, keys: Collection[str]) -> dict[str, int]:
        """The numbers of the records to which these pieces belong. 0 for a piece that is to be taken out."""
        query = "SELECT p.key, coalesce(r.number, 0) FROM pieces p LEFT JOIN records r ON r.id = p.record WHERE p.key IN ({})"
        return dict(self._in_parts(query, list(keys)))

    def vectors(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """The small form of the vectors of these records."""
        query = "SELECT r.number, m.vectors FROM records r JOIN meanings m ON m.number = r.meaning WHERE r.number IN ({})"
        return dict(self._in_parts(query, list(numbers)))

    def tokens(self, numbers: Sequence[int]) -> Mapping[int, bytes]:
        """The vectors of the words of these records."""
        query = "SELECT r.number, m.tokens FROM records r JOIN meanings m ON m.number = r.meaning WHERE r.number IN ({})"
        return dict(self._in_parts(query, list(numbers)))

    def _in_parts(self, query: str, values: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
        for start in range(0, len(values), _MANY):
            part = values[start : start + _MANY]
            yield from self._database.execute(query.format(",".join("?" * len(part))), part)
