"""Long conversations made from the sentences in `data/context`: the same ones every time for the same seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

__all__ = ["DATA", "Fact", "Speech", "conversation", "facts", "tool_loop"]

DATA = Path(__file__).parents[1] / "data" / "context"
_TOOLS = ("web_search", "read_file", "run_query", "calendar")


@dataclass(frozen=True)
class Fact:
    """A thing that is said once, how somebody asks for it later, and a query in its own words."""

    fact: str
    question: str
    own_words: str
    sparser: str = ""
    """An earlier wording of the question that mostly shares one term only. It was reworded after a search had been tried on it."""

    @property
    def sparsest(self) -> str:
        return self.sparser or self.question


@cache
def facts() -> tuple[Fact, ...]:
    """The planted facts, in the order of the file."""
    lines = (DATA / "facts.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(Fact(**json.loads(line)) for line in lines)


@cache
def _sentences() -> Mapping[str, Sequence[str]]:
    read: dict[str, list[str]] = json.loads((DATA / "filler.json").read_text(encoding="utf-8"))
    return read


class Speech:
    """Sentences of everyday talk. Every kind of message has its own; topics and stray mentions make them share words."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._parts = _sentences()
        self._echoes: list[str] = []
        self._about: tuple[int, list[str]] = (-1, [])

    def say(self, kind: str, turn: int) -> str:
        """A message of this kind. All of one turn is about the same two things."""
        if self._about[0] != turn:
            self._about = (turn, self.rng.sample(self._parts["topics"], 2))
        a, b = self._about[1]
        text = self.rng.choice(self._parts[kind]).replace("{a}", a).replace("{b}", b)
        return f"{text} {self._echo()}" if kind == "asks" and self.rng.random() < 0.25 else text

    def with_fact(self, fact: str, text: str) -> str:
        """A fact on its own, or in the company of other talk."""
        opener = self.rng.choice(self._parts["openers"])
        return self.rng.choice([fact, f"{text} {fact}", f"{opener} {fact}", f"{opener} {fact} {text}"])

    def _echo(self) -> str:
        """A mention of somebody or something that a fact is about, without the fact; each as often as the others."""
        if not self._echoes:
            self._echoes = self.rng.sample(self._parts["echoes"], len(self._parts["echoes"]))
        return self._echoes.pop()


def conversation(length: int, planted: Sequence[Fact] = (), *, seed: int = 20261115) -> tuple[list[AnyMessage], dict[str, Fact]]:
    """Messages of a user, an assistant and its tools, and which of them (by id) says which fact."""
    speech = Speech(seed)
    kinds = list(_kinds(speech.rng, length))
    fit = [number for number, (kind, _) in enumerate(kinds) if kind != "call" and number > 0]
    places = dict(zip(sorted(speech.rng.sample(fit, len(planted))), speech.rng.sample(planted, len(planted)), strict=True))
    messages = [_message(number, kind, turn, places.get(number), speech) for number, (kind, turn) in enumerate(kinds)]
    return messages, {f"m{number}": fact for number, fact in places.items()}


def tool_loop(length: int, *, seed: int = 7) -> list[AnyMessage]:
    """One goal, and then only calls and their results."""
    speech = Speech(seed)
    goal: list[AnyMessage] = [HumanMessage("GOAL: find out what the move to the new office would cost us.", id="goal")]
    for number in range(1, length):
        kind = "call" if number % 2 else "tool"
        goal.append(_message(number, kind, number, None, speech, longer=3))
    return goal


def _kinds(rng: random.Random, length: int) -> Iterator[tuple[str, int]]:
    """Who speaks, and in which turn. A turn is a question and an answer, now and then with a tool in between."""
    made, turn = 0, 0
    while made < length:
        turn += 1
        kinds = ("human", "call", "tool", "ai") if rng.random() < 0.2 and length - made >= 4 else ("human", "ai")
        for kind in kinds[: length - made]:
            made += 1
            yield kind, turn


def _message(number: int, kind: str, turn: int, fact: Fact | None, speech: Speech, *, longer: int = 1) -> AnyMessage:
    id = f"m{number}"
    if kind == "call":
        name = speech.rng.choice(_TOOLS)
        call: dict[str, Any] = {"id": f"c{number}", "name": name, "args": {"text": speech.say("asks", turn)}}
        return AIMessage("", id=id, tool_calls=[call])
    text = " ".join(speech.say({"human": "asks", "ai": "answers", "tool": "results"}[kind], turn) for _ in range(longer))
    if fact is not None:
        text = speech.with_fact(fact.fact, text)
    if kind == "tool":
        return ToolMessage(text, id=id, tool_call_id=f"c{number - 1}", name="web_search")
    return HumanMessage(text, id=id) if kind == "human" else AIMessage(text, id=id)
