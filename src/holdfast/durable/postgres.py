"""PostgreSQL opened so that a committed transaction survives a power cut, for many threads, processes and machines.

    database = Postgres("postgresql://ada@db.example/agents")
    database.migrate("notes", [script])
    with database.transaction(lock_key("notes", "kitchen")) as step:
        step.execute("INSERT INTO notes VALUES (%s)", ["buy tea"])

Connections are kept and used again without threads of their own, so that a short command pays for one connection and a forked worker starts
with none. A server that was restarted is noticed before the next use. `migrate` brings the tables of a component to their newest form: a
table `schemas` has a number for each, how many of its scripts were run. One with a higher number was written by a newer version and is
refused.
"""

from __future__ import annotations

import os
import select
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib.resources import files
from os import PathLike
from types import TracebackType
from typing import Any

from holdfast.clock import Clock, SystemClock
from holdfast.durable.postgres_connection import Address, driver, postgres_faults
from holdfast.errors import HoldfastError, StorageError, StoreUnavailable

Row = tuple[Any, ...]
Values = Sequence[Any] | Mapping[str, Any] | None
_LIVING: weakref.WeakSet[Postgres] = weakref.WeakSet()
_PARENTS: list[Any] = []
"""Connections that a forked process got from its parent. They are the parent's: neither used nor closed here, and so never let go of."""

_LOCKED = "SELECT pg_advisory_xact_lock(%s), pg_current_xact_id()::text, pg_postmaster_start_time()::text"
_CONFIGURE = """
SELECT set_config('search_path', %s, false),
       set_config('lock_timeout', %s, false),
       set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
                                        ELSE current_setting('synchronous_commit') END, false)
"""


def lock_key(*parts: str) -> int:
    """The number of an advisory lock for something with a name, the same on every machine."""
    digest = blake2b("\0".join(parts).encode(), digest_size=8, person=b"holdfast").digest()
    return int.from_bytes(digest, "big", signed=True)


class Transaction:
    """An open transaction.

    `proof` is a query that tells, after a connection was lost during COMMIT, whether the commit arrived: it finds a row exactly if it did.
    Without one that stays unknown.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.proof: tuple[str, Sequence[Any]] | None = None
        self.identity: tuple[str, str] = ("0", "")
        """The number of this transaction and when its server started, once it holds a lock."""

    def execute(self, query: Any, values: Values = None) -> Any:
        """Run a statement and give its cursor."""
        return self.connection.execute(query, values)

    def rows(self, query: Any, values: Values = None) -> list[Row]:
        """Run a query and give its rows."""
        return list(self.connection.execute(query, values).fetchall())

    def one(self, query: Any, values: Values = None) -> Row | None:
        """The first row, or None."""
        row: Row | None = self.connection.execute(query, values).fetchone()
        return row

    def many(self, query: Any, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each row of values, in few round trips."""
        with self.connection.cursor() as cursor:
            cursor.executemany(query, rows)


class Postgres:
    """A database and its schema. Safe for many threads; a process made by fork gets connections of its own.

    `size` is how many connections are open at most, `timeout` how many seconds anybody waits for one, or for a server that is starting.
    All names are looked up in `schema` first, then in `public`, where extensions are.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "holdfast",
        base: str | PathLike[str] | None = None,
        size: int = 8,
        timeout: float = 10.0,
        lock_timeout: float = 60.0,
        clock: Clock | None = None,
    ) -> None:
        self.address = Address.read(dsn, base=base)
        self.schema = schema
        self.size = size
        self.timeout = timeout
        self.lock_timeout = lock_timeout
        self.clock = clock or SystemClock()
        self._places: tuple[str, ...] = (schema, "public")
        self._begin_anew()
        _LIVING.add(self)

    def _begin_anew(self) -> None:
        self._idle: list[Any] = []
        self._guard = threading.Lock()
        self._room = threading.BoundedSemaphore(self.size)
        self._closed = False

    @property
    def shown(self) -> str:
        """The address as it may be shown to anybody."""
        return self.address.shown

    def __enter__(self) -> Postgres:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close what is idle now, and what is in use when it is given back. Harmless when done twice."""
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __del__(self) -> None:
        with suppress(Exception):  # half made, or the interpreter is ending: nobody is there to be told
            self.close()

    # What is done with it

    def rows(self, query: Any, values: Values = None) -> list[Row]:
        """The rows of a query that changes nothing. Asked once more on a new connection when the old one turns out to be dead."""
        for last in (False, True):
            with self._taken(fresh=last) as connection:
                try:
                    with postgres_faults(self.address, "read"):
                        return list(connection.execute(query, values).fetchall())
                except StoreUnavailable:
                    if last or not connection.closed:
                        raise
        raise AssertionError("the last try returns or raises")

    def one(self, query: Any, values: Values = None) -> Row | None:
        """The first row of a query that changes nothing, or None."""
        return next(iter(self.rows(query, values)), None)

    @contextmanager
    def transaction(self, *locks: int) -> Iterator[Transaction]:
        """All that is done inside happens or none of it; on return it survives a power cut.

        `locks` (see `lock_key`) are held from the beginning to the end, whatever becomes of this process; Locked after `lock_timeout`.
        Any exception rolls back. When the connection breaks at the commit itself, the step's `proof` decides: returns if it was committed,
        StoreUnavailable if it was not, and a plain StorageError that says so if nobody can tell.
        """
        with self._begun() as connection:
            step = Transaction(connection)
            try:
                with postgres_faults(self.address, "write to"):
                    for key in sorted(locks):
                        step.identity = connection.execute(_LOCKED, [key]).fetchone()[1:]
                    yield step
            except BaseException:
                _roll_back(connection)
                raise
            self._commit(step, locks)

    @contextmanager
    def locked(self, *locks: int, timeout: float | None = None) -> Iterator[None]:
        """Hold locks (see `lock_key`) without writing anything; Locked after `timeout` seconds, None waits for ever."""
        with self._begun() as connection:
            try:
                with postgres_faults(self.address, "lock something in"):
                    patience = 0 if timeout is None else max(int(timeout * 1000), 1)
                    connection.execute("SELECT set_config('lock_timeout', %s, true)", [f"{patience}ms"])
                    for key in sorted(locks):
                        connection.execute("SELECT pg_advisory_xact_lock(%s)", [key])
                yield
            finally:
                _roll_back(connection)

    def connect(self) -> Any:
        """A new connection that belongs to the caller, who closes it: for locks that last as long as it does. Counts beside `size`."""
        return self._connect()

    def migrate(self, component: str, scripts: Sequence[str]) -> None:
        """Run the scripts of a component that were not run yet, each in a transaction; one process at a time."""
        _migrate(self, component, scripts)

    def look_in(self, schema: str) -> None:
        """Look names up in this schema too, after the others: for an extension that an administrator put elsewhere."""
        with self._guard:
            if schema in self._places:
                return
            self._places = (*self._places, schema)
            idle, self._idle = self._idle, []
        for connection in idle:  # they do not know it yet
            connection.close()

    # Connections

    @contextmanager
    def _begun(self) -> Iterator[Any]:
        """A connection with a transaction begun. An idle one that turns out to be dead is replaced: nothing was done on it yet."""
        for last in (False, True):
            with self._taken(fresh=last) as connection:
                try:
                    with postgres_faults(self.address, "write to"):
                        connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
                except StoreUnavailable:
                    if last or not connection.closed:
                        raise
                    continue
                yield connection
                return

    def _commit(self, step: Transaction, locks: Sequence[int]) -> None:
        connection = step.connection
        try:
            with postgres_faults(self.address, "commit to"):
                done = connection.execute("COMMIT").statusmessage
        except StoreUnavailable as error:
            connection.close()  # it may still look open while the server goes; its transaction must have ended before anybody looks
            self._settle(step, locks, error)
            return
        if done != "COMMIT":  # a statement failed, somebody caught the error, and the server rolled back
            raise StorageError(f"{self.shown} rolled back instead of committing.", path=self.shown, operation="commit")

    def _settle(self, step: Transaction, locks: Sequence[int], lost: StoreUnavailable) -> None:
        """Find out what became of a commit whose answer did not arrive. Behind the same locks: the old transaction has ended then."""
        deadline = self.clock.monotonic() + self.timeout
        while step.proof is not None and locks:
            try:
                with self._begun() as connection, postgres_faults(self.address, "look into"):
                    try:
                        connection.execute("SELECT set_config('lock_timeout', %s, true)", [f"{int(self.timeout * 1000)}ms"])
                        for key in sorted(locks):
                            connection.execute("SELECT pg_advisory_xact_lock(%s)", [key])
                        found = connection.execute(*step.proof).fetchone()
                    finally:
                        _roll_back(connection)
            except HoldfastError:
                if self.clock.monotonic() >= deadline:
                    break
                self.clock.sleep(0.1)
                continue
            if found is None:
                raise lost
            if found[0]:
                return
            break  # it may have been committed, and it may be another one under the same number
        raise StorageError(
            f"the connection to {self.shown} was lost at the moment of the commit, and whether it was written is not known.",
            path=self.shown,
            operation="commit",
            hint="Look at what is there before you try again.",
        ) from lost

    @contextmanager
    def _taken(self, *, fresh: bool = False) -> Iterator[Any]:
        guard, room = self._guard, self._room
        if not room.acquire(timeout=self.timeout):
            raise StoreUnavailable(
                f"all {self.size} connections to {self.shown} are in use.", path=self.shown, operation="open", hint="Try again."
            )
        try:
            connection = self._connect() if fresh else self._reused() or self._connect()
            try:
                yield connection
            finally:
                self._give_back(connection, guard)
        finally:
            room.release()

    def _reused(self) -> Any | None:
        while True:
            with self._guard:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if is_quiet(connection):
                return connection
            connection.close()

    def _give_back(self, connection: Any, guard: threading.Lock) -> None:
        if guard is not self._guard:
            return  # we are in a child that was made meanwhile: the connection is the parent's
        idle = not connection.closed and connection.info.transaction_status == 0  # IDLE: nothing is half done on it
        with self._guard:
            if idle and not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self) -> Any:
        psycopg = driver()
        deadline = self.clock.monotonic() + self.timeout
        with postgres_faults(self.address, "connect to"):
            while True:
                try:
                    connection = psycopg.connect(autocommit=True, **self.address.parts)
                    break
                except psycopg.OperationalError as error:
                    starting = "starting up" in str(error) or "in recovery mode" in str(error)  # libpq gives no SQLSTATE here
                    if not starting or self.clock.monotonic() >= deadline:
                        raise
                self.clock.sleep(0.1)
            try:
                path = ", ".join(psycopg.sql.Identifier(place).as_string(connection) for place in self._places)
                connection.execute(_CONFIGURE, [path, f"{int(self.lock_timeout * 1000)}ms"])
            except BaseException:
                connection.close()
                raise
        return connection

    def _forked(self) -> None:
        _PARENTS.extend(self._idle)
        self._begin_anew()


def is_quiet(connection: Any) -> bool:
    """Whether an idle connection still stands: one that the server has ended has something to say. Costs no round trip."""
    if connection.closed:
        return False
    watch = select.poll()
    watch.register(connection.fileno(), select.POLLIN | select.POLLERR | select.POLLHUP)
    return not watch.poll(0)


def _roll_back(connection: Any) -> None:
    with suppress(driver().Error):  # a connection that is gone has rolled back
        if not connection.closed:
            connection.execute("ROLLBACK")


def _after_fork() -> None:
    for database in list(_LIVING):
        database._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def scripts(package: str, folder: str = "sql", prefix: str = "") -> list[str]:
    """The scripts `NNN_*.sql` of a package in the order of their numbers; with `prefix`, those named `PREFIX_NNN_*.sql`."""
    start = f"{prefix}_" if prefix else ""
    found = sorted(
        (file for file in (files(package) / folder).iterdir() if file.name.endswith(".sql") and file.name.startswith(start)),
        key=lambda file: file.name,
    )
    return [file.read_text(encoding="utf-8") for file in found]


def queries(package: str, file: str = "sql/queries.sql") -> dict[str, str]:
    """The queries of a package by their names: each begins with a line `-- name: NAME`."""
    text = (files(package) / file).read_text(encoding="utf-8")
    return {name.strip(): query.strip() for name, _, query in (part.partition("\n") for part in text.split("-- name: ")[1:])}


def _migrate(database: Postgres, component: str, steps: Sequence[str]) -> None:
    """Run the steps that were not run yet. Processes that come at once wait for each other."""
    found = _number(database, component)
    if found == len(steps):
        return
    _refuse_newer(database, component, found, len(steps))

    key = lock_key(database.schema, "migrations")
    with database.transaction(key) as step:
        _make_schema(database, step.connection)
    for number in range(found + 1, len(steps) + 1):
        with database.transaction(key) as step:
            row = step.one("SELECT number FROM schemas WHERE component = %s FOR UPDATE", [component])
            done = int(row[0]) if row else 0
            _refuse_newer(database, component, done, len(steps))
            if done >= number:  # another process was quicker
                continue
            step.execute(steps[number - 1])
            step.execute(
                "INSERT INTO schemas (component, number) VALUES (%s, %s) ON CONFLICT (component) DO UPDATE SET number = excluded.number",
                [component, number],
            )


def _make_schema(database: Postgres, connection: object) -> None:
    psycopg = driver()
    execute = connection.execute  # type: ignore[attr-defined]  # a connection of psycopg, which is loaded only when it is needed
    with postgres_faults(database.address, "write to"):
        known = execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [database.schema]).fetchone()
        if known is None:  # asked first: IF NOT EXISTS needs the right to create even where there is nothing to be done
            execute(psycopg.sql.SQL("CREATE SCHEMA {}").format(psycopg.sql.Identifier(database.schema)))
        there = execute("SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'schemas'", [database.schema]).fetchone()
        if there is None:
            execute("CREATE TABLE schemas (component text PRIMARY KEY, number integer NOT NULL)")


def _number(database: Postgres, component: str) -> int:
    there = database.one("SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'schemas'", [database.schema])
    row = database.one("SELECT number FROM schemas WHERE component = %s", [component]) if there else None
    return int(row[0]) if row else 0


def _refuse_newer(database: Postgres, component: str, found: int, newest: int) -> None:
    if found > newest:
        raise StorageError(
            f"the {component} tables in {database.shown} have schema {found}, and this version knows up to {newest}.",
            path=database.shown,
            operation="open",
            hint="They were written by a newer version: use that one.",
        )
