"""M8, M12, M15, S18, S19, A1: memory in a real `create_agent`: what is known is in the prompt, what is said is learned from."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from blockbuster import blockbuster_ctx
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from holdfast.agents.middleware.memory import MemoryMiddleware
from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.config.memory_sections import Block, Memory
from holdfast.context.archive import MemoryArchive
from holdfast.events import Bus, MemoryPersisted, UpdateQueued
from holdfast.memory.service import MemoryService
from holdfast.testing.clock import FakeClock
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import call, repeat


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime(2026, 4, 19, 9, 0, tzinfo=UTC))


def service_at(base: Path, clock: FakeClock, **settings: Any) -> MemoryService:
    """With a debounce that does not pass by itself: what is queued can be looked at."""
    return MemoryService.at(base, settings=Memory(debounce_seconds=1_000_000, **settings), clock=clock)


def agent_of(*middleware: Any, steps: Any = None, tools: Any = ()) -> tuple[Any, ScriptedModel]:
    model = ScriptedModel(steps or [repeat("Noted.")], profile={"max_input_tokens": 8000})
    agent: Any = create_agent(model, list(tools), middleware=list(middleware), system_prompt="Be kind.", checkpointer=InMemorySaver())
    return agent, model


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def test_what_is_said_in_one_conversation_is_in_the_prompt_of_the_next(tmp_path: Path, clock: FakeClock) -> None:
    """M8, A1: also after a restart."""
    with service_at(tmp_path, clock) as service:
        agent, _ = agent_of(MemoryMiddleware(service, clock=clock))
        agent.invoke({"messages": [HumanMessage("I work as a nurse in Lisbon and I prefer short answers.")]}, config("one"))
        service.flush()
    with service_at(tmp_path, clock) as service:
        agent, model = agent_of(MemoryMiddleware(service, clock=clock))
        agent.invoke({"messages": [HumanMessage("Hello!")]}, config("two"))
        system = model.requests[0].system
    assert system.startswith("Be kind.\n\n<memory>")
    assert "nurse" in system
    assert "Today is Sunday, 2026-04-19." in system


def test_between_compactions_the_prefix_is_identical_and_new_facts_ride_on_the_newest_message(tmp_path: Path, clock: FakeClock) -> None:
    """S19"""
    with service_at(tmp_path, clock) as service:
        agent, model = agent_of(MemoryMiddleware(service, clock=clock))
        for turn in range(6):
            if turn == 3:
                clock.advance(60)
                service.add("User owns a red bicycle")
            clock.advance(60)
            agent.invoke({"messages": [HumanMessage(f"Question {turn}", id=f"h{turn}")]}, config("t"))
        requests = model.requests
        assert len({request.system for request in requests}) == 1
        for before, after in pairwise(requests):
            old, new = [m.content for m in before.messages], [m.content for m in after.messages]
            assert new[: len(old)] == old
        told = [m.text for m in requests[-1].messages if "red bicycle" in m.text]
        assert len(told) == 1, "once, and it stays where it is"
        assert told[0].startswith("<reminder>")
        assert told[0].endswith("Question 3")


def test_a_new_day_is_told_once(tmp_path: Path, clock: FakeClock) -> None:
    """S19"""
    with service_at(tmp_path, clock) as service:
        agent, model = agent_of(MemoryMiddleware(service, clock=clock))
        for turn in range(4):
            if turn == 2:
                clock.advance(86_400)
            agent.invoke({"messages": [HumanMessage(f"Question {turn}")]}, config("t"))
        last = model.requests[-1]
        assert "2026-04-19" in last.system
        assert sum("2026-04-20" in m.text for m in last.messages) == 1


def test_after_a_compaction_memory_is_rendered_anew(tmp_path: Path, clock: FakeClock) -> None:
    """S19"""
    with service_at(tmp_path, clock) as service:
        memory = MemoryMiddleware(service, clock=clock)
        window = SummarizationMiddleware(trigger=("messages", 8), keep=("messages", 2), archive=MemoryArchive())
        agent, model = agent_of(memory, window)
        agent.invoke({"messages": [HumanMessage("Question")]}, config("t"))
        service.add("User owns a red bicycle")
        for turn in range(8):
            clock.advance(60)
            agent.invoke({"messages": [HumanMessage(f"Question {turn}")]}, config("t"))
        assert window.archive.summaries("t")
        assert "red bicycle" in model.requests[-1].system
        assert "red bicycle" not in model.requests[0].system


def test_relevant_facts_follow_the_question(tmp_path: Path, clock: FakeClock) -> None:
    """M12, S19"""
    with service_at(tmp_path, clock, injection="relevant", max_injection_tokens=120) as service:
        for number in range(30):
            service.add(f"User keeps the printed report number {number} in the cupboard")
        service.add("User's sister plays the cello", confidence=0.71)
        agent, model = agent_of(MemoryMiddleware(service, clock=clock))
        agent.invoke({"messages": [HumanMessage("Which instrument does my sister play?")]}, config("t"))
        assert "cello" not in model.requests[0].system
        assert "cello" in model.requests[0].messages[-1].text


@tool
def look(place: str) -> str:
    """Look somewhere."""
    return f"I live in {place} and I love olives."


def test_tool_results_and_unfinished_turns_are_not_learned_from(tmp_path: Path, clock: FakeClock) -> None:
    """M8, M10: what a tool said is only there for the gate, to tell its words from the user's."""
    with service_at(tmp_path, clock) as service:
        agent, _ = agent_of(MemoryMiddleware(service, clock=clock), steps=[[call("look", {"place": "Oslo"})], "Done."], tools=[look])
        agent.invoke({"messages": [HumanMessage("I use Emacs.", id="h")]}, config("t"))
        (item,) = service.queue.items()
        said = [(turn.kind, turn.text) for turn in item.turns]
        assert said == [("user", "I use Emacs."), ("tool", "I live in Oslo and I love olives."), ("assistant", "Done.")]
        service.flush()
        assert "Oslo" not in service.render_for()


def test_a_reminder_is_never_learned_again(tmp_path: Path, clock: FakeClock) -> None:
    """M10: what came from memory is not learned from."""
    with service_at(tmp_path, clock) as service:
        agent, _ = agent_of(MemoryMiddleware(service, clock=clock))
        agent.invoke({"messages": [HumanMessage("Hello")]}, config("t"))
        clock.advance(60)
        service.add("User owns a red bicycle")
        clock.advance(60)
        agent.invoke({"messages": [HumanMessage("And now?")]}, config("t"))
        texts = [turn.text for item in service.queue.items() for turn in item.turns]
        assert "And now?" in texts
        assert not any("bicycle" in text for text in texts)


def test_two_agents_and_the_global_memory_never_mix(tmp_path: Path, clock: FakeClock) -> None:
    """M3: but for the global memory that an agent without a file of its own reads."""
    with service_at(tmp_path, clock) as service:
        service.add("CANARY-global likes tea")
        service.add("CANARY-coder likes tabs", "coder")
        seen = {}
        for name in (None, "coder", "writer"):
            agent, model = agent_of(MemoryMiddleware(service, agent=name, clock=clock))
            agent.invoke({"messages": [HumanMessage("Hello")]}, config(f"t-{name}"))
            seen[name] = model.requests[0].system
        assert "CANARY-global" in seen[None]
        assert "CANARY-coder" not in seen[None]
        assert "CANARY-coder" in seen["coder"]
        assert "CANARY-global" not in seen["coder"]
        assert "CANARY-global" in seen["writer"]
        assert "CANARY-coder" not in seen["writer"]


def test_switched_off_nothing_is_injected_or_queued(tmp_path: Path, clock: FakeClock) -> None:
    """M1"""
    with service_at(tmp_path, clock, enabled=False) as service:
        agent, model = agent_of(MemoryMiddleware(service, clock=clock, date=False))
        agent.invoke({"messages": [HumanMessage("I use Emacs.")]}, config("t"))
        assert model.requests[0].system == "Be kind."
        assert not list(tmp_path.rglob("*.json"))
    with service_at(tmp_path, clock, injection_enabled=False) as service:
        agent, model = agent_of(MemoryMiddleware(service, clock=clock, date=False))
        agent.invoke({"messages": [HumanMessage("I use Emacs.")]}, config("t"))
        assert model.requests[0].system == "Be kind."
        assert service.queue.items()


def test_in_tool_mode_the_agent_keeps_its_own_memory(tmp_path: Path, clock: FakeClock) -> None:
    """M15"""
    with service_at(tmp_path, clock, mode="tool") as service:
        steps = [[call("memory_add", {"content": "User prefers Emacs"})], [call("memory_search", {"query": "editor Emacs"})], "Done."]
        agent, model = agent_of(MemoryMiddleware(service, clock=clock), steps=steps)
        state = agent.invoke({"messages": [HumanMessage("I prefer Emacs, remember that.")]}, config("t"))
        assert {"memory_search", "memory_add", "memory_update", "memory_remove"} <= set(model.requests[0].tool_names)
        assert any("Stored as" in m.text for m in state["messages"])
        assert [fact.content for fact in service.document().facts] == ["User prefers Emacs"]
        assert not service.queue.items()


def test_what_leaves_the_window_is_queued_first(tmp_path: Path, clock: FakeClock) -> None:
    """S18"""
    with service_at(tmp_path, clock) as service:
        memory = MemoryMiddleware(service, clock=clock)
        window = SummarizationMiddleware(trigger=("messages", 8), keep=("messages", 2), archive=MemoryArchive(), on_leave=[memory.leaving])
        agent, _ = agent_of(memory, window)
        history: list[Any] = [
            m for n in range(6) for m in (HumanMessage(f"I bought lamp {n}.", id=f"h{n}"), AIMessage("Fine.", id=f"a{n}"))
        ]
        agent.invoke({"messages": [*history, HumanMessage("And now?", id="n")]}, config("t"))
        texts = [turn.text for item in service.queue.items() for turn in item.turns]
        assert "I bought lamp 2." in texts


async def test_async_does_the_same(tmp_path: Path, clock: FakeClock) -> None:
    with service_at(tmp_path, clock) as service:
        service.add("User owns a red bicycle")
        agent, model = agent_of(MemoryMiddleware(service, clock=clock))
        await agent.ainvoke({"messages": [HumanMessage("I use Emacs.")]}, config("t"))
        assert "red bicycle" in model.requests[0].system
        assert service.queue.items()


def test_a_queued_conversation_is_logged_once(tmp_path: Path, clock: FakeClock) -> None:
    """O2"""
    bus = Bus()
    with MemoryService.at(tmp_path, settings=Memory(debounce_seconds=1), clock=clock, bus=bus) as service, bus.collect() as events:
        agent, _ = agent_of(MemoryMiddleware(service, clock=clock))
        agent.invoke({"messages": [HumanMessage("I use Emacs.")]}, config("t"))
        assert [event.messages for event in events if isinstance(event, UpdateQueued)] == [2]


BLOCKS = {
    "persona": Block(text="A patient tutor.", description="who you are", max_tokens=20),
    "rules": Block(text="Be brief.", read_only=True),
}


def texts_of(request: Any) -> list[str]:
    return [request.system, *(message.text for message in request.messages)]


def test_blocks_are_in_the_prompt_and_an_edit_of_the_agent_from_its_next_step_on(tmp_path: Path, clock: FakeClock) -> None:
    """M15, S19: and nothing that was sent before changes by a byte."""
    with service_at(tmp_path, clock, mode="tool", blocks=BLOCKS) as service:
        steps = [
            "Hello.",
            [call("memory_write_block", {"name": "persona", "text": "A strict examiner."})],
            [call("memory_search", {"query": "anything"})],
            "Done.",
            "Bye.",
        ]
        agent, model = agent_of(MemoryMiddleware(service, clock=clock), steps=steps)
        for number, said in enumerate(("Hello", "Be strict from now on", "Bye")):
            agent.invoke({"messages": [HumanMessage(said, id=f"h{number}")]}, config("t"))
        first, before, after, later, last = model.requests
    assert '<block name="persona" access="up to 20 tokens">\nwho you are\nA patient tutor.\n</block>' in first.system
    assert '<block name="rules" access="read-only">\nBe brief.\n</block>' in first.system
    assert not any("examiner" in text for text in texts_of(before))
    assert "A strict examiner." in after.messages[-1].text, "the very next step"
    assert "Be brief." not in after.messages[-1].text, "what did not change is not said again"
    assert sum("A strict examiner." in text for text in texts_of(last)) == 1, "once, and it stays where it is"
    for earlier, newer in pairwise((first, before, after, later, last)):
        old, new = [m.content for m in earlier.messages], [m.content for m in newer.messages]
        assert (newer.system, new[: len(old)]) == (earlier.system, old)


def test_a_block_that_somebody_else_wrote_is_told_with_the_next_message(tmp_path: Path, clock: FakeClock) -> None:
    """M15, S19"""
    with service_at(tmp_path, clock, mode="tool", blocks=BLOCKS) as service:
        agent, model = agent_of(MemoryMiddleware(service, clock=clock))
        agent.invoke({"messages": [HumanMessage("Hello")]}, config("t"))
        service.write_block("persona", "A strict examiner.", by="user")
        agent.invoke({"messages": [HumanMessage("And now?")]}, config("t"))
        agent.invoke({"messages": [HumanMessage("Still?")]}, config("t"))
        other, fresh = agent_of(MemoryMiddleware(service, clock=clock))
        other.invoke({"messages": [HumanMessage("Hello")]}, config("u"))
    assert "patient" in model.requests[-1].system
    (told,) = [message.text for message in model.requests[-1].messages if "A strict examiner." in message.text]
    assert told.endswith("And now?")
    assert "A strict examiner." in fresh.requests[0].system


def test_blocks_are_shown_within_their_limit_and_only_where_memory_is(tmp_path: Path, clock: FakeClock) -> None:
    """M15, M1: a text in the configuration may be longer than its own limit."""
    long = {"notes": Block(text="word " * 100, max_tokens=10)}
    with service_at(tmp_path, clock, mode="tool", blocks=long) as service:
        agent, model = agent_of(MemoryMiddleware(service, clock=clock))
        agent.invoke({"messages": [HumanMessage("Hello")]}, config("t"))
        assert 5 <= model.requests[0].system.count("word") <= 10
    for off in ({"enabled": False}, {"injection_enabled": False}):
        with service_at(tmp_path, clock, blocks=BLOCKS, **off) as service:
            agent, model = agent_of(MemoryMiddleware(service, clock=clock))
            agent.invoke({"messages": [HumanMessage("Hello")]}, config("t"))
            assert "<blocks>" not in model.requests[0].system
    with service_at(tmp_path, clock, blocks=BLOCKS) as service:  # learning by the queue: the agent has no tool to write a block
        agent, model = agent_of(MemoryMiddleware(service, clock=clock))
        agent.invoke({"messages": [HumanMessage("Hello")]}, config("t"))
        assert '<block name="persona" access="read-only">' in model.requests[0].system


def test_three_middlewares_and_two_services_on_one_store_have_one_worker(tmp_path: Path) -> None:
    """M8: and when the one that has the thread is closed, another goes on."""

    def workers() -> int:
        return sum(thread.name == "holdfast-memory" for thread in threading.enumerate()) - before

    before = sum(thread.name == "holdfast-memory" for thread in threading.enumerate())
    learned, bus = threading.Event(), Bus()
    bus.subscribe(lambda event: learned.set() if isinstance(event, MemoryPersisted) else None)
    first, second = (MemoryService.at(tmp_path, settings=Memory(debounce_seconds=0), bus=bus) for _ in range(2))
    middlewares = [MemoryMiddleware(first), MemoryMiddleware(first), MemoryMiddleware(second)]
    agents = [agent_of(middleware)[0] for middleware in middlewares]
    for number, agent in enumerate(agents):
        agent.invoke({"messages": [HumanMessage("Hello")]}, config(f"t{number}"))
    assert workers() == 1
    first.close()
    assert workers() == 1
    agents[2].invoke({"messages": [HumanMessage("I prefer Emacs.")]}, config("new"))
    assert learned.wait(240)
    second.close()
    assert workers() == 0


def test_without_a_service_all_middlewares_of_a_process_share_one_and_need_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P2, M8, S14: the model that extracts is made when something is learned, not before."""
    (tmp_path / "config.yaml").write_text("models: [{name: gone, use: 'no_such_package:Chat', model: x}]\nmemory: {debounce_seconds: 0}\n")
    monkeypatch.chdir(tmp_path)
    for name in ("HOLDFAST_CONFIG", "HOLDFAST_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOLDFAST_CONFIG", str(tmp_path / "config.yaml"))
    one, other = MemoryMiddleware(), MemoryMiddleware(agent="coder")
    assert one.service is other.service
    failed = threading.Event()
    leave = one.service.store.bus.subscribe(lambda event: failed.set() if event.kind() == "update_failed" else None)
    agent, model = agent_of(one)
    agent.invoke({"messages": [HumanMessage("I prefer Emacs.")]}, config("t"))
    assert len(model.requests) == 1
    assert failed.wait(240), "and that it cannot be made is said then"
    leave()
    (item,) = one.service.queue.items()
    assert "'gone'" in str(item.error)
    shared = one.service
    shared.close(0.0)
    assert one.service is other.service, "what somebody closed is opened anew by the next call"
    assert one.service is not shared
    assert len(one.service.queue.items()) == 1
    one.service.close(0.0)


def injected(system: str, tag: str) -> str:
    return system[system.index(f"<{tag}>") : system.index(f"</{tag}>") + len(tag) + 3]


@pytest.mark.parametrize(("window", "most"), [(8_000, 500), (32_000, 2_000), (200_000, 2_000)])
def test_memory_and_blocks_in_the_prompt_keep_to_the_share_of_the_window(tmp_path: Path, clock: FakeClock, window: int, most: int) -> None:
    """T4, M12, M15: the smaller of the window's share and `max_injection_tokens`; what was cut can be read in full."""
    blocks = {f"b{number}": Block(text="A sentence that is kept. " * 200, max_tokens=1_500) for number in range(4)}
    with service_at(tmp_path, clock, mode="tool", blocks=blocks) as service:
        for number in range(90):
            service.add(f"User keeps the printed report number {number} in the green cupboard beside the window of the second office")
        model = ScriptedModel([[call("memory_read_block", {"name": "b3"})], "Done."], profile={"max_input_tokens": window})
        agent: Any = create_agent(model, [], middleware=[MemoryMiddleware(service, clock=clock)], checkpointer=InMemorySaver())
        state = agent.invoke({"messages": [HumanMessage("Hello")]}, config("t"))
        system, count = model.requests[0].system, service.counter.count_text
    assert most * 0.9 < count(injected(system, "memory")) <= most
    assert most * 0.8 < count(injected(system, "blocks")) <= most
    assert all(f'<block name="b{number}"' in system for number in range(4)), "each is named, whatever fits of it"
    assert "memory_read_block" in injected(system, "blocks")
    assert state["messages"][-2].text.count("A sentence that is kept.") == 200


def test_a_sub_agent_is_shown_blocks_that_it_can_read_and_not_write(tmp_path: Path, clock: FakeClock) -> None:
    """M15, A2"""
    with service_at(tmp_path, clock, mode="tool", blocks=BLOCKS) as service:
        middleware = MemoryMiddleware(service, clock=clock, learn=False)
        agent, model = agent_of(middleware)
        agent.invoke({"messages": [HumanMessage("Hello")]}, config("t"))
    assert set(model.requests[0].tool_names) == {"memory_search", "memory_read_block"}
    assert '<block name="persona" access="read-only">' in model.requests[0].system


async def test_an_edit_is_seen_at_the_next_step_also_async_and_beside_other_calls(tmp_path: Path, clock: FakeClock) -> None:
    """M15"""
    with service_at(tmp_path, clock, mode="tool", blocks=BLOCKS) as service:
        edit = call("memory_write_block", {"name": "persona", "text": "A strict examiner."})
        steps = [[call("memory_search", {"query": "x"}), edit, call("memory_read_block", {"name": "rules"})], "Done."]
        agent, model = agent_of(MemoryMiddleware(service, clock=clock), steps=steps)
        await agent.ainvoke({"messages": [HumanMessage("Be strict")]}, config("t"))
    assert sum("A strict examiner." in text for text in texts_of(model.requests[1])) == 1
    assert "Be brief." in [message.text for message in model.requests[1].messages if message.type == "tool"][-1]


@pytest.mark.parametrize("thread", ["anna@example.com", "tenant/42/7", "x" * 400, "Büro 7\n"])
def test_any_thread_id_of_langgraph_is_learned_from(tmp_path: Path, clock: FakeClock, thread: str) -> None:
    """S16, M8"""
    with service_at(tmp_path, clock) as service:
        agent, _ = agent_of(MemoryMiddleware(service, clock=clock))
        agent.invoke({"messages": [HumanMessage("I use Emacs.")]}, config(thread))
        assert [item.thread for item in service.queue.items()] == [thread]
        service.flush()
        assert service.document().facts


async def test_what_leaves_is_queued_for_the_agent_of_the_request_and_not_on_the_loop(tmp_path: Path, clock: FakeClock) -> None:
    """S18, S16, M3"""
    threads: list[str] = []
    with service_at(tmp_path, clock) as service:
        memory = MemoryMiddleware(service, clock=clock)

        def leaving(thread: str, messages: Any) -> None:
            threads.append(threading.current_thread().name)
            memory.leaving(thread, messages)

        window = SummarizationMiddleware(trigger=("messages", 8), keep=("messages", 2), archive=MemoryArchive(), on_leave=[leaving])
        agent, _ = agent_of(memory, window)
        history: list[Any] = [m for n in range(6) for m in (HumanMessage(f"I bought lamp {n}."), AIMessage("Fine."))]
        settings: Any = {"configurable": {"thread_id": "t", "agent_name": "coder"}}
        await agent.ainvoke({"messages": [*history, HumanMessage("And now?")]}, settings)
        assert {item.agent for item in service.queue.items()} == {"coder"}
        assert "I bought lamp 2." in [turn.text for item in service.queue.items() for turn in item.turns]
    assert threads
    assert threading.main_thread().name not in threads


def offered(request: Any) -> list[str]:
    return sorted(request.tool_names)


async def test_making_and_using_it_without_a_service_blocks_no_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S16, M3: not even its constructor looks at a file; outside the mode `tool` its tools are neither offered nor obeyed."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    with blockbuster_ctx():
        memory = MemoryMiddleware()
        asked = ScriptedModel([[call("memory_add", {"content": "User keeps bees"})], "Done."], profile={"max_input_tokens": 8000})
        agent: Any = create_agent(asked, [look], middleware=[memory], checkpointer=InMemorySaver())
        state = await agent.ainvoke({"messages": [HumanMessage("Hello there.")]}, config("t"))
    assert [offered(request) for request in asked.requests] == [["look"], ["look"]]
    assert "Memory has no tools here" in str(state["messages"][-2].content)
    assert not memory.service.document().facts


def test_without_a_service_the_configuration_says_whether_it_has_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M3, M15: in the mode `tool` they are offered, those of blocks only where there are blocks."""
    (tmp_path / "config.yaml").write_text("memory: {mode: tool}\n")
    monkeypatch.setenv("HOLDFAST_CONFIG", str(tmp_path / "config.yaml"))
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    asked = ScriptedModel([[call("memory_add", {"content": "User keeps bees"})], "Done."], profile={"max_input_tokens": 8000})
    agent: Any = create_agent(asked, [], middleware=[memory := MemoryMiddleware()], checkpointer=InMemorySaver())
    agent.invoke({"messages": [HumanMessage("I keep bees.")]}, config("t"))
    assert offered(asked.requests[0]) == ["memory_add", "memory_remove", "memory_search", "memory_update"]
    assert ["bees" in fact.content for fact in memory.service.document().facts] == [True]
