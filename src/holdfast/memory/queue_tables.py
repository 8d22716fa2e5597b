"""Where the memory queue has its rows: a SQLite file of this machine, or PostgreSQL, which all machines share (M8, W17).

Both answer the same queries (`queue_queries.sql`), each change alone with the queue. They differ in what can go wrong: a damaged file is
set aside, told once, and made again with every item that can still be read; in PostgreSQL a worker is known to live by a lock that ends
with its connection, on whatever machine it is.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from holdfast.clock import Clock, SystemClock
from holdfast.durable.database import Database, database_faults, open_database, open_plain, transaction
from holdfast.durable.lock import Lock
from holdfast.durable.postgres import is_quiet, lock_key, queries
from holdfast.durable.postgres_connection import driver, postgres_faults
from holdfast.durable.replace import set_aside
from holdfast.errors import Damaged, StorageError
from holdfast.events import Bus, Event
from holdfast.memory.facts import Turn
from holdfast.memory.memory_store import check_agent
from holdfast.storage.postgres_backend import PostgresBackend
from holdfast.validation import check_thread

Run = Callable[..., Any]
"""Runs the query of a name with its values, inside a change, and gives its cursor."""
T = TypeVar("T")
_KEPT = "id, thread, agent, turns, queued, due, claims, failures, error, gave_up"
_KEY = "memory.d/queue"


@dataclass(frozen=True, kw_only=True)
class QueueDamaged(Event):
    """The queue could not be read. It was moved out of the way and made again."""

    component: ClassVar[str] = "MemoryQueue"
    level: ClassVar[int] = logging.ERROR
    text: ClassVar[str] = (
        "{path} is damaged and was set aside as {aside}: {reason} Conversations in it that could be read and wait again: {kept}. "
        "Facts are as they were; what was said is in `holdfast history`"
    )
    path: str
    aside: str
    kept: int
    reason: str


class QueueTables(Protocol):
    """The rows of a queue. Safe for many threads and processes; what `change` returned survives a power cut."""

    clock: Clock
    """By which items are due and leases end: the same for everybody who shares the rows."""

    @property
    def place(self) -> str:
        """Tells this queue from another one."""

    def is_there(self) -> bool:
        """Whether anything was ever queued, as far as that can be told without making anything."""

    def change(self, work: Callable[[Run], T]) -> T:
        """Run queries in one transaction, alone with the queue. `work` may be called again where nothing came of the first time."""

    def rows(self, query: str, *values: Any) -> list[Any]:
        """The rows of a query that changes nothing."""

    def sign(self) -> str:
        """This process as a claimant that others can tell to be alive, from now on."""

    def living(self, claimants: Collection[str]) -> set[str]:
        """Those of the claimants that are there, or of which nobody can tell."""

    def scrub(self) -> None:
        """See to it that nothing of what left the queue stays where it was."""

    def close(self) -> None:
        """Let go of files and connections. The next use opens them again."""


@cache
def _statements(begin: str, listed: str, sign: str) -> dict[str, str]:
    found = queries("holdfast.memory", "queue_queries.sql")
    return {name: query.replace("{queue}", begin).replace("{listed}", listed).replace("?", sign) for name, query in found.items()}


class SqliteTables:
    """The queue in a file of this machine."""

    def __init__(self, path: str | PathLike[str], *, clock: Clock, bus: Bus) -> None:
        self.path = Path(path)
        self.clock = clock
        self._bus = bus
        self._threads = threading.RLock()
        self._opened: tuple[int, int, Database] | None = None
        """The process and the file that the connection belongs to."""
        self._sql = _statements("", "SELECT value FROM json_each(?)", "?")

    @property
    def place(self) -> str:
        return str(self.path.absolute())

    def is_there(self) -> bool:
        return self.path.exists()

    def change(self, work: Callable[[Run], T]) -> T:
        return self._mending(lambda: self._changed(work))

    def _changed(self, work: Callable[[Run], T]) -> T:
        with self._threads, transaction(self._database()) as database:
            return work(lambda query, *values: database.execute(self._sql[query], values))

    def rows(self, query: str, *values: Any) -> list[Any]:
        def read() -> list[Any]:
            with self._threads, database_faults(str(self.path), "read"):
                return self._database().execute(self._sql[query], values).fetchall()

        return self._mending(read)

    def sign(self) -> str:
        return str(this_process())

    def living(self, claimants: Collection[str]) -> set[str]:
        return {one for one in claimants if is_alive(Claimant.of(one))}

    def scrub(self) -> None:
        """Rewrite the file: nothing of what left the queue is in its free pages or its write-ahead log."""

        def rewrite() -> None:
            with self._threads, database_faults(str(self.path), "scrub"):
                database = self._database()
                database.execute("VACUUM")
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        self._mending(rewrite)

    def close(self) -> None:
        with self._threads:
            opened, self._opened = self._opened, None
            if opened is not None and opened[0] == os.getpid():
                opened[2].close()

    def _database(self) -> Database:
        """The connection of this process: one that came over a fork belongs to the parent, and a file may have been made again."""
        if self._opened is not None and (self._opened[:2] != (os.getpid(), _inode(self.path)) or self._opened[2].given_up is not None):
            self.close()
        if self._opened is None:
            script = files("holdfast.memory").joinpath("queue.sql").read_text(encoding="utf-8")
            database = open_database(self.path, migrations=[script], timeout=30.0, threads=True)
            database.execute("PRAGMA secure_delete=ON")
            self._opened = (os.getpid(), _inode(self.path), database)
        return self._opened[2]

    def _mending(self, work: Callable[[], T]) -> T:
        """What is done, once more where the file was damaged and is made again: it is one transaction, so nothing is done twice."""
        try:
            return work()
        except (Damaged, sqlite3.DatabaseError) as error:  # every statement is ours: one that fails met a file that is not what we wrote
            self._mend(error)
            return work()

    def _mend(self, error: Exception) -> None:
        """Set the damaged file aside and make a new one with what can be read of it, unless somebody else just did. Told once.

        What cannot be read is not put together again from the archive: that would bring back what was undone or forgotten since.
        """
        with self._threads, Lock(f"{self.path}.lock", timeout=60.0):
            self.close()
            if _is_sound(self.path):
                return
            aside = set_aside(self.path, clock=self.clock)
            kept = [row for _, row in sorted(dict(_salvaged(aside)).items())]
            self._changed(lambda run: [run("add", *row) for row in kept])
        reason = error.message if isinstance(error, Damaged) else f"{error}."
        self._bus.emit(QueueDamaged(path=str(self.path), aside=aside, kept=len(kept), reason=reason))


def _inode(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_ino
    return 0


def _is_sound(path: Path) -> bool:
    """Whether the file is a whole database that holds our tables, or is not there at all."""
    try:
        with closing(open_plain(path)) as database:
            database.execute("SELECT count(*) FROM items, (SELECT count(*) FROM seen)").fetchone()
            return bool(database.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except FileNotFoundError:
        return True
    except (Damaged, sqlite3.Error):
        return False


def _salvaged(path: str) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """The items of a damaged file by their number, read from both ends as far as that goes. Nobody holds them any more."""
    for order in ("", "DESC"):
        with suppress(StorageError, sqlite3.Error, ValueError, TypeError), closing(open_plain(path)) as database:
            rows = database.execute(f"SELECT number, {_KEPT} FROM items ORDER BY number {order}")  # noqa: S608 - our own column names
            for number, id, thread, agent, turns, *rest in rows:
                check_agent(agent or None)
                if read_turns(turns):
                    yield number, (str(id), check_thread(thread), agent, turns, *rest)


def write_turns(turns: Iterable[Turn]) -> str:
    """Turns as they stand in a row."""
    return json.dumps([{key: value for key, value in vars(turn).items() if value} for turn in turns], ensure_ascii=True)


def read_turns(text: str) -> list[Turn]:
    """The turns of a row."""
    return [Turn(turn.get("id", ""), turn.get("kind", "unknown"), turn.get("text", ""), turn.get("time", "")) for turn in json.loads(text)]


class PostgresTables:
    """The queue in the database in which memory is, for all machines."""

    def __init__(self, backend: PostgresBackend, *, clock: Clock | None = None) -> None:
        self._backend = backend
        self.clock = clock or ServerClock(backend)
        self._guard = threading.Lock()
        self._signed: dict[int, Any] = {}
        """The connections whose locks say that a process lives, by process: one that came over a fork is the parent's."""
        self._sql = _statements("memory_queue_", "SELECT json_array_elements_text(?::json)", "%s")

    @property
    def place(self) -> str:
        return self._backend.where(_KEY)

    def is_there(self) -> bool:
        return True

    def change(self, work: Callable[[Run], T]) -> T:
        with self._backend.changing(_KEY) as step:
            return work(lambda query, *values: step.execute(self._sql[query], values))

    def rows(self, query: str, *values: Any) -> list[Any]:
        return self._backend.database.rows(self._sql[query], values)

    def sign(self) -> str:
        me, database = str(this_process()), self._backend.database
        with self._guard:
            held = self._signed.get(os.getpid())
            if held is not None and not is_quiet(held):
                held.close()
                held = None
            if held is None:
                self._signed[os.getpid()] = held = database.connect()
                with postgres_faults(database.address, "take a lock in"):
                    held.execute("SELECT pg_advisory_lock_shared(%s)", [self._number(me)])
        return me

    def living(self, claimants: Collection[str]) -> set[str]:
        """A process of this machine is looked for as well: its connection may have broken."""
        numbers = {self._number(one) & 0xFFFFFFFFFFFFFFFF: one for one in claimants}
        held = self._backend.database.rows(
            "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks JOIN pg_database ON datname = current_database() "
            "WHERE database = pg_database.oid AND locktype = 'advisory' AND granted AND objsubid = 1"
        )
        locked = {number & 0xFFFFFFFFFFFFFFFF for (number,) in held}
        here = this_process().host
        known = ((number, one, Claimant.of(one)) for number, one in numbers.items())
        return {one for number, one, claimant in known if number in locked or (claimant.host == here and is_alive(claimant))}

    def scrub(self) -> None:
        """The server reuses the space of removed rows by itself."""

    def close(self) -> None:
        with self._guard:
            held = self._signed.pop(os.getpid(), None)
        if held is not None:
            with suppress(driver().Error):
                held.close()

    def _number(self, claimant: str) -> int:
        return lock_key(self._backend.database.schema, "memory queue", claimant)


class ServerClock(SystemClock):
    """The clock of the database server, which all machines share; asked now and then, and carried on by this machine's in between."""

    _EVERY = 300.0

    def __init__(self, backend: PostgresBackend) -> None:
        self._backend = backend
        self._known: tuple[float, float] | None = None

    def now(self) -> datetime:
        known, here = self._known, self.monotonic()
        if known is None or here - known[0] > self._EVERY:
            row = self._backend.database.one("SELECT extract(epoch FROM clock_timestamp())::double precision")
            known = self._known = (self.monotonic(), float(row[0]) if row else 0.0)
            here = known[0]
        return datetime.fromtimestamp(known[1] + here - known[0], UTC)


# Who works on an item


@dataclass(frozen=True)
class Claimant:
    """A process that works on items, told from another one that got the same number later."""

    host: str
    process: int
    began: str

    def __str__(self) -> str:
        return f"{self.host}|{self.process}|{self.began}"

    @classmethod
    def of(cls, text: str) -> Claimant:
        """The claimant that a text names; one that no machine has if it names none."""
        host, process, began = (*text.split("|", 3), "", "", "")[:3]
        return cls(host, int(process) if process.isdecimal() else 0, began)


def this_process() -> Claimant:
    """This process, now."""
    return Claimant(_host(), os.getpid(), _began(os.getpid()))


def is_alive(claimant: Claimant) -> bool:
    """False only if it is certain that the process is gone: of another machine nobody here can tell."""
    if claimant.host != _host():
        return True
    if claimant.process <= 0:
        return False
    try:
        os.kill(claimant.process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return not claimant.began or _began(claimant.process) == claimant.began


@cache
def _host() -> str:
    from socket import gethostname  # costs more to import than all the rest of this module

    return gethostname().replace("|", "-")


@cache
def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()[:8]
    return ""


def _began(process: int) -> str:
    """When a process began: since which start of the machine, and at which tick. Empty where that is not told."""
    with suppress(OSError, IndexError):
        state, *rest = Path(f"/proc/{process}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        return f"{_boot()}:{rest[18]}" if state not in "ZX" else "dead"  # a zombie has its number still, and does nothing any more
    return ""
