"""Leases in PostgreSQL: who works on something, on whatever machine, and why there are never two (W6, W17).

A lease is an advisory lock that ends with its connection, and a row beside it that says who holds it, with a token that nobody else has. A
holder that died has no connection, so it is taken over at once. A connection may also break while its holder lives: a process of this
machine is looked for, and for a while after a restart of the server, which forgets all locks, a lease is given only to the holder that the
row names. Where even that is not enough, the one who lost the lease is told so by `Lease.check`.

Why there are never two at something, though a holder works on while the server is away (W17):

- Nobody takes anything while the server is away: to take a lease is to get the lock and to sign the row, on the server.
- When it is back, the holder has time: others may take the lease only `_MISSED` beats after the start of the server. The holder, who has
  noticed by its next beat at the latest that its connection is gone, tries anew every `_AGAIN` seconds, and one try takes ten at most.
- To come back it needs the lock *and* its own token in the row. Whoever takes over signs with another token while it has the lock, so of
  two who come at once one has the lock, and the other sees either no lock or a token that is not its own; and never gets it back.
- A holder that comes too late all the same (its machine slept, its network was cut) has lost the lease, learns it at its next beat, and its
  run ends there. Should it write before: `Lease.check` comes first, and every commit says which record it follows (`expect`). Who took over
  wrote one before it began, so the other's commit is refused by the row itself, however the two were timed.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from holdfast.clock import Clock, stamp
from holdfast.durable.postgres import Postgres, is_quiet, lock_key
from holdfast.durable.postgres_connection import driver, postgres_faults
from holdfast.errors import Locked, StorageError
from holdfast.storage.backend import Holder, Lease, held_by, this_process

_PATIENCE = 0.25  # seconds: somebody who only looks whether it is held has it for a moment
_PATIENCE_OF_THE_HOLDER = 3.0  # the same on a busy machine, for one whose work depends on it
_AGAIN = 0.5  # seconds between two tries of a holder whose connection broke
_MISSED = 3  # signs of life that a holder may miss after a restart of the server before it counts as dead
_LIVING: set[str] = set()
"""The tokens of what this very process holds."""


def live_holder(database: Postgres, sql: Mapping[str, str], key: str) -> Holder | None:
    """The live holder: the one whose connection has the lock."""
    number = _number(database, key) & 0xFFFFFFFFFFFFFFFF
    row = database.one(sql["lease_holder"], [key, number >> 32, number & 0xFFFFFFFF])
    return None if row is None else _holder(row)


@contextmanager
def held_lease(database: Postgres, sql: Mapping[str, str], key: str, *, name: str | None, clock: Clock, beat: float) -> Iterator[Lease]:
    """Hold a lease; see `Backend.lease`."""
    held = _Held(database, sql, key, this_process(name, clock), beat, clock)
    before = held.take()
    try:
        with held.beating():
            yield Lease(key, held.mine, before, held.check, held.is_lost)
    finally:
        held.give_back()


@contextmanager
def idle_keys(database: Postgres, sql: Mapping[str, str], keys: Sequence[str], *, clock: Clock, beat: float) -> Iterator[Sequence[str]]:
    """Those of the keys that nobody holds; see `Backend.idle`. All on one connection."""
    held = [_Held(database, sql, key, this_process(None, clock), beat, clock) for key in keys]
    connection = database.connect()
    try:
        with postgres_faults(database.address, "take a lease in"):
            free = [one.key for one in held if one.may_be_had(connection)]
        yield free
    finally:
        connection.close()  # and with it all locks


class _Held:
    """One lease, on a connection of its own, renewed when that connection breaks."""

    def __init__(self, database: Postgres, sql: Mapping[str, str], key: str, mine: Holder, beat: float, clock: Clock) -> None:
        self.mine = mine
        self._clock = clock
        self._database = database
        self._sql = sql
        self.key = key
        self._beat = beat
        self._token = secrets.token_hex(8)
        self._connection: Any = None
        self._guard = threading.Lock()
        self._over = threading.Event()
        self._lost: Locked | None = None

    def take(self) -> Holder | None:
        """Take the lock and sign it, or Locked. Gives the holder that died without giving it back."""
        self._connection = self._database.connect()
        try:
            with postgres_faults(self._database.address, "take a lease in"):
                self._wait()
                before = self._signed()
                self._sign()
        except BaseException:
            self._connection.close()
            raise
        _LIVING.add(self._token)
        return before

    def may_be_had(self, connection: Any) -> bool:
        """Take the lock on this connection, which stays the caller's, and say whether nobody else has the lease. Signs nothing."""
        self._connection = connection
        try:
            self._wait()
        except Locked:
            return False
        return True

    def _wait(self) -> None:
        """Until the lock is ours, and it is clear that nobody else has the lease; Locked after a moment."""
        if not self._got_lock():
            raise self._locked(self._signed())
        doubt = self._run("lease_in_doubt", self._beat * _MISSED).fetchone()
        if doubt is not None and _may_live(doubt, self.mine):
            self._unlock()  # at once: the holder may be coming back for it, a closed connection lets go only when the server has seen it
            raise self._locked(_holder(doubt))

    def give_back(self) -> None:
        """Let go: the row first, then the lock with its connection."""
        _LIVING.discard(self._token)
        with self._guard:
            with suppress(driver().Error, StorageError):  # it says nothing without the lock, which goes in any case
                if not self._connection.closed:
                    self._run("end_lease", self._token)
            self._connection.close()

    def check(self) -> None:
        """Locked if somebody else has the lease by now. Costs nothing while the connection stands."""
        with self._guard:
            if self._lost is None and not is_quiet(self._connection):
                self._renew()
            if self._lost is not None:
                raise self._lost

    def is_lost(self) -> bool:
        """Whether somebody else is known to have the lease. Asks nobody."""
        return self._lost is not None

    @contextmanager
    def beating(self) -> Iterator[None]:
        """A sign of life every few seconds, from a thread of its own."""
        thread = threading.Thread(target=self._live, name="lease-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _live(self) -> None:
        pause = self._beat
        while not self._over.wait(pause):
            with self._guard:
                if self._lost is not None:
                    return
                pause = min(self._beat, _AGAIN)  # the server may be away: tried again soon, because others wait only so long
                with suppress(driver().Error, StorageError):
                    if not is_quiet(self._connection):
                        self._renew()
                    else:
                        self._run("beat_lease", self._token)
                    pause = self._beat

    def _renew(self) -> None:
        """Take the lock again on a new connection, unless somebody else has signed the lease meanwhile. Called under the guard.

        Who has the lock without having signed only looks: the lease is still ours then, and the next call tries again.
        """
        with suppress(driver().Error):
            self._connection.close()
        self._connection = self._database.connect()
        with postgres_faults(self._database.address, "take a lease in"):
            locked = self._got_lock(_PATIENCE_OF_THE_HOLDER)
            row = self._run("lease_token").fetchone()
            if row is not None and row[0] == self._token and locked:
                self._sign()
                return
            refused = self._locked(self._signed())
            self._connection.close()
            if row is None or row[0] != self._token:  # taken over, and possibly given back already
                self._lost = refused
            raise refused

    def _got_lock(self, patience: float = _PATIENCE) -> bool:
        """Whether the lock is ours within a moment."""
        deadline = self._clock.monotonic() + patience
        while True:
            (got,) = self._connection.execute("SELECT pg_try_advisory_lock(%s)", [_number(self._database, self.key)]).fetchone()
            if got or self._clock.monotonic() >= deadline:
                return bool(got)
            self._clock.sleep(0.02)

    def _unlock(self) -> None:
        self._connection.execute("SELECT pg_advisory_unlock(%s)", [_number(self._database, self.key)])

    def _sign(self) -> None:
        self._run("sign_lease", self._token, self.mine.name, self.mine.host, self.mine.pid, self.mine.since)

    def _signed(self) -> Holder | None:
        row = self._run("lease_signed").fetchone()
        return None if row is None else _holder(row)

    def _run(self, query: str, *values: Any) -> Any:
        return self._connection.execute(self._sql[query], [self.key, *values])

    def _locked(self, holder: Holder | None) -> Locked:
        return held_by(f"{self.key} in {self._database.shown}", holder, self._database.shown)


def _number(database: Postgres, key: str) -> int:
    return lock_key(database.schema, "lease", key)


def _may_live(row: tuple[Any, ...], mine: Holder) -> bool:
    """Whether a holder whose lock is free, and who gave a sign of life a moment ago, may still be there."""
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


def _holder(row: tuple[Any, ...]) -> Holder:
    heartbeat: datetime = row[4]
    return Holder(row[0], row[1], row[2], row[3], stamp(heartbeat.astimezone(UTC)))
