"""How many calls of a model are made at once and in a minute: `max_concurrent` and `requests_per_minute` of an entry in `models:`.

`limited` puts the limits around a chat model. Who keeps them is a `Limiter`: by default this process alone; workers put one in its place
that all of them share (`workers/model_limits.py`). LangChain is only touched through the model that is given.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

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
