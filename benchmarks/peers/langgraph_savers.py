"""A chain of stages with LangGraph's `SqliteSaver` and as a Holdfast session: what a stage costs, what is kept, what `kill -9` costs.

The stages answer at once and return the same output of some 600 bytes. Rounds alternate between the two sides; times are medians. For the
kills a process runs 20 stages of about 20 ms and is killed with SIGKILL at a random moment; a new one goes on. A stage whose successor had
begun and that runs again all the same is counted: its work was done, and its cost is paid twice. LangGraph is measured with durability
"sync", the one that compares, and killed also with "async", which is its default.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.parts.peer_runs import Result, Row, compare
from benchmarks.workflow import langgraph, ours, output

from holdfast.workflow.run_settings import file_sessions

KILLED_STAGES = 20


def costs(folder: Path, stages: int, rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds, milliseconds of the processor and bytes, all for one stage."""
    sides = {"ours": ours(lambda place: file_sessions(place / "sessions")), "theirs": langgraph}
    taken: dict[str, list[tuple[float, float, float]]] = {"ours": [], "theirs": []}
    for turn in range(-1, rounds):
        for name, run in sides.items():
            place = folder / f"{stages}-{turn}-{name}"
            place.mkdir()
            took, used = run(stages if turn >= 0 else 3, place)
            kept = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
            if turn >= 0:  # the first round only loads what each side needs
                taken[name].append((took * 1000 / stages, used * 1000 / stages, kept / stages))
    return {
        name: {key: statistics.median(one[at] for one in some) for at, key in enumerate(("ms", "cpu_ms", "bytes"))}
        for name, some in taken.items()
    }


def noted(ledger: Path, words: str) -> None:
    handle = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, f"{words}\n".encode())
    os.close(handle)


def chain(way: str, folder: Path) -> None:
    """In a process of its own: run the chain, or go on with it."""
    names = [f"s{number:02d}" for number in range(KILLED_STAGES)]

    def stage(name: str) -> dict[str, Any]:
        noted(folder / "ledger", f"begin {name}")
        time.sleep(0.02)
        noted(folder / "ledger", f"end {name}")
        return output(name)

    if way == "ours":
        from holdfast.workflow.launcher import resume, run_workflow

        store = file_sessions(folder / "sessions")
        parts: dict[str, Any] = {"agents": {"x": lambda request: stage(request.stage.name)}, "config": {}, "store": store}
        parts["folder"] = folder / "work"
        if store.exists("s"):
            resume("s", check=True, **parts)
        else:
            stages = [{"name": name, "agent_type": "x"} for name in names]
            run_workflow({"id": "bench", "task": "Measure.", "stages": stages}, session_id="s", check=True, **parts)
        assert store.load("s").completed_stages == tuple(names)
    else:
        from benchmarks.workflow import State
        from langgraph.checkpoint.sqlite import SqliteSaver
        from langgraph.graph import END, START, StateGraph

        graph: Any = StateGraph(State)
        for name in names:
            graph.add_node(name, lambda state, name=name: {"outputs": {name: stage(name)}})
        for before, after in zip([START, *names], [*names, END], strict=True):
            graph.add_edge(before, after)
        with SqliteSaver.from_conn_string(str(folder / "checkpoints.db")) as saver:
            compiled = graph.compile(checkpointer=saver)
            settings: Any = {"configurable": {"thread_id": "s"}, "recursion_limit": KILLED_STAGES + 10}
            there = compiled.get_state(settings)
            compiled.invoke(None if there.created_at else {"outputs": {}}, settings, durability=way)
            assert len(compiled.get_state(settings).values["outputs"]) == KILLED_STAGES
    noted(folder / "ledger", "whole")


def kills(way: str, folder: Path, count: int) -> dict[str, int]:
    """What came of so many killed runs: stages that ran again although they were over, and chains that could not be finished."""
    chance = random.Random(20261115)
    again = unfinished = 0
    for number in range(count):
        place = folder / f"{way}-{number}"
        place.mkdir()
        ledger = place / "ledger"
        words = [sys.executable, __file__, "--chain", way, str(place)]
        first = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        point = chance.randint(2, KILLED_STAGES - 1)
        while first.poll() is None and not (ledger.exists() and ledger.read_text().count("begin") >= point):
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.02))
        first.send_signal(signal.SIGKILL)
        first.wait()
        begun = [line.split()[1] for line in ledger.read_text().splitlines() if line.startswith("begin")]
        over = set(begun[:-1])
        subprocess.run(words, check=False, stderr=subprocess.DEVNULL)
        lines = ledger.read_text().splitlines()
        unfinished += lines[-1] != "whole"
        runs = [line.split()[1] for line in lines if line.startswith("begin")][len(begun) :]
        again += sum(name in over for name in runs)
    return {"again": again, "unfinished": unfinished}


def measure(folder: Path, quick: bool) -> Result:
    rows = []
    for stages in (5, 10) if quick else (10, 50):
        cost = costs(folder, stages, 1 if quick else 3)
        for key, what, unit in (
            ("ms", "time of a stage", "ms"),
            ("cpu_ms", "processor of a stage", "ms"),
            ("bytes", "kept of a stage", "bytes"),
        ):
            rows.append(Row(f"{what}, chain of {stages}", cost["ours"][key], cost["theirs"][key], "less", unit, peer="sync"))
    count = 3 if quick else 6
    mine = kills("ours", folder, count)
    for way in ("sync", "async"):
        theirs = kills(way, folder, count)
        rows.append(Row(f"stages run again although they were over, {count} kills", mine["again"], theirs["again"], "less", peer=way))
        rows.append(
            Row(f"chains that could not be finished after a kill, of {count}", mine["unfinished"], theirs["unfinished"], "less", peer=way)
        )
    return Result(rows, ["A commit here writes the session and a recovery point, both durable before the next stage."])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--chain"]:
        chain(sys.argv[2], Path(sys.argv[3]))
    else:
        compare("langgraph", ["langgraph==1.2.20", "langgraph-checkpoint-sqlite==3.1.2"], measure)
