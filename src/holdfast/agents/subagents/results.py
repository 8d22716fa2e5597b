"""What a sub-agent gives back, and what is told of it while it runs: plain mappings for the parent's custom stream, events for the bus.

A failure is a result as well, never an exception in the parent (A4, A6, O2).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from holdfast.events import (
    Artifacts,
    Bus,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskOutput,
    TaskStarted,
    TaskThread,
    TaskTimedOut,
    TaskTurn,
)

Status = Literal["completed", "failed", "timed_out", "cancelled", "turn_capped", "token_capped"]
NO_RESPONSE = "No response"


@dataclass(frozen=True)
class SubagentResult:
    """How a sub-agent ended, and its work up to then: its last words and the files it made."""

    id: str
    thread: str
    status: Status
    output: str = NO_RESPONSE
    artifacts: tuple[str, ...] = ()
    turns: int = 0
    tokens: int = 0
    seconds: float = 0.0
    reason: str = ""
    """Why it failed; empty otherwise."""

    @property
    def done(self) -> bool:
        """Whether it ended by itself with an answer."""
        return self.status == "completed"

    @property
    def capped(self) -> bool:
        """Whether a limit of turns or tokens ended it; its work up to then is here."""
        return self.status in ("turn_capped", "token_capped")

    def text(self) -> str:
        """What the parent's model reads."""
        head = self._head()
        partial = f"Its work up to then:\n{self.output}" if head and self.output != NO_RESPONSE else self.output
        files = "Files: " + ", ".join(self.artifacts) if self.artifacts else ""
        return "\n\n".join(part for part in (head, partial, files) if part)

    def _head(self) -> str:
        match self.status:
            case "failed":
                return f"The sub-agent failed: {self.reason}"
            case "timed_out":
                return f"The sub-agent was stopped after {self.seconds:.0f} seconds."
            case "cancelled":
                return "The sub-agent was cancelled."
            case "turn_capped":
                return f"The sub-agent was stopped after {self.turns} turns, before it was done."
            case "token_capped":
                return f"The sub-agent was stopped after {self.tokens} tokens, before it was done."
            case "completed":
                return ""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {**asdict(self), "artifacts": list(self.artifacts)}


Kind = Literal["task_started", "task_running", "task_completed", "task_failed", "task_timed_out", "task_cancelled"]
Emit = Callable[[dict[str, Any]], None]

_ENDS: dict[str, Kind] = {"failed": "task_failed", "timed_out": "task_timed_out", "cancelled": "task_cancelled"}
_LOGGED = 500


@dataclass(frozen=True)
class TaskReporter:
    """Reports what one sub-agent does, to the parent's stream and the bus. A listener that has gone away is no reason to stop."""

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
        self.bus.emit(TaskOutput(output=_logged(result.output)))
        self.bus.emit(Artifacts(artifacts=result.artifacts))

    def _send(self, kind: Kind, **values: Any) -> None:
        if self.emit is None:
            return
        try:
            self.emit({"type": kind, **self.head, **values})
        except Exception:  # the parent's stream may be closed by now, in any way; the work goes on
            logging.getLogger("holdfast.SubagentExecutor").debug("nobody takes %s any more", kind, exc_info=True)


def _logged(text: str) -> str:
    return text if len(text) <= _LOGGED else f"{text[:_LOGGED]} ..."
