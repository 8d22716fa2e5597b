"""The limits of models, kept over all workers in PostgreSQL (W17).

A call at once is a slot `model:k`, an advisory lock that ends with its connection, so what a killed worker had is free at once. Calls in a
minute are a row with what is left. While the database is away nothing can be counted and calls wait; a stage's own time-out goes on.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from holdfast.durable.postgres import is_quiet, lock_key
from holdfast.durable.postgres_connection import driver, postgres_faults
from holdfast.errors import StoreUnavailable
from holdfast.events import Bus
from holdfast.events import bus as process_bus
from holdfast.models.call_limits import CallLimit, kept_by
from holdfast.workers.queue_events import CallWaits
from holdfast.workers.session_queue import SessionQueue

_Slot = tuple[int, Any]
_LOOK = 0.2
_LONG = 5.0


@contextmanager
def shared_limits(queue: SessionQueue) -> Iterator[None]:
    """Inside of the `with` the models of this process keep their limits together with all other workers."""
    limiter = SharedLimiter(queue)
    try:
        with kept_by(limiter):
            yield
    finally:
        limiter.close()


class SharedLimiter:
    """A `Limiter` over all processes that use this database. Safe for many threads."""

    def __init__(self, queue: SessionQueue, *, bus: Bus = process_bus) -> None:
        self._queue = queue
        self._bus = bus
        self._guard = threading.Lock()
        self._connection: Any = None
        self._mine: dict[int, Any] = {}
        """The slots that this process has, and the connection on which: an advisory lock can be taken twice by one that has it."""

    def close(self) -> None:
        with self._guard:
            if self._connection is not None:
                self._connection.close()

    @contextmanager
    def call(self, limit: CallLimit) -> Iterator[None]:
        slot = self._wait(limit)
        try:
            yield
        finally:
            if slot is not None:
                self._give_back(slot)

    def _wait(self, limit: CallLimit) -> _Slot | None:
        began, said = time.monotonic(), False
        while True:
            with suppress(StoreUnavailable):
                slot = self._slot(limit) if limit.concurrent is not None else None
                if limit.concurrent is None or slot is not None:
                    if limit.per_minute is None or self._counted(limit):
                        return slot
                    if slot is not None:
                        self._give_back(slot)
            if not said and time.monotonic() - began > _LONG:
                self._bus.emit(CallWaits(model=limit.model))
                said = True
            time.sleep(_LOOK * random.uniform(0.5, 1.5))  # noqa: S311 - so that not all look at once

    def _counted(self, limit: CallLimit) -> bool:
        with self._queue.database.transaction() as step:
            values = {"model": limit.model, "burst": limit.burst, "rate": limit.rate}
            return step.one(self._queue.sql["take_call"], values) is not None

    def _slot(self, limit: CallLimit) -> _Slot | None:
        database = self._queue.database
        with self._guard, postgres_faults(database.address, "count calls in"):
            connection = self._connection
            if connection is None or not is_quiet(connection):
                if connection is not None:
                    connection.close()
                connection = self._connection = database.connect()
            for key in slots(database.schema, limit):
                if self._mine.get(key) is connection:
                    continue
                (got,) = connection.execute("SELECT pg_try_advisory_lock(%s)", [key]).fetchone()
                if got:
                    self._mine[key] = connection
                    return key, connection
        return None

    def _give_back(self, slot: _Slot) -> None:
        key, connection = slot
        with self._guard, suppress(driver().Error):  # a connection that is gone has given it back
            if key in self._mine and self._mine[key] is connection:
                del self._mine[key]
                if not connection.closed:
                    connection.execute("SELECT pg_advisory_unlock(%s)", [key])


def slots(schema: str, limit: CallLimit) -> list[int]:
    """The locks of a model, one for each call at once."""
    return [lock_key(schema, "model", limit.model, str(number)) for number in range(limit.concurrent or 0)]
