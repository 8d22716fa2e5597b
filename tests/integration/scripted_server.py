"""A server on loopback that speaks OpenAI's chat protocol and answers what a test tells it to, streamed or whole."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_PIECE = 7


@dataclass(frozen=True)
class Said:
    """One answer. `calls` are (name, arguments as text); `error` ends a stream that began well; `status` refuses at once."""

    text: str = ""
    calls: Sequence[tuple[str, str]] = ()
    finish: str | None = None
    error: dict[str, Any] | None = None
    breaks: bool = False
    """Whether the connection ends without an end of the answer."""
    status: int = 200
    until: threading.Event | None = None
    """It is said when this is set."""

    @property
    def reason(self) -> str:
        """Why it ends."""
        return self.finish or ("tool_calls" if self.calls else "stop")


@dataclass
class ScriptedServer:
    """What is to be said next, and what was asked."""

    url: str = ""
    script: list[Said] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)

    def say(self, *answers: Said | str) -> None:
        """The next answers; without any it says `Noted.`"""
        self.script += [Said(one) if isinstance(one, str) else one for one in answers]

    @property
    def last(self) -> list[dict[str, Any]]:
        """The messages of the newest request."""
        return list(self.requests[-1]["messages"])

    def model(self, name: str = "main", **more: Any) -> dict[str, Any]:
        """The settings of a model behind it."""
        return {"name": name, "model": name, "base_url": self.url, "api_key": "none", "max_input_tokens": 16_000, **more}


@contextmanager
def scripted_server() -> Iterator[ScriptedServer]:
    """Open inside of the `with`."""
    fake = ScriptedServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            fake.requests.append(asked)
            said = fake.script.pop(0) if fake.script else Said("Noted.")
            self.close_connection = True
            if said.until is not None:
                said.until.wait(240)
            if said.status != 200:
                self._head("application/json", said.status)
                self.wfile.write(json.dumps({"error": said.error or {"message": "scripted error"}}).encode())
            elif asked.get("stream"):
                self._head("text/event-stream")
                for piece in _pieces(said, asked["model"]):
                    self.wfile.write(f"data: {piece}\n\n".encode())
                    self.wfile.flush()
            else:
                self._head("application/json")
                self.wfile.write(json.dumps(_whole(said, asked["model"])).encode())

        def _head(self, kind: str, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("connection", "close")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()


_USED = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}


def _calls(said: Said) -> list[dict[str, Any]]:
    return [
        {"index": number, "id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": args}}
        for number, (name, args) in enumerate(said.calls)
    ]


def _pieces(said: Said, model: str) -> Iterator[str]:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": model}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        return json.dumps({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for at in range(0, len(said.text), _PIECE):
        yield chunk({"content": said.text[at : at + _PIECE]})
    for call in _calls(said):
        args = call["function"]["arguments"]
        yield chunk({"tool_calls": [{**call, "function": {"name": call["function"]["name"], "arguments": ""}}]})
        for at in range(0, len(args), _PIECE):
            yield chunk({"tool_calls": [{"index": call["index"], "function": {"arguments": args[at : at + _PIECE]}}]})
    if said.breaks:
        return
    if said.error is not None:
        yield json.dumps({"error": said.error})
        return
    yield chunk({}, said.reason)
    yield json.dumps({**head, "choices": [], "usage": _USED})
    yield "[DONE]"


def _whole(said: Said, model: str) -> dict[str, Any]:
    calls = [{name: value for name, value in call.items() if name != "index"} for call in _calls(said)]
    message = {"role": "assistant", "content": said.text, **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": message, "finish_reason": said.reason}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice], "usage": _USED}
