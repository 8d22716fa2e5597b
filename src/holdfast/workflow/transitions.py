"""What is decided in a run, as pure functions of the definition, the session and an attempt: no clock, no files, no agents (W5, W6, W13).

`next_step` says what comes next; the others give the session as it is after a stage started, ended, was approved or rejected.
Lists in the session follow the order of the workflow, not the order in which stages happened to finish: so a graph that runs its stages
at once leaves the same file as one that runs them one by one (W13).

`verdict_on` is the verdict on an attempt at a stage: accept its output, ask again, retry after a back-off, or fail (W4, W11, W19). What is
said in it goes into the session, into events and the log: secrets are taken out of it here (C3).
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import filterfalse, islice
from pathlib import Path
from typing import Any

from holdfast.clock import Backoff
from holdfast.errors import (
    BudgetError,
    Cancelled,
    ConfigError,
    DiskFull,
    HoldfastError,
    InputError,
    LimitExceeded,
    ModelNotConfigured,
    ModelTooWeak,
    NotWritable,
    OutputInvalid,
    RevisionConflict,
    SyncFailed,
    WriteFailed,
)
from holdfast.redaction import redact_text
from holdfast.session.output import StageOutput, addressed, form_problems, parse_output
from holdfast.session.state import ASKS, Session, SessionError, StageRecord, evolved
from holdfast.workflow.agent import FunctionAgent, StageAgent, StageResult
from holdfast.workflow.definition import USUAL_REPAIRS, Stage, Workflow, final_stages


def record_of(session: Session, stage: str) -> StageRecord:
    return session.stages.get(stage) or StageRecord()


def with_record(session: Session, stage: str, **changes: Any) -> Session:
    """The session with these members of a stage's record changed."""
    stages = dict(session.stages)
    stages[stage] = evolved(record_of(session, stage), **changes)
    return evolved(session, stages=stages)


def started(session: Session, stage: str, *, at: str) -> Session:
    """A stage begins, from its beginning."""
    return with_record(session, stage, status="running", started_at=at, ended_at=None, seconds=None, provisional=False)


def asking(session: Session, stage: str, call: Mapping[str, Any], *, at: str, seconds: float) -> Session:
    """A stage stopped for a call that a person has to approve. It has no output, and is run again when there is an answer."""
    extra = {**record_of(session, stage).extra, ASKS: dict(call)}
    return with_record(session, stage, status="waiting", ended_at=at, seconds=seconds, extra=extra)


def answered(session: Session, stage: str) -> Session:
    """There is an answer to the call that a stage stopped for."""
    extra = {name: value for name, value in record_of(session, stage).extra.items() if name != ASKS}
    return with_record(session, stage, status="pending", ended_at=None, seconds=None, extra=extra)


def noted(session: Session, stage: str, *, kind: str, message: str, at: str) -> Session:
    """A try failed. Whatever comes of it, it stays in the file."""
    record = record_of(session, stage)
    return with_record(session, stage, errors=(*record.errors, {"at": at, "kind": kind, "message": redact_text(message)}))


def completed(
    session: Session, workflow: Workflow, stage: Stage, output: StageOutput, *, at: str, seconds: float, provisional: bool = False
) -> Session:
    """A stage has an output. With `approve` it waits for a person, else it is completed."""
    status = "waiting" if stage.approve else "completed"
    session = with_record(session, stage.name, status=status, ended_at=at, seconds=seconds, provisional=provisional)
    return _listed(_with_output(session, workflow, stage.name, output, at), workflow, stage.name, done=not stage.approve)


def approved(session: Session, workflow: Workflow, stage: str) -> Session:
    """A person agreed."""
    return _listed(with_record(session, stage, status="completed"), workflow, stage, done=True)


def _with_output(session: Session, workflow: Workflow, stage: str, output: StageOutput, at: str) -> Session:
    order = workflow.order
    outputs = {**session.stage_outputs, stage: output}
    snapshots = (*session.memory_snapshots, {"stage": stage, "summary": output.summary, "at": at})
    last = next(reversed([*session.stage_outputs]), stage)
    if stage in session.stage_outputs or order.get(last, -1) > order[stage]:  # usually the newest comes last
        others = [shot for shot in session.memory_snapshots if shot.get("stage") != stage]
        outputs = dict(sorted(outputs.items(), key=lambda item: order.get(item[0], -1)))
        snapshots = tuple(sorted([*others, snapshots[-1]], key=lambda shot: order.get(str(shot.get("stage")), -1)))
    return evolved(session, stage_outputs=outputs, memory_snapshots=snapshots)


def _listed(session: Session, workflow: Workflow, stage: str, *, done: bool) -> Session:
    names = session.completed_stages
    if stage in names:
        names = tuple(name for name in names if name != stage)
    if done:
        is_last = not names or workflow.order.get(names[-1], -1) < workflow.order[stage]
        names = (*names, stage) if is_last else tuple(sorted([*names, stage], key=lambda name: workflow.order.get(name, -1)))
    return evolved(session, completed_stages=names)


def failed(session: Session, error: SessionError, output: StageOutput | None, *, at: str, seconds: float) -> Session:
    """A stage failed for good, and the session says why. An output that fits stays for a person to look at.

    The first failure is the one that the session is about; a later one is in its stage's record.
    """
    stage = error.stage or ""
    session = with_record(session, stage, status="failed", ended_at=at, seconds=seconds)
    if output is not None:
        session = evolved(session, stage_outputs={**session.stage_outputs, stage: output})
    return evolved(session, error=session.error or replace(error, at=at))


def skipped(session: Session, stage: str, *, at: str, seconds: float) -> Session:
    """A stage failed, and the session goes on without it."""
    return with_record(session, stage, status="skipped", ended_at=at, seconds=seconds)


def added(session: Session, stages: Sequence[Stage], by: str) -> Session:
    """Stages that an agent added, with their definitions, so that a resumed session knows them."""
    for stage in stages:
        session = with_record(session, stage.name, added_by=by, extra={"definition": stage.document()})
    return session


@dataclass(frozen=True)
class Start:
    """Start these stages now, in this order."""

    stages: tuple[str, ...]


@dataclass(frozen=True)
class Wait:
    """Something runs, and nothing else can start."""


@dataclass(frozen=True)
class Pause:
    """These stages wait for a person, and nothing else can go on."""

    stages: tuple[str, ...]


@dataclass(frozen=True)
class Halt:
    """These stages failed."""

    stages: tuple[str, ...]


@dataclass(frozen=True)
class Finish:
    """Every stage is done."""


Step = Start | Wait | Pause | Halt | Finish


def done_stages(session: Session) -> set[str]:
    """The stages that others need not wait for any more: completed ones, and skipped ones."""
    return {*session.completed_stages, *skipped_stages(session)}


def skipped_stages(session: Session) -> set[str]:
    """Those that failed, and without which the session goes on."""
    return {name for name in _not_completed(session) if session.stages[name].status == "skipped"}


def _not_completed(session: Session) -> Iterable[str]:
    """The stages that have a record and are not completed. Usually stages are completed in the order in which they began."""
    done = session.completed_stages
    if tuple(islice(session.stages, len(done))) == done:
        return islice(session.stages, len(done), None)
    return session.stages.keys() - set(done)


def next_step(workflow: Workflow, session: Session, running: Set[str] = frozenset()) -> Step:
    """The next step. `running` are the stages that this process is working on."""
    done = done_stages(session)
    begun = [name for name in _not_completed(session) if name in workflow.order and name not in done and name not in running]
    failed = [name for name in begun if session.stages[name].status in ("failed", "rejected")]
    waiting = [name for name in begun if session.stages[name].status == "waiting"]
    if failed:
        return Wait() if running else Halt(_in_order(workflow, failed))
    ready = (
        name
        for name in _open_stages(workflow, session, done | running)
        if name not in waiting and done.issuperset(reversed(workflow.needs[name]))
    )
    most = 1 if workflow.is_sequence else workflow.max_parallel
    start = tuple(islice(ready, max(most - len(running), 0)))
    if start:
        return Start(start)
    if running:
        return Wait()
    if waiting:
        return Pause(_in_order(workflow, waiting))
    return Finish()


def _open_stages(workflow: Workflow, session: Session, done: Set[str]) -> Iterator[str]:
    """The stages that are not done, in the order of the workflow. Asked for every stage, so what a long one began with is passed over."""
    first = len(session.completed_stages)
    known = first if workflow.names[:first] == session.completed_stages else 0
    return filterfalse(done.__contains__, workflow.names[known:])


def _in_order(workflow: Workflow, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=workflow.order.__getitem__))


def placed(workflow: Workflow, session: Session, running: Set[str] = frozenset()) -> Session:
    """The session with `current_stage` and `next_stage` true: what is worked on, waits or failed, and what comes after it."""
    done = done_stages(session)
    at_work = _in_order(workflow, [name for name in running if name in workflow.order and name not in done])
    current = at_work[0] if at_work else next(_open_stages(workflow, session, done), None)
    after = next(_open_stages(workflow, session, done.union(running, [current] if current is not None else [])), None)
    return evolved(session, current_stage=current, next_stage=after)


def given_stages(workflow: Workflow, session: Session, name: str) -> tuple[str, ...]:
    """The stages whose outputs this one is given, in the order of the workflow: its `inputs`, else all that it waited for."""
    stage, completed = workflow.by_name[name], session.completed_stages
    is_plain = stage.inputs is None and workflow.is_sequence and not workflow.added_by
    if is_plain and name not in completed and workflow.names[: len(completed)] == completed:
        return completed  # the usual case: one after the other, and each is given all before it
    wanted = frozenset(stage.inputs) if stage.inputs is not None else workflow.before(name)
    given = wanted.intersection(completed)
    return tuple(filter(given.__contains__, workflow.order))


def result_stages(workflow: Workflow) -> tuple[str, ...]:
    """The stages whose outputs are the session's result: those that nobody depends on (W2)."""
    return final_stages(workflow.needs)


# The verdict on an attempt

LONGEST_PAUSE = 60.0
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_HOPELESS = (ConfigError, InputError, BudgetError, ModelNotConfigured, ModelTooWeak, Cancelled)
"""Trying again would fail in the same way."""
_LONGEST_RAW = 200_000
_DEEPEST_RAW = 100
_LONGEST_TRACEBACK = 20_000
_PACKAGE = Path(__file__).parents[1]


class TimedOut(Exception):
    """A stage took longer than its `timeout_seconds`."""


@dataclass(frozen=True)
class Tries:
    """What a stage may still do: retries after failures, repairs of its output, one second look."""

    retries: int
    repairs: int
    failures: int = 0
    looked_again: bool = False

    @classmethod
    def of(cls, stage: Stage, agent: StageAgent | None = None) -> Tries:
        """What the stage says. A plain function is not asked again where it says nothing: it would do the same work for the same answer."""
        usual = 0 if isinstance(agent, FunctionAgent) else USUAL_REPAIRS
        return cls(stage.retries, usual if stage.max_repairs is None else stage.max_repairs)


@dataclass(frozen=True)
class Accept:
    """The output is good. `provisional` when its confidence is low."""

    output: StageOutput
    provisional: bool = False


@dataclass(frozen=True)
class AskAgain:
    """Ask the agent again at once, with this note: a repair, or a second look."""

    note: str
    tries: Tries
    problem: str | None = None
    """What was wrong with the output, for a repair."""


@dataclass(frozen=True)
class RetryLater:
    """Wait, then try the same again."""

    seconds: float
    tries: Tries
    kind: str
    message: str


@dataclass(frozen=True)
class Fail:
    """Give up. `output` is there when it fits and only its confidence is too low."""

    error: SessionError
    output: StageOutput | None = None


Verdict = Accept | AskAgain | RetryLater | Fail


def stops_the_run(error: BaseException | None) -> BaseException | None:
    """The error with which the whole run stops at once, if this is one: a write that failed, or a limit that is reached (W15, T5)."""
    if isinstance(error, WriteFailed | SyncFailed | RevisionConflict | LimitExceeded):
        return error
    if isinstance(error, OSError) and error.errno in _FULL:
        return DiskFull(f"there is no space left: {error}.", path=error.filename, operation="write", hint="Free some space, then resume.")
    if isinstance(error, OSError) and error.errno == errno.EROFS:
        return NotWritable(f"the file system cannot be written: {error}.", path=error.filename, operation="write")
    return None


def verdict_on(stage: Stage, tries: Tries, result: StageResult | None, error: BaseException | None) -> Verdict:
    """The verdict on one attempt: exactly one of `result` and `error` is given."""
    if error is None and result is not None:
        try:
            return _weighed(stage, tries, parse_output(addressed(result.output, stage.name), stage=stage.name, schema=stage.output_schema))
        except OutputInvalid as invalid:
            error = invalid
    if isinstance(error, OutputInvalid):
        return _malformed(stage, tries, error)
    return _failed(stage, tries, error or RuntimeError("the agent returned nothing"))


def _weighed(stage: Stage, tries: Tries, output: StageOutput) -> Verdict:
    if output.confidence != "low" or stage.on_low_confidence == "continue":
        return Accept(output, provisional=output.confidence == "low")
    if stage.on_low_confidence == "recheck":
        if tries.looked_again:
            return Accept(output, provisional=True)
        note = f"Your last answer had a low confidence. Look again, check it, and answer anew. It said: {output.summary}"
        return AskAgain(note, replace(tries, looked_again=True))
    error = SessionError(
        stage.name,
        "low_confidence",
        f"the stage {stage.name!r} has a low confidence in its result, and `on_low_confidence: halt` is set.",
        hint="Look at its output in this file. `holdfast resume` goes on with it, `holdfast session fix` puts a better one in.",
    )
    return Fail(error, output)


def _malformed(stage: Stage, tries: Tries, error: OutputInvalid) -> Verdict:
    if tries.repairs > 0:
        listed = "\n".join(f"- {problem}" for problem in error.problems) or f"- {error.message}"
        note = f"Your last answer was not accepted. Answer again in the form that is asked for. What was wrong:\n{listed}"
        return AskAgain(note, replace(tries, repairs=tries.repairs - 1), redact_text(error.message))
    hint = "`holdfast session fix` puts a corrected output in; editing this file works as well. Then `holdfast resume`."
    raw = error.raw if not isinstance(error.raw, str) else error.raw[:_LONGEST_RAW]
    problems = tuple(redact_text(problem) for problem in error.problems)
    return Fail(SessionError(stage.name, "malformed_output", redact_text(error.message), problems, _plain(raw), hint=hint))


def told(error: BaseException) -> str:
    """What an exception says, with its class unless it is one of ours."""
    text = redact_text(_writable(str(error).strip()))
    if text and isinstance(error, TimedOut | HoldfastError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def traceback_of(error: BaseException) -> str:
    """Where an agent's exception came from, as Python prints it, from the first frame that is not in this package."""
    frames = error.__traceback__
    while frames is not None and Path(frames.tb_frame.f_code.co_filename).is_relative_to(_PACKAGE):
        frames = frames.tb_next
    lines = traceback.format_exception(type(error), error, frames or error.__traceback__)
    return redact_text(_writable("".join(lines).rstrip()[-_LONGEST_TRACEBACK:]))


def _failed(stage: Stage, tries: Tries, error: BaseException) -> Verdict:
    kind = "timeout" if isinstance(error, TimedOut) else "stage_failed"
    message = told(error)
    hopeless = isinstance(error, _HOPELESS) or getattr(error, "retryable", None) is False
    if tries.retries > 0 and not hopeless:
        pause = _backoff(stage, tries.failures + 1, error)
        return RetryLater(pause, replace(tries, retries=tries.retries - 1, failures=tries.failures + 1), kind, message)
    after = f" after {tries.failures + 1} tries" if tries.failures else ""
    hint = "Mend the cause, then `holdfast resume` runs the stage again."
    return Fail(SessionError(stage.name, kind, f"the stage {stage.name!r} failed{after}: {message}", hint=hint))


def _backoff(stage: Stage, failures: int, error: BaseException) -> float:
    """Twice as long each time; longer if the other side said how long, as a rate limit does."""
    asked = getattr(error, "retry_after", None)
    wanted = float(asked) if isinstance(asked, int | float) and not isinstance(asked, bool) and asked > 0 else 0.0
    return min(LONGEST_PAUSE, max(Backoff(stage.retry_seconds, LONGEST_PAUSE).pause(failures), wanted))


def _plain(value: object, around: tuple[int, ...] = ()) -> object:
    """The raw output as JSON can hold it: what it has no form for as Python shows it."""
    if isinstance(value, str):
        return _writable(value)
    if isinstance(value, Mapping | list | tuple):
        if id(value) in around or len(around) >= _DEEPEST_RAW:
            return "..."
        inside = (*around, id(value))
        if isinstance(value, Mapping):
            return {_writable(str(key)): _plain(item, inside) for key, item in value.items()}
        return [_plain(item, inside) for item in value]
    if not form_problems(value):
        return value
    return (hex(value) if isinstance(value, int) else _writable(repr(value)))[:_LONGEST_RAW]


def _writable(text: str) -> str:
    """A text without halves of surrogate pairs, which UTF-8 cannot hold: they show as escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
