"""W6, W13: whatever the graph, the order of endings and the moment of a kill, planning starts each stage once, after its needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.session.output import StageOutput
from holdfast.session.state import STAGE_STATUSES, Session, StageRecord
from holdfast.workflow import transitions
from holdfast.workflow.agent import StageResult
from holdfast.workflow.definition import Stage, Workflow, ancestors
from holdfast.workflow.transitions import (
    Accept,
    AskAgain,
    Fail,
    Finish,
    Halt,
    Pause,
    RetryLater,
    Start,
    Tries,
    Wait,
    done_stages,
    given_stages,
    next_step,
    placed,
    verdict_on,
)
from holdfast.workflow.workflow_file import parse_workflow

AT = "2026-01-01T00:00:00.000Z"


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    count = draw(st.integers(1, 8))
    names = [f"s{number}" for number in range(count)]
    stages: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        stage: dict[str, Any] = {"name": name, "approve": draw(st.booleans()) if draw(st.integers(0, 4)) == 0 else False}
        needs = draw(st.none() | st.lists(st.sampled_from(names[:number]), unique=True)) if number else draw(st.none() | st.just([]))
        if needs is not None:
            stage["needs"] = needs
        stages.append(stage)
    return parse_workflow({"id": "w", "stages": stages, "max_parallel": draw(st.integers(1, 3))})


def output(name: str) -> StageOutput:
    return StageOutput(name, f"{name} is done")


def played(workflow: Workflow, choices: Sequence[int]) -> tuple[Session, list[str], Any]:
    """Runs a workflow in thought: each choice says which of the running stages ends, how, or that the process is killed."""
    session, running, started = Session("s"), list[str](), list[str]()
    picks = iter([*choices, *[0] * 1000])
    while True:
        step = next_step(workflow, session, set(running))
        match step:
            case Start(names):
                done = done_stages(session)
                for name in names:
                    assert name not in done and name not in running
                    assert done.issuperset(ancestors(name, workflow.needs)), "a stage starts when all before it is done"
                running.extend(names)
                started.extend(names)
                assert len(running) <= workflow.max_parallel
            case Wait():
                assert running
            case _:
                assert not running
                return session, started, step
        choice = next(picks)
        if choice % 7 == 6:
            running.clear()  # killed: what ran is lost, what was done is not
            continue
        stage = workflow.by_name[running.pop(choice % len(running))]
        if choice % 11 == 10:
            session = transitions.skipped(session, stage.name, at=AT, seconds=1)
        else:
            session = transitions.completed(session, workflow, stage, output(stage.name), at=AT, seconds=1)


@given(workflows(), st.lists(st.integers(0, 100), max_size=30))
def test_every_stage_is_started_after_its_needs_and_never_again_once_it_is_done(workflow: Workflow, choices: list[int]) -> None:
    session, _, step = played(workflow, choices)
    done = done_stages(session)
    if isinstance(step, Finish):
        assert done == set(workflow.by_name)
    else:
        assert isinstance(step, Pause)
        assert all(session.stages[name].status == "waiting" for name in step.stages)


@given(workflows(), st.permutations(range(20)), st.permutations(range(20)))
def test_the_session_does_not_depend_on_the_order_in_which_stages_end(workflow: Workflow, one: list[int], other: list[int]) -> None:
    orders = [[77 * number for number in order] for order in (one, other)]  # no kill and no skip among them
    first, second = (played(workflow, choices)[0] for choices in orders)
    assert first == second
    assert [*first.stage_outputs] == [*second.stage_outputs]
    assert list(first.completed_stages) == [stage.name for stage in workflow.stages if stage.name in first.completed_stages]


@given(workflows())
def test_each_stage_is_started_once_when_nothing_goes_wrong(workflow: Workflow) -> None:
    session, started, _ = played(workflow, [])
    assert len(started) == len(set(started))
    assert set(session.stage_outputs) == set(started)


@given(workflows(), st.lists(st.integers(0, 100), max_size=30))
def test_a_stage_is_given_what_was_done_before_it_in_the_order_of_the_file(workflow: Workflow, choices: list[int]) -> None:
    session, _, _ = played(workflow, choices)
    for stage in workflow.stages:
        names = given_stages(workflow, session, stage.name)
        assert set(names) <= ancestors(stage.name, workflow.needs)
        assert list(names) == sorted(names, key=lambda name: workflow.order[name])


@given(workflows(), st.integers(0, 7))
def test_a_failed_stage_halts_and_the_file_says_where(workflow: Workflow, number: int) -> None:
    stage = workflow.stages[number % len(workflow.stages)]
    session = transitions.with_record(Session("s"), stage.name, status="failed")
    assert next_step(workflow, session, {"other"}) == Wait()
    assert next_step(workflow, session) == Halt((stage.name,))
    where = placed(workflow, session)
    assert where.current_stage is not None and where.current_stage != where.next_stage


ANSWERS = st.sampled_from(
    [
        {"summary": "fine", "key_findings": [], "confidence": "high"},
        {"summary": "unsure", "key_findings": [], "confidence": "low"},
        {"summary": 3},
        "no json",
        None,
        ValueError("x"),
        TimeoutError(),
    ]
)


@given(
    st.lists(ANSWERS, max_size=40),
    st.integers(0, 4),
    st.integers(0, 4),
    st.sampled_from(["continue", "recheck", "halt"]),
)
def test_whatever_an_agent_answers_the_tries_of_a_stage_come_to_an_end(answers: list[Any], retries: int, repairs: int, low: Any) -> None:
    stage = Stage("a", retries=retries, max_repairs=repairs, on_low_confidence=low)
    tries = Tries.of(stage)
    for count, answer in enumerate([*answers, *["no json"] * 20], start=1):
        failed = isinstance(answer, BaseException)
        verdict = verdict_on(stage, tries, None if failed else StageResult(output=answer), answer if failed else None)
        if isinstance(verdict, Accept | Fail):
            assert count <= 2 + retries + repairs
            if isinstance(verdict, Accept):
                assert verdict.provisional == (verdict.output.confidence == "low")
                assert low != "halt" or not verdict.provisional
            return
        assert isinstance(verdict, AskAgain | RetryLater)
        tries = verdict.tries
    raise AssertionError("it never ended")


@st.composite
def edited_sessions(draw: st.DrawFn) -> tuple[Workflow, Session]:
    """A chain, and a session in which a person may have changed which stages are completed: not only the first ones, in any order."""
    names = [f"s{number}" for number in range(draw(st.integers(1, 6)))]
    workflow = parse_workflow({"id": "w", "stages": [{"name": name} for name in names]})
    begun = draw(st.permutations(names)) if draw(st.booleans()) else names
    begun = begun[: draw(st.integers(0, len(names)))]
    completed = begun[: draw(st.integers(0, len(begun)))] if draw(st.booleans()) else draw(st.lists(st.sampled_from(names), unique=True))
    status = st.sampled_from(STAGE_STATUSES)
    stages = {name: StageRecord(status=draw(status)) for name in begun}
    return workflow, Session("s", completed_stages=tuple(completed), stages=stages)


@given(edited_sessions())
def test_a_chain_whose_session_was_edited_is_planned_as_any_other(case: tuple[Workflow, Session]) -> None:
    """What is quicker for stages that end one after the other says the same as the plain way, whatever the session holds (W6, W13)."""
    workflow, session = case
    skipped = {name for name, one in session.stages.items() if one.status == "skipped" and name not in session.completed_stages}
    done = skipped | {*session.completed_stages}
    still_open = [name for name in workflow.order if name not in done]
    assert transitions.skipped_stages(session) == skipped
    assert placed(workflow, session).current_stage == next(iter(still_open), None)
    for number, name in enumerate(workflow.order):
        before = [*workflow.order][:number]
        assert given_stages(workflow, session, name) == tuple(one for one in before if one in session.completed_stages)
