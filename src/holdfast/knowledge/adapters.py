"""`open_knowledge`: the knowledge store that a configuration, a path or an address describes. The one place that knows all adapters.

open_knowledge()                              # what config.yaml says, else the file knowledge.db in the base directory
open_knowledge("notes/")                      # a folder of Markdown files
open_knowledge("knowledge.db")                # one SQLite file
open_knowledge("postgresql://host/database")  # PostgreSQL with pgvector
open_knowledge("http://127.0.0.1:8000/mcp")   # an MCP memory server
"""

from __future__ import annotations

import difflib
from os import PathLike, fspath
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from holdfast.clock import Clock
from holdfast.config.loading import load_config
from holdfast.config.memory_sections import Knowledge, KnowledgeServer, VectorStore
from holdfast.config.sections import Config
from holdfast.errors import ConfigError, InputError
from holdfast.events import Bus
from holdfast.imports import load_dotted
from holdfast.knowledge.store import KnowledgeStore
from holdfast.tokens.counter import TokenCounter

ADAPTERS = {
    "sqlite": "holdfast.knowledge.sqlite:SqliteStore",
    "markdown": "holdfast.knowledge.markdown:MarkdownStore",
    "postgres": "holdfast.knowledge.postgres:PostgresStore",
    "mcp": "holdfast.knowledge.mcp:McpStore",
}
"""The class of each adapter by its name in `knowledge.adapter`. To add one: a line here, and its name in config's `Knowledge.adapter`."""
_POSTGRES = ("pgvector", "postgres", "postgresql")
_DEFAULT_PATHS = {"sqlite": "knowledge.db", "markdown": "knowledge"}


def open_knowledge(
    source: Config | str | PathLike[str] | None = None,
    *,
    clock: Clock | None = None,
    bus: Bus | None = None,
    counter: TokenCounter | None = None,
    **settings: Any,
) -> KnowledgeStore:
    """The store of a configuration (the one that `load_config` finds by default), or the one at a path or address.

    Where a configuration is that of a session, and sets `session.vector_store`, that is the store.

    `settings` are those of the section `knowledge` and count before what the configuration says: `adapter`, `path`, `dsn`,
    `collection`, `server`, `embedder`, `rerank`, `rerank_model`. A path is a Markdown folder if it is a folder or has no ending, else a
    SQLite file.
    """
    if source is None or isinstance(source, Config):
        config = of_vector_store(load_config() if source is None else source)
        section = config.knowledge
        base: Path | None = config.base
    else:
        section, base = Knowledge(), None
        settings = {**_guess(fspath(source), settings.get("adapter")), **settings}
    if settings:
        section = section.model_copy(update=_checked(settings))
    return open_section(section, base, clock=clock, bus=bus, counter=counter)


def of_vector_store(config: Config) -> Config:
    """The configuration with the knowledge store that `session.vector_store` sets for this session, if it sets one (W1)."""
    wanted = config.session.vector_store
    if wanted is None:
        return config
    return config.model_copy(update={"knowledge": _section_of(wanted, config.knowledge)})


def _section_of(wanted: VectorStore, section: Knowledge) -> Knowledge:
    found: dict[str, Any] = {"collection": wanted.collection}
    if wanted.provider in _POSTGRES:
        found |= {"adapter": "postgres", "dsn": wanted.connection or section.dsn}
    elif wanted.provider == "mcp":
        server = KnowledgeServer(url=wanted.connection) if wanted.connection else section.server
        found |= {"adapter": "mcp", "server": server}
    else:
        same = section.adapter == wanted.provider
        found |= {"adapter": wanted.provider, "path": wanted.connection or (section.path if same else None)}
    return section.model_copy(update=found)


def open_section(
    section: Knowledge,
    base: Path | None = None,
    *,
    clock: Clock | None = None,
    bus: Bus | None = None,
    counter: TokenCounter | None = None,
) -> KnowledgeStore:
    """The store that a section `knowledge` describes. Relative paths are below `base`."""
    adapter: Any = load_dotted(ADAPTERS[section.adapter], "the knowledge adapter", key="knowledge.adapter")
    settings: dict[str, Any] = {"clock": clock, "bus": bus, "counter": counter}
    settings |= {"rerank": section.rerank, "rerank_model": section.rerank_model}
    if section.adapter == "mcp":
        if section.server is None:
            raise ConfigError("no MCP server is named.", key="knowledge.server", hint="Give it a `command` or a `url`.")
        return cast("KnowledgeStore", adapter(section.server, **settings))
    settings["embedder"] = section.embedder
    if section.adapter == "postgres":
        if not section.dsn:
            raise ConfigError("no database is named.", key="knowledge.dsn", hint="Write it like postgresql://user@host/database.")
        return cast("KnowledgeStore", adapter(section.dsn, collection=section.collection, base=base, **settings))
    return cast("KnowledgeStore", adapter(path_of(section, base), **settings))


def path_of(section: Knowledge, base: Path | None) -> Path:
    """Where the files of a SQLite or Markdown store are."""
    given = Path(section.path).expanduser() if section.path else Path(_DEFAULT_PATHS[section.adapter])
    return given if given.is_absolute() else (base or Path.cwd()) / given


def _guess(source: str, adapter: str | None) -> dict[str, Any]:
    """What a path or an address alone means."""
    if not source:
        raise InputError("the path of the knowledge store is empty.")
    scheme = source.partition("://")[0].lower() if "://" in source else ""
    if scheme in ("postgres", "postgresql") or adapter == "postgres" or source.startswith("local:"):
        return {"adapter": "postgres", "dsn": source}
    if scheme in ("http", "https"):
        return {"adapter": "mcp", "server": KnowledgeServer(url=source)}
    if scheme:
        raise InputError(f"a knowledge store cannot be opened by {scheme}://.", hint="Use a path, postgresql:// or http(s)://.")
    path = Path(source).expanduser()
    folder = path.is_dir() or (not path.exists() and not path.suffix)
    return {"adapter": adapter or ("markdown" if folder else "sqlite"), "path": str(path.absolute())}


def _checked(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings as the section takes them. InputError for one that is not known or does not fit."""
    for name in settings:
        if name not in Knowledge.model_fields:
            near = difflib.get_close_matches(name, list(Knowledge.model_fields), n=1)
            raise InputError(f"a knowledge store has no setting {name!r}.", hint=f"Did you mean {near[0]!r}?" if near else None)
    try:
        section = Knowledge(**settings)
    except ValidationError as error:
        wrong = ", ".join(
            f"{'.'.join(map(str, one['loc']))} ({one['msg']})" for one in error.errors(include_input=False, include_url=False)
        )
        raise InputError(f"these settings of a knowledge store do not fit: {wrong}.", hint=f"Adapters are {', '.join(ADAPTERS)}.") from None
    return {name: getattr(section, name) for name in settings}
