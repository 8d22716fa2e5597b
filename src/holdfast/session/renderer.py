"""From a `Session` to JSON: as a value, and as the bytes of its file.

The bytes are those of `json.dumps(..., indent=2)`, put together from parts that are kept: a stage's output is encoded once, however
many commits follow it. Parts are told apart by identity, which is why nothing inside a session may be changed in place.

Secrets never reach the file: settings are hidden by their names, texts by the forms that keys and passwords have (C3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from itertools import compress, islice
from operator import is_not
from typing import Any

from holdfast.durable import strict_json
from holdfast.redaction import HIDDEN, is_secret_key, redact, redact_text
from holdfast.session.output import output_json
from holdfast.session.state import ERROR_FIELDS, RECORD_FIELDS, SCHEMA_VERSION, SESSION_FIELDS, Session, SessionError, StageRecord

Document = dict[str, Any]
_Part = tuple[object, Any, bytes]
"""A piece of the file: the object it stands for, the object's JSON value, and its encoded text at its depth in the file, with its key."""


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
        if is_secret_key(key) and not value.startswith("$"):  # `$NAME` is the name of a variable, not its value
            return HIDDEN
        from holdfast.secret_forms import replace_secrets  # it reads a long list of forms

        return replace_secrets(value)
    return value


class SessionRenderer:
    """Writes one session again and again. Keeps what it made the last time, so that only what is new is made. Not thread-safe."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Mapping[str, Any], Document]] = {}
        """Of outputs and records of stages: what was last given, and the JSON value of it."""
        self._lines: dict[str, dict[str | int, tuple[object, bytes]]] = {}
        """The members of lists and objects as they are written, each with the value that it stands for."""
        self._wholes: dict[str, _Part] = {}

    def document(self, session: Session) -> Document:
        """The session as a JSON value. Values inside are the same objects as the last time where nothing changed."""
        found: Document = {}
        for name in SESSION_FIELDS:
            member = getattr(session, name)
            if not member and name in _OPTIONAL:
                continue
            if name in _KEYED:
                found[name] = self._members(name, member)
            elif name in _WHOLE:
                found[name] = self._whole(name, member)
            else:
                found[name] = _plain(name, member)
        if session.extra:
            found.update((name, member) for name, member in session.extra.items() if name not in SESSION_FIELDS)
        return found

    def encode(self, document: Document) -> bytes:
        """The bytes of the file for a document that this renderer made last. InputError if JSON has no form for a value."""
        lines = []
        for name, member in document.items():
            if name in _BLOCKS:
                lines.append(b'"%s": %s' % (name.encode(), self._block(name, member)))
            elif name in self._wholes and name in SESSION_FIELDS:
                lines.append(self._wholes[name][2] or self._encoded_whole(name))
            else:
                lines.append(_line(name, member, b"\n  "))
        return b"{\n  " + b",\n  ".join(lines) + b"\n}\n"

    def _members(self, field: str, source: Mapping[str, Any]) -> Document:
        last, made = self._made.get(field, ({}, {}))
        if last is not source:
            make = _KEYED[field]
            if len(last) <= len(source) and [*last] == [*islice(source, len(last))]:  # the usual case, at the speed of C
                names = [*compress(last, map(is_not, last.values(), source.values())), *islice(source, len(last), None)]
                made = {**made, **{name: make(source[name]) for name in names}}
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
                part = (value, _line(key, value, b"\n    ") if isinstance(key, str) else _inner(value, b"\n    "))
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
        line = _line(field, value, b"\n  ")
        self._wholes[field] = (source, value, line)
        return line


def record_json(record: StageRecord) -> Document:
    """A stage's record: its status, and the fields that do not have their default."""
    value: Document = {"status": record.status}
    for name, default in _DEFAULTS:
        found = getattr(record, name)
        if found != default:
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


def _line(name: str, value: Any, indent: bytes) -> bytes:
    return b"%s: %s" % (strict_json.encode(name).rstrip(b"\n"), _inner(value, indent))


def _inner(value: Any, indent: bytes) -> bytes:
    """The text of a value inside another: no line break stands in a JSON text but between members."""
    if isinstance(value, str) or not value:
        return strict_json.encode(value, readable=False).rstrip(b"\n")  # one line, and ten times as fast
    return strict_json.encode(value).rstrip(b"\n").replace(b"\n", indent)
