"""T1, S10: no request is over the window, whatever the server reports about it."""

from __future__ import annotations

import json
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.exceptions import ModelInvalidRequestError
from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from holdfast import SummarizationMiddleware
from holdfast.config.loading import config_from_values
from holdfast.context.archive import MemoryArchive
from holdfast.errors import CallFailed
from holdfast.events import Bus
from holdfast.models.failures import kind_of
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import Request, raises, repeat, reply
from holdfast.tokens.counter import open_counter

WINDOW = 8192
COUNT = open_counter("exact")
KINDS = (
    "The committee met again and went through the open points, one after the other, without deciding much. ",
    "def total(rows):\n    return sum(row['amount'] for row in rows if row['state'] == 'open')\n",
    '{"id": "9f8e7d6c", "value": 0.1234567, "ok": true, "tags": ["a", "b"]} ',
    "项目的数据库迁移计划已经确定, 下个月开始执行. ",
)
Usage = Callable[[int, int], dict[str, Any] | None]


def usage(tokens: int, **details: int) -> dict[str, Any]:
    return {"input_tokens": tokens, "output_tokens": 5, "total_tokens": tokens + 5, **({"input_token_details": details} if details else {})}


REPORTS: dict[str, tuple[float, Usage]] = {
    "the truth": (1.0, lambda true, cached: usage(true)),
    "what was not cached": (1.0, lambda true, cached: usage(true - cached)),
    "what was not cached, the rest named": (1.0, lambda true, cached: usage(true - cached, cache_read=cached)),
    "zero": (1.0, lambda true, cached: usage(0)),
    "a tenth": (1.0, lambda true, cached: usage(true // 10)),
    "six tenths": (1.0, lambda true, cached: usage(true * 6 // 10)),
    "three times, and it counts so": (3.0, lambda true, cached: usage(true)),
    "three times, and it does not": (1.0, lambda true, cached: usage(true * 3)),
    "nothing": (1.0, lambda true, cached: None),
    "nothing, and it counts a little more": (1.1, lambda true, cached: None),
}


class Server:
    """A server that counts what it is sent by itself, and reports what it likes."""

    def __init__(self, factor: float, report: Usage) -> None:
        self.factor, self.report = factor, report
        self.seen: list[int] = []
        self.history: list[int] = []
        self.reported: list[int] = []
        self._before: list[str] = []

    def read(self, texts: list[str], tools: Any) -> dict[str, Any] | None:
        counts = [self._tokens(text) + 4 for text in texts]
        same = next((n for n, (a, b) in enumerate(zip(texts, self._before, strict=False)) if a != b), min(len(texts), len(self._before)))
        tool_tokens = self._tokens(json.dumps(tools)) if tools else 0
        true = sum(counts) + tool_tokens
        self.history.append(true - tool_tokens - (counts[0] if texts[0].startswith("system ") else 0))
        self._before = texts
        self.seen.append(true)
        said = self.report(true, sum(counts[:same]))
        self.reported.append(said["input_tokens"] if said else 0)
        return said

    def _tokens(self, text: str) -> int:
        return round(COUNT.count_text(text) * self.factor)

    def answer(self, request: Request) -> Any:
        return reply("Noted.", usage=self.read([f"{m.type} {m.text}" for m in request.messages], list(request.tools)))

    def over(self, window: int = WINDOW) -> list[int]:
        return [tokens for tokens in self.seen if tokens > window]


def talk(agent: Any, turns: int, *, seed: int = 7) -> None:
    rng = random.Random(seed)
    for turn in range(turns):
        text = f"Turn {turn}. " + rng.choice(KINDS) * rng.randint(1, 40)
        agent.invoke({"messages": [HumanMessage(text)]}, {"configurable": {"thread_id": "t"}})


def agent_of(server: Server, bus: Bus | None = None, **settings: Any) -> tuple[Any, SummarizationMiddleware]:
    keep = SummarizationMiddleware(
        ScriptedModel([repeat("NOTES: a talk.")], usage=False, profile={"max_input_tokens": WINDOW}),
        **{
            "trigger": ("fraction", 0.8),
            "keep": ("messages", 20),
            "archive": MemoryArchive(),
            "bus": bus or Bus(),
            "recall": False,
            **settings,
        },
    )
    model = ScriptedModel(server.answer, profile={"max_input_tokens": WINDOW})
    return create_agent(model, [], middleware=[keep], system_prompt="Be brief.", checkpointer=InMemorySaver()), keep


@pytest.mark.parametrize("kind", sorted(REPORTS))
def test_no_request_is_over_the_window_whatever_is_reported(kind: str) -> None:
    """Issued reports may only shrink the room; the old rule let 329 of 400 requests through, the largest of six windows."""
    server = Server(*REPORTS[kind])
    agent, keep = agent_of(server)
    talk(agent, 80)
    assert server.over() == []
    assert len(keep.archive.summaries("t")) >= 2, "the talk was long enough to fill the window"
    assert max(server.seen) > WINDOW * (0.3 if "times, and it does not" in kind else 0.6), "the room is used"


def test_a_server_that_cuts_in_silence_is_found_out_and_its_real_window_kept() -> None:
    """Silent truncation at half of the window that was configured: said once, and nothing over it after the first sign."""
    bus = Bus()
    server = Server(1.0, lambda true, cached: usage(min(true, WINDOW // 2)))
    agent, keep = agent_of(server, bus)
    with bus.collect() as seen:
        talk(agent, 80)
    (said,) = [event for event in seen if type(event).__name__ == "RequestsTruncated"]
    assert said.window == WINDOW // 2  # type: ignore[attr-defined]
    sent, said_so = server.seen, server.reported
    signs = (n for n in range(1, len(sent)) if said_so[n] == said_so[n - 1] == WINDOW // 2 and sent[n] >= sent[n - 1] + 32)
    assert [tokens for tokens in sent[next(signs) + 1 :] if tokens > WINDOW // 2] == []
    manifest = keep.manifest("t")
    assert manifest is not None
    assert manifest.window == WINDOW // 2


def test_the_window_shown_is_the_models_own() -> None:
    """T1: the manifest and the log have the window that was said; what was learned is in the counts."""
    bus = Bus()
    server = Server(*REPORTS["three times, and it counts so"])
    agent, keep = agent_of(server, bus)
    with bus.collect() as seen:
        talk(agent, 40)
    manifest = keep.manifest("t")
    assert manifest is not None
    assert manifest.window == WINDOW
    assert manifest.tokens == pytest.approx(server.seen[-1], rel=0.05)
    counts = [event for event in seen if type(event).__name__ == "TokenCount"]
    assert {event.window for event in counts} == {WINDOW}  # type: ignore[attr-defined]


def test_a_tokens_trigger_uses_what_the_provider_reports() -> None:
    """S2, T1: as `fraction` does. The server counts twice as much as we do."""
    server = Server(2.0, lambda true, cached: usage(true))
    agent, keep = agent_of(server, trigger=("tokens", 4000), keep=("messages", 4))
    rng = random.Random(1)
    for turn in range(60):
        agent.invoke({"messages": [HumanMessage(f"{turn} " + KINDS[0] * rng.randint(2, 4))]}, {"configurable": {"thread_id": "t"}})
        if keep.archive.summaries("t"):
            break
    assert 4000 * 0.93 < max(server.history) < 4000 * 1.01


@contextmanager
def served(server: Server) -> Iterator[str]:
    """The same server behind HTTP, as a provider that streams and reports at the end of the stream alone."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            assert body["stream"]
            assert body["stream_options"] == {"include_usage": True}
            said = server.read([f"{m['role']} {m['content']}" for m in body["messages"]], body.get("tools"))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            chunk: dict[str, Any] = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
            for text in ("Not", "ed."):
                choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
                self._send({**chunk, "choices": [choice]})
            self._send({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            if said is not None:
                tokens = said["input_tokens"]
                self._send({**chunk, "choices": [], "usage": {"prompt_tokens": tokens, "completion_tokens": 2, "total_tokens": tokens + 2}})
            self.wfile.write(b"data: [DONE]\n\n")

        def _send(self, part: dict[str, Any]) -> None:
            self.wfile.write(f"data: {json.dumps(part)}\n\n".encode())

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


@pytest.mark.parametrize("kind", ["the truth", "what was not cached", "three times, and it counts so"])
def test_usage_at_the_end_of_a_stream_is_read_and_no_more_trusted(kind: str) -> None:
    """A real client over HTTP, streaming."""
    server = Server(*REPORTS[kind])
    with served(server) as address:
        model = ChatOpenAI(
            model="some-model",
            base_url=address,
            api_key=lambda: "none",
            streaming=True,
            stream_usage=True,
            profile={"max_input_tokens": WINDOW},
        )
        keep = SummarizationMiddleware(
            None, trigger=("fraction", 0.8), keep=("messages", 20), archive=MemoryArchive(), bus=Bus(), recall=False
        )
        agent = create_agent(model, [], middleware=[keep], checkpointer=InMemorySaver())
        talk(agent, 40)
    assert server.over() == []
    assert keep.archive.summaries("t")
    assert (keep.calibration.factor("some-model") > 2) is ("three" in kind)


def test_an_answer_without_usage_teaches_nothing() -> None:
    """T1"""
    keep = SummarizationMiddleware(None, archive=MemoryArchive(), bus=Bus())
    model = ScriptedModel([repeat(AIMessage("fine"))], usage=False, profile={"max_input_tokens": WINDOW})
    create_agent(model, [], middleware=[keep]).invoke({"messages": [HumanMessage("Hi " * 400)]})
    assert keep.calibration.reports("scripted") == 0


def words_in(messages: Any) -> int:
    return sum(len(message.text.split()) for message in messages)


def test_a_counter_over_messages_in_the_configuration_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """T1, S2: a function over a list of messages, by its path."""
    monkeypatch.setitem(sys.modules, "own_words", sys.modules[__name__])
    settings = {
        "enabled": True,
        "trigger": ["tokens", 60],
        "keep": ["messages", 4],
        "token_counter": "own_words:words_in",
        "recall": {"enabled": False},
    }
    config = config_from_values({"summarization": settings}, environ={"HOLDFAST_HOME": str(tmp_path)})
    keep = SummarizationMiddleware.from_config(config, archive=MemoryArchive())
    model = ScriptedModel([repeat("one two")], usage=False, profile={"max_input_tokens": WINDOW})
    agent = create_agent(model, [], middleware=[keep], checkpointer=InMemorySaver())
    for turn in range(9):
        agent.invoke({"messages": [HumanMessage("antidisestablishmentarianism " * 6)]}, {"configurable": {"thread_id": "t"}})
        assert bool(keep.archive.summaries("t")) is (8 * turn + 6 >= 60)


# Refusals


class Refused(ModelInvalidRequestError):
    """What a client raises for a server that refuses a request in words of its own."""

    status_code = 400


class Strict:
    """A server that counts the answer into its window, as most do, and says so."""

    def __init__(self, window: int = WINDOW, *, figures: bool = True) -> None:
        self.window, self.figures = window, figures
        self.answered: list[int] = []
        self.refused: list[int] = []

    def answer(self, request: Request) -> Any:
        sent = sum(COUNT.count_text(f"{m.type} {m.text}") + 4 for m in request.messages)
        sent += COUNT.count_text(json.dumps(list(request.tools))) if request.tools else 0
        asked = request.kwargs.get("max_tokens", 0)
        if sent + asked <= self.window:
            self.answered.append(sent)
            return reply("Noted.", usage=usage(sent))
        self.refused.append(sent)
        said = f"maximum context length is {self.window} tokens. However, you requested {sent + asked} tokens"
        parts = f"({sent} in the messages, {asked} in the completion)"
        return raises(Refused(f"{said} {parts}" if self.figures else "context_length_exceeded"))


class Asking(AgentMiddleware[Any, Any, Any]):
    """Asks for an answer of so many tokens, as a client does."""

    tokens: int | None = None

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        if self.tokens is None:
            return handler(request)
        return handler(request.override(model_settings={**request.model_settings, "max_tokens": self.tokens}))


NAME = ScriptedModel([]).model_name


def strict_agent(server: Strict, bus: Bus | None = None, prompt: str = "Be brief.") -> tuple[Any, SummarizationMiddleware, Asking]:
    """An agent that believes `WINDOW` of a model behind this server."""
    asking = Asking()
    keep = SummarizationMiddleware(None, archive=MemoryArchive(), bus=bus or Bus(), recall=False, enabled=False)
    model = ScriptedModel(server.answer, profile={"max_input_tokens": WINDOW})
    agent = create_agent(model, [], middleware=[asking, keep], system_prompt=prompt, checkpointer=InMemorySaver())
    return agent, keep, asking


def say(agent: Any, text: str, thread: str = "t") -> str:
    done = agent.invoke({"messages": [HumanMessage(text)]}, {"configurable": {"thread_id": thread}})
    return str(done["messages"][-1].text)


@pytest.mark.parametrize("figures", [True, False], ids=["with figures", "without"])
def test_an_answer_that_is_too_long_is_told_to_who_asks_and_teaches_nothing(figures: bool) -> None:
    """S10, T3: two requests with a `max_tokens` that no window has room for, and the model is as large as before for everybody."""
    bus, server = Bus(), Strict(figures=figures)
    agent, keep, asking = strict_agent(server, bus)
    with bus.collect() as seen:
        assert say(agent, "First.") == "Noted."
        asking.tokens = 32_000
        for thread in ("a", "b"):
            with pytest.raises((CallFailed, Refused)) as caught:
                say(agent, "Short words.", thread)
            assert kind_of(caught.value) == "max_tokens"
        asking.tokens = None
        long = "One of the many words of a longer text. " * 500
        assert say(agent, long, "c") == "Noted."
        asking.tokens = 100
        assert say(agent, "Short words again.", "d") == "Noted."
    assert len(server.refused) == 2, "each was asked once"
    assert max(server.answered) > WINDOW * 0.4, "and what came later was sent whole"
    assert keep.calibration.learned(NAME, WINDOW) is None
    assert not [event for event in seen if type(event).__name__ == "WindowLearned"]


def test_a_long_history_makes_room_for_the_answer_that_is_asked_for() -> None:
    """S10: a client may say `max_tokens` each time and send whatever it has; nothing is learned, and nothing more than once refused."""
    server = Strict()
    agent, keep, asking = strict_agent(server)
    asking.tokens = 4000
    rng = random.Random(3)
    for turn in range(60):
        assert say(agent, f"Turn {turn}. " + KINDS[0] * rng.randint(1, 20)) == "Noted."
    assert server.refused and max(server.answered) <= WINDOW - 4000
    assert keep.calibration.learned(NAME, WINDOW) is None


def test_a_window_that_is_smaller_than_was_said_is_known_after_one_refusal_that_names_it() -> None:
    """S10, T3, O2: and said."""
    bus, server = Bus(), Strict(window=4096)
    agent, keep, _ = strict_agent(server, bus)
    rng = random.Random(5)
    with bus.collect() as seen:
        for turn in range(60):
            assert say(agent, f"Turn {turn}. " + KINDS[0] * rng.randint(1, 20)) == "Noted."
    assert len(server.refused) == 1
    (event,) = [event for event in seen if type(event).__name__ == "WindowLearned"]
    assert (event.window, event.said) == (4096, WINDOW)  # type: ignore[attr-defined]
    manifest = keep.manifest("t")
    assert manifest is not None and manifest.window == 4096


def test_what_a_refusal_taught_never_refuses_a_request_that_the_model_was_not_asked() -> None:
    """S10: a system prompt that is larger than a window that was learned. The model is asked, and what was learned is forgotten."""
    bus, server = Bus(), Strict()
    agent, keep, _ = strict_agent(server, bus, prompt="A rule of the house. " * 400)
    keep.calibration.refused(NAME, 900, WINDOW, named=600)
    assert keep.calibration.learned(NAME, WINDOW) == 600
    with bus.collect() as seen:
        assert say(agent, "Hello.") == "Noted."
    assert not server.refused
    assert [type(event).__name__ for event in seen if type(event).__name__.startswith("Window")] == ["WindowForgotten"]


def test_a_short_request_that_is_refused_for_no_reason_is_told_as_the_provider_says_it() -> None:
    """S10: not as a window of a few tokens that nobody has."""
    server = Strict(window=5, figures=False)
    agent, *_ = strict_agent(server)
    with pytest.raises(Refused, match="context_length_exceeded"):
        say(agent, "Hello.")
    server.window = WINDOW
    assert say(agent, "Hello.", "another") == "Noted."
