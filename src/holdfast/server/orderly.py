"""A server that is told to stop by a signal and ends in order, with 0: what was opened around it is closed then (M8)."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn


class OrderlyServer(uvicorn.Server):
    """As uvicorn's, but SIGINT, SIGTERM and SIGHUP are not raised again at the end: to be told to stop is no failure."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """While it runs, a signal ends it."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
