"""A11, S10: a result that is too long goes to a file and to the archive; head, tail and reference take its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.agents.middleware.tool_calls import ToolOutputMiddleware
from holdfast.context.archive import FileArchive
from holdfast.context.compaction import FileOutputs
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import call, repeat
from holdfast.tokens.counter import open_counter

COUNT = open_counter()
PAGE = "HEAD " + "".join(f"Line {n} of the report says that nothing happened.\n" for n in range(2000)) + "TAIL"


@tool
def fetch(name: str) -> str:
    """Fetch a page."""
    return PAGE if name == "long" else "short"


@tool
def read_file(name: str) -> str:
    """Read a file, page by page."""
    return PAGE


def agent_of(base: Path, *steps: Any) -> tuple[Any, ScriptedModel, FileArchive]:
    archive, outputs = FileArchive(base), FileOutputs(base)
    model = ScriptedModel([*steps, repeat("done")], profile={"max_input_tokens": 100_000})
    middleware = [ToolOutputMiddleware(archive, outputs, limit=2000, keep=400), SummarizationMiddleware(archive=archive, outputs=outputs)]
    return create_agent(model, [fetch, read_file], middleware=middleware, checkpointer=InMemorySaver()), model, archive


CONFIG: Any = {"configurable": {"thread_id": "t"}}


def result_in(state: dict[str, Any]) -> ToolMessage:
    return next(message for message in state["messages"] if isinstance(message, ToolMessage))


def test_a_long_result_is_moved_and_can_be_read_whole(tmp_path: Path) -> None:
    agent, _, archive = agent_of(tmp_path, [call("fetch", {"name": "long"})])
    result = result_in(agent.invoke({"messages": [HumanMessage("go")]}, CONFIG))
    assert COUNT.count_message(result) <= 420
    assert result.text.startswith("HEAD")
    assert result.text.endswith("TAIL")
    place = next(word for word in result.text.split() if word.startswith("/mnt/user-data/outputs/moved/")).rstrip(".")
    on_disk = tmp_path / "threads/t/user-data/outputs/moved" / place.rsplit("/", 1)[1]
    assert on_disk.read_text("utf-8") == PAGE
    passage = archive.read("t", str(result.id))
    assert passage is not None
    assert passage.record.text == PAGE


async def test_the_same_when_awaited(tmp_path: Path) -> None:
    agent, _, _ = agent_of(tmp_path, [call("fetch", {"name": "long"})])
    result = result_in(await agent.ainvoke({"messages": [HumanMessage("go")]}, CONFIG))
    assert "/mnt/user-data/outputs/moved/" in result.text


def test_short_results_and_reading_tools_are_let_be(tmp_path: Path) -> None:
    agent, _, _ = agent_of(tmp_path, [call("fetch", {"name": "short"})])
    assert result_in(agent.invoke({"messages": [HumanMessage("go")]}, CONFIG)).text == "short"
    agent, _, _ = agent_of(tmp_path / "two", [call("read_file", {"name": "x"})])
    assert result_in(agent.invoke({"messages": [HumanMessage("go")]}, CONFIG)).text == PAGE
    assert not (tmp_path / "two/threads/t/user-data").exists()


def test_an_oversize_message_of_the_user_is_moved_to_a_file_too(tmp_path: Path) -> None:
    """S10"""
    archive, outputs = FileArchive(tmp_path), FileOutputs(tmp_path)
    model = ScriptedModel([repeat("done")], profile={"max_input_tokens": 8000})
    agent: Any = create_agent(
        model, [], middleware=[SummarizationMiddleware(archive=archive, outputs=outputs)], checkpointer=InMemorySaver()
    )
    agent.invoke({"messages": [HumanMessage(PAGE, id="../odd id")]}, CONFIG)
    (sent,) = model.requests[0].messages
    assert "/mnt/user-data/outputs/moved/" in sent.text
    (file,) = (tmp_path / "threads/t/user-data/outputs/moved").iterdir()
    assert file.read_text("utf-8") == PAGE


def test_no_thread_leads_out(tmp_path: Path) -> None:
    """A11, S16: any id is a thread, and its files are below its own folder."""
    outputs = FileOutputs(tmp_path / "base")
    assert outputs.keep("../x", "id", "text") == "/mnt/user-data/outputs/moved/id.txt"
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert file == outputs.folder("../x") / "moved/id.txt"
    assert file.is_relative_to(tmp_path / "base/threads")
