"""A `Session` as JSON, both ways: as a value, as the bytes of its file, and read from them again.

The bytes are those of `json.dumps(..., indent=2)`, put together from parts that are kept: a stage's output is encoded once, however
many commits follow it. Parts are told apart by identity, which is why nothing inside a session may be changed in place. Secrets never
reach the file: settings are hidden by their names, texts by the forms that keys and passwords have (C3).

Reading is by pydantic models, and names every problem with its place and line, all of them at once. It knows the files of every version up
to ours and those of the reference (version 0, which says no version); what is newer is refused (O7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import lru_cache
from itertools import compress, islice
from operator import is_not
from pathlib import PurePath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from holdfast.durable import strict_json
from holdfast.errors import Damaged, InputError, StorageError
from holdfast.redaction import HIDDEN, is_secret_key, redact, redact_text
from holdfast.session.output import StageOutput, legacy_output, output_json, read_output
from holdfast.session.state import (
    ERROR_FIELDS,
    RECORD_FIELDS,
    SCHEMA_VERSION,
    SESSION_FIELDS,
    Session,
    SessionError,
    StageRecord,
    StageStatus,
    Status,
    check_session_id,
    is_session_id,
)
from holdfast.validation import Loc, Problem, json_line, kind_of, problems_of, some

Document = dict[str, Any]
_Part = tuple[object, Any, bytes]
"""A piece of the file: the object it stands for, the object's JSON value, and its encoded text at its depth in the file, with its key."""


# Writing


def session_json(session: Session) -> Document:
    """The session as it is written, in the order in which a person wants to read it, without secrets (C3)."""
    return SessionRenderer().document(session)


def render_session(session: Session) -> bytes:
    """The bytes of a session's file."""
    renderer = SessionRenderer()
    return renderer.encode(renderer.document(session))


def clean_configuration(value: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they may be kept: everything under the name of a secret is hidden, and every text is cleaned."""
    return {name: redact(member, name) for name, member in value.items()}


def clean_definition(value: Any, key: object = "") -> Any:
    """A workflow definition as it may be kept. Its prompts are words for a model, so texts lose only what has the form of a secret."""
    if isinstance(value, Mapping):
        return {name: clean_definition(member, name) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean_definition(member) for member in value]
    if isinstance(value, str):
        if _hides(key) and not value.startswith("$"):  # `$NAME` is the name of a variable, not its value
            return HIDDEN
        return _without_secrets(value)
    return value


_hides = lru_cache(maxsize=256)(is_secret_key)


@lru_cache(maxsize=256)
def _without_secrets(text: str) -> str:
    """The stages of a workflow say the same words again and again, and its hash is made of the same texts as its file."""
    from holdfast.redaction import replace_secrets  # it reads a long list of forms

    return replace_secrets(text)


class SessionRenderer:
    """Writes one session again and again. Keeps what it made the last time, so that only what is new is made. Not thread-safe."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Mapping[str, Any], Document]] = {}
        """Of outputs and records of stages: what was last given, and the JSON value of it."""
        self._lines: dict[str, dict[str | int, tuple[object, bytes]]] = {}
        """The members of lists and objects as they are written, each with the value that it stands for."""
        self._wholes: dict[str, _Part] = {}
        self._last: tuple[Mapping[str, Any], Document] = ({}, {})
        """The members of the session that was last given, and its JSON value."""
        self.news: tuple[Document, dict[str, list[str]]] = ({}, {})
        """The JSON value before that, and by field the names of outputs and records that are other ones since: no others are."""

    def document(self, session: Session) -> Document:
        """The session as a JSON value. Values inside are the same objects as the last time where nothing changed."""
        last, before = self._last
        self.news = (before, {})
        new = {name: member for name, member in vars(session).items() if last.get(name, self) is not member}
        if last and not new:
            return before
        if last and _SHAPING.isdisjoint(new):  # the usual case: the same members, of which a few are other ones
            found = {**before, **{name: self._member(name, member) for name, member in new.items() if name in before}}
        else:
            members = ((name, getattr(session, name)) for name in SESSION_FIELDS)
            found = {name: self._member(name, member) for name, member in members if member or name not in _OPTIONAL}
            if session.extra:
                found.update((name, member) for name, member in session.extra.items() if name not in SESSION_FIELDS)
        self._last = (vars(session), found)
        return found

    def _member(self, name: str, member: Any) -> Any:
        if name in _KEYED:
            return self._members(name, member)
        return self._whole(name, member) if name in _WHOLE else _plain(name, member)

    def encode(self, document: Document) -> bytes:
        """The bytes of the file for a document that this renderer made last. InputError if JSON has no form for a value."""
        lines = []
        for name, member in document.items():
            if name in _BLOCKS:
                lines.append(b'"%s": %s' % (name.encode(), self._block(name, member)))
            elif name in self._wholes and name in SESSION_FIELDS:
                lines.append(self._wholes[name][2] or self._encoded_whole(name))
            else:
                lines.append(_line(name, member, "\n  "))
        return b"{\n  " + b",\n  ".join(lines) + b"\n}\n"

    def _members(self, field: str, source: Mapping[str, Any]) -> Document:
        last, made = self._made.get(field, ({}, {}))
        if last is not source:
            make = _KEYED[field]
            if len(last) <= len(source) and [*last] == [*islice(source, len(last))]:  # the usual case, at the speed of C
                names = [*compress(last, map(is_not, last.values(), source.values())), *islice(source, len(last), None)]
                made = {**made, **{name: make(source[name]) for name in names}}
                self.news[1][field] = names
            else:
                made = {name: made[name] if last.get(name) is one and name in made else make(one) for name, one in source.items()}
            self._made[field] = (source, made)
        return made

    def _block(self, field: str, members: Any) -> bytes:
        known = self._lines.get(field, {})
        held: dict[str | int, tuple[object, bytes]] = {}
        for key, value in members.items() if isinstance(members, dict) else enumerate(members):
            part = known.get(key)
            if part is None or part[0] is not value:
                written = _line(key, value, "\n    ") if isinstance(key, str) else strict_json.encode_inside(value, "\n    ")
                part = (value, written)
            held[key] = part
        self._lines[field] = held
        begin, end = (b"{", b"}") if isinstance(members, dict) else (b"[", b"]")
        return begin + b"\n    " + b",\n    ".join([line for _, line in held.values()]) + b"\n  " + end if held else begin + end

    def _whole(self, field: str, source: Any) -> Any:
        held = self._wholes.get(field)
        if held is None or held[0] is not source:
            held = self._wholes[field] = (source, _WHOLE[field](source), b"")
        return held[1]

    def _encoded_whole(self, field: str) -> bytes:
        source, value, _ = self._wholes[field]
        line = _line(field, value, "\n  ")
        self._wholes[field] = (source, value, line)
        return line


def record_json(record: StageRecord) -> Document:
    """A stage's record: its status, and the fields that do not have their default."""
    value: Document = {"status": record.status}
    members = vars(record)
    for name, default in _DEFAULTS:
        found = members[name]
        if found is not default and found != default:
            value[name] = list(found) if isinstance(found, tuple) else found
    if record.extra:
        value.update((name, member) for name, member in record.extra.items() if name not in RECORD_FIELDS)
    return value


_DEFAULTS = tuple(
    (one.name, one.default if one.default is not MISSING else None) for one in fields(StageRecord) if one.name in RECORD_FIELDS[1:]
)
_KEYED: Mapping[str, Callable[[Any], Any]] = {"stage_outputs": output_json, "stages": record_json}
_BLOCKS = frozenset((*_KEYED, "completed_stages", "memory_snapshots", "retrieved"))
_WHOLE: Mapping[str, Callable[[Any], Any]] = {"workflow": clean_definition, "configuration": clean_configuration}
_OPTIONAL = frozenset(("lineage", "usage", "retrieved", "workflow", "workflow_hash", "configuration"))
"""Left out when empty; what a person needs to see is always there."""
_SHAPING = _OPTIONAL | {"extra"}
"""What decides which members there are."""


def _plain(field: str, found: Any) -> Any:
    if found is None or type(found) in (str, int):
        return SCHEMA_VERSION if field == "schema_version" else found
    if field == "error":
        return None if found is None else _error_json(found)
    return list(found) if isinstance(found, tuple) else dict(found) if isinstance(found, Mapping) else found


def _error_json(error: SessionError) -> Document:
    value = {name: getattr(error, name) for name in ERROR_FIELDS} | {"problems": list(error.problems)}
    value = {name: member for name, member in value.items() if name in ("stage", "kind", "message") or member not in (None, [])}
    cleaned: Document = _cleaned({**value, **{name: one for name, one in error.extra.items() if name not in ERROR_FIELDS}})
    return cleaned


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {name: _cleaned(member) for name, member in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [_cleaned(member) for member in value]
    return value


def _line(name: str, value: Any, line: str) -> bytes:
    return b"%s: %s" % (strict_json.encode_inside(name, line), strict_json.encode_inside(value, line))


_MOST = 8  # problems that are worth telling at once


def go_back(id: str) -> str:
    """How to go back to a recovery point of a session, as the end of a hint."""
    return f"`holdfast session restore {id} CHECKPOINT` goes back; without CHECKPOINT it lists the recovery points."


def _mend(path: str | None, value: object = None) -> str:
    """What to do about a session that cannot be read. Its id is in it, or is the name of its file."""
    said = value.get("workflow_id") if isinstance(value, Mapping) else None
    named = PurePath(path).name.removesuffix(".json") if path is not None and path.endswith(".json") else None
    id = next((one for one in (said, named) if isinstance(one, str) and is_session_id(one)), "ID")
    return f"Mend it with `holdfast session edit {id}`; {go_back(id)} It was not changed."


# Reading


def decode_session(data: bytes, path: str) -> Session:
    """The session in the bytes of a file: with a byte order mark or Windows line ends, as editors leave them.

    Damaged with line and column where it is not JSON, with line and place in the document where a value does not fit.
    """
    if not data.strip(b"\0 \t\r\n"):
        raise Damaged(f"{path} is empty.", path=path, position=0, hint=_mend(path))
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
        raise Damaged(f"{name} is not a session: it holds {kind_of(value)} instead of an object.", path=path, hint=_mend(path, value))
    document = upgraded(value, _version(value, name, path))
    problems: list[Problem] = []
    model = None
    try:
        model = _SessionModel.model_validate(document)
    except ValidationError as error:
        problems = problems_of(error, line_of=line_of)
    outputs = _outputs(document, problems, line_of)
    if model is None or problems:
        raise Damaged(f"{name} does not fit: {some(map(str, problems), _MOST, '; ')}.", path=path, hint=_mend(path, value))
    return _session(model, outputs)


def _version(value: Mapping[str, Any], name: str, path: str | None) -> int:
    version = value.get("schema_version", 0)
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        raise Damaged(f"{name}: schema_version must be a whole number, not {version!r:.60}.", path=path, hint=_mend(path, value))
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
    return Damaged(f"{path} {what}, at line {line}, column {column}.", path=path, position=position, hint=_mend(path))
