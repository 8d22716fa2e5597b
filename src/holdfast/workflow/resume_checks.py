"""What `resume` checks before it goes on: hand edits of the session, changes of the workflow (W4, W6). Pure: nothing is written.

`completed_stages` is what counts. An output that stands in the file without being listed there was put in by a person and is taken as the
stage's result; a stage that a person took out of the list runs again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.amounts import some
from holdfast.config.known_keys import nearest
from holdfast.errors import ConfigError, InputError, OutputInvalid, WorkflowChanged
from holdfast.session.edits import output_invalid, output_problems
from holdfast.session.state import Session, StageRecord
from holdfast.workflow import transitions
from holdfast.workflow.definition import Stage, Workflow
from holdfast.workflow.workflow_file import parse_stage, parse_workflow

WORKFLOW_FILE = "workflow_file"
"""Where a session keeps the path of the file that it was started from."""


def stored_workflow(session: Session) -> Workflow:
    """The definition that the session keeps. Raises InputError when it keeps none, as files of other programs do."""
    if not session.workflow:
        raise InputError(
            f"the session {session.workflow_id} does not hold its workflow.",
            hint="Give the workflow file: `holdfast resume ID --workflow FILE`.",
        )
    file = session.extra.get(WORKFLOW_FILE)
    found = parse_workflow(session.workflow, file=f"session {session.workflow_id}, workflow")
    return replace(found, home=Path(file).parent if isinstance(file, str) else None)


def check_unchanged(session: Session, workflow: Workflow) -> None:
    """Raises WorkflowChanged when this is not the workflow that the session was started with."""
    if not session.workflow_hash or session.workflow_hash == workflow.hash:
        return
    changes = _differences(session, workflow)
    raise WorkflowChanged(
        f"the workflow of session {session.workflow_id} has changed since it was started: {changes}.",
        session=session.workflow_id,
        hint="`--accept-changes` goes on with it as it is now, `--as-started` with the one that the session keeps.",
    )


def _differences(session: Session, workflow: Workflow) -> str:
    try:
        old = stored_workflow(session)
    except (InputError, ConfigError):
        return "the one that it keeps cannot be read"
    before, now = old.by_name, workflow.by_name
    parts = [f"{name} is gone" for name in before if name not in now]
    parts += [f"{name} is new" for name in now if name not in before]
    parts += [f"{name} is different" for name in now if name in before and before[name].document() != now[name].document()]
    if not parts and [*before] != [*now]:
        parts.append("the order of the stages is another")
    return some(parts, 5) or "its settings are others"


def with_added_stages(workflow: Workflow, session: Session) -> Workflow:
    """The workflow with the stages that were added to it while it ran."""
    waiting: dict[str, list[Stage]] = {}
    for name, record in session.stages.items():
        definition = record.extra.get("definition")
        if record.added_by is not None and isinstance(definition, Mapping) and name not in workflow.by_name:
            waiting.setdefault(record.added_by, []).append(parse_stage(definition, where=f"session {session.workflow_id}, stages.{name}"))
    while waiting:
        known = next((parent for parent in waiting if parent in workflow.by_name), None)
        if known is None:
            return workflow  # who added them is no longer part of the workflow, so they are not either
        workflow = workflow.with_added(waiting.pop(known), known)
    return workflow


def reopened(session: Session, workflow: Workflow, *, accept_changes: bool = False) -> Session:
    """The session, checked, with its failed and interrupted stages to be run again. Raises what a person has to mend."""
    _check_names(session, workflow, accept_changes=accept_changes)
    for name in session.completed_stages:
        if name in workflow.by_name:
            _check_output(session, workflow.by_name[name])
    for stage in workflow.stages:
        record = transitions.record_of(session, stage.name)
        if stage.name in session.completed_stages or record.status in ("skipped", "waiting"):
            continue
        if stage.name in session.stage_outputs and record.status != "completed":
            _check_output(session, stage)
            session = _taken(session, workflow, stage, record)
        elif record.status != "pending":
            session = transitions.with_record(session, stage.name, status="pending", ended_at=None, seconds=None)
    return replace(session, error=None)


def _check_names(session: Session, workflow: Workflow, *, accept_changes: bool) -> None:
    for name in session.completed_stages:
        if name not in session.stage_outputs:
            raise OutputInvalid(
                f"completed_stages names {name!r}, but stage_outputs has no output of it.",
                problems=(f"stage_outputs.{name}: is missing",),
                session=session.workflow_id,
                stage=name,
                hint="Put its output in, or take it out of completed_stages to run it again.",
            )
    strangers = [name for name in session.completed_stages if name not in workflow.by_name]
    if strangers and not accept_changes:
        near = nearest(strangers[0], workflow.by_name)
        hint = f"Did you mean `{near}`? " if near else ""
        raise WorkflowChanged(
            f"the session {session.workflow_id} has completed a stage that the workflow does not have: {', '.join(strangers)}.",
            session=session.workflow_id,
            hint=f"{hint}`--accept-changes` goes on without it.",
        )


def _check_output(session: Session, stage: Stage) -> None:
    problems = output_problems(session, stage.name, stage.output_schema)
    if problems:
        raise output_invalid(session, stage.name, problems)


def _taken(session: Session, workflow: Workflow, stage: Stage, record: StageRecord) -> Session:
    """A result that a person put in, or agreed to by resuming: it counts as completed."""
    output = session.stage_outputs[stage.name]
    low = output.confidence == "low"
    changes: dict[str, Any] = {"ended_at": record.ended_at or session.updated_at or None, "provisional": low}
    return transitions.approved(transitions.with_record(session, stage.name, **changes), workflow, stage.name)
