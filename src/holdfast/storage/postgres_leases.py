"""Leases in PostgreSQL: an advisory lock that ends with its connection, and a row beside it that says who holds it.

A holder that died has no connection, so it is taken over at once. A connection may also break while its holder lives: a process of this
machine is looked for, and for a while after a restart of the server, which forgets all locks, a lease is given only to the holder that the
row names. Where even that is not enough, the one who lost the lease is told so by `Lease.check`.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from holdfast.clock import Clock, stamp
from holdfast.durable.postgres import Postgres, is_quiet, lock_key
from holdfast.durable.postgres_connection import driver, postgres_faults
from holdfast.errors import Locked, StorageError
from holdfast.storage.backend import Holder, Lease
from holdfast.storage.file_leases import held_by, this_process

_PATIENCE = 0.25  # seconds: somebody who only looks whether it is held has it for a moment
_MISSED = 3  # signs of life that a holder may miss after a restart of the server before it counts as dead
_LIVING: set[str] = set()
"""The tokens of what this very process holds."""


def who_holds(database: Postgres, sql: Mapping[str, str], key: str) -> Holder | None:
    """The live holder: the one whose connection has the lock."""
    number = _number(database, key) & 0xFFFFFFFFFFFFFFFF
    row = database.one(sql["lease_holder"], [key, number >> 32, number & 0xFFFFFFFF])
    return None if row is None else _holder(row)


@contextmanager
def lease(database: Postgres, sql: Mapping[str, str], key: str, *, name: str | None, clock: Clock, beat: float) -> Iterator[Lease]:
    """Hold a lease; see `Backend.lease`."""
    held = _Held(database, sql, key, this_process(name, clock), beat)
    before = held.take(clock)
    try:
        with held.beating():
            yield Lease(key, held.mine, before, held.check)
    finally:
        held.give_back()


class _Held:
    """One lease, on a connection of its own, renewed when that connection breaks."""

    def __init__(self, database: Postgres, sql: Mapping[str, str], key: str, mine: Holder, beat: float) -> None:
        self.mine = mine
        self._database = database
        self._sql = sql
        self._key = key
        self._beat = beat
        self._token = secrets.token_hex(8)
        self._connection: Any = None
        self._guard = threading.Lock()
        self._over = threading.Event()
        self._lost: Locked | None = None

    def take(self, clock: Clock) -> Holder | None:
        """Take the lock and sign it, or Locked. Gives the holder that died without giving it back."""
        self._connection = self._database.connect()
        try:
            with postgres_faults(self._database.address, "take a lease in"):
                self._wait(clock)
                before = self._signed()
                self._sign()
        except BaseException:
            self._connection.close()
            raise
        _LIVING.add(self._token)
        return before

    def _wait(self, clock: Clock) -> None:
        """Until the lock is ours, and it is clear that nobody else has the lease; Locked after a moment."""
        deadline = clock.monotonic() + _PATIENCE
        while not self._try_lock():
            if clock.monotonic() >= deadline:
                raise self._locked(self._signed())
            clock.sleep(0.02)
        doubt = self._run("lease_in_doubt", self._beat * _MISSED).fetchone()
        if doubt is not None and _may_live(doubt, self.mine):
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
        while not self._over.wait(self._beat):
            with self._guard:
                if self._lost is not None:
                    return
                with suppress(driver().Error, StorageError):  # the server may be away: tried again at the next beat
                    if not is_quiet(self._connection):
                        self._renew()
                    else:
                        self._run("beat_lease", self._token)

    def _renew(self) -> None:
        """Take the lock again on a new connection, unless somebody else has it or had it meanwhile. Called under the guard."""
        with suppress(driver().Error):
            self._connection.close()
        self._connection = self._database.connect()
        with postgres_faults(self._database.address, "take a lease in"):
            if not self._try_lock():
                self._lost = self._locked(self._signed())
                return
            row = self._run("lease_token").fetchone()
            if row is None or row[0] != self._token:  # taken over, and possibly given back already
                self._lost = self._locked(self._signed())
                self._connection.close()
                return
            self._sign()

    def _try_lock(self) -> bool:
        (got,) = self._connection.execute("SELECT pg_try_advisory_lock(%s)", [_number(self._database, self._key)]).fetchone()
        return bool(got)

    def _sign(self) -> None:
        self._run("sign_lease", self._token, self.mine.name, self.mine.host, self.mine.pid, self.mine.since)

    def _signed(self) -> Holder | None:
        row = self._run("lease_signed").fetchone()
        return None if row is None else _holder(row)

    def _run(self, query: str, *values: Any) -> Any:
        return self._connection.execute(self._sql[query], [self._key, *values])

    def _locked(self, holder: Holder | None) -> Locked:
        return held_by(f"{self._key} in {self._database.shown}", holder, self._database.shown)


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
