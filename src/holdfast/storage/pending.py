"""Several changes of files as one step: written down whole before the first of them is made, so that a crash leaves all or none.

A note in the folder `.pending` below the root holds what is to be done and the marks from before. Then the logs are appended to and the new
contents written beside the old ones; up to here an error is undone and the old state stands. Then the contents are put in place, and the
note is removed. Whoever next touches one of the keys and finds a note whose writer is gone carries it out to the end: what was done is
seen by the marks, and what somebody else wrote since (a person with an editor) is kept under another name.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from holdfast.clock import Clock
from holdfast.durable.append import AppendLog
from holdfast.durable.disk import Disk, Identity
from holdfast.durable.replace import Draft, is_temp, read_json, replace, replace_json, set_aside
from holdfast.errors import Damaged, Locked, NotWritable, StorageError, SyncFailed
from holdfast.events import Bus, Event
from holdfast.storage.backend import Append, Change, Delete, Mark, Put


@dataclass(frozen=True, kw_only=True)
class KeptBeside(Event):
    """A file was written by somebody else in the middle of a step that had to be finished after a crash."""

    component: ClassVar[str] = "Storage"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "{path} was changed while a step that a crash interrupted waited to be finished; that version is kept as {kept}"
    path: str
    kept: str


class Files(Protocol):
    """What carrying out needs of the backend: where keys are, what is there now, and how to keep others out."""

    disk: Disk
    clock: Clock
    bus: Bus

    def path(self, key: str) -> str:
        """The file of a key."""

    def log(self, key: str) -> AppendLog:
        """The log of a key."""

    def standing(self, key: str) -> Mark | None:
        """The mark of what is there now."""

    def writing(self, keys: Sequence[str], timeout: float | None) -> AbstractContextManager[object]:
        """Keeps all other writers of these keys out; Locked after `timeout` seconds."""


@dataclass(frozen=True)
class _Step:
    """A change and the mark from before it."""

    change: Change
    before: Mark | None


class PendingSteps:
    """The notes of steps that were begun, in one folder."""

    def __init__(self, folder: str, files: Files) -> None:
        self.folder = folder
        self._files = files
        self._empty: tuple[int, ...] | None = None  # the identity of the folder when nothing was in it
        self._settled: tuple[int, ...] | None = None  # the identity of the folder when what was removed from it was last on the disk

    # Carrying out a step of one's own; called with all of its keys locked

    def carry_out(self, changes: Sequence[Change]) -> None:
        """Make all changes or none. On return they survive a power cut. SyncFailed if that is not known: they will be all there or none."""
        disk = self._files.disk
        steps = [_Step(change, self._files.standing(change.key)) for change in changes]
        note = f"{self.folder}/{os.urandom(8).hex()}.json"
        replace_json(note, {"holdfast": "changes", "schema": 1, "changes": [_written(step) for step in steps]}, disk=disk)
        drafts: list[Draft] = []
        try:
            for step in steps:
                if isinstance(step.change, Append):
                    self._files.log(step.change.key).append_many(step.change.records, as_one=True)
            for put in [step.change for step in steps if isinstance(step.change, Put)]:
                drafts.append(Draft(self._files.path(put.key), put.data, disk=disk))  # noqa: PERF401 - what was made is dropped on an error
        except SyncFailed:  # what is on the disk is not known: it stays to be finished
            _drop(drafts)
            raise
        except StorageError:
            self._undo(steps, drafts, note)
            raise
        self._put_in_place(steps, drafts, note)

    def _put_in_place(self, steps: Sequence[_Step], drafts: Sequence[Draft], note: str) -> None:
        disk = self._files.disk
        try:
            folders = {draft.put_in_place() for draft in drafts}
            for step in steps:
                if isinstance(step.change, Delete):
                    self._delete(step.change.key)
                    folders |= self._folder_of(step.change.key)
            for folder in sorted(folders):
                disk.sync_folder(folder)
            with suppress(StorageError):  # all of it is done: whoever comes next finds that, and removes the note
                self._drop_note(note)
        except (StorageError, OSError) as error:
            _drop(drafts)
            if isinstance(error, SyncFailed):
                raise
            raise SyncFailed(
                f"a change of {', '.join(step.change.key for step in steps)} was written down but not carried out: {error}",
                path=note,
                operation="write",
                hint="It is carried out when one of them is next used.",
            ) from error

    def _undo(self, steps: Sequence[_Step], drafts: Sequence[Draft], note: str) -> None:
        """Make it as if nothing had been begun. If even that fails the note stays, and the step is carried out by whoever comes next."""
        _drop(drafts)
        try:
            for step in steps:
                if isinstance(step.change, Append):
                    self._files.log(step.change.key).cut_back(step.before)
            self._drop_note(note)
            self._files.disk.sync_folder(self.folder)  # what was said to have failed must not be carried out later
        except (StorageError, OSError) as error:
            raise SyncFailed(
                f"a change of {', '.join(step.change.key for step in steps)} could be neither carried out nor undone: {error}",
                path=note,
                operation="write",
                hint="It is carried out when one of them is next used.",
            ) from error

    def _delete(self, key: str) -> None:
        with suppress(FileNotFoundError):
            self._files.disk.unlink(self._files.disk.resolve(self._files.path(key)))

    def _folder_of(self, key: str) -> set[str]:
        """The folder of a key's file, if there is one."""
        folder = os.path.dirname(self._files.disk.resolve(self._files.path(key)))  # noqa: PTH120 - paths of a Disk are texts
        return {folder} if self._files.disk.kind(folder) == "folder" else set()

    def _drop_note(self, note: str) -> None:
        """Remove it. Not synced: one that a power cut brings back is found to be carried out, and `are_clear` syncs before later writes."""
        with suppress(FileNotFoundError):
            self._files.disk.unlink(note)

    # Finishing what others began

    def are_clear(self, keys: Sequence[str]) -> bool:
        """Whether nothing is to be finished that touches these keys, which are locked: asked before each write, and cheap.

        Then it is also certain that notes which were removed, by whomever, stay removed: one that came back after a power cut would undo
        what is written from now on.
        """
        found = self._files.disk.identity(self.folder)
        if self._are_there(found) and self.touching(keys):
            return False
        if found is not None and found.facts != self._settled:
            self._files.disk.sync_folder(self.folder)
            self._settled = found.facts if found.settled else None  # else one more removal might look the same
        return True

    def are_there(self) -> bool:
        """Whether anything is to be finished at all. Asked before every reading, and cheap."""
        return self._are_there(self._files.disk.identity(self.folder))

    def _are_there(self, found: Identity | None) -> bool:
        if found is None or (found.settled and found.facts == self._empty):
            return False
        names = self._names()
        self._empty = found.facts if found.settled and not names else None
        return bool(names)

    def touching(self, keys: Sequence[str] | None) -> list[str]:
        """The notes of steps that change one of these keys (None: any)."""
        found = []
        for name in self._names():
            steps = self._read(f"{self.folder}/{name}")
            if steps and (keys is None or any(step.change.key in keys for step in steps)):
                found.append(f"{self.folder}/{name}")
        return found

    def finish(self, notes: Sequence[str], *, timeout: float | None) -> None:
        """Carry out the steps of these notes, unless their writers live. Locked if one does and is not done within `timeout`."""
        for note in notes:
            steps = self._read(note)
            if steps:
                with self._files.writing([step.change.key for step in steps], timeout):
                    self._finish(note)

    def finish_if_abandoned(self, keys: Sequence[str] | None) -> None:
        """For readers: as `finish`, but whoever is still at work, or a place where we may not write, is left alone."""
        for note in self.touching(keys):
            with suppress(Locked, NotWritable):
                self.finish([note], timeout=0)

    def _finish(self, note: str) -> None:
        steps = self._read(note)  # once more: its writer may have come to its end meanwhile
        if not steps:
            return
        disk = self._files.disk
        disk.sync_folder(self.folder)  # its writer may have died before the name of the note was on the disk
        folders = set()
        for step in sorted(steps, key=lambda one: not isinstance(one.change, Append)):
            match step.change:
                case Append(key, records):
                    self._append_again(key, records, step.before)
                case Put(key, data):
                    if self._clear(key, step.before, done=self._is(key, data)):
                        replace(self._files.path(key), data, disk=disk)
                    folders |= self._folder_of(key)
                case Delete(key):
                    if self._clear(key, step.before, done=self._files.standing(key) is None):
                        self._delete(key)
                    folders |= self._folder_of(key)  # also where it is gone already: that may not be on the disk
        for folder in sorted(folders):
            disk.sync_folder(folder)
        self._drop_note(note)

    def _is(self, key: str, data: bytes) -> bool:
        return self._files.standing(key) == mark_of(data)

    def _clear(self, key: str, before: Mark | None, *, done: bool) -> bool:
        """Whether the change of a key is still to be made. A version that is neither from before nor from after it is kept beside."""
        if done:
            return False
        found = self._files.standing(key)
        if found not in (before, None):
            kept = set_aside(self._files.path(key), disk=self._files.disk, clock=self._files.clock, word="edited")
            self._files.bus.emit(KeptBeside(path=self._files.path(key), kept=kept))
        return True

    def _append_again(self, key: str, records: Sequence[Any], before: Mark | None) -> None:
        """Append what is not there yet. What may be there but not on the disk is written once more."""
        log = self._files.log(key)
        found = log.read(before)
        there = list(found.records)
        wanted = [dict(record) for record in records]
        begun = there == wanted[: len(there)]
        if (begun and (not found.whole or before is None) and log.cut_back(before)) or not _contains(there, wanted):
            log.append_many(wanted, as_one=True)

    def _names(self) -> list[str]:
        try:
            return [name for name in self._files.disk.list(self.folder) if name.endswith(".json") and not is_temp(name)]
        except FileNotFoundError:
            return []

    def _read(self, note: str) -> list[_Step]:
        try:
            value = read_json(note, disk=self._files.disk)
            return [_step(one) for one in value["changes"]]
        except FileNotFoundError:
            return []
        except (Damaged, KeyError, TypeError, ValueError):
            with suppress(FileNotFoundError):
                set_aside(note, disk=self._files.disk, clock=self._files.clock)
            return []


def mark_of(data: bytes) -> Mark:
    """The mark of a document: the same bytes have the same mark, wherever they are kept."""
    return hashlib.sha256(data).hexdigest()[:32]


def _drop(drafts: Sequence[Draft]) -> None:
    for draft in drafts:
        draft.drop()


def _contains(there: list[Any], wanted: list[Any]) -> bool:
    return any(there[at : at + len(wanted)] == wanted for at in range(len(there) - len(wanted) + 1))


def _written(step: _Step) -> dict[str, Any]:
    match step.change:
        case Put(key, data):
            try:
                return {"put": key, "text": data.decode("utf-8"), "before": step.before}
            except UnicodeDecodeError:
                return {"put": key, "base64": base64.b64encode(data).decode("ascii"), "before": step.before}
        case Append(key, records):
            return {"append": key, "records": [dict(record) for record in records], "before": step.before}
        case Delete(key):
            return {"delete": key, "before": step.before}


def _step(value: dict[str, Any]) -> _Step:
    before = value["before"]
    if "put" in value:
        data = value["text"].encode("utf-8") if "text" in value else base64.b64decode(value["base64"])
        return _Step(Put(value["put"], data), before)
    if "append" in value:
        return _Step(Append(value["append"], value["records"]), before)
    return _Step(Delete(value["delete"]), before)
