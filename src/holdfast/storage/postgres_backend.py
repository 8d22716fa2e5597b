"""The backend in PostgreSQL, for many machines: documents, logs and blobs are rows, and a write is one transaction (W16, M6).

A person may look at the rows and change them with SQL; marks and generations of logs are kept by the database itself, so that is noticed.

Leases are in `postgres_leases.py`.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from os import PathLike
from typing import Any

from holdfast.clock import Clock, SystemClock
from holdfast.durable import strict_json
from holdfast.durable.log_records import line_of
from holdfast.durable.postgres import Postgres, Row, Transaction, lock_key, queries, scripts
from holdfast.durable.postgres_connection import driver
from holdfast.durable.replace import blob_id
from holdfast.errors import Damaged, InputError, Locked, RevisionConflict
from holdfast.storage.backend import (
    ABSENT,
    Append,
    Change,
    Delete,
    Holder,
    Item,
    Lease,
    Mark,
    Put,
    Records,
    Stored,
    check_blob,
    check_changes,
    check_document,
    check_key,
    check_log,
    check_removal,
    is_log,
)
from holdfast.storage.postgres_leases import held_lease, idle_keys, live_holder

_LAST = chr(0x10FFFF)
_STEPS = 3  # held at once by one process: each needs a connection of the pool, and another one to write
# A server that crashed may give a number again that it had not written down, so a number proves a commit only while it runs on.
_PROOF = """
    SELECT pg_postmaster_start_time()::text = %s
    WHERE CASE
        WHEN %s::text::xid8 < pg_snapshot_xmax(pg_current_snapshot()) THEN pg_xact_status(%s::text::xid8) = 'committed'
        ELSE false
    END
"""


class PostgresBackend:
    """Keeps every promise of `Backend` in the tables `storage_*` of a schema.

    `database` is an address (`base` is where a server of `local:` has its data), or a `Postgres` that is open already and stays the
    caller's. It is reached when it is first needed. `beat` is how often the holder of a lease gives a sign of life.
    """

    def __init__(
        self,
        database: str | Postgres,
        *,
        schema: str = "holdfast",
        base: str | PathLike[str] | None = None,
        clock: Clock | None = None,
        lock_timeout: float = 60.0,
        beat: float = 5.0,
    ) -> None:
        self.clock = clock or SystemClock()
        self._given = database
        self._settings: dict[str, Any] = {"schema": schema, "base": base, "lock_timeout": lock_timeout, "clock": self.clock}
        self._beat = beat
        self._opening = threading.Lock()
        self._guard = threading.Lock()
        self._steps: dict[str, threading.Lock] = {}
        self._room = threading.BoundedSemaphore(_STEPS)
        self._database: Postgres | None = None
        self._is_ready = False
        self._sql = queries("holdfast.storage")

    @property
    def database(self) -> Postgres:
        """The database, with its tables in their newest form."""
        opened = self._opened()
        with self._opening:
            if not self._is_ready:
                opened.migrate("storage", scripts("holdfast.storage", prefix="storage"))
                self._is_ready = True
        return opened

    def _opened(self) -> Postgres:
        with self._opening:
            if self._database is None:
                self._database = Postgres(self._given, **self._settings) if isinstance(self._given, str) else self._given
            return self._database

    def close(self) -> None:
        """Close the connections, where they are ours; the next use opens them again."""
        with self._opening:
            opened, self._database = self._database, None
        if opened is not None and opened is not self._given:
            opened.close()

    # Reading

    def get(self, key: str) -> Stored | None:
        row = self._one("get", check_document(key))
        return None if row is None else Stored(_bytes(row), row[2])

    def mark(self, key: str) -> Mark | None:
        if is_log(check_key(key)):
            return _log_mark(self._one("log_mark", key))
        row = self._one("document_mark", key)
        return None if row is None else str(row[0])

    def glance(self, key: str) -> str | None:
        return self.mark(key)

    def read(self, key: str, *, after: Mark | None = None, limit: int | None = None) -> Records:
        generation, _, number = (after or "").partition(":")
        start = int(number) if number.isdecimal() else 0
        rows = self._rows("read", generation if number.isdecimal() else "", start, check_log(key), limit)
        if not rows:
            return Records((), ABSENT)
        found = [row for row in rows if row[1] is not None]
        whole = rows[0][0] != generation or not number.isdecimal()
        records, damage, torn = self._decoded(key, found)
        end = found[-1][1] if found else (0 if whole else start)
        return Records(tuple(records.values()), f"{rows[0][0]}:{end}", damage, whole, tuple(records), torn)

    def last(self, key: str) -> Mapping[str, Any] | None:
        found = self._decoded(key, self._rows("last", check_log(key)))[0]
        return next(iter(found.values()), None)

    def predates_start(self, key: str) -> bool:
        check_document(key)
        return False

    def at(self, key: str, place: int) -> Mapping[str, Any] | None:
        rows = self._rows("at", check_log(key), place)
        return self._decoded(key, rows)[0].get(place)

    def _decoded(self, key: str, rows: Sequence[Row]) -> tuple[dict[int, Mapping[str, Any]], tuple[str, ...], tuple[bytes, ...]]:
        """The records by their numbers, and what is wrong with the others, in words and as they are."""
        records: dict[int, Mapping[str, Any]] = {}
        bad: builtins.list[tuple[str, bytes]] = []
        for _, number, text in rows:
            try:
                record = strict_json.decode(text.encode("utf-8"))
            except Damaged as error:
                bad.append((f"{self.where(key)}, record {number}: {error.message}", text.encode("utf-8")))
                continue
            if isinstance(record, dict):
                records[number] = record
            else:
                bad.append((f"{self.where(key)}, record {number}: it is not an object.", text.encode("utf-8")))
        return records, tuple(words for words, _ in bad), tuple(data for _, data in bad)

    # Writing

    def write(self, *changes: Change) -> tuple[Mark, ...]:
        check_changes(changes)
        if not changes:
            return ()
        lines = {change.key: _lines(change.records) for change in changes if isinstance(change, Append)}
        with self.changing(*(change.key for change in changes)) as step:
            for change in changes:
                self._expect(step, change.key, change.expect)
            marks = tuple(self._carry_out(step, change, lines.get(change.key, [])) for change in changes)
            for change, mark in zip(changes, marks, strict=True):
                if change.expect is not None and lines.get(change.key):  # only this step can have put this record there: a better proof,
                    number = int(mark.rpartition(":")[2])  # which a restart of the server does not take away
                    step.proof = (self._sql["is_appended"], [change.key, number, lines[change.key][-1]])
            return marks

    def rewrite(self, key: str, records: Sequence[Mapping[str, Any]], *, expect: Mark | None = None) -> Mark:
        lines = _lines(records)
        with self.changing(check_log(key)) as step:
            self._expect(step, key, expect)
            step.execute(self._sql["begin_log"], [key])
            step.execute(self._sql["empty_log"], [key])
            step.execute(self._sql["another_log"], [key])
            return _log_mark(step.one(self._sql["append"], {"key": key, "lines": lines})) or ABSENT

    def set_aside(self, key: str) -> str:
        moment = self.clock.now().strftime("%Y%m%dT%H%M%SZ")
        with self.changing(check_key(key)) as step:
            data = self._content(step, key)
            if data is None:
                raise InputError(f"there is nothing at {self.where(key)} to set aside.")
            number = 0
            while step.one(self._sql["document_mark"], [name := f"{key}.damaged-{moment}{f'-{number}' if number else ''}"]) is not None:
                number += 1
            step.execute(self._sql["insert"], [*_columns(data), name])
            step.execute(self._sql["delete_log" if is_log(key) else "delete_document"], [key])
        return name

    # Blobs

    def put_blob(self, prefix: str, data: bytes) -> str:
        name = blob_id(data)
        with self.changing(f"{check_key(prefix)}/{name}") as step:
            step.execute(self._sql["put_blob"], [prefix, name, data])
        return name

    def get_blob(self, prefix: str, name: str) -> bytes | None:
        row = self._one("get_blob", check_key(prefix), check_blob(name))
        if row is None:
            return None
        if blob_id(bytes(row[0])) != name:
            where = self.where(f"{prefix}/{name}")
            raise Damaged(f"{where} does not have the content that its name promises.", path=where, hint="Put the original again.")
        return bytes(row[0])

    def delete_blob(self, prefix: str, name: str) -> None:
        with self.changing(f"{check_key(prefix)}/{check_blob(name)}") as step:
            step.execute(self._sql["delete_blob"], [prefix, name])

    # All keys

    def list(self, prefix: str = "") -> Iterator[Item]:
        for key, kind, size, modified in self.database.rows(self._sql["list"], _range(prefix)):
            yield Item(key, kind, int(size), float(modified))

    def children(self, folder: str) -> Iterator[str]:
        prefix = f"{check_key(folder)}/"
        rows = self.database.rows(self._sql["children"], {**_range(prefix), "skip": len(prefix) + 1})
        yield from (name for (name,) in rows)

    def recent(self, folder: str, *endings: str) -> Sequence[tuple[str, float]]:
        prefix = f"{check_key(folder)}/"
        values = {**_range(prefix), "skip": len(prefix) + 1, "endings": [*endings]}
        return [(str(name), float(time)) for name, time in self.database.rows(self._sql["recent"], values)]

    def remove(self, *prefixes: str, documents: Sequence[str] = ()) -> int:
        check_removal(prefixes, documents)
        if not prefixes and not documents:
            return 0
        with self.changing(*documents, *prefixes) as step:
            gone: int = sum(step.execute(self._sql["delete_document"], [key]).rowcount for key in documents)
            for prefix in prefixes:
                below = {**_range(prefix), "itself": prefix[:-1]}
                gone += sum(step.execute(self._sql[kind], below).rowcount for kind in ("remove_documents", "remove_logs", "remove_blobs"))
            return int(gone)

    def sweep(self, prefix: str = "", *, holding: Callable[[bytes], bool] | None = None) -> Sequence[str]:
        return ()  # a transaction that was not committed never was

    # Who may

    @contextmanager
    def locked(self, key: str, timeout: float | None = 10.0) -> Iterator[None]:
        lock = lock_key(self.database.schema, "step", check_key(key))
        with self._guard:
            mine = self._steps.setdefault(key, threading.Lock())
        patience = -1 if timeout is None else timeout
        if not mine.acquire(timeout=patience):  # threads of this process wait here: who waits in the database holds a connection
            raise Locked(f"{self.where(key)} is being changed by somebody else.", path=key)
        try:
            if not self._room.acquire(timeout=patience):
                raise Locked(f"{self.where(key)} waits for others of this process that change something else.", path=key)
            try:
                with self.database.locked(lock, timeout=timeout):
                    yield
            finally:
                self._room.release()
        finally:
            mine.release()

    def lease(self, key: str, *, holder: str | None = None) -> AbstractContextManager[Lease]:
        return held_lease(self.database, self._sql, check_key(key), name=holder, clock=self.clock, beat=self._beat)

    def idle(self, keys: Sequence[str]) -> AbstractContextManager[Sequence[str]]:
        return idle_keys(self.database, self._sql, list(map(check_key, keys)), clock=self.clock, beat=self._beat)

    def holder(self, key: str) -> Holder | None:
        return live_holder(self.database, self._sql, check_key(key))

    def where(self, key: str) -> str:
        return f"{self._opened().shown} ({key})"

    # Inside

    @contextmanager
    def changing(self, *keys: str) -> Iterator[Transaction]:
        """One transaction, alone with these keys. Should the answer to its commit be lost, its number says what became of it."""
        database = self.database
        with database.transaction(*(lock_key(database.schema, "storage", key) for key in keys)) as step:
            number, started = step.identity
            step.proof = (_PROOF, [started, number, number])
            try:
                yield step
            except driver().errors.UniqueViolation as error:  # somebody who does not know our locks was quicker
                where = ", ".join(map(self.where, keys))
                raise RevisionConflict(f"{where} was just written by somebody else.", path=where) from error

    def _expect(self, step: Transaction, key: str, expect: Mark | None) -> None:
        if expect is None:
            return
        if is_log(key):
            found = _log_mark(step.one(self._sql["locked_log_mark"], [key]))
        else:
            row = step.one(self._sql["locked_document_mark"], [key])
            found = None if row is None else str(row[0])
        if found != (None if expect == ABSENT else expect):
            where = self.where(key)
            raise RevisionConflict(f"{where} was changed by somebody else.", path=where, expected=expect, found=found)

    def _carry_out(self, step: Transaction, change: Change, lines: Sequence[str]) -> Mark:
        match change:
            case Put(key, data, expect):
                row = step.one(self._sql["insert" if expect == ABSENT else "put"], [*_columns(data), key])
                return str(row[0]) if row else ABSENT
            case Append(key):
                return _log_mark(step.one(self._sql["append"], {"key": key, "lines": [*lines]})) or ABSENT
            case Delete(key):
                step.execute(self._sql["delete_log" if is_log(key) else "delete_document"], [key])
                return ABSENT

    def _content(self, step: Transaction, key: str) -> bytes | None:
        if not is_log(key):
            row = step.one(self._sql["get"], [key])
            return None if row is None else _bytes(row)
        rows = step.rows(self._sql["read"], ["", 0, key, None])
        return None if not rows else "".join(f"{row[2]}\n" for row in rows if row[2] is not None).encode("utf-8")

    def _rows(self, query: str, *values: Any) -> Sequence[Row]:
        return self.database.rows(self._sql[query], values)

    def _one(self, query: str, *values: Any) -> Row | None:
        return self.database.one(self._sql[query], values)


def _columns(data: bytes) -> tuple[str | None, bytes | None]:
    """Text as text, so that a person can read and change it; other bytes as bytes. PostgreSQL's text has no NUL."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None, data
    return (None, data) if "\0" in text else (text, None)


def _bytes(row: Row) -> bytes:
    return row[0].encode("utf-8") if row[0] is not None else bytes(row[1])


def _log_mark(row: Row | None) -> Mark | None:
    return None if row is None else f"{row[0]}:{row[1] or 0}"


def _lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    for record in records:
        line_of(record)  # the same is refused as in files
    return [strict_json.encode(dict(record), readable=False).decode("utf-8").rstrip("\n") for record in records]


def _range(prefix: str) -> dict[str, str]:
    return {"from": prefix, "to": prefix + _LAST}
