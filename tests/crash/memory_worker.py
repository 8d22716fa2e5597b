"""A process that queues, learns and edits memory for ever, and a ledger of what it began and what it acknowledged."""

from __future__ import annotations

import os
import random
import string
from collections.abc import Sequence
from pathlib import Path

from holdfast.config.memory_sections import Memory
from holdfast.memory.facts import Candidate, Fact, Proposal, Turn
from holdfast.memory.service import MemoryService
from holdfast.memory.storage import PostgresMemoryStorage

__all__ = ["Ledger", "Quotes", "name", "opened", "parse", "work"]

HABIT = "I drink green tea every morning."


class Quotes:
    """Proposes what the user said, sentence by sentence."""

    def extract(self, turns: Sequence[Turn], facts: Sequence[Fact]) -> Proposal:
        said = [f"{sentence.strip(' .')}." for turn in turns for sentence in turn.text.split(". ")]
        return Proposal(tuple(Candidate(sentence, "knowledge", 0.9, quote=sentence) for sentence in said))


def name(number: int) -> str:
    choose = random.Random(number)
    return "".join(choose.choice(string.ascii_lowercase) for _ in range(9)).title()


def opened(base: Path, dsn: str = "") -> MemoryService:
    """Memory in a folder, or with an address in a schema of PostgreSQL that is named after the folder."""
    settings = Memory(debounce_seconds=0, max_facts=1_000_000)
    if not dsn:
        return MemoryService.at(base, extractor=Quotes(), settings=settings)
    return MemoryService(PostgresMemoryStorage(base, dsn, schema=f"run_{base.name}"), extractor=Quotes(), settings=settings)


def work(base: Path, first: int, seed: int, pipe: int, dsn: str = "") -> None:
    """Queue (q), learn (l) and add by hand (a) for ever. Each line on the pipe says what is begun (`-`) and what is done (`+`)."""
    choose = random.Random(seed)
    memory = opened(base, dsn)
    memory.queue.recover()
    number = first
    while True:
        number += 1
        way = choose.choice("qqla")
        os.write(pipe, f"- {way} {number}\n".encode())
        if way == "q":
            text = f"I know somebody called {name(number)}. {HABIT}"
            memory.enqueue(f"thread-{number}", [Turn(f"m{number}", "user", text)])
        elif way == "a":
            memory.add(f"Knows somebody by hand called {name(number)}")
        else:
            memory.worker._one(early=True)
        os.write(pipe, f"+ {way} {number}\n".encode())


def parse(lines: list[str]) -> list[tuple[str, str, int]]:
    """What was said on the pipe. A last line that was cut short was not said."""
    return [(sign, way, int(number)) for sign, way, number in (line.split() for line in lines if line.endswith("\n"))]


class Ledger:
    """What was begun and what was acknowledged, over all runs on one folder."""

    def __init__(self) -> None:
        self.begun: dict[str, set[int]] = {"q": set(), "a": set(), "l": set(), "s": set()}
        self.done: dict[str, set[int]] = {"q": set(), "a": set(), "l": set(), "s": set()}

    def hear(self, lines: list[tuple[str, str, int]]) -> None:
        for sign, way, number in lines:
            (self.begun if sign == "-" else self.done)[way].add(number)

    def faults(self, base: Path, dsn: str = "") -> list[str]:
        """Recover, learn from all that waits, and compare: nothing acknowledged is lost, nothing is there twice."""
        memory = opened(base, dsn)
        memory.queue.recover()
        flushed = memory.flush()
        faults = [f"the queue is not empty: {flushed}"] if flushed.failed or flushed.left else []
        document = memory.document()
        learned = 0
        for way, form in (("q", "I know somebody called {}."), ("a", "Knows somebody by hand called {}")):
            known = {form.format(name(number)): number for number in self.begun[way]}
            found = [known[fact.content] for fact in document.facts if fact.content in known]
            lost, twice = self.done[way] - set(found), len(found) - len(set(found))
            learned += len(found) if way == "q" else 0
            if lost or twice:
                faults.append(f"{way}: lost {sorted(lost)}, {twice} there twice")
        habits = [fact for fact in document.facts if fact.content == HABIT]
        said = sum(fact.confirmations for fact in habits)
        if len(habits) > 1 or said != learned:
            faults.append(f"the habit was learned from {learned} conversations and counted {said} times, in {len(habits)} facts")
        changes = memory.history()
        items = [change.item for change in changes if change.item]
        if len(items) != len(set(items)):
            faults.append("an update is in the history twice")
        if [change.revision for change in changes] != list(range(1, document.revision + 1)):
            faults.append(f"the history has {len(changes)} changes and the document revision {document.revision}")
        memory.close()
        return faults
