"""The main loop: decide what comes next, write it down, start it, wait, settle; until there is nothing left to do.

One rule makes a kill harmless (W5, W6): what a stage returned and which stage comes next are committed together, durably, before the next
one starts. So the loop holds nothing that is not on disk but the attempts that run now, and those start from their beginning.
The caller holds the session's lock; one thread at a time is in this loop and writes, none while an agent runs in it (`timed_executor.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace
from typing import assert_never

from holdfast.clock import Clock
from holdfast.errors import ApprovalWanted, ConfigError, LimitExceeded, OutputInvalid
from holdfast.session.state import Session, SessionError, Status
from holdfast.workflow import transitions
from holdfast.workflow.agent import find_agent
from holdfast.workflow.definition import Stage
from holdfast.workflow.long_term_memory import SessionKnowledge
from holdfast.workflow.retry_policy import Accept, AskAgain, Fail, RetryLater, TimedOut, Verdict, stops_the_run, verdict_on
from holdfast.workflow.session_recorder import SessionRecorder
from holdfast.workflow.stage_request import RequestBuilder, RunUsage, StageRun
from holdfast.workflow.timed_executor import AttemptOutcome, TimedExecutor
from holdfast.workflow.transitions import Finish, Halt, Pause, Start, Wait, next_step
from holdfast.workflow.workflow_file import with_stages_added


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
        self._executor = TimedExecutor(clock, stop_requested, recorder.write_views)
        self._runs: dict[str, StageRun] = {}
        self._began = clock.monotonic()
        self.raised: BaseException | None = None
        """What the agent raised because of which the session halted."""

    @property
    def session(self) -> Session:
        return self.recorder.session

    def run(self) -> Session:
        """The session as it is on disk when the run is over. Raises LimitExceeded, and StorageError at the write that failed."""
        try:
            self.recorder.change(replace(self.session, status="running", error=None))
            if self.memory is not None and "retrieved_at" not in self.session.extra:
                self.recorder.memories_retrieved(self.memory.retrieve(self.session, now=self.clock.now()))
            return self._executor.drive(self._loop, self._go_on)
        except LimitExceeded as error:
            self._give_up()
            self._end("halted", SessionError(None, "limit", str(error), hint="Raise the limit, then `holdfast resume`."))
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
            self.recorder.findings_stored(self.memory.store_findings(self.recorder.workflow, self.session))

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
