"""Who runs a session in PostgreSQL: an advisory lock that ends with its connection, and a row beside it that says who that is.

An owner that died has no connection, so it is taken over at once. A connection may also break while its owner lives: a process of this
machine is looked for, and for a while after a restart of the server, which forgets all locks, a session is given only to the owner that the
row names. Where even that is not enough, the one who lost the lock is told so before its next commit.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from holdfast.clock import Clock, stamp
from holdfast.durable.postgres import Postgres, is_quiet, lock_key
from holdfast.durable.postgres_connection import driver, postgres_faults
from holdfast.errors import Locked, StorageError
from holdfast.session.holding import locked_by, this_owner
from holdfast.session.store import Held, Owner

_PATIENCE = 0.25  # seconds: somebody who only looks whether it is held has it for a moment
_MISSED = 3  # signs of life that an owner may miss after a restart of the server before it counts as dead
_COLUMNS = "name, host, pid, since, heartbeat"
_LIVING: set[str] = set()
"""The tokens of what this very process holds."""
_HELD = """
SELECT o.name, o.host, o.pid, o.since, o.heartbeat FROM session_owners o JOIN pg_locks l ON l.pid = o.backend
WHERE o.id = %s AND l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.classid = %s AND l.objid = %s
"""
_DOUBT = """
SELECT name, host, pid, since, heartbeat, token, heartbeat < pg_postmaster_start_time() AS restarted FROM session_owners
WHERE id = %s AND clock_timestamp() < greatest(heartbeat, pg_postmaster_start_time()) + make_interval(secs => %s)
"""


def who_holds(database: Postgres, workflow_id: str) -> Owner | None:
    """The live owner: the one whose connection has the lock."""
    key = _key(database, workflow_id) & 0xFFFFFFFFFFFFFFFF
    row = database.one(_HELD, [workflow_id, key >> 32, key & 0xFFFFFFFF])
    return None if row is None else _owner(row)


@contextmanager
def holding(database: Postgres, workflow_id: str, *, owner: str | None, clock: Clock, beat: float) -> Iterator[Hold]:
    """Hold a session; see `SessionStore.hold`."""
    hold = Hold(database, workflow_id, this_owner(owner, clock), beat)
    hold.take(clock)
    try:
        with hold.beating():
            yield hold
    finally:
        hold.give_back()


class Hold:
    """The right to run one session, on a connection of its own, renewed when that connection breaks. `held` is what a runner sees."""

    def __init__(self, database: Postgres, workflow_id: str, mine: Owner, beat: float) -> None:
        self.held = Held(workflow_id, mine)
        self._database = database
        self._id = workflow_id
        self._beat = beat
        self._token = secrets.token_hex(8)
        self._connection: Any = None
        self._guard = threading.Lock()
        self._over = threading.Event()
        self._lost: Locked | None = None

    def take(self, clock: Clock) -> None:
        """Take the lock and sign it, or Locked."""
        self._connection = self._database.connect()
        try:
            with postgres_faults(self._database.address, "lock a session in"):
                self._wait(clock)
                before = self._read()
                self._sign()
        except BaseException:
            self._connection.close()
            raise
        _LIVING.add(self._token)
        self.held = Held(self._id, self.held.owner, before)

    def _wait(self, clock: Clock) -> None:
        """Until the lock is ours, and it is clear that nobody else runs the session; Locked after a moment."""
        deadline = clock.monotonic() + _PATIENCE
        while not self._try_lock():
            if clock.monotonic() >= deadline:
                raise self._locked()
            clock.sleep(0.02)
        doubt = self._connection.execute(_DOUBT, [self._id, self._beat * _MISSED]).fetchone()
        if doubt is not None and _may_live(doubt, self.held.owner):
            raise locked_by(self._id, self._database.shown, _owner(doubt))

    def give_back(self) -> None:
        """Let go: the row first, then the lock with its connection."""
        _LIVING.discard(self._token)
        with self._guard:
            with suppress(driver().Error, StorageError):  # it says nothing without the lock, which goes in any case
                if not self._connection.closed:
                    self._connection.execute("DELETE FROM session_owners WHERE id = %s AND token = %s", [self._id, self._token])
            self._connection.close()

    def check(self) -> None:
        """Locked if somebody else runs the session by now. Asked before a commit: costs nothing while the connection stands."""
        with self._guard:
            if self._lost is None and not is_quiet(self._connection):
                self._renew()
            if self._lost is not None:
                raise self._lost

    @contextmanager
    def beating(self) -> Iterator[None]:
        """A sign of life every few seconds, from a thread of its own."""
        thread = threading.Thread(target=self._live, name="session-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _live(self) -> None:
        while not self._over.wait(self._beat):
            with self._guard:
                if self._lost is not None:
                    return
                with suppress(driver().Error, StorageError):  # the server may be away: tried again at the next beat
                    if not is_quiet(self._connection):
                        self._renew()
                    else:
                        self._connection.execute(
                            "UPDATE session_owners SET heartbeat = clock_timestamp() WHERE id = %s AND token = %s", [self._id, self._token]
                        )

    def _renew(self) -> None:
        """Take the lock again on a new connection, unless somebody else has it or had it meanwhile. Called under the guard."""
        with suppress(driver().Error):
            self._connection.close()
        self._connection = self._database.connect()
        with postgres_faults(self._database.address, "lock a session in"):
            if not self._try_lock():
                self._lost = self._locked()
                return
            row = self._connection.execute("SELECT token FROM session_owners WHERE id = %s", [self._id]).fetchone()
            if row is None or row[0] != self._token:  # taken over, and possibly given back already
                self._lost = locked_by(self._id, self._database.shown, self._read())
                self._connection.close()
                return
            self._sign()

    def _try_lock(self) -> bool:
        key = _key(self._database, self._id)
        (got,) = self._connection.execute("SELECT pg_try_advisory_lock(%s)", [key]).fetchone()
        return bool(got)

    def _sign(self) -> None:
        mine = self.held.owner
        self._connection.execute(
            """
            INSERT INTO session_owners (id, token, name, host, pid, since, backend) VALUES (%s, %s, %s, %s, %s, %s, pg_backend_pid())
            ON CONFLICT (id) DO UPDATE SET token = excluded.token, name = excluded.name, host = excluded.host, pid = excluded.pid,
                since = excluded.since, backend = excluded.backend, heartbeat = excluded.heartbeat
            """,
            [self._id, self._token, mine.name, mine.host, mine.pid, mine.since],
        )

    def _read(self) -> Owner | None:
        row = self._connection.execute(f"SELECT {_COLUMNS} FROM session_owners WHERE id = %s", [self._id]).fetchone()  # noqa: S608 - our own
        return None if row is None else _owner(row)

    def _locked(self) -> Locked:
        return locked_by(self._id, self._database.shown, self._read())


def _key(database: Postgres, workflow_id: str) -> int:
    return lock_key(database.schema, "run", workflow_id)


def _may_live(row: tuple[Any, ...], mine: Owner) -> bool:
    """Whether an owner whose lock is free, and who gave a sign of life a moment ago, may still be there."""
    _, host, pid, _, _, token, restarted = row
    if host != mine.host:
        return bool(restarted)
    if pid == mine.pid:
        return token in _LIVING
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - one read of a file of the kernel's
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")  # dead, and not yet fetched by its parent
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's process, or a machine without /proc


def _owner(row: tuple[Any, ...]) -> Owner:
    heartbeat: datetime = row[4]
    return Owner(row[0], row[1], row[2], row[3], stamp(heartbeat.astimezone(UTC)))
