"""What happens in a workflow, as events (O2), and the journal of a session in which anybody can follow them (O4).

The progress display, the log and the server all listen to the events. The journal is for those who are elsewhere, another terminal or
another machine, whoever runs the session:

    sessions/ID/events.ndjson        one event a line, in the form of `events.envelope_of`; `id` is its number, which only grows

The session itself is the truth and is written durably; the journal is for watching and is not. Where sessions are in a database the journal
is a log there (`sessions/ID/events.jsonl`). Whoever runs the session holds it, so there is one writer at a time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from holdfast.durable.line_log import LineLog
from holdfast.errors import StorageError
from holdfast.events import Bus, Event, envelope_of
from holdfast.session.state import check_session_id
from holdfast.session.store import SessionStore
from holdfast.storage.backend import Append
from holdfast.storage.files import FileBackend


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
class StoreAway(WorkflowEvent):
    """The session's store cannot be reached. What was done is kept in hand, and committed when it is back."""

    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "Session {session} waits for its store ({problem}); nothing that was done is given up"
    problem: str


@dataclass(frozen=True, kw_only=True)
class CheckpointWritten(WorkflowEvent):
    """A recovery point is on disk."""

    level: ClassVar[int] = logging.DEBUG
    text: ClassVar[str] = "Checkpoint {name} written"
    name: str


@dataclass(frozen=True, kw_only=True)
class FindingsStored(WorkflowEvent):
    """Findings and summaries are in long-term memory. `findings` and `summaries` are new; `count` are all, also those that were there."""

    text: ClassVar[str] = "Stored {findings} new findings and {summaries} new summaries, of {count} in all (tag: {tag})"
    findings: int
    summaries: int
    count: int
    tag: str


@dataclass(frozen=True, kw_only=True)
class SessionEnded(WorkflowEvent):
    """The run is over: completed, paused, halted or cancelled."""

    text: ClassVar[str] = "Session {session} {status} after {seconds}s"
    status: str
    seconds: float


_MOMENT = 0.1
"""Seconds for which events wait for others to be written with, where each writing is a transaction."""


@dataclass(frozen=True)
class JournalPage:
    """Events of a journal, and the place from which on `read` finds those that come later."""

    events: tuple[Mapping[str, Any], ...]
    place: object = None


class SessionJournal:
    """The journal of one session. Safe for many threads."""

    def __init__(self, store: SessionStore, session: str) -> None:
        self.session = check_session_id(session)
        self._backend, folder = store.backend, f"{store.prefix}/{session}"
        self._lines = (
            LineLog(store.backend.path(f"{folder}/events.ndjson"), disk=store.backend.disk)
            if isinstance(store.backend, FileBackend)
            else None
        )
        self._key = f"{folder}/events.jsonl"
        self._lock = threading.Lock()
        self._number: int | None = None
        self._waiting: list[Mapping[str, Any]] = []
        self._timer: threading.Timer | None = None

    def read(self, place: object = None) -> JournalPage:
        """The events from a place that an earlier reading gave, or from the beginning."""
        if self._lines is not None:
            found, end = self._lines.read(place if isinstance(place, int) else 0)
            return JournalPage(tuple(found), end)
        log = self._backend.read(self._key, after=place if isinstance(place, str) else None)
        return JournalPage(log.records, log.mark)

    def add(self, event: Event) -> None:
        """Add an event. What cannot be written is said in the log: the run goes on, and stops by itself if its session cannot be kept.

        In a database those of a moment are written together, so that watching costs a run less than its commits do.
        """
        try:
            with self._lock:
                number = (self._newest() if self._number is None else self._number) + 1
                line = envelope_of(event, str(number))
                if self._lines is not None:
                    self._lines.append(line)
                else:
                    self._waiting.append(line)
                    self._write_soon()
                self._number = number
        except StorageError as error:
            self._complain(error)

    def _write_soon(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(_MOMENT, self.flush)
            self._timer.daemon = True
            self._timer.start()

    def flush(self) -> None:
        """Write what waits to be written together."""
        try:
            with self._lock:
                timer, self._timer = self._timer, None
                lines, self._waiting = self._waiting, []
                if timer is not None:
                    timer.cancel()
                if lines:
                    self._backend.write(Append(self._key, lines, as_one=False))
        except StorageError as error:
            self._complain(error)

    def _complain(self, error: StorageError) -> None:
        logging.getLogger("holdfast.workflow").warning("an event of %s could not be noted: %s", self.session, error.public)

    @contextmanager
    def kept(self, bus: Bus) -> Iterator[None]:
        """Inside of the `with` what is told of the session on the bus is added."""
        unsubscribe = bus.subscribe(_Sink(self))
        try:
            yield
        finally:
            unsubscribe()
            self.flush()

    def _newest(self) -> int:
        last = self._lines.last() if self._lines is not None else next(reversed(self._backend.read(self._key).records), None)
        number = str(last["id"]) if last is not None else "0"
        return int(number) if number.isdecimal() else 0


@dataclass(frozen=True)
class _Sink:
    journal: SessionJournal

    def wants(self, kind: type[Event]) -> bool:
        return issubclass(kind, WorkflowEvent)

    def __call__(self, event: Event) -> None:
        if isinstance(event, WorkflowEvent) and event.session == self.journal.session:
            self.journal.add(event)
