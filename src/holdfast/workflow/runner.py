"""The main loop: decide what comes next, write it down, start it, wait, settle; until there is nothing left to do.

One rule makes a kill harmless (W5, W6): what a stage returned and which stage comes next are committed together, durably, before the next
one starts. So the loop holds nothing that is not on disk but the attempts that run now, and those start from their beginning.
The caller holds the session's lock; one thread at a time is in this loop and writes, none while an agent runs in it (`timed_executor.py`).

`Runner` decides, `SessionRecorder` writes down: state transitions, stage files, recovery points, and the events that tell of them. Changes
are values (`transitions.py`) until `commit` writes all of them at once; that a stage is completed is said when it is on disk, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from holdfast.clock import Clock, stamp
from holdfast.durable.beneath import sync_tree
from holdfast.errors import ApprovalWanted, ConfigError, LimitExceeded, OutputInvalid, StorageError
from holdfast.events import Bus
from holdfast.session.output import StageOutput
from holdfast.session.state import Session, SessionError, Status, evolved, stage_files
from holdfast.session.store import SessionStore
from holdfast.workflow import events, transitions
from holdfast.workflow.agent import find_agent
from holdfast.workflow.control import asked_record, rechecked
from holdfast.workflow.definition import Stage, Workflow
from holdfast.workflow.long_term_memory import SessionKnowledge, Stored
from holdfast.workflow.outage import outlasted
from holdfast.workflow.run_settings import RecoveryPoints
from holdfast.workflow.stage_context import ContextBuilder
from holdfast.workflow.stage_request import RequestBuilder, RunUsage, StageRun
from holdfast.workflow.timed_executor import AttemptOutcome, TimedExecutor
from holdfast.workflow.transitions import (
    Accept,
    AskAgain,
    Fail,
    Finish,
    Halt,
    Pause,
    RetryLater,
    Start,
    TimedOut,
    Verdict,
    Wait,
    next_step,
    placed,
    stops_the_run,
    told,
    traceback_of,
    verdict_on,
)
from holdfast.workflow.workflow_file import with_stages_added


@dataclass
class SessionRecorder:
    """The session as it is now, in memory and on disk. For one thread, the runner's."""

    session: Session
    workflow: Workflow
    store: SessionStore
    bus: Bus
    clock: Clock
    contexts: ContextBuilder
    usage: Callable[[], dict[str, Any]]
    """What was used so far, as the session keeps it."""
    points: RecoveryPoints = field(default_factory=RecoveryPoints)
    """When a recovery point is written (W5)."""
    stop_requested: Callable[[], bool] = lambda: False
    """Whether somebody said stop: then a store that is away is not waited for."""
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
        session, used = placed(self.workflow, self.session, running), self.usage()
        if used != session.usage:
            session = evolved(session, usage=used)
        point, files, self._files = self.points.due(session, self._checkpointed), self._files, {}
        later, expect = session.status == "running", self.session.revision
        self.session = outlasted(
            lambda: self.store.commit(session, expect=expect, point=point, files=files, views_later=later),
            self.clock,
            is_over=self.stop_requested,
            told=lambda error: self._say(events.StoreAway(session=self._id, problem=error.message.rstrip("."))),
        )
        self._is_committed = True
        while self._unsaid:
            self._say(self._unsaid.pop(0))
        if point is not None:
            self._checkpointed = len(session.completed_stages)
            self._say(events.CheckpointWritten(session=self._id, name=point))

    def write_views(self) -> None:
        """Bring the files that people read up to date: nothing more will be committed for a while."""
        self.store.write_views(self._id)

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

    def findings_stored(self, stored: Stored) -> None:
        """The findings are in long-term memory (W9)."""
        self.change(replace(self.session, extra={**self.session.extra, "findings_stored": stored.count}))
        new = {"findings": stored.findings.added, "summaries": stored.summaries.added}
        self._say(events.FindingsStored(session=self._id, count=stored.count, tag=self.session.topic_tag, **new))

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
        prompt = run.stage.system_prompt
        context, written = self.contexts.markdown(prompt, run.context, output, provisional=provisional, error=error, trace=trace)
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


class Runner:
    """Runs one session to its end, its next pause, its failure, or until somebody says stop.

    Who says `leave` lets the stages that run come to their end and ends before the next one, `ready` for whoever goes on; a stop while that
    holds ends it in the same way at once.
    """

    def __init__(
        self,
        recorder: SessionRecorder,
        requests: RequestBuilder,
        usage: RunUsage,
        clock: Clock,
        *,
        memory: SessionKnowledge | None,
        stop_requested: Callable[[], bool],
        leave_requested: Callable[[], bool] = lambda: False,
    ) -> None:
        self.recorder = recorder
        self.requests = requests
        self.usage = usage
        self.clock = clock
        self.memory = memory
        self._leaves = leave_requested
        self._executor = TimedExecutor(
            clock, stop_requested, recorder.write_views, place=recorder.store.where(recorder.session.workflow_id)
        )
        self._runs: dict[str, StageRun] = {}
        self._began = clock.monotonic()
        self.raised: BaseException | None = None
        """What the agent raised because of which the session halted."""

    @property
    def session(self) -> Session:
        return self.recorder.session

    def run(self) -> Session:
        """The session as it is on disk when the run is over. Raises LimitExceeded, and StorageError at the write that failed.

        At KeyboardInterrupt the session is cancelled first.
        """
        try:
            self.recorder.change(replace(self.session, status="running", error=None))
            if self.memory is not None and "retrieved_at" not in self.session.extra:
                self.recorder.memories_retrieved(self.memory.retrieve(self.session, now=self.clock.now()))
            return self._executor.drive(self._loop, self._go_on)
        except LimitExceeded as error:
            self._give_up()
            self._end("halted", SessionError(None, "limit", str(error), hint="Raise the limit, then `holdfast resume`."))
            raise
        except KeyboardInterrupt:
            with suppress(StorageError):
                self._cancel()
            raise
        finally:
            self._give_up()

    def _loop(self) -> Session:
        while True:
            if self._executor.is_stopped():
                return self._cancel()
            match next_step(self.recorder.workflow, self.session, self._executor.stages):
                case Start() if self._leaves():
                    if not self._executor.stages:
                        return self._end("ready")
                    self._commit()
                case Start(names):
                    self._start(names)
                case Wait():
                    self._commit()
                case Pause():
                    return self._end("paused")
                case Halt():
                    return self._end("halted", self.session.error)
                case Finish():
                    self._store_findings()
                    return self._end("completed")
                case _ as never:
                    assert_never(never)
            if not self._executor.stages:
                continue  # what was to start failed before its agent was asked
            outcome = self._executor.next()
            if outcome is None:
                return self._cancel()
            self._settle(outcome)

    def _go_on(self, outcome: AttemptOutcome | None) -> Session:
        """The loop from where an attempt ended so, or somebody said stop."""
        if outcome is None:
            return self._cancel()
        self._settle(outcome)
        return self._loop()

    def _start(self, names: tuple[str, ...]) -> None:
        self.usage.check()
        for name in names:
            self.recorder.change(transitions.started(self.session, name, at=self.recorder.now()))
        self._commit(frozenset(names))  # the end of the last stage and the beginning of this one are one write
        for name in names:
            run = self._runs[name] = self.requests.begin(self.recorder.workflow, self.session, name, began=self.clock.monotonic())
            self.recorder.stage_started(run)
            self._attempt(run)

    def _attempt(self, run: StageRun) -> None:
        """Build what the agent is given, and let it run."""
        try:
            request = self.requests.build(self.recorder.workflow, self.session, run)
        except Exception as error:  # noqa: BLE001 - a context that does not fit is a failure of the stage, like one of its agent
            self._settle(AttemptOutcome(run.stage.name, error=error))
            return
        evicted = run.context.evicted if run.context else ()
        self.recorder.change(transitions.with_record(self.session, run.stage.name, attempts=request.attempt, evicted=evicted))
        self._executor.start(run.agent, request, run.attempt, run.stage.timeout_seconds)

    def _settle(self, outcome: AttemptOutcome) -> None:
        """An attempt came back: decide, and change the session. It is committed with what comes next."""
        run = self._runs[outcome.stage]
        if outcome.result is None and outcome.error is None:  # a pause is over
            self._attempt(run)
            return
        run.give_up()  # it is over, also where its agent has not noticed yet
        error = stops_the_run(run.failed_write()) or stops_the_run(outcome.error)
        if error is not None:
            raise error
        run.raised = outcome.error
        if outcome.error is not None and not isinstance(outcome.error, TimedOut | OutputInvalid):
            self.recorder.stage_raised(run.stage.name, outcome.error)
        self.recorder.change(self.usage.recorded(self.session, run.stage, outcome.result, self.requests.model))
        if isinstance(outcome.error, ApprovalWanted):
            self.recorder.stage_asks(run, outcome.error)
            return
        self._act(run, *self._verdict(run, outcome))

    def _verdict(self, run: StageRun, outcome: AttemptOutcome) -> tuple[Verdict, tuple[Stage, ...]]:
        """What to do about an attempt, and the stages that it adds if it is accepted."""
        verdict = verdict_on(run.stage, run.tries, outcome.result, outcome.error)
        if not isinstance(verdict, Accept) or outcome.result is None:
            return verdict, ()
        try:
            wanted, agents, home = outcome.result.add_stages, self.requests.agents, self.recorder.workflow.home
            added = with_stages_added(self.recorder.workflow, run.stage.name, wanted, lambda stage: find_agent(stage, agents, home=home))[1]
        except (OutputInvalid, ConfigError) as error:  # what it adds is part of its output
            return verdict_on(run.stage, run.tries, None, error), ()
        return verdict, added

    def _act(self, run: StageRun, verdict: Verdict, added: tuple[Stage, ...]) -> None:
        name = run.stage.name
        match verdict:
            case Accept(output, provisional):
                del self._runs[name]
                self.recorder.stage_completed(run, output, provisional=provisional, added=added)
            case AskAgain(note, tries):
                self.recorder.stage_asked_again(name, verdict)
                run.tries, run.note = tries, note
                self.usage.check()
                self._commit({name})
                self._attempt(run)
            case RetryLater(seconds, tries):
                self.recorder.stage_retried(name, verdict)
                run.tries = tries
                self._commit({name})
                self._executor.pause(name, seconds)
            case Fail(error, output):
                self.raised = run.raised
                self.recorder.stage_failed(run, error, output)
            case _ as never:
                assert_never(never)

    def _store_findings(self) -> None:
        if self.memory is not None:
            self._commit()  # killed from here on, the session resumes with every stage done and stores the same records again
            self.recorder.findings_stored(self.memory.store_findings(self.recorder.workflow, rechecked(self.recorder.store, self.session)))

    def _commit(self, starting: Set[str] = frozenset()) -> None:
        self.recorder.commit(self._executor.stages | starting)

    def _end(self, status: Status, error: SessionError | None = None) -> Session:
        return self.recorder.ended(status, error, seconds=self.clock.monotonic() - self._began)

    def _cancel(self) -> Session:
        self._give_up()
        return self._end("ready" if self._leaves() else "cancelled")

    def _give_up(self) -> None:
        """Stop every attempt. Their stages are to be run again from the beginning."""
        for name, run in self._runs.items():
            run.give_up()
            if transitions.record_of(self.session, name).status == "running":
                self.recorder.change(transitions.with_record(self.session, name, status="pending"))
        self._executor.give_up()
