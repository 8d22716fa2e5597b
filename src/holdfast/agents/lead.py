"""The lead agent: the one that a user talks to (A1).

    agent = make_lead_agent(load_config())
    for event in agent.conversation("thread-1").send("Hello"):
        ...
    agent.close()

`agent.graph` is a LangGraph agent like any other; `conversation` is the comfortable way to talk to it. `make_lead_agent` brings together
the settings of the agent, its model, tools, skills and sub-agents; the order of its middlewares is in `chain.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from holdfast.agents.agent_settings import AgentSettings, lead_prompt, load_agent, subagent_prompt
from holdfast.agents.chain import Assembled, Blueprint, assemble
from holdfast.agents.conversation import Conversation
from holdfast.agents.parts import Given, Parts, open_parts
from holdfast.agents.subagents.executor import Executor, task_tool
from holdfast.agents.subagents.task_types import Registry, SubagentType
from holdfast.agents.threads import prune_subagents
from holdfast.agents.tools.toolset import ViewImagesMiddleware, open_sandboxes, open_tools
from holdfast.config.loading import load_config
from holdfast.config.sections import Config
from holdfast.models.factory import create_chat_model, settings_of
from holdfast.skills import open_skills, render
from holdfast.tokens.budget import Budget
from holdfast.tokens.counter import open_counter
from holdfast.tokens.windows import find_window

if TYPE_CHECKING:
    from langchain.agents.middleware.types import AgentMiddleware
    from langchain_core.language_models import BaseChatModel
    from langchain_core.tools import BaseTool

    from holdfast.agents.tools.toolset import ThreadSandboxes
    from holdfast.skills import Skill


@dataclass(frozen=True)
class LeadAgent:
    """An agent and everything that it works with. Close it when done; parts that were given stay open."""

    assembled: Assembled
    parts: Parts
    settings: AgentSettings
    model: BaseChatModel
    executor: Executor
    registry: Registry
    places: ThreadSandboxes | None = None
    """The sandboxes of its threads, where its tools work."""
    opened: ExitStack = field(default_factory=ExitStack)
    """What was opened for this agent alone."""

    @property
    def graph(self) -> Any:
        """The LangGraph agent: `invoke`, `stream`, `get_state` and so on, sync and async."""
        return self.assembled.graph

    @property
    def name(self) -> str | None:
        """Whose memory and settings it has; None for the default agent."""
        return self.settings.name

    def conversation(self, thread: str | None = None) -> Conversation:
        """A conversation with this agent: a new one, or the one of this thread, where it was left."""
        return Conversation(self, thread)

    def close(self) -> None:
        """Stop what runs, learn from what is queued, and let go of files."""
        self.executor.cancel_all()
        self.opened.close()

    def __enter__(self) -> LeadAgent:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def make_lead_agent(
    config: Config | None = None,
    *,
    agent: str | None = None,
    model: BaseChatModel | None = None,
    tools: Sequence[BaseTool] | None = None,
    skills: Iterable[Skill] | None = None,
    sandbox: ThreadSandboxes | None = None,
    middleware: Sequence[AgentMiddleware[Any, Any, Any]] = (),
    parts: Parts | None = None,
    **given: Unpack[Given],
) -> LeadAgent:
    """The lead agent that the configuration describes.

    `agent` is the name of one with settings and memory of its own. Without `tools` they are those of the configuration, working in
    `sandbox` (which is opened if it is not given), and so are `skills`. `model` is a chat model that was made already. `parts` are shared
    with other agents; without them they are opened, and `given` says with what: `clock`, `ids`, `bus`, `disk`, `checkpointer`, `archive`,
    `memory`, `models`. Raises ModelNotConfigured when there is no model: `Harness.conversation` then answers without one.
    """
    config = load_config() if config is None else config
    settings = load_agent(config, agent) if agent is not None else AgentSettings()
    models = (parts.models if parts is not None else given.get("models")) or {}
    name, model = _model(config, settings, model, models)
    with ExitStack() as opened:  # closed again if anything below fails
        places = sandbox
        if tools is None:
            places = sandbox or opened.enter_context(closing(open_sandboxes(config)))
            tools = open_tools(config, places)
            middleware = [ViewImagesMiddleware(places), *middleware]
        parts = parts or opened.enter_context(closing(open_parts(config, **given)))
        prune_subagents(parts.threads, parts.archive, retain_days=config.subagents.retain_days, now=parts.clock.now())
        kit = _Kit(
            parts=parts,
            model=model,
            model_name=name,
            thinking=settings.thinking,
            tools=[tool for tool in tools if settings.allows(tool.name, config)],
            skills=list(open_skills(config).all().enabled if skills is None else skills),
            middleware=middleware,
        )
        registry = Registry.of(config)
        executor = kit.executor()
        plan = Blueprint(
            name=settings.name or "lead",
            prompt=lead_prompt(settings, skills=kit.skills_block(settings.skills, model), types=registry if settings.subagents else None),
            model=model,
            tools=[*kit.tools, task_tool(executor, registry)] if settings.subagents else kit.tools,
            model_name=name,
            thinking=settings.thinking,
            memory_of=settings.name,
            memory=settings.memory,
            extra=middleware,
        )
        return LeadAgent(assemble(parts, plan), parts, settings, model, executor, registry, places, opened.pop_all())
    raise AssertionError  # for the type checker: nothing above is swallowed


def _model(config: Config, settings: AgentSettings, given: BaseChatModel | None, models: Any) -> tuple[str | None, BaseChatModel]:
    """The agent's model and its name in the configuration, which is None for a model that was given and is not configured."""
    if given is None:
        name = settings_of(settings.model, config=config).name
        return name, models.get(name) or create_chat_model(name, settings.thinking, config=config, retries=False)
    if settings.model is not None:
        return settings.model, given
    said = {str(getattr(given, attribute, None)) for attribute in ("model_name", "model", "name")}
    return next((known.name for known in config.models if known.name in said), None), given  # so that its price and window are known


@dataclass(frozen=True)
class _Kit:
    """What the lead agent and its sub-agents have in common."""

    parts: Parts
    model: BaseChatModel
    model_name: str | None
    thinking: bool
    tools: list[BaseTool]
    skills: list[Skill]
    middleware: Sequence[AgentMiddleware[Any, Any, Any]]

    def executor(self) -> Executor:
        """Runs the sub-agents."""
        parts = self.parts
        return Executor(
            self.subagent,
            parts.loop,
            places=parts.places,
            accounts=parts.accounts,
            archive=parts.archive,
            threads=parts.threads,
            bus=parts.bus,
            clock=parts.clock,
            ids=parts.ids,
        )

    def subagent(self, kind: SubagentType) -> Any:
        """The graph of a sub-agent of this kind."""
        thinks = self.thinking if kind.thinking is None else kind.thinking
        own, own_name = self.model, self.model_name
        if kind.model is not None or thinks != self.thinking:
            own_name = kind.model or self.model_name
            made = self.parts.models.get(own_name or "")
            own = made or create_chat_model(own_name, thinks, config=self.parts.config, retries=False)
        plan = Blueprint(
            name=kind.name,
            prompt=subagent_prompt(kind, skills=self.skills_block(kind.skills, own)),
            model=own,
            tools=kind.pick(self.tools),
            model_name=own_name,
            thinking=thinks,
            memory_of=kind.name,
            lead=False,
            extra=self.middleware,
        )
        return assemble(self.parts, plan).graph

    def skills_block(self, names: Sequence[str] | None, model: BaseChatModel) -> str:
        """The part of a prompt that names the skills, within its share of the window (A12)."""
        chosen = [skill for skill in self.skills if names is None or skill.name in names]
        if not chosen:
            return ""
        window = find_window(model, bus=self.parts.bus).tokens
        return render(chosen, budget=Budget.split(window).skills, count=open_counter(bus=self.parts.bus).count_text)
