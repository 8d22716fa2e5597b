"""A1, A2, A10: a tool call that did not arrive whole is never run, whoever asks the model and however it answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr
from tests.integration.scripted_server import Said, ScriptedServer, scripted_server
from tests.integration.server_bench import Served, serving
from tests.unit.agents.bench import configured, whole

from holdfast.agents.lead import LeadAgent, make_lead_agent
from holdfast.agents.middleware.broken_calls import BrokenCallsMiddleware, WholeCallsMiddleware
from holdfast.agents.stages.stage_agents import stage_agents
from holdfast.events import Bus
from holdfast.talk import ApprovalNeeded, Ended, ToolFinished
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import call, reply, structured
from holdfast.workflow.launcher import run_workflow

HALF = '{"command": "rm -rf proj'
STAGE = structured(
    {
        **{"stage_name": "last", "summary": "What was found.", "key_findings": [], "confidence": "high"},
        **{"next_stage_recommendations": [], "raw_data_refs": []},
    }
)
WHOLE = '{"command": "rm -rf proj/build"}'


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as fake:
        yield fake


class Shell:
    """A tool that only notes what it was to run."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def tool(self) -> BaseTool:
        @tool
        def shell(command: str = "nothing at all") -> str:
            """Runs a command."""
            self.ran.append(command)
            return "done"

        return shell


def agent_of(tmp_path: Path, server: ScriptedServer, shell: Shell, values: dict[str, Any] | None = None, **model: Any) -> LeadAgent:
    """A lead agent on the server, with the noting tool."""
    said = {"models": [server.model(**model)], "title": {"enabled": False}, "memory": {"extractor": "rules"}, **(values or {})}
    return make_lead_agent(configured(tmp_path, said), tools=[shell.tool()], bus=Bus())


def turn(agent: LeadAgent, text: str = "Remove proj/build") -> tuple[list[Any], Ended]:
    """All events of a turn, and its end."""
    events = list(agent.conversation("t").send(text))
    assert isinstance(events[-1], Ended)
    return events, events[-1]


@pytest.mark.parametrize("finish", ["length", "tool_calls", "stop"])
@pytest.mark.parametrize("streams", [True, False])
def test_half_of_a_command_is_not_run_and_the_model_sends_it_again_in_the_same_turn(
    tmp_path: Path, server: ScriptedServer, finish: str, streams: bool
) -> None:
    shell = Shell()
    server.say(Said(calls=[("shell", HALF)], finish=finish), Said(calls=[("shell", WHOLE)]), "Removed.")
    with agent_of(tmp_path, server, shell, disable_streaming=not streams) as agent:
        events, ended = turn(agent)
        messages = agent.conversation("t").messages
    assert shell.ran == ["rm -rf proj/build"]
    assert (ended.reason, ended.text) == ("completed", "Removed.")
    told = next(event for event in events if isinstance(event, ToolFinished))
    assert told.status == "error"
    assert "Not run" in told.text and ("token limit" in told.text) == (finish == "length")
    assert whole(messages)
    assert {bool(request.get("stream")) for request in server.requests} == {streams}


@pytest.mark.parametrize("streams", [True, False])
def test_at_the_token_limit_the_last_call_is_not_run_even_where_its_json_is_whole_and_earlier_ones_are(
    tmp_path: Path, server: ScriptedServer, streams: bool
) -> None:
    shell = Shell()
    server.say(Said(calls=[("shell", '{"command": "first"}'), ("shell", '{"command": "rm -rf proj"}')], finish="length"), "Seen.")
    with agent_of(tmp_path, server, shell, disable_streaming=not streams) as agent:
        turn(agent)
    assert shell.ran == ["first"]
    results = [one["content"] for one in server.last if one["role"] == "tool"]
    assert "done" in results[0]
    assert "Not run" in results[1] and "smaller parts" in results[1]


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("arguments", ["[1,2]", "not json at all", '"text"', '{"command": "a"} {"command": "b"}'])
def test_arguments_that_are_no_object_go_back_to_the_model_in_the_same_turn(
    tmp_path: Path, server: ScriptedServer, arguments: str, streams: bool
) -> None:
    shell = Shell()
    server.say(Said(calls=[("shell", arguments)]), Said(calls=[("shell", WHOLE)]), "Done.")
    with agent_of(tmp_path, server, shell, disable_streaming=not streams) as agent:
        _, ended = turn(agent)
    assert (ended.reason, shell.ran) == ("completed", ["rm -rf proj/build"])
    sent = next(one for one in server.last if one["role"] == "tool")
    assert "Not run" in sent["content"] and arguments[:2] in sent["content"]
    asked = next(one for one in server.last if one.get("tool_calls"))
    assert asked["tool_calls"][0]["function"]["arguments"].startswith("{"), "what goes back is what every provider takes"


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("arguments", ["", "{}", "null"])
def test_a_call_without_arguments_is_run(tmp_path: Path, server: ScriptedServer, arguments: str, streams: bool) -> None:
    shell = Shell()
    server.say(Said(calls=[("shell", arguments)]), "Done.")
    with agent_of(tmp_path, server, shell, disable_streaming=not streams) as agent:
        turn(agent)
    assert shell.ran == ["nothing at all"]


def test_a_model_whose_calls_are_cut_each_time_ends_the_turn_with_a_reason(tmp_path: Path, server: ScriptedServer) -> None:
    shell = Shell()
    server.say(*[Said(calls=[("shell", f'{{"command": "try {number}')], finish="length") for number in range(9)])
    with agent_of(tmp_path, server, shell) as agent:
        _, ended = turn(agent)
        assert (ended.reason, len(server.requests), shell.ran) == ("bad_calls", 3, [])
        server.script.clear()
        server.say(Said(calls=[("shell", WHOLE)]), "Done.")
        assert turn(agent, "Once more")[1].reason == "completed", "the next message begins anew"


def test_a_call_that_was_cut_is_not_put_before_a_person(tmp_path: Path, server: ScriptedServer) -> None:
    """A10"""
    shell = Shell()
    server.say(Said(calls=[("shell", HALF)], finish="length"), "I see.")
    with agent_of(tmp_path, server, shell, {"sandbox": {"approve": ["shell"]}}) as agent:
        events, ended = turn(agent)
    assert ended.reason == "completed"
    assert not [event for event in events if isinstance(event, ApprovalNeeded)]


def test_a_sub_agent_does_not_run_it_either_and_says_why_it_failed(tmp_path: Path, server: ScriptedServer) -> None:
    """A2, A4"""
    shell = Shell()
    task = '{"description": "Tidy up", "prompt": "Remove the build folder"}'
    server.say(Said(calls=[("task", task)]), *[Said(calls=[("shell", HALF)], finish="length")] * 3, "It failed.")
    with agent_of(tmp_path, server, shell) as agent:
        _, ended = turn(agent)
    assert (ended.text, shell.ran) == ("It failed.", [])
    result = next(one["content"] for one in server.last if one["role"] == "tool")
    assert "The sub-agent failed" in result and "did not arrive whole" in result


@pytest.mark.parametrize("streams", [True, False])
def test_any_agent_of_ones_own_is_guarded_by_the_two_middlewares_alone(server: ScriptedServer, streams: bool) -> None:
    """S16, P2: the model is an object that LangChain made."""
    shell = Shell()
    model = ChatOpenAI(model="main", base_url=server.url, api_key=SecretStr("none"), streaming=streams)
    server.say(Said(calls=[("shell", HALF)]), "Seen.")
    agent: Any = create_agent(model, [shell.tool()], middleware=[BrokenCallsMiddleware(), WholeCallsMiddleware()])
    found = agent.invoke({"messages": [("user", "Remove it")]})["messages"]
    assert shell.ran == []
    assert [one.status for one in found if isinstance(one, ToolMessage)] == ["error"]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (Said(""), "empty"),
        (Said("", finish="content_filter"), "filtered"),
        (Said("Half of it", finish="content_filter"), "filtered"),
        (Said("Half of it", finish="length"), "cut"),
        (Said("All of it"), "completed"),
    ],
)
@pytest.mark.parametrize("streams", [True, False])
def test_a_turn_says_when_its_answer_is_no_whole_one(
    tmp_path: Path, server: ScriptedServer, said: Said, reason: str, streams: bool
) -> None:
    """A13"""
    server.say(said)
    with agent_of(tmp_path, server, Shell(), disable_streaming=not streams) as agent:
        _, ended = turn(agent)
    assert (ended.reason, ended.text) == (reason, said.text)


def test_a_stage_with_a_model_does_not_run_it_and_stops_after_the_third(tmp_path: Path) -> None:
    """W7, W12"""
    asked: list[str] = []

    def tides(place: str = "anywhere") -> str:
        """The tides of a place."""
        asked.append(place)
        return f"High water at {place} is at 04:12."

    def go(*script: Any) -> Any:
        model = ScriptedModel([*script, STAGE])
        agents = stage_agents(config, model=model, tools=lambda request: [StructuredTool.from_function(tides, name="tides")])
        return run_workflow(
            {"id": "w", "task": "Tides?", "stages": [{"name": "last", "agent_type": "llm"}]}, config=config, agents=agents
        ), model

    config = configured(tmp_path)
    whole_again = [call("tides", {"place": "Husum"})]
    session, model = go([call("tides", '{"place": "Hus')], [call("tides", "[1]")], whole_again, "Enough.")
    assert (session.status, asked) == ("completed", ["Husum"])
    assert [message.status for message in model.requests[3].messages if isinstance(message, ToolMessage)] == ["error", "error", "success"]
    cut = reply("", call("tides", {"place": "Emden"}), finish_reason="length")
    session, model = go(cut, cut, cut)
    assert (session.status, asked) == ("completed", ["Husum"]), "the stage answers with what it has"
    assert len(model.requests) == 4


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedServer]:
    with scripted_server() as fake:
        yield fake


@pytest.fixture(scope="module")
def served(upstream: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    values = {"models": [upstream.model(max_retries=0)], "memory": {"extractor": "rules"}, "title": {"enabled": False}}
    with serving(tmp_path_factory.mktemp("broken"), values) as running:
        yield running


TOOL = {"type": "function", "function": {"name": "shell", "description": "Runs it.", "parameters": {"type": "object", "properties": {}}}}


@pytest.mark.parametrize("stream", [False, True])
def test_the_gateway_hands_a_cut_call_of_the_client_on_as_it_came_and_says_that_it_was_cut(
    served: Served, upstream: ScriptedServer, stream: bool
) -> None:
    """O3: never closed, so that no client takes it for a whole one."""
    upstream.say(Said(calls=[("shell", HALF)], finish="length"))
    asked = {"model": "main", "messages": [{"role": "user", "content": f"Remove it, {stream}"}], "tools": [TOOL], "stream": stream}
    with served.client() as client:
        answer = client.post("/v1/chat/completions", json=asked)
    if stream:
        told = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        deltas = [one["choices"][0]["delta"] for one in told if one["choices"]]
        arguments = "".join(part["function"]["arguments"] for delta in deltas for part in delta.get("tool_calls") or ())
        finish = next(one["choices"][0]["finish_reason"] for one in told if one["choices"] and one["choices"][0]["finish_reason"])
    else:
        choice = answer.json()["choices"][0]
        arguments, finish = choice["message"]["tool_calls"][0]["function"]["arguments"], choice["finish_reason"]
    assert (arguments, finish) == (HALF, "length")


def test_anthropics_form_leaves_a_cut_call_out_and_says_that_the_limit_was_reached(served: Served, upstream: ScriptedServer) -> None:
    """O3: outside of a stream that API has no place for a part of the arguments."""
    upstream.say(Said("I remove it.", calls=[("shell", HALF)], finish="length"))
    tool = {"name": "shell", "description": "Runs it.", "input_schema": {"type": "object", "properties": {}}}
    asked = {"model": "main", "max_tokens": 50, "messages": [{"role": "user", "content": "Remove it"}], "tools": [tool]}
    with served.client() as client:
        answer = client.post("/v1/messages", json=asked).json()
    assert [block["type"] for block in answer["content"]] == ["text"]
    assert answer["stop_reason"] == "max_tokens"


def test_a_front_end_is_given_a_call_only_when_it_is_whole(served: Served, upstream: ScriptedServer) -> None:
    """O3: AG-UI cannot say that a call was cut, so the model sends it again in the same run."""
    upstream.say(Said(calls=[("shell", HALF)], finish="length"), Said(calls=[("shell", WHOLE)]))
    tool = {"name": "shell", "description": "Runs it.", "parameters": {"type": "object", "properties": {}}}
    messages = [{"id": "u1", "role": "user", "content": "Remove it"}]
    asked = {"threadId": "front", "runId": "r", "messages": messages, "state": {}, "tools": [tool], "context": [], "forwardedProps": {}}
    with served.client() as client:
        told = [json.loads(line[6:]) for line in client.post("/agui", json=asked).text.splitlines() if line.startswith("data: ")]
    assert [one["delta"] for one in told if one["type"] == "TOOL_CALL_ARGS"] == [json.dumps(json.loads(WHOLE))]


def test_a_run_of_the_server_tells_why_it_ended(served: Served, upstream: ScriptedServer) -> None:
    """O3"""
    upstream.say(Said("Half of it", finish="length"))
    with served.client() as client:
        run = client.post("/api/v1/threads/why/runs", json={"content": "Tell me"}).json()["id"]
        told = client.get(f"/api/v1/runs/{run}/events").text
    assert '"reason":"cut"' in told.replace(": ", ":") and "Half of it" in told
