"""M3, M4, S14, A1, P2: a request chooses its agent, model, thinking and sub-agents in `configurable` or `context`, and none mix."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import HumanMessage
from tests.unit.agents.bench import configured, look, make, scripted

from holdfast import MemoryMiddleware, make_lead_agent
from holdfast.agents.lead import LeadAgent
from holdfast.config.memory_sections import Memory
from holdfast.errors import InputError, ModelNotConfigured
from holdfast.events import Bus
from holdfast.memory.service import MemoryService
from holdfast.testing.script import Request, call, repeat

NAMES = ("small", "large")
Seen = list[tuple[str, Request]]


def asked(text: str = "Hello") -> Any:
    return {"messages": [HumanMessage(text)]}


def on(thread: str, **settings: Any) -> Any:
    return {"configurable": {"thread_id": thread, **settings}}


@contextmanager
def bench(base: Path, script: Callable[[Request], Any] | None = None) -> Iterator[tuple[LeadAgent, Seen]]:
    """A lead agent with two models, and an agent `coder` with a prompt, a tool and a memory of its own; and who was asked what."""
    own = base / "agents" / "coder"
    own.mkdir(parents=True)
    (own / "config.yaml").write_text("tools: [make]\nmodel: large\n")
    (own / "SOUL.md").write_text("You are terse.")
    seen: Seen = []
    models = {
        name: scripted(
            script or [repeat(f"{name} says so.")], model_name=name, on_call=lambda request, name=name: seen.append((name, request))
        )
        for name in NAMES
    }
    values = {"models": [{"name": name, "use": "x:Y", "context_window": 8000} for name in NAMES], "memory": {"debounce_seconds": 1_000_000}}
    config = configured(base, values)
    with make_lead_agent(config, tools=[look, make], models=models, bus=Bus()) as agent:
        agent.parts.memory.add("CANARY-global likes tea")
        agent.parts.memory.add("CANARY-coder likes tabs", "coder")
        yield agent, seen


class Tags(AgentMiddleware[Any, Any, Any]):
    """Notes the tags of the model that is asked."""

    def __init__(self, seen: list[list[str]]) -> None:
        super().__init__()
        self.seen = seen

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self.seen.append(list(request.model.tags or ()))
        return handler(request)


def last(seen: Seen) -> tuple[str, Request]:
    """The one model that was asked, and with what."""
    (found,) = seen
    seen.clear()
    return found


def test_a_request_chooses_agent_model_and_tools(tmp_path: Path) -> None:
    """In `configurable`, as in the reference; and `None` is as if nothing were said."""
    with bench(tmp_path) as (agent, seen):
        agent.graph.invoke(asked(), on("plain", agent_name=None, model_name=None))
        name, request = last(seen)
        assert (name, "CANARY-global" in request.system, "CANARY-coder" in request.system) == ("small", True, False)
        assert {"look", "make", "task"} <= set(request.tool_names)
        agent.graph.invoke(asked(), on("coder", agent_name="Coder"))
        name, request = last(seen)
        assert (name, "CANARY-global" in request.system, "CANARY-coder" in request.system) == ("large", False, True)
        assert "You are terse." in request.system
        assert ("make" in request.tool_names, "look" in request.tool_names) == (True, False)
        agent.graph.invoke(asked(), on("model", agent_name="coder", model_name="small"))
        assert last(seen)[0] == "small"
        agent.graph.invoke(asked(), on("alone", subagent_enabled=False))
        name, request = last(seen)
        assert "task" not in request.tool_names
        assert "general-purpose" not in request.system
        queued = {(item.thread, item.agent) for item in agent.parts.memory.queue.items()}
    assert queued == {("plain", None), ("coder", "coder"), ("model", "coder"), ("alone", None)}


def test_it_is_the_same_in_the_context_of_a_run_async_and_streamed(tmp_path: Path) -> None:
    """LangGraph's newer place for it; other keys there are the caller's own."""
    with bench(tmp_path) as (agent, seen):
        context = {"agent_name": "coder", "model_name": "small", "subagent_enabled": False, "user_id": "u-7"}
        asyncio.run(agent.graph.ainvoke(asked(), on("a"), context=context))
        name, request = last(seen)
        assert (name, "CANARY-coder" in request.system, "task" in request.tool_names) == ("small", True, False)

        async def streamed() -> list[Any]:
            return [part async for part in agent.graph.astream(asked(), on("b"), context=context, stream_mode="updates")]

        assert asyncio.run(streamed())
        assert last(seen)[0] == "small"
        assert list(agent.graph.stream(asked(), on("c", model_name="large"), stream_mode="messages"))
        assert last(seen)[0] == "large"


def test_a_tool_that_the_request_leaves_out_cannot_be_called(tmp_path: Path) -> None:
    script: Any = lambda request: "done" if request.last.type == "tool" else [call("task", {"description": "a", "prompt": "b"})]  # noqa: E731
    with bench(tmp_path, script) as (agent, _):
        state = agent.graph.invoke(asked(), on("t", subagent_enabled=False))
    (result,) = [message for message in state["messages"] if message.type == "tool"]
    assert result.status == "error"
    assert "task is not a valid tool" in result.text


def test_thinking_is_switched_on_for_one_request(tmp_path: Path) -> None:
    """The model is made anew with what its settings say for thinking."""
    settings = {"supports_thinking": True, "when_thinking_enabled": {"tags": ["thinks"]}}
    models = [{"name": "deep", "use": "holdfast.testing.models:ScriptedModel", "script": ["Ok."] * 3, "context_window": 8000, **settings}]
    seen: list[list[str]] = []
    config = configured(tmp_path, {"models": models, "title": {"enabled": False}})
    with make_lead_agent(config, tools=[], bus=Bus(), middleware=[Tags(seen)]) as agent:
        for thread, wanted in (("a", {}), ("b", {"thinking_enabled": True}), ("c", {"thinking_enabled": False})):
            agent.graph.invoke(asked(), on(thread, **wanted))
    assert seen == [[], ["thinks"], []]


@pytest.mark.parametrize("name", ["../etc", "a b", "x" * 65, "", "ÿ", 7, ["coder"]])
def test_a_name_that_is_not_allowed_is_refused_before_anything_happens(tmp_path: Path, name: Any) -> None:
    """M4"""
    with bench(tmp_path) as (agent, seen):
        with pytest.raises(InputError, match="agent name"):
            agent.graph.invoke(asked(), on("t", agent_name=name))
        with pytest.raises(InputError, match="agent name"):
            asyncio.run(agent.graph.ainvoke(asked(), on("t"), context={"agent_name": name}))
        assert seen == []
        assert agent.graph.get_state(on("t")).values == {}


def test_a_model_that_is_not_configured_is_refused_and_the_others_are_named(tmp_path: Path) -> None:
    with bench(tmp_path) as (agent, _):
        with pytest.raises(ModelNotConfigured, match="'huge'") as refused:
            agent.graph.invoke(asked(), on("t", model_name="huge"))
        assert "small, large" in str(refused.value)
        for wrong in ({"thinking_enabled": "yes"}, {"subagent_enabled": 1}, {"model_name": 3}):
            with pytest.raises(InputError, match=next(iter(wrong))):
                agent.graph.invoke(asked(), on("t", **wrong))


def test_requests_at_once_never_mix_in_tasks_and_in_threads(tmp_path: Path) -> None:
    """M3: each is answered by its own agent and model, and queued for its own memory."""

    def script(request: Request) -> str:
        return " ".join(canary for canary in ("CANARY-global", "CANARY-coder") if canary in request.system)

    wanted = {f"t{number}": (None, "coder", "writer")[number % 3] for number in range(24)}
    expected = {None: "CANARY-global", "coder": "CANARY-coder", "writer": "CANARY-global"}
    with bench(tmp_path, script) as (agent, seen):

        def settings(thread: str) -> Any:
            return on(thread, agent_name=wanted[thread], model_name=NAMES[int(thread[1:]) % 2])

        async def together() -> list[Any]:
            return await asyncio.gather(*(agent.graph.ainvoke(asked(), settings(thread)) for thread in wanted))

        for states in (
            asyncio.run(together()),
            list(ThreadPoolExecutor(8).map(lambda t: agent.graph.invoke(asked(), settings(t)), wanted)),
        ):
            for (thread, name), state in zip(wanted.items(), states, strict=True):
                assert state["messages"][-1].text == expected[name], thread
        assert sorted(name for name, _ in seen) == [*("large",) * 24, *("small",) * 24]
        assert {(item.thread, item.agent) for item in agent.parts.memory.queue.items()} == set(wanted.items())


def test_one_thread_can_be_handed_from_one_agent_to_another(tmp_path: Path) -> None:
    """What was said stays, and the memory in the prompt is that of the agent who answers."""
    with bench(tmp_path) as (agent, seen):
        agent.graph.invoke(asked("I like bridges."), on("t"))
        last(seen)
        agent.graph.invoke(asked("And now?"), on("t", agent_name="coder"))
        _, request = last(seen)
        assert "CANARY-coder" in request.system
        assert "CANARY-global" not in request.system
        assert "I like bridges." in [message.text for message in request.messages]
        agent.graph.invoke(asked("Back."), on("t"))
        assert "CANARY-coder" not in last(seen)[1].system


@dataclass
class Caller:
    """A context of the caller's own."""

    user_id: str
    agent_name: str | None = None


def test_the_middleware_alone_takes_the_agent_from_the_request(tmp_path: Path) -> None:
    """M3, P2: for reading, learning and its tools, in both places."""
    with MemoryService.at(tmp_path, settings=Memory(debounce_seconds=1_000_000)) as service:
        service.add("CANARY-global likes tea")
        service.add("CANARY-coder likes tabs", "coder")
        model = scripted([repeat("Noted.")])
        agent: Any = create_agent(model, [], middleware=[MemoryMiddleware(service)])
        agent.invoke(asked(), on("a"))
        agent.invoke(asked(), on("b", agent_name="Coder"))
        asyncio.run(agent.ainvoke(asked(), on("c"), context={"agent_name": "coder"}))
        own: Any = create_agent(model, [], middleware=[MemoryMiddleware(service)], context_schema=Caller)
        own.invoke(asked(), on("d"), context=Caller("u-7", "coder"))
        own.invoke(asked(), on("e", agent_name="coder"), context=Caller("u-7"))
        assert ["CANARY-coder" in request.system for request in model.requests] == [False, True, True, True, True]
        assert {item.agent for item in service.queue.items()} == {None, "coder"}
        with pytest.raises(InputError, match="agent name"):
            agent.invoke(asked(), on("d", agent_name="../x"))
    with MemoryService.at(tmp_path, settings=Memory(mode="tool")) as service:
        steps = [[call("memory_add", {"content": "User sails a ketch"})], [call("memory_search", {"query": "tabs"})], "Done."]
        agent = create_agent(scripted(steps), [], middleware=[MemoryMiddleware(service)])
        state = agent.invoke(asked("I sail a ketch."), on("e", agent_name="coder"))
        assert "CANARY-coder" in state["messages"][-2].text
        assert any("ketch" in fact.content for fact in service.document("coder").facts)
        assert not any("ketch" in fact.content for fact in service.document().facts)


CONFIG = """
models:
- {name: small, use: "holdfast.testing.models:ScriptedModel", script: [small one, small two, small three], context_window: 8000}
- {name: large, use: "holdfast.testing.models:ScriptedModel", script: [large one, large two], context_window: 8000}
title: {enabled: false}
"""


def test_the_reference_s_call_form_makes_the_agent_that_the_request_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A1: `make_lead_agent` with a RunnableConfig as its only argument; parts are shared by all that are made so."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    monkeypatch.setenv("HOLDFAST_CONFIG", str(tmp_path / "config.yaml"))
    monkeypatch.delenv("HOLDFAST_HOME", raising=False)
    plain = make_lead_agent({"configurable": {"thread_id": "one"}})
    other = make_lead_agent({"configurable": {"thread_id": "two", "agent_name": "coder", "model_name": "large", "thinking_enabled": False}})
    assert plain.parts is other.parts
    assert (plain.name, other.name) == (None, "coder")
    assert plain.invoke(asked())["messages"][-1].text == "small one", "the thread is the one of the call"
    assert other.graph.invoke(asked())["messages"][-1].text == "large one"
    assert other.conversation("three").ask("Hello") == "large two"
    assert asyncio.run(plain.ainvoke(asked(), on("four")))["messages"][-1].text == "small two"
    other.close()
    assert plain.invoke(asked("Still?"))["messages"][-1].text == "small three", "closing one leaves the others alone"
    with pytest.raises(ModelNotConfigured, match="huge"):
        make_lead_agent({"configurable": {"model_name": "huge"}})
    with pytest.raises(InputError, match="agent name"):
        make_lead_agent({"configurable": {"agent_name": "../x"}})
    plain.parts.close()
