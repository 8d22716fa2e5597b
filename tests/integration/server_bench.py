"""A real `holdfast serve` process on loopback, and a model server that plays a script and records what it was sent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import httpx

ROOT = Path(__file__).parents[2]
Answer = Callable[[dict[str, Any]], Any]
"""From a request to the model: a text, a list of calls `(name, args)`, or a status with words for a refusal."""


def words_of(message: Mapping[str, Any]) -> str:
    """The text of a message as it was sent."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return str(content or "")


def echo(request: dict[str, Any]) -> Any:
    """Answers with what was said last, or calls the weather tool when it is asked about the weather."""
    last = request["messages"][-1]
    if last["role"] == "tool":
        return f"Done: {words_of(last)}"
    names = [tool["function"]["name"] for tool in request.get("tools") or ()]
    if "weather" in words_of(last) and "get_weather" in names:
        return [("get_weather", {"city": "Bern", "b": 1, "a": [1, 2]})]
    return f"You said: {words_of(last)[-200:]}"


def _set() -> threading.Event:
    made = threading.Event()
    made.set()
    return made


@dataclass
class ModelServer:
    """Speaks OpenAI's chat protocol on loopback."""

    answer: Answer = echo
    requests: list[dict[str, Any]] = field(default_factory=list)
    pause: float = 0.0
    port: int = 0
    ends: threading.Event = field(default_factory=_set)
    """A streamed answer goes on and on until this is set; see `endless`."""
    left: threading.Event = field(default_factory=threading.Event)
    """Set when somebody stopped listening in the middle of an answer."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @contextmanager
    def endless(self) -> Iterator[None]:
        """In this block a streamed answer has no end: whatever is done meanwhile is done while it is being said."""
        self.ends.clear()
        self.left.clear()
        try:
            yield
        finally:
            self.ends.set()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    played: ClassVar[ModelServer]

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.played.requests.append(request)
        said = self.played.answer(request)
        if isinstance(said, tuple):
            self._json(said[0], {"error": {"message": said[1], "type": "error", "code": None}})
            return
        try:
            if request.get("stream"):
                self._stream(request, said)
            else:
                self._json(200, _completion(request, said, len(self.played.requests)))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
            self.played.left.set()

    def _json(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, request: dict[str, Any], said: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        whole = _completion(request, said, len(self.played.requests))
        message = whole["choices"][0]["message"]
        text = message["content"] or ""
        for start in range(0, len(text), 20):
            self._chunk({"role": "assistant", "content": text[start : start + 20]})
            time.sleep(self.played.pause)
        while text and not self.played.ends.wait(self.played.pause or 0.05):
            self._chunk({"role": "assistant", "content": " and so on"})
        for index, call in enumerate(message.get("tool_calls") or ()):
            arguments, name = call["function"]["arguments"], call["function"]["name"]
            first = {"index": index, "id": call["id"], "type": "function", "function": {"name": name, "arguments": ""}}
            self._chunk({"role": "assistant", "content": None, "tool_calls": [first]})
            for start in range(0, len(arguments), 7):
                self._chunk({"tool_calls": [{"index": index, "function": {"arguments": arguments[start : start + 7]}}]})
        self._chunk({}, whole["choices"][0]["finish_reason"])
        if (request.get("stream_options") or {}).get("include_usage"):
            self._event({"choices": [], "usage": whole["usage"]})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> None:
        self._event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def _event(self, body: dict[str, Any]) -> None:
        told = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", **body}
        self.wfile.write(f"data: {json.dumps(told)}\n\n".encode())
        self.wfile.flush()


def _completion(request: dict[str, Any], said: Any, number: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said if isinstance(said, str) else None}
    if not isinstance(said, str):
        message["tool_calls"] = [
            {"id": f"call_{number}_{index}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
            for index, (name, args) in enumerate(said)
        ]
    sent = sum(len(words_of(one)) for one in request["messages"]) // 4 + 4 * len(request["messages"])
    usage = {"prompt_tokens": sent, "completion_tokens": 7, "total_tokens": sent + 7}
    choice = {"index": 0, "message": message, "finish_reason": "stop" if isinstance(said, str) else "tool_calls"}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": request["model"], "choices": [choice], "usage": usage}


@contextmanager
def model_server(answer: Answer = echo) -> Iterator[ModelServer]:
    """The server, while the block runs."""
    played = ModelServer(answer)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"played": played}))
    server.daemon_threads = True
    played.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield played
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class Served:
    """A running `holdfast serve`."""

    address: str
    token: str
    process: subprocess.Popen[str]
    base: Path

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def client(self, **settings: Any) -> httpx.Client:
        return httpx.Client(**{"base_url": self.address, "headers": self.headers, "trust_env": False, "timeout": 120, **settings})

    def kill(self) -> None:
        """As a power cut does."""
        self.process.send_signal(signal.SIGKILL)
        self._ended()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """As a person or a service manager does. Gives the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self._ended()

    def _ended(self) -> int:
        code = self.process.wait(240)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


def start(base: Path, values: Mapping[str, Any], *, port: int = 0) -> Served:
    """Start the server on this base directory."""
    base.mkdir(parents=True, exist_ok=True)
    config = base / "config.yaml"
    config.write_text(json.dumps({"holdfast_version": 1, "logging": {"level": "warning"}, **values}))  # JSON is YAML
    environment = {**os.environ, "HOLDFAST_HOME": str(base / "home"), "HOLDFAST_CONFIG": str(config), "PYTHONWARNINGS": "error"}
    with (base / "server.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.app.main", "serve", "--port", str(port), "--json", "--config", str(config)],
            env=environment,
            cwd=base,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    told = ""
    for line in process.stdout:
        told += line
        if line.startswith("}"):
            break
    assert told, (base / "server.log").read_text()
    said = json.loads(told)
    return Served(said["address"], said["token"], process, base)


@contextmanager
def serving(base: Path, values: Mapping[str, Any]) -> Iterator[Served]:
    """The server, while the block runs."""
    served = start(base, values)
    try:
        yield served
    finally:
        served.stop()


def models(server: ModelServer, window: int = 8_000) -> dict[str, Any]:
    """Settings with one model behind this server."""
    model = {"name": "small", "use": "langchain_openai:ChatOpenAI", "model": "small", "base_url": server.url, "api_key": "none"}
    return {
        "models": [{**model, "max_input_tokens": window, "max_retries": 0}],
        "memory": {"enabled": True, "extractor": "rules"},
        "title": {"enabled": False},
    }
