"""A session in one line, without reading more of a large file than that line needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdfast.errors import StorageError
from holdfast.session.reading import decode_session, read_session
from holdfast.session.state import STATUSES, Session
from holdfast.session.store import SessionBrief

_SMALL = 1 << 18  # bytes: below this the whole file is checked, so that damage shows in the list
_SLICE = 1 << 16
_DECODER = json.JSONDecoder()


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
        error=_one_line(session.error.message) if session.error is not None else None,
    )


def brief_of_file(workflow_id: str, data: bytes, path: str) -> SessionBrief:
    """The line for the session in these bytes. Never raises: what is wrong with them is its `problem`."""
    if len(data) > _SMALL and data.startswith(b'{\n  "') and data.rstrip().endswith(b"}"):
        found = _skimmed(workflow_id, data)
        if found is not None:
            return found
    try:
        session = _quickly(data, path)
    except StorageError as error:
        skimmed = _skimmed(workflow_id, data) or SessionBrief(workflow_id)
        return SessionBrief(workflow_id, skimmed.task, updated_at=skimmed.updated_at, problem=error.message)
    if session.workflow_id != workflow_id:
        return SessionBrief(workflow_id, session.task, problem=f"{path} says that it is {session.workflow_id!r}.")
    return brief_of(session)


def _quickly(data: bytes, path: str) -> Session:
    """The session, read without the checks that only a loader needs; what does not parse is read again, to say where."""
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return decode_session(data, path)
    return read_session(value, path)


def _skimmed(workflow_id: str, data: bytes) -> SessionBrief | None:
    """The same from single members, found by the way that we write a file: two spaces before each of the outermost ones.

    None if the file was not written that way. A line break stands in no JSON text, so what is found is a member and not somebody's words.
    """
    members = {name: _member(data, name) for name in ("workflow_id", "status", "task", "current_stage", "next_stage", "completed_stages")}
    if members["workflow_id"] != workflow_id or members["status"] not in STATUSES or not isinstance(members["completed_stages"], list):
        return None
    workflow, error = _member(data, "workflow"), _member(data, "error")
    stages = workflow.get("stages") if isinstance(workflow, Mapping) else None
    named = [one.get("name") for one in stages if isinstance(one, Mapping)] if isinstance(stages, list) else []
    return SessionBrief(
        workflow_id=workflow_id,
        task=_text(members["task"]),
        status=members["status"],
        current_stage=_text(members["current_stage"]) or None,
        next_stage=_text(members["next_stage"]) or None,
        completed=len(members["completed_stages"]),
        total=len(dict.fromkeys([*named, *members["completed_stages"]])) if named else None,
        created_at=_text(_member(data, "created_at")),
        updated_at=_text(_member(data, "updated_at")),
        revision=int(_member(data, "revision") or 0),
        error=_one_line(_text(error.get("message"))) if isinstance(error, Mapping) else None,
    )


def _member(data: bytes, name: str) -> Any:
    lead = f'\n  "{name}": '.encode()
    at = data.find(lead)
    if at < 0:
        return None
    at += len(lead)
    for end in (at + _SLICE, len(data)):
        try:
            return _DECODER.raw_decode(data[at:end].decode("utf-8", "ignore"))[0]
        except (ValueError, RecursionError):
            continue
    return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
