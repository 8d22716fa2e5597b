"""LangChain's and deepagents' `SummarizationMiddleware` beside ours, on the same conversations with the same scripted models.

coverage: the share of what a compaction removes that the summarizer was shown. loss: 100 facts said once in 1,000 messages, after ten
compactions. cost: the check before a model call in which nothing is to be done. overflow: requests over a window of 8,192 tokens as a
stand-in server counts them, with a server that reports the truth and with four that do not. hostile: summarizers that do not do their work.
The three sides have the same trigger and the same messages kept; a summarizer call is bounded as each of them does it by default.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.parts.check_cost import check_cost
from benchmarks.parts.conversation import conversation, facts, tool_loop
from benchmarks.parts.hostile import SUMMARIZERS, hostile
from benchmarks.parts.peer_runs import Result, Row, compare
from benchmarks.parts.planted import echoing_models, grown, in_view
from benchmarks.parts.read_share import SETTINGS, marked_message, note_taker, read_of
from benchmarks.parts.server_reports import WINDOW, talk
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware as LangChains
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

from holdfast import SummarizationMiddleware
from holdfast.context.archive import FileArchive
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import repeat

PEERS = ("LangChain", "deepagents")
HONEST = "the truth, at the end of a stream"
DISHONEST = ("what was not cached", "a tenth", "cut at half of the window", "three times ours")


class Sides:
    """Makes the middlewares, each with a folder of its own for what it keeps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0

    def make(self, side: str, model: Any, **settings: Any) -> tuple[Any, Callable[[], str]]:
        """The middleware, and what gives all text that it keeps outside of the agent's state."""
        self._count += 1
        place = self.folder / f"{side}-{self._count}"
        place.mkdir(parents=True)
        if side == "ours":
            archive = FileArchive(place)
            return SummarizationMiddleware(model, archive=archive, **settings), lambda: "\n".join(
                record.text for thread in archive.threads() for record in archive.messages(thread)
            )
        if side == "LangChain":
            return LangChains(model, **settings), lambda: ""
        from deepagents.backends import FilesystemBackend
        from deepagents.middleware.summarization import SummarizationMiddleware as DeepAgents

        backend = FilesystemBackend(root_dir=str(place), virtual_mode=True)
        settings["trim_tokens_to_summarize"] = None  # as its own factory does
        made = DeepAgents(model, backend=backend, **settings)
        return made, lambda: "\n".join(path.read_text() for path in place.rglob("*.md"))


def coverage(sides: Sides, chat: int) -> dict[str, dict[str, float]]:
    """By history and side: the share of removed messages that stood in a prompt of the summarizer."""
    found: dict[str, dict[str, float]] = {}
    for name, history in (("a tool loop of 120 messages", tool_loop(120)), (f"a chat of {chat} messages", conversation(chat)[0])):
        marked = [marked_message(message) for message in history]
        found[name] = {}
        for side in ("ours", *PEERS):
            summarizer = note_taker()
            found[name][side] = read_of(marked, sides.make(side, summarizer, **SETTINGS)[0], summarizer)["share"]
    return found


def loss(sides: Sides, length: int, count: int) -> dict[str, float]:
    """The share of planted facts that can be read word for word after ten compactions: in the state, or in what the side keeps."""
    messages, places = conversation(length, facts()[:count])
    found = {}
    for side in ("ours", *PEERS):
        running, summarizer = echoing_models()
        middleware, kept = sides.make(side, summarizer, trigger=("messages", 100), keep=("messages", 20))
        agent: Any = create_agent(running, [], middleware=[middleware], checkpointer=InMemorySaver())
        state = grown(messages, agent, 10)
        text = kept() + "\n".join(message.text for message in state)
        found[side] = sum(fact.fact in text for fact in places.values()) / count
        found[f"{side}, sent"] = in_view(list(running.requests[-1].messages), places) / count  # type: ignore[arg-type]  # messages either way
    return found


def check_of_deepagents(sides: Sides, size: int, calls: int) -> float:
    """Microseconds of its hook when nothing is to be done, two messages being new: as `check_cost` measures ours."""
    profile: Any = {"max_input_tokens": 100_000_000}
    model = ScriptedModel([repeat("never asked")], profile=profile)
    middleware, _ = sides.make("deepagents", model, trigger=("fraction", 0.9))
    runtime: Any = SimpleNamespace(execution_info=SimpleNamespace(thread_id="t"), context=None)
    response = ModelResponse(result=[AIMessage("Fine.", id="answer")])
    messages, _ = conversation(size)
    took = []
    gc.collect()
    gc.disable()
    try:
        for number in range(calls):
            history = [*messages[:-2], *(message.model_copy(update={"id": f"{number}-{message.id}"}) for message in messages[-2:])]
            state: Any = {"messages": history}
            request: Any = ModelRequest(model=model, messages=history, tools=[], state=state, runtime=runtime)
            began = time.perf_counter()
            middleware.wrap_model_call(request, lambda _: response)
            took.append(time.perf_counter() - began)
    finally:
        gc.enable()
    return median(took) * 1e6


def found_by_question(sides: Sides, length: int, count: int) -> float:
    """Ours alone has a search over what left the window: the share of facts among the five that it gives for a question."""
    from benchmarks.parts.planted import planted_facts

    ours = planted_facts(sides.folder / "planted", length=length, count=count)["ours"]
    return float(ours["found_by_sparser_question"])


def measure(folder: Path, quick: bool) -> Result:
    sides = Sides(folder)
    rows: list[Row] = []
    for name, shares in coverage(sides, 200 if quick else 400).items():
        rows += [
            Row(f"coverage: read by the summarizer of what was removed, {name}", shares["ours"], shares[p], "more", "%", p) for p in PEERS
        ]
    length, count = (300, 30) if quick else (1000, 100)
    facts_left = loss(sides, length, count)
    what = f"loss: {count} facts of {length:,} messages, readable word for word after ten compactions"
    rows += [Row(what, facts_left["ours"], facts_left[peer], "more", "%", peer) for peer in PEERS]
    asked = found_by_question(sides, length, count)
    what = "loss: found by a question with one or two of its words, five results or the window"
    rows += [Row(what, asked, facts_left[f"{peer}, sent"], "more", "%", peer) for peer in PEERS]
    calls = 20 if quick else 100
    check = check_cost([1000], calls=calls)["1000"]
    rows.append(Row("cost: the check of a call, 1,000 messages", check["ours_us"], check["langchain_us"], "less", "µs", "LangChain"))
    deep = check_of_deepagents(sides, 1000, calls // 5)
    rows.append(Row("cost: the check of a call, 1,000 messages", check["ours_us"], round(deep, 1), "less", "µs", "deepagents"))
    turns = 12 if quick else 60
    details: dict[str, Any] = {"overflow": {}, "hostile": {}}
    for kind in (HONEST, *DISHONEST):
        table = details["overflow"][kind] = {}
        for side in ("ours", *PEERS):
            notes = ScriptedModel(lambda request: "NOTES: points were gone through.", usage=False, profile={"max_input_tokens": WINDOW})
            keeper, _ = sides.make(side, notes, trigger=("fraction", 0.8), keep=("messages", 20))
            table[side] = talk(kind, keeper, turns)
        what = f"overflow: requests over the window of {turns}, the server reports {kind}"
        rows += [Row(what, table["ours"]["over"], table[peer]["over"], "less", "", peer) for peer in PEERS]
    turns = 30 if quick else 50
    for kind in SUMMARIZERS:
        made: dict[str, dict[str, float]] = {}
        for side in ("ours", *PEERS):

            def keeper_of(model: ScriptedModel, side: str = side) -> tuple[Any, Callable[[], str]]:
                return sides.make(side, model, trigger=("fraction", 0.8), keep=("messages", 10))

            made[side] = hostile(kind, keeper_of, turns=turns)
        details["hostile"][kind] = made
        for key, what, better, unit in (
            ("failed", f"turns of {turns} that fail", "less", ""),
            ("over", "requests over the window", "less", ""),
            ("readable", "of what was said can still be read", "more", "%"),
        ):
            words = f"hostile: the summarizer {kind}; {what}"
            rows += [Row(words, made["ours"][key], made[peer][key], better, unit, peer) for peer in PEERS]  # type: ignore[arg-type]  # a word of two
    notes_of = [
        "deepagents keeps what leaves the window in a file that the model has to read again; it has no search to ask, so of it "
        "only what is sent is counted as found.",
        "`python benchmarks/context.py` runs the overflow table with 400 turns and seven kinds of reports.",
    ]
    return Result(rows, notes_of, details)


if __name__ == "__main__":
    compare("langchain", ["langchain==1.4.7", "deepagents==0.7.32"], measure)
