"""A client that asks the very same thing again because it never heard the answer gets that answer, and the model is asked once (O3).

It is a repeat when the client says so (the retry count of OpenAI's and Anthropic's clients, an `Idempotency-Key`), or when the first answer
went into a broken connection. Any other equal request is meant: somebody wants another answer, and it becomes a branch.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from holdfast.server.gateway.gateway_core import CallPart, Done, Opened, Piece, Text

KEPT_SECONDS = 60.0
_MOST = 256
_HEADERS = ("x-holdfast-thread", "x-holdfast-memory", "x-holdfast-learn", "idempotency-key")


@dataclass
class _Entry:
    """One answer, or the work on it. `unheard`: nobody was there any more when it was ready."""

    work: asyncio.Future[Done]
    at: float
    unheard: bool = False


class Repeats:
    """The newest answers. Used on the server's loop alone."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    async def answered(self, key: str, again: bool, ask: Callable[[], Awaitable[Done]]) -> Done:
        """The answer to a request: that of its first try, if it is a repeat of one, else a new one. Leaving does not stop the work."""
        held = self._held(key, again)
        if held is None:
            held = self._put(key, asyncio.ensure_future(ask()))
        try:
            return await asyncio.shield(held.work)
        except asyncio.CancelledError:
            held.unheard = True
            raise

    def heard(self, key: str) -> Done | None:
        """The answer that is ready for a repeat of a request that was streamed."""
        held = self._held(key, True)
        return held.work.result() if held is not None and held.work.done() and held.work.exception() is None else None

    def keep(self, key: str, done: Done) -> None:
        """An answer that was streamed to its end."""
        work: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        work.set_result(done)
        self._put(key, work)

    def unheard(self, key: str) -> None:
        """The client had gone when its answer was ready."""
        if (held := self._entries.get(key)) is not None:
            held.unheard = True

    def _held(self, key: str, again: bool) -> _Entry | None:
        found = self._entries.get(key)
        if found is None or self._clock() - found.at > KEPT_SECONDS or not (again or found.unheard):
            return None
        if found.work.done() and (found.work.cancelled() or found.work.exception() is not None):
            return None  # it failed: the repeat is a new try
        found.unheard = False
        return found

    def _put(self, key: str, work: asyncio.Future[Done]) -> _Entry:
        entry = self._entries[key] = _Entry(work, self._clock())
        self._entries.move_to_end(key)
        work.add_done_callback(lambda done: None if done.cancelled() else done.exception())  # who waits for it hears of it
        work.add_done_callback(lambda done: setattr(entry, "at", self._clock()))
        while len(self._entries) > _MOST:
            self._entries.popitem(last=False)
        return entry


def key_of(path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """What makes two requests the same."""
    said = [path, {name: headers.get(name) for name in _HEADERS}, dict(body)]
    return blake2b(json.dumps(said, sort_keys=True, ensure_ascii=False).encode("utf-8", "replace"), digest_size=20).hexdigest()


def is_again(headers: Mapping[str, str]) -> bool:
    """Whether the client says that this is a repeat."""
    count = headers.get("x-stainless-retry-count", "")
    return "idempotency-key" in headers or (count.isdecimal() and len(count) < 4 and int(count) > 0)


async def told_again(done: Done) -> AsyncIterator[Piece]:
    """The pieces of an answer that was given before."""
    yield Opened(done.thread, done.how, done.tokens, done.compacted)
    if text := str(done.answer.get("content") or ""):
        yield Text(text)
    for number, call in enumerate(done.answer.get("tool_calls") or ()):
        yield CallPart(number, call["id"], call["function"]["name"], call["function"]["arguments"])
    yield done
