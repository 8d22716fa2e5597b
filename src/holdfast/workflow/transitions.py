"""State transitions of a run, as pure functions of the definition and the session: no clock, no files, no agents (W5, W6, W13).

`next_step` says what comes next; the others give the session as it is after a stage started, ended, was approved or rejected.
Lists in the session follow the order of the workflow, not the order in which stages happened to finish: so a graph that runs its stages
at once leaves the same file as one that runs them one by one (W13).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import filterfalse, islice
from typing import Any

from holdfast.redaction import redact_text
from holdfast.session.output import StageOutput
from holdfast.session.state import ASKS, Session, SessionError, StageRecord, evolved
from holdfast.workflow.definition import Stage, Workflow, final_stages


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
    done = set(session.completed_stages)
    return done.union([name for name in session.stages.keys() - done if session.stages[name].status == "skipped"])


def next_step(workflow: Workflow, session: Session, running: Set[str] = frozenset()) -> Step:
    """The next step. `running` are the stages that this process is working on."""
    done = done_stages(session)
    begun = [name for name in session.stages.keys() - done - running if name in workflow.order]
    failed = [name for name in begun if session.stages[name].status in ("failed", "rejected")]
    waiting = [name for name in begun if session.stages[name].status == "waiting"]
    if failed:
        return Wait() if running else Halt(_in_order(workflow, failed))
    ready = (
        name for name in _open_stages(workflow, done | running) if name not in waiting and done.issuperset(reversed(workflow.needs[name]))
    )
    start = tuple(islice(ready, max(workflow.max_parallel - len(running), 0)))
    if start:
        return Start(start)
    if running:
        return Wait()
    if waiting:
        return Pause(_in_order(workflow, waiting))
    return Finish()


def _open_stages(workflow: Workflow, done: Set[str]) -> Iterator[str]:
    """The stages that are not done, in the order of the workflow. Long workflows ask this for every stage: it goes at the speed of C."""
    return filterfalse(done.__contains__, workflow.order)


def _in_order(workflow: Workflow, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=workflow.order.__getitem__))


def placed(workflow: Workflow, session: Session, running: Set[str] = frozenset()) -> Session:
    """The session with `current_stage` and `next_stage` true: what is worked on, waits or failed, and what comes after it."""
    done = done_stages(session)
    at_work = _in_order(workflow, [name for name in running if name in workflow.order and name not in done])
    current = at_work[0] if at_work else next(_open_stages(workflow, done), None)
    after = next(_open_stages(workflow, done.union(running, [current] if current is not None else [])), None)
    return evolved(session, current_stage=current, next_stage=after)


def given_stages(workflow: Workflow, session: Session, name: str) -> tuple[str, ...]:
    """The stages whose outputs this one is given, in the order of the workflow: its `inputs`, else all that it waited for."""
    stage = workflow.by_name[name]
    wanted = frozenset(stage.inputs) if stage.inputs is not None else workflow.before(name)
    given = wanted.intersection(session.completed_stages)
    return tuple(filter(given.__contains__, workflow.order))


def result_stages(workflow: Workflow) -> tuple[str, ...]:
    """The stages whose outputs are the session's result: those that nobody depends on (W2)."""
    return final_stages(workflow.needs)
