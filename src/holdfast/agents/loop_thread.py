"""One asyncio loop in a thread of its own, on which conversations and sub-agents run.

Sync and async callers thereby share one way of running, one way of stopping and one cap: what is cancelled stops at once, also when the
caller is sync. Everything starts in an empty context, so that nothing of the caller (callbacks, tags, another graph's settings) leaks in.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")
_WORKERS = 64  # blocking tools and files of everything that runs on the loop


class LoopThread:
    """A loop that is started when it is first needed. Close it when done; what still runs is cancelled then."""

    def __init__(self, name: str = "holdfast-agents") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the loop is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix=f"{self._name}-worker")
                self._loop.set_default_executor(self._pool)
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
            return self._loop

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it on the loop, in an empty context. Cancelling what is returned cancels it."""
        return contextvars.Context().run(asyncio.run_coroutine_threadsafe, work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the loop and wait. Not to be called from the loop itself."""
        return self.submit(work).result()

    def close(self, timeout: float = 5.0) -> None:
        """Cancel what runs, wait for it for a moment, and stop. A blocking call that does not return is left behind."""
        with self._lock:
            self._closed = True
            loop, thread, pool = self._loop, self._thread, self._pool
            self._loop = self._thread = self._pool = None
        if loop is None or thread is None or pool is None:
            return
        ended = asyncio.run_coroutine_threadsafe(_cancel_all(), loop)
        with suppress(Exception):  # whatever the cancelled ones raise has nobody left to hear it
            ended.result(timeout)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout)
        pool.shutdown(wait=False, cancel_futures=True)
        if not thread.is_alive():
            loop.close()


async def _cancel_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
