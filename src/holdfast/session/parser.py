"""From the JSON of a session to a `Session`, by pydantic models. Every problem is named with its place and line, all of them at once.

Reads the files of every version up to ours and those of the reference (version 0, which says no version); what is newer is refused (O7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from holdfast.amounts import some
from holdfast.durable import strict_json
from holdfast.errors import Damaged, InputError, StorageError
from holdfast.session.output import StageOutput, legacy_output, read_output
from holdfast.session.state import SCHEMA_VERSION, Session, SessionError, StageRecord, StageStatus, Status, check_session_id
from holdfast.validation import Loc, Problem, json_line, kind_of, problems_of

_MOST = 8  # problems that are worth telling at once
_MEND = "Mend it with `holdfast session edit`, or go back with `holdfast session restore`. It was not changed."

Document = dict[str, Any]


def decode_session(data: bytes, path: str) -> Session:
    """The session in the bytes of a file: with a byte order mark or Windows line ends, as editors leave them.

    Damaged with line and column where it is not JSON, with line and place in the document where a value does not fit.
    """
    if not data.strip(b"\0 \t\r\n"):
        raise Damaged(f"{path} is empty.", path=path, position=0, hint=_MEND)
    try:
        value = strict_json.decode(data, path=path)
    except Damaged as error:
        raise _located(error, data, path) from error
    return parse_session(value, path, line_of=lambda loc: json_line(data.decode("utf-8-sig"), loc))


def parse_session(value: object, path: str | None = None, *, line_of: Callable[[Loc], int | None] | None = None) -> Session:
    """The session in a decoded JSON value: of any version up to ours, or in the reference's form.

    Damaged, naming every problem with its place, if it is none; StorageError if a newer version wrote it. `path` is for messages.
    """
    name = path or "the session"
    if not isinstance(value, Mapping):
        raise Damaged(f"{name} is not a session: it holds {kind_of(value)} instead of an object.", path=path, hint=_MEND)
    document = upgraded(value, _version(value, name, path))
    problems: list[Problem] = []
    model = None
    try:
        model = _SessionModel.model_validate(document)
    except ValidationError as error:
        problems = problems_of(error, line_of=line_of)
    outputs = _outputs(document, problems, line_of)
    if model is None or problems:
        raise Damaged(f"{name} does not fit: {some(map(str, problems), _MOST, '; ')}.", path=path, hint=_MEND)
    return _session(model, outputs)


def _version(value: Mapping[str, Any], name: str, path: str | None) -> int:
    version = value.get("schema_version", 0)
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        raise Damaged(f"{name}: schema_version must be a whole number, not {version!r:.60}.", path=path, hint=_MEND)
    if version > SCHEMA_VERSION:
        raise StorageError(
            f"{name} has schema version {version}, and this version knows up to {SCHEMA_VERSION}.",
            path=path,
            operation="open",
            hint="It was written by a newer version of Holdfast: use that one.",
        )
    return version


def _from_0(document: Document) -> Document:
    """The reference's file: it has no status, and its `current_stage` is the one that is to run."""
    completed = document.get("completed_stages") or []
    current = document.get("current_stage")
    waiting = current if isinstance(completed, list) and current not in completed else None
    stages = {name: {"status": "completed"} for name in completed if isinstance(name, str)} if isinstance(completed, list) else {}
    return {**document, "status": document.get("status", "ready"), "next_stage": document.get("next_stage", waiting)} | (
        {} if "stages" in document else {"stages": stages}
    )


STEPS: tuple[Callable[[Document], Document], ...] = (_from_0,)
"""`STEPS[n]` makes version n + 1 of version n. None of them raises, whatever a file holds: the models name what does not fit."""


def upgraded(document: Mapping[str, Any], version: int) -> Document:
    """The document as the current version has it (O7)."""
    found = dict(document)
    for step in STEPS[version:]:
        found = step(found)
    return found


# The models. In a file, null is the same as nothing for every member of ours that may be left out.


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _number(value: Any) -> Any:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise ValueError(f"must be a number, not {kind_of(value)}")
    return value


def _once(names: list[str]) -> list[str]:
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) != len(names) else []
    if twice:
        raise ValueError("; ".join(f"{name!r} is there twice" for name in twice))
    return names


_Mapping = dict[str, Any]
_Mappings = Annotated[list[_Mapping], BeforeValidator(_listed)]
_Texts = Annotated[list[str], BeforeValidator(_listed)]
_Number = Annotated[Any, AfterValidator(_number)]
_Count = Annotated[int, Field(ge=0)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    @model_validator(mode="before")
    @classmethod
    def _null_is_nothing(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {name: member for name, member in value.items() if member is not None or name not in cls.model_fields or name == "status"}


class _RecordModel(_Model):
    status: StageStatus = "pending"
    attempts: _Count = 0
    repairs: _Count = 0
    started_at: str | None = None
    ended_at: str | None = None
    seconds: _Number = None
    tokens: _Count | None = None
    cost: _Number = None
    model: str | None = None
    evicted: _Mappings = []
    provisional: bool = False
    added_by: str | None = None
    errors: _Mappings = []


class _ErrorModel(_Model):
    stage: str | None = None
    kind: str = "unknown"
    message: str = ""
    problems: _Texts = []
    raw_output: Any = None
    at: str | None = None
    hint: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _note(cls, value: Any) -> Any:
        return {"kind": "note", "message": value} if isinstance(value, str) else value  # a person's note in place of an error


class _SessionModel(_Model):
    """A session's document. Its outputs are read one by one: some may be of before the contract (W3)."""

    workflow_id: str
    task: str = ""
    topic_tag: str = ""
    status: Status = "ready"
    current_stage: str | None = None
    next_stage: str | None = None
    completed_stages: Annotated[_Texts, AfterValidator(_once)] = []
    error: _ErrorModel | None = None
    created_at: str = ""
    updated_at: str = ""
    stage_outputs: _Mapping = {}
    memory_snapshots: _Mappings = []
    stages: dict[str, _RecordModel] = {}
    retrieved: _Mappings = []
    usage: _Mapping = {}
    lineage: _Mapping | None = None
    workflow: _Mapping = {}
    workflow_hash: str = ""
    configuration: _Mapping = {}
    revision: _Count = 0
    schema_version: int = SCHEMA_VERSION

    @field_validator("workflow_id")
    @classmethod
    def _usable(cls, value: str) -> str:
        try:
            return check_session_id(value)
        except InputError as error:
            raise ValueError(error.message) from None


def _outputs(document: Document, problems: list[Problem], line_of: Callable[[Loc], int | None] | None) -> dict[str, StageOutput]:
    """Outputs by stage. One without `stage_name` comes from a file of before the contract (W3)."""
    given, shots = document.get("stage_outputs"), document.get("memory_snapshots")
    said = {one.get("stage"): one.get("summary") for one in shots if isinstance(one, Mapping)} if isinstance(shots, (list, tuple)) else {}
    found: dict[str, StageOutput] = {}
    for stage, value in given.items() if isinstance(given, Mapping) else ():
        if not isinstance(value, Mapping) or "stage_name" not in value:
            summary = said.get(stage)
            found[stage] = legacy_output(stage, value, summary if isinstance(summary, str) and summary.strip() else None)
            continue
        try:
            found[stage] = read_output(value, stage)
        except ValidationError as error:
            inside = ("stage_outputs", stage)
            line = (lambda loc, inside=inside: line_of((*inside, *loc))) if line_of is not None else None
            problems += [
                Problem(f"stage_outputs.{stage}.{problem.place}", problem.what, problem.line)
                for problem in problems_of(error, line_of=line)
            ]
    return found


def _session(model: _SessionModel, outputs: dict[str, StageOutput]) -> Session:
    error = model.error
    return Session(
        workflow_id=model.workflow_id,
        task=model.task,
        topic_tag=model.topic_tag or "general",
        status=model.status,
        current_stage=model.current_stage,
        next_stage=model.next_stage,
        completed_stages=tuple(model.completed_stages),
        stage_outputs=outputs,
        memory_snapshots=tuple(model.memory_snapshots),
        stages={name: _record(one) for name, one in model.stages.items()},
        error=None if error is None else _error(error),
        retrieved=tuple(model.retrieved),
        workflow=model.workflow,
        workflow_hash=model.workflow_hash,
        configuration=model.configuration,
        created_at=model.created_at,
        updated_at=model.updated_at,
        revision=model.revision,
        lineage=model.lineage,
        usage=model.usage,
        extra=dict(model.model_extra or {}),
    )


def _record(model: _RecordModel) -> StageRecord:
    values = {name: getattr(model, name) for name in _RecordModel.model_fields}
    return StageRecord(**{**values, "evicted": tuple(model.evicted), "errors": tuple(model.errors)}, extra=model.model_extra or {})


def _error(model: _ErrorModel) -> SessionError:
    values = {name: getattr(model, name) for name in _ErrorModel.model_fields}
    return SessionError(**{**values, "kind": model.kind or "unknown", "problems": tuple(model.problems)}, extra=model.model_extra or {})


def _located(error: Damaged, data: bytes, path: str) -> Damaged:
    """The same error with line and column, and with the word for what people most often leave behind."""
    position = error.position or 0
    before = data[:position].decode("utf-8", "replace").removeprefix("\ufeff")
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    what = error.message.removeprefix(f"{path} ").removesuffix(f", at byte {position}.")
    if before.rstrip().endswith(",") and data[position : position + 1] in (b"}", b"]"):
        what = "has a comma too many before the closing bracket"
    elif data[:position].rstrip().endswith((b'"', b"}", b"]")) and data[position : position + 1] in (b'"', b"{", b"["):
        what = "lacks a comma between two members"
    return Damaged(f"{path} {what}, at line {line}, column {column}.", path=path, position=position, hint=_MEND)
