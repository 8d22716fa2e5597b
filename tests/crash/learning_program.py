"""A program of a user who has the memory middleware in an agent and does nothing else for it: the tests start and kill it.

    python learning_program.py BASE WAYS EXTRACTOR DEBOUNCE MESSAGE...

Each message is sent in the way that stands at its place (`invoke,async,stream,lead`). Says `answered` when all are answered, and then
waits to be killed, or ends with `WAYS:end`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from tests.crash.memory_worker import name, opened

from holdfast import MemoryMiddleware, make_lead_agent
from holdfast.agents.middleware.memory import open_memory
from holdfast.config.loading import config_from_values
from holdfast.config.sections import Config
from holdfast.memory.facts import Candidate, Fact, Proposal, Turn
from holdfast.memory.service import MemoryService
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import repeat


class Quotes:
    """Proposes what the user said, word for word; `hang` never comes to an end with it."""

    def __init__(self, kind: str, out: TextIO) -> None:
        self.kind, self.out = kind, out

    def extract(self, turns: Sequence[Turn], facts: Sequence[Fact]) -> Proposal:
        print("extracting", file=self.out, flush=True)
        if self.kind == "hang":
            time.sleep(600)
        return Proposal(tuple(Candidate(turn.text, "knowledge", 0.9, quote=turn.text) for turn in turns if turn.kind == "user"))


def learner() -> ScriptedModel:
    """A model that finds the same fact in everything."""
    fact = {"content": "User prefers Emacs", "category": "preference", "confidence": 0.95, "quote": "I prefer Emacs."}
    return ScriptedModel([repeat({"facts": [fact]})], profile={"max_input_tokens": 8000})


def run(out: TextIO, base: str, ways: str, kind: str, debounce: str, *said: str) -> None:
    ways, _, then = ways.partition(":")
    values = {"memory": {"debounce_seconds": float(debounce)}, "title": {"enabled": False}}
    config = config_from_values(values, environ={"HOLDFAST_HOME": base})
    memory = open_memory(config, model=learner()) if kind == "model" else MemoryService.open(config, extractor=Quotes(kind, out))
    memory.worker._exit_seconds = 1.0 if kind == "hang" else 30.0
    for way, text in zip(ways.split(","), said, strict=True):
        talk(way, text, config, memory)
    print("answered", file=out, flush=True)
    if then != "end":
        time.sleep(600)


def answers_for_ever(base: Path, first: int, pipe: int) -> None:
    """Answer message after message, each in a thread of its own, and say its number once it is answered."""
    memory = opened(base)
    agent: Any = create_agent(ScriptedModel([repeat("Noted.")]), [], middleware=[MemoryMiddleware(memory)])
    for number in itertools.count(first):
        agent.invoke({"messages": [HumanMessage(f"I know somebody called {name(number)}.")]}, {"configurable": {"thread_id": f"t{number}"}})
        os.write(pipe, f"{number}\n".encode())


def talk(way: str, text: str, config: Config, memory: MemoryService) -> None:
    model = ScriptedModel([repeat("Noted.")], profile={"max_input_tokens": 8000})
    agent: Any = (
        make_lead_agent(config, model=model, tools=[], memory=memory).graph
        if way == "lead"
        else create_agent(model, [], middleware=[MemoryMiddleware(memory)])
    )
    given, settings = {"messages": [HumanMessage(text)]}, {"configurable": {"thread_id": way}}
    if way == "async":
        asyncio.run(agent.ainvoke(given, settings))
    elif way == "stream":
        list(agent.stream(given, settings, stream_mode="messages"))
    else:
        agent.invoke(given, settings)


if __name__ == "__main__":
    run(sys.stdout, *sys.argv[1:])
