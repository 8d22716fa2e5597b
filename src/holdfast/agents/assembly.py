"""How an agent of ours is put together: the parts that agents share, and the middlewares in their order (A1, S16).

Outermost first: thread data, the sandbox's own, tools (approval, output limit, loop guard, errors), todos, memory, retries, accounts,
summarization, title, clarification. The last two change nothing in a request, so that the summarization still checks what is really sent,
right before the model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent

from holdfast.agents.checkpoints import Checkpoints, open_checkpoints
from holdfast.agents.loop import LoopThread
from holdfast.agents.memory_service import open_memory
from holdfast.agents.middleware.accounting import AccountingMiddleware, RunAccounts
from holdfast.agents.middleware.approval import ApprovalMiddleware
from holdfast.agents.middleware.clarification import ClarificationMiddleware
from holdfast.agents.middleware.loop_guard import LoopGuardMiddleware
from holdfast.agents.middleware.memory import MemoryMiddleware
from holdfast.agents.middleware.plain_answers import PlainAnswersMiddleware
from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.agents.middleware.thread_data import LeadState, RunContext, ThreadDataMiddleware
from holdfast.agents.middleware.title import TitleMiddleware, Titles
from holdfast.agents.middleware.todos import TodoMiddleware
from holdfast.agents.middleware.tool_errors import ToolErrorMiddleware
from holdfast.agents.middleware.tool_output import ToolOutputMiddleware
from holdfast.agents.threads import Threads
from holdfast.clock import Clock, SystemClock
from holdfast.context.archive import FileArchive
from holdfast.context.offload import FileOutputs
from holdfast.durable.disk import REAL, make_folders
from holdfast.events import Bus
from holdfast.events import bus as process_bus
from holdfast.ids import IdSource, RandomIds
from holdfast.models.factory import abilities_of, model_middlewares, summary_model
from holdfast.models.retries import middlewares as retry_middlewares
from holdfast.tokens.ledger import MessageCounts
from holdfast.tokens.windows import find_window

if TYPE_CHECKING:
    from langchain.agents.middleware.types import AgentMiddleware
    from langchain_core.language_models import BaseChatModel
    from langchain_core.tools import BaseTool

    from holdfast.config.sections import Config
    from holdfast.memory.service import MemoryService

_COUNTED = 2_000
"""Messages whose tokens are remembered; it is the most that a thread should have in its window."""


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
    titles: Titles
    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=RandomIds)
    bus: Bus = process_bus
    models: Mapping[str, BaseChatModel] = field(default_factory=dict)
    own: tuple[Any, ...] = ()
    """Those of the parts that were made here and are closed here."""

    @property
    def base(self) -> Path:
        """The folder that holds all state."""
        return self.config.base

    def close(self) -> None:
        """Stop what runs, and let go of files and databases."""
        self.loop.close()
        for part in self.own:
            part.close()


def open_parts(
    config: Config,
    *,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    bus: Bus | None = None,
    checkpointer: Checkpoints | None = None,
    archive: FileArchive | None = None,
    memory: MemoryService | None = None,
    models: Mapping[str, BaseChatModel] | None = None,
    side_model: BaseChatModel | None = None,
) -> Parts:
    """The parts as the configuration describes them. Those that are given stay the caller's to close."""
    clock, ids, bus = clock or SystemClock(), ids or RandomIds(), bus or process_bus
    make_folders(REAL, str(config.base))
    checkpoints = checkpointer or open_checkpoints(config.base)
    kept = archive or FileArchive(config.base, clock=clock)
    accounts = RunAccounts.of(config, bus=bus)
    known = memory or open_memory(config, accounts=accounts, clock=clock, ids=ids, bus=bus)
    light = side_model if side_model is not None or not config.title.enabled else _title_model(config, models or {})
    own = [part for part, given in ((known, memory), (kept, archive), (checkpoints, checkpointer)) if given is None]
    return Parts(
        config,
        checkpoints,
        kept,
        known,
        accounts,
        Threads(config.base, checkpoints, kept, clock=clock),
        LoopThread(),
        asyncio.Semaphore(config.subagents.max_concurrent),
        Titles.of(config, light, accounts),
        clock,
        ids,
        bus,
        dict(models or {}),
        tuple(own),
    )


def _title_model(config: Config, models: Mapping[str, BaseChatModel]) -> BaseChatModel | None:
    """The light model that may be asked for a title: one that can write a summary; None where there is none."""
    from holdfast.errors import HoldfastError
    from holdfast.models.factory import create_chat_model, require

    name = config.title.model_name
    try:
        if name is None:
            return summary_model(config) if config.models else None
        model = models.get(name) or create_chat_model(name, config=config)
        require(model, "summary")
    except HoldfastError:  # a title is never worth an error: the user's own words do as well
        return None
    return model


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
    memory = _memory(parts, plan) if plan.memory else None
    outputs = FileOutputs(parts.base)
    summarization = SummarizationMiddleware.from_config(
        config,
        window=_window(parts, plan),
        archive=parts.archive,
        outputs=outputs,
        accounts=parts.accounts,
        bus=parts.bus,
        ids=parts.ids,
        on_leave=[memory.leaving] if memory is not None and plan.lead else [],
    )
    # each turn reads the thread's messages anew; fewer are remembered than by default, so that a process that talks for days stays small
    summarization.keeper.counts = MessageCounts(summarization.keeper.counter, most=_COUNTED)
    names = {id(plan.model): plan.model_name} if plan.model_name else {}
    chain: list[AgentMiddleware[Any, Any, Any]] = [ThreadDataMiddleware(), *plan.extra]
    if not abilities_of(plan.model).summary:  # weights of this size call tools at random, and a list of them is all they then speak of
        chain.append(PlainAnswersMiddleware())
    if config.sandbox.approve:
        chain.append(ApprovalMiddleware(config.sandbox.approve, refuse=not plan.lead))
    chain += [ToolOutputMiddleware(parts.archive, outputs, counter=summarization.keeper.counter, ids=parts.ids)]
    chain += [LoopGuardMiddleware(), ToolErrorMiddleware(), TodoMiddleware()]
    chain += [memory] if memory is not None else []
    chain += _retries(parts, plan)
    chain += [AccountingMiddleware(parts.accounts, summarization, names), summarization]
    if plan.lead:
        chain += [TitleMiddleware(parts.titles)] if config.title.enabled else []
        chain.append(ClarificationMiddleware())
    graph = create_agent(
        plan.model,
        list(plan.tools),
        system_prompt=plan.prompt,
        middleware=chain,
        state_schema=LeadState,
        context_schema=RunContext,
        checkpointer=parts.checkpoints,
    )
    return Assembled(graph, summarization, memory, tuple(chain))


def _memory(parts: Parts, plan: Blueprint) -> MemoryMiddleware:
    memory = MemoryMiddleware(parts.memory, agent=plan.memory_of, learn=plan.lead, clock=parts.clock, ids=parts.ids)
    if not plan.lead:  # a sub-agent reads memory and never writes it
        memory.tools = [tool for tool in memory.tools if tool.name == "memory_search"]
    return memory


def _window(parts: Parts, plan: Blueprint) -> int | None:
    """The window that the configuration gives the model; None leaves it to the model's profile."""
    if plan.model_name is None:
        return None
    settings = next((model for model in parts.config.models if model.name == plan.model_name), None)
    return find_window(settings, name=plan.model_name, bus=parts.bus).tokens if settings is not None and settings.window else None


def _retries(parts: Parts, plan: Blueprint) -> list[AgentMiddleware[Any, Any, Any]]:
    configured = plan.model_name is not None and any(model.name == plan.model_name for model in parts.config.models)
    if configured:
        return model_middlewares(parts.config, plan.model_name, thinking_enabled=plan.thinking)
    return retry_middlewares([plan.model_name] if plan.model_name else [])
