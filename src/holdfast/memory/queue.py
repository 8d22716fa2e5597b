"""Conversations that wait to be learned from, on disk: a crash or a SIGTERM loses none of them (M8).

`put` waits for more of the same thread (debounce) and joins it to what waits already; `claim` gives one item to one worker; `complete`,
`fail` and `release` are the three ways in which work on it ends. A worker that dies is noticed: at once on the same machine, else when its
lease is over. A damaged file is set aside, told once, and made again with every item that can still be read.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache, wraps
from hashlib import blake2b
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast.clock import Backoff, Clock, SystemClock
from holdfast.durable.database import Database, database_faults, open_database, open_plain, transaction
from holdfast.durable.lock import Lock
from holdfast.durable.replace import set_aside
from holdfast.errors import Damaged, StorageError
from holdfast.events import Bus, UpdateDebounced, UpdateQueued
from holdfast.events import bus as process_bus
from holdfast.ids import IdSource, RandomIds, check_thread
from holdfast.memory.events import QueueDamaged, UpdateFailed, UpdateGivenUp
from holdfast.memory.facts import Turn
from holdfast.memory.store import check_agent

_CRASHES = 20  # an item that so many workers began and none ended takes them down with it
_REMEMBER = 90 * 86400.0
_COLUMNS = "id, thread, agent, turns, queued, due, claims, failures, holder, error, gave_up"
_KEPT = "id, thread, agent, turns, queued, due, claims, failures, error, gave_up"


@dataclass(frozen=True)
class Retry:
    """How often a failed update is tried, and how long it waits: `first` seconds, then twice as long each time, up to `longest`."""

    attempts: int = 6
    first: float = 30.0
    longest: float = 3600.0

    def pause(self, failures: int) -> float:
        """Seconds to wait after so many failures."""
        return Backoff(self.first, self.longest).pause(failures)


@dataclass(frozen=True)
class Item:
    """One update: the turns of a thread that an agent is to learn from."""

    id: str
    thread: str
    agent: str | None
    turns: tuple[Turn, ...]
    queued: float
    due: float
    claims: int = 0
    failures: int = 0
    holder: str | None = None
    error: str | None = None
    gave_up: float | None = None

    @property
    def state(self) -> str:
        """`waiting`, `running`, `failed` (and waiting for its next try) or `given up`."""
        if self.gave_up is not None:
            return "given up"
        return "running" if self.holder else "failed" if self.failures else "waiting"


P = ParamSpec("P")
T = TypeVar("T")


def _mending(method: Callable[Concatenate[MemoryQueue, P], T]) -> Callable[Concatenate[MemoryQueue, P], T]:
    """What a method does, once more where the file was damaged and is made again: each is one transaction, so nothing is done twice."""

    @wraps(method)
    def call(queue: MemoryQueue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(queue, *args, **kwargs)
        except (Damaged, sqlite3.DatabaseError) as error:  # every statement is ours: one that fails met a file that is not what we wrote
            queue._mend(error)
            return method(queue, *args, **kwargs)

    return call


class MemoryQueue:
    """The queue in the database at `path`. Safe for many threads and processes; what `put` returned survives a power cut."""

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        debounce: float = 30.0,
        lease: float = 900.0,
        retry: Retry | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        bus: Bus | None = None,
    ) -> None:
        self.path = Path(path)
        self.debounce = debounce
        self.retry = retry or Retry()
        self._lease = lease
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIds()
        self._bus = bus or process_bus
        self._threads = threading.RLock()
        self._opened: tuple[int, int, Database] | None = None
        """The process and the file that the connection belongs to."""

    # Putting in

    @_mending
    def put(self, thread: str, turns: Sequence[Turn], agent: str | None = None) -> str | None:
        """Queue turns of a thread; gives the id of the item they are in, or None when every one of them was queued before.

        They join the item of the same thread and agent that waits already, if nobody has begun with it, and make it wait anew: for
        `debounce` seconds, but never more than ten times as long in all.
        """
        agent, thread = check_agent(agent), check_thread(thread)
        now = self._now()
        with self._changing() as database:
            new = [turn for turn in turns if self._is_new(database, thread, agent, turn, now)]
            if not new:
                return None
            id = self._join(database, thread, agent, new, now) or self._add(database, thread, agent, new, now)
        self._bus.emit(UpdateQueued(thread=thread, messages=sum(turn.kind in ("user", "assistant") for turn in new)))
        self._bus.emit(UpdateDebounced(thread=thread, seconds=self.debounce))
        return id

    def _join(self, database: sqlite3.Connection, thread: str, agent: str | None, new: Sequence[Turn], now: float) -> str | None:
        """Into the item that waits. Never into one that somebody began with: its changes may be in the memory already."""
        row = database.execute(
            """SELECT id, turns, queued FROM items WHERE thread = ? AND agent = ? AND claims = 0 AND gave_up IS NULL
               ORDER BY number DESC LIMIT 1""",
            (thread, agent or ""),
        ).fetchone()
        if row is None:
            return None
        id, turns, queued = row
        due = min(now + self.debounce, max(queued + 10 * self.debounce, now))
        database.execute("UPDATE items SET turns = ?, due = ? WHERE id = ?", (_written([*_read(turns), *new]), due, id))
        return str(id)

    def _add(self, database: sqlite3.Connection, thread: str, agent: str | None, new: Sequence[Turn], now: float) -> str:
        id = self._ids.new("update")
        database.execute(
            "INSERT INTO items (id, thread, agent, turns, queued, due) VALUES (?, ?, ?, ?, ?, ?)",
            (id, thread, agent or "", _written(new), now, now + self.debounce),
        )
        return id

    @staticmethod
    def _is_new(database: sqlite3.Connection, thread: str, agent: str | None, turn: Turn, now: float) -> bool:
        if not turn.id:
            return True  # nothing tells it from another turn with the same words
        words = json.dumps([thread, agent, turn.id, turn.kind, turn.text])
        mark = blake2b(words.encode("utf-8", "replace"), digest_size=16).digest()
        return database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (mark, now)).rowcount == 1

    # Working

    @_mending
    def claim(self, *, early: bool = False, besides: Collection[str] = ()) -> Item | None:
        """Take the item that is due first, for this process alone; None when there is none.

        With `early` debounce and back-off do not count; `besides` names items that are not wanted. Items of one thread and agent are
        given out in the order in which they came, one at a time.
        """
        now = self._now()
        with self._changing() as database:
            row = database.execute(
                f"""UPDATE items SET holder = ?, lease = ?, claims = claims + 1 WHERE number = (
                    SELECT number FROM items AS mine
                    WHERE gave_up IS NULL AND (holder IS NULL OR lease < ?) AND (? OR due <= ? OR queued > ?)
                    AND id NOT IN (SELECT value FROM json_each(?))
                    AND NOT EXISTS (SELECT 1 FROM items AS older WHERE older.thread = mine.thread AND older.agent = mine.agent
                                    AND older.number < mine.number AND older.gave_up IS NULL)
                    ORDER BY due, number LIMIT 1) RETURNING {_COLUMNS}""",  # noqa: S608 - our own column names
                (str(this_process(self._ids.new())), now + self._lease, now, early, now, now, json.dumps(list(besides))),
            ).fetchone()
        item = None if row is None else _item(row)
        if item is not None and item.claims > _CRASHES:
            self._give_up(item, f"{item.claims - 1} workers began with it and none came to an end")
            return self.claim(early=early, besides=besides)
        return item

    @_mending
    def holds(self, item: Item) -> bool:
        """Whether the item is still this worker's: after its lease somebody else may have it."""
        rows = self._rows("SELECT 1 FROM items WHERE id = ? AND holder = ?", (item.id, item.holder))
        return bool(rows)

    @_mending
    def complete(self, item: Item) -> bool:
        """The work is done: the item leaves the queue. False if it is not this worker's any more."""
        with self._changing() as database:
            return database.execute("DELETE FROM items WHERE id = ? AND holder = ?", (item.id, item.holder)).rowcount == 1

    @_mending
    def release(self, item: Item) -> None:
        """The work did not come to its end and nobody is to blame: somebody else may take it at once."""
        with self._changing() as database:
            database.execute("UPDATE items SET holder = NULL, lease = NULL WHERE id = ? AND holder = ?", (item.id, item.holder))

    @_mending
    def fail(self, item: Item, error: str) -> None:
        """The work failed: it is tried again later, each time after a longer pause, until that has been done too often."""
        failures, reason = item.failures + 1, error[:500]
        if failures >= self.retry.attempts:
            self._give_up(item, reason)
            return
        pause = self.retry.pause(failures)
        with self._changing() as database:
            database.execute(
                "UPDATE items SET holder = NULL, lease = NULL, failures = ?, error = ?, due = ? WHERE id = ? AND holder = ?",
                (failures, reason, self._now() + pause, item.id, item.holder),
            )
        self._bus.emit(UpdateFailed(thread=item.thread, error=reason, seconds=pause))

    def _give_up(self, item: Item, reason: str) -> None:
        with self._changing() as database:
            database.execute(
                "UPDATE items SET holder = NULL, lease = NULL, failures = failures + 1, error = ?, gave_up = ? WHERE id = ? AND holder = ?",
                (reason, self._now(), item.id, item.holder),
            )
        self._bus.emit(UpdateGivenUp(thread=item.thread, attempts=max(item.claims, item.failures + 1), error=reason))

    @_mending
    def recover(self) -> int:
        """Take back what processes of this machine held that are no longer there; says how many items."""
        held = [(str(id), str(holder)) for id, holder in self._rows("SELECT id, holder FROM items WHERE holder IS NOT NULL")]
        dead = [(id, holder) for id, holder in held if not is_alive(Claimant.of(holder))]
        if dead:
            with self._changing() as database:
                database.executemany("UPDATE items SET holder = NULL, lease = NULL WHERE id = ? AND holder = ?", dead)
        return len(dead)

    @_mending
    def retry_given_up(self) -> int:
        """Give the items that were given up another round of tries; says how many."""
        with self._changing() as database:
            done = database.execute("UPDATE items SET gave_up = NULL, failures = 0, due = ? WHERE gave_up IS NOT NULL", (self._now(),))
            return done.rowcount

    # Looking

    @_mending
    def items(self) -> list[Item]:
        """Everything in the queue, in the order in which it came."""
        return [_item(row) for row in self._rows(f"SELECT {_COLUMNS} FROM items ORDER BY number")]  # noqa: S608 - our own column names

    @_mending
    def __len__(self) -> int:
        """How many items wait or are being worked on. Those given up do not count."""
        return int(self._rows("SELECT count(*) FROM items WHERE gave_up IS NULL")[0][0])

    @_mending
    def next_due(self) -> float | None:
        """Seconds until something is due, 0 if something is; None if nothing waits."""
        rows = self._rows("SELECT min(CASE WHEN holder IS NULL THEN due ELSE lease END) FROM items WHERE gave_up IS NULL")
        return None if rows[0][0] is None else max(float(rows[0][0]) - self._now(), 0.0)

    # Taking out

    @_mending
    def forget(self, takes: Callable[[str, Turn], bool]) -> int:
        """Take out every turn that `takes(thread, turn)` names, and scrub the file; says how many turns.

        An item without turns goes. From a worker that is at it the item is taken away: what it found may come from those turns.
        """
        gone = 0
        with self._changing() as database:
            for id, thread, turns in database.execute("SELECT id, thread, turns FROM items").fetchall():
                held = _read(turns)
                kept = [turn for turn in held if not takes(thread, turn)]
                gone += len(held) - len(kept)
                if not kept:
                    database.execute("DELETE FROM items WHERE id = ?", (id,))
                elif len(kept) < len(held):
                    database.execute("UPDATE items SET turns = ?, holder = NULL, lease = NULL WHERE id = ?", (_written(kept), id))
        self.scrub()
        return gone

    @_mending
    def prune(self, before: str, *, dry_run: bool = False) -> int:
        """Take out the items that were given up before a moment (ISO); says how many. What waits stays, however old."""
        moment = datetime.fromisoformat(before).timestamp()
        if dry_run:
            return int(self._rows("SELECT count(*) FROM items WHERE gave_up < ?", (moment,))[0][0])
        with self._changing() as database:
            gone = database.execute("DELETE FROM items WHERE gave_up < ?", (moment,)).rowcount
        if gone:
            self.scrub()
        return gone

    @_mending
    def scrub(self) -> None:
        """Rewrite the file so that nothing of what left the queue is in its free pages or its write-ahead log."""
        with self._threads, database_faults(str(self.path), "scrub"):
            database = self._database()
            database.execute("DELETE FROM seen WHERE time < ?", (self._now() - _REMEMBER,))
            database.execute("VACUUM")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the file. The next use opens it again."""
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

    def _mend(self, error: Exception) -> None:
        """Set the damaged file aside and make a new one with what can be read of it, unless somebody else just did. Told once.

        What cannot be read is not put together again from the archive: that would bring back what was undone or forgotten since.
        """
        with self._threads, Lock(f"{self.path}.lock", timeout=60.0):
            self.close()
            if _is_sound(self.path):
                return
            aside = set_aside(self.path, clock=self._clock)
            kept = [row for _, row in sorted(dict(_salvaged(aside)).items())]
            with transaction(self._database()) as database:
                marks = ", ".join("?" * _KEPT.count(",")) + ", ?"
                database.executemany(f"INSERT INTO items ({_KEPT}) VALUES ({marks})", kept)  # noqa: S608 - our own names
        self._bus.emit(
            QueueDamaged(
                path=str(self.path), aside=aside, kept=len(kept), reason=error.message if isinstance(error, Damaged) else f"{error}."
            )
        )

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with self._threads, transaction(self._database()) as database:
            yield database

    def _rows(self, sql: str, values: Iterable[Any] = ()) -> list[Any]:
        with self._threads, database_faults(str(self.path), "read"):
            return self._database().execute(sql, tuple(values)).fetchall()

    def _now(self) -> float:
        return self._clock.now().timestamp()


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
                if _read(turns):
                    yield number, (str(id), check_thread(thread), agent, turns, *rest)


def _written(turns: Iterable[Turn]) -> str:
    return json.dumps([{key: value for key, value in vars(turn).items() if value} for turn in turns], ensure_ascii=True)


def _read(text: str) -> list[Turn]:
    return [Turn(turn.get("id", ""), turn.get("kind", "unknown"), turn.get("text", ""), turn.get("time", "")) for turn in json.loads(text)]


def _item(row: Sequence[Any]) -> Item:
    id, thread, agent, turns, *rest = row
    return Item(id, thread, agent or None, tuple(_read(turns)), *rest)


# Who works on an item


@dataclass(frozen=True)
class Claimant:
    """A process that works on an item, told from another one that got the same number later, and a token for this one claim."""

    host: str
    process: int
    began: str
    token: str = ""

    def __str__(self) -> str:
        return f"{self.host}|{self.process}|{self.began}|{self.token}"

    @classmethod
    def of(cls, text: str) -> Claimant:
        """The claimant that a text names; one that no machine has if it names none."""
        host, process, began, token = (*text.split("|", 3), "", "", "", "")[:4]
        return cls(host, int(process) if process.isdecimal() else 0, began, token)


def this_process(token: str) -> Claimant:
    """This process, now."""
    return Claimant(_host(), os.getpid(), _began(os.getpid()), token)


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
