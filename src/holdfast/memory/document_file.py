"""The document of a scope twice: as the log of its changes, which is the truth, and as the file that a person reads and edits (M6, M7).

A change is one record with one sync; the file is put in its place after that without one. A record says in `file` what the file is to be
(`digest`) and how it looked before (`was`), so that a file that is behind is told from one that somebody edited: what a person wrote there
counts, what a crash left there does not. Where the file is not what the log says (an edit, a document of an older version) the next record
is preceded by one with the whole `state`. Folding the records from the last `state` on gives the document. `Layout` says where the files
are: in the base directory, or where `memory.storage_path` says (M2).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.durable import strict_json
from holdfast.errors import Damaged, StorageError
from holdfast.events import Bus, Event
from holdfast.events import bus as process_bus
from holdfast.memory.document import Document, parse, to_json
from holdfast.memory.history import SCHEMA, Change, from_record, redone, to_record
from holdfast.storage.backend import ABSENT, Backend, Mark, Put, Stored

if TYPE_CHECKING:
    from holdfast.config.sections import Config


@dataclass(frozen=True, kw_only=True)
class PathBeside(Event):
    """The memory file is not in the base directory, but beside the configuration."""

    component: ClassVar[str] = "MemoryStorage"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "{path} is used as it is; there is none at {expected}"
    path: str
    expected: str


@dataclass(frozen=True)
class Found:
    """A document as it is now, and the mark to be given back with the next one. `in_log`: its history amounts to the same document.

    `is_behind`: its file is an older one, and is to be written again.
    """

    document: Document | None
    mark: Mark = ABSENT
    in_log: bool = False
    is_behind: bool = False


class DocumentFile:
    """The document `key` of a backend and the log `history` of its changes. Remembers what it read until one of the two looks different."""

    def __init__(self, backend: Backend, key: str, history: str) -> None:
        self._backend = backend
        self._key = key
        self._history = history
        self._known: tuple[tuple[Mark, str | None], Found] | None = None

    def read(self) -> Found:
        """The document as it is now, without a lock. Damaged if its file is, and not by a power cut."""
        mark, history = self._backend.mark(self._key), self._backend.glance(self._history)
        if mark is None:
            return Found(None)
        known = self._known
        if known is not None and known[0] == (mark, history):
            return known[1]
        stored = self._backend.get(self._key)
        if stored is None:
            return Found(None)
        facts = file_facts(self._backend.last(self._history))
        if facts is None or facts.digest == digest_of(stored.data):
            found = Found(self._parsed(stored), stored.mark, in_log=facts is not None)
        else:
            found = self._ahead(stored, facts) or Found(self._parsed(stored), stored.mark)
        self._known = ((stored.mark, history), found)
        return found

    def _parsed(self, stored: Stored) -> Document:
        path = self._backend.where(self._key)
        return parse(strict_json.decode(stored.data, path=path), path=path)

    def _ahead(self, stored: Stored, facts: FileFacts) -> Found | None:
        """The document that the history amounts to, if the file is behind it; None if the file is somebody's edit.

        It is behind if it is the very one that the last change was to take the place of (its writer was killed, or is at it), or if the
        machine was started anew since and it is an earlier one of ours, or torn.
        """
        is_same = self._backend.glance(self._key) == facts.was
        if not is_same and not self._backend.predates_start(self._key):
            return None
        folded = fold(self._backend.read(self._history).records)
        if folded.document is None:
            return None
        if not is_same and digest_of(stored.data) not in folded.digests:
            with suppress(Damaged):
                self._parsed(stored)
                return None
        return Found(folded.document, stored.mark, in_log=True, is_behind=True)

    # What is written; called with the scope locked

    def put_again(self) -> None:
        """Write the file again if it is behind."""
        found = self.read()
        if found.is_behind and found.document is not None:
            self._backend.write(Put(self._key, written(found.document), expect=found.mark))

    def records(self, change: Change, found: Found, data: bytes | None) -> list[dict[str, Any]]:
        """What goes into the history for a change that makes the file `data` (None: leaves it as it is).

        The document as it was comes first, where the history does not hold it.
        """
        if data is None and not found.in_log:
            return [to_record(change)]
        was = self._backend.glance(self._key)
        if data is None:
            last = file_facts(self._backend.last(self._history))
            return [with_file(to_record(change), last and replace(last, was=was))]
        record = with_file(to_record(change), FileFacts(digest_of(data), was))
        return [record] if found.in_log else [state_record(found.document or Document(), change.time), record]

    def note(self, document: Document, mark: Mark) -> None:
        """Remember what was just written. It stands, so a look that fails now is no error of the one who wrote: nothing is remembered."""
        self._known = None
        with suppress(StorageError):
            self._known = ((mark, self._backend.glance(self._history)), Found(document, mark, in_log=True))

    def state(self, found: Found, time: str) -> list[dict[str, Any]]:
        """The record that holds the document as it is, which is on the disk when this returns; none where there is no document."""
        if found.document is None:
            return []
        data = written(found.document)
        self._backend.write(Put(self._key, data, expect=found.mark))
        facts = FileFacts(digest_of(data), self._backend.glance(self._key))
        return [with_file(state_record(found.document, time), facts)]


Record = Mapping[str, Any]


@dataclass(frozen=True)
class FileFacts:
    """What a record says about the file: the digest of what it is to hold, and how the one looked that this takes the place of."""

    digest: str
    was: str | None = None


def written(document: Document) -> bytes:
    """The file of a document."""
    return strict_json.encode(to_json(document))


def digest_of(data: bytes) -> str:
    """Tells the contents of files apart."""
    return blake2b(data, digest_size=16).hexdigest()


def with_file(record: Record, facts: FileFacts | None) -> dict[str, Any]:
    """A record that says what the file is to be after it."""
    if facts is None:
        return dict(record)
    return {**record, "file": {"digest": facts.digest, **({} if facts.was is None else {"was": facts.was})}}


def file_facts(record: Record | None) -> FileFacts | None:
    """What a record says about the file. None if it does not: it is of an older version, or the file was an edit then."""
    value = record.get("file") if record is not None else None
    if not isinstance(value, Mapping) or not isinstance(value.get("digest"), str):
        return None
    return FileFacts(value["digest"], value.get("was"))


def state_record(document: Document, time: str) -> dict[str, Any]:
    """The record that holds a whole document."""
    return {"schema": SCHEMA, "state": to_json(document), "revision": document.revision, "time": time}


def is_state(record: Record) -> bool:
    """Whether a record holds a whole document, and no change."""
    return "state" in record


def states(records: Iterable[Record]) -> Iterator[Document | None]:
    """The whole documents in a log; None for one that cannot be read."""
    return (_state(record) for record in records if is_state(record))


@dataclass
class Folded:
    """What the records amount to: the document, None where they do not hold all of it, and the digests of its files, the newest last."""

    document: Document | None = None
    digests: list[str] = field(default_factory=list)


def fold(records: Iterable[Record]) -> Folded:
    """The document that a log holds. Only from the last `state` on, and only if no change since then is missing."""
    folded = Folded()
    for record in records:
        facts = file_facts(record)
        if is_state(record):
            folded = Folded(_state(record), [])
        elif folded.document is not None:
            folded.document = _next(folded.document, record)
        if facts is not None:
            folded.digests.append(facts.digest)
    return folded


def gathered(records: Iterable[Record]) -> Document:
    """All that a log knows, where it does not hold all of a document: what was ever added, and not removed since."""
    document = Document()
    for record in records:
        if is_state(record):
            document = (_state(record) or Document()).joined(document)
            continue
        change = _change(record)
        document = document if change is None or not change.differences else redone(document, change)
    return document


def _next(document: Document, record: Record) -> Document | None:
    change = _change(record)
    if change is None:
        return None
    if not change.differences:
        return document
    return redone(document, change) if change.revision == document.revision + 1 else None


def _change(record: Record) -> Change | None:
    try:
        return from_record(record)
    except Damaged:
        return None


def _state(record: Record) -> Document | None:
    try:
        return parse(record["state"])
    except StorageError:
        return None


FILE_NAME = "memory.json"
_ENDING = re.compile(r"[^.]\.\w+$")


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
        if config.trust.beside and not Path(written).expanduser().is_absolute() and not shared.exists() and beside.is_file():
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
