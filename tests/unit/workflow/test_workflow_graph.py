"""W13: stages that run at once, and stages that are added while a workflow runs."""

from __future__ import annotations

import threading
import time
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workflow.support import Place, linear, output, saved

from holdfast.clock import SystemClock
from holdfast.errors import (
    InputError,
)
from holdfast.events import Bus
from holdfast.workflow import events
from holdfast.workflow.agent import StageRequest, StageResult
from holdfast.workflow.control import result_of

# Graphs, and stages that are added (W13)


def diamond() -> dict[str, Any]:
    workflow = linear("plan", "left", "right", "end")
    workflow["stages"][1]["needs"] = workflow["stages"][2]["needs"] = ["plan"]
    return workflow


def test_independent_stages_run_at_once_and_the_file_does_not_depend_on_their_order(tmp_path: Path) -> None:
    files = []
    for number, slow in enumerate(("left", "right")):
        place = Place(tmp_path / str(number))
        both = threading.Barrier(2, timeout=240)

        def work(request: StageRequest, slow: str = slow, both: threading.Barrier = both) -> object:
            both.wait()  # goes on only when both stages are running
            if request.stage.name == slow:
                time.sleep(0.05)
            return output(request.stage.name)

        place.agent.script = {"left": [work], "right": [work]}
        place.run(diamond(), clock=SystemClock())
        files.append(saved(place))
    for part in ("completed_stages", "stage_outputs", "status"):
        assert files[0][part] == files[1][part]
    assert [*files[0]["stage_outputs"]] == [*files[1]["stage_outputs"]] == ["plan", "left", "right", "end"]
    assert [shot["stage"] for shot in files[0]["memory_snapshots"]] == ["plan", "left", "right", "end"]


def test_stages_of_a_graph_see_what_they_waited_for_and_nothing_else(place: Place) -> None:
    place.run(diamond())
    given = {request.stage.name: [one.stage_name for one in request.given] for request in place.agent.requests}
    assert given == {"plan": [], "left": ["plan"], "right": ["plan"], "end": ["plan", "left", "right"]}


def test_no_more_stages_run_at_once_than_allowed(place: Place, told: tuple[Bus, list[Any]]) -> None:
    """W13: each stage goes on only when another one runs beside it; how many ran at a time is told by the events, in their order."""
    bus, seen = told
    pair = threading.Barrier(2, timeout=240)

    def work(request: StageRequest) -> object:
        pair.wait()
        return output(request.stage.name)

    names = [f"s{number}" for number in range(6)]
    place.agent.script = {name: [work] for name in names}
    session = place.run({**linear(*names, needs=[]), "max_parallel": 2}, bus=bus, clock=SystemClock())
    steps = [isinstance(event, events.StageStarted) - isinstance(event, events.StageCompleted) for event in seen]
    assert session.status == "completed"
    assert max(accumulate(steps)) == 2


def test_when_one_branch_fails_what_runs_beside_it_is_kept(tmp_path: Path) -> None:
    place = Place(tmp_path)
    failed = threading.Event()

    def fail(request: StageRequest) -> object:
        failed.set()
        raise InputError("no")

    def slow(request: StageRequest) -> object:
        failed.wait(240)
        time.sleep(0.03)
        return output("right")

    place.agent.script = {"left": [fail], "right": [slow]}
    session = place.run(diamond(), clock=SystemClock())
    assert session.status == "halted"
    assert session.completed_stages == ("plan", "right")
    assert session.error is not None and session.error.stage == "left"


def test_a_stage_may_add_others_within_the_limit(place: Place) -> None:
    extra = ({"name": "dig", "agent_type": "x"}, {"name": "sift", "agent_type": "x"})
    place.agent.script = {"plan": [lambda request: StageResult(output=output("plan"), add_stages=extra)]}
    session = place.run({**linear("plan", "end"), "max_added_stages": 2})
    assert session.completed_stages == ("plan", "dig", "sift", "end")
    assert saved(place)["stages"]["dig"]["added_by"] == "plan"
    assert [stage["name"] for stage in saved(place)["workflow"]["stages"]] == ["plan", "end"]
    assert [*result_of(session)] == ["end"]


def test_added_stages_are_known_after_a_resume(place: Place) -> None:
    extra = ({"name": "dig", "agent_type": "x", "max_repairs": 0},)
    place.agent.script = {"plan": [lambda request: StageResult(output=output("plan"), add_stages=extra)], "dig": ["bad"]}
    assert place.run({**linear("plan", "end"), "max_added_stages": 1}).status == "halted"
    assert place.resume().completed_stages == ("plan", "dig", "end")
    assert place.agent.ran == ["plan", "dig", "dig", "end"]


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ([{"name": "b"}, {"name": "c"}], "1 more are allowed"),
        ([{"name": "end"}], "already"),
        ([{"name": "b", "agent_type": "nobody"}], "no agent type"),
        ([{"name": "b", "needs": ["nothing"]}], "no stage"),
        ([{"agent_type": "x"}], "is missing"),
    ],
)
def test_stages_that_cannot_be_added_are_told_to_the_agent(place: Place, extra: list[dict[str, Any]], words: str) -> None:
    wanted = tuple({"agent_type": "x", **one} for one in extra)
    place.agent.script = {"plan": [lambda request: StageResult(output=output("plan"), add_stages=wanted)]}
    session = place.run({**linear("plan", "end"), "max_added_stages": 1})
    assert session.status == "completed"
    assert session.completed_stages == ("plan", "end")
    feedback = place.agent.requests[1].feedback
    assert feedback is not None and words in feedback


class Broken:
    """An agent that cannot be made, for a reason that is nobody's output."""

    def __init__(self) -> None:
        raise RuntimeError("a bug of ours")


def test_a_bug_while_stages_are_added_is_not_taken_for_a_wrong_output(place: Place) -> None:
    """W13, W4: the agent is not asked to repair what it did not do; the stage starts again at the next resume."""
    extra = ({"name": "dig", "agent_type": "broken"},)
    place.agent.script = {"plan": [lambda request: StageResult(output=output("plan"), add_stages=extra)]}
    with pytest.raises(RuntimeError, match="a bug of ours"):
        place.run({**linear("plan"), "max_added_stages": 2}, agents={"x": place.agent, "broken": Broken})
    assert place.agent.ran == ["plan"]
    assert place.resume().completed_stages == ("plan",)
