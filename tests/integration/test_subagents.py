"""A2-A8, O2: sub-agents run apart, several at once, and end in a typed result whatever happens; the parent is unharmed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from tests.unit.agents.bench import asked_by, is_subagent_call, lead, look, make, scripted, whole

from holdfast.agents.lead import LeadAgent
from holdfast.agents.subagents import SubagentResult, Task
from holdfast.agents.threads import prune_subagents
from holdfast.events import Bus, line_of
from holdfast.talk import Ended, Subagent
from holdfast.testing.clock import FakeClock
from holdfast.testing.script import Request, call, delay, raises, reply

LIMITS = {"max_concurrent": 4, "max_turns": 6, "max_tokens": 6_000, "timeout_seconds": 240}
TEST_IS_OVER = threading.Event()


def delegate(*kinds: str) -> list[Any]:
    return [call("task", {"description": f"do {kind}", "prompt": kind}, id=f"call-{number}") for number, kind in enumerate(kinds)]


def results(agent: LeadAgent, thread: str = "t") -> dict[str, dict[str, Any]]:
    messages = agent.conversation(thread).messages
    return {message.tool_call_id: message.artifact for message in messages if isinstance(message, ToolMessage) and message.name == "task"}


class Crowd:
    """Counts how many sub-agents are asking their model at once."""

    def __init__(self) -> None:
        self.lock, self.now, self.most, self.all = threading.Lock(), 0, 0, 0

    def __call__(self, event: dict[str, Any]) -> None:
        with self.lock:
            if event["type"] == "task_started":
                self.now, self.all = self.now + 1, self.all + 1
                self.most = max(self.most, self.now)
            elif event["type"] != "task_running":
                self.now -= 1


def test_forty_run_four_at_once_and_all_finish(tmp_path: Path) -> None:
    """A7"""
    model = scripted(
        lambda request: delay(0.01, [call("look", {"what": "x"})]) if len(request.messages) == 2 else f"done {asked_by(request)}"
    )
    crowd = Crowd()
    with lead(tmp_path, model, {"subagents": LIMITS}) as agent:
        kind = agent.registry.find("general-purpose")
        started = [agent.executor.start(Task(kind, f"part {n}", f"part {n}", 6, parent="t"), crowd) for n in range(40)]
        found = [one.result(240) for one in started]
    assert [one.status for one in found] == ["completed"] * 40
    assert [one.output for one in found] == [f"done part {n}" for n in range(40)], "each has its own answer"
    assert len({one.thread for one in found}) == 40
    assert crowd.all == 40
    assert crowd.most == 4, "as many as allowed, never more"


@tool
def sleep_for_ever() -> str:
    """Blocks until the test is over."""
    TEST_IS_OVER.wait(240)
    return "woke up"


def behave(request: Request) -> Any:
    """What the model says: the parent hands out tasks, and each sub-agent misbehaves in its own way."""
    turn = len(request.messages)
    if not is_subagent_call(request):
        if request.messages[-1].type == "human":
            return delegate("fine", "raise", "circle", "wander", "spend")
        return "All of them are back."
    kind = asked_by(request)
    if kind == "fine":
        return [call("make", {"name": "report.md"})] if turn == 2 else "CANARY-FINE is done"
    if kind == "raise":
        return reply("CANARY-RAISE half of it", call("look", {"what": "a"})) if turn == 2 else raises(RuntimeError("it broke"))
    if kind == "circle":
        return reply("CANARY-CIRCLE again", call("look", {"what": "the same"}))
    if kind == "wander":
        return reply(f"CANARY-WANDER step {turn}", call("look", {"what": f"place {turn}"}))
    if kind == "spend":
        return reply(
            "CANARY-SPEND bought",
            call("look", {"what": f"{turn}"}),
            usage={"input_tokens": 5_000, "output_tokens": 50, "total_tokens": 5_050},
        )
    return reply("CANARY-SLEEP tired", call("make", {"name": "bed.md"})) if turn == 2 else [call("sleep_for_ever")]


def test_each_way_to_end_is_a_typed_result_with_the_work_so_far_and_the_parent_goes_on(tmp_path: Path) -> None:
    """A4, A5, A7"""
    model = scripted(behave)
    settings = {"subagents": {**LIMITS, "max_concurrent": 6}}
    with lead(tmp_path, model, settings, [look, make, sleep_for_ever]) as agent:
        talk = agent.conversation("t")
        events = list(talk.send("Do five things"))
        found = results(agent)
        messages = talk.messages
    status = {kind: found[f"call-{n}"]["status"] for n, kind in enumerate(["fine", "raise", "circle", "wander", "spend"])}
    assert status == {"fine": "completed", "raise": "failed", "circle": "turn_capped", "wander": "turn_capped", "spend": "token_capped"}
    assert "it broke" in found["call-1"]["reason"]
    assert found["call-1"]["output"] == "CANARY-RAISE half of it", "a failure keeps the work so far"
    assert found["call-2"]["output"] == "CANARY-CIRCLE again"
    assert found["call-3"]["turns"] == 6
    assert found["call-4"]["tokens"] >= 6_000
    assert found["call-4"]["output"] == "CANARY-SPEND bought"
    end = events[-1]
    assert isinstance(end, Ended)
    assert (end.reason, end.text) == ("completed", "All of them are back.")
    assert [message.type for message in messages] == ["human", "ai", *["tool"] * 5, "ai"], "exactly the calls and the results"


def test_one_that_takes_too_long_is_stopped_and_keeps_its_files(tmp_path: Path) -> None:
    """A4, A7"""
    with lead(tmp_path / "usual", scripted(behave), {"subagents": LIMITS}, [look, make, sleep_for_ever]) as agent:
        usual = agent.executor.start(Task(agent.registry.find("general-purpose"), "fine", "fine", 6)).result(240)
    settings = {"subagents": {**LIMITS, "timeout_seconds": 1 + 20 * usual.seconds}}  # enough for its first turn, however slow the machine
    with lead(tmp_path, scripted(behave), settings, [look, make, sleep_for_ever]) as agent:
        kind = agent.registry.find("general-purpose")
        TEST_IS_OVER.clear()
        try:
            result = agent.executor.start(Task(kind, "sleep", "sleep", 6)).result(240)
        finally:
            TEST_IS_OVER.set()
    assert result.status == "timed_out"
    assert result.output == "CANARY-SLEEP tired"
    assert result.artifacts == ("bed.md",)
    assert result.seconds < 240, "nobody waited for the tool that blocks"


def test_one_that_is_cancelled_stops_at_once_also_while_it_waits(tmp_path: Path) -> None:
    """A4, A7"""
    model = scripted(lambda request: reply("so far", call("look", {"what": "a"})) if len(request.messages) == 2 else delay(60, "never"))
    with lead(tmp_path, model, {"subagents": {**LIMITS, "max_concurrent": 1}}) as agent:
        kind = agent.registry.find("general-purpose")
        second_turn = threading.Event()
        first = agent.executor.start(Task(kind, "a", "a", 6), lambda event: second_turn.set() if event["type"] == "task_running" else None)
        waiting = agent.executor.start(Task(kind, "b", "b", 6))
        never = agent.executor.start(Task(kind, "c", "c", 6))
        never.cancel()
        waiting.cancel()
        assert waiting.result(240) == SubagentResult(waiting.id, waiting.thread, "cancelled", seconds=waiting.result().seconds)
        assert never.result(240).status == "cancelled"
        assert second_turn.wait(240)
        first.cancel()
        result = first.result(240)
        assert agent.executor.running() == []
    assert (result.status, result.output) == ("cancelled", "so far")


def test_what_a_sub_agent_saw_never_reaches_the_parents_prompt(tmp_path: Path) -> None:
    """A3: the parent's messages grow by the call and the result, its prompt by nothing else."""

    def script(request: Request) -> Any:
        if not is_subagent_call(request):
            return delegate("explore") if request.messages[-1].type == "human" else "thanks"
        return reply("CANARY words", call("look", {"what": "CANARY"})) if len(request.messages) < 6 else "The answer is 7."

    model = scripted(script)
    with lead(tmp_path, model) as agent:
        talk = agent.conversation("t")
        assert talk.ask("Find out") == "thanks"
        parents = [request for request in model.requests if not is_subagent_call(request)]
        assert "The answer is 7." in parents[1].text
        assert not any("CANARY" in request.text for request in parents)
        subs = [request for request in model.requests if is_subagent_call(request)]
        assert subs
        assert not any("Find out" in request.text for request in subs), "nothing of the parent's conversation is there either"
        assert not any({"task", "ask_clarification"} & set(request.tool_names) for request in subs)
        assert all({"look", "write_todos"} <= set(request.tool_names) for request in subs)


def test_its_history_can_be_read_afterwards(tmp_path: Path) -> None:
    """A3, S9"""
    model = scripted(lambda request: [call("look", {"what": "the red door"})] if len(request.messages) == 2 else "It was red.")
    with lead(tmp_path, model) as agent:
        kind = agent.registry.find("general-purpose")
        result = agent.executor.start(Task(kind, "a", "Which colour?", 6, parent="t")).result(240)
        said = agent.parts.archive.messages(result.thread)
        assert [record.role for record in said] == ["human", "ai", "tool", "ai"]
        assert agent.parts.archive.search(result.thread, "red door")
        assert agent.parts.threads.find(result.thread).parent == "t"  # type: ignore[union-attr]
        assert [info.id for info in agent.parts.threads.all()] == [], "it is not among the conversations"
    assert result.thread.startswith("subagent-")


def test_artifacts_arrive_once_and_in_order(tmp_path: Path) -> None:
    """A5"""

    def script(request: Request) -> Any:
        if not is_subagent_call(request):
            return [*delegate("one", "two"), call("make", {"name": "a.md"}, id="own")] if request.messages[-1].type == "human" else "ok"
        return [call("make", {"name": "a.md"}), call("make", {"name": f"{asked_by(request)}.md"})] if len(request.messages) == 2 else "made"

    with lead(tmp_path, scripted(script), tools=[look, make]) as agent:
        talk = agent.conversation("t")
        events = list(talk.send("Make files"))
        assert sorted(talk.state["artifacts"]) == ["a.md", "one.md", "two.md"]
    end = events[-1]
    assert isinstance(end, Ended)
    assert sorted(end.artifacts) == ["a.md", "one.md", "two.md"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_events_come_without_polling_and_as_log_lines(tmp_path: Path, asynchronous: bool) -> None:
    """A6, O2"""

    def script(request: Request) -> Any:
        if not is_subagent_call(request):
            return delegate("count") if request.messages[-1].type == "human" else "ok"
        return [call("make", {"name": "n.md"})] if len(request.messages) == 2 else "counted"

    bus = Bus()
    with bus.collect() as seen, lead(tmp_path, scripted(script), tools=[make], bus=bus) as agent:
        talk = agent.conversation("t")

        async def heard() -> list[Any]:
            return [event async for event in talk.asend("Count")]

        events = asyncio.run(heard()) if asynchronous else list(talk.send("Count"))
    told = [event.event for event in events if isinstance(event, Subagent)]
    assert [event["type"] for event in told] == ["task_started", "task_running", "task_running", "task_completed"]
    assert told[-1]["stop_reason"] == "completed"
    assert told[0]["call"] == "call-0"
    lines = [line_of(event) for event in seen if event.component == "SubagentExecutor"]
    thread = told[0]["thread"]
    assert lines == [
        '[SubagentExecutor] Starting task: "do count"',
        f"[SubagentExecutor] Isolated thread: {thread}",
        "[SubagentExecutor] Turn 1/20 completed",
        "[SubagentExecutor] Turn 2/20 completed",
        "[SubagentExecutor] Task completed after 2 turns",
        '[SubagentExecutor] Final output: "counted"',
        "[SubagentExecutor] Artifacts: [n.md]",
    ]


def test_a_sub_agent_reads_its_own_memory_and_queues_none(tmp_path: Path) -> None:
    """A2, M3"""

    def script(request: Request) -> Any:
        if not is_subagent_call(request):
            return delegate("I live in Ghent and I prefer tea.") if request.messages[-1].type == "human" else "ok"
        return "noted"

    model = scripted(script)
    with lead(tmp_path, model) as agent:
        agent.parts.memory.add("User likes long walks", agent="general-purpose")
        list(agent.conversation("t").send("Hello"))
        subs = [request for request in model.requests if is_subagent_call(request)]
        assert "likes long walks" in subs[0].system
        queued = {item.thread for item in agent.parts.memory.queue.items()}
        assert queued == {"t"}


def test_custom_types_have_their_own_prompt_tools_model_and_turns(tmp_path: Path) -> None:
    """A2"""
    own = scripted(lambda request: reply("turn", call("look", {"what": str(len(request.messages))})), model_name="small")
    custom = {"reviewer": {"description": "Reviews.", "system_prompt": "You review.", "tools": ["look"], "model": "small", "max_turns": 2}}
    values = {"subagents": {"custom_agents": custom}}
    parent = scripted([[call("task", {"description": "d", "prompt": "p", "subagent_type": "reviewer", "max_turns": 50})], "ok"])
    with lead(tmp_path, parent, values, [look, make], models={"small": own}) as agent:
        list(agent.conversation("t").send("Go"))
        result = next(iter(results(agent).values()))
    assert (result["status"], result["turns"]) == ("turn_capped", 2), "the settings of the type hold, whatever the call asks for"
    assert own.requests[0].system.startswith("You review.")
    assert "look" in own.requests[0].tool_names
    assert "make" not in own.requests[0].tool_names
    assert "reviewer: Reviews." in parent.requests[0].system


def test_a_type_that_does_not_exist_is_told_to_the_model(tmp_path: Path) -> None:
    """A2, A4"""
    model = scripted([[call("task", {"description": "d", "prompt": "p", "subagent_type": "reserch"})], "sorry"])
    with lead(tmp_path, model) as agent:
        assert agent.conversation("t").ask("Go") == "sorry"
    told = model.requests[1].last
    assert isinstance(told, ToolMessage)
    assert told.status == "error"
    assert "general-purpose" in told.text


def test_cancelling_the_parent_stops_its_sub_agents(tmp_path: Path) -> None:
    """A7, A14"""
    model = scripted(lambda request: delay(60, "never") if is_subagent_call(request) else delegate("a", "b"))
    with lead(tmp_path, model) as agent:
        talk = agent.conversation("t")
        for event in talk.send("Go"):
            if isinstance(event, Subagent) and event.event["type"] == "task_started":
                break  # leaving the loop cancels the turn
        waited = time.monotonic() + 240
        while agent.executor.running() and time.monotonic() < waited:
            time.sleep(0.01)
        assert agent.executor.running() == []
        model.script._every = lambda request: "here again"
        assert talk.ask("Still there?") == "here again"
    assert whole(model.requests[-1].messages[1:])


def test_old_threads_are_pruned(tmp_path: Path) -> None:
    """A8"""
    clock = FakeClock()
    with lead(tmp_path, scripted(lambda request: "ok"), clock=clock) as agent:
        kind = agent.registry.find("general-purpose")
        parts = agent.parts
        old = agent.executor.start(Task(kind, "a", "a", 6)).result(240)
        agent.conversation("kept").ask("Hello")
        clock.advance(timedelta(days=31).total_seconds())
        new = agent.executor.start(Task(kind, "b", "b", 6)).result(240)
        assert prune_subagents(parts.threads, parts.archive, retain_days=30, now=clock.now()) == [old.thread]
        assert parts.checkpoints.threads() == sorted(["kept", new.thread])
        assert not (tmp_path / "threads" / old.thread).exists()
        assert parts.archive.messages(new.thread)


def test_they_are_pruned_when_an_agent_is_made(tmp_path: Path) -> None:
    """A8"""
    clock = FakeClock()
    model = scripted(lambda request: "ok")
    with lead(tmp_path, model, clock=clock) as agent:
        agent.executor.start(Task(agent.registry.find("general-purpose"), "a", "a", 6)).result(240)
    with lead(tmp_path, model, clock=clock) as agent:
        assert len(agent.parts.checkpoints.threads()) == 1
    clock.advance(timedelta(days=31).total_seconds())
    with lead(tmp_path, model, clock=clock) as agent:
        assert agent.parts.checkpoints.threads() == []


def test_who_uses_the_graph_itself_gets_the_same(tmp_path: Path) -> None:
    """A4: sync, without a conversation around it, and in the parent's custom stream."""
    model = scripted(lambda r: "sub" if is_subagent_call(r) else delegate("a", "b") if r.last.type == "human" else "ok")
    with lead(tmp_path, model) as agent:
        given: Any = {"messages": [{"role": "user", "content": "Go"}]}
        config: Any = {"configurable": {"thread_id": "t"}}
        told = [part["type"] for part in agent.graph.stream(given, config, stream_mode="custom", durability="sync")]
        found = results(agent)
    assert Counter(told) == {"task_started": 2, "task_running": 2, "task_completed": 2}
    assert [one["output"] for one in found.values()] == ["sub", "sub"]


def test_a_tool_that_needs_approval_is_refused_in_a_sub_agent(tmp_path: Path) -> None:
    """A10: nobody is there who could be asked."""
    model = scripted(lambda request: [call("look", {"what": "a"})] if len(request.messages) == 2 else str(request.last.content))
    with lead(tmp_path, model, {"sandbox": {"approve": ["look"]}}) as agent:
        result = agent.executor.start(Task(agent.registry.find("general-purpose"), "a", "a", 6)).result(240)
    assert result.output.startswith("Not run: it needs the user's approval")


@pytest.fixture(autouse=True)
def _no_thread_is_left_behind() -> Iterator[None]:
    before = {thread.name for thread in threading.enumerate() if thread.name == "holdfast-agents"}
    yield
    assert {thread.name for thread in threading.enumerate() if thread.name == "holdfast-agents"} == before
