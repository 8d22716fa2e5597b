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

from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.context.archive import FileArchive
from holdfast.testing import Request, ScriptedModel, repeat
from holdfast.tokens import open_counter

__all__ = ["prefix_share"]

_WINDOW = 8000
_MEMORY = (
    "<memory>\nUser Context:\n- Work: Runs the office move of a small company, from the second floor to Mill Lane.\n"
    "- Personal: Cycles to work, has two children, cooks without coriander.\n- Current Focus: Costs of the move, the network, parking.\n"
    "Facts:\n- [preference | 0.95] Wants short answers in plain words.\n- [context | 0.9] The landlord is Mr. Castellanos.\n"
    "- [goal | 0.9] Everything is to be done before the first of October.\n</memory>"
)
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
        "note": "there is no memory part yet: the memory is a fixed block in the system prompt",
        "window": _WINDOW,
        "turns": turns,
        "ours": _measured(FileArchive(base / "steady"), turns, []),
        "with_a_time_line_in_the_system_prompt": _measured(FileArchive(base / "dated"), turns, [_DateLine()]),
    }


def _measured(archive: FileArchive, turns: int, before: list[Any]) -> dict[str, Any]:
    speech = Speech(11)
    answers = [" ".join(speech.say("answers", turn) for _ in range(2)) for turn in range(turns)]
    profile: Any = {"max_input_tokens": _WINDOW}
    model = ScriptedModel(list(answers), profile=profile)
    notes = ScriptedModel([repeat("Notes: " + answers[0] * 3)], profile=profile)
    middleware = SummarizationMiddleware(notes, trigger=("fraction", 0.8), keep=("fraction", 0.3), archive=archive)
    agent: Any = create_agent(model, [], middleware=[*before, middleware], system_prompt=f"{_BASE}{_MEMORY}", checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    for turn in range(turns):
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
