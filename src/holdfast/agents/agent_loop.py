"""The loop of an agent: LangChain's `create_agent` with our middlewares in their order, and the parts that all agents share (A1, S16).

`open_parts(config)` makes the parts for a program that wants an agent and nothing else; `Harness` gives it those that it has opened.
`assemble` makes an agent out of them and a blueprint; its list `chain` is the order, outermost first: thread data, the sandbox's own, tools
(broken calls, approval, output limit, loop guard, errors), todos, memory, retries, accounts, summarization, title, clarification, whole
calls, spans. The last four change nothing in a request: what the summarization checks is really sent, right before the model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from langchain.agents import create_agent

from holdfast.agents.checkpoints import Checkpoints, open_checkpoints
from holdfast.agents.middleware.base import LeadState, PlainTextMiddleware, ThreadDataMiddleware
from holdfast.agents.middleware.broken_calls import BrokenCallsMiddleware, WholeCallsMiddleware
from holdfast.agents.middleware.memory import MemoryMiddleware, open_memory
from holdfast.agents.middleware.model_calls import (
    AccountingMiddleware,
    PlainAnswersMiddleware,
    RepetitionMiddleware,
    RunAccounts,
    TitleMiddleware,
    Titles,
    TracingMiddleware,
    middlewares,
    model_middlewares,
)
from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.agents.middleware.tool_calls import (
    ApprovalMiddleware,
    ClarificationMiddleware,
    DeniedToolsMiddleware,
    LoopGuardMiddleware,
    TodoMiddleware,
    ToolErrorMiddleware,
    ToolOutputMiddleware,
)
from holdfast.agents.threads import Threads, known_in
from holdfast.agents.tools.mcp_tools import McpServers, open_mcp
from holdfast.agents.turn import LoopThread
from holdfast.clock import Clock, IdSource, RandomIds, SystemClock
from holdfast.context.archive import FileArchive
from holdfast.context.call_log import CallLog
from holdfast.context.compaction import FileOutputs
from holdfast.durable.disk import REAL, Disk, make_folders
from holdfast.errors import HoldfastError
from holdfast.events import Bus
from holdfast.events import bus as process_bus
from holdfast.models.abilities import abilities_of, require
from holdfast.models.factory import create_chat_model, summary_model
from holdfast.tokens.windows import find_window

if TYPE_CHECKING:
    from langchain.agents.middleware.types import AgentMiddleware
    from langchain_core.language_models import BaseChatModel
    from langchain_core.tools import BaseTool

    from holdfast.config.sections import Config, ModelConfig
    from holdfast.context.recall import LongTerm
    from holdfast.knowledge.store import KnowledgeStore
    from holdfast.memory.service import MemoryService

_COUNTED = 2_000
"""Messages whose tokens are remembered; the most that a thread should have in its window. A process that talks for days stays small."""


@dataclass(frozen=True)
class Blueprint:
    """One agent to be made."""

    name: str
    prompt: str
    model: BaseChatModel
    tools: Sequence[BaseTool] = ()
    model_name: str | None = None
    """Its name in the configuration, for prices, retries and fallbacks; None for a model that was given."""
    thinking: bool = False
    memory_of: str | None = None
    """The agent whose memory it reads; None is the global memory."""
    memory: bool = True
    lead: bool = True
    """False for a sub-agent: it learns nothing about the user, asks nobody, and has no title."""
    extra: Sequence[AgentMiddleware[Any, Any, Any]] = ()
    """Middlewares of the sandbox and of the caller, after the thread data."""


@dataclass(frozen=True)
class Assembled:
    """An agent with the middlewares that somebody may want to talk to."""

    graph: Any
    summarization: SummarizationMiddleware
    memory: MemoryMiddleware | None
    middlewares: tuple[AgentMiddleware[Any, Any, Any], ...]


def assemble(parts: Parts, plan: Blueprint) -> Assembled:
    """Make the agent."""
    config = parts.config
    window, outputs = window_of(parts, plan), FileOutputs(config.base)
    memory = None
    if plan.memory:  # a sub-agent reads memory and never writes it
        memory = MemoryMiddleware(parts.memory, agent=plan.memory_of, learn=plan.lead, window=window, clock=parts.clock)
    summarization = SummarizationMiddleware.from_config(
        config,
        window=window,
        archive=parts.archive,
        outputs=outputs,
        accounts=parts.accounts,
        bus=parts.bus,
        ids=parts.ids,
        long_term=parts.long_term,
        on_leave=[memory.leaving] if memory is not None and plan.lead else [],
        counted=_COUNTED,
        calls=CallLog(config.base, disk=parts.disk, clock=parts.clock),
    )
    names = {id(plan.model): plan.model_name} if plan.model_name else {}
    lead, titled = plan.lead, plan.lead and config.title.enabled
    approve = (*config.sandbox.approve, *parts.mcp.approvals)
    chain: list[AgentMiddleware[Any, Any, Any]] = [
        ThreadDataMiddleware(),
        *plan.extra,
        # weights of this size call tools at random, and a list of them is all they then speak of
        RepetitionMiddleware(),
        *([PlainAnswersMiddleware()] if not abilities_of(plan.model).tools else []),
        *([DeniedToolsMiddleware(config.denied_tools)] if config.denied_tools else []),
        BrokenCallsMiddleware(),
        *([ApprovalMiddleware(approve, refuse=not lead)] if approve else []),
        ToolOutputMiddleware(parts.archive, outputs, counter=summarization.context_window.counter, ids=parts.ids),
        LoopGuardMiddleware(),
        ToolErrorMiddleware(),
        TodoMiddleware(),
        *([memory] if memory is not None else []),
        *retries_of(parts, plan),
        AccountingMiddleware(parts.accounts, summarization, names),
        summarization,
        *([TitleMiddleware(parts.titles)] if titled else []),
        *([ClarificationMiddleware()] if lead else []),
        PlainTextMiddleware(),
        WholeCallsMiddleware(),
        TracingMiddleware(),
    ]
    graph = create_agent(
        plan.model, list(plan.tools), system_prompt=plan.prompt, middleware=chain, state_schema=LeadState, checkpointer=parts.checkpoints
    )
    return Assembled(graph, summarization, memory, tuple(chain))


def window_of(parts: Parts, plan: Blueprint) -> int | None:
    """The window that the configuration gives the model; None leaves it to the model's profile."""
    settings = parts.settings(plan.model_name)
    return find_window(settings, name=plan.model_name, bus=parts.bus).tokens if settings is not None and settings.window else None


def retries_of(parts: Parts, plan: Blueprint) -> list[AgentMiddleware[Any, Any, Any]]:
    """What makes the agent go on when its model fails, with the fallbacks of a model of the configuration."""
    if parts.settings(plan.model_name) is not None:
        return model_middlewares(parts.config, plan.model_name, thinking_enabled=plan.thinking)
    return middlewares([plan.model_name] if plan.model_name else [])


class Given(TypedDict, total=False):
    """What may be given to `open_parts`, and stays the caller's to close. The rest is made from the configuration."""

    clock: Clock | None
    ids: IdSource | None
    bus: Bus | None
    disk: Disk | None
    checkpointer: Checkpoints | None
    archive: FileArchive | None
    memory: MemoryService | None
    accounts: RunAccounts | None
    knowledge: Callable[[], KnowledgeStore] | None
    models: Mapping[str, BaseChatModel] | None
    """Chat models that were made already, by their names in the configuration."""


@dataclass(frozen=True)
class Parts:
    """What all agents of a process share. Close it when done; what was queued for memory is learned from then."""

    config: Config
    checkpoints: Checkpoints
    archive: FileArchive
    memory: MemoryService
    accounts: RunAccounts
    threads: Threads
    loop: LoopThread
    places: asyncio.Semaphore
    """As many sub-agents as may run at once."""
    titles: Titles
    mcp: McpServers
    """The MCP servers of the configuration; their sessions are held once in a process, whoever asks."""
    long_term: LongTerm | None
    """What the knowledge store has about a message, where `summarization.recall.knowledge` is on."""
    models: Mapping[str, BaseChatModel]
    clock: Clock
    ids: IdSource
    bus: Bus
    disk: Disk
    opened: ExitStack
    """Those of the parts that were made here and are closed here."""

    def settings(self, model: str | None) -> ModelConfig | None:
        """The settings of a model in the configuration; None for one that is not there."""
        return next((known for known in self.config.models if known.name == model), None)

    def close(self) -> None:
        """Stop what runs, and let go of files and databases."""
        self.loop.close()
        self.opened.close()


def open_parts(config: Config, **given: Unpack[Given]) -> Parts:
    """The parts as the configuration describes them. Those that are given stay the caller's to close."""
    clock, ids = given.get("clock") or SystemClock(), given.get("ids") or RandomIds()
    bus, disk = given.get("bus") or process_bus, given.get("disk") or REAL
    make_folders(disk, str(config.base))
    models = dict(given.get("models") or {})
    accounts = given.get("accounts") or RunAccounts.of(config, bus=bus)
    with ExitStack() as opened:  # what was opened is closed again if the next one cannot be
        checkpoints = given.get("checkpointer") or opened.enter_context(closing(open_checkpoints(config.base)))
        archive = given.get("archive") or opened.enter_context(closing(FileArchive(config.base, disk=disk, clock=clock)))
        own: dict[str, Any] = {"clock": clock, "ids": ids, "bus": bus, "disk": disk}
        memory = given.get("memory") or opened.enter_context(closing(open_memory(config, accounts=accounts, **own)))
        return Parts(
            config,
            checkpoints,
            archive,
            memory,
            accounts,
            Threads(config.base, checkpoints, archive, clock=clock),
            LoopThread(),
            asyncio.Semaphore(config.subagents.max_concurrent),
            Titles(config.title.max_words, config.title.max_chars, _title_model(config, models), accounts),
            opened.enter_context(closing(open_mcp(config, clock=clock, bus=bus))),
            _long_term(config, given.get("knowledge"), opened, bus),
            models,
            clock,
            ids,
            bus,
            disk,
            opened.pop_all(),
        )
    raise AssertionError  # for the type checker: nothing above is swallowed


def _long_term(config: Config, given: Callable[[], KnowledgeStore] | None, opened: ExitStack, bus: Bus) -> LongTerm | None:
    if not config.summarization.recall.knowledge:
        return None
    if given is None:
        from holdfast.knowledge.adapters import open_knowledge

        store = opened.enter_context(closing(open_knowledge(config)))
    return known_in(given or (lambda: store), config.memory.long_term_memory.min_trust, bus)


def _title_model(config: Config, models: Mapping[str, BaseChatModel]) -> BaseChatModel | None:
    """The light model that may be asked for a title: one that can write a summary; None where there is none."""
    name = config.title.model_name
    if not config.title.enabled or (name is None and not config.models):
        return None
    try:
        if name is None:
            return summary_model(config)
        model = models.get(name) or create_chat_model(name, config=config)
        require(model, "summary")
    except HoldfastError:  # a title is never worth an error: the user's own words do as well
        return None
    return model
