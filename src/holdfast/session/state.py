"""The state of a session, as values: what a person wants to know of a run, and what a resumed one needs (W2).

`document.py` writes these as JSON and reads them, also of older versions and of the reference. What Holdfast does not know is
kept, at every level, and written again. Names that become parts of paths (ids of sessions, names of recovery points, folders of stages)
are checked here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args

from holdfast.errors import InputError, NotThere
from holdfast.session.output import StageOutput
from holdfast.validation import counted

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_STRANGE = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)


def check_session_id(workflow_id: object) -> str:
    """The id, or an InputError that says what is allowed. Letters keep their case.

    >>> check_session_id("research-2026-04-19-001")
    'research-2026-04-19-001'
    """
    if not isinstance(workflow_id, str) or _NAME.fullmatch(workflow_id) is None or workflow_id.lower().endswith(".json"):
        raise InputError(
            f"{_shown(workflow_id)} is not a usable id for a session.",
            hint="Use 1 to 128 ASCII letters, digits, dots, hyphens and underscores, a letter or digit first, and not .json at the end.",
        )
    return workflow_id


def is_session_id(name: str) -> bool:
    """Whether a session may have this id."""
    try:
        check_session_id(name)
    except InputError:
        return False
    return True


def check_checkpoint_name(name: object) -> str:
    """The name, or an InputError that says what is allowed."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InputError(
            f"{_shown(name)} is not a usable name for a recovery point.",
            hint="Use 1 to 128 ASCII letters, digits, dots, hyphens and underscores, a letter or digit first.",
        )
    return name


def id_stem(workflow_id: str) -> str:
    """The id of a workflow as the beginning of a session's id: what may not stand there becomes a hyphen.

    >>> id_stem("Latency benchmark!")
    'Latency-benchmark'
    """
    return _STRANGE.sub("-", workflow_id).strip("-._")[:100] or "session"


def stage_folder(number: int, stage: str) -> str:
    """The folder of a stage: `03-web_research`. What may not stand in a name becomes a hyphen.

    >>> stage_folder(3, "web research/../x")
    '03-web-research-..-x'
    """
    return f"{number:02d}-{_STRANGE.sub('-', stage)[:100]}"


def stage_files(
    number: int, stage: str, *, context: str | None = None, output: str | None = None, others: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What a stage was given and what it wrote, by the names of their files below `stages/` (W7)."""
    given = {**(others or {}), "context": context, "output": output}
    folder = stage_folder(number, stage)
    return {f"{folder}/{name}.md": _storable(text) for name, text in given.items() if text is not None}


def _storable(text: str) -> str:
    """A text as every store can keep it: no NUL, no half of a surrogate pair."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


EARLIER = "# What earlier stages found"
"""The heading in what a stage was given under which the outputs of others stand, each under a `##` of its own."""
LONGEST_FILE = 1 << 15
_OUTPUT = "\n\n## "


def shown_text(text: str) -> str:
    """A stage's text as its file shows it. In a long one a line says where the oldest outputs of earlier stages are (W7).

    So that a folder does not grow with the square of the stages. The log keeps the whole text.
    """
    over = len(text) - LONGEST_FILE
    start = text.rfind(f"\n\n{EARLIER}\n\n## ") if over > 0 else -1
    first = start + len(EARLIER) + 2  # the break before the first output; no line of one begins so: see `stage_context.inert`
    cut = max(text.find(_OUTPUT, first + over), text.rfind(_OUTPUT, first, first + over))  # the newest always stays
    if start <= 0 or cut <= first:
        return text
    names = _stage_at(text, first), _stage_at(text, text.rfind(_OUTPUT, first, cut))
    gone = counted(text.count(_OUTPUT.rstrip(), first, cut), "stage")  # without its blank, which is in every word: five times as fast
    said = f"(The outputs of {gone}, {names[0]} to {names[1]}, stood here whole. Each is in the `output.md` of its stage.)"
    return f"{text[:first]}\n\n{said}{text[cut:]}"


def _stage_at(text: str, place: int) -> str:
    """Whose output begins there."""
    line = text[place + len(_OUTPUT) : text.find("\n", place + len(_OUTPUT))]
    return line.partition(" (confidence:")[0]


def near(name: str, others: Iterable[str]) -> str:
    """A sentence that names what is like it, or what there is."""
    known = list(others)
    close = get_close_matches(name, known, n=3, cutoff=0.6) or known[:5]
    return f"There is: {', '.join(close)}." if close else "There is none yet."


def no_session(workflow_id: str, others: Iterable[str]) -> InputError:
    """That there is no such session, naming near ones."""
    return NotThere(f"there is no session {workflow_id!r}.", hint=near(workflow_id, others))


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 160 else f"{shown[:157]}..."


SCHEMA_VERSION = 1
ASKS = "asks"
"""The member of a stage's record that holds the call it waits for a person to approve: `call` (its id), `tool`, `args`."""

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

    def strange_stages(self) -> tuple[str, ...]:
        """Names in `completed_stages` that are no stage of the workflow which the session keeps: slips of a hand edit."""
        if not self.workflow.get("stages"):
            return ()
        known = {*evolved(self, completed_stages=()).stage_names()}
        return tuple(name for name in dict.fromkeys(self.completed_stages) if name not in known)

    def removed_stages(self) -> tuple[str, ...]:
        """Names in this session that are no stage of the workflow which it keeps: of stages that were taken out of it, and slips.

        Their outputs stay; they count as nothing.
        """
        defined = self.workflow.get("stages")
        if not defined or not isinstance(defined, (list, tuple)):
            return ()
        known = {one.get("name") for one in defined if isinstance(one, Mapping)}
        more = {name: record.added_by for name, record in self.stages.items() if record.added_by is not None}
        while new := {name for name, by in more.items() if by in known and name not in known}:
            known |= new
        return tuple(name for name in self.stage_names() if name not in known)

    def progress(self) -> tuple[int, int]:
        """How many stages are completed, of how many there are. A name that is no stage of the workflow is neither."""
        gone = {*self.removed_stages()}
        return len({*self.completed_stages} - gone), len(self.stage_names()) - len(gone)


_Value = TypeVar("_Value", StageRecord, Session)


def evolved(value: _Value, **changes: Any) -> _Value:
    """As `dataclasses.replace`, at a twentieth of its cost: a session is copied a dozen times for each stage."""
    members = value.__dict__ | changes
    if len(members) != len(value.__dict__):
        raise TypeError(f"{type(value).__name__} has no {', '.join(sorted(changes.keys() - value.__dict__.keys()))}")
    copy = object.__new__(type(value))
    object.__setattr__(copy, "__dict__", members)
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
    done, total = session.progress()
    return SessionBrief(
        workflow_id=session.workflow_id,
        task=session.task,
        status=session.status,
        current_stage=session.current_stage,
        next_stage=session.next_stage,
        completed=done,
        total=total if session.workflow.get("stages") else None,
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


def checkpoint_brief(name: str, at: str, document: Mapping[str, Any]) -> CheckpointBrief:
    """The line for a recovery point, from its state as JSON."""
    return CheckpointBrief(
        name,
        at,
        document.get("revision", 0),
        document.get("status", "ready"),
        document.get("current_stage"),
        len(document.get("completed_stages") or ()),
    )
