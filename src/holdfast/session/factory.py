"""The session store that a configuration describes: in files, or in PostgreSQL (W1, W16)."""

from __future__ import annotations

import os
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from holdfast.clock import Clock
from holdfast.durable.disk import REAL, Disk
from holdfast.durable.postgres import Postgres, lock_key
from holdfast.durable.postgres_connection import driver
from holdfast.errors import ConfigError
from holdfast.session.store import SessionStore
from holdfast.session.stored import Views
from holdfast.storage.files import FileBackend
from holdfast.storage.postgres import PostgresBackend


def store_of(
    backend: str, *, folder: Path, path: str | None, connection: str | None, export: bool, disk: Disk = REAL, clock: Clock | None = None
) -> SessionStore:
    """Files below `folder`, or PostgreSQL; the readable file of each session by the template `path`, where there is one.

    ConfigError if PostgreSQL is asked for and no connection is given.
    """
    if backend == "file":
        return file_sessions(folder, path=path, disk=disk, clock=clock)
    if connection is None:
        raise ConfigError(
            "PostgreSQL is to keep the sessions, and no connection is given.",
            key="session.connection",
            hint="Set it, or vector_store.connection, to a postgresql:// address.",
        )
    return postgres_sessions(connection, folder=folder, path=path if export else None, disk=disk, clock=clock)


def file_sessions(
    folder: str | PathLike[str], *, path: str | None = None, disk: Disk = REAL, clock: Clock | None = None, **settings: Any
) -> SessionStore:
    """Sessions in a folder. `path` is a template with `{session_id}` that puts the JSON files elsewhere; `settings` as in `FileBackend`."""
    backend, name = _files(folder, path, disk=disk, clock=clock, **settings)
    return SessionStore(backend, views=Views(backend, name), prefix=name, clock=clock)


def postgres_sessions(
    database: str | Postgres,
    *,
    folder: str | PathLike[str] = "sessions",
    path: str | None = None,
    disk: Disk = REAL,
    clock: Clock | None = None,
    **settings: Any,
) -> SessionStore:
    """Sessions in a database. With `path`, a template with `{session_id}`, the readable files are there, the Markdown below `folder`.

    `settings` are those of `PostgresBackend`.
    """
    files, name = _files(folder, path, disk=disk, clock=clock)
    base = Path(folder).parent  # the base directory, in which `local:` keeps its server
    backend = SessionBackend(database, prefix=name, base=base, clock=clock, **settings)
    return SessionStore(backend, views=Views(files, name) if path is not None else None, prefix=name, clock=clock)


def _files(folder: str | PathLike[str], path: str | None, **settings: Any) -> tuple[FileBackend, str]:
    """Files in a folder, the JSON of sessions elsewhere if a template says so; and the name of the folder."""
    whole = Path(os.path.abspath(os.path.expanduser(folder)))  # noqa: PTH100, PTH111 - links in it stay as they are
    moved = {}
    if path is not None:
        if path.count("{session_id}") != 1:
            raise ConfigError(
                f"the path of session files is {path!r}, and needs {{session_id}} in it once.",
                key="memory.session_memory.path",
                hint="For example sessions/{session_id}.json.",
            )
        moved = {f"{whole.name}/{{session_id}}.json": str(whole / path)}
    return FileBackend(whole.parent, places=moved, **settings), whole.name


_OLD = 1
"""The number of the tables that this version moves."""


class SessionBackend(PostgresBackend):
    """A backend in PostgreSQL in which the sessions of older versions are found below `prefix`."""

    def __init__(self, database: str | Postgres, *, prefix: str = "sessions", **settings: Any) -> None:
        super().__init__(database, **settings)
        self._prefix = prefix
        self._is_moved = False

    @property
    def database(self) -> Postgres:
        """The database, with its tables in their newest form and the rows of older versions moved."""
        opened = super().database
        if not self._is_moved:
            move_rows(opened, self._prefix)
            self._is_moved = True
        return opened


def move_rows(database: Postgres, prefix: str) -> None:
    """Move what the first version kept in tables of its own. Harmless where there is nothing of it."""
    if _number(database) != _OLD:
        return
    script = (files("holdfast.session") / "sql" / "move_rows.sql").read_text(encoding="utf-8")
    with database.transaction(lock_key(database.schema, "migrations")) as step:
        row = step.one("SELECT number FROM schemas WHERE component = 'session' FOR UPDATE")
        if row is not None and int(row[0]) == _OLD:  # otherwise another process was quicker
            step.execute(script.replace("{prefix}", driver().sql.Literal(prefix).as_string(step.connection)))


def _number(database: Postgres) -> int:
    row = database.one("SELECT number FROM schemas WHERE component = 'session'")
    return int(row[0]) if row is not None else 0
