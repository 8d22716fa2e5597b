"""How much of their windows models are sent by now, as the agents of this server learned it: after a refusal, or a cut (S10, T1, O3)."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import TypedDict

from holdfast.events import Event
from holdfast.tokens.windows import RequestsTruncated, WindowForgotten, WindowLearned

_KINDS = (WindowLearned, WindowForgotten, RequestsTruncated)


class LearnedWindow(TypedDict):
    """So many tokens are sent at most. `minutes` is for how long still; None until the server ends."""

    tokens: int
    reason: str
    minutes: int | None


class ModelWindows:
    """A sink of the bus that keeps the newest of what was learned of each model, by the provider's name for it. Safe for many threads."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._refused: dict[str, tuple[int, float]] = {}
        self._cut: dict[str, int] = {}
        self._guard = threading.Lock()

    def wants(self, kind: type[Event]) -> bool:
        """Only what says something of a window."""
        return issubclass(kind, _KINDS)

    def __call__(self, event: Event) -> None:
        """Keep it."""
        with self._guard:
            if isinstance(event, WindowLearned):
                self._refused[event.model] = event.window, self._now() + 60 * event.minutes
            elif isinstance(event, WindowForgotten):
                self._refused.pop(event.model, None)
            elif isinstance(event, RequestsTruncated):
                self._cut[event.model] = event.window

    def of(self, model: str) -> LearnedWindow | None:
        """What is held of a model now; None where all of its window is used."""
        tokens, until = self._refused.get(model, (0, 0.0))
        left = until - self._now()
        if left > 0 and tokens <= self._cut.get(model, tokens):
            return {"tokens": tokens, "reason": "it refused a longer request", "minutes": math.ceil(left / 60)}
        if model in self._cut:
            return {"tokens": self._cut[model], "reason": "it cuts longer requests without a word", "minutes": None}
        return None
