"""How much of what a compaction removes was ever read by the summarizer: ours beside LangChain's (S7)."""

from __future__ import annotations

from typing import Any

from benchmarks.parts.conversation import conversation, tool_loop
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware as Theirs
from langchain_core.messages import AIMessage, AnyMessage

from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.context.archive import MemoryArchive
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import repeat

__all__ = ["SETTINGS", "marked_message", "note_taker", "read_of", "read_share"]

SETTINGS: dict[str, Any] = {"trigger": ("messages", 60), "keep": ("messages", 20), "trim_tokens_to_summarize": 4000}


def read_share(*, loop: int = 120, chat: int = 600) -> dict[str, Any]:
    """The same history, trigger, keep and bound of a summarizer call for both; the summarizer writes down what it is shown."""
    histories = {f"tool_loop_{loop}": tool_loop(loop), f"chat_{chat}": conversation(chat)[0]}
    result: dict[str, Any] = {"settings": {name: list(value) if isinstance(value, tuple) else value for name, value in SETTINGS.items()}}
    for name, history in histories.items():
        marked = [marked_message(message) for message in history]
        ours = SummarizationMiddleware(summarizer := note_taker(), archive=MemoryArchive(), **SETTINGS)
        result[name] = {"ours": read_of(marked, ours, summarizer)}
        theirs: Any = Theirs(summarizer := note_taker(), **SETTINGS)
        result[name]["langchain"] = read_of(marked, theirs, summarizer)
    return result


def note_taker() -> ScriptedModel:
    """A summarizer that says always the same, and whose requests show what it was given."""
    profile: Any = {"max_input_tokens": 32_000}
    return ScriptedModel([repeat("Notes of what was said so far.")], profile=profile)


def _mark(message: AnyMessage) -> str:
    """A word that stands in this message and nowhere else."""
    return f"note-{message.id}-end"


def marked_message(message: AnyMessage) -> AnyMessage:
    """The message with its mark in it."""
    if isinstance(message, AIMessage) and message.tool_calls:
        calls = [{**call, "args": {"text": f"{call['args']['text']} {_mark(message)}"}} for call in message.tool_calls]
        return AIMessage("", id=message.id, tool_calls=calls)
    return message.model_copy(update={"content": f"{message.text} {_mark(message)}"})


def read_of(history: list[AnyMessage], middleware: Any, summarizer: ScriptedModel) -> dict[str, float]:
    """What one middleware removes of this history, and how much of that stood in a prompt of its summarizer."""
    profile: Any = {"max_input_tokens": 400_000}
    running = ScriptedModel([repeat("Fine.")], profile=profile)
    agent: Any = create_agent(running, [], middleware=[middleware])
    agent.invoke({"messages": list(history)})
    sent = {message.id for message in running.requests[-1].messages}
    removed = [message for message in history if message.id not in sent]
    prompts = "\n".join(request.text for request in summarizer.requests)
    read = sum(_mark(message) in prompts for message in removed)
    return {"removed": len(removed), "read": read, "share": round(read / len(removed), 3), "summarizer_calls": len(summarizer.requests)}
