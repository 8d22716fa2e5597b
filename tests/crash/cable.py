"""A line to PostgreSQL that is cut at the worst moment."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg


@contextmanager
def cut_at_commit(dsn: str, *, answered: bool) -> Iterator[Cable]:
    """A way to the server that is cut at the first commit."""
    folder = Path(f"/tmp/hf-{os.getpid()}-{os.urandom(4).hex()}")  # noqa: S108 - the path of a socket has a hundred characters at most
    folder.mkdir()
    cable = Cable(dsn, folder, answered=answered)
    try:
        yield cable
    finally:
        cable.close()
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


class Cable:
    """Stands between us and the server, and is cut at the commit: before the server hears it, or after it has answered."""

    def __init__(self, dsn: str, folder: Path, *, answered: bool) -> None:
        with psycopg.connect(dsn) as connection:
            info = connection.info
            self._server = f"{info.host}/.s.PGSQL.{info.port}"
            self.dsn = f"host={folder} port={info.port} user={info.user} dbname={info.dbname}"
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(f"{folder}/.s.PGSQL.{info.port}")
        self._answered = answered
        self._silent = False
        self._heard = threading.Event()
        self.cuts = 0
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._server)
        back = threading.Thread(target=self._back, args=(server, client), daemon=True)
        back.start()
        with client, server:
            while data := client.recv(1 << 16):
                if b"COMMIT\0" in data and self.cuts == 0:
                    self.cuts += 1
                    if self._answered:
                        self._silent = True
                        server.sendall(data)
                        self._heard.wait(240)
                    for end in (client, server):
                        with suppress(OSError):
                            end.shutdown(socket.SHUT_RDWR)
                    return
                server.sendall(data)

    def _back(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if self._silent:
                    self._silent = False
                    self._heard.set()
                    return
                client.sendall(data)
