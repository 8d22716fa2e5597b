"""Sessions as files: one JSON file for each that a person can read and edit, and a folder beside it (W2, W5, W7, W10).

    sessions/research-2026-04-19-001.json
    sessions/research-2026-04-19-001/stages/01-plan/{context,output}.md
    sessions/research-2026-04-19-001/checkpoints.jsonl          recovery points
    sessions/research-2026-04-19-001/raw/                       raw data by its hash, with an index

A commit is one durable replace under a lock. What is compared before is the content of the file and not only its revision, so an edit
by hand is never overwritten.
"""

from __future__ import annotations

import builtins
import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace as changed
from datetime import UTC, date, datetime
from os import PathLike

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.durable.disk import REAL, Disk, make_folders, read_whole
from holdfast.durable.replace import replace, set_aside
from holdfast.errors import Damaged, InputError, RevisionConflict, StorageError, SyncFailed
from holdfast.session import holding
from holdfast.session.briefs import brief_of_file
from holdfast.session.layout import Layout
from holdfast.session.names import check_checkpoint_name, check_session_id, id_stem, no_session
from holdfast.session.raw import RawFolder
from holdfast.session.reading import decode_session
from holdfast.session.recovery import RecoveryPoints
from holdfast.session.side_files import copy_tree, remove_tree, write_stage_file
from holdfast.session.state import SCHEMA_VERSION, Session
from holdfast.session.store import CheckpointBrief, Held, Owner, RawData, SessionBrief, Touched
from holdfast.session.succession import forked, restored, spare_name
from holdfast.session.writing import SessionWriter, mark_of

_TICK = 20_000_000  # nanoseconds: two writes within one tick of a file system's clock have the same time
_WRITERS = 32  # sessions whose parts and newest bytes are kept in memory


class FileSessionStore:
    """The sessions in a folder, `sessions/` of the base directory by default. Keeps every promise of `SessionStore`.

    `path` is a template with `{session_id}` that puts the JSON files elsewhere. `beat` is how often, in seconds, who holds a session gives
    a sign of life.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        path: str | None = None,
        disk: Disk = REAL,
        clock: Clock | None = None,
        lock_timeout: float | None = 10.0,
        beat: float = 5.0,
    ) -> None:
        self.layout = Layout(os.fspath(folder), path, disk)
        self.disk = disk
        self.clock = clock or SystemClock()
        self._timeout = lock_timeout
        self._beat = beat
        self._threads = threading.Lock()
        self._writers: dict[str, SessionWriter] = {}
        self._points: dict[str, RecoveryPoints] = {}
        self._raws: dict[str, RawFolder] = {}
        self._seen: dict[str, tuple[str, bytes]] = {}
        self._briefs: dict[str, tuple[tuple[int, ...], SessionBrief]] = {}

    # One session

    def create(self, session: Session) -> Session:
        path = self.layout.file(session.workflow_id)
        with self.writing(session.workflow_id):
            if self.disk.kind(path) is not None:
                raise InputError(
                    f"the session {session.workflow_id!r} exists already.", hint="Go on with `holdfast resume`, or choose another id."
                )
            now = stamp(self.clock.now())
            return self._put(changed(session, revision=1, created_at=session.created_at or now, updated_at=now), path)

    def load(self, workflow_id: str) -> Session:
        path = self.layout.file(workflow_id)
        try:
            data = read_whole(self.disk, path)
        except FileNotFoundError:
            raise no_session(workflow_id, self.layout.ids()) from None
        session = decode_session(data, path)
        if session.workflow_id != workflow_id:
            raise Damaged(
                f"{path} holds the session {session.workflow_id!r}.",
                path=path,
                hint=f"Give the file its name back, or set workflow_id to {workflow_id!r} in it.",
            )
        return changed(session, mark=mark_of(session.revision, data))

    def commit(self, session: Session, *, expect: int) -> Session:
        path = self.layout.file(session.workflow_id)
        with self.writing(session.workflow_id):
            self._compare(session, expect, path)
            return self._put(changed(session, revision=expect + 1, updated_at=stamp(self.clock.now())), path)

    def list(self) -> builtins.list[SessionBrief]:
        found = [brief for workflow_id in self.layout.ids() if (brief := self._brief(workflow_id)) is not None]
        return sorted(found, key=lambda brief: (brief.updated_at, brief.workflow_id), reverse=True)

    def new_session_id(self, workflow_id: str, day: date) -> str:
        stem = f"{id_stem(workflow_id)}-{day.isoformat()}-"
        taken = {name.removeprefix(stem) for names in (self.layout.ids(), self.layout.folders()) for name in names if name.startswith(stem)}
        number = max((int(rest) for rest in taken if rest.isdecimal() and len(rest) < 9), default=0)
        make_folders(self.disk, self.layout.folder)
        while True:
            number += 1
            found = f"{stem}{number:03d}"
            with suppress(FileExistsError):  # the folder is the claim: it can be made only once
                self.disk.make_folder(self.layout.side(found))
                return found

    def document(self, workflow_id: str) -> bytes:
        """The bytes of the file, whatever they are: for a person who wants to mend them."""
        try:
            return read_whole(self.disk, self.layout.file(workflow_id))
        except FileNotFoundError:
            raise no_session(workflow_id, self.layout.ids()) from None

    def put_document(self, session: Session, *, instead_of: bytes) -> Session:
        """Put a session in place of bytes that could not be read. RevisionConflict if they are no longer there."""
        path = self.layout.file(session.workflow_id)
        with self.writing(session.workflow_id):
            if self.document(session.workflow_id) != instead_of:
                raise RevisionConflict(f"{path} was changed meanwhile.", path=path)
            return self._put(changed(session, revision=session.revision + 1, updated_at=stamp(self.clock.now())), path)

    # Who runs it

    def hold(self, workflow_id: str, *, owner: str | None = None) -> AbstractContextManager[Held]:
        side = self.layout.side(workflow_id)
        return holding.hold(workflow_id, side, owner=owner, disk=self.disk, clock=self.clock, beat=self._beat)

    def owner(self, workflow_id: str) -> Owner | None:
        return holding.who_holds(self.layout.side(workflow_id), disk=self.disk)

    def request_cancel(self, workflow_id: str) -> None:
        self.need(workflow_id)
        replace(self.layout.side(workflow_id, "cancel"), f"{stamp(self.clock.now())}\n".encode(), disk=self.disk)

    def cancel_requested(self, workflow_id: str) -> bool:
        return self.disk.kind(self.layout.side(workflow_id, "cancel")) == "file"

    def clear_cancel(self, workflow_id: str) -> None:
        with suppress(FileNotFoundError):
            self.disk.unlink(self.layout.side(workflow_id, "cancel"))

    # Recovery points

    def checkpoint(self, session: Session, name: str) -> None:
        check_checkpoint_name(name)
        self.need(session.workflow_id)
        with self._renewing(session.workflow_id):
            points = self.points(session.workflow_id)
            points.add(session, name, stamp(self.clock.now()), self._writer(session.workflow_id))

    def checkpoints(self, workflow_id: str) -> builtins.list[CheckpointBrief]:
        self.need(workflow_id)
        return self.points(workflow_id).briefs()

    def load_checkpoint(self, workflow_id: str, name: str) -> Session:
        self.need(workflow_id)
        return self.points(workflow_id).load(name)

    def prune_checkpoints(self, workflow_id: str, *, keep: int) -> int:
        self.need(workflow_id)
        with self._renewing(workflow_id):
            return self.points(workflow_id).prune(keep)

    def restore(self, workflow_id: str, name: str) -> Session:
        then = self.load_checkpoint(workflow_id, name)
        path = self.layout.file(workflow_id)
        try:
            current = self.load(workflow_id)
        except Damaged:
            with self.writing(workflow_id):
                set_aside(path, disk=self.disk, clock=self.clock)
                return self._put(changed(restored(then), revision=then.revision + 1, updated_at=stamp(self.clock.now())), path)
        self.checkpoint(current, spare_name(brief.name for brief in self.checkpoints(workflow_id)))
        return self.commit(changed(restored(then), mark=current.mark), expect=current.revision)

    def fork(self, workflow_id: str, new_id: str, *, checkpoint: str | None = None) -> Session:
        check_session_id(new_id)
        origin = self.load(workflow_id) if checkpoint is None else self.load_checkpoint(workflow_id, checkpoint)
        if self.disk.kind(self.layout.file(new_id)) is not None:
            raise InputError(f"the session {new_id!r} exists already.", hint="Choose another id.")
        old, new = self.raw(workflow_id), self.raw(new_id)
        for ref in old.refs():  # before the session itself: who sees it can read what it refers to
            data = old.get(ref)
            new.put(data.data, data.media_type, data.source)
        copy_tree(self.disk, self.layout.side(workflow_id, "stages"), self.layout.side(new_id, "stages"))
        return self.create(forked(origin, new_id, checkpoint, stamp(self.clock.now())))

    def close(self) -> None:
        """Nothing to give back."""

    def remove(self, workflow_id: str) -> None:
        self.need(workflow_id)
        with self.hold(workflow_id, owner="remove"), self.writing(workflow_id):
            path = self.layout.file(workflow_id)
            self.disk.unlink(path)
            self.disk.sync_folder(path.rpartition("/")[0])
            remove_tree(self.disk, self.layout.side(workflow_id))
        for held in (self._writers, self._points, self._raws, self._seen, self._briefs):
            held.pop(workflow_id, None)

    # Raw data and files

    def raw_put(self, workflow_id: str, data: bytes, *, media_type: str = "text/plain", source: str | None = None) -> str:
        check_session_id(workflow_id)
        with self._renewing(workflow_id):
            return self.raw(workflow_id).put(data, media_type, source)

    def raw_get(self, workflow_id: str, ref: str) -> RawData:
        self.need(workflow_id)
        return self.raw(workflow_id).get(ref)

    def raw_list(self, workflow_id: str) -> builtins.list[str]:
        self.need(workflow_id)
        return self.raw(workflow_id).refs()

    def write_stage_files(
        self, workflow_id: str, number: int, stage: str, *, context: str | None = None, output: str | None = None
    ) -> None:
        folder = self.layout.side(workflow_id, "stages")
        for name, text in (("context", context), ("output", output)):
            if text is not None:
                write_stage_file(self.disk, folder, number, stage, name, text)

    def forget_text(self, text: str) -> builtins.list[Touched]:
        from holdfast.session.file_forgetting import forget_in_files

        return forget_in_files(self, text)

    # What the parts of this store share

    @contextmanager
    def writing(self, workflow_id: str) -> Iterator[None]:
        """Keeps other writers of this session's file out."""
        with self.disk.lock(self.layout.side(workflow_id, "write.lock"), self._timeout):
            yield

    def need(self, workflow_id: str) -> None:
        """InputError, naming near ones, if there is no such session."""
        if self.disk.kind(self.layout.file(workflow_id)) != "file":
            raise no_session(workflow_id, self.layout.ids())

    def points(self, workflow_id: str) -> RecoveryPoints:
        """The recovery points of a session."""
        with self._threads:
            if workflow_id not in self._points:
                path = self.layout.side(workflow_id, "checkpoints.jsonl")
                self._points[workflow_id] = RecoveryPoints(path, disk=self.disk, timeout=self._timeout)
            return self._points[workflow_id]

    def raw(self, workflow_id: str) -> RawFolder:
        """The raw data of a session."""
        with self._threads:
            if workflow_id not in self._raws:
                folder = self.layout.side(workflow_id, "raw")
                self._raws[workflow_id] = RawFolder(folder, disk=self.disk, now=lambda: stamp(self.clock.now()), timeout=self._timeout)
            return self._raws[workflow_id]

    @contextmanager
    def _renewing(self, workflow_id: str) -> Iterator[None]:
        """A log that met a failed sync is given up, so the next call starts on a new one."""
        try:
            yield
        except SyncFailed:
            with self._threads:
                self._points.pop(workflow_id, None)
                self._raws.pop(workflow_id, None)
            raise

    def _writer(self, workflow_id: str) -> SessionWriter:
        with self._threads:
            writer = self._writers.pop(workflow_id, None) or SessionWriter()
            self._writers[workflow_id] = writer  # the newest is the last
            if len(self._writers) > _WRITERS:
                del self._writers[next(iter(self._writers))]
            return writer

    def _put(self, session: Session, path: str) -> Session:
        data = self._writer(session.workflow_id).encode(session)
        replace(path, data, disk=self.disk)
        mark = mark_of(session.revision, data)
        with self._threads:
            self._seen.pop(session.workflow_id, None)
            self._seen[session.workflow_id] = (mark, data)
            if len(self._seen) > _WRITERS:
                del self._seen[next(iter(self._seen))]
        return changed(session, schema_version=SCHEMA_VERSION, mark=mark)

    def _compare(self, session: Session, expect: int, path: str) -> None:
        """RevisionConflict unless the file is what `session` was made from."""
        known = session.mark if session.mark is not None and session.mark.startswith(f"{expect}:") else None
        try:
            data = read_whole(self.disk, path)
        except FileNotFoundError:
            raise no_session(session.workflow_id, self.layout.ids()) from None
        seen = self._seen.get(session.workflow_id)
        if known is not None and ((seen is not None and seen == (known, data)) or known == mark_of(expect, data)):
            return  # in most cases the very bytes that this store wrote, which is quicker to see than to count a fingerprint
        found = decode_session(data, path).revision
        if found != expect:
            raise RevisionConflict(
                f"{path} has revision {found}, and what is to be written comes from {expect}: somebody else wrote first.",
                path=path,
                expected=expect,
                found=found,
            )
        if known is not None:
            raise RevisionConflict(f"{path} was edited since revision {expect} was read.", path=path, expected=expect, found=found)

    def _brief(self, workflow_id: str) -> SessionBrief | None:
        path = self.layout.file(workflow_id)
        identity = _identity(path) if self.disk is REAL else None
        held = self._briefs.get(workflow_id)
        if held is not None and identity is not None and held[0] == identity:
            return held[1]
        try:
            brief = brief_of_file(workflow_id, read_whole(self.disk, path), path)
            if not brief.updated_at:
                moment = datetime.fromtimestamp(self.disk.modified(path), UTC)
                brief = changed(brief, updated_at=stamp(moment))
        except FileNotFoundError:
            return None  # removed just now
        except StorageError as error:
            return SessionBrief(workflow_id, problem=error.message)
        if identity is not None and time.time_ns() - identity[-1] > _TICK:
            self._briefs[workflow_id] = (identity, brief)
        return brief


def _identity(path: str) -> tuple[int, ...] | None:
    """What changes when a file is written: which file it is, its size and its times."""
    try:
        facts = os.stat(path)  # noqa: PTH116 - asked at every commit, and half as dear as pathlib's
    except OSError:
        return None
    return (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
