"""Recovery points of one session: a log in which every stage's output is written once, whatever number of points hold it.

A record is either a part, `{"part": id, "value": ...}`, or a point, `{"checkpoint": name, "at": ..., "session": {...}}`, in which the large
members of the session stand as ids of parts. So a point costs one append with one sync, of the size of what is new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.durable.append import AppendLog
from holdfast.durable.disk import REAL, Disk, closing
from holdfast.durable.records import Entry
from holdfast.errors import Damaged, InputError
from holdfast.session.names import check_checkpoint_name, near
from holdfast.session.reading import read_session
from holdfast.session.state import Session
from holdfast.session.store import CheckpointBrief
from holdfast.session.writing import Part, SessionWriter, written

_SPLIT = ("stage_outputs", "stages", "memory_snapshots", "retrieved", "workflow", "configuration")


@dataclass
class _Known:
    """What the log holds, as of a size of its file."""

    size: int = 0
    parts: dict[str, Any] = field(default_factory=dict)
    points: dict[str, Mapping[str, Any]] = field(default_factory=dict)


class RecoveryPoints:
    """The recovery points in the log at `path`."""

    def __init__(self, path: str, *, disk: Disk = REAL, timeout: float | None = 10.0) -> None:
        self.path = path
        self._disk = disk
        self._log = AppendLog(path, disk=disk, timeout=timeout)
        self._have: set[str] = set()
        self._size = 0

    def add(self, session: Session, name: str, at: str, writer: SessionWriter) -> None:
        """Keep this state under that name; on return it survives a power cut."""
        check_checkpoint_name(name)
        with self._log.locked():
            if self._file_size() != self._size:  # another process wrote, or this object is new
                self._have = set(self._read().parts)
            new: dict[str, Any] = {}
            state = self._split(session, writer, new)
            point = {"checkpoint": name, "at": at, "revision": session.revision, "session": state}
            self._log.append_many([*({"part": id, "value": value} for id, value in new.items()), point])
            self._have |= new.keys()
            self._size = self._file_size()

    def briefs(self) -> list[CheckpointBrief]:
        """All points, oldest first."""
        return [_brief(point) for point in self._read().points.values()]

    def load(self, name: str) -> Session:
        """The state that was kept under that name. InputError if there is none, Damaged if parts of it are lost."""
        check_checkpoint_name(name)
        known = self._read()
        point = known.points.get(name)
        if point is None:
            raise InputError(f"there is no recovery point {name!r}.", hint=near(name, reversed(known.points)))
        return self._joined(point, known)

    def prune(self, keep: int) -> int:
        """Remove all but the newest `keep`."""
        known = self._read()
        gone = list(known.points)[: max(len(known.points) - max(keep, 0), 0)]
        if gone:
            self.rewrite({name: self._joined(point, known) for name, point in known.points.items() if name not in gone}, known)
        return len(gone)

    def rewrite(self, sessions: Mapping[str, Session], known: _Known | None = None) -> None:
        """Put these states in place of all there are. Names and times of those that were there stay."""
        with self._log.locked():
            before = known or self._read()
            writer, points = SessionWriter(), []
            parts: dict[str, Any] = {}
            self._have = set()
            for name, session in sessions.items():
                at = before.points[name]["at"] if name in before.points else session.updated_at
                state = self._split(session, writer, parts)
                points.append({"checkpoint": name, "at": at, "revision": session.revision, "session": state})
            self._log.rewrite([*({"part": id, "value": value} for id, value in parts.items()), *points])
            self._have, self._size = set(parts), self._file_size()

    def sessions(self) -> dict[str, Session]:
        """All points that can be read, by name, oldest first."""
        known = self._read()
        found = {}
        for name, point in known.points.items():
            try:
                found[name] = self._joined(point, known)
            except Damaged:
                continue
        return found

    def _split(self, session: Session, writer: SessionWriter, new: dict[str, Any]) -> dict[str, Any]:
        """The session with ids in place of its large members; parts that the log does not have yet are put into `new`."""

        def id_of(part: Part) -> str:
            if part.id not in self._have:
                new[part.id] = part.value
            return part.id

        small = replace(session, stage_outputs={}, stages={}, memory_snapshots=(), retrieved=(), workflow={}, configuration={})
        state = written(small)
        for name in _SPLIT:
            if not getattr(session, name):
                continue
            found = writer.parts(session, name)
            if isinstance(found, Part):
                state[name] = id_of(found)
            elif isinstance(found, dict):
                state[name] = {key: id_of(part) for key, part in found.items()}
            else:
                state[name] = [id_of(part) for part in found]
        return state

    def _joined(self, point: Mapping[str, Any], known: _Known) -> Session:
        state = dict(point["session"])
        try:
            for name in _SPLIT:
                ids = state.get(name)
                if isinstance(ids, str):
                    state[name] = known.parts[ids]
                elif isinstance(ids, dict):
                    state[name] = {key: known.parts[id] for key, id in ids.items()}
                elif isinstance(ids, list):
                    state[name] = [known.parts[id] for id in ids]
        except KeyError as error:
            raise Damaged(
                f"the recovery point {point['checkpoint']!r} in {self.path} has lost a part.",
                path=self.path,
                hint="Use another one: `holdfast session show` lists them.",
            ) from error
        return read_session(state, f"the recovery point {point['checkpoint']!r} in {self.path}")

    def _read(self) -> _Known:
        known = _Known()
        for item in self._log.scan():
            if not isinstance(item, Entry):
                continue
            record = item.record
            if "part" in record:
                known.parts[record["part"]] = record.get("value")
            elif isinstance(record.get("session"), dict):
                known.points.pop(record["checkpoint"], None)  # one of the same name is replaced, and is the newest again
                known.points[record["checkpoint"]] = record
        return known

    def _file_size(self) -> int:
        try:
            handle = self._disk.open(self.path)
        except FileNotFoundError:
            return 0
        with closing(self._disk, handle):
            return self._disk.size(handle)


def _brief(point: Mapping[str, Any]) -> CheckpointBrief:
    state = point["session"]
    return CheckpointBrief(
        name=point["checkpoint"],
        at=point.get("at", ""),
        revision=point.get("revision", 0),
        status=state.get("status", "ready"),
        current_stage=state.get("current_stage"),
        completed=len(state.get("completed_stages") or ()),
    )
