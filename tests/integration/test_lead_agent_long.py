"""A14, S4, S10: a conversation of hundreds of turns stays within its window, costs the same all the way, and leaves little on disk.

What is counted is work, not time: messages in the state, tokens sent, rows and bytes of checkpoints, memory of the process.
"""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Effort
from tests.unit.agents.bench import lead, look, scripted, whole

from holdfast.testing.script import Request, call
from holdfast.tokens.counter import open_counter

WINDOW = 8_000
SETTINGS = {
    "summarization": {"enabled": True, "trigger": {"type": "fraction", "value": 0.8}, "keep": {"type": "messages", "value": 10}},
    "memory": {"debounce_seconds": 1},  # the turns are as much faster than a person's
}
MEGABYTE = 1 << 20


def answer(request: Request) -> Any:
    """Every third question is answered after a look; every answer is a paragraph."""
    last = request.last
    if last.type == "human" and int(last.text.split()[1]) % 3 == 0:
        return [call("look", {"what": last.text})]
    return f"About that: {'it is as it was, and it will be so for a while. ' * 6}"


class Watch:
    """Looks at every request, and keeps none."""

    def __init__(self) -> None:
        self.count = open_counter().count_message
        self.most = self.broken = self.calls = 0

    def __call__(self, request: Request) -> None:
        self.calls += 1
        self.most = max(self.most, sum(map(self.count, request.messages)))
        self.broken += not whole([message for message in request.messages if message.type != "system"])


def memory_of_this_process() -> int:
    """Without the caches of bounded size, which fill up slowly: what is asked is whether anything grows without bound."""
    for cached in [one for one in gc.get_objects() if isinstance(one, functools._lru_cache_wrapper)]:
        if cached.cache_info().maxsize is not None:  # the others hold what is loaded once, the model of the embedder among it
            cached.cache_clear()
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@dataclass
class Measured:
    """What a conversation looked like all the way."""

    most: int = 0
    broken: int = 0
    state: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    questions: list[int] = field(default_factory=list)
    bytes: int = 0


def converse(folder: Path, turns: int) -> Measured:
    watch, measured = Watch(), Measured()
    model = scripted(answer, on_call=watch)
    with lead(folder, model, SETTINGS, [look]) as agent:
        talk = agent.conversation("t")
        for number in range(1, turns + 1):
            talk.ask(f"Question {number} of the test: {'what was it that we said about the move to Mill Lane? ' * 9}")
            model.script._requests.clear()  # the script remembers every request; a real model does not
            measured.state.append(len(talk.messages))
            measured.rows.append(agent.parts.checkpoints.rows("t"))
            if number % (turns // 10) == 0:
                measured.resident.append(memory_of_this_process())
        measured.questions = [int(record.text.split()[1]) for record in talk.history() if record.role == "human"]
        measured.bytes = sum(path.stat().st_size for path in folder.glob("checkpoints.db*"))
    measured.most, measured.broken = watch.most, watch.broken
    return measured


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_a_long_conversation_stays_within_its_window_and_costs_the_same_all_the_way(effort: Effort, tmp_path: Path) -> None:
    turns = effort(60, 2_000)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:  # memory of a process that does nothing else
        seen = alone.submit(converse, tmp_path, turns).result()
    half = len(seen.state) // 2
    assert seen.most < WINDOW, "no request was over the window"
    assert seen.broken == 0
    assert max(seen.state[half:]) <= max(seen.state[:half]) + 4, "the state does not grow"
    assert max(seen.rows[half:]) <= max(seen.rows[:half]) + 4, "neither do the checkpoints"
    assert max(seen.rows) < 80
    assert seen.bytes < 5 * MEGABYTE, f"the checkpoints have {seen.bytes} bytes"
    assert seen.resident[-1] - seen.resident[4] < 30 * MEGABYTE, f"the process grew: {[one // MEGABYTE for one in seen.resident]} MB"
    assert seen.questions == list(range(1, turns + 1)), "no word is lost"
