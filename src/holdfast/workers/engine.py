"""The engine under the queue, procrastinate: what it is called, and its tables, made and upgraded by themselves (W17, O7).

Its tables are in our schema, beside those of the sessions. A step of an upgrade that older workers survive is carried out at once; one that
they do not waits until the last of them is gone, so that machines are upgraded one after the other while the others work.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from holdfast.durable.postgres import Postgres, Transaction, lock_key, queries, scripts
from holdfast.errors import ExtraMissing

QUEUE = "sessions"
TASK = "holdfast:advance"


def engine() -> Any:
    """The package. ExtraMissing, with the line to type, where it is not installed."""
    try:
        return import_module("procrastinate")
    except ImportError as error:
        raise ExtraMissing("procrastinate", "workers") from error


def engine_version() -> str:
    return version("procrastinate")


def prepare(database: Postgres, *, folder: Path | None = None) -> None:
    """Make the tables, or bring them to their newest form. Harmless when done twice, and by several processes at once.

    `folder` has the steps of the engine's tables, where they are not those of the installed one.
    """
    package = engine()
    database.migrate("workers", scripts("holdfast.workers", prefix="workers"))
    folder = folder or Path(package.schema.SchemaManager.get_migrations_path())
    steps = sorted(path.name for path in folder.glob("*.sql"))
    known = {name for (name,) in database.rows("SELECT name FROM queue_engine_steps")}
    if known.issuperset(steps):
        return
    sql = queries("holdfast.workers")
    with database.transaction(lock_key(database.schema, "migrations")) as step:
        known = {name for (name,) in step.rows("SELECT name FROM queue_engine_steps")}
        if step.one("SELECT to_regclass('procrastinate_jobs')") == (None,):
            step.execute(package.schema.SchemaManager.get_schema())
            _note(step, steps)
            return
        living = [_numbers(found) for (found,) in step.rows(sql["living_engines"])]
        for name in steps:
            if name not in known and not (_is_late(name) and any(one < _numbers(name) for one in living)):
                step.execute((folder / name).read_text(encoding="utf-8"))
                _note(step, [name])


def _note(step: Transaction, names: Sequence[str]) -> None:
    step.many("INSERT INTO queue_engine_steps (name) VALUES (%s) ON CONFLICT DO NOTHING", [(name,) for name in names])


def _is_late(name: str) -> bool:
    """Whether a step is one that workers of an older version do not survive: procrastinate calls them `post`."""
    return "_post_" in name


def _numbers(text: str) -> tuple[int, ...]:
    """The first three numbers of a version, or of the name of a step."""
    found = [int(number) for number in re.findall(r"\d+", text)[:3]]
    return tuple(found + [0] * (3 - len(found)))
