"""The state of a session, as values: what a person wants to know of a run, and what a resumed one needs (W2).

`parser.py` reads these from JSON, also of older versions and of the reference; `renderer.py` writes them. What Holdfast does not know is
kept, at every level, and written again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

from holdfast.session.output import StageOutput

SCHEMA_VERSION = 1

Status = Literal["ready", "running", "paused", "halted", "completed", "cancelled"]
"""`ready` can be run, `paused` waits for approve or reject, `halted` needs a person (see `error`), `cancelled` can be resumed."""
STATUSES: tuple[Status, ...] = get_args(Status)

StageStatus = Literal["pending", "running", "completed", "failed", "skipped", "waiting", "rejected"]
STAGE_STATUSES: tuple[StageStatus, ...] = get_args(StageStatus)

SESSION_FIELDS = (
    *("workflow_id", "task", "topic_tag", "status", "current_stage", "next_stage", "completed_stages", "error"),
    *("created_at", "updated_at", "stage_outputs", "memory_snapshots", "stages", "retrieved", "usage", "lineage"),
    *("workflow", "workflow_hash", "configuration", "revision", "schema_version"),
)
"""In the order in which they are written."""
RECORD_FIELDS = (
    *("status", "attempts", "repairs", "started_at", "ended_at", "seconds", "tokens", "cost", "model"),
    *("evicted", "provisional", "added_by", "errors"),
)
ERROR_FIELDS = ("stage", "kind", "message", "problems", "raw_output", "at", "hint")


@dataclass(frozen=True)
class StageRecord:
    """What happened to one stage.

    `evicted` names what was left out of its context, each a mapping with `name` and `tokens` (W8). `errors` are the failed tries,
    each a mapping with `at`, `kind` and `message`. `provisional` marks a result of low confidence that was passed on (W11),
    `added_by` the planner stage that added this one (W13).
    """

    status: StageStatus = "pending"
    attempts: int = 0
    repairs: int = 0
    started_at: str | None = None
    ended_at: str | None = None
    seconds: float | None = None
    tokens: int | None = None
    cost: float | None = None
    model: str | None = None
    evicted: tuple[Mapping[str, Any], ...] = ()
    provisional: bool = False
    added_by: str | None = None
    errors: tuple[Mapping[str, Any], ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SessionError:
    """Why a session stands still: the stage, what kind of failure, each problem, and the raw output as it came (W4).

    Known kinds: `malformed_output`, `stage_failed`, `timeout`, `limit`, `low_confidence`, `rejected`, `storage`; others may come.
    Secrets are taken out of its texts when it is written.
    """

    stage: str | None
    kind: str
    message: str
    problems: tuple[str, ...] = ()
    raw_output: Any = None
    at: str | None = None
    hint: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Session:
    """One run of a workflow, whole. Changed copies come from `evolved`; nothing inside is ever changed in place.

    `workflow_id` is the id of the session, under the name that the reference gave it. `revision` counts the commits. `mark` is None,
    or the fingerprint of the file that a person edited and this value was read from: a commit of it takes the edit over.
    """

    workflow_id: str
    task: str = ""
    topic_tag: str = "general"
    status: Status = "ready"
    current_stage: str | None = None
    next_stage: str | None = None
    completed_stages: tuple[str, ...] = ()
    stage_outputs: Mapping[str, StageOutput] = field(default_factory=dict)
    memory_snapshots: tuple[Mapping[str, Any], ...] = ()
    stages: Mapping[str, StageRecord] = field(default_factory=dict)
    error: SessionError | None = None
    retrieved: tuple[Mapping[str, Any], ...] = ()
    workflow: Mapping[str, Any] = field(default_factory=dict)
    workflow_hash: str = ""
    configuration: Mapping[str, Any] = field(default_factory=dict)
    created_at: str = ""
    updated_at: str = ""
    schema_version: int = SCHEMA_VERSION
    revision: int = 0
    lineage: Mapping[str, Any] | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    mark: str | None = field(default=None, compare=False, repr=False)

    def stage_names(self) -> tuple[str, ...]:
        """The stages in the order of the definition, then those that only records or outputs know of (added ones, older files)."""
        defined = self.workflow.get("stages")
        named = [one.get("name") for one in defined if isinstance(one, Mapping)] if isinstance(defined, (list, tuple)) else []
        names = [*(name for name in named if isinstance(name, str)), *self.stages, *self.completed_stages, *self.stage_outputs]
        return tuple(dict.fromkeys([*names, *([self.current_stage] if self.current_stage and not named else [])]))


_Value = TypeVar("_Value", StageRecord, Session)


def evolved(value: _Value, **changes: Any) -> _Value:
    """As `dataclasses.replace`, at a tenth of its cost: a session is copied a dozen times for each stage."""
    if not changes.keys() <= value.__dict__.keys():
        raise TypeError(f"{type(value).__name__} has no {', '.join(sorted(changes.keys() - value.__dict__.keys()))}")
    copy = object.__new__(type(value))
    copy.__dict__.update(value.__dict__, **changes)
    return copy


@dataclass(frozen=True, slots=True)
class SessionBrief:
    """A line of a list of sessions. A damaged one has a `problem` and what could still be read."""

    workflow_id: str
    task: str = ""
    status: Status | None = None
    current_stage: str | None = None
    next_stage: str | None = None
    completed: int = 0
    total: int | None = None
    """How many stages there are; None when the session does not hold its workflow."""
    created_at: str = ""
    updated_at: str = ""
    revision: int = 0
    error: str | None = None
    """Why it stands still, in one line."""
    problem: str | None = None
    """Why it cannot be read."""


@dataclass(frozen=True, slots=True)
class CheckpointBrief:
    """A recovery point in a list."""

    name: str
    at: str
    revision: int
    status: Status
    current_stage: str | None
    completed: int


def brief_of(session: Session) -> SessionBrief:
    """The line for a session."""
    return SessionBrief(
        workflow_id=session.workflow_id,
        task=session.task,
        status=session.status,
        current_stage=session.current_stage,
        next_stage=session.next_stage,
        completed=len(session.completed_stages),
        total=len(session.stage_names()) if session.workflow.get("stages") else None,
        created_at=session.created_at,
        updated_at=session.updated_at,
        revision=session.revision,
        error=" ".join(session.error.message.split())[:300] if session.error is not None else None,
    )


# States that follow from others without a run


def restored(then: Session) -> Session:
    """A kept state as one to go on from: nobody runs it now, whatever it says."""
    return evolved(then, status="ready") if then.status == "running" else then


def forked(origin: Session, new_id: str, checkpoint: str | None, at: str) -> Session:
    """A state as the first one of a new session, which knows where it comes from."""
    lineage: dict[str, Any] = {"from": origin.workflow_id, "checkpoint": checkpoint, "revision": origin.revision, "at": at}
    if origin.lineage is not None:
        lineage["earlier"] = dict(origin.lineage)
    return evolved(restored(origin), workflow_id=new_id, lineage=lineage, created_at=at, updated_at=at, revision=0, mark=None)


def spare_name(taken: Iterable[str], stem: str = "before-restore") -> str:
    """A name that none has: `before-restore-001`.

    >>> spare_name(["before-restore-001"])
    'before-restore-002'
    """
    names = set(taken)
    number = 1
    while f"{stem}-{number:03d}" in names:
        number += 1
    return f"{stem}-{number:03d}"
