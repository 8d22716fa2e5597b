"""`summarization`, `memory`, `knowledge` and `session`: what is kept in the window, about the user, as records, and of a run."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator

from holdfast.config.migration import IGNORED
from holdfast.config.section import Amount, Count, Misfit, Price, Section, Share, Span, Strange, Text
from holdfast.config.tool_sections import McpConnection
from holdfast.config.triggers import AllOf, Messages, Size, read_size, read_trigger
from holdfast.validation import near_miss

_CLASS_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:|\.)[A-Za-z_]\w*")


def _counter(value: str) -> str:
    if value not in ("exact", "approximate") and not _CLASS_PATH.fullmatch(value):
        raise Misfit("must be exact, approximate, or the path of a class or function such as package.module:Class", found=value)
    return value


Counter = Annotated[Text, AfterValidator(_counter)]


class RecallSettings(Section):
    """Whether what left the window comes back by itself, its share of the window at a time, and how sure it must be (S9)."""

    strange: ClassVar[Strange] = "refused"

    enabled: bool = True
    share: Share = 0.05
    floor: Share = 0.5
    knowledge: bool = False


class Summarization(Section):
    """When the conversation is shortened, by which model, and what stays (S1, S2, S3, S8, S14)."""

    tolerated = IGNORED["summarization"]

    enabled: bool = False
    model_name: Text | None = None
    trigger: Annotated[tuple[Size | AllOf, ...] | None, PlainValidator(read_trigger)] = None
    keep: Annotated[Size, PlainValidator(read_size)] = Messages(20)
    trim_tokens_to_summarize: Count | None = 4000
    summary_prompt: Text | None = None
    summary_role: Literal["human", "system"] = "human"
    token_counter: Counter = "exact"  # noqa: S105 - a counter of tokens, not a token
    recall: RecallSettings = RecallSettings()


class WorkingMemory(Section):
    """What a stage of a workflow may be given, and what leaves first (W8)."""

    max_tokens: Count | None = None
    eviction_policy: Literal["oldest_first", "least_relevant"] = "oldest_first"


class SessionMemory(Section):
    """Where the file of a session goes (W1). `{session_id}` in the path stands for the session's id."""

    persist: bool = True
    path: Text | None = None


class LongTermMemory(Section):
    """What a workflow looks up before it starts (W9)."""

    retrieval_top_k: Amount = 10
    min_trust: Literal["low", "medium", "high"] = "medium"
    rerank: bool = False
    rerank_model: Text | None = None


class Block(Section):
    """A text that the agent edits itself in `mode: tool` (M15)."""

    strange: ClassVar[Strange] = "refused"

    description: Text | None = None
    text: Text = ""
    max_tokens: Count = 500
    read_only: bool = False


class Memory(Section):
    """What is learned about the user, where it is kept, and how much of it is shown to the model (M1, M2, M5, M12, M13, M15)."""

    tolerated = IGNORED["memory"]

    enabled: bool = True
    injection_enabled: bool = True
    storage_path: Text = "memory.json"
    storage_class: Text | None = None
    dsn: Text | None = None
    debounce_seconds: Span = 30.0
    model_name: Text | None = None
    max_facts: Count = 100
    fact_confidence_threshold: Share = 0.7
    max_injection_tokens: Amount = 2000
    injection: Literal["base", "relevant"] = "base"
    inherit: bool = True
    extractor: Literal["auto", "model", "rules"] = "auto"
    mode: Literal["middleware", "tool"] = "middleware"
    token_counter: Counter = "exact"  # noqa: S105 - a counter of tokens, not a token
    blocks: dict[str, Block] = Field(default_factory=dict)
    working_memory: WorkingMemory = WorkingMemory()
    session_memory: SessionMemory = SessionMemory()
    long_term_memory: LongTermMemory = LongTermMemory()


class Limit(Section):
    """How many tokens, and how much money in the currency of `pricing`, may be used (T5). Nothing given means no limit."""

    strange: ClassVar[Strange] = "refused"

    tokens: Count | None = None
    cost: Price | None = None

    def filled(self, other: Limit | Limits) -> Limit:
        """This limit, and where it says nothing what the other says."""
        return Limit(
            tokens=other.tokens if self.tokens is None else self.tokens,
            cost=other.cost if self.cost is None else self.cost,
        )


class Limits(Section):
    """When work stops with everything kept (T5). `tokens` and `cost` alone hold for each run; `run` and `session` say it apart."""

    strange: ClassVar[Strange] = "refused"

    tokens: Count | None = None
    cost: Price | None = None
    run: Limit = Limit()
    session: Limit = Limit()


_PROVIDERS = ("pgvector", "postgres", "postgresql", "sqlite", "markdown", "mcp", "chroma", "qdrant")


def _one_of(names: tuple[str, ...]) -> AfterValidator:
    """One of these words, or the path of a class."""

    def check(value: str) -> str:
        if value not in names and not _CLASS_PATH.fullmatch(value):
            near = near_miss(value, names)
            meant = f" (did you mean {near}?)" if near else ""
            raise Misfit(f"must be one of {', '.join(names)}, or the path of a class such as package.module:Class{meant}", found=value)
        return value

    return AfterValidator(check)


class VectorStore(Section):
    """The knowledge store of one session, in the reference's form (W1). A class path is a LangChain `VectorStore`."""

    strange: ClassVar[Strange] = "refused"
    spellings = MappingProxyType({"dsn": "connection"})

    provider: Annotated[Text, _one_of(_PROVIDERS)] = "sqlite"
    connection: Text | None = None
    collection: Text = "session_memories"


class ShortSession(Section):
    """Sessions of at most `max_stages` stages neither look up nor store long-term memory (W9). Off without a number.

    One whose stages took at most `max_seconds`, all together, looks it up and stores nothing: how long it takes is known at its end.
    """

    strange: ClassVar[Strange] = "refused"

    max_stages: Count | None = None
    max_seconds: Span | None = None


class LongSession(Section):
    """From so many completed stages, or so many seconds of work, on a recovery point is written after every stage (W5)."""

    strange: ClassVar[Strange] = "refused"

    after_stages: Count | None = None
    after_seconds: Span | None = None


_BACKENDS = {"postgres": "postgresql", "filesystem": "file"}
"""Other words for where sessions are kept."""


class Session(Section):
    """Where sessions are kept, and when recovery points are written (W1, W5, W9)."""

    strange: ClassVar[Strange] = "refused"
    spellings = MappingProxyType({"dsn": "connection"})

    id: Text | None = None
    storage_backend: Annotated[
        Literal["file", "postgresql"],
        BeforeValidator(lambda value: _BACKENDS.get(value, value) if isinstance(value, str) else value),
    ] = "file"
    connection: Text | None = None
    path: Text | None = None
    vector_store: VectorStore | None = None
    checkpoint_interval: Count | None = None
    short: ShortSession = ShortSession()
    long: LongSession = LongSession()
    limits: Limit = Limit()
    retain_days: Count | None = None

    def dsn(self) -> str | None:
        """The database of the sessions: `connection`, else that of the vector store when it is a PostgreSQL one."""
        if self.connection is not None:
            return self.connection
        store = self.vector_store
        return store.connection if store is not None and store.provider in ("pgvector", "postgres", "postgresql") else None


class KnowledgeTools(Section):
    """Which tool of the MCP server does what. What is not named is found by its usual names."""

    strange: ClassVar[Strange] = "refused"

    add: Text | None = None
    search: Text | None = None
    get: Text | None = None
    forget: Text | None = None
    list: Text | None = None


class KnowledgeServer(McpConnection):
    """The MCP server that keeps the records: a command to start, or an address."""

    tools: KnowledgeTools = KnowledgeTools()


class EmbedderSettings(Section):
    """The model that turns texts into vectors: `auto`, `minilm`, `none`, `provider:model`, or a class path. Other keys go to it (K3)."""

    strange: ClassVar[Strange] = "passed on"
    shorthand: ClassVar[str | None] = "use"

    use: Text = "auto"


_ADAPTERS = ("sqlite", "markdown", "postgres", "mcp", "langchain")


class Knowledge(Section):
    """Where records are kept and how they are searched (K2, K3). `use` and `arguments` make a LangChain `VectorStore`, or an own class."""

    strange: ClassVar[Strange] = "refused"
    spellings = MappingProxyType({"connection": "dsn"})

    adapter: Annotated[
        Text,
        BeforeValidator(lambda value: "postgres" if value in ("postgresql", "pgvector") else value),
        _one_of(_ADAPTERS),
    ] = "sqlite"
    use: Text | None = None
    arguments: dict[str, Any] = Field(default_factory=dict)
    share_text: bool = False
    path: Text | None = None
    dsn: Text | None = None
    collection: Text = "knowledge"
    server: KnowledgeServer | None = None
    embedder: Annotated[EmbedderSettings, BeforeValidator(lambda value: {"use": value} if isinstance(value, str) else value)] = (
        EmbedderSettings()
    )
    rerank: bool = False
    rerank_model: Text | None = None
    top_k: Count = 10
