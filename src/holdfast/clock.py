"""Time as a parameter: the clock that everything takes, so that tests turn the hands themselves; time stamps; waiting longer each time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time and waits."""

    def now(self) -> datetime:
        """The current time, always with its zone (UTC)."""

    def monotonic(self) -> float:
        """Seconds that never go back. For durations only."""

    def sleep(self, seconds: float) -> None:
        """Wait at least this long."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after each failure in a row: `first`, then `factor` times as long each time, at most `longest`.

    >>> [Backoff(1.0, 5.0).pause(failures) for failures in (1, 2, 3, 4)]
    [1.0, 2.0, 4.0, 5.0]
    """

    first: float
    longest: float
    factor: float = 2.0

    def pause(self, failures: int) -> float:
        """The wait after so many failures, in the unit of `first`. Nothing has failed yet: as after the first failure."""
        return min(self.first * self.factor ** min(max(failures - 1, 0), 64), self.longest)


def stamp(moment: datetime) -> str:
    """The one written form of a moment: ISO 8601 in UTC with a `Z`, to the millisecond.

    >>> stamp(datetime(2026, 4, 19, 8, 15, 30, 120000, tzinfo=UTC))
    '2026-04-19T08:15:30.120Z'
    """
    if moment.tzinfo is None:
        raise ValueError("a moment needs its zone: naive times cannot be compared")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
