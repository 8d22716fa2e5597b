"""Every backend that the suite of the session store runs over: how to open it, and how to change a session's file behind its back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.durable.disk import read_whole
from holdfast.session.store import SessionStore
from holdfast.session.stored import Views
from holdfast.storage.backend import Delete, Put
from holdfast.storage.in_memory import MemoryBackend
from holdfast.testing.disk import SimulatedDisk
from holdfast.workflow.run_settings import file_sessions, postgres_sessions

__all__ = ["STORES", "Case", "case_of"]


@dataclass
class Case:
    """One kind of storage ready to be tested."""

    name: str
    make: Callable[[], SessionStore]
    """Another store over the same sessions, as another process would have it."""
    contents: Callable[[], bytes]
    """Everything that is kept, for grepping."""
    opened: ExitStack = field(default_factory=ExitStack)

    def open(self) -> SessionStore:
        store = self.make()
        self.opened.callback(store.close)
        return store

    def edit(self, workflow_id: str, how: Callable[[bytes], bytes]) -> None:
        """Change the file of a session, as a person with an editor would, or as bad luck."""
        views = self.open().views
        assert views is not None
        stored = views.get(workflow_id)
        assert stored is not None
        views.backend.write(Put(views.key(workflow_id), how(stored.data)))

    def stage_file(self, workflow_id: str, path: str) -> str:
        """The text of `NN-name/context.md` or `output.md` of a session."""
        views = self.open().views
        assert views is not None
        return views.texts(workflow_id)[path]

    def lose_stage_files(self, workflow_id: str) -> None:
        views = self.open().views
        assert views is not None
        for item in [*views.backend.list(f"{views.prefix}/{workflow_id}/stages/")]:
            views.backend.write(Delete(item.key))


def _memory(request: pytest.FixtureRequest, folder: Path) -> Case:
    backend = MemoryBackend()

    def contents() -> bytes:
        return repr([backend._documents, backend._logs, backend._blobs]).encode()

    return Case("memory", lambda: SessionStore(backend, views=Views(backend, "sessions")), contents)


def _file(request: pytest.FixtureRequest, folder: Path) -> Case:
    base = folder / "sessions"

    def contents() -> bytes:
        return b"\n".join(path.read_bytes() for path in sorted(base.rglob("*")) if path.is_file())

    return Case("file", lambda: file_sessions(base, beat=0.05), contents)


def _simulated(request: pytest.FixtureRequest, folder: Path) -> Case:
    disk = SimulatedDisk()

    def files(place: str) -> Iterator[bytes]:
        for entry in disk.scan(place):
            path = f"{place}/{entry.name}"
            yield from files(path) if entry.kind == "folder" else [read_whole(disk, path)]

    def contents() -> bytes:
        return b"\n".join(files("/base"))

    return Case("simulated disk", lambda: file_sessions("/base/sessions", disk=disk), contents)


def _postgres(request: pytest.FixtureRequest, folder: Path) -> Case:
    dsn: str = request.getfixturevalue("postgres")

    def contents() -> bytes:
        import psycopg

        with psycopg.connect(dsn, autocommit=True) as connection:
            names = [name for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'")]
            rows = [row for name in names for row in connection.execute(f"SELECT * FROM holdfast.{name}")]  # noqa: S608 - our own names
        cells = [cell if isinstance(cell, bytes) else str(cell).encode() for row in rows for cell in row]
        return b"\n".join([*cells, *(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())])

    def make() -> SessionStore:
        return postgres_sessions(dsn, folder=folder / "sessions", path=str(folder / "out" / "{session_id}.json"), beat=0.05)

    return Case("postgres", make, contents)


STORES: dict[str, Callable[[pytest.FixtureRequest, Path], Case]]
STORES = {
    "memory": _memory,
    "file": _file,
    "simulated disk": _simulated,
    "postgres": _postgres,
}


def case_of(request: Any, folder: Path) -> Iterator[Case]:
    case = STORES[request.param](request, folder)
    with case.opened:
        yield case
