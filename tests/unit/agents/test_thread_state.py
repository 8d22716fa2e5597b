"""A14: with `ThreadState` checkpoints hold what is new, and the thread is the same as without."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.sqlite import SqliteSaver

from holdfast.agents.checkpoints import ThreadState, merge_messages
from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.context.archive import MemoryArchive
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import repeat


def run(path: Path, schema: type[Any] | None, middleware: list[Any]) -> tuple[list[str], int]:
    model: Any = ScriptedModel([repeat("fine")], profile={"max_input_tokens": 8000})
    config: Any = {"configurable": {"thread_id": "t"}}
    for turn in range(8):  # a new agent and saver for each turn, as after a restart
        with SqliteSaver.from_conn_string(str(path)) as saver:
            agent: Any = create_agent(model, [], middleware=middleware, checkpointer=saver, state_schema=schema)
            new = [HumanMessage(f"question {turn}.{part} " + "word " * 200, id=f"q{turn}.{part}") for part in range(5)]
            agent.invoke({"messages": new}, config, durability="sync")
            texts = [m.text for m in agent.get_state(config).values["messages"]]
    database = sqlite3.connect(path)
    (size,) = database.execute("SELECT sum(length(checkpoint)) FROM checkpoints").fetchone()
    database.close()
    return texts, size


def test_the_thread_is_the_same_and_the_checkpoints_are_smaller(tmp_path: Path) -> None:
    plain, heavy = run(tmp_path / "plain", None, [])
    delta, light = run(tmp_path / "delta", ThreadState, [])
    assert delta == plain
    assert light < heavy / 5


def test_a_compaction_rewrites_the_thread_under_it(tmp_path: Path) -> None:
    def keep() -> list[Any]:
        return [SummarizationMiddleware(trigger=("tokens", 3000), keep=("messages", 4), archive=MemoryArchive())]

    plain, _ = run(tmp_path / "plain", None, keep())
    delta, _ = run(tmp_path / "delta", ThreadState, keep())
    assert delta == plain
    assert len(delta) < 20


messages = st.builds(lambda n, text: HumanMessage(text, id=f"m{n}"), st.integers(0, 5), st.text(max_size=3))
removals = st.builds(lambda n: RemoveMessage(id=f"m{n}"), st.integers(0, 5))


@given(st.lists(st.lists(messages, max_size=3), max_size=6), st.integers(0, 6))
def test_how_updates_are_batched_makes_no_difference(updates: list[list[Any]], cut: int) -> None:
    at_once = merge_messages([], updates)
    in_two = merge_messages(merge_messages([], updates[:cut]), updates[cut:])
    assert [(m.id, m.text) for m in at_once] == [(m.id, m.text) for m in in_two]


def test_removals_and_dicts_are_understood() -> None:
    known = merge_messages([], [[HumanMessage("a", id="1"), AIMessage("b", id="2")], [{"role": "user", "content": "c", "id": "3"}]])
    assert [m.id for m in merge_messages(known, [[RemoveMessage(id="2")]])] == ["1", "3"]
