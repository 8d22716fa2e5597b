"""The session store that a configuration describes: files, or PostgreSQL (W1, W16)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.clock import Clock
from holdfast.durable.disk import REAL, Disk
from holdfast.errors import ConfigError
from holdfast.session.files import FileSessionStore

if TYPE_CHECKING:
    from holdfast.config.sections import Config
    from holdfast.session.store import SessionStore


def session_template(config: Config) -> str | None:
    """The template of session files that the configuration gives, made absolute; None where it gives none."""
    path = config.memory.session_memory.path
    return None if path is None else str(config.base / path)


def open_sessions(config: Config, *, disk: Disk = REAL, clock: Clock | None = None) -> SessionStore:
    """The store of `session.storage_backend`. Files lie in `session.path`, else in `sessions/` of the base directory."""
    return store_of(
        config.session.storage_backend,
        folder=config.base / (config.session.path or "sessions"),
        path=session_template(config),
        connection=config.session.dsn(),
        export=config.memory.session_memory.persist,
        disk=disk,
        clock=clock,
    )


def store_of(
    backend: str, *, folder: Path, path: str | None, connection: str | None, export: bool, disk: Disk = REAL, clock: Clock | None = None
) -> SessionStore:
    """Files below `folder` (the session file by the template `path`, where there is one), or PostgreSQL with that file as an export.

    ConfigError if PostgreSQL is asked for and no connection is given.
    """
    if backend == "file":
        return FileSessionStore(folder, path=path, disk=disk, clock=clock)
    if connection is None:
        raise ConfigError(
            "PostgreSQL is to keep the sessions, and no connection is given.",
            key="session.connection",
            hint="Set it, or vector_store.connection, to a postgresql:// address.",
        )
    from holdfast.session.postgres import PostgresSessionStore

    return PostgresSessionStore(connection, folder=folder, path=path if export else None, clock=clock)
