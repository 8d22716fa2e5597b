"""Memory documents with their history and quarantine, over a storage backend (M3, M6, M7).

One change is one record in the history, with one sync; the document is put in its place after it, as a view that can be made again and an
input that a person may edit (see `document_file.py`). What waits for a person goes with it in one step. So a document and its history never
disagree, and an update of the queue that is in the history has been carried out.

`keys_of` says under which keys a scope is kept: the global memory, and one for each agent (M3, M4).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

from holdfast.clock import Clock, IdSource, RandomIds, SystemClock, stamp
from holdfast.durable import strict_json
from holdfast.errors import Damaged, InputError, RevisionConflict, StorageError, StoreUnavailable, SyncFailed
from holdfast.events import Bus, Event
from holdfast.events import bus as process_bus
from holdfast.memory.document import Document
from holdfast.memory.document_file import FILE_NAME, DocumentFile, Found, Layout, fold, gathered, is_state, states, written
from holdfast.memory.history import (
    Author,
    Change,
    Held,
    changed,
    differences,
    from_record,
    held_from,
    held_to_json,
    read_held,
    redone,
    to_record,
    written_held,
)
from holdfast.storage.backend import ABSENT, Append, Backend, Delete, Mark, Put
from holdfast.storage.backend import Change as Write
from holdfast.validation import check_name

AGENTS = "agents"


@dataclass(frozen=True, kw_only=True)
class MemoryDamaged(Event):
    """A document could not be read. It was moved out of the way, and nothing of it was overwritten."""

    component: ClassVar[str] = "MemoryStorage"
    level: ClassVar[int] = logging.ERROR
    text: ClassVar[str] = "{path} is damaged and was set aside as {aside}: {reason} {then}"
    path: str
    aside: str
    reason: str
    then: str = ""
    """What stands in its place."""


def check_agent(agent: str | None) -> str | None:
    """The agent's name as it stands in keys, None for the global memory; InputError for a name that is not allowed."""
    return None if agent is None else check_name(agent, "agent name")


def scope_name(agent: str | None) -> str:
    """How a scope is called in messages: `global`, or the agent's name."""
    return "global" if agent is None else f"agent {agent}"


@dataclass(frozen=True, slots=True)
class Keys:
    """The storage keys of one scope: its document, and beside it the log of changes and the candidates that wait for a person."""

    document: str
    history: str
    quarantine: str
    note: str
    """Where earlier versions wrote a change down before they carried it out. Only ever finished and removed."""


@lru_cache(maxsize=256)
def keys_of(agent: str | None) -> Keys:
    """The keys of a scope. InputError for a name that is not allowed."""
    name = check_agent(agent)
    below = "" if name is None else f"{AGENTS}/{name}/"
    side = f"{below}memory.d"
    return Keys(f"{below}{FILE_NAME}", f"{side}/history.jsonl", f"{side}/quarantine.json", f"{side}/pending.json")


_REBASES = 20


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


@dataclass(frozen=True)
class Scrubbed:
    """A scope before and after something was taken out of it for good, and how many changes and candidates were touched."""

    before: Document
    after: Document
    changes: int = 0
    held: int = 0


class MemoryStore:
    """Keeps memory documents with their history and quarantine. Safe for many threads and processes.

    Reads come from a cache that notices any other writer, a person with an editor or with SQL included. What is damaged is set aside under
    another name and reported.
    """

    def __init__(
        self,
        layout: Layout,
        backend: Backend,
        *,
        kind: str = "file",
        clock: Clock | None = None,
        ids: IdSource | None = None,
        bus: Bus | None = None,
        timeout: float | None = 60.0,
    ) -> None:
        self.layout = layout
        self.backend = backend
        self.state = StorageState(kind)
        self.clock = clock or SystemClock()
        self.ids = ids or RandomIds()
        self.bus = bus or process_bus
        self._timeout = timeout
        self._files: dict[str, DocumentFile] = {}
        self._finished: set[str | None] = set()

    # Reading

    def own(self, agent: str | None = None) -> Document | None:
        """The document of this very scope, or None when it has none yet."""
        try:
            found = self._file(agent).read()
        except Damaged:
            with self.locked(agent):
                return self._found(agent).document
        if found.is_behind:
            with suppress(StorageError), self.backend.locked(keys_of(agent).document, 0):  # else whoever writes is about to do it
                self._file(agent).put_again()
        return found.document

    def document(self, agent: str | None = None) -> Document:
        """What an agent reads: its own document, or the global one until it has one (M3). An empty one if there is nothing."""
        own = self.own(agent)
        if own is None and agent is not None and self.layout.inherit:
            own = self.own(None)
        return own if own is not None else Document()

    def changes(self, agent: str | None = None) -> list[Change]:
        """The history of a scope, oldest first. What is damaged is left out; `damage` names it."""
        return [found for found in self._history(agent)[0] if isinstance(found, Change)]

    def damage(self, agent: str | None = None) -> list[str]:
        """What of the history cannot be read, in words."""
        found, damage, _ = self._history(agent)
        return [*damage, *(one.message for one in found if isinstance(one, Damaged))]

    def has_item(self, item: str, agent: str | None = None) -> bool:
        """Whether an update of the queue has been applied."""
        return any(record.get("item") == item for record in self.backend.read(keys_of(agent).history).records)

    def held(self, agent: str | None = None) -> list[Held]:
        """The candidates that wait for a person in a scope, oldest first. What is damaged is set aside and told: the rest goes on."""
        key = keys_of(agent).quarantine
        stored = self.backend.get(key)
        try:
            return [] if stored is None else read_held(stored.data, self.backend.where(key))
        except Damaged:
            with self.locked(agent):
                return self._waiting(agent)[0]

    def scopes(self) -> Iterator[str | None]:
        """The global scope, and every agent that has anything of its own."""
        yield None
        for name in self.backend.children(AGENTS):
            with suppress(InputError):  # something else that is kept there
                keys = keys_of(check_name(name))
                if check_name(name) == name and any(
                    self.backend.mark(key) is not None for key in (keys.document, keys.history, keys.quarantine)
                ):
                    yield name

    def where(self, agent: str | None = None) -> str:
        """Where the document of a scope is kept, for messages."""
        return self.backend.where(keys_of(agent).document)

    # Changing

    def change(self, agent: str | None, edit: Callable[[Document], Edit | None]) -> Change | None:
        """Read what is there now, let `edit` make something of it, and write that durably; gives the change, None if there was none.

        `edit` runs under the scope's lock: it must be quick, ask no model, and may be called again when somebody who does not know
        the lock (an editor, another program) wrote meanwhile. An exception in it changes nothing.
        """
        agent = check_agent(agent)
        with self.locked(agent):
            self._finish(agent)
            for _ in range(_REBASES):
                found = self._found(agent)
                before = found.document if found.document is not None else Document()
                wish = edit(before)
                if wish is None:
                    return None
                change = self._change(before, wish)
                if not change.differences and not wish.held and not wish.released:
                    return None
                after = replace(wish.document, revision=change.revision, updated=change.time) if change.differences else None
                with suppress(RevisionConflict):
                    self._write(agent, change, self._holding(agent, wish.held, wish.released), after, found)
                    return change
        raise RevisionConflict(f"{self.where(agent)} is being written by somebody else all the time.", path=self.where(agent))

    def recover(self, agent: str | None = None) -> None:
        """Finish what a process of an earlier version that died had begun. `change` does it too; here without waiting for a change."""
        if self.backend.mark(keys_of(agent).note) is not None:
            self._finished.discard(check_agent(agent))
            with self.locked(agent):
                self._finish(check_agent(agent))

    def scrub(
        self,
        agent: str | None,
        document: Callable[[Document], Document],
        change: Callable[[Change], Change | None],
        held: Callable[[Held], bool],
    ) -> Scrubbed:
        """Take something out of a scope for good, without a word of it in the history. What was interrupted is done by asking again.

        `document` and `change` give what is left, `held` says which candidates go. The document first, so that nobody reads it any more.
        """
        agent = check_agent(agent)
        with self.locked(agent):
            self._finished.discard(agent)
            self._finish(agent)
            for _ in range(_REBASES):
                found = self._found(agent)
                before = found.document or Document()
                after, gone = document(before), [one.id for one in self._waiting(agent)[0] if held(one)]
                renewed = replace(after, revision=before.revision + 1, updated=stamp(self.clock.now())) if after != before else None
                with suppress(RevisionConflict):
                    self._write(agent, None, self._holding(agent, (), gone), renewed, found)
                    stale = any(one is None or document(one) != one for one in states(self.backend.read(keys_of(agent).history).records))
                    return Scrubbed(before, after, self._rewrite(agent, change, always=stale), len(gone))
        raise RevisionConflict(f"{self.where(agent)} is being written by somebody else all the time.", path=self.where(agent))

    def note(self, agent: str | None, change: Change) -> None:
        """Enter a change in the history that leaves the document as it is."""
        with self.locked(agent):
            self._write(agent, change, (), None, self._found(agent))

    def rebuild(self, agent: str | None = None) -> Change | None:
        """Bring back, from the history, what a document lost that was damaged and set aside; gives the change, None if nothing is missing.

        What stood in that document without ever having been changed here is in no history. InputError if there is none.
        """
        agent = check_agent(agent)
        records = self.backend.read(keys_of(agent).history).records
        if not records:
            raise InputError(f"the {scope_name(agent)} memory has no history to be rebuilt from.", hint="Import a backup of the document.")
        known = gathered(records)
        return self.change(agent, lambda document: Edit(document.joined(known), "user", "rebuilt from the history"))

    def check_lost(self, agent: str | None = None) -> None:
        """Damaged, saying where it is kept, if the document of a scope was set aside and nothing took its place: it is not an empty one."""
        key = keys_of(agent).document
        if self.own(agent) is None and (aside := [item.key for item in self.backend.list(f"{key}.damaged-")]):
            kept = self.backend.where(max(aside))
            raise Damaged(
                f"{self.where(agent)} was damaged, and is kept as {kept}.",
                path=kept,
                hint="`holdfast memory repair` brings back what the history knows; or mend that file and import it.",
            )

    def prune(self, before: str, agent: str | None = None, *, dry_run: bool = False) -> int:
        """Take out the changes that are older than this moment (ISO); says how many. They can no longer be undone."""
        if dry_run:
            return sum(1 for change in self.changes(agent) if change.time < before)
        with self.locked(agent):
            return self._rewrite(agent, lambda change: None if change.time < before else change)

    def remove_set_aside(self, agent: str | None, holding: Callable[[bytes], bool]) -> int:
        """Remove older content beside a scope (set aside as damaged, left by a writer that died) that `holding` says yes to; how many."""
        keys, gone = keys_of(agent), 0
        for item in [*self.backend.list(f"{keys.document}.damaged-"), *self.backend.list(keys.history.rpartition("/")[0] + "/")]:
            if ".damaged-" in item.key and item.kind == "document":
                stored = self.backend.get(item.key)
                if stored is not None and holding(stored.data):
                    self.backend.write(Delete(item.key))
                    gone += 1
        return gone + len(self.backend.sweep(keys.document, holding=holding))

    def forget_cached(self) -> None:
        """Read everything anew from now on."""
        self._files.clear()

    def close(self) -> None:
        """Let go of what the storage holds open. It may still be used afterwards."""
        self.backend.close()

    # Inside. A scope's lock is held wherever something is set aside or written

    def locked(self, agent: str | None) -> AbstractContextManager[None]:
        """Inside, nobody else changes the scope."""
        return self.backend.locked(keys_of(agent).document, self._timeout)

    def _file(self, agent: str | None) -> DocumentFile:
        keys = keys_of(agent)
        return self._files.get(keys.document) or self._files.setdefault(
            keys.document, DocumentFile(self.backend, keys.document, keys.history)
        )

    def _found(self, agent: str | None) -> Found:
        """The document as it is now. What is damaged is set aside, and made again from the history where that holds all of it."""
        try:
            return self._file(agent).read()
        except Damaged as error:
            keys = keys_of(agent)
            folded = fold(self.backend.read(keys.history).records)
            stored = self.backend.get(keys.document)
            if folded.document is None or stored is None:
                self._set_aside(keys.document, error)
                return Found(None)
            aside = self._kept_aside(keys.document, stored.data)  # a copy, so that there is never a moment without a document
            (mark,) = self.backend.write(Put(keys.document, written(folded.document), expect=stored.mark))
            self._tell_aside(keys.document, aside, error, "It was made again from its history.")
            return Found(folded.document, mark, in_log=True)

    def _waiting(self, agent: str | None) -> tuple[list[Held], Mark]:
        """The candidates as they are now, with the mark. What is damaged is set aside."""
        key = keys_of(agent).quarantine
        stored = self.backend.get(key)
        if stored is None:
            return [], ABSENT
        try:
            return read_held(stored.data, self.backend.where(key)), stored.mark
        except Damaged as error:
            self._set_aside(key, error)
            return [], ABSENT

    def _holding(self, agent: str | None, held: Sequence[Held], released: Sequence[str]) -> list[Write]:
        if not held and not released:
            return []
        waiting, mark = self._waiting(agent)
        return [Put(keys_of(agent).quarantine, written_held(changed(waiting, held, released)), expect=mark)]

    def _write(self, agent: str | None, change: Change | None, more: Sequence[Write], document: Document | None, found: Found) -> None:
        """Enter a change and put the document, in one step. RevisionConflict, and nothing is written, if the document is another by now.

        Without a change the document is put durably: the history is written anew after it. With one the record is what counts.
        """
        keys = keys_of(agent)
        if change is None:
            puts = [] if document is None else [Put(keys.document, written(document), expect=found.mark)]
            self.backend.write(*more, *puts)
            return
        data = None if document is None else written(document)
        records = self._file(agent).records(change, found, data)
        puts = [] if data is None else [Put(keys.document, data, expect=found.mark, durable=found.mark == ABSENT)]
        try:
            marks = self.backend.write(Append(keys.history, records), *more, *puts)
        except (RevisionConflict, SyncFailed, StoreUnavailable):
            raise
        except StorageError as error:
            try:
                last = self.backend.last(keys.history) or {}
            except StorageError:
                raise error from None  # that one would say that nothing was written, which nobody knows
            if data is None or last.get("id") != change.id:
                raise
            return  # only the view could not be written, for want of room: what counts is in the history, and is read from there
        if document is not None:
            self._file(agent).note(document, marks[-1])

    def _finish(self, agent: str | None) -> None:
        """Carry out a change that an earlier version wrote down before it died. This one writes no such notes, so one look is enough."""
        keys = keys_of(agent)
        stored = None if agent in self._finished else self.backend.get(keys.note)
        self._finished.add(agent)
        if stored is None:
            return
        try:
            record: dict[str, Any] = strict_json.decode(stored.data)
            change = from_record(record)
        except Damaged as error:
            self._set_aside(keys.note, error)
            return
        found = self._found(agent)
        before = found.document or Document()
        writes: list[Write] = [Delete(keys.note)]
        if not any(one.id == change.id for one in self.changes(agent)):
            writes.append(Append(keys.history, [to_record(change)]))
        writes += self._holding(agent, [held_from(one) for one in change.held], record.get("released", ()))
        missing = change.differences and before.revision < change.revision
        self._write(agent, None, writes, redone(before, change) if missing else None, found)

    def _history(self, agent: str | None) -> tuple[list[Change | Damaged], tuple[str, ...], Mark]:
        reading = self.backend.read(keys_of(agent).history)
        found: list[Change | Damaged] = []
        for record in reading.records:
            if is_state(record):
                continue
            try:
                found.append(from_record(record))
            except Damaged as error:
                found.append(error)
        return found, reading.damage, reading.mark

    def _rewrite(self, agent: str | None, keep: Callable[[Change], Change | None], *, always: bool = False) -> int:
        """Put another version of each change in its place, or (None) take it out; says how many are different. What is damaged goes."""
        found, damage, mark = self._history(agent)
        left = [keep(one) if isinstance(one, Change) else None for one in found]
        touched = sum(1 for old, new in zip(found, left, strict=True) if isinstance(old, Change) and old != new)
        if always or damage or any(old is not new and old != new for old, new in zip(found, left, strict=True)):
            records = [to_record(one) for one in left if one is not None]
            self.backend.rewrite(keys_of(agent).history, [*records, *self._state(agent)], expect=mark)
        return touched

    def _state(self, agent: str | None) -> list[dict[str, Any]]:
        """The record with which a history that is written anew ends: the document as it is, which is on the disk by then."""
        return self._file(agent).state(self._found(agent), stamp(self.clock.now()))

    def _change(self, before: Document, wish: Edit) -> Change:
        return Change(
            id=self.ids.new("change"),
            time=stamp(self.clock.now()),
            revision=before.revision + 1,
            by=wish.by,
            why=wish.why,
            differences=differences(before, wish.document, wish.reasons),
            thread=wish.thread,
            item=wish.item,
            undoes=wish.undoes,
            held=tuple(held_to_json(one) for one in wish.held),
        )

    def _set_aside(self, key: str, error: Damaged) -> None:
        try:
            aside = self.backend.set_aside(key)
        except InputError:
            return  # somebody else was quicker
        self._tell_aside(key, aside, error, "" if key != FILE_NAME else "Nothing stands in its place; see `holdfast memory repair`.")

    def _kept_aside(self, key: str, data: bytes) -> str:
        """The key of a copy of what is damaged; its place is taken after that."""
        name, number = f"{key}.damaged-{self.clock.now():%Y%m%dT%H%M%SZ}", 0
        while True:
            aside = f"{name}-{number}" if number else name
            with suppress(RevisionConflict):
                self.backend.write(Put(aside, data, expect=ABSENT))
                return aside
            number += 1

    def _tell_aside(self, key: str, aside: str, error: Damaged, then: str) -> None:
        place = self.backend.where(aside)
        self.state = replace(self.state, set_aside=(*self.state.set_aside, place))
        self.bus.emit(MemoryDamaged(path=self.backend.where(key), aside=place, reason=error.message, then=then))
