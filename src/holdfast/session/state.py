"""The state of a session, as a value: what a person wants to know of a run, and what a resumed one needs (W2).

`parse_session` reads the file's JSON, also of older versions and of the reference, and `session_json` writes it. What Holdfast does not
know is kept, at every level, and written again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from holdfast.session.output import StageOutput

SCHEMA_VERSION = 1

Status = Literal["ready", "running", "paused", "halted", "completed", "cancelled"]
"""`ready` can be run, `paused` waits for approve or reject, `halted` needs a person (see `error`), `cancelled` can be resumed."""
STATUSES: tuple[Status, ...] = get_args(Status)

StageStatus = Literal["pending", "running", "completed", "failed", "skipped", "waiting", "rejected"]
STAGE_STATUSES: tuple[StageStatus, ...] = get_args(StageStatus)


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Session:
    """One run of a workflow, whole. Changed copies come from `dataclasses.replace`; nothing inside is ever changed in place.

    `workflow_id` is the id of the session, under the name that the reference gave it. `revision` counts the commits, and
    `mark` is the fingerprint of the bytes that this value was read from or written as: a store compares both.
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


def parse_session(value: object, path: str | None = None) -> Session:
    """The session in a decoded JSON value: of any version up to ours, or in the reference's form.

    Damaged, naming every problem with its place, if it is none; StorageError if a newer version wrote it. `path` is for messages.
    """
    from holdfast.session.reading import read_session

    return read_session(value, path)


def session_json(session: Session) -> dict[str, Any]:
    """The session as it is written, in the order in which a person wants to read it, without secrets (C3)."""
    from holdfast.session.writing import written

    return written(session)
