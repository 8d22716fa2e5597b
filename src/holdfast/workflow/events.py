"""What happens in a workflow, as events (O2). The progress display, the log and the server all listen to these."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar

from holdfast.events import Event


@dataclass(frozen=True, kw_only=True)
class WorkflowEvent(Event):
    """Something that happened in a session."""

    component: ClassVar[str] = "WorkflowRunner"
    session: str


@dataclass(frozen=True, kw_only=True)
class StageEvent(WorkflowEvent):
    """Something that happened to one stage."""

    stage: str


@dataclass(frozen=True, kw_only=True)
class SessionStarted(WorkflowEvent):
    """A session is on disk and begins."""

    text: ClassVar[str] = "Session {session} started: {stages} stages"
    stages: int


@dataclass(frozen=True, kw_only=True)
class SessionResumed(WorkflowEvent):
    """A session goes on. `taken_over`: whoever ran it before died in the middle of it."""

    text: ClassVar[str] = "Session {session} resumed: {completed} of {stages} stages are done"
    completed: int
    stages: int
    taken_over: bool = False


@dataclass(frozen=True, kw_only=True)
class MemoriesRetrieved(WorkflowEvent):
    """Long-term memory was searched for the task."""

    text: ClassVar[str] = "Retrieved {count} memories (tag: {tag})"
    count: int
    tag: str


@dataclass(frozen=True, kw_only=True)
class StageStarted(StageEvent):
    """A stage begins."""

    text: ClassVar[str] = "Stage {number}/{stages} {stage} started ({agent})"
    number: int
    stages: int
    agent: str


@dataclass(frozen=True, kw_only=True)
class ContextEvicted(StageEvent):
    """Not everything fitted into what a stage may be given."""

    text: ClassVar[str] = "Stage {stage}: left out {evicted} to fit {limit} tokens"
    evicted: tuple[str, ...]
    limit: int


@dataclass(frozen=True, kw_only=True)
class StageSaid(StageEvent):
    """An agent says what it is doing."""

    level: ClassVar[int] = logging.DEBUG
    text: ClassVar[str] = "Stage {stage}: {line}"
    line: str


@dataclass(frozen=True, kw_only=True)
class OutputRejected(StageEvent):
    """What a stage returned does not fit, and it is asked again."""

    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "Stage {stage}: the output does not fit ({problem}); asking again, {left} repairs left"
    problem: str
    left: int


@dataclass(frozen=True, kw_only=True)
class StageRetried(StageEvent):
    """A stage failed and is tried again."""

    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "Stage {stage}: {message}; trying again in {seconds}s, {left} retries left"
    message: str
    seconds: float
    left: int


@dataclass(frozen=True, kw_only=True)
class StageRaised(StageEvent):
    """An agent raised an exception; the log has the traceback below the line, from the first frame that is not the harness's own."""

    level: ClassVar[int] = logging.DEBUG
    text: ClassVar[str] = "Stage {stage} raised {error}"
    error: str
    traceback: str


@dataclass(frozen=True, kw_only=True)
class StageCompleted(StageEvent):
    """A stage's output is on disk."""

    text: ClassVar[str] = "Stage {number}/{stages} {stage} completed in {seconds}s ({tokens} tokens, confidence: {confidence})"
    number: int
    stages: int
    seconds: float
    tokens: int
    confidence: str


@dataclass(frozen=True, kw_only=True)
class StagesAdded(StageEvent):
    """A stage added others."""

    text: ClassVar[str] = "Stage {stage} added {added}"
    added: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class StageFailure(StageEvent):
    """A stage failed for good."""

    level: ClassVar[int] = logging.ERROR
    text: ClassVar[str] = "Stage {stage} failed ({failure}): {message}"
    failure: str
    message: str


@dataclass(frozen=True, kw_only=True)
class StageSkipped(StageEvent):
    """A stage failed, and the session goes on without it."""

    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "Stage {stage} skipped: {message}"
    message: str


@dataclass(frozen=True, kw_only=True)
class StageWaiting(StageEvent):
    """A stage's output waits for a person."""

    text: ClassVar[str] = "Stage {stage} waits for approval"


@dataclass(frozen=True, kw_only=True)
class StageApproved(StageEvent):
    """A person agreed with what a stage wrote, or with a call that it wants to make."""

    text: ClassVar[str] = "Stage {stage} was approved"


@dataclass(frozen=True, kw_only=True)
class StageRejected(StageEvent):
    """A person refused what a stage wrote, or a call that it wants to make."""

    text: ClassVar[str] = "Stage {stage} was rejected: {why}"
    why: str


@dataclass(frozen=True, kw_only=True)
class OutputFixed(StageEvent):
    """A person put an output in place of what a stage wrote."""

    text: ClassVar[str] = "Stage {stage}: a person corrected the output"


@dataclass(frozen=True, kw_only=True)
class SessionCancelled(WorkflowEvent):
    """A person cancelled a session that nobody ran."""

    text: ClassVar[str] = "Session {session} was cancelled"


@dataclass(frozen=True, kw_only=True)
class CheckpointWritten(WorkflowEvent):
    """A recovery point is on disk."""

    level: ClassVar[int] = logging.DEBUG
    text: ClassVar[str] = "Checkpoint {name} written"
    name: str


@dataclass(frozen=True, kw_only=True)
class FindingsStored(WorkflowEvent):
    """The findings are in long-term memory."""

    text: ClassVar[str] = "Stored {added} new findings of {count} (tag: {tag})"
    added: int
    count: int
    tag: str


@dataclass(frozen=True, kw_only=True)
class SessionEnded(WorkflowEvent):
    """The run is over: completed, paused, halted or cancelled."""

    text: ClassVar[str] = "Session {session} {status} after {seconds}s"
    status: str
    seconds: float
