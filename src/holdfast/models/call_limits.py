"""How many calls of a model are made at once and in a minute: `max_concurrent` and `requests_per_minute` of an entry in `models:`.

`limited` puts the limits around a chat model. Who keeps them is a `Limiter`: by default this process alone; workers put one in its place
that all of them share, in PostgreSQL (`SharedLimiter`, W17). LangChain is only touched through the model that is given.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from holdfast.durable.postgres import Postgres, is_quiet, lock_key
from holdfast.durable.postgres_connection import driver, postgres_faults
from holdfast.errors import StoreUnavailable
from holdfast.events import Bus, Event
from holdfast.events import bus as process_bus

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from holdfast.config.sections import ModelConfig


@dataclass(frozen=True)
class CallLimit:
    """What one model may be asked. None is no limit."""

    model: str
    concurrent: int | None = None
    per_minute: float | None = None

    @property
    def burst(self) -> float:
        """Calls that may be made at once after a quiet time: a tenth of a minute's."""
        return max(1.0, (self.per_minute or 0.0) / 10)

    @property
    def rate(self) -> float:
        """Calls a second that are added, so that with the burst no minute has more than `per_minute`."""
        return max(((self.per_minute or 0.0) - self.burst) / 60, (self.per_minute or 0.0) / 120)


class Limiter(Protocol):
    """Makes whoever calls wait until it may."""

    def call(self, limit: CallLimit) -> AbstractContextManager[None]:
        """A call is made inside of the `with`. Waits before, for as long as it takes."""


class LocalLimiter:
    """Keeps limits within this process. Safe for many threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: dict[str, int] = {}
        self._available: dict[str, tuple[float, float]] = {}

    @contextmanager
    def call(self, limit: CallLimit) -> Iterator[None]:
        with self._changed:
            while (wait := self._to_wait(limit)) > 0.0:
                self._changed.wait(wait)
            self._running[limit.model] = self._running.get(limit.model, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                self._running[limit.model] -= 1
                self._changed.notify_all()

    def _to_wait(self, limit: CallLimit) -> float:
        """Seconds until it is worth looking again; 0 when the call may be made, which is counted then."""
        if limit.concurrent is not None and self._running.get(limit.model, 0) >= limit.concurrent:
            return 1.0
        if limit.per_minute is None:
            return 0.0
        now = time.monotonic()
        before, at = self._available.get(limit.model, (limit.burst, now))
        available = min(limit.burst, before + limit.rate * (now - at))
        taken = available >= 1.0
        self._available[limit.model] = (available - taken, now)
        return 0.0 if taken else (1.0 - available) / limit.rate


_limiter: Limiter = LocalLimiter()


@contextmanager
def kept_by(limiter: Limiter) -> Iterator[None]:
    """Inside of the `with` this one keeps the limits of all models of the process."""
    global _limiter
    before, _limiter = _limiter, limiter
    try:
        yield
    finally:
        _limiter = before


def limit_of(settings: ModelConfig) -> CallLimit | None:
    """The limits of an entry in `models:`; None where it has none."""
    if settings.max_concurrent is None and settings.requests_per_minute is None:
        return None
    return CallLimit(settings.name, settings.max_concurrent, settings.requests_per_minute)


def limited(model: BaseChatModel, settings: ModelConfig) -> BaseChatModel:
    """The model, which waits before each call until its limits allow it; as it is where it has none."""
    limit = limit_of(settings)
    if limit is None:
        return model
    model.__class__ = _limited_class(type(model), limit)
    return model


def _limited_class(cls: type[Any], limit: CallLimit) -> type[Any]:
    """A subclass of the same name in which every way to call the model is inside of the limit."""

    @asynccontextmanager
    async def held() -> AsyncIterator[None]:
        call = _limiter.call(limit)
        entering = asyncio.ensure_future(asyncio.to_thread(call.__enter__))
        try:
            await asyncio.shield(entering)
        except asyncio.CancelledError:  # it waits on in its thread, and gives back what it gets
            entering.add_done_callback(lambda done: done.exception() or call.__exit__(None, None, None))
            raise
        try:
            yield
        finally:
            call.__exit__(None, None, None)

    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        with nullcontext() if _inside.get() else _limiter.call(limit), _counted():
            return cls._generate(self, *args, **kwargs)

    async def agenerate(self: Any, *args: Any, **kwargs: Any) -> Any:
        async with nullcontext() if _inside.get() else held():
            with _counted():
                return await cls._agenerate(self, *args, **kwargs)

    def stream(self: Any, *args: Any, **kwargs: Any) -> Any:
        with nullcontext() if _inside.get() else _limiter.call(limit):
            yield from cls._stream(self, *args, **kwargs)

    async def astream(self: Any, *args: Any, **kwargs: Any) -> Any:
        async with nullcontext() if _inside.get() else held():
            async for piece in cls._astream(self, *args, **kwargs):
                yield piece

    ways = {"_generate": generate, "_agenerate": agenerate, "_stream": stream, "_astream": astream}
    inherited = vars(import_module("langchain_core.language_models").BaseChatModel)  # those of the base call one of the others
    own = {name: way for name, way in ways.items() if getattr(cls, name) is not inherited.get(name)}
    return type(cls.__name__, (cls,), {**own, "__module__": cls.__module__, "__qualname__": cls.__qualname__})


_inside: ContextVar[bool] = ContextVar("holdfast_counted_call", default=False)
"""Whether this is inside of a call that was counted: one way to call a model may go by another."""


@contextmanager
def _counted() -> Iterator[None]:
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)


# Over all workers


@dataclass(frozen=True, kw_only=True)
class CallWaits(Event):
    """A call of a model waits until the limits of all workers allow it."""

    component: ClassVar[str] = "Worker"
    text: ClassVar[str] = "A call of {model} waits for its limits"
    level: ClassVar[int] = logging.INFO

    model: str


_LOOK = 0.2
_LONG = 5.0


class SharedLimiter:
    """A `Limiter` over all processes that use this database. Safe for many threads.

    A call at once is a slot `model:k`, an advisory lock that ends with its connection, so what a killed worker had is free at once. Calls
    in a minute are a row with what is left, which the query `take_call` lowers. While the database is away nothing can be counted and
    calls wait; a stage's own time-out goes on.
    """

    def __init__(self, database: Postgres, take_call: str, *, bus: Bus = process_bus) -> None:
        self._database, self._take_call = database, take_call
        self._bus = bus
        self._guard = threading.Lock()
        self._connection: Any = None
        self._mine: set[int] = set()
        """The slots that this process has: an advisory lock can be taken twice by one that has it."""

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

    def _wait(self, limit: CallLimit) -> int | None:
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
        with self._database.transaction() as step:
            values = {"model": limit.model, "burst": limit.burst, "rate": limit.rate}
            return step.one(self._take_call, values) is not None

    def _slot(self, limit: CallLimit) -> int | None:
        database = self._database
        with self._guard, postgres_faults(database.address, "count calls in"):
            connection = self._connection
            if connection is None or not is_quiet(connection):
                if connection is not None:
                    connection.close()
                connection = self._connection = database.connect()
                for key in self._mine:  # calls go on while a server restarts, which forgets all locks: what they have is theirs again
                    connection.execute("SELECT pg_try_advisory_lock(%s)", [key])
            for key in slots(database.schema, limit):
                if key in self._mine:
                    continue
                (got,) = connection.execute("SELECT pg_try_advisory_lock(%s)", [key]).fetchone()
                if got:
                    self._mine.add(key)
                    return key
        return None

    def _give_back(self, slot: int) -> None:
        with self._guard, suppress(driver().Error):  # a connection that is gone has given it back
            self._mine.discard(slot)
            if not self._connection.closed:
                self._connection.execute("SELECT pg_advisory_unlock(%s)", [slot])


def slots(schema: str, limit: CallLimit) -> list[int]:
    """The locks of a model, one for each call at once."""
    return [lock_key(schema, "model", limit.model, str(number)) for number in range(limit.concurrent or 0)]
