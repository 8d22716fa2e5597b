"""A conversation whose summarizer does not do its work: does the run go on, inside of the window, and is what was said there? (S10)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.parts.conversation import conversation
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import Request, repeat
from holdfast.tokens.counter import open_counter

__all__ = ["SUMMARIZERS", "WINDOW", "Keeper", "hostile"]

WINDOW = 4_000
_SENTENCES = 8  # messages of the conversation that make one of a user here
Keeper = Callable[[ScriptedModel], tuple[Any, Callable[[], str]]]
"""Given the summarizer: the middleware, and what gives all text that it kept besides the state."""


def _raises(request: Request) -> str:
    raise ConnectionError("no route to the summarizer")


SUMMARIZERS: dict[str, Callable[[Request], str]] = {
    "raises": _raises,
    "says nothing": lambda request: "",
    "repeats all it was given": lambda request: request.text,
    "writes 20,000 words": lambda request: "and so on " * 6_667,
}


def hostile(kind: str, keeper: Keeper, *, turns: int = 120) -> dict[str, float]:
    """Turns that failed, requests over the window by o200k, and the share of what was said that can still be read word for word."""
    profile: Any = {"max_input_tokens": WINDOW}
    middleware, kept = keeper(ScriptedModel([repeat(SUMMARIZERS[kind])], profile=profile))
    running = ScriptedModel([repeat("Noted.")], profile=profile)
    agent: Any = create_agent(running, [], middleware=[middleware], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    texts = [message.text for message in conversation(turns * _SENTENCES)[0]]
    said = [HumanMessage(" ".join(texts[n * _SENTENCES : (n + 1) * _SENTENCES]), id=f"q{n}") for n in range(turns)]
    failed = 0
    for message in said:
        try:
            agent.invoke({"messages": [message]}, config)
        except Exception:  # noqa: BLE001 - whatever it raises, the turn is over for the user
            failed += 1
    counter = open_counter("exact")
    over = sum(counter.count_text(request.text) > WINDOW for request in running.requests)
    text = kept() + "\n".join(message.text for message in agent.get_state(config).values.get("messages", []))
    readable = sum(message.text in text for message in said)
    return {"turns": len(said), "failed": failed, "over": over, "readable": round(readable / len(said), 3)}
