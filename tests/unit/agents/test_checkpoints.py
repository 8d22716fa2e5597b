"""A14: checkpoints that stay few, and of which every one that is left can still be read."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import StateGraph
from langgraph.types import Command, Interrupt, Overwrite, Send, interrupt

from holdfast.agents.checkpoints import FORGOTTEN, Checkpoints, _scrubbed, open_checkpoints
from holdfast.agents.middleware.base import LeadState, merge_artifacts, merge_images
from holdfast.errors import Damaged
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import repeat
from holdfast.text.needle import Needle

CONFIG: Any = {"configurable": {"thread_id": "t"}}


def agent_on(checkpoints: Checkpoints, schema: type[Any] | None = LeadState) -> Any:
    model: Any = ScriptedModel([repeat("fine")], profile={"max_input_tokens": 8000})
    return create_agent(model, [], checkpointer=checkpoints, state_schema=schema)


@pytest.mark.parametrize("schema", [LeadState, None])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_old_checkpoints_go_and_every_one_that_is_left_can_be_read(tmp_path: Path, schema: Any, asynchronous: bool) -> None:
    checkpoints = open_checkpoints(tmp_path)
    agent = agent_on(checkpoints, schema)

    async def talk() -> None:
        for number in range(60):
            await agent.ainvoke({"messages": [HumanMessage(f"q{number}", id=f"q{number}")]}, CONFIG, durability="sync")

    if asynchronous:
        asyncio.run(talk())
    else:
        for number in range(60):
            agent.invoke({"messages": [HumanMessage(f"q{number}", id=f"q{number}")]}, CONFIG, durability="sync")
    rows = checkpoints.rows("t")
    assert 12 <= rows < 80, "60 turns wrote 180"
    seen = [[message.text for message in state.values.get("messages", [])] for state in agent.get_state_history(CONFIG)]
    assert len(seen) == rows
    expected = [text for number in range(60) for text in (f"q{number}", "fine")]
    for texts in seen:
        assert texts == expected[: len(texts)], "a checkpoint that is left is whole"
        assert texts
    assert len(seen[0]) == 120
    checkpoints.close()
    again = open_checkpoints(tmp_path)
    assert len(agent_on(again, schema).get_state(CONFIG).values["messages"]) == 120
    again.close()


def test_threads_that_wait_for_a_person_are_named(tmp_path: Path) -> None:
    """O3, A14: the one that asks now, not one that was answered."""

    def ask(state: Any) -> dict[str, Any]:
        return {"messages": [HumanMessage(interrupt("may I?"))]}

    with closing(open_checkpoints(tmp_path)) as checkpoints:
        graph: Any = StateGraph(LeadState)
        made = graph.add_node("ask", ask).set_entry_point("ask").compile(checkpointer=checkpoints)
        other: Any = {"configurable": {"thread_id": "other"}}
        for config in (CONFIG, other):
            made.invoke({"messages": []}, config)
        assert checkpoints.waiting() == ["other", "t"]
        made.invoke(Command(resume="yes"), other)
        assert checkpoints.waiting() == ["t"]


def test_threads_are_apart_and_deleting_gives_the_space_back(tmp_path: Path) -> None:
    checkpoints = open_checkpoints(tmp_path)
    agent = agent_on(checkpoints)
    for thread in ("a", "b"):
        settings: Any = {"configurable": {"thread_id": thread}}
        agent.invoke({"messages": [HumanMessage(thread * 400_000)]}, settings, durability="sync")
    before = (tmp_path / "checkpoints.db").stat().st_size
    assert checkpoints.threads() == ["a", "b"]
    checkpoints.delete_thread("a")
    assert checkpoints.threads() == ["b"]
    assert (tmp_path / "checkpoints.db").stat().st_size < before
    checkpoints.close()
    assert b"a" * 1000 not in (tmp_path / "checkpoints.db").read_bytes()


def test_commits_survive_a_power_cut(tmp_path: Path) -> None:
    checkpoints = open_checkpoints(tmp_path)
    assert checkpoints.conn.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert checkpoints.conn.execute("PRAGMA synchronous").fetchone() == (2,)
    checkpoints.close()


def test_a_file_that_is_no_database_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "checkpoints.db").write_text("no database " * 100)
    with pytest.raises(Damaged):
        open_checkpoints(tmp_path)


def damaged(data: bytes, how: str, rng: random.Random) -> bytes:
    """The file with one page of noise, or with letters changed here and there, but for its first page."""
    changed = bytearray(data)
    if how == "a page":
        page = rng.randrange(1, len(data) // 4096) * 4096
        changed[page : page + 4096] = rng.randbytes(4096)
    else:
        for _ in range(100):
            changed[rng.randrange(4096, len(data))] = rng.randrange(256)
    return bytes(changed)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("how", ["a page", "letters"])
def test_a_damaged_file_is_read_or_said_to_be_damaged(how: str, seed: int, tmp_path: Path) -> None:
    """A14, P1: never an error of SQLite, of a decoder or of LangGraph."""
    with closing(open_checkpoints(tmp_path)) as checkpoints:
        for number in range(6):
            agent_on(checkpoints).invoke({"messages": [HumanMessage(f"{number} " + "x" * 900)]}, CONFIG)
    file = tmp_path / "checkpoints.db"
    file.write_bytes(damaged(file.read_bytes(), how, random.Random(seed)))
    try:
        with closing(open_checkpoints(tmp_path)) as checkpoints:
            asyncio.run(agent_on(checkpoints).ainvoke({"messages": [HumanMessage("more")]}, CONFIG))
            list(checkpoints.list(CONFIG))
    except Damaged as error:
        assert str(file) in str(error)


def test_a_write_of_several_values_is_all_or_nothing(tmp_path: Path) -> None:
    """Two rows in one `put_writes`: a reader never sees one of them."""
    checkpoints = open_checkpoints(tmp_path)
    place: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "1"}}
    with pytest.raises(TypeError):
        checkpoints.put_writes(place, [("a", 1), ("b", object())], "task")
    with sqlite3.connect(tmp_path / "checkpoints.db") as other:
        assert other.execute("SELECT count(*) FROM writes").fetchone() == (0,)
    other.close()
    checkpoints.close()


def test_forgetting_reaches_every_form_in_which_a_text_can_stand() -> None:
    """M14"""
    held = {
        "a": ["the secret word", ("x", "secret")],
        "m": AIMessage("secret", tool_calls=[{"name": "n", "args": {"q": "secret"}, "id": "1"}], additional_kwargs={"k": "secret"}),
        "o": Overwrite([HumanMessage("secret")]),
        "s": Send("tools", [{"args": "secret"}]),
        "i": Interrupt({"args": "secret"}, id="1"),
        "n": 7,
    }
    assert "secret" not in repr(_scrubbed(held, Needle("secret")))
    assert _scrubbed(held, Needle("secret"))["a"] == [FORGOTTEN, ("x", FORGOTTEN)]


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abcd")))
def test_artifacts_are_merged_without_doubles(known: list[str], new: list[str]) -> None:
    """A5"""
    merged = merge_artifacts(known, new)
    assert len(merged) == len(set(merged))
    assert set(merged) == {*known, *new}
    assert merge_artifacts(merged, new) == merged


def test_of_viewed_images_the_newest_stay() -> None:
    many = merge_images({}, {str(number): 1 for number in range(60)})
    assert len(many) == 50
    assert merge_images(many, {}) == {}
