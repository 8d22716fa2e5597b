"""From a `Session` to JSON: as a value, and as the bytes of its file.

The bytes are those of `json.dumps(..., indent=2)`, put together from parts that are kept: a stage's output is put into words once, however
many commits follow it. Parts are told apart by identity, which is why nothing inside a session may be changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from hashlib import blake2b
from typing import Any

from holdfast.durable import strict_json
from holdfast.session.output import output_json
from holdfast.session.reading import ERROR_FIELDS, RECORD_FIELDS, SESSION_FIELDS
from holdfast.session.secrecy import clean_configuration, clean_definition, clean_text
from holdfast.session.state import SCHEMA_VERSION, Session, SessionError, StageRecord


def mark_of(revision: int, data: bytes) -> str:
    """The fingerprint of a session file: which revision it is, and its very bytes."""
    return f"{revision}:{blake2b(data, digest_size=16).hexdigest()}"


def written(session: Session) -> dict[str, Any]:
    """The session as a JSON value; see `state.session_json`."""
    return {name: _value(session, name) for name in SESSION_FIELDS if _has(session, name)} | _extra(session)


def record_json(record: StageRecord) -> dict[str, Any]:
    """A stage's record: its status, and what is not as it is for every stage at first."""
    value: dict[str, Any] = {"status": record.status}
    for one in fields(StageRecord):
        found = getattr(record, one.name)
        if one.name in RECORD_FIELDS[1:] and found != (one.default if one.default is not MISSING else None):
            value[one.name] = list(found) if isinstance(found, tuple) else found
    return {**value, **{name: member for name, member in record.extra.items() if name not in RECORD_FIELDS}}


@dataclass(slots=True)
class Part:
    """A piece of the file: the object it stands for, the object's JSON value, and the words for it at their depth in the file.

    `line` is the same with its key before it, where it has one.
    """

    source: object
    value: Any
    words: bytes
    line: bytes
    _id: str | None = None

    @property
    def id(self) -> str:
        """A name made from the content."""
        if self._id is None:
            self._id = blake2b(self.words, digest_size=12).hexdigest()
        return self._id


class SessionWriter:
    """Writes one session again and again. Keeps the parts of the last time, so that only what is new is put into words."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, str | int], Part] = {}

    def encode(self, session: Session) -> bytes:
        """The bytes of the file. InputError if JSON has no form for a value."""
        lines = [b'"%s": %s' % (name.encode(), self._words(session, name)) for name in SESSION_FIELDS if _has(session, name)]
        lines += [_keyed(name, _inner(strict_json.encode(member), "  ")) for name, member in _extra(session).items()]
        return b"{\n  " + b",\n  ".join(lines) + b"\n}\n"

    def parts(self, session: Session, field: str) -> dict[str, Part] | list[Part] | Part:
        """The parts of a field that is made of many, or the one part that it is."""
        if field in _KEYED:
            make = _KEYED[field]
            members: Mapping[str, Any] = getattr(session, field)
            return {name: self._part(field, name, one, make, "    ") for name, one in members.items()}
        if field in _LISTED:
            return [self._part(field, index, one, _same, "    ") for index, one in enumerate(getattr(session, field))]
        return self._part(field, "", getattr(session, field), _WHOLE[field], "  ")

    def _words(self, session: Session, field: str) -> bytes:
        if field not in _KEYED and field not in _LISTED and field not in _WHOLE:
            return _inner(strict_json.encode(_value(session, field)), "  ")
        found = self.parts(session, field)
        if isinstance(found, Part):
            return found.words
        begin, end = (b"{", b"}") if isinstance(found, dict) else (b"[", b"]")
        lines = [part.line for part in (found.values() if isinstance(found, dict) else found)]
        return begin + b"\n    " + b",\n    ".join(lines) + b"\n  " + end if lines else begin + end

    def _part(self, field: str, key: str | int, source: Any, make: Callable[[Any], Any], indent: str) -> Part:
        held = self._parts.get((field, key))
        if held is not None and held.source is source:
            return held
        value = make(source)
        words = _inner(strict_json.encode(value), indent)
        part = Part(source, value, words, _keyed(key, words) if isinstance(key, str) else words)
        self._parts[(field, key)] = part
        return part


def _same(value: Any) -> Any:
    return value


_KEYED: Mapping[str, Callable[[Any], Any]] = {"stage_outputs": output_json, "stages": record_json}
_LISTED = ("completed_stages", "memory_snapshots", "retrieved")
_WHOLE: Mapping[str, Callable[[Any], Any]] = {"workflow": clean_definition, "configuration": clean_configuration}


def _has(session: Session, field: str) -> bool:
    """`error` and what a person needs to see is always there; the rest only when it says something."""
    return field not in ("lineage", "usage", "retrieved", "workflow", "workflow_hash", "configuration") or bool(getattr(session, field))


def _value(session: Session, field: str) -> Any:
    found = getattr(session, field)
    if field in _KEYED:
        return {name: _KEYED[field](one) for name, one in found.items()}
    if field in _WHOLE:
        return _WHOLE[field](found)
    if field == "error":
        return None if found is None else _error_json(found)
    if field == "schema_version":
        return SCHEMA_VERSION
    return list(found) if isinstance(found, tuple) else dict(found) if isinstance(found, Mapping) else found


def _error_json(error: SessionError) -> dict[str, Any]:
    value = {name: getattr(error, name) for name in ERROR_FIELDS} | {"problems": list(error.problems)}
    value = {name: member for name, member in value.items() if name in ("stage", "kind", "message") or member not in (None, [])}
    cleaned: dict[str, Any] = _cleaned({**value, **{name: one for name, one in error.extra.items() if name not in ERROR_FIELDS}})
    return cleaned


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        return {name: _cleaned(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(member) for member in value]
    return value


def _extra(session: Session) -> dict[str, Any]:
    return {name: member for name, member in session.extra.items() if name not in SESSION_FIELDS}


def _keyed(name: str, words: bytes) -> bytes:
    return b"%s: %s" % (strict_json.encode(name).rstrip(b"\n"), words)


def _inner(data: bytes, indent: str) -> bytes:
    """The words for a value inside another: no line break stands in a JSON text but between members."""
    return data.rstrip(b"\n").replace(b"\n", f"\n{indent}".encode())
