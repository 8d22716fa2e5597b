"""The rows of a SQLite knowledge store: records, their tags, and what is counted over them. Needs nothing but SQLite.

Functions that write run inside a transaction of their caller.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from holdfast.knowledge.indexing import milliseconds
from holdfast.knowledge.records import Record, content_hash, from_json, merged, to_json
from holdfast.knowledge.store import Filter


@dataclass(frozen=True, slots=True)
class Change:
    """What putting a record did: `replaced` is the number that it had before and must leave the index."""

    kind: str
    number: int
    record: Record
    replaced: int | None = None
    anew: bool = False
    """Whether it must be indexed."""


def schema() -> str:
    """The tables, as SQL."""
    return files("holdfast.knowledge").joinpath("sqlite.sql").read_text(encoding="utf-8")


def read(text: str) -> Record:
    """The record that a row holds."""
    return from_json(json.loads(text))


def known(database: sqlite3.Connection, id: str) -> tuple[int, Record] | None:
    """The number and the content of the record with this id."""
    row = database.execute("SELECT number, record FROM records WHERE id = ?", (id,)).fetchone()
    return None if row is None else (int(row[0]), read(row[1]))


def put(database: sqlite3.Connection, record: Record, *, exactly: bool = False) -> Change:
    """Keep a record. One that has the same id gives way; when it is the same thing it takes on the new tags (with `exactly` only those)."""
    found = known(database, record.id)
    if found is None:
        return Change("added", _insert(database, record), record, anew=True)
    number, old = found
    new = record if exactly else merged(old, record)
    if new == old:
        return Change("unchanged", number, old)
    if content_hash(new) == content_hash(old) and new.role == old.role and new.extra.get("title") == old.extra.get("title"):
        database.execute("UPDATE records SET record = ? WHERE number = ?", (_written(new), number))
        database.execute("DELETE FROM tags WHERE record = ?", (number,))
        _tag(database, number, new)
        return Change("updated", number, new)
    return Change("updated", number, new, replaced=number, anew=True)


def replace(database: sqlite3.Connection, change: Change) -> Change:
    """Put the new content of a record in place of the old, under a new number."""
    assert change.replaced is not None  # noqa: S101
    delete(database, [change.replaced])
    return Change(change.kind, _insert(database, change.record), change.record, anew=True)


def _insert(database: sqlite3.Connection, record: Record) -> int:
    values = (record.id, record.session, milliseconds(record), record.kind, _written(record))
    cursor = database.execute("INSERT INTO records (id, session, time, kind, record) VALUES (?, ?, ?, ?, ?)", values)
    number = int(cursor.lastrowid or 0)
    _tag(database, number, record)
    return number


def _tag(database: sqlite3.Connection, number: int, record: Record) -> None:
    database.executemany("INSERT INTO tags VALUES (?, ?)", [(tag, number) for tag in record.tags])


def delete(database: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Delete records, their tags, and the meanings that no other record needs."""
    for number in numbers:
        row = database.execute("SELECT meaning FROM records WHERE number = ?", (number,)).fetchone()
        database.execute("DELETE FROM records WHERE number = ?", (number,))
        if row is not None and row[0] is not None:
            needed = database.execute("SELECT 1 FROM records WHERE meaning = ? LIMIT 1", (row[0],)).fetchone()
            if needed is None:
                database.execute("DELETE FROM meanings WHERE number = ?", (row[0],))


def drop_segments(database: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Let go of segments of the index; their records are indexed anew by whoever can."""
    for number in numbers:
        database.execute("UPDATE records SET segment = NULL WHERE segment = ?", (number,))
        database.execute("DELETE FROM segments WHERE number = ?", (number,))


def clause_of(chosen: Filter) -> tuple[str, list[Any]]:
    """A filter as a condition over `records`, and its values."""
    parts: list[str] = []
    values: list[Any] = []
    for tag in sorted(chosen.tags):
        parts.append("number IN (SELECT record FROM tags WHERE tag = ?)")
        values.append(tag)
    if chosen.session is not None:
        below = chosen.session.rstrip("/") + "/"
        parts.append("(session = ? OR (session >= ? AND session < ?))")
        values += [chosen.session, below, below[:-1] + "0"]  # "0" follows "/"
    for operator, moment in ((">=", chosen.after), ("<", chosen.before)):
        if moment is not None:
            parts.append(f"time {operator} ?")
            values.append(moment.timestamp() * 1000)
    return " AND ".join(parts) or "1", values


def listed(database: sqlite3.Connection, chosen: Filter, after: int, limit: int) -> Sequence[tuple[int, str]]:
    """Records that fit, from the number `after` on."""
    condition, values = clause_of(chosen)
    query = f"SELECT number, record FROM records WHERE number > ? AND {condition} ORDER BY number LIMIT ?"  # noqa: S608  # our own words
    return database.execute(query, (after, *values, limit)).fetchall()


def numbers(database: sqlite3.Connection, chosen: Filter) -> set[int]:
    """The numbers of all records that fit."""
    condition, values = clause_of(chosen)
    query = f"SELECT number FROM records WHERE {condition}"  # noqa: S608  # our own words
    return {number for (number,) in database.execute(query, values)}


def by_numbers(database: sqlite3.Connection, numbers: Iterable[int]) -> dict[int, Record]:
    """The records with these numbers."""
    marks = ",".join(str(int(number)) for number in numbers)
    rows = database.execute(f"SELECT number, record FROM records WHERE number IN ({marks})")  # noqa: S608  # numbers only
    return {number: read(text) for number, text in rows}


def summary(database: sqlite3.Connection) -> dict[str, Any]:
    """What `Stats` says about the records."""
    counts = "SELECT count(*), count(DISTINCT session), min(time), max(time), (SELECT count(*) FROM meanings) FROM records"
    records, sessions, oldest, newest, vectors = database.execute(counts).fetchone()
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    (size,) = database.execute("PRAGMA page_size").fetchone()
    return {
        "records": records,
        "sessions": sessions,
        "vectors": vectors,
        "bytes": pages * size,
        "oldest": _moment(oldest),
        "newest": _moment(newest),
        "tags": dict(database.execute("SELECT tag, count(*) FROM tags GROUP BY tag ORDER BY 2 DESC, 1")),
        "kinds": dict(database.execute("SELECT kind, count(*) FROM records GROUP BY kind ORDER BY 2 DESC, 1")),
    }


def waiting(database: sqlite3.Connection, limit: int) -> Iterator[tuple[int, Record]]:
    """Records that are not in the index yet."""
    rows = database.execute("SELECT number, record FROM records WHERE segment IS NULL ORDER BY number LIMIT ?", (limit,)).fetchall()
    return ((number, read(text)) for number, text in rows)


def _written(record: Record) -> str:
    return json.dumps(to_json(record), ensure_ascii=False)


def _moment(since: int | None) -> datetime | None:
    return None if since is None else datetime.fromtimestamp(since / 1000, UTC)
