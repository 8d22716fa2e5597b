"""The main loop: plan, write down, start, wait, settle, until there is nothing left to do.

One rule makes a kill harmless (W5, W6): what a stage returned and which stage comes next are committed together, durably, before the next
one starts. So the loop holds nothing that is not on disk but the attempts that run now, and those start from their beginning.
The caller holds the session's lock; one thread runs this loop and writes, agents run in others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from holdfast.clock import stamp
from holdfast.errors import LimitExceeded
from holdfast.session.state import Session, SessionError, Status
from holdfast.workflow import events, transitions
from holdfast.workflow.adding import grown
from holdfast.workflow.bench import Bench, Work
from holdfast.workflow.definition import Workflow
from holdfast.workflow.long_term_memory import look_up, store_findings
from holdfast.workflow.retry_policy import Accept, Ask, Fail, Retry, Verdict, judge, stops_the_run
from holdfast.workflow.scheduling import Finish, Halt, Pause, Start, Wait, next_step, placed
from holdfast.workflow.timed_executor import Floor, Outcome


class Runner:
    """Runs one session to its end, its next pause, its failure, or until somebody says stop."""

    def __init__(self, workflow: Workflow, session: Session, bench: Bench) -> None:
        self.workflow = workflow
        self.session = session
        self.bench = bench
        self._floor = Floor(bench.clock, bench.stopped)
        self._works: dict[str, Work] = {}
        self._is_committed = True
        self._unsaid: list[events.WorkflowEvent] = []
        self._checkpointed = len(session.completed_stages)
        self._began = bench.clock.monotonic()

    def run(self) -> Session:
        """The session as it is on disk when the run is over. Raises LimitExceeded, and StorageError at the write that failed."""
        try:
            self._change(replace(self.session, status="running", error=None))
            self._look_up()
            return self._loop()
        except LimitExceeded as error:
            self._give_up()
            self._end("halted", SessionError(None, "limit", str(error), hint="Raise the limit, then `holdfast resume`."))
            raise
        finally:
            self._give_up()

    def _loop(self) -> Session:
        while True:
            if self._floor.is_stopped():
                return self._cancel()
            step = next_step(self.workflow, self.session, self._floor.stages)
            match step:
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
            if not self._floor.stages:
                continue  # what was to start failed before its agent was asked
            outcome = self._floor.next()
            if outcome is None:
                return self._cancel()
            self._settle(outcome)

    # Stages begin and end.

    def _start(self, names: tuple[str, ...]) -> None:
        self.bench.check_limits(self.session)
        for name in names:
            self._change(transitions.started(self.session, name, at=self._now()))
        self._commit(frozenset(names))  # the end of the last stage and the beginning of this one are one write
        for name in names:
            work = self._works[name] = self.bench.work_on(self.workflow, self.session, name)
            self._say_started(work)
            self._attempt(work)

    def _attempt(self, work: Work) -> None:
        """Build what the agent is given, and let it run."""
        try:
            request = self.bench.request(self.workflow, self.session, work)
        except Exception as error:  # noqa: BLE001 - a context that does not fit is a failure of the stage, like one of its agent
            self._settle(Outcome(work.stage.name, error=error))
            return
        counted = transitions.record_of(self.session, work.stage.name).attempts + 1
        self._change(
            transitions.with_record(self.session, work.stage.name, attempts=counted, evicted=work.context.evicted if work.context else ())
        )
        self._floor.start(work.agent, request, work.attempt, work.stage.timeout_seconds)

    def _settle(self, outcome: Outcome) -> None:
        """An attempt came back: decide, and change the session. It is committed with what comes next."""
        work = self._works[outcome.stage]
        if outcome.result is None and outcome.error is None:  # a pause is over
            self._attempt(work)
            return
        work.give_up()  # it is over, also where its agent has not noticed yet
        error = stops_the_run(work.failure()) or stops_the_run(outcome.error)
        if error is not None:
            raise error
        self._change(self.bench.charged(self.session, work, outcome.result))
        self._act(work, self._verdict(work, outcome))

    def _verdict(self, work: Work, outcome: Outcome) -> Verdict:
        verdict = judge(work.stage, work.tries, outcome.result, outcome.error)
        if isinstance(verdict, Accept) and outcome.result is not None:
            try:
                work.grown = grown(self.workflow, work.stage.name, outcome.result.add_stages, self.bench.agents)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with what it adds is wrong with its output
                return judge(work.stage, work.tries, None, error)
        return verdict

    def _act(self, work: Work, verdict: Verdict) -> None:
        name = work.stage.name
        match verdict:
            case Accept(output, provisional):
                self.bench.write_files(self.workflow, self.session, work, output, provisional=provisional)
                self._change(
                    transitions.completed(
                        self.session,
                        self.workflow,
                        work.stage,
                        output,
                        at=self._now(),
                        seconds=self._seconds(work),
                        provisional=provisional,
                    )
                )
                self._grow(work)
                self._unsaid += self.bench.completion(self.workflow, self.session, work, output, self._seconds(work))
            case Ask(note, tries, problem):
                if problem is not None:
                    self._note(name, "malformed_output", problem.message)
                    repairs = transitions.record_of(self.session, name).repairs + 1
                    self._change(transitions.with_record(self.session, name, repairs=repairs))
                    self._say(events.OutputRejected(session=self._id, stage=name, problem=problem.message, left=tries.repairs))
                else:
                    self._note(name, "low_confidence", "its confidence was low; it looks again")
                work.again(tries, note)
                self._again(work)
            case Retry(seconds, tries, kind, message):
                self._note(name, kind, message)
                self._say(events.StageRetried(session=self._id, stage=name, message=message, seconds=seconds, left=tries.retries))
                work.again(tries, work.note)
                self._commit(self._floor.stages | {name})
                self._floor.pause(name, seconds)
            case Fail(error, output):
                self._fail(work, error, verdict if output is not None else None)
            case _ as never:
                assert_never(never)

    def _again(self, work: Work) -> None:
        self.bench.check_limits(self.session)
        self._commit(self._floor.stages | {work.stage.name})
        self._attempt(work)

    def _fail(self, work: Work, error: SessionError, kept: Fail | None) -> None:
        name, at, seconds = work.stage.name, self._now(), self._seconds(work)
        self._note(name, error.kind, error.message)
        if kept is not None and kept.output is not None:  # it fits, and a person is to look at it
            self._change(replace(self.session, stage_outputs={**self.session.stage_outputs, name: kept.output}))
        self.bench.write_files(self.workflow, self.session, work, kept.output if kept else None, provisional=True, error=error)
        if work.stage.on_error == "skip" and error.kind != "low_confidence":
            self._change(transitions.skipped(self.session, name, at=at, seconds=seconds))
            self._say(events.StageSkipped(session=self._id, stage=name, message=error.message))
            return
        first = self.session.error
        self._change(transitions.failed(self.session, error, at=at, seconds=seconds))
        if first is not None:  # the first failure is the one that the file is about; this one is in its stage's record
            self._change(replace(self.session, error=first))
        self._say(events.StageFailure(session=self._id, stage=name, failure=error.kind, message=error.message))

    def _grow(self, work: Work) -> None:
        if work.grown is not None and work.grown[1]:
            bigger, stages = work.grown
            self.workflow = bigger
            self._change(transitions.added(self.session, stages, work.stage.name))
            self._say(events.StagesAdded(session=self._id, stage=work.stage.name, added=tuple(stage.name for stage in stages)))

    # Long-term memory, before and after.

    def _look_up(self) -> None:
        bench = self.bench
        if "retrieved_at" in self.session.extra or not bench.remembers(self.workflow):
            return
        assert bench.knowledge is not None  # noqa: S101 - `remembers` says so
        found = look_up(bench.knowledge, self.session, bench.parameters, top_k=bench.settings.top_k, now=bench.clock.now())
        self._change(replace(self.session, retrieved=found, extra={**self.session.extra, "retrieved_at": self._now()}))
        self._say(events.MemoriesRetrieved(session=self._id, count=len(found), tag=self.session.topic_tag))

    def _store_findings(self) -> None:
        if not self.bench.remembers(self.workflow):
            return
        assert self.bench.knowledge is not None  # noqa: S101 - `remembers` says so
        self._commit()  # killed from here on, the session resumes with every stage done and stores the same records again
        report = store_findings(self.bench.knowledge, self.workflow, self.session)
        count = report.added + report.updated + report.unchanged
        self._change(replace(self.session, extra={**self.session.extra, "findings_stored": count}))
        self._say(events.FindingsStored(session=self._id, added=report.added, count=count, tag=self.session.topic_tag))

    # Writing down.

    def _change(self, session: Session) -> None:
        if session is not self.session:
            self.session = session
            self._is_committed = False

    def _commit(self, starting: frozenset[str] = frozenset()) -> None:
        """Make everything so far durable, with a recovery point when one is due (W5)."""
        if self._is_committed:
            return
        session = placed(self.workflow, self.session, self._floor.stages | starting)
        self.session = self.bench.store.commit(replace(session, usage=self.bench.usage()), expect=self.session.revision)
        self._is_committed = True
        while self._unsaid:  # that a stage is completed is said when it is on disk
            self._say(self._unsaid.pop(0))
        done = len(self.session.completed_stages)
        if done > self._checkpointed and done // self.bench.interval > self._checkpointed // self.bench.interval:
            self._checkpointed = done
            name = f"{done:03d}-{self.session.completed_stages[-1]}"
            self.bench.store.checkpoint(self.session, name)
            self._say(events.CheckpointWritten(session=self._id, name=name))

    def _end(self, status: Status, error: SessionError | None = None) -> Session:
        self._change(replace(self.session, status=status, error=replace(error, at=error.at or self._now()) if error else None))
        self._commit()
        seconds = round(self.bench.clock.monotonic() - self._began, 3)
        self._say(events.SessionEnded(session=self._id, status=status, seconds=seconds))
        return self.session

    def _cancel(self) -> Session:
        self._give_up()
        return self._end("cancelled")

    def _give_up(self) -> None:
        """Stop every attempt. Their stages are to be run again from the beginning."""
        for name, work in self._works.items():
            work.give_up()
            if transitions.record_of(self.session, name).status == "running":
                self._change(transitions.with_record(self.session, name, status="pending"))
        self._floor.give_up()

    def _note(self, stage: str, kind: str, message: str) -> None:
        self._change(transitions.noted(self.session, stage, kind=kind, message=message, at=self._now()))

    def _seconds(self, work: Work) -> float:
        return self.bench.clock.monotonic() - work.began

    def _now(self) -> str:
        return stamp(self.bench.clock.now())

    @property
    def _id(self) -> str:
        return self.session.workflow_id

    def _say_started(self, work: Work) -> None:
        stage, number = work.stage, self.workflow.order[work.stage.name] + 1
        total = len(self.workflow.stages)
        self._say(events.StageStarted(session=self._id, stage=stage.name, number=number, stages=total, agent=stage.agent_type))

    def _say(self, event: events.WorkflowEvent) -> None:
        self.bench.bus.emit(event)
