"""What a person puts into a session by hand, checked: a corrected output of a stage, a document that was edited (W4)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from holdfast.errors import InputError, OutputInvalid
from holdfast.session.names import near
from holdfast.session.output import StageOutput, output_json, parse_output
from holdfast.session.state import Session, StageRecord


def schema_of(session: Session, stage: str) -> Mapping[str, Any] | None:
    """The stage's own `output_schema`, from the definition that the session keeps."""
    stages = session.workflow.get("stages")
    defined = [one for one in stages if isinstance(one, Mapping)] if isinstance(stages, (list, tuple)) else []
    record = session.stages.get(stage)
    added = record.extra.get("definition") if record is not None else None
    for one in [*defined, *([{"name": stage, **added}] if isinstance(added, Mapping) else [])]:
        if one.get("name") == stage and isinstance(one.get("output_schema"), Mapping):
            found: Mapping[str, Any] = one["output_schema"]
            return found
    return None


def fixed(session: Session, stage: str, value: object, *, at: str) -> Session:
    """The session with this output for the stage, completed, ready to go on.

    InputError if there is no such stage, OutputInvalid with every problem if the output does not fit.
    """
    names = session.stage_names()
    if stage not in names:
        raise InputError(f"the session {session.workflow_id!r} has no stage {stage!r}.", hint=near(stage, names))
    if isinstance(value, str):
        with suppress(ValueError):  # what is wrong with the text is said below
            value = json.loads(value)
    if isinstance(value, Mapping) and "stage_name" not in value:
        value = {"stage_name": stage, **value}  # which stage it is was said already
    output = parse_output(value, stage=stage, schema=schema_of(session, stage))
    record = session.stages.get(stage, StageRecord())
    order = {name: number for number, name in enumerate(names)}
    completed = tuple(sorted({*session.completed_stages, stage}, key=lambda name: order.get(name, len(order))))
    done = replace(record, status="completed", ended_at=at, provisional=output.confidence == "low", extra={**record.extra, "fixed_at": at})
    healed = session.error is None or session.error.stage in (None, stage)
    return replace(
        session,
        status="completed" if session.status == "completed" else "ready" if healed else session.status,
        error=None if healed else session.error,
        next_stage=next((name for name in names if name not in completed), None),
        completed_stages=completed,
        stage_outputs=_ordered({**session.stage_outputs, stage: output}, order),
        stages={**session.stages, stage: done},
        memory_snapshots=(
            *(shot for shot in session.memory_snapshots if shot.get("stage") != stage),
            {"stage": stage, "summary": output.summary, "at": at},
        ),
    )


def check_outputs(session: Session) -> list[str]:
    """What does not fit the stages' own schemas, each with its place."""
    problems = []
    for stage, output in session.stage_outputs.items():
        try:
            parse_output(output_json(output), stage=stage, schema=schema_of(session, stage))
        except OutputInvalid as error:
            problems += [f"stage_outputs.{stage}.{problem}" for problem in error.problems]
    return problems


def _ordered(outputs: dict[str, StageOutput], order: Mapping[str, int]) -> dict[str, StageOutput]:
    return dict(sorted(outputs.items(), key=lambda item: order.get(item[0], len(order))))
