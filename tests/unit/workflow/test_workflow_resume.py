"""W4, W6, W11, W14, W19: output that does not fit, hand edits, stopping and going on, what a person decides."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workflow.support import Place, linear, output, saved

from holdfast.clock import SystemClock
from holdfast.errors import (
    ConfigError,
    Damaged,
    InputError,
    OutputInvalid,
    StageFailed,
    WorkflowChanged,
)
from holdfast.knowledge.markdown import MarkdownStore
from holdfast.session.output import parse_output
from holdfast.session.state import Session, brief_of
from holdfast.session.store import SessionStore
from holdfast.session.story import tell
from holdfast.workflow.agent import StageRequest, StageResult
from holdfast.workflow.control import approve, cancel, fix, outdated_stages, reject, waiting_stages
from holdfast.workflow.launcher import resume


def resume_of(store: SessionStore, session_id: str) -> Session:
    return resume(session_id, store=store, config={}, agents={"x": Giving(None)})


# Output that does not fit (W4)


def test_an_output_with_a_value_that_has_no_form_in_json_is_malformed_like_any_other(place: Place) -> None:
    """W4: it is asked for again, and kept as far as JSON can hold it when the stage halts."""
    bad = {"v": float("nan"), "when": {1: "half \ud800", "by": Path("/x")}}
    place.agent.script = {"a": [output("a", data=bad)], "b": [output("b", data=bad)] * 3}
    session = place.run(linear("a", "b", "c"))
    assert "data.v: NaN has no form in JSON" in place.agent.prompts("a")[1]
    error = saved(place)["error"]
    assert (session.status, error["stage"], error["kind"]) == ("halted", "b", "malformed_output")
    assert error["problems"][0] == "data.v: NaN has no form in JSON; use null or a text"
    assert error["raw_output"]["data"] == {"v": "nan", "when": {"1": "half \\ud800", "by": "PosixPath('/x')"}}
    assert saved(place)["completed_stages"] == ["a"]


def test_such_an_output_is_skipped_where_the_stage_may_be_and_its_sibling_is_kept(place: Place) -> None:
    """W4, W13, W19."""
    place.agent.script = {"a": [output("a", summary="half \ud800")], "c": [ValueError("half \ud800")]}
    both = linear("a", "b", "c", max_repairs=0, retries=0, on_error="skip", needs=[])
    assert place.run(both).status == "completed"
    stages = saved(place)["stages"]
    assert {name: one["status"] for name, one in stages.items()} == {"a": "skipped", "b": "completed", "c": "skipped"}
    assert stages["c"]["errors"][0]["message"].endswith("ValueError: half \\ud800")


class Giving:
    """An agent that is an object, and returns what it is told to."""

    def __init__(self, found: object) -> None:
        self.found = found

    def run(self, request: StageRequest) -> object:
        return self.found() if callable(self.found) else self.found


async def _later() -> dict[str, Any]:
    return output("a")


def test_an_object_may_return_its_output_as_a_function_may(place: Place) -> None:
    """W12: a mapping, or JSON text."""
    for number, found in enumerate([output("a"), json.dumps(output("a"))]):
        session = place.run(linear("a"), agents={"x": Giving(found)}, session_id=f"s{number}")
        assert session.stage_outputs["a"].summary == "a is done"


@pytest.mark.parametrize("found", [None, 7, object(), [output("a")], _later])
def test_what_else_an_agent_returns_is_malformed_output_of_its_stage(place: Place, found: object) -> None:
    """W4, W12."""
    session = place.run(linear("a", max_repairs=0), agents={"x": Giving(found)})
    error = saved(place)["error"]
    assert (session.status, error["stage"], error["kind"]) == ("halted", "a", "malformed_output")
    assert "must be an object" in error["problems"][0]
    skipped = place.run(linear("a", max_repairs=1, on_error="skip"), agents={"x": Giving(found)}, session_id="s2")
    assert (skipped.status, skipped.stages["a"].status, skipped.stages["a"].repairs) == ("completed", "skipped", 1)


class Asynchronous:
    """An agent in the form of other frameworks."""

    async def run(self, request: StageRequest) -> object:
        return output("a")


class Called:
    """The same as a callable."""

    async def __call__(self, request: StageRequest) -> object:
        return output("a")


@pytest.mark.parametrize("agent", [Asynchronous, Asynchronous(), Called()])
def test_an_agent_that_is_asynchronous_is_refused_before_anything_runs(place: Place, agent: Any) -> None:
    """W12: as a function is."""
    with pytest.raises(ConfigError, match="not an `async` one") as caught:
        place.run(linear("a"), agents={"x": agent})
    assert caught.value.key == "stages.a.agent_type"
    assert not place.file.exists()


@pytest.mark.parametrize("wanted", [7, "dig", ["dig"], [{"name": "dig", "agent_type": "x", "why": "\ud800"}]])
def test_stages_that_cannot_be_added_are_part_of_a_malformed_output(place: Place, wanted: Any) -> None:
    """W4, W13."""
    result = StageResult(output=output("a"), add_stages=wanted)
    session = place.run(linear("a", max_repairs=0) | {"max_added_stages": 3}, agents={"x": Giving(result)})
    assert (session.status, saved(place)["error"]["kind"]) == ("halted", "malformed_output")
    assert saved(place)["error"]["problems"][0].startswith("add_stages")


def test_a_malformed_output_is_asked_for_again_with_what_was_wrong(place: Place) -> None:
    bad = {"summary": "x", "key_findings": [{"fact": "f"}], "confidence": "sure"}
    place.agent.script = {"a": [bad]}
    session = place.run(linear("a"))
    assert session.status == "completed"
    again = place.agent.requests[1]
    assert again.feedback is not None and "key_findings[0].source: is missing" in again.feedback
    assert again.feedback.splitlines()[-1] in again.prompt
    assert saved(place)["stages"]["a"]["repairs"] == 1
    assert saved(place)["stages"]["a"]["errors"][0]["kind"] == "malformed_output"


def test_an_unknown_stage_in_the_file_of_a_completed_session_is_told(place: Place) -> None:
    """W4: a misspelt name is told, whether anything is left to be run or not."""
    place.run(linear("plan", "research"))
    document = saved(place)
    document["completed_stages"].append("reserch")
    document["stage_outputs"]["reserch"] = output("reserch")
    place.file.write_text(json.dumps(document), "utf-8")
    with pytest.raises(WorkflowChanged, match="a stage that the workflow does not have: reserch") as told:
        place.resume()
    assert "Did you mean `research`?" in str(told.value)
    assert place.resume(accept_changes=True).status == "completed"


def test_all_mistakes_in_the_list_of_completed_stages_are_told_at_once(place: Place) -> None:
    """W4, W6."""
    place.agent.script = {"b": ["not json"] * 3}
    place.run(linear("a", "b", "c"))
    document = saved(place)
    document["completed_stages"] += ["b", "reserch"]
    place.file.write_text(json.dumps(document), "utf-8")
    with pytest.raises(OutputInvalid, match="'b', 'reserch', but stage_outputs has no output of it"):
        place.resume()
    with pytest.raises(OutputInvalid, match="'reserch': no stage of the workflow"):
        place.resume()


@pytest.mark.parametrize(
    "act", [approve, partial(reject, why="no"), cancel, resume_of, partial(fix, stage="a", text=json.dumps(output("a")))]
)
def test_an_edit_that_lists_a_stage_without_an_output_is_refused_before_anything_is_written(place: Place, act: Any) -> None:
    """W4, W6: whatever is done with the session; and no recovery point is made of it."""
    place.run(linear("a", "b", approve=True))
    document = saved(place)
    document["completed_stages"].append("zz")
    place.file.write_text(json.dumps(document, indent=2), "utf-8")
    line = next(number for number, text in enumerate(place.file.read_text("utf-8").splitlines(), 1) if "completed_stages" in text)
    log = (place.folder / "sessions/s1/log.jsonl").read_bytes()
    with pytest.raises(OutputInvalid, match=rf"names 'zz', but stage_outputs has no output of it \(line {line}\)"):
        act(place.store, "s1")
    assert saved(place) == document
    assert (place.folder / "sessions/s1/log.jsonl").read_bytes() == log
    assert [point.name for point in place.store.checkpoints("s1")] == []
    document["completed_stages"].remove("zz")
    place.file.write_text(json.dumps(document, indent=2), "utf-8")
    assert approve(place.store, "s1").completed_stages == ("a",)
    place.file.write_text(place.file.read_text("utf-8").replace('"completed_stages": [', '"completed_stages": ["zz",'), "utf-8")
    place.store.restore("s1", "001-a")
    assert [point.name for point in place.store.checkpoints("s1") if "restore" in point.name] == ["before-restore-001"]
    assert place.store.load_checkpoint("s1", "before-restore-001").completed_stages == ("a",)


def test_a_plain_function_is_not_asked_again_for_an_output_that_does_not_fit_unless_its_stage_says_so(place: Place) -> None:
    """W4, W12: it would do the same work again and answer the same."""
    asked: list[str | None] = []

    def works(request: StageRequest) -> dict[str, Any]:
        asked.append(request.feedback)
        return output(request.stage.name, key_findings=["water is wet"])

    session = place.run(linear("a"), agents={"x": works})
    assert (session.status, asked) == ("halted", [None])
    error = saved(place)["error"]
    assert error["problems"] == ["key_findings[0]: must be an object with fact and source, not text"]
    asked.clear()
    again = place.run(linear("a", max_repairs=2), agents={"x": works}, session_id="s2")
    assert (again.status, len(asked)) == ("halted", 3)
    assert asked[1] is not None and "must be an object with fact and source" in asked[1]


def test_a_stage_that_stays_malformed_halts_with_stage_error_and_raw_output(place: Place) -> None:
    place.agent.script = {"b": ["not json"] * 9}
    session = place.run(linear("a", "b", "c", max_repairs=1))
    assert session.status == "halted"
    assert place.agent.ran == ["a", "b", "b"]
    error = saved(place)["error"]
    assert (error["stage"], error["kind"], error["raw_output"]) == ("b", "malformed_output", "not json")
    assert "is not JSON" in error["problems"][0]
    assert saved(place)["completed_stages"] == ["a"]
    assert saved(place)["current_stage"] == "b"


def test_a_halted_stage_that_a_person_fixes_in_the_file_is_not_run_again(place: Place) -> None:
    place.agent.script = {"b": ["not json"] * 3}
    place.run(linear("a", "b", "c"))
    document = saved(place)
    document["stage_outputs"]["b"] = output("b", summary="by hand")
    place.file.write_text(json.dumps(document), "utf-8")
    place.agent.requests.clear()
    session = place.resume()
    assert session.status == "completed"
    assert place.agent.ran == ["c"]
    assert "by hand" in place.agent.requests[0].prompt
    assert saved(place)["error"] is None


def test_a_halted_stage_that_is_fixed_in_the_store_is_not_run_again(place: Place) -> None:
    place.agent.script = {"b": ["not json"] * 3}
    place.run(linear("a", "b", "c"))
    session = place.store.load("s1")
    outputs = {**session.stage_outputs, "b": parse_output(output("b"), stage="b")}
    place.store.commit(replace(session, stage_outputs=outputs), expect=session.revision)
    place.agent.requests.clear()
    assert place.resume().status == "completed"
    assert place.agent.ran == ["c"]


def test_what_read_a_corrected_stage_runs_again_and_nothing_else(place: Place) -> None:
    """W4, W6: a person's correction of a completed stage reaches all that read it, also through others; the rest stays as it is."""
    workflow = linear("a", "b", "c", "d")
    for stage, read in zip(workflow["stages"][1:], (["a"], [], ["b"]), strict=True):
        stage["inputs"] = read
    place.run(workflow)
    place.agent.requests.clear()
    same = fix(place.store, "s1", "a", json.dumps(saved(place)["stage_outputs"]["a"]))
    assert (same.status, outdated_stages(same)) == ("completed", ()), "nothing was corrected"
    done = fix(place.store, "s1", "a", json.dumps(output("a", summary="It was corrected.")))
    assert (done.status, outdated_stages(done), done.completed_stages) == ("ready", ("b", "d"), ("a", "c"))
    assert place.resume().status == "completed"
    assert place.agent.ran == ["b", "d"]
    assert "corrected" in str(place.agent.requests[0].given)
    assert [shot["stage"] for shot in saved(place)["memory_snapshots"]].count("b") == 1


def test_what_waits_for_a_person_and_read_a_corrected_stage_runs_again_before_anybody_agrees_to_it(place: Place) -> None:
    """W4, W14: before, an output made from the old words could be approved, and a recovery point had it without what it is made of."""
    workflow = linear("a", "b", "c", "d")
    workflow["stages"][2]["approve"] = True
    place.run(workflow)
    done = fix(place.store, "s1", "a", json.dumps(output("a", summary="It was corrected.")))
    assert (done.status, outdated_stages(done), done.completed_stages) == ("ready", ("b", "c"), ("a",))
    with pytest.raises(InputError, match="no stage"):
        approve(place.store, "s1")
    place.agent.requests.clear()
    assert place.resume().status == "paused"
    assert place.agent.ran == ["b", "c"]
    approve(place.store, "s1")
    assert place.resume().status == "completed"
    assert place.agent.ran == ["b", "c", "d"]


def test_a_halted_stage_that_nobody_fixed_runs_again(place: Place) -> None:
    place.agent.script = {"b": ["not json"] * 3}
    place.run(linear("a", "b", "c"))
    assert place.resume().status == "completed"
    assert place.agent.ran == ["a", "b", "b", "b", "b", "c"]


@pytest.mark.parametrize(
    ("spoil", "kind", "words"),
    [
        (lambda text: text[: len(text) // 2] + " my own words", Damaged, "line"),
        (lambda text: text.replace('"confidence": "high"', '"confidence": "very"'), Damaged, "confidence"),
        (lambda text: text.replace('"completed_stages": [', '"completed_stages": ["c",'), OutputInvalid, "no output"),
    ],
)
def test_a_file_that_a_person_made_invalid_is_a_clear_error_and_is_not_overwritten(
    place: Place, spoil: Any, kind: type[Exception], words: str
) -> None:
    place.agent.script = {"b": ["not json"] * 3}
    place.run(linear("a", "b", "c"))
    spoilt = spoil(place.file.read_text("utf-8"))
    place.file.write_text(spoilt, "utf-8")
    with pytest.raises(kind, match=words):
        place.resume()
    assert place.file.read_text("utf-8") == spoilt


def test_an_output_put_in_by_hand_is_held_to_the_stages_own_schema(place: Place) -> None:
    workflow = linear("a", "b")
    workflow["stages"][0]["output_schema"] = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    place.agent.script = {"a": [output("a")] * 3}
    assert place.run(workflow).status == "halted"
    document = saved(place)
    document["stage_outputs"]["a"] = output("a", data={"n": "three"})
    place.file.write_text(json.dumps(document), "utf-8")
    with pytest.raises(OutputInvalid, match=r"data\.n"):
        place.resume()
    document["stage_outputs"]["a"] = output("a", data={"n": 3})
    place.file.write_text(json.dumps(document), "utf-8")
    assert place.resume().status == "completed"


def test_a_completed_output_that_a_person_edited_is_checked_again(place: Place) -> None:
    workflow = linear("a", "b", max_repairs=0)
    workflow["stages"][0]["output_schema"] = {"type": "object", "properties": {"n": {"type": "integer"}}}
    place.agent.script = {"a": [output("a", data={"n": 3})], "b": ["bad"]}
    place.run(workflow)
    edited = place.file.read_text("utf-8").replace('"n": 3', '"n": "three"')
    place.file.write_text(edited, "utf-8")
    with pytest.raises(OutputInvalid, match=r"data\.n"):
        place.resume()
    assert place.file.read_text("utf-8") == edited


def test_a_stage_taken_out_of_the_completed_ones_runs_again(place: Place) -> None:
    place.run(linear("a", "b"))
    document = saved(place)
    document["completed_stages"] = ["a"]
    place.file.write_text(json.dumps(document), "utf-8")
    place.agent.requests.clear()
    assert place.resume().status == "completed"
    assert place.agent.ran == ["b"]


# Stopping and going on


def test_a_session_that_is_told_to_stop_stops_at_once_and_can_be_resumed(tmp_path: Path) -> None:
    place = Place(tmp_path)
    stop = threading.Event()
    release = threading.Event()

    def endless(request: StageRequest) -> object:
        stop.set()
        release.wait(240)
        return output("b")

    place.agent.script = {"b": [endless]}
    session = place.run(linear("a", "b", "c"), stop=stop, clock=SystemClock())
    release.set()
    assert session.status == "cancelled"
    assert saved(place)["completed_stages"] == ["a"]
    assert saved(place)["stages"]["b"]["status"] == "pending"
    assert place.resume().status == "completed"
    assert place.agent.ran == ["a", "b", "b", "c"]


def test_a_request_to_cancel_in_the_store_stops_the_run(tmp_path: Path) -> None:
    place = Place(tmp_path)
    release = threading.Event()

    def endless(request: StageRequest) -> object:
        place.store.request_cancel("s1")
        release.wait(240)
        return output("a")

    place.agent.script = {"a": [endless]}
    session = place.run(linear("a"), clock=SystemClock())
    release.set()
    assert session.status == "cancelled"
    assert place.resume().status == "completed"


def test_resuming_a_completed_session_runs_nothing(place: Place) -> None:
    place.run(linear("a"))
    before = place.file.read_bytes()
    assert place.resume().status == "completed"
    assert place.agent.ran == ["a"]
    assert place.file.read_bytes() == before


def test_a_workflow_that_changed_is_refused_unless_the_change_is_accepted(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    text = "id: w\ntask: t\nstages:\n  - {name: a, agent_type: x}\n  - {name: b, agent_type: x, max_repairs: 0}\n"
    file.write_text(text, "utf-8")
    place.agent.script = {"b": ["bad"]}
    place.run(file)
    file.write_text(text.replace("name: b,", "name: b, system_prompt: Other words,") + "  - {name: c, agent_type: x}\n", "utf-8")
    before = place.file.read_bytes()
    with pytest.raises(WorkflowChanged, match="c is new, b is different"):
        place.resume()
    assert place.file.read_bytes() == before
    session = place.resume(accept_changes=True)
    assert session.completed_stages == ("a", "b", "c")
    assert place.agent.requests[-2].system_prompt == "Other words"


@pytest.mark.parametrize("was_done", [True, False])
def test_a_stage_that_was_renamed_is_no_longer_counted_and_not_remembered(place: Place, was_done: bool) -> None:
    """W2, W6, W9: its output stays in the file, and is shown as that of a stage that was removed."""
    place.agent.script = {"c" if was_done else "b": ["bad"]}
    place.run(linear("a", "b", "c", max_repairs=0))
    knowledge = MarkdownStore(place.folder / "knowledge")
    session = place.resume(workflow=linear("a", "bee", "c", max_repairs=0), accept_changes=True, knowledge=knowledge)
    assert (session.status, session.progress()) == ("completed", (3, 3))
    assert ("b" in session.stage_outputs) is was_done
    story = tell(session)
    assert story.headline == "completed: 3 of 3 stages"
    shown = {chapter.name: chapter.status for chapter in story.chapters}
    assert shown == {"a": "completed", "bee": "completed", "c": "completed", "b": "removed"}
    assert {record.extra["stage"] for record in knowledge.records()} == {"a", "bee", "c"}
    assert brief_of(session).total == 3


def test_a_workflow_file_that_only_looks_different_is_the_same(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text("id: w\ntask: t\nstages: [{name: a, agent_type: x, max_repairs: 0}]\n", "utf-8")
    place.agent.script = {"a": ["bad"]}
    place.run(file)
    file.write_text("# a comment\nid: w\ntask: t\nstages:\n  - name: a\n    max_repairs: 0\n    agent_type: x\n", "utf-8")
    assert place.resume().status == "completed"


def test_a_session_can_go_on_as_it_was_started_when_its_file_changed(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text("id: w\ntask: t\nstages: [{name: a, agent_type: x, max_repairs: 0}]\n", "utf-8")
    place.agent.script = {"a": ["bad"]}
    place.run(file)
    file.write_text("id: w\nstages: [", "utf-8")
    with pytest.raises(WorkflowChanged, match="cannot be read any more"):
        place.resume()
    assert place.resume(as_started=True).status == "completed"


def test_a_file_of_the_reference_resumes_with_its_workflow(place: Place) -> None:
    state = {
        "workflow_id": "research-2026-04-19-001",
        "current_stage": "web_research",
        "completed_stages": ["task_decomposition", "initial_planning"],
        "stage_outputs": {"task_decomposition": {"subtasks": ["gather"]}, "initial_planning": {"goals": ["latency"]}},
        "memory_snapshots": [
            {"stage": "task_decomposition", "summary": "Decomposed into 3 subtasks"},
            {"stage": "initial_planning", "summary": "Set latency and budget constraints"},
        ],
    }
    file = place.folder / "sessions" / "research-2026-04-19-001.json"
    file.parent.mkdir()
    file.write_text(json.dumps(state), "utf-8")
    with pytest.raises(InputError, match="does not hold its workflow"):
        place.resume("research-2026-04-19-001")
    names = ("task_decomposition", "initial_planning", "web_research", "synthesis")
    session = place.resume("research-2026-04-19-001", workflow=linear(*names))
    assert session.status == "completed"
    assert place.agent.ran == ["web_research", "synthesis"]
    assert "Decomposed into 3 subtasks" in place.agent.requests[0].prompt
    assert '"subtasks": ["gather"]' in place.agent.requests[0].prompt
    assert session.stage_outputs["task_decomposition"].legacy


def test_a_session_that_nobody_has_is_told_and_nothing_is_made_for_it(place: Place) -> None:
    place.run(linear("a"))
    with pytest.raises(InputError, match="s1"):
        place.resume("s2")
    assert not (place.folder / "sessions" / "s2").exists()


def test_an_agent_that_cannot_be_had_is_told_before_anything_is_written(place: Place) -> None:
    workflow = linear("a")
    workflow["stages"].append({"name": "b", "agent_type": "reseracher"})
    with pytest.raises(ConfigError) as caught:
        place.run(workflow)
    assert caught.value.nearest == "researcher"
    assert place.agent.ran == []
    assert not (place.folder / "sessions").exists()


def test_any_importable_function_is_an_agent(place: Place) -> None:
    workflow = linear("a")
    workflow["stages"][0]["agent_type"] = "tests.unit.workflow.test_workflow_resume:by_name"
    assert place.run(workflow).stage_outputs["a"].summary == "by its name"


def by_name(request: StageRequest) -> dict[str, Any]:
    return output(request.stage.name, summary="by its name")


def test_a_workflow_without_a_task_is_told(place: Place) -> None:
    workflow = linear("a")
    del workflow["task"]
    with pytest.raises(InputError, match="no task"):
        place.run(workflow)
    assert place.run(workflow, task="This one", parameters={"region": "eu"}).task == "This one"
    assert "- region: eu" in place.agent.requests[0].prompt


def test_ids_of_sessions_count_up_by_the_day(place: Place) -> None:
    first, second = (place.run(linear("a"), session_id=None) for _ in range(2))
    assert (first.workflow_id, second.workflow_id) == ("demo-2026-01-01-001", "demo-2026-01-01-002")


def test_check_raises_what_stopped_the_session(place: Place) -> None:
    place.agent.script = {"a": ["bad"], "b": [ValueError("broken")]}
    with pytest.raises(OutputInvalid, match="does not fit") as caught:
        place.run(linear("a", max_repairs=0), check=True)
    assert caught.value.raw == "bad"
    with pytest.raises(StageFailed, match="broken"):
        place.run(linear("b", retries=0), check=True, session_id="s2")


# How sure a stage is (W11)


def test_a_low_confidence_is_passed_on_as_provisional(place: Place) -> None:
    place.agent.script = {"a": [output("a", confidence="low")]}
    session = place.run(linear("a", "b"))
    assert session.status == "completed"
    assert saved(place)["stages"]["a"]["provisional"] is True
    assert place.agent.requests[1].provisional == {"a"}
    assert "provisional, to be checked" in place.agent.requests[1].prompt


def test_a_low_confidence_is_looked_at_once_more(place: Place) -> None:
    place.agent.script = {"a": [output("a", confidence="low"), output("a", confidence="low", summary="second look")]}
    session = place.run(linear("a", "b", on_low_confidence="recheck"))
    assert place.agent.ran == ["a", "a", "b"]
    assert place.agent.requests[1].feedback is not None and "Look again" in place.agent.requests[1].feedback
    assert session.stage_outputs["a"].summary == "second look"
    assert saved(place)["stages"]["a"]["provisional"] is True


def test_a_low_confidence_can_halt_and_resuming_agrees_with_it(place: Place) -> None:
    place.agent.script = {"a": [output("a", confidence="low")]}
    assert place.run(linear("a", "b", on_low_confidence="halt")).status == "halted"
    assert saved(place)["error"]["kind"] == "low_confidence"
    assert saved(place)["stage_outputs"]["a"]["confidence"] == "low"
    assert place.resume().status == "completed"
    assert place.agent.ran == ["a", "b"]


# A person decides (W14)


def test_a_stage_to_be_approved_waits_with_its_output_on_disk(place: Place) -> None:
    workflow = linear("a", "b")
    workflow["stages"][0]["approve"] = True
    assert place.run(workflow).status == "paused"
    assert saved(place)["stage_outputs"]["a"]["summary"] == "a is done"
    assert saved(place)["completed_stages"] == []
    assert place.resume().status == "paused", "resuming is not approving"
    approve(place.store, "s1")
    assert place.resume().status == "completed"
    assert place.agent.ran == ["a", "b"]


def test_a_rejected_stage_runs_again_and_is_told_why(place: Place) -> None:
    workflow = linear("a", "b")
    workflow["stages"][0]["approve"] = True
    place.run(workflow)
    session = reject(place.store, "s1", "a", why="The second figure has no source", clock=place.clock)
    assert (session.status, saved(place)["error"]["kind"]) == ("halted", "rejected")
    assert saved(place)["error"]["raw_output"]["summary"] == "a is done"
    assert place.resume().status == "paused"
    assert "The second figure has no source" in place.agent.requests[1].prompt
    approve(place.store, "s1", "a")
    assert place.resume().status == "completed"
    assert place.agent.ran == ["a", "a", "b"]


def test_saving_a_correction_is_not_approving(place: Place) -> None:
    """W4, W14: it waits as before, for a yes or a no about what was corrected, and the yes has its recovery point."""
    workflow = linear("a", "b")
    workflow["stages"][0]["approve"] = True
    place.run(workflow)
    corrected = json.dumps(output("a", summary="By hand."))
    fixed = fix(place.store, "s1", "a", corrected)
    assert (fixed.status, waiting_stages(fixed), fixed.completed_stages, fixed.next_stage) == ("paused", ("a",), (), "b")
    assert place.resume().status == "paused"
    reject(place.store, "s1", "a", why="Not yet.")
    assert saved(place)["error"]["raw_output"]["summary"] == "By hand."
    place.resume()
    fix(place.store, "s1", "a", corrected)
    approve(place.store, "s1")
    assert place.store.load_checkpoint("s1", place.store.checkpoints("s1")[-1].name).stage_outputs["a"].summary == "By hand."
    assert place.resume().status == "completed"
    assert "By hand." in place.agent.requests[-1].prompt and place.agent.ran == ["a", "a", "b"]


def test_a_correction_of_another_stage_leaves_the_session_waiting(place: Place) -> None:
    """W14."""
    workflow = linear("a", "b", "c")
    workflow["stages"][1] |= {"approve": True, "inputs": []}
    place.run(workflow)
    fixed = fix(place.store, "s1", "a", json.dumps(output("a", summary="By hand.")))
    assert (fixed.status, waiting_stages(fixed), fixed.completed_stages) == ("paused", ("b",), ("a",))


def test_approving_what_does_not_wait_is_told(place: Place) -> None:
    place.run(linear("a"))
    with pytest.raises(InputError, match="no stage"):
        approve(place.store, "s1")


@pytest.mark.parametrize(("asked", "meant"), [("inputs", "given"), ("params", "parameters"), ("feedbak", "feedback")])
def test_an_agent_that_asks_for_what_a_request_does_not_have_is_told_what_it_has(place: Place, asked: str, meant: str) -> None:
    """W12, O3."""

    def asks(request: StageRequest) -> dict[str, Any]:
        getattr(request, asked)
        return output("a")

    session = place.run(linear("a", retries=0), agents={"x": asks})
    assert session.error is not None and f"a StageRequest has no {asked!r}. Did you mean {meant!r}?" in session.error.message
