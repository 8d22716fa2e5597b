"""Sessions as older versions kept them: a JSON document without a log, and recovery points in a log of their own (O7).

They are read as they are, and become records of the log with the first write. In PostgreSQL the old rows were moved to the same keys, see
`factory.py: SessionBackend`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from holdfast.errors import Damaged
from holdfast.session.log import Document, compacted
from holdfast.session.parser import decode_session, parse_session
from holdfast.session.renderer import session_json
from holdfast.session.state import Session
from holdfast.storage.backend import Backend, Mark

_SPLIT = ("stage_outputs", "stages", "memory_snapshots", "retrieved", "workflow", "configuration")


@dataclass(frozen=True, slots=True)
class OldSession:
    """The document of a session without a log, and its recovery points. `mark` is that of the document."""

    data: bytes
    mark: Mark
    workflow_id: str
    path: str
    points: Mapping[str, tuple[str, Document]]
    files: Mapping[str, str]

    def session(self) -> Session:
        """The state. Damaged, with line and place, if it cannot be read."""
        found = decode_session(self.data, self.path)
        if found.workflow_id != self.workflow_id:
            raise Damaged(
                f"{self.path} holds the session {found.workflow_id!r}.",
                path=self.path,
                hint=f"Give the file its name back, or set workflow_id to {self.workflow_id!r} in it.",
            )
        return replace(found, mark=blake2b(self.data, digest_size=16).hexdigest())

    def records(self) -> list[Document]:
        """All of it as records of a log."""
        return compacted(self.points, session_json(self.session()), self.files)


def old_session(backend: Backend, key: str, workflow_id: str) -> OldSession | None:
    """What an older version kept of a session; None if nothing."""
    stored = backend.get(f"{key}.json")
    if stored is None:
        return None
    points = old_points(backend.read(f"{key}/checkpoints.jsonl").records)
    start = f"{key}/stages/"
    texts = {item.key.removeprefix(start): backend.get(item.key) for item in backend.list(start) if item.kind == "document"}
    files = {name: text.data.decode("utf-8", "replace") for name, text in texts.items() if text is not None}
    return OldSession(stored.data, stored.mark, workflow_id, backend.where(f"{key}.json"), points, files)


def old_points(records: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, Document]]:
    """Recovery points by name, oldest first: time and document. Those that have lost a part, or cannot be read, are left out.

    A record is a part, `{"part": id, "value"}`, or a point, `{"checkpoint": name, "at", "session"}`, in which large members are ids of
    parts; PostgreSQL kept the whole text, `{"checkpoint": name, "at", "document"}`.
    """
    parts: dict[str, Any] = {}
    points: dict[str, tuple[str, Document]] = {}
    for record in records:
        if "part" in record:
            parts[record["part"]] = record.get("value")
            continue
        name = record.get("checkpoint")
        try:
            document = _point(record, parts)
        except (Damaged, KeyError, TypeError):
            continue
        if isinstance(name, str):
            points.pop(name, None)  # one of the same name is replaced, and is the newest again
            points[name] = (str(record.get("at", "")), document)
    return points


def _point(record: Mapping[str, Any], parts: Mapping[str, Any]) -> Document:
    if "document" in record:
        return session_json(decode_session(str(record["document"]).encode(), "a recovery point"))
    state = dict(record["session"])
    for name in _SPLIT:
        ids = state.get(name)
        if isinstance(ids, str):
            state[name] = parts[ids]
        elif isinstance(ids, dict):
            state[name] = {key: parts[id] for key, id in ids.items()}
        elif isinstance(ids, list):
            state[name] = [parts[id] for id in ids]
    return session_json(parse_session(state))
