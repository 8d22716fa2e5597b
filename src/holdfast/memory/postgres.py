"""Memory in PostgreSQL, shared by many machines (M5, M6). Tables of earlier versions are moved behind the storage seam when first met."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.durable.postgres import Postgres, scripts
from holdfast.memory.layout import Layout
from holdfast.memory.storage import DocumentStorage
from holdfast.storage.postgres import PostgresBackend


class PostgresMemoryStorage(DocumentStorage):
    """`database` is an address, or a `Postgres` that is open already; it is reached when it is first needed.

    The queue of conversations stays on the machine that heard them.
    """

    def __init__(self, layout: Layout | str | Path, database: str | Postgres, *, schema: str = "holdfast", **parts: Any) -> None:
        where = layout if isinstance(layout, Layout) else Layout.below(layout)
        given = {"clock": parts.get("clock"), "lock_timeout": parts.get("timeout")}
        backend = _Upgraded(database, schema=schema, base=where.base, **{name: part for name, part in given.items() if part is not None})
        super().__init__(where, backend, kind="postgres", **parts)


class _Upgraded(PostgresBackend):
    """A backend over a database in which the memory tables of earlier versions are no more."""

    _moved = False

    @property
    def database(self) -> Postgres:
        opened = super().database
        if not self._moved:
            opened.migrate("memory", scripts("holdfast.memory"))
            self._moved = True
        return opened
