"""The lead agent: the one that a user talks to (A1).

    agent = make_lead_agent(load_config())
    for event in agent.conversation("thread-1").send("Hello"):
        ...
    agent.close()

`agent.graph` is a LangGraph agent like any other; `conversation` is the comfortable way to talk to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.agents.assembly import Assembled, Blueprint, Parts, assemble, open_parts
from holdfast.agents.middleware.view_images import ViewImagesMiddleware
from holdfast.agents.prompting import lead_prompt, subagent_prompt
from holdfast.agents.settings import AgentSettings, load_agent
from holdfast.agents.subagents.executor import Executor
from holdfast.agents.subagents.pruning import prune_subagents
from holdfast.agents.subagents.registry import Registry, SubagentType
from holdfast.agents.subagents.tool import task_tool
from holdfast.agents.tools.opening import open_tools, open_workplaces
from holdfast.config.loading import load_config
from holdfast.config.sections import Config
from holdfast.models.factory import create_chat_model, settings_of
from holdfast.skills.library import open_skills, render
from holdfast.tokens.budget import Budget
from holdfast.tokens.counter import open_counter
from holdfast.tokens.windows import find_window

if TYPE_CHECKING:
    from langchain.agents.middleware.types import AgentMiddleware
    from langchain_core.language_models import BaseChatModel
    from langchain_core.tools import BaseTool

    from holdfast.agents.checkpoints import Checkpoints
    from holdfast.agents.conversation import Conversation
    from holdfast.agents.tools.workplaces import Workplaces
    from holdfast.clock import Clock
    from holdfast.events import Bus
    from holdfast.ids import IdSource
    from holdfast.skills.skill_file import Skill


@dataclass(frozen=True)
class LeadAgent:
    """An agent and everything that it works with. Close it when done, unless its parts were given."""

    assembled: Assembled
    parts: Parts
    settings: AgentSettings | None
    model: BaseChatModel
    executor: Executor
    registry: Registry
    places: Workplaces | None = None
    """The sandboxes of its threads, where its tools work."""
    owns_parts: bool = True
    owns_places: bool = False

    @property
    def graph(self) -> Any:
        """The LangGraph agent: `invoke`, `stream`, `get_state` and so on, sync and async."""
        return self.assembled.graph

    @property
    def name(self) -> str | None:
        """Whose memory and settings it has; None for the default agent."""
        return self.settings.name if self.settings is not None else None

    def conversation(self, thread: str | None = None) -> Conversation:
        """A conversation with this agent: a new one, or the one of this thread, where it was left."""
        from holdfast.agents.conversation import Conversation

        return Conversation(self, thread)

    def close(self) -> None:
        """Stop what runs, learn from what is queued, and let go of files."""
        self.executor.cancel_all()
        if self.owns_parts:
            self.parts.close()
        if self.owns_places and self.places is not None:
            self.places.close()

    def __enter__(self) -> LeadAgent:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def make_lead_agent(
    config: Config | None = None,
    *,
    agent: str | None = None,
    tools: Sequence[BaseTool] | None = None,
    model: BaseChatModel | None = None,
    models: Mapping[str, BaseChatModel] | None = None,
    skills: Iterable[Skill] | None = None,
    sandbox: Workplaces | None = None,
    middleware: Sequence[AgentMiddleware[Any, Any, Any]] = (),
    checkpointer: Checkpoints | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    bus: Bus | None = None,
    parts: Parts | None = None,
) -> LeadAgent:
    """The lead agent that the configuration describes.

    `agent` is the name of one with settings and memory of its own. Without `tools` they are those of the configuration, working in
    `sandbox` (which is opened if it is not given), and so are `skills`. `model` and `models` (by name) are chat models that were made
    already. Raises ModelNotConfigured when there is no model: `open_conversation` then answers without one.
    """
    config = load_config() if config is None else config
    settings = load_agent(config, agent) if agent is not None else None
    name, thinking = (settings.model, settings.thinking) if settings is not None else (None, False)
    if model is None:
        name = settings_of(name, config=config).name
        model = (models or {}).get(name) or create_chat_model(name, thinking, config=config, retries=False)
    elif name is None:
        name = _configured_name(config, model)
    owns = parts is None
    parts = parts or open_parts(config, clock=clock, ids=ids, bus=bus, checkpointer=checkpointer, models=models)
    places = sandbox
    try:
        if tools is None:
            places = places or open_workplaces(config)
            tools = open_tools(config, places)
            middleware = [ViewImagesMiddleware(places), *middleware]
        given = [tool for tool in tools if settings is None or settings.allows(tool.name, config)]
        registry = Registry.of(config)
        prune_subagents(parts.threads, parts.archive, retain_days=config.subagents.retain_days, now=parts.clock.now())
        known = list(open_skills(config).all().enabled if skills is None else skills)
        shown = _skills(parts, known, settings.skills if settings is not None else None, model)
        executor = _executor(parts, registry, given, model, name, thinking, known, middleware)
        delegates = settings is None or settings.subagents
        plan = Blueprint(
            name=(settings.name if settings is not None else None) or "lead",
            prompt=lead_prompt(settings, skills=shown, types=registry if delegates else None),
            model=model,
            tools=[*given, task_tool(executor, registry)] if delegates else given,
            model_name=name,
            thinking=thinking,
            memory_of=settings.name if settings is not None else None,
            memory=settings is None or settings.memory,
            extra=middleware,
        )
        return LeadAgent(assemble(parts, plan), parts, settings, model, executor, registry, places, owns, places is not sandbox)
    except BaseException:
        if owns:
            parts.close()
        if places is not None and places is not sandbox:
            places.close()
        raise


def _executor(
    parts: Parts,
    registry: Registry,
    tools: Sequence[BaseTool],
    model: BaseChatModel,
    name: str | None,
    thinking: bool,
    skills: Sequence[Skill],
    middleware: Sequence[AgentMiddleware[Any, Any, Any]],
) -> Executor:
    def build(type: SubagentType) -> Any:
        thinks = thinking if type.thinking is None else type.thinking
        if type.model is None and thinks == thinking:
            own, own_name = model, name
        else:
            own_name = type.model or name
            given = parts.models.get(own_name or "")
            own = given or create_chat_model(own_name, thinks, config=parts.config, retries=False)
        plan = Blueprint(
            name=type.name,
            prompt=subagent_prompt(type, skills=_skills(parts, skills, type.skills, own)),
            model=own,
            tools=type.pick(tools),
            model_name=own_name,
            thinking=thinks,
            memory_of=type.name,
            lead=False,
            extra=middleware,
        )
        return assemble(parts, plan).graph

    return Executor(
        build,
        parts.loop,
        places=parts.places,
        accounts=parts.accounts,
        archive=parts.archive,
        threads=parts.threads,
        bus=parts.bus,
        clock=parts.clock,
        ids=parts.ids,
    )


def _skills(parts: Parts, skills: Sequence[Skill], names: Sequence[str] | None, model: BaseChatModel) -> str:
    """The block that names the skills, within its share of the window (A12)."""
    chosen = [skill for skill in skills if names is None or skill.name in names]
    if not chosen:
        return ""
    window = find_window(model, bus=parts.bus).tokens
    return render(chosen, budget=Budget.split(window).skills, count=open_counter(bus=parts.bus).count_text)


def _configured_name(config: Config, model: BaseChatModel) -> str | None:
    """The name under which a model that was given is configured, so that its price and window are known."""
    said = {str(getattr(model, attribute, None)) for attribute in ("model_name", "model", "name")}
    return next((known.name for known in config.models if known.name in said), None)
