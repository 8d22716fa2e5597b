"""O3: clients that others wrote, changed in nothing but their address, through the gateway. `make prove` installs their packages for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import need_program
from tests.integration.server_bench import ModelServer, Served, echo, model_server, models, serving, words_of

pytestmark = pytest.mark.prove
PYTHON_PACKAGES = ("openai-agents>=0.24,<0.25", "pydantic-ai-slim[openai]>=2.66,<3")
NPM_PACKAGES = ("openai@^6.49", "ai@^6.0.326", "@ai-sdk/openai-compatible@^2.0.87", "zod@^4")
CODEX, OPENCODE = "@openai/codex@^0.166", "opencode-ai@^1.18"

AGENTS = """
import asyncio, sys
from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, SQLiteSession, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
address, token, name, api, way = sys.argv[1:]
set_tracing_disabled(True)

@function_tool
def get_weather(city: str, b: int, a: list[int]) -> str:
    "The weather of a city."
    return f"windy in {city}"

async def main():
    client = AsyncOpenAI(base_url=f"{address}/v1", api_key=token)
    kind = OpenAIChatCompletionsModel if api == "chat" else OpenAIResponsesModel
    agent = Agent(name="helper", instructions="Be brief.", tools=[get_weather], model=kind(model="small", openai_client=client))
    session = SQLiteSession(name)
    for words in (f"The weather, please: {name}", f"And again: {name}"):
        if way == "streamed":
            run = Runner.run_streamed(agent, words, session=session)
            pieces = [event async for event in run.stream_events()]
            assert any(getattr(getattr(one, "data", None), "delta", None) for one in pieces), "no delta was streamed"
            print(run.final_output)
        else:
            print((await Runner.run(agent, words, session=session)).final_output)
    await client.close()

asyncio.run(main())
"""

PYDANTIC = """
import asyncio, sys
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
address, token, name, api, way = sys.argv[1:]

async def main():
    client = AsyncOpenAI(base_url=f"{address}/v1", api_key=token)
    kind = OpenAIChatModel if api == "chat" else OpenAIResponsesModel
    agent = Agent(kind("small", provider=OpenAIProvider(openai_client=client)), instructions="Be brief.")

    @agent.tool_plain
    def get_weather(city: str, b: int, a: list[int]) -> str:
        "The weather of a city."
        return f"windy in {city}"

    said = None
    for words in (f"The weather, please: {name}", f"And again: {name}"):
        if way == "streamed":
            async with agent.run_stream(words, message_history=said) as run:
                print("".join([text async for text in run.stream_text(delta=True)]))
                said = run.all_messages()
        else:
            run = await agent.run(words, message_history=said)
            said = run.all_messages()
            print(run.output)
    await client.close()

asyncio.run(main())
"""

OPENAI_NPM = """
import OpenAI from "openai";
const [address, token, name, api, way] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${address}/v1`, apiKey: token });
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const weather = ({ city }) => `windy in ${city}`;
const turns = [`The weather, please: ${name}`, `And again: ${name}`];
if (api === "chat") {
  const called = { name: "get_weather", description: "Weather", parameters, parse: JSON.parse, function: weather };
  const tools = [{ type: "function", function: called }];
  let messages = [{ role: "system", content: "Be brief." }];
  for (const content of turns) {
    const request = { model: "small", messages: [...messages, { role: "user", content }], tools, stream: way === "streamed" };
    const runner = client.chat.completions.runTools(request);
    console.log(await runner.finalContent());
    messages = runner.messages;
  }
} else {
  const tools = [{ type: "function", name: "get_weather", description: "Weather", parameters, strict: false }];
  let previous_response_id;
  const ask = async (input) => {
    const request = { model: "small", instructions: "Be brief.", input, tools, previous_response_id };
    const done = way === "streamed" ? await client.responses.stream(request).finalResponse() : await client.responses.create(request);
    previous_response_id = done.id;
    const calls = done.output.filter((item) => item.type === "function_call");
    if (!calls.length) return done.output_text;
    return ask(calls.map((call) => ({ type: "function_call_output", call_id: call.call_id, output: weather(JSON.parse(call.arguments)) })));
  };
  for (const content of turns) console.log(await ask(content));
}
"""

AI_SDK = """
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
const [address, token, name, api, way] = process.argv.slice(2);
const provider = createOpenAICompatible({ name: "holdfast", baseURL: `${address}/v1`, apiKey: token, includeUsage: true });
const inputSchema = jsonSchema({ type: "object", properties: { city: { type: "string" } }, required: ["city"] });
const tools = { get_weather: tool({ description: "Weather", inputSchema, execute: async ({ city }) => `windy in ${city}` }) };
const messages = [];
for (const content of [`The weather, please: ${name}`, `And again: ${name}`]) {
  messages.push({ role: "user", content });
  const request = { model: provider("small"), system: "Be brief.", messages, tools, stopWhen: stepCountIs(4) };
  if (way === "streamed") {
    const run = streamText(request);
    let text = "";
    for await (const piece of run.textStream) text += piece;
    console.log(text);
    if (!((await run.totalUsage).inputTokens > 0)) throw new Error("no usage in the stream");
    messages.push(...(await run.response).messages);
  } else {
    const run = await generateText(request);
    console.log(run.text);
    messages.push(...run.response.messages);
  }
}
"""


@pytest.fixture(scope="module", autouse=True)
def _only_where_asked_for(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--prove"):
        pytest.skip("installs packages: part of `make prove`")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that has the clients, in an environment of its own."""
    place = tmp_path_factory.mktemp("clients") / "python"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, timeout=300)
    program = str(place / "bin" / "python")
    subprocess.run([program, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *PYTHON_PACKAGES], check=True, timeout=600)
    return program


def npm_folder(folder: Path, *packages: str) -> Path:
    """A folder with these packages of npm."""
    command = [need_program("npm", "npm"), "install", "--silent", "--no-audit", "--no-fund", *packages]
    subprocess.run(command, cwd=folder, check=True, timeout=600)
    return folder


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return npm_folder(tmp_path_factory.mktemp("node"), *NPM_PACKAGES)


@pytest.fixture(scope="module")
def codex(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(npm_folder(tmp_path_factory.mktemp("codex"), CODEX) / "node_modules" / ".bin" / "codex")


@pytest.fixture(scope="module")
def opencode(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(npm_folder(tmp_path_factory.mktemp("opencode"), OPENCODE) / "node_modules" / ".bin" / "opencode")


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with model_server() as played:
        yield played


@pytest.fixture(scope="module")
def served(model: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("gateway"), models(model, 60_000)) as running:
        yield running


def ran(command: list[str], cwd: Path, **more: str) -> str:
    """What a program says; it must end well."""
    environment = {**os.environ, "PWD": str(cwd), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", **more}
    done = subprocess.run(
        command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def talks(served: Served, name: str) -> list[list[tuple[str, str]]]:
    """The conversations in which these words stand, each as who said what."""
    with served.client() as api:
        ids = [one["id"] for one in api.get("/api/v1/threads", params={"limit": 500}).json()["items"]]
        told = [api.get(f"/api/v1/threads/{id}/messages", params={"limit": 200}).json()["items"] for id in ids]
    every = [[(one["role"], one["text"]) for one in items] for items in told]
    return [talk for talk in every if any(name in text for _, text in talk)]


WAYS = [(client, api, way) for client in ("agents", "pydantic") for api in ("chat", "responses") for way in ("whole", "streamed")]
NPM_WAYS = [("openai", api, way) for api in ("chat", "responses") for way in ("whole", "streamed")]
NPM_WAYS += [("ai-sdk", "chat", way) for way in ("whole", "streamed")]


def check(served: Served, name: str, said: str) -> None:
    """Two turns with a tool of the client in the first: one conversation, and nothing in it twice."""
    assert said.splitlines() == ["Done: windy in Bern", f"You said: And again: {name}"]
    (talk,) = talks(served, name)
    assert [role for role, _ in talk] == ["human", "ai", "tool", "ai", "human", "ai"]
    assert [text for role, text in talk if role != "ai"] == [f"The weather, please: {name}", "windy in Bern", f"And again: {name}"]


@pytest.mark.parametrize(("client", "api", "way"), WAYS)
def test_a_python_client_goes_on_in_its_conversation(served: Served, python: str, tmp_path: Path, client: str, api: str, way: str) -> None:
    """O3: openai-agents with its own session, pydantic-ai with its own history; tools on their side."""
    name = f"{client}-{api}-{way}"
    (tmp_path / "drive.py").write_text(AGENTS if client == "agents" else PYDANTIC)
    check(served, name, ran([python, "drive.py", served.address, served.token, name, api, way], tmp_path))


@pytest.mark.parametrize(("client", "api", "way"), NPM_WAYS)
def test_an_npm_client_goes_on_in_its_conversation(served: Served, node: Path, client: str, api: str, way: str) -> None:
    """O3: npm `openai` (`runTools`, responses) and the AI SDK (`generateText`, `streamText`)."""
    name = f"{client}-{api}-{way}"
    (node / f"{name}.mjs").write_text(OPENAI_NPM if client == "openai" else AI_SDK)
    program = shutil.which("node") or "node"
    check(served, name, ran([program, f"{name}.mjs", served.address, served.token, name, api, way], node))


# Coding agents: their own tools, a second process that goes on, whatever else they ask on the side


def coder(request: dict[str, Any]) -> Any:
    """Lists files with the tool that the coding agent has for it, then says what came of it."""
    last = request["messages"][-1]
    names = {tool["function"]["name"] for tool in request.get("tools") or ()}
    if last["role"] == "user" and "list the files" in words_of(last):
        if "exec_command" in names:
            return [("exec_command", {"cmd": "ls"})]
        if "bash" in names:
            return [("bash", {"command": "ls", "description": "Lists files"})]
    return echo(request)


@pytest.fixture
def project(tmp_path: Path, model: ModelServer) -> Iterator[Path]:
    """A folder to work in."""
    usual, model.answer = model.answer, coder
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "harbour.txt").write_text("four piers")
    yield folder
    model.answer = usual


def the_talk(served: Served, words: str) -> list[tuple[str, str]]:
    """The conversation with the coding agent: one, whatever it asked for beside it."""
    found = [talk for talk in talks(served, words) if any(role == "tool" for role, _ in talk)]
    assert len(found) == 1, found
    return found[0]


def test_codex_works_and_goes_on_in_a_new_process(served: Served, project: Path, tmp_path: Path, codex: str) -> None:
    """O3: Codex CLI over `/v1/responses`: it runs a command on its side, and `resume` is the same conversation."""
    home, words = tmp_path / "codex", "what about them, Codex"
    home.mkdir()
    provider = {"name": "Holdfast", "base_url": f"{served.address}/v1", "env_key": "HOLDFAST_KEY", "wire_api": "responses"}
    lines = ['model = "small"', 'model_provider = "holdfast"', "[model_providers.holdfast]"]
    (home / "config.toml").write_text("\n".join([*lines, *(f"{key} = {json.dumps(value)}" for key, value in provider.items())]))
    more = {"CODEX_HOME": str(home), "HOLDFAST_KEY": served.token}
    here = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]  # the folder is ours, and the model plays a script
    assert "harbour.txt" in ran([codex, "exec", *here, "list the files"], project, **more)
    assert f"You said: {words}" in ran([codex, "exec", "resume", "--last", *here, words], project, **more)
    talk = the_talk(served, words)
    assert [text for _, text in talk].count("list the files") == 1 and any("harbour.txt" in text for role, text in talk if role == "tool")
    assert talk[-1] == ("ai", f"You said: {words}")


def test_opencode_works_and_goes_on_in_a_new_process(served: Served, project: Path, opencode: str) -> None:
    """O3: opencode over `/v1/chat/completions`: its title request is a conversation of its own."""
    words = "what about them, opencode"
    options = {"baseURL": f"{served.address}/v1", "apiKey": served.token}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Holdfast", "options": options, "models": {"small": {"name": "small"}}}
    settings = {"autoupdate": False, "share": "disabled", "model": "holdfast/small", "small_model": "holdfast/small"}
    (project / "opencode.json").write_text(json.dumps({**settings, "provider": {"holdfast": provider}}))
    assert "harbour.txt" in ran([opencode, "run", "list the files"], project)
    assert words in ran([opencode, "run", "--continue", words], project)
    talk = the_talk(served, words)
    assert any("harbour.txt" in text for role, text in talk if role == "tool") and talk[-1][0] == "ai"
    assert words in talk[-1][1]
