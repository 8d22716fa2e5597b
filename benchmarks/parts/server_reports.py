"""Requests over the window when a server reports usage as servers do (T1, S10): a stand-in over HTTP, a real client, one talk for both.

The stand-in counts what it is sent by itself (o200k, times three where it says so) and reports: what was not cached, zero, a tenth, what
fitted into half of the window that was configured, three times our count, nothing, or the truth at the end of a stream alone. `over` is how
many of the requests were larger than the window by the stand-in's own count; for the one that cuts, larger than what it has, after the
first report that stood still.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware as LangChains
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from holdfast import SummarizationMiddleware
from holdfast.context.archive import MemoryArchive
from holdfast.testing.models import ScriptedModel
from holdfast.tokens.counter import open_counter

WINDOW = 8192
COUNT = open_counter("exact")
TEXTS = (
    "The committee met again and went through the open points, one after the other, without deciding much. ",
    "def total(rows):\n    return sum(row['amount'] for row in rows if row['state'] == 'open')\n",
    '{"id": "9f8e7d6c", "value": 0.1234567, "ok": true, "tags": ["a", "b"]} ',
    "项目的数据库迁移计划已经确定, 下个月开始执行. ",
)
REPORTS: dict[str, tuple[float, int, Callable[[int, int], int | None]]] = {
    "what was not cached": (1.0, WINDOW, lambda true, cached: true - cached),
    "zero": (1.0, WINDOW, lambda true, cached: 0),
    "a tenth": (1.0, WINDOW, lambda true, cached: true // 10),
    "cut at half of the window": (1.0, WINDOW // 2, lambda true, cached: min(true, WINDOW // 2)),
    "three times ours": (3.0, WINDOW, lambda true, cached: true),
    "nothing": (1.0, WINDOW, lambda true, cached: None),
    "the truth, at the end of a stream": (1.0, WINDOW, lambda true, cached: true),
}
"""What the stand-in's tokens are in ours, the window it has, and what it reports of a request and the part of it that it had cached."""


@dataclass
class StandIn:
    """The server. It answers every request, however long."""

    factor: float
    has: int
    report: Callable[[int, int], int | None]
    seen: list[int] = field(default_factory=list)
    reported: list[int] = field(default_factory=list)
    _before: list[str] = field(default_factory=list)
    _counts: dict[str, int] = field(default_factory=dict)

    def read(self, body: dict[str, Any]) -> int | None:
        """Take a request; what is reported of it."""
        texts = [f"{message['role']} {json.dumps(message, ensure_ascii=False)}" for message in body["messages"]]
        counts = [self._tokens(str(message.get("content") or "")) + 4 for message in body["messages"]]
        same = next((n for n, (a, b) in enumerate(zip(texts, self._before, strict=False)) if a != b), min(len(texts), len(self._before)))
        true = sum(counts) + (self._tokens(json.dumps(body["tools"])) if body.get("tools") else 0)
        self._before = texts
        said = self.report(true, sum(counts[:same]))
        self.seen.append(true)
        self.reported.append(said or 0)
        return said

    def _tokens(self, text: str) -> int:
        if text not in self._counts:
            self._counts[text] = round(COUNT.count_text(text) * self.factor)
        return self._counts[text]

    def result(self) -> dict[str, int]:
        """The line of the table."""
        still = range(1, len(self.seen))
        first = next((n for n in still if self.reported[n] == self.reported[n - 1] == self.has and self.seen[n] > self.seen[n - 1]), None)
        judged = self.seen if self.has == WINDOW else self.seen[(first or 0) + 1 :]
        return {"requests": len(self.seen), "over": sum(size > self.has for size in judged), "largest": max(judged, default=0)}


@contextmanager
def served(server: StandIn) -> Iterator[str]:
    """The stand-in at an address of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            said = server.read(body)
            usage = None if said is None else {"prompt_tokens": said, "completion_tokens": 2, "total_tokens": said + 2}
            head = {"id": "c", "created": 1, "model": body["model"]}
            if body.get("stream"):
                delta = {"role": "assistant", "content": "Noted."}
                parts: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}]
                parts.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
                parts += [{"choices": [], "usage": usage}] if usage else []
                lines = [f"data: {json.dumps({**head, 'object': 'chat.completion.chunk', **part})}\n\n" for part in parts]
                self._send("text/event-stream", "".join([*lines, "data: [DONE]\n\n"]))
            else:
                message = {"role": "assistant", "content": "Noted."}
                answer = {**head, "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
                self._send("application/json", json.dumps({**answer, **({"usage": usage} if usage else {})}))

        def _send(self, kind: str, text: str) -> None:
            data = text.encode()
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None: ...

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}/v1"
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def talk(kind: str, keeper: Any, turns: int) -> dict[str, int]:
    """One conversation with one kind of server."""
    server = StandIn(*REPORTS[kind])
    rng = random.Random(7)
    with served(server) as address:
        streams = {"streaming": True, "stream_usage": True} if "stream" in kind else {}
        given: dict[str, Any] = {"profile": {"max_input_tokens": WINDOW}, **streams}
        model = ChatOpenAI(model="some-model", base_url=address, api_key=lambda: "none", **given)
        agent = create_agent(model, [], middleware=[keeper], system_prompt="Be brief.", checkpointer=InMemorySaver())
        for turn in range(turns):
            text = f"Turn {turn}. " + rng.choice(TEXTS) * rng.randint(1, 30)
            agent.invoke({"messages": [HumanMessage(text)]}, {"configurable": {"thread_id": "t"}})
    return server.result()


def server_reports(*, turns: int = 400) -> dict[str, Any]:
    """The table: what is reported, ours and LangChain's, each with its usual counting, trigger at 80 % of the window, 20 messages kept."""
    settings: dict[str, Any] = {"trigger": ("fraction", 0.8), "keep": ("messages", 20)}
    table: dict[str, Any] = {}
    for kind in REPORTS:
        notes: Any = ScriptedModel(lambda request: "NOTES: points were gone through.", usage=False, profile={"max_input_tokens": WINDOW})
        ours = talk(kind, SummarizationMiddleware(notes, archive=MemoryArchive(), recall=False, **settings), turns)
        table[kind] = {"ours": ours, "langchain": talk(kind, LangChains(notes, **settings), turns)}
    return table
