"""Server-sent events that can be left and joined again (O3).

A stream is a ring of frames, each encoded once and shared by all who listen. Ids only grow. Who comes back with the id of the last event
it saw gets what came since, or a `reset` if that is gone: fetch the state anew and follow from there. Never silence.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

KEEP_ALIVE = 15.0
"""Seconds after which a comment is sent on a quiet stream, so that nothing on the way thinks it dead."""
MEDIA_TYPE = "text/event-stream"
_RING = 5_000
_PING = b": ping\n\n"


def frame(id: str, kind: str, data: Mapping[str, Any]) -> bytes:
    """One event as it goes over the wire."""
    told = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str)
    return f"id: {id}\nevent: {kind}\ndata: {told}\n\n".encode("utf-8", "replace")


class EventStream:
    """The events of one thing (a run, everything), kept for those who listen. `publish` may be called from any thread and never waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, keep: int = _RING, dropped: Callable[[int], object] = lambda _: None) -> None:
        """`dropped` is told of how many events somebody who listens will not get, because the ring went round meanwhile."""
        self._loop, self._dropped = loop, dropped
        self.epoch = secrets.token_hex(4)
        self._ring: deque[tuple[int, bytes]] = deque(maxlen=keep)
        self._number = 0
        self._listeners: set[asyncio.Event] = set()
        self.ended = False

    @property
    def listeners(self) -> int:
        """How many follow it now."""
        return len(self._listeners)

    def publish(self, kind: str, data: Mapping[str, Any], *, last: bool = False) -> None:
        """Tell everybody. After the `last` one there is nothing more."""
        try:
            self._loop.call_soon_threadsafe(self._put, kind, data, last)
        except RuntimeError:  # the server is gone, and with it all who listened
            return

    def _put(self, kind: str, data: Mapping[str, Any], last: bool) -> None:
        if self.ended:
            return
        self._number += 1
        self._ring.append((self._number, frame(f"{self.epoch}-{self._number}", kind, data)))
        self.ended = last
        for waiting in self._listeners:
            waiting.set()

    async def follow(self, last_id: str | None = None, *, wait: bool = True) -> AsyncIterator[bytes]:
        """The frames after this id as they come, several at once when several are there; without `wait` only those that are there."""
        at, reset = self._place(last_id)
        if reset is not None:
            yield reset
        woken = asyncio.Event()
        self._listeners.add(woken)
        try:
            while True:
                woken.clear()
                if self._ring and self._ring[-1][0] > at:
                    new = list(itertools.islice(self._ring, max(0, at + 1 - self._ring[0][0]), None))
                    if new[0][0] > at + 1:  # this listener was so slow that the ring went round
                        self._dropped(new[0][0] - at - 1)
                        yield self._reset(new[0][0] - 1)
                    at = new[-1][0]
                    yield b"".join(data for _, data in new)
                    continue
                if self.ended or not wait:
                    return
                try:
                    await asyncio.wait_for(woken.wait(), KEEP_ALIVE)
                except TimeoutError:
                    yield _PING
        finally:
            self._listeners.discard(woken)

    def _place(self, last_id: str | None) -> tuple[int, bytes | None]:
        oldest = self._ring[0][0] if self._ring else self._number + 1
        if not last_id:
            return 0 if oldest == 1 else oldest - 1, None
        epoch, _, number = last_id.rpartition("-")
        at = int(number) if number.isdecimal() and len(number) < 18 else -1
        if epoch == self.epoch and oldest - 1 <= at <= self._number:
            return at, None
        if epoch == self.epoch and 0 <= at < oldest:
            self._dropped(oldest - 1 - at)
        return oldest - 1, self._reset(oldest - 1)

    def _reset(self, at: int) -> bytes:
        return frame(f"{self.epoch}-{at}", "reset", {"why": "what you saw last is no longer here: fetch the state anew"})
