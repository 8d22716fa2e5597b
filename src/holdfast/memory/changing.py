"""Reading, changing and writing a memory document as one step that happens once, whatever dies meanwhile.

A change is first written down whole (`pending.json`), then entered in the history, then carried out in the document, and then the note
is removed. Whoever comes next and finds a note finishes the change before doing anything else. So a document and its history never
disagree, and an update of the queue that is in the history has been carried out.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.durable.disk import REAL, Disk, make_folders
from holdfast.durable.replace import read_json, replace_json, set_aside
from holdfast.errors import Damaged, RevisionConflict
from holdfast.events import Bus, Event
from holdfast.events import bus as process_bus
from holdfast.ids import IdSource, RandomIds
from holdfast.memory.document import Document
from holdfast.memory.history import Author, Change, ChangeLog, Changes, differences, from_record, redone, to_record
from holdfast.memory.leavings import leavings, remove_if
from holdfast.memory.quarantine import Held, Holding, Quarantine, held_from, held_to_json
from holdfast.memory.scopes import Scopes, check_agent

_REBASES = 20


@dataclass(frozen=True, kw_only=True)
class MemoryDamaged(Event):
    """A file could not be read. It was moved out of the way, and nothing of it was overwritten."""

    component: ClassVar[str] = "MemoryStorage"
    level: ClassVar[int] = logging.ERROR
    text: ClassVar[str] = "{path} is damaged and was set aside as {aside}: {reason}"
    path: str
    aside: str
    reason: str


@dataclass(frozen=True)
class StorageState:
    """How the storage is doing, for `doctor` and the API. `asked` is the class that the configuration names."""

    kind: str = "file"
    state: Literal["good", "fallback"] = "good"
    asked: str | None = None
    message: str = ""
    set_aside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Edit:
    """What somebody wants to make of a document: the new one, who wants it, and why. `reasons` holds (why, rule) for single ids."""

    document: Document
    by: Author
    why: str
    reasons: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    thread: str | None = None
    item: str | None = None
    undoes: str | None = None
    held: tuple[Held, ...] = ()
    released: tuple[str, ...] = ()
    """Ids of candidates that leave quarantine in the same step."""


class Store(ABC):
    """Keeps memory documents with their history and quarantine. Safe for many threads and processes."""

    def __init__(
        self,
        scopes: Scopes,
        *,
        disk: Disk = REAL,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        bus: Bus | None = None,
        timeout: float | None = 60.0,
    ) -> None:
        self.scopes = scopes
        self.state = StorageState()
        self.clock = clock or SystemClock()
        self.ids = ids or RandomIds()
        self.bus = bus or process_bus
        self.disk = disk
        self._timeout = timeout

    # What a storage must do

    @abstractmethod
    def own(self, agent: str | None = None) -> Document | None:
        """The document of this very scope, or None when it has none yet."""

    @abstractmethod
    def where(self, agent: str | None = None) -> str:
        """Where the document of a scope is kept, for messages."""

    @abstractmethod
    def fresh(self, agent: str | None) -> tuple[Document | None, object]:
        """The document as it is now, and a mark that is another one as soon as somebody else writes. Called under the lock."""

    @abstractmethod
    def mark(self, agent: str | None) -> object:
        """The mark alone, as it is now."""

    @abstractmethod
    def put(self, agent: str | None, document: Document) -> None:
        """Put the document in place, durably, without a word in the history. Called under the lock."""

    # What follows from that

    def document(self, agent: str | None = None) -> Document:
        """What an agent reads: its own document, or the global one until it has one (M3). An empty one if there is nothing."""
        own = self.own(agent)
        if own is None and agent is not None and self.scopes.inherit:
            own = self.own(None)
        return own if own is not None else Document()

    def change(self, agent: str | None, edit: Callable[[Document], Edit | None]) -> Change | None:
        """Read what is there now, let `edit` make something of it, and write that durably; gives the change, None if there was none.

        `edit` runs under the scope's lock: it must be quick, ask no model, and may be called again when somebody who does not know
        the lock (an editor, another program) wrote meanwhile. An exception in it changes nothing.
        """
        agent = check_agent(agent)
        with self.locked(agent):
            self.finish_pending(agent)
            for _ in range(_REBASES):
                found, mark = self.fresh(agent)
                before = found if found is not None else Document()
                wish = edit(before)
                if wish is None:
                    return None
                change = self._change(before, wish)
                if not change.differences and not wish.held and not wish.released:
                    return None
                if self.mark(agent) == mark:
                    self._carry_out(agent, wish, change)
                    return change
        raise RevisionConflict(f"{self.where(agent)} is being written by somebody else all the time.", path=self.where(agent))

    def all_scopes(self) -> Iterator[str | None]:
        """The global scope, and every agent that has anything of its own."""
        return self.scopes.all()

    def history(self, agent: str | None = None) -> Changes:
        """The changes of a scope."""
        return ChangeLog(self.scopes.folder(agent) / "history.jsonl", disk=self.disk)

    def quarantine(self, agent: str | None = None) -> Holding:
        """What waits for a person in a scope."""
        return Quarantine(self.scopes.folder(agent) / "quarantine.json", disk=self.disk)

    @contextmanager
    def locked(self, agent: str | None) -> Iterator[None]:
        """Keeps every other writer of the scope out. Not reentrant."""
        folder = str(self.scopes.folder(agent))
        make_folders(self.disk, folder)
        with self.disk.lock(f"{folder}/lock", self._timeout):
            yield

    def set_aside_quarantine(self, agent: str | None, error: Damaged) -> None:
        """Move a quarantine that cannot be read out of the way. Called under the lock."""
        self._set_aside(self.scopes.folder(agent) / "quarantine.json", error)

    def remove_leavings(self, agent: str | None, which: Callable[[bytes], bool]) -> int:
        """Remove older content that is kept beside a scope (set aside as damaged, left by a writer that died) where it fits.

        For forgetting: nothing reads it any more. Called under the lock; says how many pieces are gone.
        """
        return sum(1 for path in leavings(self.scopes.file(agent), self.scopes.folder(agent)) if remove_if(path, which))

    def close(self) -> None:  # noqa: B027 - a storage of files holds nothing open
        """Let go of what the storage holds open. It may still be used afterwards."""

    def recover(self, agent: str | None = None) -> None:
        """Finish what a process that died had begun. `change` does it too; here it is done without waiting for a change."""
        if self.disk.kind(str(self._note(agent))) is not None:
            with self.locked(agent):
                self.finish_pending(agent)

    def _change(self, before: Document, wish: Edit) -> Change:
        moment = stamp(self.clock.now())
        return Change(
            id=self.ids.new("change"),
            time=moment,
            revision=before.revision + 1,
            by=wish.by,
            why=wish.why,
            differences=differences(before, wish.document, wish.reasons),
            thread=wish.thread,
            item=wish.item,
            undoes=wish.undoes,
            held=tuple(held_to_json(one) for one in wish.held),
        )

    def _carry_out(self, agent: str | None, wish: Edit, change: Change) -> None:
        replace_json(self._note(agent), {**to_record(change), "released": list(wish.released)}, disk=self.disk)
        self.history(agent).append(change)
        self._hold(agent, wish.held, wish.released)
        if change.differences:  # a change of the quarantine alone leaves the document, and its revision, as they are
            self.put(agent, replace(wish.document, revision=change.revision, updated=change.time))
        self._drop_note(agent)

    def finish_pending(self, agent: str | None) -> None:
        """Carry out to its end what a process that died had begun. Called under the lock."""
        note = self._note(agent)
        try:
            record = read_json(note, disk=self.disk)
            change = from_record(record)
        except FileNotFoundError:
            return
        except Damaged as error:
            self._set_aside(note, error)
            return
        if not self.history(agent).has(change.id):
            self.history(agent).append(change)
        self._hold(agent, tuple(held_from(one) for one in change.held), tuple(record.get("released", ())))
        found, _ = self.fresh(agent)
        if change.differences and (found is None or found.revision < change.revision):
            self.put(agent, redone(found or Document(), change))
        self._drop_note(agent)

    def _hold(self, agent: str | None, held: tuple[Held, ...], released: tuple[str, ...]) -> None:
        if not held and not released:
            return
        quarantine = self.quarantine(agent)
        for _ in range(2):
            try:
                if held:
                    quarantine.hold(held)
                if released:
                    quarantine.release(released)
            except Damaged as error:
                self.set_aside_quarantine(agent, error)
            else:
                return

    def _set_aside(self, path: Path, error: Damaged) -> None:
        try:
            aside = set_aside(path, disk=self.disk, clock=self.clock)
        except FileNotFoundError:
            return  # somebody else was quicker
        self.state = replace(self.state, set_aside=(*self.state.set_aside, aside))
        self.bus.emit(MemoryDamaged(path=str(path), aside=aside, reason=error.message))

    def _drop_note(self, agent: str | None) -> None:
        with suppress(FileNotFoundError):  # not synced: a note that a power cut brings back is found to be carried out
            self.disk.unlink(os.fspath(self._note(agent)))

    def _note(self, agent: str | None) -> Path:
        return self.scopes.folder(agent) / "pending.json"
