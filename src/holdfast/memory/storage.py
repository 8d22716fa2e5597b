"""Where memory documents are kept: the contract of a storage of one's own, files, PostgreSQL, and how the configured one is opened (M5).

storage = open_storage(load_config())
storage.document("coder")           # what this agent reads, from cache until somebody writes

PostgreSQL is shared by many machines; tables of earlier versions are moved behind the storage seam when first met (M6).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.clock import SystemClock, stamp
from holdfast.durable.disk import REAL, Disk
from holdfast.durable.postgres import Postgres, scripts
from holdfast.durable.postgres_connection import LOCAL, Address, driver
from holdfast.errors import ConfigError, InputError, RevisionConflict, StoreUnavailable, WriteFailed
from holdfast.events import Event
from holdfast.memory.document import Document, parse, to_json
from holdfast.memory.document_file import Found, Layout
from holdfast.memory.history import Change, to_record
from holdfast.memory.memory_store import Edit, MemoryStore, check_agent, keys_of
from holdfast.storage.backend import Append
from holdfast.storage.backend import Change as Write
from holdfast.storage.files import FileBackend
from holdfast.storage.postgres_backend import PostgresBackend
from holdfast.validation import load_dotted, standing_in

if TYPE_CHECKING:
    from holdfast.config.sections import Config


_POSTGRES = ("postgres", "postgresql", "holdfast.memory.storage:PostgresMemoryStorage", "holdfast.memory.storage.PostgresMemoryStorage")
_FILE = ("file", "holdfast.memory.storage:FileMemoryStorage", "holdfast.memory.storage.FileMemoryStorage")


@dataclass(frozen=True, kw_only=True)
class StorageFallback(Event):
    """The configured storage could not be loaded, so files are used."""

    component: ClassVar[str] = "MemoryStorage"
    level: ClassVar[int] = logging.ERROR
    text: ClassVar[str] = "{asked} cannot be used, so memory is kept in files: {reason}"
    asked: str
    reason: str


class MemoryStorage(ABC):
    """What a storage of one's own extends. A document is a dict in the form of `memory.json`."""

    @abstractmethod
    def load(self, agent_name: str | None = None) -> dict[str, Any]:
        """The document, possibly from a cache. An empty dict, or an empty document, if there is none."""

    @abstractmethod
    def reload(self, agent_name: str | None = None) -> dict[str, Any]:
        """The document as it is now, past every cache."""

    @abstractmethod
    def save(self, memory_data: dict[str, Any], agent_name: str | None = None) -> bool:
        """Keep the document; False if that was not possible."""


class DocumentStorage(MemoryStore, MemoryStorage):
    """A store of ours with the contract of M5 on top: whole documents are loaded and saved."""

    def load(self, agent_name: str | None = None) -> dict[str, Any]:
        """What the agent reads. The dict is the caller's own."""
        return to_json(self.document(agent_name))

    def reload(self, agent_name: str | None = None) -> dict[str, Any]:
        """What the agent reads, past the cache."""
        self.forget_cached()
        return self.load(agent_name)

    def save(self, memory_data: dict[str, Any], agent_name: str | None = None) -> bool:
        """Write the document, if nobody else wrote since it was loaded; True, or an error that says why not.

        RevisionConflict if the `revision` in it is not that of the stored one (none counts as 0). Damaged if it is no document.
        """
        wanted = parse(memory_data)
        agent = check_agent(agent_name)

        def edit(current: Document) -> Edit:
            inherited = agent is not None and self.own(agent) is None  # what was loaded is the global one
            if wanted.revision != current.revision and not inherited:
                raise RevisionConflict(
                    f"{self.where(agent)} has revision {current.revision}, and the document to be saved comes from {wanted.revision}.",
                    path=self.where(agent),
                    expected=wanted.revision,
                    found=current.revision,
                )
            return Edit(wanted, "storage", "saved as a whole")

        self.change(agent, edit)
        return True


class FileMemoryStorage(DocumentStorage):
    """One JSON file for each scope, which a person can read and edit, and beside it the history and the quarantine."""

    def __init__(self, layout: Layout | str | Path, *, disk: Disk = REAL, **parts: Any) -> None:
        where = layout if isinstance(layout, Layout) else Layout.below(layout)
        shared = {name: parts[name] for name in ("clock", "bus", "timeout") if parts.get(name) is not None}
        super().__init__(where, FileBackend(where.base, disk=disk, places=where.places, **shared), **parts)


class CustomStorage(MemoryStore):
    """A storage of the user's own behind the interface that the rest of Holdfast uses.

    History and quarantine are kept in files of the base directory. How durable the documents are is up to that storage: a document is
    saved there first, and only then is the change in the history.
    """

    def __init__(self, inner: MemoryStorage, layout: Layout, *, disk: Disk = REAL, **parts: Any) -> None:
        kind = f"{type(inner).__module__}:{type(inner).__qualname__}"
        super().__init__(layout, FileBackend(layout.base, disk=disk, places=layout.places), kind=kind, **parts)
        self.inner = inner

    def own(self, agent: str | None = None) -> Document | None:
        return self._opened(self.inner.load(check_agent(agent)))

    def where(self, agent: str | None = None) -> str:
        return f"{self.state.kind} ({check_agent(agent) or 'global'})"

    def check_lost(self, agent: str | None = None) -> None:
        """Nothing of a user's own storage is ever set aside here."""

    def _found(self, agent: str | None) -> Found:
        found = self._opened(self.inner.reload(agent))
        return Found(found, repr(found))

    def _write(self, agent: str | None, change: Change | None, more: Sequence[Write], document: Document | None, found: Found) -> None:
        if document is not None:
            if repr(self._opened(self.inner.reload(agent))) != found.mark:
                raise RevisionConflict(f"{self.where(agent)} was changed by somebody else.", path=self.where(agent))
            if not self.inner.save(to_json(document), agent):
                raise WriteFailed(f"{self.where(agent)} did not keep the document.", path=self.where(agent), operation="save")
        entry = [] if change is None else [Append(keys_of(agent).history, [to_record(change)])]
        self.backend.write(*entry, *more)

    def _state(self, agent: str | None) -> list[dict[str, Any]]:
        return []  # the document is in the user's own storage

    def _opened(self, value: Mapping[str, Any] | None) -> Document | None:
        if not value:
            return None
        document = parse(dict(value), path=self.state.kind)
        return None if document.empty and not document.revision else document


def open_storage(config: Config, **parts: Any) -> MemoryStore:
    """The storage that the configuration names: PostgreSQL with `memory.dsn`, the class of `memory.storage_class`, else files.

    One that cannot be loaded is logged as an error, files are used instead, and `.state` shows it. An address that cannot be read is a
    ConfigError; a server that cannot be reached is said when it is used, and nothing goes into files meanwhile.
    """
    layout = Layout.of(config, bus=parts.get("bus"))
    asked, dsn = config.memory.storage_class, config.memory.dsn
    if asked in _POSTGRES or (dsn is not None and asked is None):
        return _open_postgres(dsn, asked or "memory.dsn", layout, parts)
    if asked is None or asked in _FILE:
        return FileMemoryStorage(layout, **parts)
    try:
        with standing_in(_reference_modules()):
            found = _storage_class(asked)
            return found(layout, **parts) if issubclass(found, FileMemoryStorage) else CustomStorage(found(), layout, **parts)
    except Exception as error:  # noqa: BLE001 - code of the user's own may raise anything at import and construction; M5 says what then
        return _fallback(asked, f"{type(error).__name__}: {error}", layout, parts)


def keeps_files(config: Config) -> bool:
    """Whether the configuration keeps memory in files of its own, not in a database or a storage of the user's."""
    return config.memory.storage_class in (None, *_FILE) and (config.memory.dsn is None or config.memory.storage_class is not None)


def _open_postgres(dsn: str | None, asked: str, layout: Layout, parts: dict[str, Any]) -> MemoryStore:
    if dsn is None:
        raise ConfigError("the PostgreSQL storage needs an address.", key="memory.dsn", hint="Set `memory.dsn`.")
    try:
        driver()
    except StoreUnavailable as error:
        return _fallback(asked, str(error), layout, parts)
    try:
        if not dsn.startswith(LOCAL):
            Address.read(dsn)
    except InputError as error:
        raise ConfigError(error.message, key="memory.dsn", hint=error.hint) from None
    return PostgresMemoryStorage(layout, dsn, **{name: part for name, part in parts.items() if name != "disk"})


def _fallback(asked: str, reason: str, layout: Layout, parts: dict[str, Any]) -> MemoryStore:
    files = FileMemoryStorage(layout, **parts)
    files.bus.emit(StorageFallback(asked=asked, reason=reason))
    files.state = replace(files.state, state="fallback", asked=asked, message=reason)
    return files


def _storage_class(path: str) -> type[MemoryStorage]:
    found = load_dotted(path, "the storage", key="memory.storage_class", hint="Is its module on the Python path?")
    if not (isinstance(found, type) and any(base is MemoryStorage or _is_theirs(base) for base in found.__mro__)):
        raise TypeError(f"{path} does not extend holdfast.memory.storage.MemoryStorage")
    return found


def _is_theirs(base: type) -> bool:
    """Whether it is the reference's own class, where that is really installed: it has the same three methods."""
    return base.__name__ == "MemoryStorage" and base.__module__.endswith("agents.memory.storage")


def _reference_modules() -> dict[str, dict[str, Any]]:
    """What a storage class imports that was written for the reference, under both of its package names (M5)."""
    names = {
        "MemoryStorage": MemoryStorage,
        "FileMemoryStorage": FileMemoryStorage,
        "create_empty_memory": lambda: to_json(Document()),
        "utc_now_iso_z": lambda: stamp(SystemClock().now()),
    }
    return {f"{package}.agents.memory{module}": names for package in ("deerflow", "src") for module in ("", ".storage")}


class PostgresMemoryStorage(DocumentStorage):
    """`database` is an address, or a `Postgres` that is open already; it is reached when it is first needed.

    The queue of conversations is in it too.
    """

    def __init__(self, layout: Layout | str | Path, database: str | Postgres, *, schema: str = "holdfast", **parts: Any) -> None:
        where = layout if isinstance(layout, Layout) else Layout.below(layout)
        given = {"clock": parts.get("clock"), "lock_timeout": parts.get("timeout")}
        backend = _Upgraded(database, schema=schema, base=where.base, **{name: part for name, part in given.items() if part is not None})
        super().__init__(where, backend, kind="postgres", **parts)


class _Upgraded(PostgresBackend):
    """A backend over a database in which the memory tables of earlier versions are no more."""

    _moved = False

    @property
    def database(self) -> Postgres:
        opened = super().database
        if not self._moved:
            opened.migrate("memory", scripts("holdfast.memory"))
            self._moved = True
        return opened
