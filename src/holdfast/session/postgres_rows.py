"""Sessions in a database that an older version wrote: its rows are moved to the storage seam, once, in one transaction (O7)."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from holdfast.durable.postgres import Postgres, lock_key
from holdfast.durable.postgres_connection import driver
from holdfast.storage.postgres import PostgresBackend

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
