"""What comes next, as a pure function of the definition and the session: no clock, no files, no agents (W5, W6, W13).

The runner asks after every change. Because the answer depends on what is on disk alone, a process that was killed and one that was not
go on in the same way.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

from holdfast.session.state import Session, StageRecord
from holdfast.workflow.definition import Workflow, final_stages


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
    return replace(session, current_stage=current, next_stage=after)


def given_stages(workflow: Workflow, session: Session, name: str) -> tuple[str, ...]:
    """The stages whose outputs this one is given, in the order of the workflow: its `inputs`, else all that it waited for."""
    stage = workflow.by_name[name]
    completed = set(session.completed_stages)
    wanted = frozenset(stage.inputs) if stage.inputs is not None else workflow.before(name)
    return tuple(one.name for one in workflow.stages if one.name in wanted and one.name in completed)


def result_stages(workflow: Workflow) -> tuple[str, ...]:
    """The stages whose outputs are the session's result: those that nobody depends on (W2)."""
    return final_stages(workflow.needs)
