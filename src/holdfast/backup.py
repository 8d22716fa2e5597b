"""A sound copy of all state while everything goes on running, what such a copy cannot reach, and how it is put back (O7)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.durable.copying import OUTSIDE, Copy, Moment, Restored, copy_live, restore
from holdfast.errors import DiskFull, InputError, NotWritable, StorageError
from holdfast.knowledge.adapters import of_vector_store, path_of
from holdfast.memory.memory_store import Keys, MemoryStore, keys_of
from holdfast.memory.storage import keeps_files
from holdfast.storage.files import FileBackend

if TYPE_CHECKING:
    from holdfast.config.memory_sections import Knowledge
    from holdfast.config.sections import Config
    from holdfast.harness import Harness


@dataclass(frozen=True)
class Backup:
    """The copy, and what the configuration keeps where no copy of ours reaches."""

    copy: Copy
    elsewhere: tuple[str, ...] = ()


def back_up(harness: Harness, to: Path) -> Backup:
    """Copy all state, as it is at one moment, into a new folder below `to` that is named by the time.

    A document of memory and its history are copied under the lock of their writers. What the configuration keeps in files outside the base
    directory is copied too; what it keeps in a database or behind a server is named.
    """
    if not harness.base.is_dir():
        raise InputError(f"there is no base directory {harness.base} yet, so there is nothing to copy.")
    target = to / f"holdfast-{harness.clock.now():%Y%m%dT%H%M%S}"
    copied = copy_live(harness.base, target, moments=_moments(harness), outside=_outside(harness.config), clock=harness.clock)
    return Backup(copied, tuple(_elsewhere(harness.config)))


def put_back(harness: Harness, copy: Path, *, replace: bool = False) -> Restored:
    """Put a copy in the place of the base directory, after every file of it was checked. What stands there is moved beside it."""
    return restore(copy, harness.base, replace=replace, outside=_outside(harness.config), clock=harness.clock)


def _moments(harness: Harness) -> list[Moment]:
    store = harness.memory.store
    if not isinstance(store, MemoryStore) or not isinstance(store.backend, FileBackend):
        return []
    for agent in store.scopes():
        with suppress(StorageError):  # a document that is behind its history (the disk was full) would pass for an edit in the copy
            store.own(agent)
    return [Moment(partial(_locked, store, agent), partial(_is_of, keys_of(agent))) for agent in store.scopes()]


@contextmanager
def _locked(store: MemoryStore, agent: str | None) -> Iterator[None]:
    """Without those who write; where no lock can be made, on a read-only file system or a full disk, they cannot write either."""
    with ExitStack() as stack:
        with suppress(NotWritable, DiskFull):
            stack.enter_context(store.locked(agent))
        yield


def _is_of(keys: Keys, name: str) -> bool:
    return name in (keys.document, keys.history, keys.quarantine, keys.note) or (
        keys == keys_of(None) and name in (f"{OUTSIDE}/memory", f"{OUTSIDE}/memory.d")
    )


def _outside(config: Config) -> dict[str, Path]:
    """What is kept in files outside the base directory: a name for each, and its place."""
    session_file = config.memory.session_memory.path
    kept = {
        "memory": config.memory.storage_path,
        "sessions": config.session.path,
        "session-files": str(Path(session_file).parent) if session_file else None,
        **{name: str(path_of(section, config.base)) for name, section in _knowledge(config) if section.adapter in _IN_FILES},
    }
    found: dict[str, Path] = {}
    for name, path in kept.items():
        place = (config.base / Path(path).expanduser()).absolute() if path else config.base.absolute()
        if not place.resolve().is_relative_to(config.base.resolve()) and "{" not in str(place):
            found[name] = place
    if "memory" in found and config.memory.dsn and not keeps_files(config):
        del found["memory"]
    if "memory" in found:
        found["memory.d"] = found["memory"].with_name(f"{found['memory'].stem}.d")
    return found


_IN_FILES = ("sqlite", "markdown", "langchain")


def _knowledge(config: Config) -> list[tuple[str, Knowledge]]:
    """The configured store of knowledge, and that of the session where it is another (W1)."""
    sections = [("knowledge", config.knowledge), ("session-knowledge", of_vector_store(config).knowledge)]
    return sections if sections[0][1] != sections[1][1] else sections[:1]


def _elsewhere(config: Config) -> list[str]:
    found = []
    if not keeps_files(config):
        kept = "memory, with what waits to be learned from, is in PostgreSQL"
        found.append(kept if config.memory.dsn else f"memory is kept by {config.memory.storage_class}")
    if config.session.storage_backend == "postgresql":
        found.append("sessions are in PostgreSQL")
    views = config.memory.session_memory.path
    if views and "{" in str(Path(views).parent):
        found.append(f"the readable files of sessions ({views}) are elsewhere; they are written again from the sessions' logs")
    for _, section in _knowledge(config):
        vectors = f"vectors are in {section.use}; `holdfast knowledge reembed` makes them anew after a restore"
        kept_by = {"postgres": "knowledge is in PostgreSQL", "mcp": "knowledge is kept by an MCP server", "langchain": vectors}
        if section.adapter in kept_by:
            found.append(kept_by[section.adapter])
        elif section.adapter not in _IN_FILES:
            found.append(f"knowledge is kept by the adapter {section.adapter}")
    return found
