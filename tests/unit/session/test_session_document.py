"""The session file: its form, the reference's file, older and newer versions, what a person's editor leaves (W2, W3, O7, C3)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Damaged, StorageError
from holdfast.session.document import STEPS, SessionRenderer, decode_session, parse_session, render_session, session_json
from holdfast.session.output import Finding, StageOutput
from holdfast.session.state import SCHEMA_VERSION, Session, SessionError, StageRecord

REFERENCE = Path(__file__).parents[2] / "fixtures" / "session" / "reference_state.json"
SHARED = Path(__file__).parents[4] / "shared" / "reference" / "session_state.json"


def whole() -> Session:
    return Session(
        "w-1",
        task="Measure Zürich's latency\nand limits",
        status="halted",
        current_stage="b",
        next_stage="b",
        completed_stages=("a",),
        stage_outputs={"a": StageOutput("a", "done", (Finding("f", "s", True),), "low", data={"x": [1, None, 2.5]})},
        memory_snapshots=({"stage": "a", "summary": "done"},),
        stages={"a": StageRecord("completed", 1, seconds=0.5), "b": StageRecord("failed", 3, errors=({"at": "t", "message": "m"},))},
        error=SessionError("b", "timeout", "too long"),
        workflow={"id": "w", "stages": [{"name": "a"}, {"name": "b"}]},
        workflow_hash="h",
        usage={"tokens": 3},
        extra={"mine": {"a": 1}},
    )


@pytest.mark.parametrize("path", [REFERENCE, SHARED])
def test_the_file_of_the_reference_opens(path: Path) -> None:
    """W3: an output without `stage_name` is legacy."""
    if not path.exists():
        pytest.skip("the shared files are not here")
    session = decode_session(path.read_bytes(), str(path))
    assert session.workflow_id == "research-2026-04-19-001"
    assert (session.status, session.current_stage, session.next_stage) == ("ready", "web_research", "web_research")
    assert session.completed_stages == ("task_decomposition", "initial_planning")
    plan = session.stage_outputs["initial_planning"]
    assert plan.legacy
    assert plan.confidence == "medium"
    assert plan.summary == "Set latency and budget constraints"
    assert plan.data == {"goals": ["measure_latency_p50", "compare_qps_limits"], "constraints": ["budget < $50", "max 2 hour runtime"]}
    assert session.stages["initial_planning"].status == "completed"
    again = parse_session(session_json(session))
    assert again == session
    assert again.stage_outputs["initial_planning"].legacy


def test_a_person_finds_first_what_a_person_wants_first() -> None:
    keys = list(session_json(whole()))
    assert keys[:5] == ["workflow_id", "task", "topic_tag", "status", "current_stage"]
    assert keys.index("error") < keys.index("stage_outputs") < keys.index("memory_snapshots") < keys.index("workflow")
    assert keys.index("mine") == len(keys) - 1


def test_the_bytes_are_readable_json_in_two_spaces() -> None:
    renderer = SessionRenderer()
    for session in (whole(), Session("empty"), whole()):
        data = renderer.encode(renderer.document(session))
        assert data.decode() == json.dumps(session_json(session), indent=2, ensure_ascii=False) + "\n"
        assert decode_session(data, "x") == session
    assert "Zürich" in render_session(whole()).decode()


def test_what_did_not_change_is_the_same_object_in_the_next_document() -> None:
    """W5: so that a commit costs what is new."""
    renderer, session = SessionRenderer(), whole()
    before, after = renderer.document(session), renderer.document(replace(session, status="ready"))
    assert after["stage_outputs"]["a"] is before["stage_outputs"]["a"]
    assert after["stages"]["b"] is before["stages"]["b"]
    assert after["workflow"] is before["workflow"]


def test_versions_lead_to_the_current_one() -> None:
    assert len(STEPS) == SCHEMA_VERSION, "one step for each version"
    old = {"workflow_id": "w", "current_stage": "b", "completed_stages": ["a"], "stage_outputs": {"a": [1, 2]}, "colour": "red"}
    session = parse_session(old)
    assert session.schema_version == SCHEMA_VERSION
    assert session.stage_outputs["a"].data == [1, 2]
    assert session.stage_outputs["a"].summary == "Output of a, kept from an older file."
    assert session.extra == {"colour": "red"}
    assert session_json(session)["schema_version"] == SCHEMA_VERSION


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 99])
def test_a_newer_version_is_refused_with_what_to_do(version: int) -> None:
    with pytest.raises(StorageError, match="newer version") as caught:
        parse_session({"workflow_id": "w", "schema_version": version}, "w.json")
    assert not isinstance(caught.value, Damaged)
    assert caught.value.path == "w.json"


@pytest.mark.parametrize("version", ["1", -1, True, None, 1.5])
def test_a_version_that_is_none_is_damage(version: Any) -> None:
    with pytest.raises(Damaged, match="schema_version"):
        parse_session({"workflow_id": "w", "schema_version": version})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{\n  "workflow_id": "w",\n}', "a comma too many before the closing bracket, at line 3, column 1"),
        ('{\n  "workflow_id": "w"\n  "task": "t"\n}', "lacks a comma between two members, at line 3, column 3"),
        ('{\r\n  "workflow_id": "é",\r\n  "a": [1,]\r\n}', "a comma too many before the closing bracket, at line 3, column 11"),
        ('\ufeff{"workflow_id": nope}', "at line 1, column 17"),
        ('{"a": 1, "a": 2}', "the key 'a' twice"),
        ('{"a": NaN}', "NaN"),
        ("", "is empty"),
        ("\0\0\0", "is empty"),
        ("[]", "holds a list instead of an object"),
        ('"text"', "holds text"),
        ('{"workflow_id": "../x"}', "workflow_id"),
        ('{"task": "t"}', "workflow_id: is missing"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(Damaged) as caught:
        decode_session(text.encode(), "w.json")
    assert said in str(caught.value)
    assert "holdfast session edit" in str(caught.value)


def test_bytes_that_are_no_text_are_damage_with_a_place() -> None:
    with pytest.raises(Damaged, match="line 1, column 16"):
        decode_session(b'{"workflow_id":\xff}', "w.json")


def test_every_wrong_member_is_named() -> None:
    wrong = session_json(whole()) | {
        "task": 7,
        "status": "asleep",
        "completed_stages": ["a", "a"],
        "memory_snapshots": [1],
        "stages": {"a": {"status": "odd", "attempts": -1, "seconds": "long", "provisional": 1}, "b": []},
        "error": 3,
        "revision": "x",
        "workflow": [],
    }
    with pytest.raises(Damaged) as caught:
        parse_session(wrong, "w.json")
    assert "more" in caught.value.message.rpartition(";")[2]
    fewer = {name: member for name, member in wrong.items() if name in ("workflow_id", "schema_version", "stages", "error")}
    with pytest.raises(Damaged) as caught:
        parse_session(fewer, "w.json")
    for place in ("stages.a.status:", "stages.a.attempts:", "stages.a.seconds:", "stages.a.provisional:", "stages.b:", "error:"):
        assert place in caught.value.message


def test_a_note_in_place_of_an_error_is_kept_as_one() -> None:
    session = parse_session({"workflow_id": "w", "schema_version": 1, "error": "look at this later"})
    assert session.error == SessionError(None, "note", "look at this later")
