"""A store that is away for a while does not cost the work in hand: whoever has some waits until the store is back (W17, W15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast.clock import Clock
from holdfast.errors import StoreUnavailable

LONGEST_OUTAGE = 600.0
"""Seconds that are waited for a store at most."""
_PAUSE = 0.2

T = TypeVar("T")


def outlasted(
    work: Callable[[], T],
    clock: Clock,
    *,
    is_over: Callable[[], bool],
    told: Callable[[StoreUnavailable], None] = lambda _: None,
) -> T:
    """What `work` gives, tried again while its store is unavailable: nothing was done then. `told` hears of it once.

    StoreUnavailable once somebody says that it is over, and after LONGEST_OUTAGE seconds. Whatever else fails does so at once.
    """
    until: float | None = None
    while True:
        try:
            return work()
        except StoreUnavailable as error:
            if until is None:
                until = clock.monotonic() + LONGEST_OUTAGE
                told(error)
            if clock.monotonic() >= until or is_over():
                raise
        clock.sleep(_PAUSE)
