"""The tools of an agent work in the folders of its thread, in a real sandbox, and tell the model what went wrong (A5, A9, A10)."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool

from holdfast.agents.middleware.base import LeadState, RunContext, ThreadDataMiddleware
from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.agents.tools.toolset import ThreadSandboxes, ViewImagesMiddleware, open_sandboxes, open_tools
from holdfast.config.loading import config_from_values
from holdfast.config.sections import Config
from holdfast.context.archive import FileArchive
from holdfast.errors import ConfigError
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import call as scripted


def call(name: str, **arguments: Any) -> Any:
    return scripted(name, arguments)


def make_config(tmp_path: Path, **sections: Any) -> Config:
    values = {"models": [{"name": "m", "use": "x:Y", "model": "m", "supports_vision": True}], **sections}
    return config_from_values(values, environ={"HOLDFAST_HOME": str(tmp_path / "base")})


@pytest.fixture
def places(tmp_path: Path) -> Iterator[ThreadSandboxes]:
    opened = open_sandboxes(make_config(tmp_path))
    yield opened
    opened.close()


def agent_with(model: ScriptedModel, places: ThreadSandboxes, config: Config) -> Any:
    return create_agent(
        model,
        open_tools(config, places, commands=True),
        middleware=[ThreadDataMiddleware(), ViewImagesMiddleware(places)],
        state_schema=LeadState,
        context_schema=RunContext,
    )


def results(state: dict[str, Any]) -> list[ToolMessage]:
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


def run(agent: Any, thread: str = "t1", **context: Any) -> dict[str, Any]:
    found: dict[str, Any] = agent.invoke(
        {"messages": [HumanMessage("go")]}, {"configurable": {"thread_id": thread}}, context=RunContext(**context)
    )
    return found


def png(width: int = 2) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, 1, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\x00" + b"\xff\x00\x00" * width)) + chunk(b"IEND", b"")
    )


def test_files_are_written_read_changed_and_found(tmp_path: Path, places: ThreadSandboxes) -> None:
    script = [
        [call("write_file", path="notes/tide.md", content="High water at six.\nLow water at noon.\n")],
        [call("str_replace", path="notes/tide.md", old_str="six", new_str="seven")],
        [call("read_file", path="notes/tide.md", limit=1), call("grep", pattern="wa.er", include="*.md"), call("glob", pattern="**/*.md")],
        [call("ls", path="/mnt/user-data/workspace", depth=2)],
        "done",
    ]
    state = run(agent_with(ScriptedModel(script), places, make_config(tmp_path)))
    texts = [str(message.content) for message in results(state)]
    assert texts[0] == "/mnt/user-data/workspace/notes/tide.md has 38 bytes now."
    assert texts[1] == "Replaced once in notes/tide.md."
    assert texts[2].startswith("High water at seven.\n[The file goes on: read on with offset=2.]")
    assert "/mnt/user-data/workspace/notes/tide.md:1: High water at seven." in texts[3]
    assert texts[4] == "/mnt/user-data/workspace/notes/tide.md"
    assert "/mnt/user-data/workspace/notes/tide.md" in texts[5]
    assert (tmp_path / "base/threads/t1/user-data/workspace/notes/tide.md").read_text() == "High water at seven.\nLow water at noon.\n"


def test_a_search_gives_no_more_than_the_configuration_says(tmp_path: Path, places: ThreadSandboxes) -> None:
    """A10: `max_results` of glob and grep."""
    config = make_config(tmp_path, tools=[{"name": "grep", "max_results": 1}, {"name": "glob", "max_results": 2}, {"name": "write_file"}])
    files = [call("write_file", path=f"{name}.md", content="tide\ntide\ntide\n") for name in "abc"]
    script = [files, [call("grep", pattern="tide"), call("glob", pattern="**/*.md")], "done"]
    *_, grep, glob = results(run(agent_with(ScriptedModel(script), places, config)))
    assert str(grep.content).count(": tide") == 1
    assert str(glob.content).count(".md") == 2 and "more than 2" in str(glob.content)
    with pytest.raises(ConfigError, match=r"tools\[0\]\.max_results"):
        open_tools(make_config(tmp_path, tools=[{"name": "grep", "max_results": 0}]), places)


def test_a_path_that_leads_out_is_a_result_and_the_run_goes_on(tmp_path: Path, places: ThreadSandboxes) -> None:
    script = [
        [call("read_file", path="/etc/passwd"), call("write_file", path="../../x", content="y"), call("ls", path="/mnt/none")],
        "done",
    ]
    state = run(agent_with(ScriptedModel(script), places, make_config(tmp_path)))
    assert [message.status for message in results(state)] == ["error"] * 3
    assert all(str(message.content).startswith("Error: ") for message in results(state))
    assert state["messages"][-1].text == "done"
    assert not list(tmp_path.rglob("x"))


def test_a_command_runs_in_the_folders_that_the_file_tools_see(tmp_path: Path, places: ThreadSandboxes, bwrap: str) -> None:
    script = [
        [call("write_file", path="in.txt", content="3 4\n")],
        [call("bash", command="awk '{print $1 * $2}' in.txt | tee /mnt/user-data/outputs/out.txt; pwd; cat /etc/shadow")],
        [call("present_files", filepaths=["/mnt/user-data/outputs/out.txt"])],
        [call("present_files", filepaths=["/mnt/user-data/outputs/out.txt", "in.txt"])],
        "done",
    ]
    state = run(agent_with(ScriptedModel(script), places, make_config(tmp_path)))
    ran = str(results(state)[1].content)
    assert ran.startswith("12\n/mnt/user-data/workspace\n")
    assert "root:" not in ran
    assert state["artifacts"] == ["/mnt/user-data/outputs/out.txt"]
    assert results(state)[3].status == "error"


async def test_a_cancelled_run_stops_its_command(tmp_path: Path, places: ThreadSandboxes, bwrap: str) -> None:
    import asyncio

    mark = tmp_path / "base/threads/t1/user-data/workspace/mark"
    script = [[call("bash", command="touch mark; for i in $(seq 600); do sleep 0.1; done; touch survived")], "done"]
    agent = agent_with(ScriptedModel(script), places, make_config(tmp_path))
    work = asyncio.ensure_future(
        agent.ainvoke({"messages": [HumanMessage("go")]}, {"configurable": {"thread_id": "t1"}}, context=RunContext())
    )
    while not await asyncio.to_thread(mark.exists):
        assert not work.done()
        await asyncio.sleep(0.02)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    with places.named("t1") as sandbox:
        listed = await sandbox.arun("ps -e | grep -c seq; ls")
    assert "survived" not in listed.output


def test_a_sub_agent_works_in_the_files_of_its_parent(tmp_path: Path, places: ThreadSandboxes) -> None:
    script = [[call("write_file", path="a.txt", content="x")], "done"]
    run(agent_with(ScriptedModel(script), places, make_config(tmp_path)), "subagent-1", files="parent")
    assert (tmp_path / "base/threads/parent/user-data/workspace/a.txt").exists()
    assert not (tmp_path / "base/threads/subagent-1/user-data").exists()


def test_a_picture_is_sent_along_in_its_turn_and_is_not_in_the_state(tmp_path: Path, places: ThreadSandboxes) -> None:
    with places.named("t1") as sandbox:
        sandbox.files.write("red.png", png())
        sandbox.files.write("no.png", b"no picture")
    model = ScriptedModel([[call("view_image", path="red.png"), call("view_image", path="no.png")], [call("ls")], "It is red."])
    state = run(agent_with(model, places, make_config(tmp_path)))
    encoded = base64.b64encode(png()).decode()
    shown = [str(request.messages) for request in model.requests]
    assert encoded not in shown[0]
    assert encoded in shown[1]
    assert encoded in shown[2]
    assert encoded not in str(state["messages"])
    assert [message.status for message in results(state)][:2] == ["success", "error"]
    kinds = [type(message) for message in model.requests[1].messages]
    assert kinds == [HumanMessage, AIMessage, ToolMessage, ToolMessage, HumanMessage]


def test_a_picture_is_not_stored_by_a_compaction_of_the_same_step(tmp_path: Path, places: ThreadSandboxes) -> None:
    with places.named("t1") as sandbox:
        sandbox.files.write("red.png", png())
    model = ScriptedModel([[call("view_image", path="red.png")], "It is red."], profile={"max_input_tokens": 4000})
    config = make_config(tmp_path)
    agent = create_agent(
        model,
        open_tools(config, places, commands=True),
        middleware=[
            ThreadDataMiddleware(),
            ViewImagesMiddleware(places),
            SummarizationMiddleware(trigger=("messages", 12), keep=("messages", 4), archive=FileArchive(tmp_path / "base")),
        ],
        state_schema=LeadState,
        context_schema=RunContext,
    )
    talk = [message for n in range(5) for message in (HumanMessage(f"Step {n}."), AIMessage(f"Done {n}."))]
    settings: Any = {"configurable": {"thread_id": "t1"}}
    state = agent.invoke({"messages": [*talk, HumanMessage("Look at red.png.")]}, settings, context=RunContext())
    assert len(state["messages"]) < 13
    assert base64.b64encode(png()).decode() in str(model.requests[-1].messages)
    assert base64.b64encode(png()).decode() not in str(state["messages"])


def test_the_configuration_chooses_the_tools(tmp_path: Path, places: ThreadSandboxes) -> None:
    listed = [
        {"name": "bash", "group": "bash", "use": "src.sandbox.tools:bash_tool"},
        {"name": "read_file", "group": "file:read", "use": "deerflow.sandbox.tools:read_file_tool"},
        {"name": "present_file"},
        {"name": "ask_clarification"},
        {"name": "shout", "use": f"{__name__}:shout"},
        {"name": "broken", "use": "no.such.module:thing"},
    ]
    config = make_config(tmp_path, tools=listed)
    names = [made.name for made in open_tools(config, places, commands=True)]
    assert names[:3] == ["bash", "read_file", "present_files"]
    assert names[3:] == ["shout", "view_image"]  # the tool that cannot be imported is left out, and said in the log
    assert [made.name for made in open_tools(config, places, commands=False)] == [name for name in names if name != "bash"]


def test_tools_that_skills_count_on_are_there_whatever_is_listed(tmp_path: Path, places: ThreadSandboxes) -> None:
    """A10, A12: the reference's list has neither of them, and 11 of its skills call present_files."""
    listed = [
        {"name": "web_search", "group": "web", "use": "deerflow.community.ddg_search.tools:web_search_tool", "max_results": 5},
        {"name": "web_fetch", "group": "web", "use": "deerflow.community.jina_ai.tools:web_fetch_tool", "timeout": 10},
        {"name": "ls", "group": "file:read", "use": "deerflow.sandbox.tools:ls_tool"},
    ]
    config = make_config(tmp_path, tools=listed)
    assert [made.name for made in open_tools(config, places)] == ["web_search", "web_fetch", "ls", "present_files", "view_image"]
    assert "ddgs" in open_tools(config, places)[0].invoke({"query": "tides"})
    (notice,) = [notice for notice in config.warnings if notice.kind == "not-ready"]
    assert (notice.key, "ddgs" in notice.message) == ("tools[0]", True)
    tavily = [{"name": "web_search", "use": "deerflow.community.tavily.tools:web_search_tool", "api_key": "$NOT_SET_ANYWHERE"}]
    assert "TAVILY_API_KEY" in open_tools(make_config(tmp_path, tools=tavily), places)[0].invoke({"query": "tides"})
    blind = config_from_values({"tools": listed}, environ={"HOLDFAST_HOME": str(tmp_path)})
    assert [made.name for made in open_tools(blind, places)][3:] == ["present_files"]


def test_a_tool_that_does_not_exist_is_a_config_error_with_the_nearest(tmp_path: Path, places: ThreadSandboxes) -> None:
    with pytest.raises(ConfigError) as wrong:
        open_tools(make_config(tmp_path, tools=[{"name": "red_file"}]), places)
    assert wrong.value.nearest == "read_file"


def test_all_of_ours_are_there_without_a_list(tmp_path: Path, places: ThreadSandboxes, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("TAVILY_API_KEY", "BRAVE_API_KEY", "SERPER_API_KEY", "SEARXNG_URL"):
        monkeypatch.delenv(variable, raising=False)
    names = {made.name for made in open_tools(make_config(tmp_path), places, commands=True)}
    assert names == {
        *("bash", "ls", "read_file", "write_file", "str_replace", "glob", "grep"),
        *("present_files", "view_image", "web_fetch"),
    }
    blind = config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path)})
    assert "view_image" not in {made.name for made in open_tools(blind, places, commands=True)}


def test_idle_workplaces_are_closed_and_open_again(tmp_path: Path) -> None:
    opened: list[str] = []
    from holdfast.sandbox.local import open_sandbox

    config = make_config(tmp_path)

    def open_one(thread: str) -> Any:
        opened.append(thread)
        return open_sandbox(config, thread)

    places = ThreadSandboxes(open_one)
    with places.named("first") as held:
        for number in range(40):
            with places.named(f"t{number}") as sandbox:
                sandbox.files.write("a", "b")
        held.files.write("a", "still open")
    with places.named("t0") as sandbox:
        assert sandbox.files.read("a").text == "b"
    assert opened.count("first") == 1
    assert opened.count("t0") == 2
    places.close()


@tool
def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()
