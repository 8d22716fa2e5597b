"""Time and identifiers as parameters: the clock and the source of ids that everything takes, so that tests turn the hands themselves and
get the same ids in every run; time stamps; waiting longer each time."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u to misread


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
    utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return f"{utc.isoformat(timespec='milliseconds')[:-6]}Z"


class IdSource(Protocol):
    """Makes ids that are never given twice."""

    def new(self, prefix: str = "") -> str:
        """A new id, `prefix-...` when a prefix is given. Only ASCII letters, digits and hyphens."""


_TICK, _RANDOM = 9, 10  # digits of an id


class RandomIds:
    """Ids that sort by the millisecond they were made in, with 50 random bits after it. Safe for many threads and processes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def new(self, prefix: str = "") -> str:
        with self._lock:  # the clock may stand still or go back: ids of one process still sort in the order of making
            self._last = max(self._last + 1, time.time_ns() // 1_000_000)
            tick = self._last
        body = _base32(tick, _TICK) + _base32(secrets.randbits(50), _RANDOM)
        return f"{prefix}-{body}" if prefix else body


def made_at(id: str) -> datetime | None:
    """When an id of `RandomIds` was made; None for one of another form.

    >>> made_at("message-1kpjcy7a85dm8wyhf3x")
    datetime.datetime(2026, 4, 19, 8, 15, 30, 120000, tzinfo=datetime.timezone.utc)
    """
    body = id.rpartition("-")[2]
    if len(body) != _TICK + _RANDOM or not set(body) <= set(_ALPHABET):
        return None
    tick = 0
    for digit in body[:_TICK]:
        tick = 32 * tick + _ALPHABET.index(digit)
    return datetime.fromtimestamp(tick / 1000, UTC)


def _base32(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, rest = divmod(number, 32)
        digits.append(_ALPHABET[rest])
    return "".join(reversed(digits))
