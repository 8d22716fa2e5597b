"""Models behind a real HTTP server on this machine that speaks the OpenAI chat protocol, well and badly (A15, C3, S14, T3)."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from langchain_core.messages import HumanMessage
from typer.testing import CliRunner

from holdfast.agents.middleware.model_calls import model_middlewares
from holdfast.app.commands.settings import models_app as app
from holdfast.config.loading import config_from_values, load_config
from holdfast.config.sections import Config
from holdfast.errors import CallFailed, CallUnavailable, ContextOverflow, LimitExceeded, ModelError, ModelUnavailable
from holdfast.models.factory import create_chat_model, memory_model, summary_model
from holdfast.models.failures import typed
from holdfast.models.local_server import close_servers
from holdfast.models.weights import find_weights
from holdfast.tokens.windows import find_window

KEY = "sk-a-very-secret-key-0123456789"


@dataclass
class FakeServer:
    """Answers by the name of the model that is asked: `good`, `unauthorized`, `limited`, ... and records every request."""

    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    port: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def count(self, model: str) -> int:
        return sum(request.get("model") == model for request in self.requests)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: ClassVar[FakeServer]

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.fake.requests.append(request)
        self.fake.headers.append({name.lower(): value for name, value in self.headers.items()})
        model = request["model"]
        if model in REFUSALS:
            self._refuse(*REFUSALS[model])
        elif model == "limited" and self.fake.count("limited") <= 3:
            self._refuse(429, "Rate limit reached.", {"retry-after-ms": "1"})
        elif model == "hanging":
            self.fake.stop.wait(240)
        elif model == "mumbling":
            self._send(200, {"choices": []})
        elif request.get("stream"):
            self._stream(request)
        else:
            self._send(200, _completion(request))

    def _refuse(self, status: int, message: str, headers: dict[str, str] | None = None, code: str | None = None) -> None:
        self._send(status, {"error": {"message": message, "type": "error", "code": code}}, headers)

    def _send(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(raw)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def _stream(self, request: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for piece in ("Pa", "ris"):
            self._event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": piece}, "finish_reason": None}]})
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        if request.get("stream_options", {}).get("include_usage"):
            self._event({"choices": [], "usage": USAGE})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _event(self, body: dict[str, Any]) -> None:
        whole = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "good", **body}
        self.wfile.write(f"data: {json.dumps(whole)}\n\n".encode())


USAGE = {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13}
REFUSALS: dict[str, tuple[Any, ...]] = {
    "unauthorized": (401, f"Incorrect API key provided: {KEY}."),
    "forbidden": (403, "This account may not."),
    "unknown": (404, "The model `unknown` does not exist."),
    "always-limited": (429, "Rate limit reached.", {"retry-after-ms": "1"}),
    "much-later": (429, "Rate limit reached.", {"retry-after": "3600"}),
    "no-credit": (429, "You exceeded your current quota.", None, "insufficient_quota"),
    "broken": (500, "Internal error."),
    "full": (400, "the request exceeds the available context size. try increasing it", None, "exceed_context_size_error"),
    "full-by-code": (400, "too long", None, "context_length_exceeded"),
    "echo": (400, f"bad request with key {KEY} and my-plain-gateway-word"),
}


def _completion(request: dict[str, Any]) -> dict[str, Any]:
    """Of a model that can do what it is asked for."""
    message: dict[str, Any] = {"role": "assistant", "content": f"Paris, says {request['model']}."}
    asked = str(request["messages"][-1].get("content"))
    if request.get("response_format", {}).get("type") == "json_schema":
        facts = ("The ferry Alma was launched in 1962.", "She carried 240 passengers.", "A night costs 390 kroner.")
        found = [{"fact": fact, "source": "ferry.md"} for fact in facts]
        message["content"] = json.dumps({"summary": "A ferry.", "key_findings": found, "confidence": "high"})
    elif request.get("tools") and "weather in Paris" in asked:
        call = {"name": request["tools"][0]["function"]["name"], "arguments": json.dumps({"city": "Paris"})}
        message = {"role": "assistant", "content": None, "tool_calls": [{"id": "t1", "type": "function", "function": call}]}
    elif request["messages"][-1]["role"] == "tool":
        message["content"] = f"It is {asked}."
    elif "300 words" in asked:
        lines = [
            "In 1962 she was launched.",
            "She carried 240 passengers and 35 cars.",
            "In 1988 there was a fire.",
            "48 bunks were built.",
        ]
        message["content"] = " ".join(
            [*lines, *(f"Sentence {one} tells of the old ferry in its own words." for one in map(_word, range(20)))]
        )
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": USAGE,
    }


def _word(number: int) -> str:
    return "".join(chr(ord("a") + int(digit)) for digit in str(number * 7919))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    for name in ("OPENAI_API_KEY", "HOLDFAST_MODEL", "OPENAI_BASE_URL", "OPENAI_API_BASE", "LANGSMITH_GATEWAY"):
        monkeypatch.delenv(name, raising=False)
    fake = FakeServer()
    http = ThreadingHTTPServer(("127.0.0.1", 0), type("Serving", (Handler,), {"fake": fake}))
    http.daemon_threads = True
    fake.port = http.server_address[1]
    thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield fake
    fake.stop.set()
    http.shutdown()
    http.server_close()
    thread.join()


def entry(server: FakeServer, model: str, **more: Any) -> dict[str, Any]:
    return {"name": model, "use": "langchain_openai:ChatOpenAI", "model": model, "base_url": server.url, "api_key": KEY, **more}


def configured(server: FakeServer, *models: dict[str, Any], **sections: Any) -> Config:
    return config_from_values({"models": list(models), **sections})


def ask(config: Config, name: str | None = None, **options: Any) -> str:
    """One turn of a real agent with the middlewares, as the lead agent has them."""
    from langchain.agents import create_agent

    model = create_chat_model(name, config=config, retries=False)
    agent = create_agent(model, [], middleware=model_middlewares(config, name, first_delay=0.001, **options))
    state = agent.invoke({"messages": [HumanMessage("What is the capital of France?")]})
    return str(state["messages"][-1].text)


@pytest.mark.parametrize("use", ["langchain_openai:ChatOpenAI", "langchain_openai.ChatOpenAI", "openai", None])
def test_every_way_to_name_the_class_reaches_the_server(server: FakeServer, use: str | None) -> None:
    """A15, C3"""
    settings = {**entry(server, "good"), "use": use}
    model = create_chat_model("good", config=config_from_values({"models": [settings]}))
    assert model.invoke("capital of France?").text == "Paris, says good."
    assert server.headers[-1]["authorization"] == f"Bearer {KEY}"


def test_a_key_is_read_from_the_environment_when_the_model_is_made(server: FakeServer) -> None:
    """C3"""
    config = config_from_values({"models": [entry(server, "good", api_key="$MY_KEY")]}, environ={"MY_KEY": "from-the-environment"})
    create_chat_model(config=config).invoke("hello")
    assert server.headers[-1]["authorization"] == "Bearer from-the-environment"


def test_a_server_on_this_machine_never_gets_the_key_of_another_provider(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """C3"""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    create_chat_model(config=configured(server, entry(server, "good", api_key=None))).invoke("hello")
    assert KEY not in server.headers[-1]["authorization"]


def test_a_proxy_in_the_environment_is_not_asked_for_a_server_on_this_machine(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    model = create_chat_model(config=configured(server, entry(server, "good")))
    assert model.invoke("hello").text == "Paris, says good."
    assert asyncio.run(_asked(model)) == "Paris, says good."


async def _asked(model: Any) -> str:
    try:
        return str((await model.ainvoke("hello")).text)
    finally:
        await model.root_async_client.close()  # the loop ends here, and its sockets with it


def test_a_streamed_answer_reports_its_tokens(server: FakeServer) -> None:
    """T3: without them nobody can account for a streamed answer."""
    whole: Any = None
    for piece in create_chat_model(config=configured(server, entry(server, "good"))).stream("hello"):
        whole = piece if whole is None else whole + piece
    assert whole.text == "Paris"
    assert whole.usage_metadata["input_tokens"] == 11


def test_thinking_is_merged_deeply_into_what_is_sent(server: FakeServer) -> None:
    """A15"""
    config = configured(
        server,
        entry(
            server,
            "good",
            supports_thinking=True,
            extra_body={"kept": 1},
            when_thinking_enabled={"extra_body": {"thinking": {"type": "enabled", "budget": 10}}},
        ),
    )
    create_chat_model("good", True, config=config).invoke("hello")
    assert server.requests[-1]["thinking"] == {"type": "enabled", "budget": 10}
    assert server.requests[-1]["kept"] == 1
    create_chat_model("good", False, config=config).invoke("hello")
    assert server.requests[-1]["thinking"] == {"type": "disabled"}
    assert server.requests[-1]["kept"] == 1


def test_a_rate_limit_that_passes_is_waited_out(server: FakeServer) -> None:
    """A15: refused three times, then answered."""
    assert ask(configured(server, entry(server, "limited", max_retries=3))) == "Paris, says limited."
    assert server.count("limited") == 4


def test_retries_happen_in_one_place_and_end_in_a_typed_error(server: FakeServer) -> None:
    """A15: three requests for two retries, not nine."""
    with pytest.raises(CallUnavailable, match="rate limit") as caught:
        ask(configured(server, entry(server, "always-limited", max_retries=2)))
    assert server.count("always-limited") == 3
    assert caught.value.kind == "rate_limit"
    assert caught.value.retryable
    assert caught.value.hint


def test_outside_an_agent_the_class_itself_asks_again(server: FakeServer) -> None:
    create_chat_model(config=configured(server, entry(server, "limited", max_retries=3))).invoke("hello")
    assert server.count("limited") == 4


@pytest.mark.parametrize(
    ("model", "kind", "error"),
    [
        ("unauthorized", "authentication", CallUnavailable),
        ("forbidden", "permission", CallUnavailable),
        ("unknown", "not_found", CallUnavailable),
        ("no-credit", "quota", CallUnavailable),
        ("much-later", "rate_limit", CallUnavailable),
        ("full", "overflow", ContextOverflow),
        ("full-by-code", "overflow", ContextOverflow),
        ("echo", "invalid", CallFailed),
    ],
)
def test_what_cannot_be_mended_by_asking_again_is_asked_once_and_typed(
    server: FakeServer, model: str, kind: str, error: type[ModelError]
) -> None:
    """A15, C3"""
    with pytest.raises(error) as caught:
        ask(configured(server, entry(server, model, max_retries=5)))
    assert isinstance(caught.value, CallFailed)
    assert caught.value.kind == kind
    assert not caught.value.retryable
    assert caught.value.model == model
    assert server.count(model) == 1


@pytest.mark.parametrize("model", ["unauthorized", "echo"])
def test_no_key_appears_in_an_error_or_behind_it(server: FakeServer, model: str) -> None:
    """C3"""
    import traceback

    secret = "my-plain-gateway-word"  # noqa: S105 - what the server repeats
    config = configured(server, entry(server, model, api_key=secret if model == "echo" else KEY))
    with pytest.raises(CallFailed) as caught:
        ask(config)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert KEY not in shown
    assert secret not in shown


def test_a_server_that_hangs_is_given_up_with_its_address(server: FakeServer) -> None:
    """A15"""
    with pytest.raises(CallUnavailable, match=f"127.0.0.1:{server.port}") as caught:
        ask(configured(server, entry(server, "hanging", timeout=0.2, max_retries=0)))
    assert caught.value.kind == "timeout"


def test_a_server_that_is_not_there_is_told_with_its_address(server: FakeServer) -> None:
    """A15"""
    config = configured(server, entry(server, "good", base_url="http://127.0.0.1:9/v1", max_retries=1))
    with pytest.raises(CallUnavailable, match=r"cannot be reached at http://127\.0\.0\.1:9") as caught:
        ask(config)
    assert caught.value.kind == "connection"


def test_the_next_model_answers_when_the_first_one_cannot(server: FakeServer) -> None:
    """A15: each is retried by itself before the next one is asked."""
    config = configured(
        server,
        entry(server, "broken", max_retries=1, fallbacks=["unauthorized", "good"]),
        entry(server, "unauthorized"),
        entry(server, "good"),
    )
    assert ask(config) == "Paris, says good."
    assert [request["model"] for request in server.requests] == ["broken", "broken", "unauthorized", "good"]


def test_when_all_models_fail_the_error_names_them(server: FakeServer) -> None:
    config = configured(server, entry(server, "broken", max_retries=0, fallbacks=["unknown"]), entry(server, "unknown"))
    with pytest.raises(CallUnavailable, match="broken, then unknown"):
        ask(config)


def test_a_fallback_that_cannot_be_made_is_left_out_with_a_warning(server: FakeServer, caplog: pytest.LogCaptureFixture) -> None:
    config = configured(
        server, entry(server, "good", fallbacks=["elsewhere"]), {"name": "elsewhere", "use": "langchain_nowhere:ChatNowhere", "model": "x"}
    )
    assert ask(config) == "Paris, says good."
    assert "elsewhere" in caplog.text


def test_a_limit_that_is_used_up_is_not_mended_by_another_model(server: FakeServer) -> None:
    """T5: spending goes on with no fallback."""
    from langchain.agents import create_agent
    from langchain.agents.middleware import wrap_model_call

    @wrap_model_call
    def spent(request: Any, handler: Any) -> Any:
        raise LimitExceeded("spent.", account="run", kind="tokens", used=2, allowed=1)

    config = configured(server, entry(server, "broken", fallbacks=["good"]), entry(server, "good"))
    agent = create_agent(
        create_chat_model(config=config, retries=False), [], middleware=[*model_middlewares(config, first_delay=0.0), spent]
    )
    with pytest.raises(LimitExceeded):
        agent.invoke({"messages": [HumanMessage("hello")]})
    assert server.requests == []


async def test_the_asynchronous_side_retries_falls_back_and_types_errors_alike(server: FakeServer) -> None:
    """A15"""
    from langchain.agents import create_agent

    config = configured(
        server, entry(server, "limited", max_retries=1, fallbacks=["good"]), entry(server, "good"), entry(server, "unknown")
    )
    model: Any = create_chat_model(config=config, retries=False)
    agent = create_agent(model, [], middleware=model_middlewares(config, first_delay=0.001))
    state = await agent.ainvoke({"messages": [HumanMessage("hello")]})
    assert state["messages"][-1].text == "Paris, says good."
    assert [request["model"] for request in server.requests] == ["limited", "limited", "good"]
    agent = create_agent(create_chat_model("unknown", config=config, retries=False), [], middleware=model_middlewares(config, "unknown"))
    with pytest.raises(CallUnavailable, match="does not know the model"):
        await agent.ainvoke({"messages": [HumanMessage("hello")]})
    await model.root_async_client.close()


def test_an_answer_that_is_no_answer_becomes_one_clear_error(server: FakeServer) -> None:
    model = create_chat_model(config=configured(server, entry(server, "mumbling")), retries=False)
    with pytest.raises(Exception) as caught:
        model.invoke("hello")
    error = typed(caught.value, model="mumbling")
    assert isinstance(error, CallFailed)
    assert "mumbling" in str(error)
    assert "\n" not in str(error)


def test_side_work_goes_to_the_lightweight_model_and_does_not_think(server: FakeServer) -> None:
    """S14"""
    light = entry(
        server, "light", lightweight=True, supports_thinking=True, when_thinking_enabled={"extra_body": {"thinking": {"type": "enabled"}}}
    )
    config = configured(server, entry(server, "good"), light)
    for model in (summary_model(config), memory_model(config)):
        assert model is not None
        assert model.invoke("hello").text == "Paris, says light."
        assert server.requests[-1]["thinking"] == {"type": "disabled"}


def test_a_model_file_answers_like_any_server(tmp_path: Path) -> None:
    """A15: `use: llama.cpp` needs neither an address nor a key."""
    try:
        find_weights("smollm2")
    except ModelUnavailable as error:
        if os.environ.get("CI", "").lower() == "true":
            raise
        pytest.skip(str(error))
    path = tmp_path / "config.yaml"
    path.write_text("models: [{name: local, use: llama.cpp, model: smollm2, max_input_tokens: 512, max_tokens: 4}]", encoding="utf-8")
    config = load_config(path)
    model = create_chat_model(config=config)
    try:
        assert model.invoke("Say hello.").text
        assert find_window(model).tokens == 512
        assert summary_model(config) is None
    finally:
        close_servers()


@pytest.fixture
def file(server: FakeServer, tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    times = {"good": 240, "unauthorized": 240, "hanging": 0.2}
    models = [entry(server, name, timeout=seconds, max_input_tokens=32000) for name, seconds in times.items()]
    path.write_text(json.dumps({"models": models}), encoding="utf-8")
    return path


def test_models_test_asks_in_five_ways_and_tells_times_and_tokens(file: Path) -> None:
    """A15"""
    done = CliRunner().invoke(app, ["test", "good", "--config", str(file)])
    assert done.exit_code == 0, done.output
    for part in (
        "plain answer",
        "streamed answer",
        "fills a schema",
        "calls a tool",
        "writes 300 words",
        "3 of 3 facts are in the text",
        "From now on it is asked for summary, extraction, tools, json.",
        "11 tokens in, 2 out",
        "weather('Paris')",
        "first piece",
    ):
        assert part in done.output
    assert "failed" not in done.output


def test_models_test_as_json_is_one_document(file: Path) -> None:
    value = json.loads(CliRunner().invoke(app, ["test", "--json", "--config", str(file)]).stdout)
    assert value["model"] == "good"
    assert value["ok"] is True
    assert [question["ok"] for question in value["questions"]] == [True] * 5


def test_models_test_ends_with_one_when_the_key_is_refused_and_asks_no_further(server: FakeServer, file: Path) -> None:
    """A15, C3"""
    done = CliRunner().invoke(app, ["test", "unauthorized", "--config", str(file)])
    assert done.exit_code == 1
    assert "refused the key (401)" in done.output
    assert KEY not in done.output
    assert server.count("unauthorized") == 1


def test_models_test_tells_of_a_server_that_hangs(file: Path) -> None:
    done = CliRunner().invoke(app, ["test", "hanging", "--config", str(file), "--json"])
    assert done.exit_code == 1
    assert {question["error"] for question in json.loads(done.stdout)["questions"]} == {"timeout"}
