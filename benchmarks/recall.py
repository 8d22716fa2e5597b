"""What left the window and comes back by itself: is the evidence in the request, without any tool call? (S9, S19). Prints one JSON object.

    python benchmarks/recall.py                                  # 2,000 messages with 200 planted facts
    python benchmarks/recall.py --locomo locomo.jsonl.xz         # and conversations in the form of `holdfast eval recall`

A conversation is fed through a window of 8,000 tokens, here and with LangChain's `SummarizationMiddleware`, with the same summarizer (it
repeats the end of what it was given). Then each question is asked from that same state. planted: in the first wording of the questions.
together: all conversations of the file as one; apart: each by itself. share: the mean share of a question's evidence that stands in the
request word for word; any, all: some of it, all of it. small_talk: turns with which nothing was added, where nothing was asked for.
elsewhere: the same for questions about the other conversation. cost: a whole turn with recall against one without.

The formula behind the floor was fitted on one half of the questions and of the small talk; `unseen` are the figures of the other half.
`--quick` makes everything smaller; its figures are no results.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median
from typing import Any
from zlib import crc32

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.parts.conversation import DATA, conversation, facts
from benchmarks.parts.planted import echo
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware as Theirs
from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.context.archive import FileArchive
from holdfast.context.recall import Recalled
from holdfast.context.records import records_of
from holdfast.events import Bus, Event
from holdfast.knowledge.evaluation import TestConversation, read_conversations
from holdfast.testing.clock import FakeClock
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import repeat

_WINDOW = 8_000
_PART = 20  # messages that come in at a time
_FITTED = frozenset({"planted", "conv-26", "conv-41"})  # where the formula was fitted; of `planted` and of the small talk on one half

_REPORTS = False


@dataclass(frozen=True)
class Asked:
    """A question and the texts that answer it. `fitted`: it was looked at when the formula behind the floor was made."""

    text: str
    evidence: tuple[str, ...] = ()
    kind: str = ""
    fitted: bool = False


@dataclass(frozen=True)
class Talk:
    """A conversation in the parts in which it comes in, each with its time, and what is asked afterwards."""

    parts: Sequence[tuple[datetime, Sequence[AnyMessage]]]
    questions: Sequence[Asked]


class Side:
    """An agent with one of the two middlewares, and the state of the conversation that was fed to it."""

    def __init__(self, base: Path | None, *, recall: bool = True) -> None:
        profile: Any = {"max_input_tokens": _WINDOW}
        self.model = ScriptedModel([repeat("Noted.")], profile=profile, usage=_REPORTS)
        notes = ScriptedModel([repeat(echo)], profile=profile, usage=_REPORTS)
        self.clock, self.added = FakeClock(datetime(2000, 1, 1, tzinfo=UTC)), 0
        bus = Bus()
        bus.subscribe(self._note)
        settings: Any = {"trigger": ("fraction", 0.8), "keep": ("messages", 20)}
        middleware: Any = Theirs(notes, **settings)
        if base is not None:
            middleware = SummarizationMiddleware(notes, **settings, archive=FileArchive(base, clock=self.clock), bus=bus, recall=recall)
        self._agent: Any = create_agent(self.model, [], middleware=[middleware], checkpointer=InMemorySaver())
        self._config: Any = {"configurable": {"thread_id": "talk"}}

    def feed(self, talk: Talk) -> list[int]:
        """Take the conversation in; says how many tokens were added to each part of it."""
        added = []
        for moment, messages in talk.parts:
            self.clock.set(max(moment, self.clock.now()))
            self.added = 0
            self._agent.invoke({"messages": list(messages)}, self._config)
            added.append(self.added)
        self._config = self._agent.get_state(self._config).config
        return added

    def ask(self, question: str) -> tuple[str, int]:
        """The request that a question makes in that state, as one line, and how many tokens were added to it."""
        self.added = 0
        self._agent.invoke({"messages": [HumanMessage(question)]}, self._config)
        return _plain("\n".join(message.text for message in self.model.requests[-1].messages)), self.added

    def _note(self, event: Event) -> None:
        if isinstance(event, Recalled):
            self.added += event.tokens


def _plain(text: str) -> str:
    return " ".join(text.replace("&lt;", "<").replace("&gt;", ">").split())


def _half(text: str) -> bool:
    return crc32(text.encode()) % 2 == 0


def planted(length: int, count: int) -> Talk:
    """The conversation with the planted facts, asked for in the first wording of the questions."""
    messages, places = conversation(length, facts()[:count])
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    parts = [(moment, messages[start : start + _PART]) for start in range(0, len(messages), _PART)]
    asked = [Asked(fact.sparsest, (fact.fact,), fitted=_half(fact.sparsest)) for fact in places.values()]
    return Talk(parts, asked)


def chats(conversations: Iterable[TestConversation], most: int | None) -> Talk:
    """Conversations between people as one, a session at a time; each message has the name of who said it."""
    parts: list[tuple[datetime, Sequence[AnyMessage]]] = []
    asked: list[Asked] = []
    for one in conversations:
        sessions: dict[str, list[Any]] = {}
        for record in one.records:
            sessions.setdefault(record.session or "", []).append(record)
        for records in sessions.values():
            said: list[AnyMessage] = [HumanMessage(record.text, name=record.speaker, id=f"{one.id}/{record.id}") for record in records]
            parts.append((records[0].time or datetime(2026, 1, 1, tzinfo=UTC), said))
        texts = {one.named[record.id]: record.text for record in one.records}
        for question in one.questions[:most]:
            evidence = tuple(texts[name] for name in sorted(question.evidence))
            if evidence:
                asked.append(Asked(question.text, evidence, question.type, one.id in _FITTED))
    return Talk(parts, asked)


def small_talk() -> list[Asked]:
    """Turns with which nothing is asked for, in four languages."""
    kinds: Mapping[str, list[str]] = json.loads((DATA / "small_talk.json").read_text(encoding="utf-8"))
    return [Asked(text, kind=language, fitted=_half(text)) for language, texts in kinds.items() for text in texts]


def found(side: Side, questions: Sequence[Asked]) -> dict[str, Any]:
    """How much of the evidence is in the requests, and what was added to them."""
    rows = []
    for question in questions:
        request, added = side.ask(question.text)
        rows.append((question, [_plain(text) in request for text in question.evidence], added))
    return {"all_questions": _figures(rows), "unseen": _figures([row for row in rows if not row[0].fitted]), "by_type": _by_type(rows)}


def _figures(rows: Sequence[tuple[Asked, list[bool], int]]) -> dict[str, Any]:
    if not rows:
        return {"questions": 0}
    return {
        "questions": len(rows),
        "share": round(mean(sum(seen) / len(seen) for _, seen, _ in rows), 3),
        "any": round(mean(any(seen) for _, seen, _ in rows), 3),
        "all": round(mean(all(seen) for _, seen, _ in rows), 3),
        "tokens_added": round(mean(added for *_, added in rows)),
    }


def _by_type(rows: Sequence[tuple[Asked, list[bool], int]]) -> dict[str, float]:
    kinds = sorted({question.kind for question, *_ in rows} - {""})
    return {kind: _figures([row for row in rows if row[0].kind == kind])["share"] for kind in kinds}


def silent(side: Side, turns: Sequence[Asked]) -> dict[str, Any]:
    """The share of turns to which nothing was added, and those that got something."""
    added = [(turn, side.ask(turn.text)[1]) for turn in turns]
    unseen = [tokens for turn, tokens in added if not turn.fitted]
    shares = {"turns": len(added), "nothing_added": round(mean(not tokens for _, tokens in added), 3)}
    if unseen:
        shares |= {"unseen_turns": len(unseen), "unseen_nothing_added": round(mean(not tokens for tokens in unseen), 3)}
    return {**shares, "added_to": [turn.text for turn, tokens in added if tokens][:10]}


def measured(base: Path, talk: Talk, others: Sequence[Asked], *, cost: int) -> dict[str, Any]:
    """One conversation, on both sides."""
    ours, theirs = Side(base / "ours"), Side(None)
    fed = ours.feed(talk)
    theirs.feed(talk)
    print(f"{base.name}: {len(talk.questions)} questions", file=sys.stderr)
    result = {
        "messages": sum(len(messages) for _, messages in talk.parts),
        "ours": found(ours, talk.questions),
        "langchain": found(theirs, talk.questions),
        "tokens_added_while_it_came_in": {
            "turns": len(fed),
            "mean": round(mean(fed)),
            "turns_with_nothing": round(mean(not one for one in fed), 3),
        },
        "small_talk": silent(ours, small_talk()),
        "elsewhere": silent(ours, others),
    }
    bare = Side(base / "bare", recall=False)
    bare.feed(talk)
    times = [(_seconds(ours, question.text), _seconds(bare, question.text)) for question in talk.questions[:cost]]
    with_it, without = (median(column) * 1e3 for column in zip(*times, strict=True))
    result["cost"] = {"turn_ms": round(with_it, 1), "turn_without_ms": round(without, 1), "ratio": round(with_it / without, 1)}
    return result


def _seconds(side: Side, question: str) -> float:
    start = time.perf_counter()
    side.ask(question)
    return time.perf_counter() - start


def first_search(base: Path, sizes: Sequence[int]) -> dict[str, Any]:
    """Seconds of this process's time for the first search of archives that nobody has searched, and for the same search again."""
    question = facts()[5].sparsest
    seconds: list[float] = []
    again: list[float] = []
    with closing(FileArchive(base / "warm")) as warm:
        warm.add("t", records_of([HumanMessage("The model is loaded.", id="m")]))
        warm.search("t", "Is the model loaded?")
    for size in sizes:
        messages, _ = conversation(size, facts()[:200])
        with closing(FileArchive(base / str(size))) as archive:
            for start in range(0, size, 5_000):
                archive.add("t", records_of(messages[start : start + 5_000]))
            for times in (seconds, again):
                start_time = time.process_time()
                archive.search("t", question)
                times.append(round(time.process_time() - start_time, 3))
    return {"messages": list(sizes), "first": seconds, "again": again, "ratio": round(seconds[-1] / seconds[0], 1)}


def main() -> None:
    reader = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    reader.add_argument("--locomo", type=Path, metavar="FILE", help="conversations between people with questions, one a line")
    reader.add_argument("--apart", action="store_true", help="also each conversation of the file by itself")
    reader.add_argument("--first-search", action="store_true", help="only how long the first search of a long archive takes")
    reader.add_argument("--quick", action="store_true", help="smaller and faster")
    reader.add_argument("--usage", action="store_true", help="the model reports its usage: a quarter of the letters, more than we count")
    given = reader.parse_args()
    global _REPORTS
    _REPORTS = given.usage
    warnings.simplefilter("ignore")  # what LangChain says about its own future is no part of the figures
    if given.first_search:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps({"first_search": first_search(Path(folder), (500, 5_000) if given.quick else (5_000, 50_000))}, indent=2))
        return
    cost = 5 if given.quick else 40
    first = planted(*((300, 30) if given.quick else (2000, 200)))
    conversations = list(read_conversations(given.locomo)) if given.locomo else []
    most = 10 if given.quick else None
    strange = [Asked(one.text) for one in chats(conversations, 20).questions][:80]
    result: dict[str, Any] = {"window": _WINDOW, "quick": given.quick}
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        result["planted"] = measured(base / "planted", first, strange or [Asked("Who won the regatta in 1987?")], cost=cost)
        if conversations:
            others = [Asked(one.text) for one in first.questions[:80]]
            result["together"] = measured(base / "together", chats(conversations, most), others, cost=cost)
            for one in conversations if given.apart else ():
                result.setdefault("apart", {})[one.id] = measured(base / one.id, chats([one], most), others, cost=cost)
    print(json.dumps(result, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
