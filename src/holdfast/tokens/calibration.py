"""Correcting our counts by what the provider reports, for each model, without a clamp on where the correction may go.

The factor moves in logarithms, so that twice too many and half too few weigh alike. One report can move it only a bounded step, so a single
odd one does little harm; reports that agree with each other widen the step, so a factor of three is reached in a few calls.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.tokens.usage import Usage

_FIRST_STEP = math.log(1.25)
"""How far one report may move the factor when those before did not point the same way."""
_SMALL = 200
"""Requests of about this size count half: what a provider adds to every request would pass for an error of the vocabulary."""
_SLOWEST = 0.25
"""The weight of a report when there were many."""
_AGREEMENT = math.log(1.02)
"""Reports closer than this to the factor point nowhere: they are noise."""
_SCHEMA = 1


@dataclass(frozen=True)
class _State:
    log_factor: float = 0.0
    reports: int = 0
    run: int = 0
    """How many reports in a row pointed the same way; negative when they pointed down."""

    def after(self, counted: int, reported: int) -> _State:
        distance = math.log(reported / counted) - self.log_factor
        way = 0 if abs(distance) < _AGREEMENT else 1 if distance > 0 else -1
        run = self.run + way if way and self.run * way >= 0 else way
        bound = _FIRST_STEP * 2.0 ** min(20, max(0, abs(run) - 1))
        weight = max(_SLOWEST, 1 / (self.reports + 1)) if abs(run) < 2 else 0.6
        step = weight * distance * counted / (counted + _SMALL)
        return _State(self.log_factor + max(-bound, min(bound, step)), self.reports + 1, run)


class Calibration:
    """A correction factor for each model, learned from reported usage. Safe for many threads.

    `observe` takes our *uncorrected* count of the very request that was reported on. Absent, zero and senseless reports change nothing.
    """

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}
        self._lock = threading.Lock()

    def observe(self, model: str, counted: int, reported: object) -> float:
        """Learn from one report (a number of input tokens, a usage mapping or a message that carries one); returns the factor now."""
        tokens = self._input_tokens(reported)
        with self._lock:
            state = self._states.get(model, _State())
            if tokens > 0 and counted > 0:
                state = self._states[model] = state.after(counted, tokens)
            return math.exp(state.log_factor)

    @staticmethod
    def _input_tokens(reported: object) -> int:
        if isinstance(reported, bool) or reported is None:
            return 0
        if isinstance(reported, int | float):
            return int(reported) if math.isfinite(reported) else 0
        usage = Usage.read(reported)
        return usage.input_tokens if usage else 0

    def factor(self, model: str) -> float:
        """What our counts are multiplied with; 1 for a model without reports."""
        return math.exp(self._states.get(model, _State()).log_factor)

    def corrected(self, model: str, counted: int) -> int:
        """Our count as the provider would report it, rounded up."""
        state = self._states.get(model)
        return counted if state is None else math.ceil(counted * math.exp(state.log_factor) - 1e-9)

    def room(self, model: str, tokens: int) -> int:
        """The other way: how much of our counting fits into so many of the provider's tokens, rounded down."""
        state = self._states.get(model)
        return tokens if state is None else math.floor(tokens / math.exp(state.log_factor) + 1e-9)

    def reports(self, model: str) -> int:
        """How many reports the factor rests on."""
        return self._states.get(model, _State()).reports

    def snapshot(self) -> dict[str, Any]:
        """Plain JSON, to be kept."""
        with self._lock:
            models = {name: {"log_factor": s.log_factor, "reports": s.reports, "run": s.run} for name, s in self._states.items()}
        return {"schema": _SCHEMA, "models": models}

    @classmethod
    def restore(cls, snapshot: object) -> Calibration:
        """From a snapshot. What cannot be read is left out: a lost factor is learned again, so it is no reason to stop."""
        calibration = cls()
        models = snapshot.get("models") if isinstance(snapshot, Mapping) else None
        for name, entry in models.items() if isinstance(models, Mapping) else ():
            state = _read_state(entry)
            if isinstance(name, str) and state is not None:
                calibration._states[name] = state
        return calibration


def _read_state(entry: object) -> _State | None:
    if not isinstance(entry, Mapping):
        return None
    log_factor, reports, run = entry.get("log_factor"), entry.get("reports"), entry.get("run", 0)
    if isinstance(log_factor, bool) or not isinstance(log_factor, int | float) or not math.isfinite(log_factor) or abs(log_factor) > 50:
        return None
    if not isinstance(reports, int) or not isinstance(run, int) or reports < 0:
        return None
    return _State(float(log_factor), reports, run)
