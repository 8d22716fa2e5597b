"""A fake clock whose hands the test turns, and ids that count.

`sleep` does not wait: it turns the hands itself, and wakes every thread whose time has come. A test that wants sleepers to
wait until it says so makes the clock with `holds=True` and calls `advance`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from holdfast.clock import Clock, IdSource
from holdfast.errors import InputError

_START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
_NANO = 1_000_000_000


class FakeClock(Clock):
    """A clock that stands still until somebody sleeps or `advance` is called. Safe for many threads.

    `sleeps` lists every sleep asked for, in order; `waiting` says how many threads wait now.
    """

    def __init__(self, start: datetime = _START, *, holds: bool = False) -> None:
        if start.tzinfo is None:
            raise InputError("a clock needs a start with its zone.", hint="Give datetime(..., tzinfo=UTC).")
        self.holds = holds
        self._turned = threading.Condition()
        self._now = start.astimezone(UTC)
        self._elapsed = 0  # in nanoseconds: ten times 0.1 seconds must be one second
        self._sleeps: list[float] = []
        self._deadlines: list[int] = []
        self._released = False

    def now(self) -> datetime:
        with self._turned:
            return self._now

    def monotonic(self) -> float:
        with self._turned:
            return self._elapsed / _NANO

    def sleep(self, seconds: float) -> None:
        """Turn the hands by `seconds`; with `holds`, wait until somebody else has turned them that far."""
        if seconds < 0:
            raise InputError(f"nobody can sleep for {seconds} seconds.", hint="Give a length of 0 or more.")
        with self._turned:
            self._sleeps.append(seconds)
            if not self.holds:
                self._turn(seconds)
                return
            self._wait(self._elapsed + _ticks(seconds), None)

    def wait_until(self, moment: float, *, patience: float | None = 10.0) -> bool:
        """Wait until `monotonic()` has reached `moment`, whoever turns the hands. False when real time (`patience`) ran out."""
        with self._turned:
            return self._wait(_ticks(moment), patience)

    def advance(self, seconds: float) -> None:
        """Turn the hands forward and wake everyone whose time has come."""
        if seconds < 0:
            raise InputError(f"the clock cannot be advanced by {seconds} seconds.", hint="`set` turns the wall clock back.")
        with self._turned:
            self._turn(seconds)

    def set(self, moment: datetime) -> None:
        """Change the wall clock, forward or back, as an administrator would. `monotonic` does not notice."""
        if moment.tzinfo is None:
            raise InputError("a clock is set to a moment with its zone.", hint="Give datetime(..., tzinfo=UTC).")
        with self._turned:
            self._now = moment.astimezone(UTC)

    @property
    def sleeps(self) -> tuple[float, ...]:
        with self._turned:
            return tuple(self._sleeps)

    @property
    def waiting(self) -> int:
        with self._turned:
            return len(self._deadlines)

    def next_deadline(self) -> float | None:
        """The earliest moment that somebody waits for, as `monotonic` tells it."""
        with self._turned:
            return min(self._deadlines) / _NANO if self._deadlines else None

    def await_sleepers(self, count: int = 1, *, patience: float = 10.0) -> bool:
        """Wait, in real time, until `count` threads wait for this clock. False when `patience` ran out."""
        with self._turned:
            return self._turned.wait_for(lambda: len(self._deadlines) >= count, patience)

    def release(self) -> None:
        """Wake everybody and let nobody wait again: for the end of a test."""
        with self._turned:
            self._released = True
            self._turned.notify_all()

    @contextmanager
    def running(self) -> Iterator[FakeClock]:
        """`with clock.running():` releases all sleepers at the end, so that no thread outlives its test."""
        try:
            yield self
        finally:
            self.release()

    def _turn(self, seconds: float) -> None:
        self._elapsed += _ticks(seconds)
        self._now += timedelta(seconds=seconds)
        self._turned.notify_all()

    def _wait(self, moment: int, patience: float | None) -> bool:
        self._deadlines.append(moment)
        self._turned.notify_all()  # `await_sleepers` looks at the list
        try:
            return self._turned.wait_for(lambda: self._released or self._elapsed >= moment, patience)
        finally:
            self._deadlines.remove(moment)


def _ticks(seconds: float) -> int:
    return round(seconds * _NANO)


class CountingIds(IdSource):
    """`run-000001`, `run-000002`, ...: each prefix counts for itself. Safe for many threads.

    >>> ids = CountingIds()
    >>> ids.new("run"), ids.new("run"), ids.new("fact"), ids.new()
    ('run-000001', 'run-000002', 'fact-000001', '000001')
    """

    def __init__(self, *, start: int = 1) -> None:
        self._lock = threading.Lock()
        self._made: Counter[str] = Counter()
        self._start = start

    def new(self, prefix: str = "") -> str:
        with self._lock:
            number = self._start + self._made[prefix]
            self._made[prefix] += 1
        return f"{prefix}-{number:06}" if prefix else f"{number:06}"
