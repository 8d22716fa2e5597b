"""`open_knowledge`: the knowledge store that a configuration, a path or an address describes. The one place that knows all adapters.

open_knowledge()                              # what config.yaml says, else the file knowledge.db in the base directory
open_knowledge("notes/")                      # a folder of Markdown files
open_knowledge("knowledge.db")                # one SQLite file
open_knowledge("postgresql://host/database")  # PostgreSQL with pgvector
open_knowledge("http://127.0.0.1:8000/mcp")   # an MCP memory server
open_knowledge("side.db", adapter="langchain", use="chroma")   # any LangChain VectorStore; `use` is a short name or a class path
open_knowledge(Chroma(...))                   # one that is open already, to search what is in it; with `path=` to add as well
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack, cast

from pydantic import ValidationError

from holdfast.clock import Clock
from holdfast.config.loading import load_config
from holdfast.config.memory_sections import EmbedderSettings, Knowledge, KnowledgeServer, VectorStore
from holdfast.config.sections import Config
from holdfast.errors import ConfigError, HoldfastError, InputError
from holdfast.events import Bus
from holdfast.knowledge.base import numpy_installed
from holdfast.knowledge.store import KnowledgeStore
from holdfast.redaction import redact_text
from holdfast.search.embedding import Embedder, as_embedder, load_embedder
from holdfast.tokens.counter import TokenCounter
from holdfast.validation import load_dotted, spelled_out

if TYPE_CHECKING:
    from holdfast.knowledge.vector_store import VectorSource


ADAPTERS = {
    "sqlite": "holdfast.knowledge.sqlite:SqliteStore",
    "markdown": "holdfast.knowledge.markdown:MarkdownStore",
    "postgres": "holdfast.knowledge.postgres:PostgresStore",
    "mcp": "holdfast.knowledge.mcp:McpStore",
    "langchain": "holdfast.knowledge.langchain_store:LangChainStore",
}
"""The class of each adapter by its name in `knowledge.adapter`. To add one: a line here, and its name in config's `Knowledge.adapter`."""
_POSTGRES = ("pgvector", "postgres", "postgresql")
_DEFAULT_PATHS = {"sqlite": "knowledge.db", "markdown": "knowledge", "langchain": "knowledge-langchain.db"}


class KnowledgeSettings(TypedDict, total=False):
    """The settings of a knowledge store, as keywords: those of the section `knowledge` in config.yaml."""

    adapter: str
    path: str | None
    dsn: str | None
    collection: str
    server: KnowledgeServer | Mapping[str, Any] | None
    use: str | None
    arguments: dict[str, Any]
    share_text: bool
    rerank: bool
    rerank_model: str | None
    top_k: int


class OpenVectorStore(Protocol):
    """A LangChain `VectorStore` that is open already."""

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Any]: ...


class Embeddings(Protocol):
    """An embedder in LangChain's form."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]: ...

    def embed_query(self, text: str) -> list[float]: ...


@spelled_out(KnowledgeSettings, checked=False)
def open_knowledge(
    source: Config | str | PathLike[str] | OpenVectorStore | None = None,
    *,
    clock: Clock | None = None,
    bus: Bus | None = None,
    counter: TokenCounter | None = None,
    embedder: str | Mapping[str, Any] | EmbedderSettings | Embedder | Embeddings | None = None,
    **settings: Unpack[KnowledgeSettings],
) -> KnowledgeStore:
    """The store of a configuration (the one that `load_config` finds by default), or the one at a path or address.

    Where a configuration is that of a session, and sets `session.vector_store`, that is the store. A LangChain `VectorStore` that is open
    is searched as it is; what is added to it needs a `path` for the records.

    `settings` are those of the section `knowledge` and count before what the configuration says: `adapter`, `path`, `dsn`,
    `collection`, `server`, `use`, `arguments`, `rerank`, `rerank_model`, and so does `embedder`: a name, a mapping with `use`, or an
    object that embeds; `<default>` is what the configuration says. A path is a Markdown folder if it is a folder or has no ending,
    else a SQLite file.
    """
    wanted: dict[str, Any] = {**settings}
    made = None if embedder is None or isinstance(embedder, str | Mapping | EmbedderSettings) else as_embedder(embedder)
    if embedder is not None and made is None:
        wanted["embedder"] = dict(embedder) if isinstance(embedder, Mapping) else embedder
    shared: dict[str, Any] = {"clock": clock, "bus": bus, "counter": counter, "embedder": made}
    if source is None or isinstance(source, Config):
        found = load_config() if source is None else source
        if source is None:
            found.need("knowledge", "session.vector_store")
        config = of_vector_store(found)
        section = config.knowledge
        base: Path | None = config.base
    elif isinstance(source, str | PathLike):
        section, base = Knowledge(), None
        wanted = {**_guess(fspath(source), wanted.get("adapter")), **wanted}
    else:
        return _open_given(source, wanted, shared)
    if wanted:
        section = section.model_copy(update=_checked(wanted))
    return open_section(section, base, **shared)


def _open_given(store: Any, settings: dict[str, Any], shared: dict[str, Any]) -> KnowledgeStore:
    """A vector store that is open already."""
    if not callable(getattr(store, "similarity_search", None)):
        raise InputError(f"{type(store).__name__} is no knowledge store.", hint="Give a path, an address, or a LangChain VectorStore.")
    from holdfast.knowledge.vector_store import VectorSource

    section = Knowledge().model_copy(update=_checked({**settings, "adapter": "langchain"}))
    return _langchain(section, section.path or ":memory:", VectorSource(store=store), shared)


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
    elif wanted.provider in ("sqlite", "markdown"):
        same = section.adapter == wanted.provider
        found |= {"adapter": wanted.provider, "path": wanted.connection or (section.path if same else None)}
    else:  # chroma, qdrant, or a class of the user's choice
        same = section.adapter == "langchain" and section.use == wanted.provider
        found |= {"adapter": "langchain", "use": wanted.provider, "dsn": wanted.connection or (section.dsn if same else None)}
        found |= {} if same else {"arguments": {}, "path": f"knowledge-{_plain_name(wanted.collection)}.db"}
    return section.model_copy(update=found)


def open_section(
    section: Knowledge,
    base: Path | None = None,
    *,
    clock: Clock | None = None,
    bus: Bus | None = None,
    counter: TokenCounter | None = None,
    embedder: Embedder | None = None,
) -> KnowledgeStore:
    """The store that a section `knowledge` describes. Relative paths are below `base`. An `embedder` that is given counts first."""
    if section.adapter not in ADAPTERS:
        return _own(section)
    shared: dict[str, Any] = {"clock": clock, "bus": bus, "counter": counter, "embedder": embedder}
    if section.adapter == "langchain":
        return _open_langchain(section, base, shared)
    adapter: Any = load_dotted(ADAPTERS[section.adapter], "the knowledge adapter", key="knowledge.adapter")
    settings = {**shared, "rerank": section.rerank, "rerank_model": section.rerank_model, "embedder": embedder or _embedder(section)}
    if section.adapter == "mcp":
        if section.server is None:
            raise ConfigError("no MCP server is named.", key="knowledge.server", hint="Give it a `command` or a `url`.")
        del settings["embedder"]
        return cast("KnowledgeStore", adapter(section.server, **settings))
    if section.adapter == "postgres":
        if not section.dsn:
            raise ConfigError("no database is named.", key="knowledge.dsn", hint="Write it like postgresql://user@host/database.")
        return cast("KnowledgeStore", adapter(section.dsn, collection=section.collection, base=base, **settings))
    return cast("KnowledgeStore", adapter(path_of(section, base), **settings))


def _embedder(section: Knowledge) -> str | Embedder | None:
    """The embedder by its name, which the store loads when it needs it; made now where it has settings of its own."""
    wanted = section.embedder
    own = wanted.extras()
    return load_embedder(wanted.use, **own) if own else wanted.use


def _open_langchain(section: Knowledge, base: Path | None, shared: dict[str, Any]) -> KnowledgeStore:
    from holdfast.knowledge.vector_store import VectorSource

    source = VectorSource(section.use or "", section.arguments, section.dsn, (base or Path.cwd()).absolute())
    return _langchain(section, str(path_of(section, base)), source, shared)


def _langchain(section: Knowledge, path: str, source: VectorSource, shared: dict[str, Any]) -> KnowledgeStore:
    if not numpy_installed():
        raise ConfigError("a vector store needs numpy.", key="knowledge.adapter", hint="Install holdfast[vectors].")
    from holdfast.knowledge.langchain_store import LangChainStore

    return LangChainStore(
        path,
        source,
        collection=section.collection if "collection" in section.model_fields_set else None,
        share_text=section.share_text,
        rerank=section.rerank,
        rerank_model=section.rerank_model,
        **{**shared, "embedder": shared["embedder"] or _embedder(section)},
    )


def _own(section: Knowledge) -> KnowledgeStore:
    """A store of the user's own class, made with `arguments`."""
    key = "knowledge.adapter"
    made = load_dotted(section.adapter, "the knowledge store", key=key, hint=f"Adapters are {', '.join(ADAPTERS)}.")
    try:
        store = made(**section.arguments)
    except HoldfastError:
        raise
    except Exception as error:  # a class from outside may raise anything when it is made
        said = redact_text(" ".join(str(error).split()))[:200]
        raise ConfigError(f"the knowledge store {section.adapter} could not be made: {type(error).__name__}: {said}", key=key) from error
    if not isinstance(store, KnowledgeStore):
        wanted = [
            name for name in ("add", "search", "get", "forget", "forget_text", "stats", "records", "close") if not hasattr(store, name)
        ]
        hint = "`holdfast.KnowledgeStore` says what it promises."
        raise ConfigError(f"{section.adapter} is no knowledge store: it lacks {', '.join(wanted) or '`with`'}.", key=key, hint=hint)
    return store


def _plain_name(collection: str) -> str:
    """A collection's name as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", collection)[:60] or "session"


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
    if adapter == "langchain":
        return {"path": str(path.absolute())}
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
        hint = f"Adapters are {', '.join(ADAPTERS)}, or a class path."
        raise InputError(f"these settings of a knowledge store do not fit: {wrong}.", hint=hint) from None
    return {name: getattr(section, name) for name in settings}
