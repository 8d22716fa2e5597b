"""Memory documents with their history and quarantine, over a storage backend (M3, M6, M7).

One change is one write of the backend: the entry in the history, the candidates that wait, and the document, all of them or none, so a
document and its history never disagree, and an update of the queue that is in the history has been carried out.

`Layout` says whose memory it is: the global one and one for each agent, under which keys each is kept, and where the files are (M2-M4).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.durable import strict_json
from holdfast.errors import Damaged, InputError, RevisionConflict
from holdfast.events import Bus
from holdfast.events import bus as process_bus
from holdfast.ids import IdSource, RandomIds, check_name
from holdfast.memory.document import Document, parse, to_json
from holdfast.memory.events import MemoryDamaged, PathBeside
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

if TYPE_CHECKING:
    from holdfast.config.sections import Config


FILE_NAME = "memory.json"
_ENDING = re.compile(r"[^.]\.\w+$")
AGENTS = "agents"


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


@dataclass(frozen=True)
class Layout:
    """Where memory is kept. `shared` is the global file; the agents' are below `base`. `inherit`: an agent without its own reads it."""

    base: Path
    shared: Path
    inherit: bool = True

    @classmethod
    def below(cls, base: str | Path, storage_path: str = FILE_NAME, *, inherit: bool = True) -> Layout:
        """The usual layout in a base directory, without a configuration."""
        return cls(Path(base), _file(Path(base) / Path(storage_path).expanduser()), inherit)

    @classmethod
    def of(cls, config: Config, *, bus: Bus | None = None) -> Layout:
        """Where the configuration says. A relative path that is absent in the base directory, but exists beside the file, is used there."""
        written = config.memory.storage_path
        shared = _file(config.in_base(written))
        beside = _file(config.beside(written))
        if not Path(written).expanduser().is_absolute() and not shared.exists() and beside.is_file():
            (bus or process_bus).emit(PathBeside(path=str(beside), expected=str(shared)))
            shared = beside
        return cls(config.base, shared, config.memory.inherit)

    @property
    def places(self) -> dict[str, str]:
        """The keys whose files are not below the base under their own names."""
        if self.shared == self.base / FILE_NAME:
            return {}
        return {
            FILE_NAME: str(self.shared),
            FILE_NAME + ".damaged-{time}": str(self.shared) + ".damaged-{time}",
            "memory.d/": f"{self.shared.with_name(f'{self.shared.stem}.d')}/",
        }


def _file(path: Path) -> Path:
    """A folder, which some installations of the reference have there, means the usual file in it; so does a name without an ending."""
    return path / FILE_NAME if path.is_dir() or not (_ENDING.search(path.name) or path.exists()) else path


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
        self._cache: dict[str, tuple[Mark, Document]] = {}  # by the document's key
        self._finished: set[str | None] = set()

    # Reading

    def own(self, agent: str | None = None) -> Document | None:
        """The document of this very scope, or None when it has none yet."""
        key = keys_of(agent).document
        mark = self.backend.mark(key)
        if mark is None:
            return None
        held = self._cache.get(key)
        if held is not None and held[0] == mark:
            return held[1]
        try:
            return self._parsed(agent)[0]
        except Damaged:
            with self.locked(agent):
                return self._found(agent)[0]

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
        """The candidates that wait for a person in a scope, oldest first. Damaged if they cannot be read."""
        key = keys_of(agent).quarantine
        stored = self.backend.get(key)
        return [] if stored is None else read_held(stored.data, self.backend.where(key))

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
                found, mark = self._found(agent)
                before = found if found is not None else Document()
                wish = edit(before)
                if wish is None:
                    return None
                change = self._change(before, wish)
                if not change.differences and not wish.held and not wish.released:
                    return None
                after = replace(wish.document, revision=change.revision, updated=change.time) if change.differences else None
                with suppress(RevisionConflict):
                    writes = [Append(keys_of(agent).history, [to_record(change)]), *self._holding(agent, wish.held, wish.released)]
                    self._write(agent, writes, after, mark)
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
                found, mark = self._found(agent)
                before = found or Document()
                after, gone = document(before), [one.id for one in self._waiting(agent)[0] if held(one)]
                writes = self._holding(agent, (), gone)
                renewed = replace(after, revision=before.revision + 1, updated=stamp(self.clock.now())) if after != before else None
                with suppress(RevisionConflict):
                    if writes or renewed is not None:
                        self._write(agent, writes, renewed, mark)
                    return Scrubbed(before, after, self._rewrite(agent, change), len(gone))
        raise RevisionConflict(f"{self.where(agent)} is being written by somebody else all the time.", path=self.where(agent))

    def note(self, agent: str | None, change: Change) -> None:
        """Enter a change in the history that leaves the document as it is."""
        self.backend.write(Append(keys_of(agent).history, [to_record(change)]))

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
        self._cache.clear()

    def close(self) -> None:
        """Let go of what the storage holds open. It may still be used afterwards."""
        self.backend.close()

    # Inside. A scope's lock is held wherever something is set aside or written

    def locked(self, agent: str | None) -> AbstractContextManager[None]:
        """Inside, nobody else changes the scope."""
        return self.backend.locked(keys_of(agent).document, self._timeout)

    def _parsed(self, agent: str | None) -> tuple[Document | None, Mark]:
        key = keys_of(agent).document
        stored = self.backend.get(key)
        if stored is None:
            self._cache.pop(key, None)
            return None, ABSENT
        held = self._cache.get(key)
        if held is not None and held[0] == stored.mark:
            return held[1], stored.mark
        path = self.backend.where(key)
        document = parse(strict_json.decode(stored.data, path=path), path=path)
        self._cache[key] = (stored.mark, document)
        return document, stored.mark

    def _found(self, agent: str | None) -> tuple[Document | None, Mark]:
        """The document as it is now and the mark to be given back with the next one. What is damaged is set aside."""
        try:
            return self._parsed(agent)
        except Damaged as error:
            self._set_aside(keys_of(agent).document, error)
            return None, ABSENT

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

    def _write(self, agent: str | None, writes: Sequence[Write], document: Document | None, mark: Mark) -> None:
        """Carry out all of it in one step. RevisionConflict, and nothing is written, if the document is not that of the mark any more."""
        if document is None:
            self.backend.write(*writes)
            return
        key = keys_of(agent).document
        marks = self.backend.write(*writes, Put(key, strict_json.encode(to_json(document)), expect=mark))
        self._cache[key] = (marks[-1], document)

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
        found, mark = self._found(agent)
        writes: list[Write] = [Delete(keys.note)]
        if not any(one.id == change.id for one in self.changes(agent)):
            writes.append(Append(keys.history, [to_record(change)]))
        writes += self._holding(agent, [held_from(one) for one in change.held], record.get("released", ()))
        missing = change.differences and (found is None or found.revision < change.revision)
        self._write(agent, writes, redone(found or Document(), change) if missing else None, mark)

    def _history(self, agent: str | None) -> tuple[list[Change | Damaged], tuple[str, ...], Mark]:
        reading = self.backend.read(keys_of(agent).history)
        found: list[Change | Damaged] = []
        for record in reading.records:
            try:
                found.append(from_record(record))
            except Damaged as error:
                found.append(error)
        return found, reading.damage, reading.mark

    def _rewrite(self, agent: str | None, keep: Callable[[Change], Change | None]) -> int:
        """Put another version of each change in its place, or (None) take it out; says how many are different. What is damaged goes."""
        found, damage, mark = self._history(agent)
        left = [keep(one) if isinstance(one, Change) else None for one in found]
        touched = sum(1 for old, new in zip(found, left, strict=True) if isinstance(old, Change) and old != new)
        if damage or any(old is not new and old != new for old, new in zip(found, left, strict=True)):
            records = [to_record(one) for one in left if one is not None]
            self.backend.rewrite(keys_of(agent).history, records, expect=mark)
        return touched

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
        place = self.backend.where(key)
        try:
            aside = self.backend.where(self.backend.set_aside(key))
        except InputError:
            return  # somebody else was quicker
        self.state = replace(self.state, set_aside=(*self.state.set_aside, aside))
        self.bus.emit(MemoryDamaged(path=place, aside=aside, reason=error.message))
