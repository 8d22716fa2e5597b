"""O3, A6, A10, A13: the server speaks AG-UI: every event fits the protocol's own types, and its own npm client drives it."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ag_ui.core import Event as AgUiEvent
from ag_ui.core import RunAgentInput
from pydantic import TypeAdapter
from tests.conftest import need_program
from tests.integration.server_bench import ModelServer, Served, model_server, models, serving, words_of

EVENTS: TypeAdapter[Any] = TypeAdapter(AgUiEvent)
WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def scripted(request: dict[str, Any]) -> Any:
    """Does what the newest message of the user says."""
    messages = request["messages"]
    last, asked = messages[-1], next(words_of(one) for one in reversed(messages) if one["role"] == "user")
    if last["role"] == "tool":
        return f"Done: {words_of(last)[:200]}"
    if "Count the piers" in asked:
        return "There are four piers."
    calls: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "delegate": [("task", {"description": "count piers", "prompt": "Count the piers."})],
        "weather beside": [("get_weather", {"city": "Kiel"}), ("write_todos", {"todos": []})],
        "weather": [("get_weather", {"city": "Bern"})],
        "write": [("write_file", {"path": "/mnt/user-data/outputs/a.md", "content": "Pier four."})],
        "question": [("ask_clarification", {"question": "Which harbour?"})],
    }
    found = next((made for words, made in calls.items() if words in asked), None)
    return found if found is not None else f"You said: {asked[-100:]}"


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with model_server(scripted) as played:
        yield played


@pytest.fixture(scope="module")
def served(model: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    settings = {**models(model), "sandbox": {"approve": ["write_file"]}, "server": {"cors": ["http://front.example:3000"]}}
    with serving(tmp_path_factory.mktemp("agui"), settings) as running:
        yield running


class Front:
    """A front end: keeps the messages and sends them all each time, as AG-UI's clients do."""

    def __init__(self, served: Served, thread: str) -> None:
        self.client, self.thread = served.client(), thread
        self.messages: list[dict[str, Any]] = []
        self.number = 0

    def run(self, text: str | None = None, **more: Any) -> list[Any]:
        self.number += 1
        if text is not None:
            self.messages.append({"id": f"u{self.number}", "role": "user", "content": text})
        asked = {"threadId": self.thread, "runId": f"run-{self.number}", "messages": self.messages, "state": {}, **more}
        RunAgentInput.model_validate({"tools": [], "context": [], "forwardedProps": {}, **asked})
        with self.client.stream("POST", "/agui", json=asked) as answer:
            assert answer.status_code == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            told = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]
        events = [EVENTS.validate_python(one) for one in told]
        self._keep(events)
        return events

    def _keep(self, events: list[Any]) -> None:
        texts: dict[str, dict[str, Any]] = {}
        for event in events:
            kind = event.type.value
            if kind == "TEXT_MESSAGE_START":
                texts[event.message_id] = {"id": event.message_id, "role": "assistant", "content": ""}
                self.messages.append(texts[event.message_id])
            elif kind == "TEXT_MESSAGE_CONTENT":
                texts[event.message_id]["content"] += event.delta
            elif kind == "TOOL_CALL_START":
                call = {"id": event.tool_call_id, "type": "function", "function": {"name": event.tool_call_name, "arguments": ""}}
                self.messages.append({"id": f"m-{event.tool_call_id}", "role": "assistant", "toolCalls": [call]})
            elif kind == "TOOL_CALL_ARGS":
                self.messages[-1]["toolCalls"][0]["function"]["arguments"] += event.delta
            elif kind == "TOOL_CALL_RESULT":
                self.messages.append({"id": event.message_id, "role": "tool", "toolCallId": event.tool_call_id, "content": event.content})

    def give(self, call: str, result: str) -> None:
        self.messages.append({"id": f"t-{call}", "role": "tool", "toolCallId": call, "content": result})


def kinds(events: list[Any]) -> list[str]:
    return [event.type.value for event in events]


def text_of(events: list[Any]) -> str:
    return "".join(event.delta for event in events if event.type.value == "TEXT_MESSAGE_CONTENT")


def test_a_front_end_talks_in_a_thread_that_is_kept(served: Served, model: ModelServer) -> None:
    """O3, A13: streamed text between start and end; the second run sends all messages and only the new one counts."""
    front = Front(served, "front-1")
    events = front.run("Good morning from a page with a long enough text", context=[{"description": "where", "value": "the harbour page"}])
    assert kinds(events)[:2] == ["RUN_STARTED", "TEXT_MESSAGE_START"] and kinds(events)[-2:] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert events[0].protocol_version and events[0].thread_id == "front-1" and events[-1].run_id == "run-1"
    assert text_of(events).startswith("You said: ") and kinds(events).count("TEXT_MESSAGE_CONTENT") > 1
    assert events[-1].outcome.type == "success" and events[-1].result["reason"] == "completed"
    assert "the harbour page" in words_of(model.requests[-1]["messages"][0])
    front.run("And again")
    assert [one["role"] for one in model.requests[-1]["messages"]] == ["system", "user", "assistant", "user"]
    kept = front.client.get("/api/v1/threads/front-1/messages").json()["items"]
    assert [one["text"] for one in kept if one["role"] == "human"] == ["Good morning from a page with a long enough text", "And again"]
    front.client.close()


def test_tools_of_the_front_end_and_of_the_agent(served: Served, model: ModelServer) -> None:
    """O3, A6: its tools pass through and their results come back; a sub-agent is told as one; a call beside ours is asked for again."""
    front = Front(served, "front-2")
    events = front.run("How is the weather?", tools=[WEATHER])
    call = next(event for event in events if event.type.value == "TOOL_CALL_START")
    assert call.tool_call_name == "get_weather" and "TOOL_CALL_RESULT" not in kinds(events)
    assert events[-1].outcome.pending_tool_call_ids == [call.tool_call_id]
    front.give(call.tool_call_id, "sunny")
    assert text_of(front.run(tools=[WEATHER])) == "Done: sunny"
    assert [one["role"] for one in model.requests[-1]["messages"]][-3:] == ["user", "assistant", "tool"]
    events = front.run("delegate the count", tools=[WEATHER])
    told = kinds(events)
    assert told.index("TOOL_CALL_START") < told.index("SUBAGENT_STARTED") < told.index("SUBAGENT_FINISHED") < told.index("TOOL_CALL_RESULT")
    begun = next(event for event in events if event.type.value == "SUBAGENT_STARTED")
    assert begun.name == "general-purpose" and begun.parent_tool_call_id
    events = front.run("weather beside another call", tools=[WEATHER])
    names = [event.tool_call_name for event in events if event.type.value == "TOOL_CALL_START"]
    assert names == ["write_todos"], "the front end is not asked to run what was dropped"
    assert text_of(front.run("a question, please")) == "Which harbour?"
    front.client.close()


def test_calls_that_wait_end_the_run_as_interrupts(served: Served) -> None:
    """A10: the whole call is shown; no, then yes; the run goes on from where it was."""
    front = Front(served, "front-3")
    for answer, expected in (({"approved": False, "reason": "not there"}, "They said: not there"), ({"approved": True}, "has 10 bytes")):
        events = front.run("write it down")
        (waiting,) = events[-1].outcome.interrupts
        assert "Pier four." in waiting.message and waiting.metadata["args"]["content"] == "Pier four." and waiting.response_schema
        resume = [{"interruptId": waiting.id, "status": "resolved", "payload": answer}]
        assert expected in text_of(front.run(resume=resume))
    assert "TOOL_CALL_RESULT" in kinds(front.run(resume=[{"interruptId": front_waits(front), "status": "cancelled"}]))
    front.client.close()


def front_waits(front: Front) -> str:
    """The id of a call that waits."""
    (waiting,) = front.run("write it once more")[-1].outcome.interrupts
    return str(waiting.id)


def test_errors_a_second_run_and_a_page_that_leaves(served: Served, model: ModelServer) -> None:
    """O3, A13: what does not fit is a problem; a thread has one run at a time; who leaves stops the run and what was said is kept."""
    front = Front(served, "front-4")
    for body, status in (
        ({"threadId": "x"}, 422),
        ([], 422),
        ({"threadId": "../x", "runId": "r", "messages": []}, 400),
        ({"threadId": "front-9", "runId": "r", "messages": []}, 400),
    ):
        answer = front.client.post("/agui", json=body)
        assert answer.status_code == status and answer.headers["content-type"] == "application/problem+json", answer.text
    with httpx.Client(base_url=served.address, trust_env=False, timeout=120) as nobody:
        assert nobody.post("/agui", json={}).status_code == 401
    front.run("Hello there")
    with model.endless():
        asked = {"threadId": "front-4", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "A slow one " + "word " * 40}]}
        with front.client.stream("POST", "/agui", json=asked) as slow:
            lines = slow.iter_lines()  # held: to let go of it would be to leave
            assert any("TEXT_MESSAGE_CONTENT" in line for line in lines)
            refused = [json.loads(line[6:]) for line in _lines(served, asked) if line.startswith("data: ")]
            assert refused[-1]["type"] == "RUN_ERROR" and refused[-1]["code"] == "locked"
        assert model.left.wait(240), "the run was stopped"
    _until_free(front, "And now?")
    said = [one["text"] for one in front.client.get("/api/v1/threads/front-4/messages").json()["items"]]
    assert any(text.startswith("You said: ") and len(text) < 120 for text in said) and said[-1].startswith("You said: And now?")
    front.client.close()


def test_pages_of_configured_origins_may_ask_and_read(served: Served) -> None:
    """O3: a preflight brings no token and is answered for named origins alone; the answers can be read there, refusals too."""
    page = {"Origin": "http://front.example:3000"}
    wanted = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, content-type,x-stainless-os"}
    with httpx.Client(base_url=served.address, trust_env=False, timeout=120) as nobody:
        answer = nobody.options("/agui", headers={**page, **wanted})
        assert answer.status_code == 204 and answer.headers["access-control-allow-origin"] == page["Origin"]
        assert answer.headers["access-control-allow-headers"] == wanted["Access-Control-Request-Headers"]
        assert "POST" in answer.headers["access-control-allow-methods"] and "access-control-allow-credentials" not in answer.headers
        assert nobody.options("/agui", headers={"Origin": "http://evil.example", **wanted}).status_code == 403
        assert nobody.options("/agui", headers=page).status_code == 401, "no preflight"
        assert nobody.options("/agui", headers=wanted).status_code == 401, "no page"
        odd = nobody.options("/agui", headers={**page, **wanted, "Access-Control-Request-Headers": "a;b"})
        assert "access-control-allow-headers" not in odd.headers
        refused = nobody.get("/v1/models", headers=page)
        assert refused.status_code == 401 and refused.headers["access-control-allow-origin"] == page["Origin"]
        read = nobody.get("/v1/models", headers={**page, **served.headers})
        assert (
            read.status_code == 200 and read.headers["access-control-allow-origin"] == page["Origin"] and read.headers["vary"] == "Origin"
        )
        own = nobody.get("/v1/models", headers={"Origin": served.address, **served.headers})
        assert own.status_code == 200 and "access-control-allow-origin" not in own.headers


def _lines(served: Served, body: dict[str, Any]) -> list[str]:
    with served.client() as client:
        return client.post("/agui", json=body).text.splitlines()


def _until_free(front: Front, text: str) -> list[Any]:
    """The turn that was left may still be putting away what was said."""
    until = time.monotonic() + 240
    while time.monotonic() < until:
        before = list(front.messages)
        events = front.run(text)
        if events[-1].type.value != "RUN_ERROR":
            return events
        front.messages = before[:-1] if before and before[-1].get("content") == text else before
        time.sleep(0.05)
    raise AssertionError("the thread never became free")


NODE = """
import { HttpAgent } from "@ag-ui/client";
const [address, token] = process.argv.slice(2);
const agent = new HttpAgent({ url: `${address}/agui`, threadId: "npm-1", headers: { Authorization: `Bearer ${token}` } });
const seen = [];
const tools = [{ name: "get_weather", description: "Weather", parameters: { type: "object", properties: { city: { type: "string" } } } }];
agent.addMessage({ id: "1", role: "user", content: "How is the weather?" });
await agent.runAgent({ runId: "r1", tools }, { onEvent: ({ event }) => { seen.push(event.type); } });
const call = agent.messages.at(-1).toolCalls[0];
agent.addMessage({ id: "2", role: "tool", toolCallId: call.id, content: "sunny" });
await agent.runAgent({ runId: "r2", tools });
console.log(JSON.stringify({ seen, call: call.function, last: agent.messages.at(-1).content }));
"""


@pytest.mark.prove
def test_the_official_npm_client_drives_it(served: Served, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """O3: `@ag-ui/client`, unchanged. In `make prove` alone: it is installed for this."""
    if not request.config.getoption("--prove"):
        pytest.skip("installs npm packages: part of `make prove`")
    npm, node = need_program("npm", "npm"), shutil.which("node")
    subprocess.run([npm, "install", "--silent", "--no-audit", "--no-fund", "@ag-ui/client@^1"], cwd=tmp_path, check=True, timeout=300)
    (tmp_path / "drive.mjs").write_text(NODE)
    done = subprocess.run(
        [str(node), "drive.mjs", served.address, served.token], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["call"]["name"] == "get_weather" and json.loads(told["call"]["arguments"]) == {"city": "Bern"}
    assert told["last"] == "Done: sunny" and told["seen"][0] == "RUN_STARTED" and told["seen"][-1] == "RUN_FINISHED"
