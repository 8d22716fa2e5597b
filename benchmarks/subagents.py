"""What a sub-agent costs besides its model calls. Prints JSON.

first_event: milliseconds from the start of a sub-agent to its first event, and as a share of one turn of its own.
overhead: milliseconds of one sub-agent of two turns whose model answers at once, beside the same two turns of a bare agent of LangChain
without a checkpointer, and beside twelve bare commits, about as many as it makes so that a crash undoes nothing.
crowd: seconds for 40 sub-agents of two turns at four at once, whose model takes 50 ms a call, beside the time that no harness could beat.

`--quick` makes everything smaller; its figures are no results.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool

from holdfast.agents.lead import LeadAgent, make_lead_agent
from holdfast.agents.subagents import Task
from holdfast.config.loading import config_from_values
from holdfast.durable.database import open_database
from holdfast.events import Bus
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import Request, call, delay


@tool
def look(what: str) -> str:
    """Looks something up."""
    return f"Seen for {what}."


def script(seconds: float) -> Any:
    def answer(request: Request) -> Any:
        said: Any = "done" if request.last.type == "tool" else [call("look", {"what": "x"})]
        return delay(seconds, said) if seconds else said

    return answer


def lead(base: Path, seconds: float, at_once: int) -> LeadAgent:
    config = config_from_values({"subagents": {"max_concurrent": at_once}}, environ={"HOLDFAST_HOME": str(base)})
    model = ScriptedModel(script(seconds), profile={"max_input_tokens": 8_000})
    return make_lead_agent(config, model=model, tools=[look], bus=Bus())


class Timed:
    """When each event of a sub-agent came."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.at: list[tuple[str, float]] = []

    def __call__(self, event: dict[str, Any]) -> None:
        self.at.append((event["type"], time.perf_counter() - self.begun))


def run(agent: LeadAgent, count: int) -> list[Timed]:
    kind = agent.registry.find("general-purpose")
    watches = []
    started = []
    for number in range(count):
        watch = Timed()
        watches.append(watch)
        started.append(agent.executor.start(Task(kind, f"part {number}", f"part {number}", 20, parent="t"), watch))
    assert all(one.result().status == "completed" for one in started)
    return watches


def first_event(times: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as base, lead(Path(base), 0.05, 4) as agent:
        run(agent, 1)  # the first one makes the agent of its type
        watches = [run(agent, 1)[0] for _ in range(times)]
    first = statistics.median(watch.at[0][1] for watch in watches)
    turn = statistics.median(watch.at[1][1] - watch.at[0][1] for watch in watches)
    return {"ms": 1000 * first, "ms_of_a_turn": 1000 * turn, "share_of_a_turn": first / turn}


def overhead(times: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as base:
        with lead(Path(base), 0, 4) as agent:
            run(agent, 1)
            ours = statistics.median(_taken(lambda: run(agent, 1)) for _ in range(times))
        bare_agent: Any = create_agent(ScriptedModel(script(0), profile={"max_input_tokens": 8_000}), [look])
        given: Any = {"messages": [HumanMessage("part")]}
        bare = statistics.median(_taken(lambda: bare_agent.invoke(given)) for _ in range(times))
        database = open_database(Path(base) / "bare.db", migrations=["CREATE TABLE t (x BLOB);"])
        commits = statistics.median(_taken(lambda: _commits(database, 12)) for _ in range(times))
        database.close()
    return {"ms": 1000 * ours, "bare_ms": 1000 * bare, "times_bare": ours / bare, "twelve_commits_ms": 1000 * commits}


def crowd(count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as base, lead(Path(base), 0.05, 4) as agent:
        run(agent, 1)
        taken = _taken(lambda: run(agent, count))
    best = 2 * 0.05 * count / 4
    return {"seconds": taken, "best_possible": best, "times_best": taken / best}


def _taken(work: Any) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _commits(database: Any, count: int) -> None:
    for _ in range(count):
        database.execute("INSERT INTO t VALUES (zeroblob(2000))")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small numbers, to see that it works")
    quick = parser.parse_args().quick
    found = {"first_event": first_event(3 if quick else 25), "overhead": overhead(3 if quick else 25), "crowd": crowd(8 if quick else 40)}
    print(json.dumps({part: {name: round(value, 3) for name, value in values.items()} for part, values in found.items()}, indent=2))


if __name__ == "__main__":
    main()
