"""S5, S10: what a tool gave stays until the model has seen it, however full the window is; else it would ask for the same again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from tests.unit.context.test_context_parts import items

from holdfast import SummarizationMiddleware
from holdfast.agents.lead import make_lead_agent
from holdfast.config.loading import config_from_values
from holdfast.context.archive import MemoryArchive
from holdfast.context.planner import Floors, Policy, plan_compaction
from holdfast.context.view import groups
from holdfast.errors import BudgetError
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import Request, call
from holdfast.tokens.counter import open_counter

COUNT = open_counter("exact")


def log_reader(ran: list[int], lines: int) -> BaseTool:
    @tool
    def read_log(n: int) -> str:
        """Read a log."""
        ran.append(n)
        return "\n".join(f"2026-01-0{n % 9 + 1} {i:06} worker {i % 7} handled {(i + n) * 31 % 9973} in {i % 400} ms" for i in range(lines))

    return read_log


def asks_once(logs: int) -> Any:
    """Like any model: it asks for the logs, and answers when it sees what they say."""

    def answer(request: Request) -> Any:
        return "done" if request.messages[-1].type == "tool" else [call("read_log", {"n": n}) for n in range(logs)]

    return answer


@pytest.mark.parametrize(("window", "logs", "lines"), [(8192, 6, 80), (4000, 6, 30), (16_000, 10, 80)])
def test_no_tool_runs_again_because_its_result_left_unread(window: int, logs: int, lines: int) -> None:
    ran: list[int] = []
    model = ScriptedModel(asks_once(logs), profile={"max_input_tokens": window})
    keep = SummarizationMiddleware(trigger=("fraction", 0.8), archive=MemoryArchive())
    agent = create_agent(model, [log_reader(ran, lines)], middleware=[keep], checkpointer=InMemorySaver())
    for turn in range(3):
        agent.invoke(
            {"messages": [HumanMessage(f"Which was slowest? ({turn})")]}, {"configurable": {"thread_id": "t"}, "recursion_limit": 40}
        )
    assert len(ran) == 3 * logs
    assert max(COUNT.count_messages(list(request.messages)) for request in model.requests) <= window


def test_the_lead_agent_answers_as_well(tmp_path: Path) -> None:
    ran: list[int] = []
    config = config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path)})
    model = ScriptedModel(asks_once(6), profile={"max_input_tokens": 8192})
    with make_lead_agent(config, model=model, tools=[log_reader(ran, 80)]) as agent:
        talk = agent.conversation("logs")
        answers = [talk.ask(f"Which was slowest? ({turn})") for turn in range(3)]
    assert answers == ["done"] * 3
    assert len(ran) == 18


@given(st.integers(1, 6), st.integers(10, 900), st.integers(1000, 3000))
def test_what_leaves_is_never_what_no_model_has_seen(results: int, tokens: int, cap: int) -> None:
    """Whatever fits when it is made smaller stays."""
    asked = [f"c{n}" for n in range(results)]
    view = items(*["h", "a"] * 10, "h", f"a:{','.join(asked)}", *(f"t:{one}" for one in asked), tokens=tokens)
    plan = plan_compaction(view, Policy(), window=2 * cap, cap=cap)
    assert plan is None or not set(range(21, len(view))) & set(plan.leave)


def test_calls_that_are_too_large_themselves_leave_as_before() -> None:
    """S10: arguments cannot be made smaller; the request has to fit."""
    view = [replace(one, tokens=5000) if one.calls else one for one in items("h", "h", "a:c1", "t:c1")]
    floors = Floors(summary=20, reference=lambda item: min(item.tokens, 4990))
    plan = plan_compaction(view, Policy(), window=2000, cap=1000, floors=floors)
    assert plan is not None
    assert plan.leave == (2, 3)
    with pytest.raises(BudgetError):
        plan_compaction(view[:3], Policy(), window=2000, cap=1000, floors=floors)  # it runs still


def test_the_newest_calls_are_held_until_somebody_answered() -> None:
    held = [group.indexes for group in groups(items("h", "a:c1", "t:c1", "a:c2,c3", "t:c2", "t:c3", "h")) if group.stays]
    assert held == [(0,), (3, 4, 5), (6,)]
    held = [group.indexes for group in groups(items("h", "a:c1", "t:c1", "a", "h")) if group.stays]
    assert held == [(0,), (4,)]
