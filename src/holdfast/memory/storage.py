"""Where memory documents are kept: the contract of a storage, the file storage, and how the configured one is opened (M5, M6, M7).

storage = open_storage(load_config())
storage.document("coder")           # what this agent reads, from cache until somebody writes
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.durable.disk import REAL
from holdfast.durable.replace import read_json, replace_json
from holdfast.errors import ConfigError, Damaged, InputError, RevisionConflict, StoreUnavailable, WriteFailed
from holdfast.events import Event
from holdfast.memory.changing import Edit, StorageState, Store
from holdfast.memory.document import Document, parse, to_json
from holdfast.memory.scopes import Scopes, check_agent

if TYPE_CHECKING:
    from holdfast.config.sections import Config

_TICK = 10_000_000  # nanoseconds: two writes within one tick of a file system's clock have the same time
_POSTGRES = ("postgres", "postgresql", "holdfast.memory.postgres:PostgresMemoryStorage", "holdfast.memory.postgres.PostgresMemoryStorage")
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


class WholeDocuments(Store, MemoryStorage):
    """What our own storages have in common: the contract of M5 on top of documents that are changed one step at a time."""

    def load(self, agent_name: str | None = None) -> dict[str, Any]:
        """What the agent reads. The dict is the caller's own."""
        return to_json(self.document(agent_name))

    def reload(self, agent_name: str | None = None) -> dict[str, Any]:
        """The same, past the cache."""
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

    @abstractmethod
    def forget_cached(self) -> None:
        """Read everything anew from now on."""


class FileMemoryStorage(WholeDocuments):
    """One JSON file for each scope, written durably under a lock that processes share, with a revision that is compared.

    Reads come from a cache that notices any other writer. A damaged file is set aside under another name and reported.
    """

    def __init__(self, scopes: Scopes | str | Path, **settings: Any) -> None:
        super().__init__(scopes if isinstance(scopes, Scopes) else Scopes.below(scopes), **settings)
        self._cache: dict[str | None, tuple[tuple[int, ...], bool, Document]] = {}
        self._threads = threading.Lock()

    def forget_cached(self) -> None:
        with self._threads:
            self._cache.clear()

    # What Store needs

    def own(self, agent: str | None = None) -> Document | None:
        agent = check_agent(agent)
        path = self.scopes.file(agent)
        held, identity = self._cache.get(agent), _identity(path)
        if held is not None and not held[1] and held[0] == identity:
            return held[2]
        if identity is None and self.disk is REAL:
            return None
        try:
            return self._read(agent, path)
        except Damaged:
            with self.locked(agent):
                return self.fresh(agent)[0]

    def where(self, agent: str | None = None) -> str:
        return str(self.scopes.file(agent))

    def fresh(self, agent: str | None) -> tuple[Document | None, object]:
        path = self.scopes.file(agent)
        held = self._cache.get(agent)
        identity = _identity(path)
        if held is not None and not held[1] and identity is not None and held[0] == identity:
            return held[2], identity
        try:
            found = self._read(agent, path)
        except Damaged as error:
            self._set_aside(path, error)
            found = None
        return found, _identity(path)

    def mark(self, agent: str | None) -> object:
        return _identity(self.scopes.file(agent))

    def _read(self, agent: str | None, path: Path) -> Document | None:
        identity = _identity(path)
        try:
            document = parse(read_json(path, disk=self.disk), path=str(path))
        except FileNotFoundError:
            with self._threads:
                self._cache.pop(agent, None)
            return None
        self._remember(agent, identity, document)
        return document

    def put(self, agent: str | None, document: Document) -> None:
        path = self.scopes.file(agent)
        replace_json(path, to_json(document), disk=self.disk)
        self._remember(agent, _identity(path), document)

    def _remember(self, agent: str | None, identity: tuple[int, ...] | None, document: Document) -> None:
        if identity is None or self.disk is not REAL:  # another disk has no times to compare: it is read each time
            return
        racy = time.time_ns() - identity[3] < _TICK  # a second write in the same tick would look the same, so look once more later
        with self._threads:
            self._cache[agent] = (identity, racy, document)


def _identity(path: Path) -> tuple[int, ...] | None:
    """What changes when a file is written: which file it is, its size and its times."""
    try:
        facts = os.stat(path)  # noqa: PTH116 - called before every model call, and half as dear as pathlib's
    except OSError:
        return None
    return (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)


class ForeignStorage(Store):
    """A storage of the user's own behind the interface that the rest of Holdfast uses.

    History and quarantine are kept in the base directory. How durable the documents are is up to that storage.
    """

    def __init__(self, inner: MemoryStorage, scopes: Scopes, **settings: Any) -> None:
        super().__init__(scopes, **settings)
        self.inner = inner
        self.state = StorageState(kind=f"{type(inner).__module__}:{type(inner).__qualname__}")

    def own(self, agent: str | None = None) -> Document | None:
        return self._opened(self.inner.load(check_agent(agent)))

    def where(self, agent: str | None = None) -> str:
        return f"{self.state.kind} ({agent or 'global'})"

    def fresh(self, agent: str | None) -> tuple[Document | None, object]:
        found = self._opened(self.inner.reload(agent))
        return found, found

    def mark(self, agent: str | None) -> object:
        return self._opened(self.inner.reload(agent))

    def put(self, agent: str | None, document: Document) -> None:
        if not self.inner.save(to_json(document), agent):
            raise WriteFailed(f"{self.where(agent)} did not keep the document.", path=self.where(agent), operation="save")

    def _opened(self, value: Mapping[str, Any] | None) -> Document | None:
        if not value:
            return None
        document = parse(dict(value), path=self.state.kind)
        return None if document.empty and not document.revision else document


def open_storage(config: Config, **settings: Any) -> Store:
    """The storage that the configuration names: PostgreSQL with `memory.dsn`, the class of `memory.storage_class`, else files.

    One that cannot be loaded is logged as an error, files are used instead, and `.state` shows it. An address that cannot be read is a
    ConfigError; a server that cannot be reached is said when it is used, and nothing goes into files meanwhile.
    """
    scopes = Scopes.of(config, bus=settings.get("bus"))
    asked, dsn = config.memory.storage_class, config.memory.dsn
    if asked in _POSTGRES or (dsn is not None and asked is None):
        return _open_postgres(dsn, asked or "memory.dsn", scopes, settings)
    if asked is None or asked in _FILE:
        return FileMemoryStorage(scopes, **settings)
    try:
        found = _load(asked)
        if issubclass(found, FileMemoryStorage):
            return found(scopes, **settings)
        return ForeignStorage(found(), scopes, **settings)
    except Exception as error:  # noqa: BLE001 - code of the user's own may raise anything at import and construction; M5 says what then
        return _fallback(asked, f"{type(error).__name__}: {error}", scopes, settings)


def _open_postgres(dsn: str | None, asked: str, scopes: Scopes, settings: dict[str, Any]) -> Store:
    from holdfast.durable.postgres_connection import LOCAL, Address, driver
    from holdfast.memory.postgres import PostgresMemoryStorage

    if dsn is None:
        raise ConfigError("the PostgreSQL storage needs an address.", key="memory.dsn", hint="Set `memory.dsn`.")
    try:
        driver()
    except StoreUnavailable as error:
        return _fallback(asked, str(error), scopes, settings)
    try:
        if not dsn.startswith(LOCAL):
            Address.read(dsn)
    except InputError as error:
        raise ConfigError(error.message, key="memory.dsn", hint=error.hint) from None
    return PostgresMemoryStorage(scopes, dsn, **settings)


def _fallback(asked: str, reason: str, scopes: Scopes, settings: dict[str, Any]) -> Store:
    files = FileMemoryStorage(scopes, **settings)
    files.bus.emit(StorageFallback(asked=asked, reason=reason))
    files.state = replace(files.state, state="fallback", asked=asked, message=reason)
    return files


def _load(path: str) -> type[MemoryStorage]:
    module, colon, name = path.partition(":")
    if not colon:
        module, _, name = path.rpartition(".")
    found = getattr(importlib.import_module(module), name)
    if not (isinstance(found, type) and issubclass(found, MemoryStorage)):
        raise TypeError(f"{name} does not extend holdfast.memory.storage.MemoryStorage")
    return found
