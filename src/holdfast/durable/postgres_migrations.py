"""The tables of each component, brought to their newest form: one transaction for each step, one process at a time.

A table `schemas` has a number for each component: how many of its scripts were run. A database with a higher number than we know is
refused: a newer version wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from holdfast.durable.postgres_address import driver
from holdfast.durable.postgres_faults import postgres_faults
from holdfast.errors import StorageError

if TYPE_CHECKING:
    from holdfast.durable.postgres import Postgres

_LOCK = "migrations"


def scripts(package: str, folder: str = "sql", prefix: str = "") -> list[str]:
    """The scripts `NNN_*.sql` of a package in the order of their numbers; with `prefix`, those named `PREFIX_NNN_*.sql`."""
    start = f"{prefix}_" if prefix else ""
    found = sorted(
        (file for file in (files(package) / folder).iterdir() if file.name.endswith(".sql") and file.name.startswith(start)),
        key=lambda file: file.name,
    )
    return [file.read_text(encoding="utf-8") for file in found]


def queries(package: str, file: str = "sql/queries.sql") -> dict[str, str]:
    """The queries of a package by their names: each begins with a line `-- name: NAME`."""
    text = (files(package) / file).read_text(encoding="utf-8")
    return {name.strip(): query.strip() for name, _, query in (part.partition("\n") for part in text.split("-- name: ")[1:])}


def migrate(database: Postgres, component: str, steps: Sequence[str]) -> None:
    """Run the steps that were not run yet. Processes that come at once wait for each other."""
    found = _number(database, component)
    if found == len(steps):
        return
    _refuse_newer(database, component, found, len(steps))
    from holdfast.durable.postgres import lock_key

    key = lock_key(database.schema, _LOCK)
    with database.transaction(key) as step:
        _make_schema(database, step.connection)
    for number in range(found + 1, len(steps) + 1):
        with database.transaction(key) as step:
            row = step.one("SELECT number FROM schemas WHERE component = %s FOR UPDATE", [component])
            done = int(row[0]) if row else 0
            _refuse_newer(database, component, done, len(steps))
            if done >= number:  # another process was quicker
                continue
            step.execute(steps[number - 1])
            step.execute(
                "INSERT INTO schemas (component, number) VALUES (%s, %s) ON CONFLICT (component) DO UPDATE SET number = excluded.number",
                [component, number],
            )


def _make_schema(database: Postgres, connection: object) -> None:
    psycopg = driver()
    execute = connection.execute  # type: ignore[attr-defined]  # a connection of psycopg, which is loaded only when it is needed
    with postgres_faults(database.address, "write to"):
        known = execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [database.schema]).fetchone()
        if known is None:  # asked first: IF NOT EXISTS needs the right to create even where there is nothing to be done
            execute(psycopg.sql.SQL("CREATE SCHEMA {}").format(psycopg.sql.Identifier(database.schema)))
        there = execute("SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'schemas'", [database.schema]).fetchone()
        if there is None:
            execute("CREATE TABLE schemas (component text PRIMARY KEY, number integer NOT NULL)")


def _number(database: Postgres, component: str) -> int:
    there = database.one("SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'schemas'", [database.schema])
    row = database.one("SELECT number FROM schemas WHERE component = %s", [component]) if there else None
    return int(row[0]) if row else 0


def _refuse_newer(database: Postgres, component: str, found: int, newest: int) -> None:
    if found > newest:
        raise StorageError(
            f"the {component} tables in {database.shown} have schema {found}, and this version knows up to {newest}.",
            path=database.shown,
            operation="open",
            hint="They were written by a newer version: use that one.",
        )
