"""Where compaction starts, what it keeps and how often it comes, in the eight configurations that the reference's documents show (S2, S11).

Every turn is a message of so many words and an answer of a few; tokens are o200k. `started` is the size of what the threshold measures at
the call that compacted first (the message history for `tokens` and `messages`, the whole request for `fraction`), `one_message` how much
one turn adds to it. LangChain's middleware runs the same talk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware as LangChains
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from holdfast import SummarizationMiddleware, make_lead_agent
from holdfast.config.loading import config_from_values
from holdfast.context.archive import MemoryArchive
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import Request, reply
from holdfast.tokens.counter import open_counter

COUNT = open_counter("exact")
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "8k": {"trigger": ("fraction", 0.6), "keep": ("fraction", 0.4)},
    "conservative": {"trigger": ("tokens", 8000), "keep": ("messages", 40), "trim_tokens_to_summarize": None},
    "long_running": {"trigger": [("fraction", 0.7), ("messages", 100)]},
    "minimal": {"trigger": ("tokens", 4000), "keep": ("messages", 20)},
    "multi_model": {"trigger": ("fraction", 0.7), "keep": ("fraction", 0.3), "trim_tokens_to_summarize": 4000},
    "overview": {"trigger": [("fraction", 0.8), ("messages", 50)], "keep": ("messages", 20), "trim_tokens_to_summarize": 4000},
    "production": {"trigger": [("tokens", 6000), ("messages", 75)], "keep": ("messages", 25), "trim_tokens_to_summarize": 5000},
    "short_session": {"trigger": [("messages", 30)], "keep": ("messages", 15)},
}
SMALL, LARGE = 8192, 32_768
WORDS = "the committee met again and went through open points one after another without deciding very much about any of them".split()  # noqa: SIM905 - a sentence reads better


def window_of(settings: Mapping[str, Any]) -> int:
    """8K for what is a fraction of the window, as the documents have it; else one in which the absolute sizes have room."""
    entries = settings["trigger"] if isinstance(settings["trigger"], list) else [settings["trigger"]]
    return SMALL if any(kind == "fraction" for kind, _ in entries) else LARGE


@dataclass
class Watch:
    """A run model that notes the size of every request, and when something first stood for messages that left."""

    window: int
    requests: list[tuple[int, int, int]] = field(default_factory=list)
    """(tokens of the whole, tokens of the messages, messages), summaries not counted as messages"""
    compactions: list[int] = field(default_factory=list)
    kept: list[tuple[int, int]] = field(default_factory=list)
    before: list[tuple[int, int, int]] = field(default_factory=list)
    _summary: str | None = None
    _goal: str | None = None

    def model(self) -> ScriptedModel:
        return ScriptedModel(self.answer, profile={"max_input_tokens": self.window}, model_name="gpt-4o", usage=False)

    def answer(self, request: Request) -> Any:
        history = [m for m in request.messages if m.type != "system"]
        self._goal = self._goal or history[0].text
        fixed = COUNT.count_tools(request.tools) + 3 + sum(COUNT.count_message(m) for m in request.messages if m.type == "system")
        summary = next((m for m in history if "summary of the conversation to date" in m.text), None)
        said = [m for m in history if m is not summary]
        tokens = COUNT.count_messages(history)
        if summary is not None and summary.text != self._summary:
            self._summary = summary.text
            self.compactions.append(len(self.requests))
            tail = [m for m in said if m.text != self._goal]
            self.kept.append((COUNT.count_messages(tail), len(tail)))
            if self.requests:
                whole, alone, count = self.requests[-1]
                new = COUNT.count_message(history[-1]) + COUNT.count_text("Noted.") + 4
                self.before.append((whole + new, alone + new, count + 2))
        self.requests.append((fixed + tokens, tokens, len(said)))
        return reply("Noted.", usage=None)


def text_of(turn: int, words: int) -> str:
    return f"{turn}: " + " ".join(WORDS[(turn + number) % len(WORDS)] for number in range(words))


def run(graph: Any, watch: Watch, *, words: int, turns: int, until_first: bool = False) -> None:
    """The talk, whole or until something has left."""
    for turn in range(turns):
        graph.invoke({"messages": [HumanMessage(text_of(turn, words))]}, {"configurable": {"thread_id": "t"}})
        if until_first and watch.compactions:
            return


def plain_agent(settings: Mapping[str, Any], watch: Watch, **more: Any) -> Any:
    """A plain `create_agent` with our middleware. Recall is off: it would add to the messages what is measured here."""
    notes = ScriptedModel(_summaries(), usage=False, profile={"max_input_tokens": watch.window})
    keep = SummarizationMiddleware(notes, **{**settings, "archive": MemoryArchive(), "recall": False, **more})
    return create_agent(watch.model(), [], middleware=[keep], checkpointer=InMemorySaver())


def langchain_agent(settings: Mapping[str, Any], watch: Watch) -> Any:
    """The same with LangChain's."""
    notes = ScriptedModel(_summaries(), usage=False, profile={"max_input_tokens": watch.window})
    given: dict[str, Any] = {"keep": ("messages", 20), **settings, "token_counter": COUNT.count_messages}
    keep: Any = LangChains(notes, **given)
    return create_agent(watch.model(), [], middleware=[keep], checkpointer=InMemorySaver())


def lead_agent(settings: Mapping[str, Any], watch: Watch, base: Path) -> Any:
    """The lead agent from a configuration; without models in it a summary is an extract."""
    given = {**settings, "enabled": True, "recall": {"enabled": False}}
    off = {"memory": {"enabled": False}, "title": {"enabled": False}}
    config = config_from_values({"summarization": given, **off}, environ={"HOLDFAST_HOME": str(base)})
    return make_lead_agent(config, model=watch.model()).graph


def _summaries() -> Any:
    number = iter(range(10_000))
    return lambda request: f"NOTES {next(number)}: points were gone through."


def row(settings: Mapping[str, Any], watch: Watch) -> dict[str, Any]:
    """One line of the table."""
    entries = settings["trigger"] if isinstance(settings["trigger"], list) else [settings["trigger"]]
    place = {"fraction": 0, "tokens": 1, "messages": 2}
    limits = [(kind, value * watch.window if kind == "fraction" else value) for kind, value in entries]
    found: dict[str, Any] = {"threshold": " or ".join(f"{kind} {value:g}" for kind, value in entries), "window": watch.window}
    if watch.before:
        started = watch.before[0]
        kind, limit = max(limits, key=lambda one: started[place[one[0]]] / one[1])
        step = watch.requests[1][place[kind]] - watch.requests[0][place[kind]]
        found |= {"by": f"{kind} {limit:g}", "started": started[place[kind]], "one_turn": step}
        found |= {"kept_tokens": watch.kept[0][0], "kept_messages": watch.kept[0][1]}
    return {
        **found,
        "compactions": len(watch.compactions),
        "calls": len(watch.requests),
        "over_the_window": sum(whole > watch.window for whole, _, _ in watch.requests),
    }


def trigger_starts(*, turns: int = 300, sizes: tuple[int, ...] = (30, 100, 300), lead: bool = True) -> dict[str, Any]:
    """The table: configuration by message size; ours in a plain agent and in the lead agent, and LangChain's."""
    table: dict[str, Any] = {}
    for name, settings in CONFIGURATIONS.items():
        for words in sizes:
            rows: dict[str, Any] = {}
            for whose in ("plain", "lead", "langchain") if lead else ("plain", "langchain"):
                watch = Watch(window_of(settings))
                with tempfile.TemporaryDirectory() as folder:
                    makers = {"plain": plain_agent, "langchain": langchain_agent}
                    graph = lead_agent(settings, watch, Path(folder)) if whose == "lead" else makers[whose](settings, watch)
                    run(graph, watch, words=words, turns=turns)
                rows[whose] = row(settings, watch)
            table[f"{name}, {words} words"] = rows
    return table
