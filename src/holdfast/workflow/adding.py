"""Stages that an agent adds to the workflow it is part of, checked like those of a file (W13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.config.problems import all_errors
from holdfast.errors import ConfigError, OutputInvalid
from holdfast.workflow.agent_registry import Agents, find_agent
from holdfast.workflow.definition import Stage, Workflow
from holdfast.workflow.graph import ancestors, cycle
from holdfast.workflow.reading import parse_stage


def grown(workflow: Workflow, by: str, wanted: Sequence[Mapping[str, Any]], agents: Agents | None) -> tuple[Workflow, tuple[Stage, ...]]:
    """The workflow with these stages, and the stages. Raises OutputInvalid, as for any output that does not fit, when they cannot be."""
    if not wanted:
        return workflow, ()
    problems: list[str] = []
    left = workflow.max_added_stages - len(workflow.added_by)
    if len(wanted) > left:
        problems.append(f"add_stages: {len(wanted)} stages are added, and {left} more are allowed (max_added_stages)")
    stages = [_stage(value, number, agents, problems) for number, value in enumerate(wanted)]
    names = [stage.name.lower() for stage in stages if stage is not None]
    taken = {name.lower() for name in workflow.by_name}
    problems += [f"add_stages: there is a stage {name!r} already" for name in names if name in taken or names.count(name) > 1]
    if not problems:
        bigger = workflow.with_added([stage for stage in stages if stage is not None], by)
        problems += _graph_problems(bigger, by)
        if not problems:
            return bigger, tuple(stage for stage in stages if stage is not None)
    raise OutputInvalid(
        f"the stages that {by!r} adds do not fit: {'; '.join(problems[:3])}.",
        problems=problems,
        raw=[dict(one) for one in wanted],
        stage=by,
    )


def _stage(value: Mapping[str, Any], number: int, agents: Agents | None, problems: list[str]) -> Stage | None:
    try:
        stage = parse_stage(value, where=f"add_stages[{number}]")
        find_agent(stage, agents)
    except ConfigError as error:
        problems += [f"add_stages[{number}].{one.key or ''}: {one.message}" for one in all_errors(error)]
        return None
    return stage


def _graph_problems(workflow: Workflow, by: str) -> list[str]:
    problems = []
    added = [stage for stage in workflow.stages if workflow.added_by.get(stage.name) == by]
    for stage in added:
        unknown = [name for name in (*(stage.needs or ()), *(stage.inputs or ())) if name not in workflow.by_name]
        problems += [f"add_stages.{stage.name}: there is no stage {name!r}" for name in dict.fromkeys(unknown)]
    if problems:
        return problems
    if (circle := cycle(workflow.needs)) is not None:
        return [f"add_stages: these stages wait for each other: {' -> '.join(circle)}"]
    for stage in added:
        before = ancestors(stage.name, workflow.needs) if stage.inputs else set()
        problems += [f"add_stages.{stage.name}.inputs: {name!r} is not done before it" for name in stage.inputs or () if name not in before]
    return problems
