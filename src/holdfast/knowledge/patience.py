"""What a store does about an embedder, or a vector store, that fails: nothing is lost, it is said once, and it is left alone for a while.

One that does not answer is asked nothing until its rest is over: each question would wait for it. One that answers nonsense for some
texts goes on being asked for others; what it failed at waits, and is tried again after a rest of its own (K2, K5).
"""

from __future__ import annotations

from dataclasses import dataclass
from logging import WARNING
from typing import ClassVar

from holdfast.clock import Clock
from holdfast.errors import StorageError, StoreUnavailable
from holdfast.events import Bus, Event
from holdfast.validation import counted

_FIRST, _LONGEST = 5.0, 300.0  # seconds


@dataclass(frozen=True, kw_only=True)
class VectorsWait(Event):
    """The vector store or the embedder does not answer, or not with vectors."""

    component: ClassVar[str] = "Knowledge"
    text: ClassVar[str] = "{reason} Records are kept and found by their words{waits}"
    level: ClassVar[int] = WARNING
    reason: str
    waits: str = ""
    """How many there are without vectors now, as the end of the sentence."""


class _Rest:
    """A time in which something is left alone: from a few seconds up to minutes, the longer the more often it failed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until, self._wait = 0.0, _FIRST

    @property
    def over(self) -> bool:
        return self._clock.monotonic() >= self._until

    def begin(self) -> None:
        self._until = self._clock.monotonic() + self._wait
        self._wait = min(2 * self._wait, _LONGEST)

    def end(self) -> None:
        self._until, self._wait = 0.0, _FIRST


class Patience:
    """What is known of the failures of one embedder or vector store. `unit` is what of a store waits for vectors."""

    unit = "record"

    def __init__(self, clock: Clock, bus: Bus) -> None:
        self._bus = bus
        self._silent, self._failing = _Rest(clock), _Rest(clock)
        self._said: dict[str, bool] = {}
        """What was said, and whether it stays so: that some texts get no vector is not said again with each of them."""
        self.trouble = ""
        """What is wrong, in words; empty when all is well."""

    @property
    def asks(self) -> bool:
        """Whether it is worth asking now."""
        return self._silent.over

    @property
    def asks_again(self) -> bool:
        """Whether it is worth asking now for what it failed at before."""
        return self._silent.over and self._failing.over

    def failed(self, error: StorageError, waiting: int) -> None:
        """Remember what is wrong, and say it once. `waiting` is how many have no vectors now."""
        away = isinstance(error, StoreUnavailable)
        self.trouble = error.message
        self._failing.begin()
        if away:
            self._silent.begin()
        if error.message not in self._said:
            self._said[error.message] = not away
            self._bus.emit(VectorsWait(reason=error.message, waits=f"; {self._waits(waiting)}" if waiting else ""))

    def worked(self, *, waiting: bool = False) -> None:
        """It answered. While something still waits the trouble is not over."""
        self._silent.end()
        if not waiting:
            self._failing.end()
            self.trouble = ""
            self._said = {message: True for message, stays in self._said.items() if stays}

    def problem(self, waiting: int) -> str:
        """It all as a line for `Stats.problems`; empty when nothing is wrong and nothing waits."""
        return " ".join(part for part in (self.trouble, self._waits(waiting) if waiting else "") if part)

    def _waits(self, number: int) -> str:
        return f"{counted(number, f'{self.unit} waits', f'{self.unit}s wait')} for vectors"
