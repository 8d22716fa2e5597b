"""What is told of a sub-agent while it runs: to the parent's custom stream as plain mappings, and to the bus as log lines (A6, O2)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from holdfast.agents.subagents.results import SubagentResult
from holdfast.events import Artifacts, Bus, Event, TaskCompleted, TaskOutput, TaskStarted, TaskThread, TaskTurn

Kind = Literal["task_started", "task_running", "task_completed", "task_failed", "task_timed_out", "task_cancelled"]
Emit = Callable[[dict[str, Any]], None]

_ENDS: dict[str, Kind] = {"failed": "task_failed", "timed_out": "task_timed_out", "cancelled": "task_cancelled"}
_LOGGED = 500


class _Ended(Event):
    component: ClassVar[str] = "SubagentExecutor"
    level: ClassVar[int] = logging.WARNING


@dataclass(frozen=True, kw_only=True)
class TaskFailed(_Ended):
    """A sub-agent failed."""

    text: ClassVar[str] = "Task failed after {turns} turns: {reason}"
    turns: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class TaskTimedOut(_Ended):
    """A sub-agent took too long."""

    text: ClassVar[str] = "Task timed out after {seconds}s, {turns} turns"
    turns: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TaskCancelled(_Ended):
    """A sub-agent was cancelled."""

    text: ClassVar[str] = "Task cancelled after {turns} turns"
    turns: int


@dataclass(frozen=True)
class Teller:
    """Tells what one sub-agent does, to whoever listens. A listener that has gone away is no reason to stop."""

    bus: Bus
    emit: Emit | None
    head: dict[str, Any] = field(default_factory=dict)
    """What every event says: the ids of task, thread and call, and the description."""

    def started(self, description: str, thread: str, max_turns: int) -> None:
        """It has its place and begins."""
        self._send("task_started", max_turns=max_turns)
        self.bus.emit(TaskStarted(description=description))
        self.bus.emit(TaskThread(thread=thread))

    def turn(self, turn: int, max_turns: int, text: str, tools: list[str]) -> None:
        """It finished a turn: what it said and what it calls next."""
        self._send("task_running", turn=turn, max_turns=max_turns, text=text, tools=tools)
        self.bus.emit(TaskTurn(turn=turn, max_turns=max_turns))

    def ended(self, result: SubagentResult) -> None:
        """It ended, in whatever way."""
        kind = _ENDS.get(result.status, "task_completed")
        more: dict[str, Any] = {"result": result.as_dict()}
        if kind == "task_completed":
            more["stop_reason"] = result.status
        self._send(kind, **more)
        if kind == "task_completed":
            self.bus.emit(TaskCompleted(turns=result.turns))
        elif kind == "task_failed":
            self.bus.emit(TaskFailed(turns=result.turns, reason=result.reason))
        elif kind == "task_timed_out":
            self.bus.emit(TaskTimedOut(turns=result.turns, seconds=round(result.seconds, 1)))
        else:
            self.bus.emit(TaskCancelled(turns=result.turns))
        self.bus.emit(TaskOutput(output=_short(result.output)))
        self.bus.emit(Artifacts(artifacts=result.artifacts))

    def _send(self, kind: Kind, **values: Any) -> None:
        if self.emit is None:
            return
        try:
            self.emit({"type": kind, **self.head, **values})
        except Exception:  # the parent's stream may be closed by now, in any way; the work goes on
            logging.getLogger("holdfast.SubagentExecutor").debug("nobody takes %s any more", kind, exc_info=True)


def _short(text: str) -> str:
    return text if len(text) <= _LOGGED else f"{text[:_LOGGED]} ..."
