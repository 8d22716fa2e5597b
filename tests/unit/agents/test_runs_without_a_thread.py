"""Runs that name no thread: none finds what another one said (S9, P1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from holdfast import SummarizationMiddleware
from holdfast.context.archive import FileArchive
from holdfast.testing.models import ScriptedModel

KEY = "The spare key of the boathouse hangs behind the blue fuse box."


def asks(query: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "search_history", "args": {"query": query}, "id": "c1"}])


def talk(about: str) -> list[Any]:
    said = [HumanMessage(f"{about} {number}: " + "and so we went on and on about the weather. " * 12) for number in range(12)]
    return [message for pair in zip(said, (AIMessage(f"Yes, {number}.") for number in range(12)), strict=True) for message in pair]


def found(state: dict[str, Any]) -> str:
    return " ".join(message.text for message in state["messages"] if isinstance(message, ToolMessage))


@pytest.mark.parametrize("config", [{}, {"configurable": {"thread_id": ""}}], ids=["none", "empty"])
@pytest.mark.parametrize("ids", [None, "1"], ids=["fresh", "everybody's"])
def test_calls_without_a_thread_share_nothing(tmp_path: Path, config: Any, ids: str | None) -> None:
    """S9: what one user said cannot be looked up by the next, also where the caller numbers the messages of each conversation."""
    middleware = SummarizationMiddleware(
        archive=FileArchive(tmp_path), window=1500, trigger=("tokens", 600), keep=("messages", 2), summarizer=lambda text: "They talked."
    )
    replies: list[str | AIMessage] = [asks("boathouse key"), "Found it.", asks("boathouse key"), "Nothing."]
    agent = create_agent(ScriptedModel(replies), tools=[], middleware=[middleware])
    said = [HumanMessage("Good day.", id=ids), HumanMessage(KEY), *talk("sea"), HumanMessage("Where is the key?")]
    mine = agent.invoke({"messages": said}, config)
    assert "blue fuse box" in found(mine)
    others = agent.invoke({"messages": [HumanMessage("Hello.", id=ids), *talk("land"), HumanMessage("Where is the key?")]}, config)
    assert found(others) and "blue fuse box" not in found(others)


def test_who_hands_the_messages_back_goes_on_in_the_same_conversation(tmp_path: Path) -> None:
    """S9: the summary that stands first now leads to what it stands for."""
    middleware = SummarizationMiddleware(
        archive=FileArchive(tmp_path), window=1500, trigger=("tokens", 600), keep=("messages", 2), summarizer=lambda text: "They talked."
    )
    agent = create_agent(ScriptedModel(["Noted.", asks("boathouse key"), "Found it."]), tools=[], middleware=[middleware])
    first = agent.invoke({"messages": [HumanMessage("Good day."), HumanMessage(KEY), *talk("sea"), HumanMessage("Thank you.")]})
    assert KEY not in " ".join(message.text for message in first["messages"])
    second = agent.invoke({"messages": [*first["messages"], HumanMessage("Where is the key?")]})
    assert "blue fuse box" in found(second)
