"""The settings of one session, gathered from where they may be said (W1), and the stores that they ask for (W9, W16).

They may be said in `config.yaml`, in the workflow file, and in a session configuration.
What is said nearer to the session wins, key by key. A session keeps the settings that it was started with, without secrets, and a resumed
one goes by them unless it is given others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from holdfast.clock import Clock
from holdfast.config.loading import config_from_values, read_config, read_source
from holdfast.config.sections import Config
from holdfast.durable.disk import REAL, Disk
from holdfast.durable.postgres import Postgres, lock_key
from holdfast.durable.postgres_connection import driver
from holdfast.errors import ConfigError
from holdfast.events import Bus
from holdfast.knowledge.records import TRUST_LEVELS, Trust
from holdfast.redaction import redact
from holdfast.session.state import Session
from holdfast.session.store import SessionStore
from holdfast.session.stored import Views
from holdfast.storage.files import FileBackend
from holdfast.storage.postgres_backend import PostgresBackend
from holdfast.tokens.accounts import Limits
from holdfast.workflow.definition import Workflow
from holdfast.workflow.stage_context import EvictionPolicy

if TYPE_CHECKING:
    from holdfast.knowledge.store import KnowledgeStore

_NO_LIMITS = Limits()


@dataclass(frozen=True)
class VectorStoreSettings:
    """The knowledge store that a session asks for (W1)."""

    provider: str
    connection: str | None
    collection: str


@dataclass(frozen=True)
class RecoveryPoints:
    """When a recovery point is written (W5): every `interval` completed stages, and after each one once a session is long."""

    interval: int = 1
    after_stages: int | None = None
    after_seconds: float | None = None

    def due(self, session: Session, before: int) -> str | None:
        """The name of the one that is due, where `before` stages were completed when it was last asked; None if none is."""
        done = len(session.completed_stages)
        if done <= before or not (done // self.interval > before // self.interval or self._is_long(session, done)):
            return None
        return f"{done:03d}-{session.completed_stages[-1]}"

    def _is_long(self, session: Session, done: int) -> bool:
        if self.after_stages is not None and done >= self.after_stages:
            return True
        return self.after_seconds is not None and seconds_worked(session) >= self.after_seconds


def seconds_worked(session: Session) -> float:
    """The time that the stages of a session took, all together: what it waited for a person, or lay there, is not in it."""
    return sum(record.seconds or 0.0 for record in session.stages.values())


@dataclass(frozen=True)
class RunSettings:
    """What a run goes by."""

    session_id: str | None = None
    backend: Literal["file", "postgresql"] = "file"
    connection: str | None = None
    folder: str | None = None
    """Where the files of sessions are, when not in `sessions/` of the base directory."""
    path: str | None = None
    """The template of the session file, with `{session_id}`."""
    persist: bool = True
    checkpoint_interval: int | None = None
    max_tokens: int | None = None
    eviction_policy: EvictionPolicy = "oldest_first"
    top_k: int = 10
    min_trust: Trust = "medium"
    """What is trusted less is in no prompt of a stage."""
    rerank: bool = False
    rerank_model: str | None = None
    short_max_stages: int | None = None
    short_max_seconds: float | None = None
    long_after_stages: int | None = None
    long_after_seconds: float | None = None
    vector_store: VectorStoreSettings | None = None
    session_limits: Limits = _NO_LIMITS
    run_limits: Limits = _NO_LIMITS
    model: str | None = None

    @property
    def recovery_points(self) -> RecoveryPoints:
        return RecoveryPoints(self.checkpoint_interval or 1, self.long_after_stages, self.long_after_seconds)

    def kept(self) -> dict[str, Any]:
        """The settings as the session file keeps them, in the form of a session configuration and without secrets."""
        store = {"vector_store": asdict(self.vector_store)} if self.vector_store else {}
        said = {
            "session": {
                "storage_backend": self.backend,
                "checkpoint_interval": self.checkpoint_interval,
                "short": {"max_stages": self.short_max_stages, "max_seconds": self.short_max_seconds},
                "long": {"after_stages": self.long_after_stages, "after_seconds": self.long_after_seconds},
                **store,
            },
            "memory": {
                "working_memory": {"max_tokens": self.max_tokens, "eviction_policy": self.eviction_policy},
                "session_memory": {"persist": self.persist, "path": self.path},
                "long_term_memory": {
                    "retrieval_top_k": self.top_k,
                    "min_trust": self.min_trust,
                    "rerank": self.rerank,
                    "rerank_model": self.rerank_model,
                },
            },
            "limits": {"run": _limit(self.run_limits), "session": _limit(self.session_limits)},
            "model": self.model,
        }
        clean: dict[str, Any] = redact(_without_nothing(said))
        return clean

    def as_started(self, kept: Mapping[str, Any]) -> RunSettings:
        """These settings with what a session kept in their place. Where its files are stays as it is now, and so do secrets."""
        working, long_term = _at(kept, "memory", "working_memory"), _at(kept, "memory", "long_term_memory")
        found: dict[str, Any] = {
            "checkpoint_interval": _whole(_at(kept, "session").get("checkpoint_interval")),
            "short_max_stages": _whole(_at(kept, "session", "short").get("max_stages")),
            "short_max_seconds": _seconds(_at(kept, "session", "short").get("max_seconds")),
            "long_after_stages": _whole(_at(kept, "session", "long").get("after_stages")),
            "long_after_seconds": _seconds(_at(kept, "session", "long").get("after_seconds")),
            "max_tokens": _whole(working.get("max_tokens")),
            "eviction_policy": working.get("eviction_policy") if working.get("eviction_policy") in get_args(EvictionPolicy) else None,
            "top_k": _whole(long_term.get("retrieval_top_k")),
            "min_trust": long_term.get("min_trust") if long_term.get("min_trust") in TRUST_LEVELS else None,
            "model": kept.get("model") if isinstance(kept.get("model"), str) else None,
        }
        return replace(self, **{name: value for name, value in found.items() if value is not None})


def workflow_config(workflow: Workflow) -> Config | None:
    """The settings that stand in the workflow file, checked; None if there are none. Raises ConfigError with their lines."""
    if not workflow.sections:
        return None
    if workflow.file is not None:
        return read_config(read_source(Path(workflow.file)), file=workflow.file)  # once more, so that errors have their lines
    return config_from_values(workflow.sections)


def settings_of(configs: Sequence[Config | None], kept: Mapping[str, Any] | None = None) -> RunSettings:
    """The settings that these say, the later ones winning. `kept` are those of a session that goes on: only the last one wins over them."""
    settings = RunSettings()
    for number, config in enumerate(configs):
        if number == len(configs) - 1 and kept is not None:
            settings = settings.as_started(kept)
        if config is not None and config.model_fields_set:
            settings = replace(settings, **_said(config))
    return settings


def _said(config: Config) -> dict[str, Any]:
    """What a configuration says itself, without its defaults."""
    session, memory = config.session, config.memory
    working, kept, long_term = memory.working_memory, memory.session_memory, memory.long_term_memory
    found: dict[str, Any] = {}
    for section, key, name in (
        (session, "id", "session_id"),
        (session, "storage_backend", "backend"),
        (session, "path", "folder"),
        (session, "checkpoint_interval", "checkpoint_interval"),
        (session.short, "max_stages", "short_max_stages"),
        (session.short, "max_seconds", "short_max_seconds"),
        (session.long, "after_stages", "long_after_stages"),
        (session.long, "after_seconds", "long_after_seconds"),
        (working, "max_tokens", "max_tokens"),
        (working, "eviction_policy", "eviction_policy"),
        (kept, "persist", "persist"),
        (kept, "path", "path"),
        (long_term, "retrieval_top_k", "top_k"),
        (long_term, "min_trust", "min_trust"),
        (long_term, "rerank", "rerank"),
        (long_term, "rerank_model", "rerank_model"),
    ):
        if key in section.model_fields_set:
            found[name] = getattr(section, key)
    if session.vector_store is not None:
        store = session.vector_store
        found["vector_store"] = VectorStoreSettings(store.provider, store.connection, store.collection)
    if session.dsn() is not None:
        found["connection"] = session.dsn()
    for name, limit in (("run_limits", config.run_limit()), ("session_limits", config.session_limit())):
        if limit.tokens is not None or limit.cost is not None:
            found[name] = Limits.of(limit)
    return found


def _limit(limits: Limits) -> dict[str, Any]:
    return {"tokens": limits.tokens, "cost": float(limits.cost) if limits.cost is not None else None}


def _without_nothing(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    found = {key: _without_nothing(item) for key, item in value.items()}
    return {key: item for key, item in found.items() if item is not None and item != {}}


def _at(value: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    for key in path:
        inner = value.get(key)
        value = inner if isinstance(inner, Mapping) else {}
    return value


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _seconds(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def open_session_store(settings: RunSettings, config: Config, *, disk: Disk, clock: Clock) -> SessionStore:
    """The store that keeps the session: files, or PostgreSQL with the readable file where a path is given.

    ConfigError if PostgreSQL is asked for and no connection is given.
    """
    folder = config.base / (settings.folder or "sessions")
    template = str(config.base / settings.path) if settings.path is not None else None
    if settings.backend == "file":
        return file_sessions(folder, path=template, disk=disk, clock=clock)
    if settings.connection is None:
        raise ConfigError(
            "PostgreSQL is to keep the sessions, and no connection is given.",
            key="session.connection",
            hint="Set it, or vector_store.connection, to a postgresql:// address.",
        )
    if template is None and settings.folder is not None:
        template = str(folder / "{session_id}.json")  # a folder was named: the files in it are an export (W1)
    return postgres_sessions(settings.connection, folder=folder, path=template if settings.persist else None, disk=disk, clock=clock)


def open_knowledge_store(
    settings: RunSettings,
    configs: Sequence[Config | None],
    main: Callable[[], Config],
    *,
    usual: bool,
    clock: Clock,
    bus: Bus,
) -> KnowledgeStore | None:
    """The knowledge store that the settings name: `session.vector_store`, else the section `knowledge`.

    Where they name none it is None, or with `usual` the one of the `main` configuration. Files are in that one's base directory.
    """
    from holdfast.knowledge.adapters import of_vector_store, open_section

    said = [config for config in configs if config is not None]
    chosen = next((config for config in reversed(said) if config.session.vector_store is not None), None)
    if chosen is not None:
        section = of_vector_store(chosen).knowledge
    else:
        chosen = next((config for config in reversed(said) if "knowledge" in config.model_fields_set), None)
        if chosen is None and not usual:
            return None
        section = (chosen or main()).knowledge
    if settings.rerank:
        section = section.model_copy(update={"rerank": True, "rerank_model": settings.rerank_model or section.rerank_model})
    return open_section(section, main().base, clock=clock, bus=bus)


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
