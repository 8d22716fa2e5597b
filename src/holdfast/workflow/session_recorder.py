"""Writes down what happens in a run: state transitions, stage files, recovery points, and the events that tell of them.

The runner decides, this records. For one thread, the runner's. Changes are values (`transitions.py`) until `commit` writes all of them at
once; that a stage is completed is said when it is on disk, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from holdfast.clock import Clock, stamp
from holdfast.durable.tree import sync_tree
from holdfast.errors import ApprovalWanted
from holdfast.events import Bus
from holdfast.session.output import StageOutput
from holdfast.session.state import Session, SessionError, Status, evolved, stage_files
from holdfast.session.store import SessionStore
from holdfast.workflow import events, transitions
from holdfast.workflow.definition import Stage, Workflow
from holdfast.workflow.retry_policy import AskAgain, RetryLater, told, traceback_of
from holdfast.workflow.run_settings import RecoveryPoints
from holdfast.workflow.stage_approvals import asked_record
from holdfast.workflow.stage_context import stage_markdown
from holdfast.workflow.stage_request import StageRun
from holdfast.workflow.transitions import placed

if TYPE_CHECKING:
    from holdfast.knowledge.store import AddReport


@dataclass
class SessionRecorder:
    """The session as it is now, in memory and on disk."""

    session: Session
    workflow: Workflow
    store: SessionStore
    bus: Bus
    clock: Clock
    usage: Callable[[], dict[str, Any]]
    """What was used so far, as the session keeps it."""
    points: RecoveryPoints = field(default_factory=RecoveryPoints)
    """When a recovery point is written (W5)."""
    _is_committed: bool = True
    _unsaid: list[events.WorkflowEvent] = field(default_factory=list)
    _checkpointed: int = 0
    _files: dict[str, str] = field(default_factory=dict)
    """Markdown of stages, to be written with the next commit."""

    def __post_init__(self) -> None:
        self._checkpointed = len(self.session.completed_stages)

    def change(self, session: Session) -> None:
        """The session is this from now on; nothing is written yet."""
        if session is not self.session:
            self.session = session
            self._is_committed = False

    def commit(self, running: Set[str]) -> None:
        """Make everything so far durable, with a recovery point when one is due, and then say what was to be said about it."""
        if self._is_committed:
            return
        session = evolved(placed(self.workflow, self.session, running), usage=self.usage())
        point, files, self._files = self._due_point(session), self._files, {}
        later = session.status == "running"
        self.session = self.store.commit(session, expect=self.session.revision, point=point, files=files, views_later=later)
        self._is_committed = True
        while self._unsaid:
            self._say(self._unsaid.pop(0))
        if point is not None:
            self._checkpointed = len(session.completed_stages)
            self._say(events.CheckpointWritten(session=self._id, name=point))

    def write_views(self) -> None:
        """Bring the files that people read up to date: nothing more will be committed for a while."""
        self.store.write_views(self._id)

    def _due_point(self, session: Session) -> str | None:
        if not self.points.is_due(session, self._checkpointed):
            return None
        return f"{len(session.completed_stages):03d}-{session.completed_stages[-1]}"

    def stage_started(self, run: StageRun) -> None:
        """Say so; that it runs is on disk already."""
        total, agent = len(self.workflow.stages), run.stage.agent_type
        self._say(events.StageStarted(session=self._id, stage=run.stage.name, number=run.number, stages=total, agent=agent))

    def stage_completed(self, run: StageRun, output: StageOutput, *, provisional: bool, added: tuple[Stage, ...]) -> None:
        """A stage has its output, and may have added others."""
        name, at, seconds = run.stage.name, self.now(), self._seconds(run)
        self._write_files(run, output, provisional=provisional)
        self.change(transitions.completed(self.session, self.workflow, run.stage, output, at=at, seconds=seconds, provisional=provisional))
        if added:
            self.workflow = self.workflow.with_added(added, name)
            self.change(transitions.added(self.session, added, name))
            self._say(events.StagesAdded(session=self._id, stage=name, added=tuple(stage.name for stage in added)))
        completed = events.StageCompleted(
            session=self._id,
            stage=name,
            number=run.number,
            stages=len(self.workflow.stages),
            seconds=seconds,
            tokens=transitions.record_of(self.session, name).tokens or 0,
            confidence=output.confidence,
        )
        self._unsaid += [completed, *([events.StageWaiting(session=self._id, stage=name)] if run.stage.approve else [])]

    def stage_asks(self, run: StageRun, wanted: ApprovalWanted) -> None:
        """It stopped for a call that a person has to approve."""
        name = run.stage.name
        self.change(transitions.asking(self.session, name, asked_record(wanted), at=self.now(), seconds=self._seconds(run)))
        self._unsaid.append(events.StageWaiting(session=self._id, stage=name))

    def stage_asked_again(self, stage: str, ask: AskAgain) -> None:
        """Its output does not fit, or its confidence was low."""
        self._note(stage, "malformed_output" if ask.problem else "low_confidence", ask.problem or "its confidence was low; it looks again")
        if ask.problem is not None:
            repairs = transitions.record_of(self.session, stage).repairs + 1
            self.change(transitions.with_record(self.session, stage, repairs=repairs))
            self._say(events.OutputRejected(session=self._id, stage=stage, problem=ask.problem, left=ask.tries.repairs))

    def stage_retried(self, stage: str, retry: RetryLater) -> None:
        """It failed, and is tried again after a pause."""
        self._note(stage, retry.kind, retry.message)
        left = retry.tries.retries
        self._say(events.StageRetried(session=self._id, stage=stage, message=retry.message, seconds=retry.seconds, left=left))

    def stage_raised(self, stage: str, error: BaseException) -> None:
        """Its agent raised an exception; whether it is tried again is told next."""
        self._say(events.StageRaised(session=self._id, stage=stage, error=told(error), traceback=traceback_of(error)))

    def stage_failed(self, run: StageRun, error: SessionError, output: StageOutput | None) -> None:
        """It failed for good: it is skipped where it may be, else the session will halt. `output` is kept for a person to look at."""
        name, at, seconds = run.stage.name, self.now(), self._seconds(run)
        self._note(name, error.kind, error.message)
        trace = traceback_of(run.raised) if error.kind == "stage_failed" and run.raised is not None else None
        self._write_files(run, output, provisional=True, error=error, trace=trace)
        if run.stage.on_error == "skip" and error.kind != "low_confidence":
            self.change(transitions.skipped(self.session, name, at=at, seconds=seconds))
            self._say(events.StageSkipped(session=self._id, stage=name, message=error.message))
        else:
            self.change(transitions.failed(self.session, error, output, at=at, seconds=seconds))
            self._say(events.StageFailure(session=self._id, stage=name, failure=error.kind, message=error.message))

    def memories_retrieved(self, found: tuple[Mapping[str, Any], ...]) -> None:
        """Long-term memory was searched for the task (W9)."""
        self.change(replace(self.session, retrieved=found, extra={**self.session.extra, "retrieved_at": self.now()}))
        self._say(events.MemoriesRetrieved(session=self._id, count=len(found), tag=self.session.topic_tag))

    def findings_stored(self, report: AddReport) -> None:
        """The findings are in long-term memory (W9)."""
        count = report.added + report.updated + report.unchanged
        self.change(replace(self.session, extra={**self.session.extra, "findings_stored": count}))
        self._say(events.FindingsStored(session=self._id, added=report.added, count=count, tag=self.session.topic_tag))

    def ended(self, status: Status, error: SessionError | None, *, seconds: float) -> Session:
        """The run is over; this is on disk when it returns."""
        told = replace(error, at=error.at or self.now()) if error else None
        self.change(replace(self.session, status=status, error=told))
        self.commit(frozenset())
        self._say(events.SessionEnded(session=self._id, status=status, seconds=round(seconds, 3)))
        return self.session

    def now(self) -> str:
        return stamp(self.clock.now())

    def _write_files(
        self, run: StageRun, output: StageOutput | None, *, provisional: bool, error: SessionError | None = None, trace: str | None = None
    ) -> None:
        """Keep what the stage was given and what it wrote as Markdown (W7), in the commit with which the stage counts as done."""
        context, written = stage_markdown(run.stage.system_prompt, run.context, output, provisional=provisional, error=error, trace=trace)
        self._files |= stage_files(run.number, run.stage.name, context=context, output=written, others=run.texts)
        if run.folder is not None:
            with suppress(OSError):
                run.folder.rmdir()  # most agents write no files; an empty folder for each would only be in the way
            if run.folder.is_dir():
                sync_tree(run.folder)  # the stage never runs again, so what it wrote there is on the disk first

    def _note(self, stage: str, kind: str, message: str) -> None:
        self.change(transitions.noted(self.session, stage, kind=kind, message=message, at=self.now()))

    def _seconds(self, run: StageRun) -> float:
        return round(self.clock.monotonic() - run.began, 3)

    @property
    def _id(self) -> str:
        return self.session.workflow_id

    def _say(self, event: events.WorkflowEvent) -> None:
        self.bus.emit(event)
