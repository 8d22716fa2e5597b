"""The lead agent: the one that a user talks to (A1).

    agent = make_lead_agent(load_config())
    for event in agent.conversation("thread-1").send("Hello"):
        ...
    agent.close()

`agent.graph` is a LangGraph agent like any other; `conversation` is the comfortable way to talk to it. `make_lead_agent` brings together
the settings of the agent, its model, tools, skills and sub-agents; the order of its middlewares is in `agent_loop.py`. A request to it
may name another agent or model, switch thinking on or sub-agents off: what it asks for is made then, and kept (`RequestGraph`).
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack, cast

from langchain_core.runnables.config import RunnableConfig, ensure_config, merge_configs
from langgraph.graph.state import CompiledStateGraph

from holdfast.agents.agent_loop import Assembled, Blueprint, Given, Parts, assemble, open_parts
from holdfast.agents.agent_settings import AgentSettings, Registry, SubagentType, folders_block, lead_prompt, load_agent, subagent_prompt
from holdfast.agents.conversation import Conversation
from holdfast.agents.middleware.arguments import as_chat_model, as_tools
from holdfast.agents.middleware.base import RequestSettings
from holdfast.agents.subagents import Executor, task_tool
from holdfast.agents.threads import prune_subagents
from holdfast.agents.tools.toolset import ViewImagesMiddleware, fitting, open_sandboxes, open_tools
from holdfast.config.loading import load_config
from holdfast.config.sections import Config
from holdfast.models.factory import create_chat_model, settings_of
from holdfast.skills import open_skills, render
from holdfast.tokens.budget import Budget
from holdfast.tokens.counter import open_counter
from holdfast.tokens.windows import find_window
from holdfast.validation import check_kind, check_name

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
    graph: Any
    """The LangGraph agent: `invoke`, `stream`, `get_state` and so on, sync and async. A request may ask for another agent or model (M3)."""
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
    def name(self) -> str | None:
        """Whose memory and settings it has; None for the default agent."""
        return self.settings.name

    def conversation(self, thread: str | None = None, *, request: Mapping[str, Any] | None = None) -> Conversation:
        """A conversation with this agent: a new one, or the one of this thread, where it was left. `request` as in `Conversation`."""
        return Conversation(self, thread, request=request)

    def invoke(self, *args: Any, **settings: Any) -> Any:
        """`graph.invoke`, and so on: where the reference has a graph, this does as well."""
        return self.graph.invoke(*args, **settings)

    async def ainvoke(self, *args: Any, **settings: Any) -> Any:
        """`graph.ainvoke`."""
        return await self.graph.ainvoke(*args, **settings)

    def stream(self, *args: Any, **settings: Any) -> Iterator[Any]:
        """`graph.stream`."""
        return self.graph.stream(*args, **settings)  # type: ignore[no-any-return]  # LangGraph's

    def astream(self, *args: Any, **settings: Any) -> AsyncIterator[Any]:
        """`graph.astream`."""
        return self.graph.astream(*args, **settings)  # type: ignore[no-any-return]  # LangGraph's

    def close(self) -> None:
        """Stop what runs, learn from what is queued, and let go of files."""
        self.opened.close()

    def __enter__(self) -> LeadAgent:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def make_lead_agent(
    config: Config | RunnableConfig | Mapping[str, Any] | None = None,
    *,
    agent: str | None = None,
    model: BaseChatModel | str | None = None,
    tools: Sequence[BaseTool | Callable[..., Any]] | None = None,
    skills: Iterable[Skill] | None = None,
    sandbox: ThreadSandboxes | None = None,
    middleware: Sequence[AgentMiddleware[Any, Any, Any]] = (),
    parts: Parts | None = None,
    **given: Unpack[Given],
) -> LeadAgent:
    """The lead agent that the configuration describes.

    `agent` is the name of one with settings and memory of its own. Without `tools` they are those of the configuration, working in
    `sandbox` (which is opened if it is not given), and so are `skills`. Functions are taken as tools. `model` is a chat model that was
    made already, or the name of one in the configuration. `parts` are shared with other agents; without them they are opened, and `given`
    says with what: `clock`, `ids`, `bus`, `disk`, `checkpointer`, `archive`, `memory`, `models`. Raises ModelNotConfigured when there is no
    model: `Harness.conversation` then answers without one.

    The reference calls it with a RunnableConfig alone, `make_lead_agent({"configurable": {"agent_name": "coder"}})`: then it is the agent
    that this request asks for, from the configuration that is found here. All that are made so share their parts, which stay open until
    the process ends; the call costs little and may be made for every request.
    """
    bound: Mapping[str, Any] = {}
    if isinstance(config, Mapping):
        request = RequestSettings.read(config, config.get("context"))
        bound, config = {key: value for key, value in config.items() if key != "context"}, load_config()
        if all(one is None for one in (agent, model, tools, skills, sandbox, parts)) and not middleware and not given:
            return _shared(config).agent(request, bound)
    else:
        config, request = load_config() if config is None else config, RequestSettings()
    if agent is not None and request.agent_name is None:
        request = replace(request, agent_name=check_name(agent, "agent name"))
    check_kind("config", config, Config, "a configuration", hint="`load_config(PATH)` reads one.")
    made_tools = as_tools(tools) if tools is not None else None
    with ExitStack() as opened:  # closed again if anything below fails
        workshop = _open_workshop(config, opened, as_chat_model(model, config), made_tools, skills, sandbox, middleware, parts, given)
        made = workshop.agent(request, bound)
        return replace(made, opened=opened.pop_all())
    raise AssertionError  # for the type checker: nothing above is swallowed


_workshops: dict[tuple[int, Path], _Workshop] = {}
"""By process too: a child made by fork opens its own."""
_opening = threading.Lock()


def _shared(config: Config) -> _Workshop:
    """What all agents of this process are made with that come from a request alone."""
    key = (os.getpid(), config.base)
    with _opening:
        held = _workshops.get(key)
        if held is None or held.config != config:
            opened = ExitStack()
            held = _workshops[key] = _open_workshop(config, opened)
            atexit.register(lambda: opened.close() if os.getpid() == key[0] else None)  # not in a child made by fork
        return held


def _open_workshop(
    config: Config,
    opened: ExitStack,
    model: BaseChatModel | None = None,
    tools: Sequence[BaseTool] | None = None,
    skills: Iterable[Skill] | None = None,
    sandbox: ThreadSandboxes | None = None,
    middleware: Sequence[AgentMiddleware[Any, Any, Any]] = (),
    parts: Parts | None = None,
    given: Given | None = None,
) -> _Workshop:
    places, outside = sandbox, tools is None
    if tools is None:
        places = sandbox or opened.enter_context(closing(open_sandboxes(config)))
        tools = open_tools(config, places)
        middleware = [ViewImagesMiddleware(places), *middleware]
    parts = parts or opened.enter_context(closing(open_parts(config, **(given or {}))))
    prune_subagents(parts.threads, parts.archive, retain_days=config.subagents.retain_days, now=parts.clock.now())
    chosen = list(open_skills(config).all().enabled if skills is None else skills)
    workshop = _Workshop(config, parts, model, list(tools), chosen, middleware, places, Registry.of(config), outside)
    opened.callback(workshop.stop)
    return workshop


_MOST_VARIANTS = 64
_Key = tuple[AgentSettings, str | None]


@dataclass
class _Workshop:
    """Makes the lead agent in every variant that a request may ask for: each once, as long as nothing in its settings changes."""

    config: Config
    parts: Parts
    given: BaseChatModel | None
    tools: list[BaseTool]
    skills: list[Skill]
    middleware: Sequence[AgentMiddleware[Any, Any, Any]]
    places: ThreadSandboxes | None
    registry: Registry
    outside: bool = False
    """Whether the tools of MCP servers are added: where the tools are those of the configuration."""
    _made: OrderedDict[_Key, LeadAgent] = field(default_factory=OrderedDict)
    _making: threading.RLock = field(default_factory=threading.RLock)

    def agent(self, request: RequestSettings, bound: Mapping[str, Any] | None = None) -> LeadAgent:
        """The agent for a request, whose own graph serves further requests that may differ from it. `bound` are settings of its runs."""
        key = self._key(request, None)
        made = self._variant(key)

        def choose(request: RequestSettings) -> Any:
            wanted = self._key(request, key)
            return None if wanted == key else self._variant(wanted).graph

        graph = RequestGraph.of(made.graph, choose)
        return replace(made, graph=graph.with_config(cast("RunnableConfig", dict(bound))) if bound else graph)

    def stop(self) -> None:
        """Cancel the sub-agents of all variants."""
        with self._making:
            for made in self._made.values():
                made.executor.cancel_all()

    def _key(self, request: RequestSettings, base: _Key | None) -> _Key:
        """What a request asks for, beside what the agent that it is sent to has."""
        settings, model = base or (AgentSettings(), None)
        if request.agent_name is not None and request.agent_name != settings.name:
            settings, model = load_agent(self.config, request.agent_name), None
        thinks, delegates = request.thinking_enabled, request.subagent_enabled
        settings = replace(
            settings,
            thinking=settings.thinking if thinks is None else thinks,
            subagents=settings.subagents if delegates is None else delegates,
        )
        return settings, model if request.model_name is None else request.model_name

    def _variant(self, key: _Key) -> LeadAgent:
        with self._making:
            made = self._made.pop(key, None) or self._make(*key)
            self._made[key] = made
            while len(self._made) > _MOST_VARIANTS:
                self._made.popitem(last=False)
            return made

    def _make(self, settings: AgentSettings, asked: str | None) -> LeadAgent:
        name, model = self._model(settings, asked)
        own = {tool.name for tool in self.tools}
        outside = [tool for tool in (self.parts.mcp.tools() if self.outside else ()) if tool.name not in own]
        denied = self.config.denied_tools
        tools = [tool for tool in (*self.tools, *outside) if tool.name not in denied and settings.allows(tool.name, self.config)]
        reaches = any(tool.name == "read_file" for tool in tools)  # who has tools of ours is told of the mounted folders
        folders = folders_block(self.config.sandbox.mounts) if reaches else ""
        same: dict[str, Any] = {"thinking": settings.thinking, "extra": self.middleware}
        lead = Blueprint(settings.name or "lead", "", model, tools, name, memory_of=settings.name, memory=settings.memory, **same)
        executor = Executor(partial(self._subagent, lead, folders), self.parts)
        if not (self.config.tools or settings.tools or settings.tool_groups):
            known = self.parts.settings(name)
            tools = fitting(tools, (known and known.window) or find_window(model, bus=self.parts.bus).tokens)
        types, skills = self.registry if settings.subagents else None, self._skills_block(settings.skills, model)
        prompt = lead_prompt(settings, skills=skills, types=types, folders=folders)
        offered = [*tools, task_tool(executor, self.registry)] if settings.subagents and "task" not in denied else tools
        assembled = assemble(self.parts, replace(lead, prompt=prompt, tools=offered))
        return LeadAgent(assembled, assembled.graph, self.parts, settings, model, executor, self.registry, self.places)

    def _subagent(self, lead: Blueprint, folders: str, kind: SubagentType) -> Any:
        """The graph of a sub-agent of this kind, which has what the lead agent has unless its settings say otherwise."""
        thinks = lead.thinking if kind.thinking is None else kind.thinking
        model, name = lead.model, lead.model_name
        if kind.model is not None or thinks != lead.thinking:
            name = kind.model or lead.model_name
            model = self.parts.models.get(name or "") or create_chat_model(name, thinks, config=self.config, retries=False)
        prompt = subagent_prompt(kind, skills=self._skills_block(kind.skills, model), folders=folders)
        own: dict[str, Any] = {"name": kind.name, "prompt": prompt, "tools": kind.pick(lead.tools), "memory_of": kind.name, "memory": True}
        return assemble(self.parts, replace(lead, **own, model=model, model_name=name, thinking=thinks, lead=False)).graph

    def _skills_block(self, names: Sequence[str] | None, model: BaseChatModel) -> str:
        """The part of a prompt that names the skills, within its share of the window (A12)."""
        chosen = [skill for skill in self.skills if names is None or skill.name in names]
        if not chosen:
            return ""
        window = find_window(model, bus=self.parts.bus).tokens
        return render(chosen, budget=Budget.split(window).skills, count=open_counter(bus=self.parts.bus).count_text)

    def _model(self, settings: AgentSettings, asked: str | None) -> tuple[str | None, BaseChatModel]:
        """The model and its name in the configuration, which is None for a model that was given and is not configured.

        One that the request names comes before one that was given, and that before the agent's own.
        """
        config, given = self.config, self.given
        said = {str(getattr(given, attribute, None)) for attribute in ("model_name", "model", "name")} if given is not None else set()
        if given is None or (asked is not None and asked not in said):
            name = settings_of(asked or settings.model, config=config).name
            made = self.parts.models.get(name) or create_chat_model(name, settings.thinking, config=config, retries=False)
            return name, made
        if settings.model is not None and asked is None:
            return settings.model, given
        return next((known.name for known in config.models if known.name in said), None), given  # so that its price and window are known


Choose = Callable[[RequestSettings], "CompiledStateGraph[Any, Any, Any, Any] | None"]
"""Gives the graph for a request; None for the one that was asked."""


class RequestGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """A graph as `create_agent` makes it, which hands a request over where another one serves it (M3).

        graph.invoke(given, {"configurable": {"thread_id": "t", "agent_name": "coder", "model_name": "small"}})

    All graphs that are made for requests keep the same state in the same checkpoints, so a thread can go from one to the next, and whatever
    only looks at or changes the state does not need to know which of them it was.
    """

    def __init__(self, *, choose: Choose, **parts: Any) -> None:
        super().__init__(**parts)
        self.choose = choose

    @classmethod
    def of(cls, graph: CompiledStateGraph[Any, Any, Any, Any], choose: Choose) -> RequestGraph:
        """The same graph, with a choice."""
        return cls(choose=choose, **{name: part for name, part in vars(graph).items() if name != "__orig_class__"})

    def stream(self, input: Any, config: RunnableConfig | None = None, *, context: Any = None, **settings: Any) -> Iterator[Any]:
        """As LangGraph's. Raises InputError or ModelNotConfigured before anything happens when the request names what there is not."""
        request, config = self._request(config, context)
        other = self.choose(request) if request != RequestSettings() else None
        chosen: Any = other if other is not None else super()
        yield from chosen.stream(input, config, context=context, **settings)

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, *, context: Any = None, **settings: Any
    ) -> AsyncIterator[Any]:
        """As `stream`. What has to be read or made for the request is done in a thread."""
        request, config = self._request(config, context)
        other = await asyncio.to_thread(self.choose, request) if request != RequestSettings() else None
        chosen: Any = other if other is not None else super()
        async for part in chosen.astream(input, config, context=context, **settings):
            yield part

    def _request(self, config: RunnableConfig | None, context: Any) -> tuple[RequestSettings, RunnableConfig]:
        merged = merge_configs(self.config, config)
        return RequestSettings.read(ensure_config(merged), context), merged
