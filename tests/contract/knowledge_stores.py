"""Every knowledge store that the contract suite runs over: how to open it, where its files are, and how to damage its index."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.knowledge.adapters import open_knowledge
from holdfast.knowledge.store import KnowledgeStore

__all__ = ["ADAPTERS", "SERVER", "Bench", "bench_of", "free_port", "served", "wait_for"]

HERE = Path(__file__).parent
SERVER = HERE.parent / "integration" / "knowledge_server.py"


@dataclass
class Bench:
    """One adapter ready to be tested: `open()` gives another store over the same records each time."""

    name: str
    source: str
    settings: dict[str, Any] = field(default_factory=dict)
    files: Path | None = None
    """The folder in which all its files are, for stores that have files."""
    damage: Callable[[], bool] | None = None
    """Spoils what the store can make again (its index), while it is closed. False if there is nothing to spoil yet."""
    opened: ExitStack = field(default_factory=ExitStack)

    def open(self) -> KnowledgeStore:
        """The store; closed at the end of the test."""
        return self.opened.enter_context(open_knowledge(self.source, **self.settings))

    @property
    def arguments(self) -> str:
        """How a child process opens the same store: `open_knowledge(source, **settings)` as JSON."""
        return json.dumps([self.source, self.settings])


def _markdown(request: pytest.FixtureRequest, folder: Path) -> Bench:
    root = folder / "notes"

    def damage() -> bool:
        index = root / ".index" / "index.db"
        damaged = index.exists()
        index.write_bytes(b"\0\xff broken" * 1000)
        return damaged

    return Bench("markdown", str(root), files=folder, damage=damage)


def _sqlite(request: pytest.FixtureRequest, folder: Path) -> Bench:
    file = folder / "knowledge.db"

    def damage() -> bool:
        with closing(sqlite3.connect(file)) as database, database:
            return database.execute("UPDATE segments SET body = zeroblob(100)").rowcount > 0

    return Bench("sqlite", str(file), files=folder, damage=damage)


def _postgres(request: pytest.FixtureRequest, folder: Path) -> Bench:
    dsn = request.getfixturevalue("postgres")
    return Bench("postgres", "postgresql:///", {"adapter": "postgres", "dsn": dsn, "collection": "contract"})


def _mcp(request: pytest.FixtureRequest, folder: Path) -> Bench:
    address, pointer = request.getfixturevalue("knowledge_server")
    pointer.write_text(str(folder / "served"), "utf-8")
    return Bench("mcp", address, files=folder)


def _langchain(name: str) -> Callable[[pytest.FixtureRequest, Path], Bench]:
    """A LangChain `VectorStore` in files of its own, with the records in a file beside it."""

    def bench(request: pytest.FixtureRequest, folder: Path) -> Bench:
        file = folder / "side.db"

        def damage() -> bool:
            with closing(sqlite3.connect(file)) as database, database:
                return database.execute("UPDATE segments SET body = zeroblob(100)").rowcount > 0

        settings = {"adapter": "langchain", "use": name, "dsn": str(folder / name)}
        return Bench(name, str(file), settings, files=folder, damage=damage)

    return bench


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, Path]]:
    """One MCP server for many tests: its address, and the file that says which folder it serves now."""
    pointer = folder / "current"
    pointer.write_text(str(folder / "none"), "utf-8")
    port = free_port()
    process = subprocess.Popen([sys.executable, str(SERVER), "switched", str(pointer), str(port)])
    try:
        wait_for(port)
        yield f"http://127.0.0.1:{port}/mcp", pointer
    finally:
        process.terminate()
        process.wait(240)


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def wait_for(port: int) -> None:
    """Until somebody listens."""
    end = time.monotonic() + 240
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 60):
            return
        time.sleep(0.02)
    pytest.fail(f"nobody listens at port {port}")


ADAPTERS: dict[str, Callable[[pytest.FixtureRequest, Path], Bench]] = {
    "markdown": _markdown,
    "sqlite": _sqlite,
    "postgres": _postgres,
    "mcp": _mcp,
    "chroma": _langchain("chroma"),
    "qdrant": _langchain("qdrant"),
}


def bench_of(request: pytest.FixtureRequest, folder: Path) -> Iterator[Bench]:
    """The bench of the adapter that the test is parametrized with; everything opened is closed at the end."""
    bench = ADAPTERS[request.param](request, folder)
    with bench.opened:
        yield bench
