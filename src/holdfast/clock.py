"""Time as a parameter. Everything that needs the time takes a `Clock`, so that tests turn the hands themselves."""

from __future__ import annotations

import time
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


def stamp(moment: datetime) -> str:
    """The one written form of a moment: ISO 8601 in UTC with a `Z`, to the millisecond.

    >>> stamp(datetime(2026, 4, 19, 8, 15, 30, 120000, tzinfo=UTC))
    '2026-04-19T08:15:30.120Z'
    """
    if moment.tzinfo is None:
        raise ValueError("a moment needs its zone: naive times cannot be compared")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
