"""State transitions of a session as pure functions: each takes the session and returns a changed copy. Nothing is written here.

Lists in the session follow the order of the workflow, not the order in which stages happened to finish: so a graph that runs its stages
at once leaves the same file as one that runs them one by one (W13).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from holdfast.session.output import StageOutput
from holdfast.session.redacting import clean_text
from holdfast.session.state import Session, SessionError, StageRecord
from holdfast.workflow.definition import Stage, Workflow


def record_of(session: Session, stage: str) -> StageRecord:
    return session.stages.get(stage) or StageRecord()


def with_record(session: Session, stage: str, **changes: Any) -> Session:
    """The session with these members of a stage's record changed."""
    stages = dict(session.stages)
    stages[stage] = replace(record_of(session, stage), **changes)
    return replace(session, stages=stages)


def started(session: Session, stage: str, *, at: str) -> Session:
    """A stage begins, from its beginning."""
    return with_record(session, stage, status="running", started_at=at, ended_at=None, seconds=None, provisional=False)


def noted(session: Session, stage: str, *, kind: str, message: str, at: str) -> Session:
    """A try failed. Whatever comes of it, it stays in the file."""
    record = record_of(session, stage)
    return with_record(session, stage, errors=(*record.errors, {"at": at, "kind": kind, "message": clean_text(message)}))


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
    return replace(session, stage_outputs=outputs, memory_snapshots=tuple(snapshots))


def _listed(session: Session, workflow: Workflow, stage: str, *, done: bool) -> Session:
    names = [name for name in session.completed_stages if name != stage]
    if done:
        names.append(stage)
        names.sort(key=lambda name: workflow.order.get(name, -1))
    return replace(session, completed_stages=tuple(names))


def failed(session: Session, error: SessionError, output: StageOutput | None, *, at: str, seconds: float) -> Session:
    """A stage failed for good, and the session says why. An output that fits stays for a person to look at.

    The first failure is the one that the session is about; a later one is in its stage's record.
    """
    stage = error.stage or ""
    session = with_record(session, stage, status="failed", ended_at=at, seconds=seconds)
    if output is not None:
        session = replace(session, stage_outputs={**session.stage_outputs, stage: output})
    return replace(session, error=session.error or replace(error, at=at))


def skipped(session: Session, stage: str, *, at: str, seconds: float) -> Session:
    """A stage failed, and the session goes on without it."""
    return with_record(session, stage, status="skipped", ended_at=at, seconds=seconds)


def added(session: Session, stages: Sequence[Stage], by: str) -> Session:
    """Stages that an agent added, with their definitions, so that a resumed session knows them."""
    for stage in stages:
        session = with_record(session, stage.name, added_by=by, extra={"definition": stage.document()})
    return session
