"""State transitions of a run, as pure functions of the definition and the session: no clock, no files, no agents (W5, W6, W13).

`next_step` says what comes next; the others give the session as it is after a stage started, ended, was approved or rejected.
Lists in the session follow the order of the workflow, not the order in which stages happened to finish: so a graph that runs its stages
at once leaves the same file as one that runs them one by one (W13).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from holdfast.redaction import redact_text
from holdfast.session.output import StageOutput
from holdfast.session.state import Session, SessionError, StageRecord, evolved
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
    outputs = dict(session.stage_outputs)
    behind = stage in outputs or any(order.get(name, -1) > order[stage] for name in outputs)
    outputs[stage] = output
    snapshots = [shot for shot in session.memory_snapshots if shot.get("stage") != stage]
    snapshots.append({"stage": stage, "summary": output.summary, "at": at})
    if behind:  # the usual case is that the newest comes last
        outputs = dict(sorted(outputs.items(), key=lambda item: order.get(item[0], -1)))
        snapshots.sort(key=lambda shot: order.get(str(shot.get("stage")), -1))
    return evolved(session, stage_outputs=outputs, memory_snapshots=tuple(snapshots))


def _listed(session: Session, workflow: Workflow, stage: str, *, done: bool) -> Session:
    names = [name for name in session.completed_stages if name != stage]
    if done:
        names.append(stage)
        names.sort(key=lambda name: workflow.order.get(name, -1))
    return evolved(session, completed_stages=tuple(names))


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

_NOTHING = StageRecord()


def done_stages(session: Session) -> set[str]:
    """The stages that others need not wait for any more: completed ones, and skipped ones."""
    skipped = {name for name, record in session.stages.items() if record.status == "skipped"}
    return skipped.union(session.completed_stages)


def next_step(workflow: Workflow, session: Session, running: Set[str] = frozenset()) -> Step:
    """The next step. `running` are the stages that this process is working on."""
    done = done_stages(session)
    failed: list[str] = []
    waiting: list[str] = []
    ready: list[str] = []
    for stage in workflow.stages:
        name = stage.name
        if name in done or name in running:
            continue
        status = session.stages.get(name, _NOTHING).status
        if status in ("failed", "rejected"):
            failed.append(name)
        elif status == "waiting":
            waiting.append(name)
        elif done.issuperset(workflow.needs[name]):
            ready.append(name)
    if failed:
        return Wait() if running else Halt(tuple(failed))
    free = workflow.max_parallel - len(running)
    if ready and free > 0:
        return Start(tuple(ready[:free]))
    if running:
        return Wait()
    if waiting:
        return Pause(tuple(waiting))
    return Finish()


def placed(workflow: Workflow, session: Session, running: Set[str] = frozenset()) -> Session:
    """The session with `current_stage` and `next_stage` true: what is worked on, waits or failed, and what comes after it."""
    done = done_stages(session)
    open_stages = [stage.name for stage in workflow.stages if stage.name not in done]
    current = next((name for name in open_stages if name in running), open_stages[0] if open_stages else None)
    after = next((name for name in open_stages if name != current and name not in running), None)
    return evolved(session, current_stage=current, next_stage=after)


def given_stages(workflow: Workflow, session: Session, name: str) -> tuple[str, ...]:
    """The stages whose outputs this one is given, in the order of the workflow: its `inputs`, else all that it waited for."""
    stage = workflow.by_name[name]
    completed = set(session.completed_stages)
    wanted = frozenset(stage.inputs) if stage.inputs is not None else workflow.before(name)
    return tuple(one.name for one in workflow.stages if one.name in wanted and one.name in completed)


def result_stages(workflow: Workflow) -> tuple[str, ...]:
    """The stages whose outputs are the session's result: those that nobody depends on (W2)."""
    return final_stages(workflow.needs)
