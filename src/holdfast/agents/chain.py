"""The middlewares of an agent in their order: what surrounds each model call and each tool call (A1, S16).

`assemble` makes an agent out of the parts that all share (`parts.py`) and a blueprint; its list `chain` is the order, outermost first:
thread data, the sandbox's own, tools (approval, output limit, loop guard, errors), todos, memory, retries, accounts, summarization, title,
clarification, spans. The last three change nothing in a request: what the summarization checks is really sent, right before the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent

from holdfast.agents.middleware.accounting import AccountingMiddleware
from holdfast.agents.middleware.lead_features import (
    ClarificationMiddleware,
    PlainAnswersMiddleware,
    RepetitionMiddleware,
    TitleMiddleware,
    TodoMiddleware,
)
from holdfast.agents.middleware.memory import MemoryMiddleware
from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.agents.middleware.thread_data import LeadState, ThreadDataMiddleware
from holdfast.agents.middleware.tool_calls import ApprovalMiddleware, LoopGuardMiddleware, ToolErrorMiddleware, ToolOutputMiddleware
from holdfast.agents.middleware.traced_calls import TracingMiddleware
from holdfast.context.call_log import CallLog
from holdfast.context.compaction import FileOutputs
from holdfast.models.abilities import abilities_of
from holdfast.models.factory import model_middlewares
from holdfast.models.retries import middlewares as retry_middlewares
from holdfast.tokens.windows import find_window

if TYPE_CHECKING:
    from langchain.agents.middleware.types import AgentMiddleware
    from langchain_core.language_models import BaseChatModel
    from langchain_core.tools import BaseTool

    from holdfast.agents.parts import Parts

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
    memory = _memory(parts, plan) if plan.memory else None
    outputs = FileOutputs(config.base)
    summarization = SummarizationMiddleware.from_config(
        config,
        window=window_of(parts, plan),
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
        TracingMiddleware(),
    ]
    graph = create_agent(
        plan.model,
        list(plan.tools),
        system_prompt=plan.prompt,
        middleware=chain,
        state_schema=LeadState,
        checkpointer=parts.checkpoints,
    )
    return Assembled(graph, summarization, memory, tuple(chain))


def _memory(parts: Parts, plan: Blueprint) -> MemoryMiddleware:
    """A sub-agent reads memory and never writes it."""
    window = window_of(parts, plan)
    return MemoryMiddleware(parts.memory, agent=plan.memory_of, learn=plan.lead, window=window, clock=parts.clock, ids=parts.ids)


def window_of(parts: Parts, plan: Blueprint) -> int | None:
    """The window that the configuration gives the model; None leaves it to the model's profile."""
    if plan.model_name is None:
        return None
    settings = next((model for model in parts.config.models if model.name == plan.model_name), None)
    return find_window(settings, name=plan.model_name, bus=parts.bus).tokens if settings is not None and settings.window else None


def retries_of(parts: Parts, plan: Blueprint) -> list[AgentMiddleware[Any, Any, Any]]:
    configured = plan.model_name is not None and any(model.name == plan.model_name for model in parts.config.models)
    if configured:
        return model_middlewares(parts.config, plan.model_name, thinking_enabled=plan.thinking)
    return retry_middlewares([plan.model_name] if plan.model_name else [])
