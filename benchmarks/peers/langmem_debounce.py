"""Learning that waits until a conversation is quiet: LangMem's `ReflectionExecutor` and Holdfast's memory queue, killed while they wait.

A process hands over conversations, each to be learned from after a while of quiet, and says so; then it is killed with SIGKILL. A new
process begins, is given the time that was to be waited, and it is counted which conversations were learned from. Nobody asks a model: what
learns writes down which conversation it was given.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.parts.peer_runs import Result, Row, compare

from holdfast.config.memory_sections import Memory
from holdfast.memory.facts import Fact, Proposal, Turn
from holdfast.memory.service import MemoryService

QUIET = 10


def noted(folder: Path, thread: str) -> None:
    with (folder / "learned").open("a") as file:
        file.write(f"{thread}\n")


class Ours:
    def __init__(self, folder: Path) -> None:
        class Learner:
            def extract(self, turns: Sequence[Turn], facts: Sequence[Fact]) -> Proposal:
                for turn in turns:
                    noted(folder, turn.text.split()[-1])
                return Proposal(())

        self.memory = MemoryService.at(folder / "memory", extractor=Learner(), settings=Memory(debounce_seconds=QUIET))
        self.memory.start(signals=False)

    def submit(self, thread: str) -> None:
        self.memory.enqueue(thread, [Turn(f"m-{thread}", "user", f"We talked about the harbour in {thread}")])


class Theirs:
    def __init__(self, folder: Path) -> None:
        from langchain_core.runnables import RunnableLambda
        from langgraph.store.memory import InMemoryStore
        from langmem import ReflectionExecutor
        from langmem.utils import NamespaceTemplate

        learner: Any = RunnableLambda(lambda given: noted(folder, given["messages"][0]["content"].split()[-1]))
        object.__setattr__(learner, "namespace", NamespaceTemplate(("memories",)))
        self.executor: Any = ReflectionExecutor(learner, store=InMemoryStore())

    def submit(self, thread: str) -> None:
        messages = [{"role": "user", "content": f"We talked about the harbour in {thread}"}]
        self.executor.submit({"messages": messages}, {"configurable": {"thread_id": thread}}, after_seconds=QUIET)


def child(way: str, folder: Path, count: int) -> None:
    """In a process of its own: hand over so many conversations, then live on."""
    side = Ours(folder) if way == "ours" else Theirs(folder)
    times = []
    for number in range(count):
        began = time.perf_counter()
        side.submit(f"thread-{number}")
        times.append((time.perf_counter() - began) * 1000)
    print(f"{statistics.median(times) if times else 0}", flush=True)
    time.sleep(600)


def learned(folder: Path) -> set[str]:
    place = folder / "learned"
    return set(place.read_text().split()) if place.exists() else set()


def run(folder: Path, way: str, count: int, *, killed: bool) -> tuple[int, float]:
    """How many of the conversations were learned from in the end, and milliseconds of handing one over."""
    place = folder / f"{way}-{killed}"
    place.mkdir()
    words = [sys.executable, __file__, "--child", way, str(place)]
    took = 0.0
    for number, many in enumerate((count, 0) if killed else (count,)):
        process = subprocess.Popen([*words, str(many)], stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        said = float(process.stdout.readline() or "nan")
        took = took or said
        if number == 0 and killed:
            assert not learned(place), "it learned before it was quiet: the machine is too slow for this"
        else:
            deadline = time.monotonic() + 20 * QUIET
            while len(learned(place)) < count and time.monotonic() < deadline:
                time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        process.wait()
    return len(learned(place)), took


def measure(folder: Path, quick: bool) -> Result:
    count = 3 if quick else 12
    rows = []
    for killed in (False, True):
        ours, ours_ms = run(folder, "ours", count, killed=killed)
        theirs, theirs_ms = run(folder, "theirs", count, killed=killed)
        what = f"learned from, of {count} conversations" + (", after a kill during the quiet time" if killed else ", nothing in the way")
        rows.append(Row(what, ours, theirs, "more"))
    rows.append(Row("handing one over", ours_ms, theirs_ms, "less", "ms"))
    return Result(
        rows, [f"The quiet time is {QUIET} s. Here a hand-over is on the disk when the call returns; there it is in a list of the process."]
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    else:
        compare("langmem", ["langmem==0.0.30"], measure)
