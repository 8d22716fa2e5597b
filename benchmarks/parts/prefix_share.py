"""How much of each request a provider's cache could reuse: the bytes that are the same, from the start, as in the call before (S19)."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.parts.conversation import Speech
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest
from langchain_core.messages import HumanMessage, SystemMessage, message_to_dict
from langgraph.checkpoint.memory import InMemorySaver

from holdfast.agents.middleware.memory import MemoryMiddleware
from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.context.archive import FileArchive
from holdfast.memory.service import MemoryService
from holdfast.testing.clock import FakeClock
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import Request, repeat
from holdfast.tokens.counter import open_counter

__all__ = ["prefix_share"]

_WINDOW = 8000
_FACTS = (
    "User runs the office move of a small company to Mill Lane",
    "User wants short answers in plain words",
    "User's landlord is Mr. Castellanos",
    "User cycles to work and cooks without coriander",
)
_LEARN_EVERY = 10  # turns after which one more fact becomes known
_BASE = "You are a careful assistant. You say what you know, ask when something is unclear, and keep lists short.\n" * 12


class _DateLine(AgentMiddleware[Any, Any, Any]):
    """What many agents do: the time of day in the system prompt, rewritten for every call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def wrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
        self.calls += 1
        line = f"It is {self.calls // 60 % 24:02}:{self.calls % 60:02} on the 15th of November.\n"
        return handler(request.override(system_message=SystemMessage(f"{line}{request.system_prompt}")))


def prefix_share(base: Path, *, turns: int = 200) -> dict[str, Any]:
    """The share of all input tokens, over all calls, that are a byte-identical prefix of the call before."""
    return {
        "note": f"memory is on, with four facts at the start and one more every {_LEARN_EVERY} turns",
        "window": _WINDOW,
        "turns": turns,
        "ours": _measured(base / "steady", turns, []),
        "with_a_time_line_in_the_system_prompt": _measured(base / "dated", turns, [_DateLine()]),
    }


def _measured(base: Path, turns: int, before: list[Any]) -> dict[str, Any]:
    speech, archive, clock = Speech(11), FileArchive(base), FakeClock()
    answers = [" ".join(speech.say("answers", turn) for _ in range(2)) for turn in range(turns)]
    profile: Any = {"max_input_tokens": _WINDOW}
    model = ScriptedModel(list(answers), profile=profile)
    notes = ScriptedModel([repeat("Notes: " + answers[0] * 3)], profile=profile)
    config: Any = {"configurable": {"thread_id": "t"}}
    with MemoryService.at(base, clock=clock) as service:
        for fact in _FACTS:
            service.add(fact)
        window = SummarizationMiddleware(notes, trigger=("fraction", 0.8), keep=("fraction", 0.3), archive=archive)
        middleware = [*before, MemoryMiddleware(service, learn=False, clock=clock), window]
        agent: Any = create_agent(model, [], middleware=middleware, system_prompt=_BASE, checkpointer=InMemorySaver())
        for turn in range(turns):
            clock.advance(60)
            if turn % _LEARN_EVERY == _LEARN_EVERY - 1:
                service.add(f"User decided about item {turn}: {speech.say('answers', turn)[:80]}")
                clock.advance(60)
            agent.invoke({"messages": [HumanMessage(" ".join(speech.say("asks", turn) for _ in range(2)), id=f"q{turn}")]}, config)
    shared, total = _tokens([_rendered(request) for request in model.requests])
    return {
        "share": round(shared / total, 3),
        "input_tokens": total,
        "compactions": len(archive.summaries("t")),
        "calls": len(model.requests),
    }


def _rendered(request: Request) -> bytes:
    """System part and messages as JSON, in the order in which they are sent."""
    return json.dumps([message_to_dict(message) for message in request.messages], ensure_ascii=False).encode()


def _tokens(rendered: list[bytes]) -> tuple[int, int]:
    """Tokens in the prefix that each call has in common with the one before, and tokens in all. The first call shares nothing."""
    counter = open_counter("exact")

    def count(data: bytes) -> int:
        return counter.count_text(data.decode(errors="ignore"))

    return sum(count(_common(one, other)) for one, other in pairwise(rendered)), sum(map(count, rendered))


def _common(one: bytes, other: bytes) -> bytes:
    """The longest beginning that both have."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return one[:low]
