"""The session store that a configuration describes: files, or PostgreSQL (W1, W16)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.clock import Clock
from holdfast.durable.disk import REAL, Disk
from holdfast.errors import ConfigError
from holdfast.session.files import FileSessionStore

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.session.store import SessionStore

__all__ = ["open_sessions", "session_template"]


def session_template(config: Config) -> str | None:
    """The template of session files that the configuration gives, made absolute; None where it gives none."""
    path = config.memory.session_memory.path
    return None if path is None else str(config.base / path)


def open_sessions(config: Config, *, disk: Disk = REAL, clock: Clock | None = None) -> SessionStore:
    """The store of `session.storage_backend`. Files lie in `session.path`, else in `sessions/` of the base directory.

    ConfigError if PostgreSQL is asked for and no connection is given.
    """
    folder = config.base / (config.session.path or "sessions")
    if config.session.storage_backend == "file":
        return FileSessionStore(folder, path=session_template(config), disk=disk, clock=clock)
    dsn = config.session.dsn()
    if dsn is None:
        raise ConfigError(
            "PostgreSQL is to keep the sessions, and no connection is given.",
            key="session.connection",
            hint="Set it, or vector_store.connection, to a postgresql:// address.",
        )
    from holdfast.session.postgres import PostgresSessionStore

    return PostgresSessionStore(dsn, folder=folder, path=session_template(config), clock=clock)
