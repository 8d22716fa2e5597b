"""Every session store that the contract suite runs over: how to open it, and how to change a stored document behind its back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.session.files import FileSessionStore
from holdfast.session.store import SessionStore
from holdfast.testing.sessions import MemorySessionStore

__all__ = ["STORES", "Bench", "bench_of"]


@dataclass
class Bench:
    """One kind of store ready to be tested."""

    name: str
    make: Callable[[], SessionStore]
    """Another store over the same sessions, as another process would have it. A store with a `close` is closed at the end."""
    edit: Callable[[str, Callable[[bytes], bytes]], None]
    """Changes the stored document of a session, as a person with an editor would, or as bad luck."""
    stage_file: Callable[[str, str], str]
    """The text of `NN-name/context.md` or `output.md` of a session."""
    contents: Callable[[], bytes]
    """Everything that the store keeps, for grepping."""
    opened: ExitStack = field(default_factory=ExitStack)

    def open(self) -> SessionStore:
        store = self.make()
        close = getattr(store, "close", None)
        if close is not None:
            self.opened.callback(close)
        return store


def _file(request: pytest.FixtureRequest, folder: Path) -> Bench:
    base = folder / "sessions"

    def edit(workflow_id: str, how: Callable[[bytes], bytes]) -> None:
        path = base / f"{workflow_id}.json"
        path.write_bytes(how(path.read_bytes()))

    return Bench(
        "file",
        lambda: FileSessionStore(base, beat=0.05),
        edit,
        lambda workflow_id, path: (base / workflow_id / "stages" / path).read_text(),
        lambda: b"\n".join(path.read_bytes() for path in sorted(base.rglob("*")) if path.is_file()),
    )


def _memory(request: pytest.FixtureRequest, folder: Path) -> Bench:
    store = MemorySessionStore()

    def contents() -> bytes:
        return repr(store._all).encode()

    return Bench("memory", lambda: store, store.edit, lambda workflow_id, path: store.files(workflow_id)[path], contents)


def _postgres(request: pytest.FixtureRequest, folder: Path) -> Bench:
    from holdfast.session.postgres import PostgresSessionStore

    dsn: str = request.getfixturevalue("postgres")

    def rows(query: str, *values: object) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(dsn, autocommit=True) as connection:
            cursor = connection.execute(query, values)
            return cursor.fetchall() if cursor.description else []

    def edit(workflow_id: str, how: Callable[[bytes], bytes]) -> None:
        ((text,),) = rows("SELECT document FROM holdfast.sessions WHERE id = %s", workflow_id)
        rows("UPDATE holdfast.sessions SET document = %s WHERE id = %s", how(text.encode()).decode(), workflow_id)

    def stage_file(workflow_id: str, path: str) -> str:
        ((text,),) = rows("SELECT text FROM holdfast.session_files WHERE session = %s AND name = %s", workflow_id, path)
        return str(text)

    def contents() -> bytes:
        tables = [name for (name,) in rows("SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'")]
        cells = [cell for name in tables for row in rows(f"SELECT * FROM holdfast.{name}") for cell in row]  # noqa: S608 - our own names
        return b"\n".join(cell if isinstance(cell, bytes) else str(cell).encode() for cell in cells)

    return Bench("postgres", lambda: PostgresSessionStore(dsn, folder=folder / "sessions", beat=0.05), edit, stage_file, contents)


STORES: dict[str, Callable[[pytest.FixtureRequest, Path], Bench]] = {"file": _file, "memory": _memory, "postgres": _postgres}


def bench_of(request: Any, folder: Path) -> Iterator[Bench]:
    bench = STORES[request.param](request, folder)
    with bench.opened:
        yield bench
