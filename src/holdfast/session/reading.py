"""From the bytes of a session file to a `Session`. Every problem is named with its place, all of them at once; nothing is guessed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.durable import strict_json
from holdfast.errors import Damaged, InputError, OutputInvalid, StorageError
from holdfast.session.names import check_session_id
from holdfast.session.output import StageOutput, legacy_output, parse_output
from holdfast.session.state import SCHEMA_VERSION, STAGE_STATUSES, STATUSES, Session, SessionError, StageRecord
from holdfast.session.upgrades import upgraded

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
_MOST = 8


def decode_session(data: bytes, path: str) -> Session:
    """The session in the bytes of a file: with a byte order mark or Windows line ends, as editors leave them.

    Damaged with line and column where it is not JSON, with the place in the document where a value does not fit.
    """
    if not data.strip(b"\0 \t\r\n"):
        raise Damaged(f"{path} is empty.", path=path, position=0, hint=_MEND)
    try:
        value = strict_json.decode(data, path=path)
    except Damaged as error:
        raise _located(error, data, path) from error
    return read_session(value, path)


def read_session(value: object, path: str | None = None) -> Session:
    """The session in a decoded value; see `state.parse_session`."""
    name = path or "the session"
    if not isinstance(value, Mapping):
        raise Damaged(f"{name} is not a session: it holds {_kind(value)} instead of an object.", path=path, hint=_MEND)
    version = value.get("schema_version", 0)
    if not _whole(version) or version < 0:
        raise Damaged(f"{name}: schema_version must be a whole number, not {version!r:.60}.", path=path, hint=_MEND)
    if version > SCHEMA_VERSION:
        raise StorageError(
            f"{name} has schema version {version}, and this version knows up to {SCHEMA_VERSION}.",
            path=path,
            operation="open",
            hint="It was written by a newer version of Holdfast: use that one.",
        )
    reader = _Reader(upgraded(value, version))
    session = reader.session()
    if reader.problems:
        more = f"; and {len(reader.problems) - _MOST} more" if len(reader.problems) > _MOST else ""
        raise Damaged(f"{name} does not fit: {'; '.join(reader.problems[:_MOST])}{more}.", path=path, hint=_MEND)
    return session


_MEND = "Mend it with `holdfast session edit`, or go back with `holdfast session restore`. It was not changed."


class _Reader:
    """Reads the members of one document and collects what is wrong with them."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.problems: list[str] = []

    def session(self) -> Session:
        document = self.document
        snapshots = self._mappings(document, "memory_snapshots")
        return Session(
            workflow_id=self._id(),
            task=self._text(document, "task"),
            topic_tag=self._text(document, "topic_tag") or "general",
            status=self._choice(document, "status", STATUSES, "ready"),
            current_stage=self._optional(document, "current_stage"),
            next_stage=self._optional(document, "next_stage"),
            completed_stages=self._completed(),
            stage_outputs=self._outputs(snapshots),
            memory_snapshots=snapshots,
            stages={name: self._record(one, f"stages.{name}") for name, one in self._mapping(document, "stages").items()},
            error=self._error(),
            retrieved=self._mappings(document, "retrieved"),
            workflow=self._mapping(document, "workflow"),
            workflow_hash=self._text(document, "workflow_hash"),
            configuration=self._mapping(document, "configuration"),
            created_at=self._text(document, "created_at"),
            updated_at=self._text(document, "updated_at"),
            revision=self._count(document, "revision"),
            lineage=self._mapping(document, "lineage") if document.get("lineage") is not None else None,
            usage=self._mapping(document, "usage"),
            extra={name: member for name, member in document.items() if name not in SESSION_FIELDS},
        )

    def _id(self) -> str:
        found = self.document.get("workflow_id")
        if found is None:
            self.problems.append("workflow_id: is missing")
            return ""
        try:
            return check_session_id(found)
        except InputError as error:
            self.problems.append(f"workflow_id: {error.message}")
            return ""

    def _completed(self) -> tuple[str, ...]:
        found = self._texts(self.document, "completed_stages")
        twice = sorted({name for name in found if found.count(name) > 1}) if len(set(found)) != len(found) else []
        self.problems += [f"completed_stages: {name!r} is there twice" for name in twice]
        return found

    def _outputs(self, snapshots: tuple[Mapping[str, Any], ...]) -> dict[str, StageOutput]:
        """Outputs by stage. One without `stage_name` comes from a file of before the contract (W3)."""
        said = {one.get("stage"): one.get("summary") for one in snapshots if isinstance(one.get("stage"), str)}
        found: dict[str, StageOutput] = {}
        for stage, value in self._mapping(self.document, "stage_outputs").items():
            if not isinstance(value, Mapping) or "stage_name" not in value:
                summary = said.get(stage)
                found[stage] = legacy_output(stage, value, summary if isinstance(summary, str) and summary.strip() else None)
                continue
            try:
                found[stage] = parse_output(value, stage=stage)
            except OutputInvalid as error:
                self.problems += [f"stage_outputs.{stage}.{problem}" for problem in error.problems]
        return found

    def _record(self, value: object, place: str) -> StageRecord:
        if not isinstance(value, Mapping):
            self.problems.append(f"{place}: must be an object, not {_kind(value)}")
            return StageRecord()
        return StageRecord(
            status=self._choice(value, "status", STAGE_STATUSES, "pending", place),
            attempts=self._count(value, "attempts", place),
            repairs=self._count(value, "repairs", place),
            started_at=self._optional(value, "started_at", place),
            ended_at=self._optional(value, "ended_at", place),
            seconds=self._number(value, "seconds", place),
            tokens=self._count(value, "tokens", place) if value.get("tokens") is not None else None,
            cost=self._number(value, "cost", place),
            model=self._optional(value, "model", place),
            evicted=self._mappings(value, "evicted", place),
            provisional=self._flag(value, "provisional", place),
            added_by=self._optional(value, "added_by", place),
            errors=self._mappings(value, "errors", place),
            extra={name: member for name, member in value.items() if name not in RECORD_FIELDS},
        )

    def _error(self) -> SessionError | None:
        value = self.document.get("error")
        if value is None:
            return None
        if isinstance(value, str):  # a person's note in place of an error
            return SessionError(None, "note", value)
        if not isinstance(value, Mapping):
            self.problems.append(f"error: must be an object or null, not {_kind(value)}")
            return None
        return SessionError(
            stage=self._optional(value, "stage", "error"),
            kind=self._text(value, "kind", "error") or "unknown",
            message=self._text(value, "message", "error"),
            problems=self._texts(value, "problems", "error"),
            raw_output=value.get("raw_output"),
            at=self._optional(value, "at", "error"),
            hint=self._optional(value, "hint", "error"),
            extra={name: member for name, member in value.items() if name not in ERROR_FIELDS},
        )

    # Members of one kind each. Absent, or null, is the empty value of that kind.

    def _wrong(self, place: str, name: str, wanted: str, found: object) -> None:
        self.problems.append(f"{place + '.' if place else ''}{name}: must be {wanted}, not {_kind(found)}")

    def _text(self, holder: Mapping[str, Any], name: str, place: str = "") -> str:
        return self._optional(holder, name, place) or ""

    def _optional(self, holder: Mapping[str, Any], name: str, place: str = "") -> str | None:
        found = holder.get(name)
        if found is None or isinstance(found, str):
            return found
        self._wrong(place, name, "text", found)
        return None

    def _choice(self, holder: Mapping[str, Any], name: str, known: tuple[Any, ...], otherwise: str, place: str = "") -> Any:
        found = holder.get(name, otherwise)
        if isinstance(found, str) and found in known:
            return found
        shown = repr(found)[:60] if isinstance(found, str) else _kind(found)
        self.problems.append(f"{place + '.' if place else ''}{name}: must be one of {', '.join(known)}, not {shown}")
        return otherwise

    def _count(self, holder: Mapping[str, Any], name: str, place: str = "") -> int:
        found = holder.get(name)
        if found is None:
            return 0
        if _whole(found) and found >= 0:
            return int(found)
        self._wrong(place, name, "a whole number from 0 up", found)
        return 0

    def _number(self, holder: Mapping[str, Any], name: str, place: str) -> float | None:
        found = holder.get(name)
        if found is None or (isinstance(found, (int, float)) and not isinstance(found, bool)):
            return found
        self._wrong(place, name, "a number", found)
        return None

    def _flag(self, holder: Mapping[str, Any], name: str, place: str) -> bool:
        found = holder.get(name, False)
        if isinstance(found, bool):
            return found
        self._wrong(place, name, "true or false", found)
        return False

    def _mapping(self, holder: Mapping[str, Any], name: str, place: str = "") -> Mapping[str, Any]:
        found = holder.get(name)
        if found is None:
            return {}
        if isinstance(found, Mapping):
            return found
        self._wrong(place, name, "an object", found)
        return {}

    def _members(self, holder: Mapping[str, Any], name: str, place: str, kind: type, wanted: str) -> tuple[Any, ...]:
        found = holder.get(name)
        if found is None:
            return ()
        if not isinstance(found, (list, tuple)):
            self._wrong(place, name, "a list", found)
            return ()
        for index, member in enumerate(found):
            if not isinstance(member, kind):
                self._wrong(place, f"{name}[{index}]", wanted, member)
        return tuple(member for member in found if isinstance(member, kind))

    def _texts(self, holder: Mapping[str, Any], name: str, place: str = "") -> tuple[str, ...]:
        return self._members(holder, name, place, str, "text")

    def _mappings(self, holder: Mapping[str, Any], name: str, place: str = "") -> tuple[Mapping[str, Any], ...]:
        return self._members(holder, name, place, Mapping, "an object")


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


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return kinds.get(type(value), repr(value)[:60])
