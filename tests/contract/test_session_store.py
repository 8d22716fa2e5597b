"""One suite over every session store: files, memory, PostgreSQL (W2-W7, W10, W15, W16, O7, C3, M14)."""

from __future__ import annotations

import json
import random
import string
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.contract.session_stores import STORES, Case, case_of

from holdfast.errors import Damaged, HoldfastError, InputError, Locked, OutputInvalid, RevisionConflict, StorageError
from holdfast.session.document import render_session, session_json
from holdfast.session.output import Finding, StageOutput
from holdfast.session.state import Session, SessionError, StageRecord, stage_files
from holdfast.session.store import SessionStore
from holdfast.storage.backend import Append, Delete, Put

ID = "research-2026-04-19-001"


@pytest.fixture(params=list(STORES))
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    yield from case_of(request, tmp_path)


@pytest.fixture
def store(case: Case) -> SessionStore:
    return case.open()


def output(stage: str, summary: str = "Two stores answer in 20 ms.", **more: Any) -> StageOutput:
    findings = (Finding("Cold start takes 2.4 s", "https://example.org/report", True), Finding("The index is in memory", "doc-12"))
    return StageOutput(stage, summary, findings, "high", ("Check it twice",), ("raw:sha256-3f1c",), **more)


def session(workflow_id: str = ID, **more: Any) -> Session:
    settings: dict[str, Any] = {
        "task": "Measure p50 latency. Compare the limits.",
        "topic_tag": "latency",
        "workflow": {"id": "research", "stages": [{"name": "plan"}, {"name": "search"}]},
        "workflow_hash": "abc",
    }
    return Session(workflow_id, **(settings | more))


def after_plan(of: Session) -> Session:
    return replace(
        of,
        current_stage="search",
        completed_stages=("plan",),
        stage_outputs={"plan": output("plan", data={"steps": [1, 2]})},
        stages={"plan": StageRecord("completed", attempts=1, seconds=1.5, tokens=120)},
        memory_snapshots=({"stage": "plan", "summary": "Planned."},),
    )


def with_summary(data: bytes, summary: str) -> bytes:
    value = json.loads(data)
    value["stage_outputs"]["plan"]["summary"] = summary
    return json.dumps(value, indent=2).encode()


# Keeping


def test_what_was_created_is_loaded_by_another_store(case: Case) -> None:
    made = case.open().create(session())
    assert made.revision == 1
    assert made.created_at
    assert made.updated_at
    assert case.open().load(ID) == made


def test_an_id_is_given_once(store: SessionStore) -> None:
    store.create(session())
    with pytest.raises(InputError, match="exists already"):
        store.create(session(task="another"))
    assert store.load(ID).task == session().task


def test_a_commit_is_there_with_the_next_revision(case: Case) -> None:
    store = case.open()
    made = store.create(session())
    done = store.commit(after_plan(made), expect=1)
    assert done.revision == 2
    found = case.open().load(ID)
    assert found == done
    assert found.stage_outputs["plan"] == output("plan", data={"steps": [1, 2]})
    assert found.stages["plan"].tokens == 120


def test_everything_that_a_session_can_hold_comes_back(case: Case) -> None:
    whole = replace(
        after_plan(session()),
        status="halted",
        next_stage="search",
        error=SessionError("search", "malformed_output", "does not fit", ("summary: is missing",), '{"x": "Zürich\\n"}', "2026", "fix it"),
        retrieved=({"id": "k1", "text": "known", "score": 0.5},),
        configuration={"max_tokens": 100},
        usage={"tokens": 9},
        extra={"note of mine": [1, {"a": None}]},
    )
    made = case.open().create(whole)
    assert case.open().load(ID) == made
    assert replace(made, created_at="", updated_at="", revision=0) == whole


def test_a_session_that_is_not_there_is_named_with_its_neighbours(store: SessionStore) -> None:
    store.create(session())
    for wrong in (
        lambda: store.load("research-2026-04-19-002"),
        lambda: store.commit(session("research-2026-04-19-002"), expect=1),
        lambda: store.request_cancel("research-2026-04-19-002"),
        lambda: store.checkpoints("research-2026-04-19-002"),
        lambda: store.raw_get("research-2026-04-19-002", "raw:sha256-00"),
        lambda: store.remove("research-2026-04-19-002"),
        lambda: store.fork("research-2026-04-19-002", "x"),
    ):
        with pytest.raises(InputError, match=ID):
            wrong()


@pytest.mark.parametrize("bad", ["", "../up", "a/b", ".hidden", "a b", "a\n", "x" * 129, "x.json", "é", "-rf", "a\0b"])
def test_an_id_that_could_be_a_path_is_refused_everywhere(store: SessionStore, bad: str) -> None:
    for wrong in (
        lambda: store.create(session(bad)),
        lambda: store.load(bad),
        lambda: store.commit(session(bad), expect=1),
        lambda: store.lease(bad).__enter__(),
        lambda: store.raw_put(bad, b"x"),
        lambda: store.cancel_requested(bad),
    ):
        with pytest.raises(InputError, match="not a usable id"):
            wrong()
    assert store.list() == []


# Two writers, and a person with an editor


def test_the_second_of_two_writers_is_told(case: Case) -> None:
    first, second = case.open(), case.open()
    first.create(session())
    one, two = first.load(ID), second.load(ID)
    first.commit(replace(one, task="first"), expect=one.revision)
    with pytest.raises(RevisionConflict) as caught:
        second.commit(replace(two, task="second"), expect=two.revision)
    assert (caught.value.expected, caught.value.found) == (1, 2)
    assert second.load(ID).task == "first"


def test_a_revision_that_never_was_is_refused(store: SessionStore) -> None:
    made = store.create(session())
    for expect in (0, 2, 7):
        with pytest.raises(RevisionConflict):
            store.commit(made, expect=expect)
    assert store.load(ID) == made


def test_an_edit_by_hand_is_never_overwritten(case: Case) -> None:
    """W4: the person's editor leaves the revision as it is, so the number alone would not tell."""
    store = case.open()
    done = store.commit(after_plan(store.create(session())), expect=1)
    case.edit(ID, lambda data: with_summary(data, "My own words."))
    with pytest.raises(RevisionConflict, match="edited"):
        store.commit(replace(done, status="running"), expect=done.revision)
    found = store.load(ID)
    assert found.stage_outputs["plan"].summary == "My own words."
    assert store.commit(replace(found, status="running"), expect=found.revision).revision == 3


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        (b'"completed_stages"', b'"compleeted_stages"', "compleeted_stages is not known, and completed_stages is gone"),
        (b'"attempts"', b'"atempts"', "stages.plan.atempts is not known, and attempts is gone"),
        (b'"completed_stages"', b'"completed_stagess": ["draft"],\n  "completed_stages"', r"completed_stagess is not known\."),
        (b'"attempts"', b'"reparis": 1,\n      "attempts"', r"stages.plan.reparis is not known\."),
    ],
)
def test_a_key_misspelt_by_hand_is_refused_and_nothing_runs_again(case: Case, was: bytes, now: bytes, told: str) -> None:
    """W4: it would count no more, and what was done would be done again over the person's own words."""
    store = case.open()
    store.create(after_plan(session()))
    case.edit(ID, lambda data: with_summary(data, "My own words.").replace(was, now))
    with pytest.raises(Damaged, match=rf"line \d+: {told}") as refused:
        case.open().load(ID)
    assert "Did you mean" in (refused.value.hint or "")
    case.edit(ID, lambda data: data.replace(now, was))
    assert case.open().load(ID).stage_outputs["plan"].summary == "My own words."


def test_a_key_of_a_persons_own_is_kept(case: Case) -> None:
    store = case.open()
    store.create(after_plan(session()))
    case.edit(ID, lambda data: data.replace(b'"completed_stages"', b'"notes_of_ann": "look at this",\n  "completed_stages"'))
    assert case.open().load(ID).extra["notes_of_ann"] == "look at this"


def test_an_edit_of_the_same_length_is_noticed(case: Case) -> None:
    store = case.open()
    done = store.commit(after_plan(store.create(session())), expect=1)
    case.edit(ID, lambda data: data.replace(b"20 ms", b"99 ms"))
    with pytest.raises(RevisionConflict):
        store.commit(done, expect=2)
    assert "99 ms" in store.load(ID).stage_outputs["plan"].summary


def test_of_many_threads_exactly_one_wins_each_revision(case: Case) -> None:
    stores = [case.open() for _ in range(4)]
    stores[0].create(session())
    wins: list[int] = []

    def work(store: SessionStore) -> None:
        for _ in range(6):
            found = store.load(ID)
            try:
                wins.append(store.commit(replace(found, task=f"{found.task}."), expect=found.revision).revision)
            except RevisionConflict:
                continue

    threads = [threading.Thread(target=work, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    end = stores[0].load(ID)
    assert sorted(wins) == list(range(2, end.revision + 1))
    assert end.task == session().task + "." * len(wins)


# What a file may look like


def test_an_editor_may_leave_a_byte_order_mark_and_windows_line_ends(case: Case) -> None:
    made = case.open().create(after_plan(session()))
    case.edit(ID, lambda data: b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"))
    assert case.open().load(ID) == made


def test_fields_that_nobody_knows_survive_at_every_level(case: Case) -> None:
    """O7: also through a commit."""
    case.open().create(after_plan(session()))

    def strange(data: bytes) -> bytes:
        value = json.loads(data)
        value["colour"] = "red"
        value["stage_outputs"]["plan"]["mood"] = "good"
        value["stage_outputs"]["plan"]["key_findings"][0]["page"] = 7
        value["stages"]["plan"]["machine"] = "heron"
        return json.dumps(value).encode()

    case.edit(ID, strange)
    store = case.open()
    found = store.load(ID)
    store.commit(found, expect=found.revision)
    again = case.open().load(ID)
    assert again.extra == {"colour": "red"}
    assert again.stage_outputs["plan"].extra == {"mood": "good"}
    assert again.stage_outputs["plan"].key_findings[0].extra == {"page": 7}
    assert again.stages["plan"].extra == {"machine": "heron"}


def test_a_comma_too_many_is_named_by_line_and_column_and_nothing_is_overwritten(case: Case) -> None:
    store = case.open()
    made = store.create(session())
    case.edit(ID, lambda data: data.replace(b'"topic_tag": "latency",', b'"topic_tag": "latency",,'))
    with pytest.raises(Damaged, match=r"line 4, column \d+"):
        store.load(ID)
    with pytest.raises(StorageError):
        store.commit(replace(made, task="overwritten"), expect=1)
    case.edit(ID, lambda data: data.replace(b",,", b","))
    assert store.load(ID).task == made.task


def test_a_value_that_does_not_fit_is_named_by_its_place(case: Case) -> None:
    case.open().create(after_plan(session()))

    def wrong(data: bytes) -> bytes:
        value = json.loads(data)
        value["status"] = "sleeping"
        value["stage_outputs"]["plan"]["confidence"] = "very"
        del value["stage_outputs"]["plan"]["key_findings"][1]["source"]
        return json.dumps(value).encode()

    case.edit(ID, wrong)
    with pytest.raises(Damaged) as caught:
        case.open().load(ID)
    for place in ("status:", "stage_outputs.plan.confidence:", "stage_outputs.plan.key_findings[1].source: is missing"):
        assert place in caught.value.message


def test_a_newer_schema_is_refused(case: Case) -> None:
    case.open().create(session())
    case.edit(ID, lambda data: data.replace(b'"schema_version": 1', b'"schema_version": 99'))
    with pytest.raises(StorageError, match="newer version"):
        case.open().load(ID)


def test_secrets_never_reach_what_is_kept(case: Case) -> None:
    """C3."""
    dsn, key = (
        "postgresql://ada:hunter2secret@db/x",
        "sk-ant-" + "".join(random.Random(7).choices(string.ascii_letters + string.digits, k=40)),
    )
    case.open().create(
        session(
            configuration={"api_key": key, "dsn": dsn, "models": [{"name": "m", "api_key": key}]},
            workflow={"id": "w", "stages": [{"name": "plan", "settings": {"password": "pa55word-x"}, "system_prompt": f"use {key}"}]},
            error=SessionError("plan", "stage_failed", f"cannot reach {dsn}", (f"key {key}",), f"tried {dsn} with {key}"),
        )
    )
    kept = case.contents()
    for secret in (b"hunter2secret", key.encode(), b"pa55word-x"):
        assert secret not in kept


# The list


def test_the_list_is_newest_first_and_says_how_far(case: Case) -> None:
    store = case.open()
    for name in ("a", "b", "c"):
        store.create(session(name))
        time.sleep(0.003)  # times are kept to the millisecond
    found = store.load("a")
    halted = replace(after_plan(found), status="halted", error=SessionError("search", "timeout", "took\ntoo long"))
    store.commit(halted, expect=1)
    listed = case.open().list()
    assert listed[0].workflow_id == "a"
    assert {one.workflow_id for one in listed} == {"a", "b", "c"}
    first = listed[0]
    assert (first.status, first.current_stage, first.completed, first.total, first.revision) == ("halted", "search", 1, 2, 2)
    assert first.error == "took too long"
    assert first.problem is None


def test_a_damaged_session_is_listed_with_its_problem(case: Case) -> None:
    store = case.open()
    store.create(session("good"))
    store.create(session("bad"))
    case.edit("bad", lambda data: data[: len(data) // 2] + b" and then?")
    problems = {one.workflow_id: one.problem for one in case.open().list()}
    assert problems["good"] is None
    assert problems["bad"]


def test_a_large_session_is_listed_as_a_small_one_is(store: SessionStore) -> None:
    names = [f"stage{n}" for n in range(300)]
    big = session(
        workflow={"id": "w", "stages": [{"name": name} for name in names]},
        completed_stages=tuple(names[:250]),
        stage_outputs={name: output(name, '\n  "status": "paused",' * 60) for name in names[:250]},
        status="halted",
        error=SessionError("stage250", "timeout", "too long"),
    )
    store.create(big)
    found = store.list()[0]
    assert (found.status, found.completed, found.total, found.error) == ("halted", 250, 300, "too long")


# New ids


def test_new_ids_count_up_and_are_never_given_twice(case: Case) -> None:
    """W2."""
    day = date(2026, 4, 19)
    store, other = case.open(), case.open()
    assert store.new_session_id("research", day) == "research-2026-04-19-001"
    assert other.new_session_id("research", day) == "research-2026-04-19-002"
    store.create(session("research-2026-04-19-007"))
    assert other.new_session_id("research", day) == "research-2026-04-19-008"
    assert store.new_session_id("Vector stores!", day) == "Vector-stores-2026-04-19-001"
    assert store.create(session("research-2026-04-19-001")).revision == 1
    given: list[str] = []
    stores = [case.open() for _ in range(4)]
    threads = [threading.Thread(target=lambda one=one: given.extend(one.new_session_id("w", day) for _ in range(8))) for one in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(given)) == len(given) == 32


# Who runs it


def test_two_cannot_run_one_session(case: Case) -> None:
    """W6."""
    store, other = case.open(), case.open()
    store.create(session())
    assert other.owner(ID) is None
    with store.lease(ID, owner="worker-3") as held:
        assert held.holder.name == "worker-3"
        assert held.taken_over is None
        with pytest.raises(Locked, match="worker-3") as caught, other.lease(ID):
            pass
        assert caught.value.owner is not None
        assert "worker-3" in caught.value.owner
        found = other.owner(ID)
        assert found is not None
        assert (found.name, found.pid) == ("worker-3", held.holder.pid)
        assert found.since
        assert found.heartbeat
        store.commit(store.load(ID), expect=1)
    assert other.owner(ID) is None
    with other.lease(ID) as again:
        assert again.taken_over is None


def test_a_hold_ends_with_an_error_too(store: SessionStore) -> None:
    store.create(session())
    with pytest.raises(ValueError, match="oops"), store.lease(ID):
        raise ValueError("oops")
    with store.lease(ID):
        pass


def test_other_sessions_can_be_run_meanwhile_and_one_that_is_not_there_yet(store: SessionStore) -> None:
    with store.lease("one"), store.lease("two"):
        assert store.create(session("one")).revision == 1


def test_a_request_to_cancel_reaches_who_runs_it(case: Case) -> None:
    """W19."""
    store, terminal = case.open(), case.open()
    store.create(session())
    assert not store.cancel_requested(ID)
    terminal.request_cancel(ID)
    terminal.request_cancel(ID)
    assert store.cancel_requested(ID)
    store.clear_cancel(ID)
    store.clear_cancel(ID)
    assert not terminal.cancel_requested(ID)


# Recovery points


def test_recovery_points_are_listed_in_order_and_loaded_as_they_were(case: Case) -> None:
    """W5."""
    store = case.open()
    first = store.create(session())
    store.checkpoint(first, "start")
    second = store.commit(after_plan(first), expect=1)
    store.checkpoint(second, "after-plan")
    other = case.open()
    assert [(one.name, one.revision, one.completed) for one in other.checkpoints(ID)] == [("start", 1, 0), ("after-plan", 2, 1)]
    assert other.load_checkpoint(ID, "start") == first
    assert other.load_checkpoint(ID, "after-plan") == second


def test_a_recovery_point_of_the_same_name_is_replaced(case: Case) -> None:
    store = case.open()
    first = store.create(session())
    store.checkpoint(first, "p")
    store.checkpoint(first, "q")
    store.checkpoint(replace(first, task="again"), "p")
    other = case.open()
    other.checkpoint(replace(first, task="elsewhere"), "r")
    assert [one.name for one in store.checkpoints(ID)] == ["q", "p", "r"]
    assert store.load_checkpoint(ID, "p").task == "again"


def test_an_edit_by_hand_does_not_reach_recovery_points(case: Case) -> None:
    store = case.open()
    done = store.commit(after_plan(store.create(session())), expect=1)
    store.checkpoint(done, "after-plan")
    case.edit(ID, lambda data: data.replace(b"20 ms", b"99 ms"))
    assert store.load_checkpoint(ID, "after-plan") == done


@pytest.mark.parametrize("bad", ["", "../x", "a/b", "a b", "x" * 129])
def test_a_name_that_could_be_a_path_is_refused_for_recovery_points(store: SessionStore, bad: str) -> None:
    made = store.create(session())
    for wrong in (lambda: store.checkpoint(made, bad), lambda: store.load_checkpoint(ID, bad), lambda: store.restore(ID, bad)):
        with pytest.raises(InputError, match="recovery point"):
            wrong()


def test_restoring_keeps_the_current_state_as_a_recovery_point(case: Case) -> None:
    store = case.open()
    first = store.commit(replace(store.create(session()), status="running"), expect=1)
    store.checkpoint(first, "start")
    second = store.commit(after_plan(first), expect=2)
    back = case.open().restore(ID, "start")
    assert back.revision == 4
    assert back.completed_stages == ()
    assert back.status == "ready"
    assert store.load(ID) == back
    assert store.load_checkpoint(ID, "before-restore-001") == second
    assert store.restore(ID, "before-restore-001").completed_stages == ("plan",)
    assert [one.name for one in store.checkpoints(ID)] == ["start", "before-restore-001", "before-restore-002"]
    with pytest.raises(InputError, match="start"):
        store.restore(ID, "strat")


def test_a_damaged_session_can_be_restored_and_is_set_aside(case: Case) -> None:
    store = case.open()
    made = store.create(after_plan(session()))
    store.checkpoint(made, "good")
    case.edit(ID, lambda data: data[:100] + b" my own unfinished words")
    with pytest.raises(Damaged):
        store.load(ID)
    assert case.open().restore(ID, "good").stage_outputs == made.stage_outputs
    assert store.load(ID).revision > made.revision
    assert b"my own unfinished words" in case.contents()


def test_old_recovery_points_are_pruned(case: Case) -> None:
    """O7."""
    store = case.open()
    state = store.create(session())
    for number in range(5):
        state = store.commit(replace(state, task=f"task {number}"), expect=state.revision)
        store.checkpoint(state, f"p{number}")
    assert store.prune_checkpoints(ID, keep=2) == 3
    assert store.prune_checkpoints(ID, keep=2) == 0
    assert [one.name for one in case.open().checkpoints(ID)] == ["p3", "p4"]
    assert case.open().load_checkpoint(ID, "p3").task == "task 3"
    store.checkpoint(state, "p9")
    assert case.open().load_checkpoint(ID, "p9") == state


def test_a_recovery_point_is_whole_after_another_process_pruned(case: Case) -> None:
    store, other = case.open(), case.open()
    state = store.create(after_plan(session()))
    store.checkpoint(state, "p1")
    assert other.prune_checkpoints(ID, keep=0) == 1
    store.checkpoint(state, "p2")
    assert [one.name for one in other.checkpoints(ID)] == ["p2"]
    assert other.load_checkpoint(ID, "p2") == state


# Forks


def test_a_fork_knows_where_it_comes_from_and_leads_its_own_life(case: Case) -> None:
    store = case.open()
    ref = store.raw_put(ID, b"page", media_type="text/html", source="https://example.org")
    first = store.create(session())
    store.checkpoint(first, "start")
    store.commit(replace(after_plan(first), status="running"), expect=1, files=stage_files(1, "plan", context="given", output="written"))
    early = store.fork(ID, "early", checkpoint="start")
    late = store.fork(ID, "late")
    assert (early.workflow_id, early.revision, early.completed_stages) == ("early", 1, ())
    assert early.lineage is not None
    assert {key: early.lineage[key] for key in ("from", "checkpoint", "revision")} == {"from": ID, "checkpoint": "start", "revision": 1}
    assert (late.completed_stages, late.status) == (("plan",), "ready")
    assert store.checkpoints("late") == []
    assert case.stage_file("late", "01-plan/output.md") == "written"
    again = store.fork("late", "later")
    assert again.lineage is not None
    assert again.lineage["earlier"]["from"] == ID
    store.remove(ID)
    assert case.open().raw_get("late", ref).data == b"page"
    assert store.load("early") == early
    with pytest.raises(InputError, match="exists already"):
        store.fork("late", "early")


def test_a_removed_session_is_gone_with_everything(case: Case) -> None:
    store = case.open()
    made = store.create(session(task="unmistakable words"))
    store.checkpoint(made, "p")
    store.raw_put(ID, b"unmistakable bytes")
    store.commit(made, expect=1, files=stage_files(1, "plan", context="unmistakable context"))
    with store.lease(ID), pytest.raises(Locked):
        case.open().remove(ID)
    store.remove(ID)
    assert store.list() == []
    assert b"unmistakable" not in case.contents()
    with pytest.raises(InputError):
        store.load(ID)
    assert store.create(session()).revision == 1
    assert store.checkpoints(ID) == []
    assert store.raw(ID).refs() == []


# Raw data


def test_raw_data_is_kept_once_and_found_by_a_prefix(case: Case) -> None:
    """W10."""
    store = case.open()
    store.create(session())
    page = "Zürich <b>page</b>\0".encode()
    ref = store.raw_put(ID, page, media_type="text/html", source="https://ada:secret99@example.org/page")
    assert ref.startswith("raw:sha256-")
    assert len(ref) == len("raw:sha256-") + 64
    assert store.raw_put(ID, page, media_type="text/html", source="https://ada:secret99@example.org/page") == ref
    store.raw_put(ID, b"")
    assert len(store.raw(ID).refs()) == 2
    for asked in (ref, ref[:20], ref.removeprefix("raw:"), ref.removeprefix("raw:sha256-")[:8]):
        found = case.open().raw_get(ID, asked)
        assert (found.ref, found.data, found.media_type) == (ref, page, "text/html")
    assert found.source is not None
    assert "secret99" not in found.source
    assert found.text().startswith("Zürich")


def test_a_raw_reference_that_is_none_or_many_is_refused(store: SessionStore) -> None:
    store.create(session())
    for number in range(40):
        store.raw_put(ID, b"%d" % number)
    with pytest.raises(InputError, match="Give more digits"):
        store.raw_get(ID, "raw:sha256-")
    for wrong in ("raw:sha256-" + "0" * 64, "zzz", "", "../../etc/passwd"):
        with pytest.raises(InputError):
            store.raw_get(ID, wrong)


def test_raw_data_belongs_to_its_session(store: SessionStore) -> None:
    store.create(session("one"))
    store.create(session("two"))
    ref = store.raw_put("one", b"mine")
    with pytest.raises(InputError):
        store.raw_get("two", ref)


# Stage files


def test_what_a_stage_was_given_and_wrote_is_kept_as_markdown(case: Case) -> None:
    """W7."""
    store = case.open()
    made = store.create(session())
    made = store.commit(made, expect=1, files=stage_files(1, "plan", context="# given", output="# written\n"))
    made = store.commit(made, expect=2, files=stage_files(12, "odd name/../x", context="first"))
    store.commit(made, expect=3, files=stage_files(12, "odd name/../x", context="second \0 \ud800"))
    assert case.stage_file(ID, "01-plan/context.md") == "# given"
    assert case.stage_file(ID, "01-plan/output.md") == "# written\n"
    assert case.stage_file(ID, "12-odd-name-..-x/context.md") == "second \ufffd ?"


def test_markdown_of_stages_that_is_missing_is_made_again_from_the_log(case: Case) -> None:
    """W7: after a power cut the newest may be gone."""
    store = case.open()
    store.commit(store.create(session()), expect=1, files=stage_files(1, "plan", context="given", output="written"))
    case.lose_stage_files(ID)
    case.open().load(ID)
    assert case.stage_file(ID, "01-plan/output.md") == "written"
    assert case.stage_file(ID, "01-plan/context.md") == "given"


# Forgetting


def filled(store: SessionStore, workflow_id: str, words: str) -> None:
    """A session that has the words everywhere."""
    ref = store.raw_put(workflow_id, f"page: {words} and more".encode(), source="https://example.org")
    store.raw_put(workflow_id, b"harmless page")
    finding = Finding(f"It is said that {words}", "doc-1")
    state = session(
        workflow_id,
        task=f"Measure it. Remember: {words}. Then stop.",
        completed_stages=("plan",),
        stage_outputs={
            "plan": replace(
                output("plan", f"All is well. Somebody wrote: {words}."),
                key_findings=(finding, Finding("The index is in memory", "doc-12")),
                raw_data_refs=(ref,),
                data={"deep": [{"note": words.upper()}], words: 1},
            )
        },
        memory_snapshots=({"stage": "plan", "summary": f"{words}!"},),
        retrieved=({"text": words},),
        error=SessionError("plan", "x", "halted", (), {"said": words}),
        extra={"mine": words},
    )
    made = store.create(state)
    store.checkpoint(made, "p1")
    store.checkpoint(replace(made, task="other"), "p2")
    markdown = stage_files(1, "plan", context=f"# Task\n\n- {words}\n- other\n", output=f"Well. {words}")
    store.commit(made, expect=1, files=markdown)


def test_a_text_is_forgotten_everywhere_and_the_rest_stays(case: Case) -> None:
    """M14."""
    store = case.open()
    filled(store, "one", "the Heron of Basel")
    filled(store, "two", "something else")
    before = store.load("two")
    touched = store.forget_text("The  heron of  Basel")
    assert {one.session for one in touched} == {"one"}
    assert {one.kind for one in touched} >= {"session", "checkpoint", "raw data", "stage file"}
    assert all(one.done and one.count >= 1 for one in touched)
    assert b"heron of basel" not in case.contents().lower()
    after = case.open().load("one")
    assert after.task.startswith("Measure it.")
    assert "Then stop." in after.task
    plan = after.stage_outputs["plan"]
    assert plan.summary.startswith("All is well.")
    assert plan.key_findings == (Finding("The index is in memory", "doc-12"),)
    assert [one.name for one in store.checkpoints("one")] == ["p1", "p2"]
    assert store.load_checkpoint("one", "p1").completed_stages == ("plan",)
    assert len(store.raw("one").refs()) == 1
    assert "- other" in case.stage_file("one", "01-plan/context.md")
    assert store.load("two") == before
    assert store.forget_text("The heron of Basel") == []


def test_a_session_that_is_run_or_damaged_is_reported_and_not_changed(case: Case) -> None:
    store = case.open()
    store.create(session("runs", task="the heron sings"))
    store.create(session("broken", task="the heron sings"))
    case.edit("broken", lambda data: data[:-3] + b",,")
    with store.lease("runs", owner="worker-1"):
        touched = {one.session: one for one in case.open().forget_text("the heron sings")}
    assert not touched["runs"].done
    assert "worker-1" in touched["runs"].why
    assert not touched["broken"].done
    assert store.load("runs").task == "the heron sings"
    assert store.forget_text("THE HERON SINGS")
    assert "heron" not in store.load("runs").task


def test_a_text_that_runs_over_the_end_of_a_sentence_is_forgotten(case: Case) -> None:
    store = case.open()
    store.create(session(task="The heron sings. In Basel it rains."))
    store.forget_text("sings. In Basel")
    assert b"Basel" not in case.contents()
    assert store.load(ID).task


def test_forgetting_nothing_is_refused(store: SessionStore) -> None:
    for nothing in ("", "  \n"):
        with pytest.raises(InputError, match="empty"):
            store.forget_text(nothing)


def test_every_error_is_one_of_ours(store: SessionStore) -> None:
    with pytest.raises(HoldfastError):
        store.create(session(extra={"x": object()}))
    assert store.list() == []


# Hand edits: the file is a view of the log and an input (W2, W4)


def history(store: SessionStore, workflow_id: str = ID) -> list[str]:
    """What each record of the log says that it was, for those that say something."""
    records = store.backend.read(f"sessions/{workflow_id}/log.jsonl").records
    flat = [one for record in records for one in record.get("together", [record])]
    return [str(record["why"]) for record in flat if "why" in record]


def swapped(data: bytes, *, find: bytes, put: bytes) -> bytes:
    return data.replace(find, put)


def test_an_edit_is_adopted_as_a_record_of_its_own(case: Case) -> None:
    """W4: also where the sessions are in a database."""
    store = case.open()
    store.commit(after_plan(store.create(session())), expect=1)
    case.edit(ID, lambda data: with_summary(data, "My own words."))
    found = case.open().load(ID)
    assert (found.stage_outputs["plan"].summary, found.revision) == ("My own words.", 2)
    done = case.open().commit(replace(found, status="running"), expect=2)
    assert done.revision == 3
    assert case.open().load(ID) == done
    assert done.stage_outputs["plan"].summary == "My own words."
    assert history(store) == ["edited by hand"]


def test_an_edit_that_changes_nothing_in_meaning_is_none(case: Case) -> None:
    store = case.open()
    made = store.commit(after_plan(store.create(session())), expect=1)
    case.edit(ID, lambda data: json.dumps(json.loads(data)).encode() + b"\n\n")
    assert case.open().load(ID) == made
    done = store.commit(replace(made, status="running"), expect=2)
    assert history(store) == []
    assert case.open().load(ID) == done


def test_an_edit_that_does_not_fit_is_refused_with_line_and_place_and_nothing_is_changed(case: Case) -> None:
    """W4: wrong types, and an output that does not fit its stage's own schema."""
    schema = {"type": "object", "required": ["p50"], "properties": {"p50": {"type": "number"}}}
    workflow = {"id": "research", "stages": [{"name": "plan", "output_schema": schema}, {"name": "search"}]}
    store = case.open()
    plan = output("plan", data={"p50": 12})
    store.create(session(workflow=workflow, completed_stages=("plan",), stage_outputs={"plan": plan}))
    before = store.backend.mark(f"sessions/{ID}/log.jsonl")
    for find, put, kind, said in (
        (b'"p50": 12', b'"p50": "fast"', OutputInvalid, "data.p50: 'fast' is not of type 'number' (line"),
        (
            b'"confidence": "high"',
            b'"confidence": 9',
            Damaged,
            "plan.confidence: must be high, medium or low, not int 9 (line",
        ),
        (b'"status": "ready"', b'"status": "asleep"', Damaged, "status: must be "),
    ):
        case.edit(ID, partial(swapped, find=find, put=put))
        edited = case.open().document(ID)
        with pytest.raises(kind) as caught:
            case.open().load(ID)
        assert said in caught.value.message
        assert case.open().document(ID) == edited
        assert store.backend.mark(f"sessions/{ID}/log.jsonl") == before
        with pytest.raises(StorageError if kind is Damaged else HoldfastError):
            case.open().commit(replace(session(), revision=1), expect=1)
        case.edit(ID, partial(swapped, find=put, put=find))
    assert case.open().load(ID).status == "ready"


TORN = {
    "emptied": lambda data: b"",
    "NUL bytes": lambda data: b"\0" * len(data),
    "cut": lambda data: data[: len(data) // 3],
    "cut, the rest NUL": lambda data: data[:50] + b"\0" * (len(data) - 50),
    "a hole": lambda data: data[:40] + b"\0" * 60 + data[100:],
}


@pytest.mark.parametrize("torn", list(TORN))
def test_a_file_that_a_power_cut_tore_is_written_again_from_the_log(case: Case, torn: str) -> None:
    store = case.open()
    made = store.commit(after_plan(store.create(session())), expect=1)
    whole = store.document(ID)
    case.edit(ID, TORN[torn])
    assert case.open().load(ID) == made
    assert case.open().document(ID) == whole
    case.edit(ID, TORN[torn])
    assert store.commit(replace(made, status="running"), expect=2).revision == 3, "it is not taken for an edit either"
    assert history(store) == []


def test_a_file_of_an_older_state_or_none_at_all_is_written_again(case: Case) -> None:
    """W6: killed between the record and the file."""
    store = case.open()
    first = store.create(session())
    old = store.document(ID)
    second = store.commit(after_plan(first), expect=1)
    new = store.document(ID)
    for left in (old, old.replace(b"\n", b"\r\n"), old[:120]):
        case.edit(ID, partial(swapped, find=case.open().document(ID), put=left))
        assert case.open().load(ID) == second
        assert case.open().document(ID) == new
    views = store.views
    assert views is not None
    views.backend.write(Delete(views.key(ID)))
    assert case.open().load(ID) == second
    assert case.open().document(ID) == new
    assert history(store) == []


def test_an_edit_of_an_older_state_is_refused_and_kept(case: Case) -> None:
    """W4: what happened since is not lost to it, and it is not lost either."""
    store = case.open()
    first = store.create(session())
    old = store.document(ID)
    second = store.commit(after_plan(first), expect=1)
    mine = old.replace(b"Compare the limits.", b"And mine.")
    case.edit(ID, lambda data: mine)
    with pytest.raises(RevisionConflict, match="edited at revision 1, and the session is at 2"):
        case.open().load(ID)
    with pytest.raises(RevisionConflict):
        store.commit(second, expect=2)
    assert case.open().document(ID) == mine
    views = store.views
    assert views is not None
    views.backend.write(Delete(views.key(ID)))
    assert case.open().load(ID) == second


def test_a_session_of_an_older_version_opens_and_goes_on(case: Case) -> None:
    """O7: a JSON document without a log, and recovery points in a log of their own."""
    store = case.open()
    old = replace(after_plan(session()), revision=7, created_at="2026-01-01T00:00:00.000Z", updated_at="2026-01-02T00:00:00.000Z")
    points = [
        {"part": "a1", "value": session_json(old)["stage_outputs"]["plan"]},
        {
            "checkpoint": "p1",
            "at": "t",
            "revision": 7,
            "session": {**session_json(old), "stage_outputs": {"plan": "a1"}, **dict.fromkeys(("stages", "workflow", "memory_snapshots"))},
        },
    ]
    store.backend.write(Put(f"sessions/{ID}.json", render_session(old)))
    store.backend.write(Append(f"sessions/{ID}/checkpoints.jsonl", points))
    store.backend.write(Put(f"sessions/{ID}/stages/01-plan/output.md", b"written"))
    assert [(one.workflow_id, one.revision) for one in case.open().list()] == [(ID, 7)]
    found = case.open().load(ID)
    assert found == old
    assert [one.name for one in case.open().checkpoints(ID)] == ["p1"]
    done = case.open().commit(replace(found, status="running"), expect=7)
    assert done.revision == 8
    again = case.open()
    assert again.load(ID) == done
    assert again.load_checkpoint(ID, "p1").stage_outputs == old.stage_outputs
    assert again.backend.mark(f"sessions/{ID}/checkpoints.jsonl") is None
    assert case.stage_file(ID, "01-plan/output.md") == "written"
    with pytest.raises(RevisionConflict):
        case.open().commit(found, expect=7)


def test_an_edit_of_a_session_of_an_older_version_is_not_overwritten(case: Case) -> None:
    """O7, W4."""
    store = case.open()
    store.backend.write(Put(f"sessions/{ID}.json", render_session(replace(session(), revision=2))))
    found = store.load(ID)
    store.backend.write(Put(f"sessions/{ID}.json", render_session(replace(session(task="mine"), revision=2))))
    with pytest.raises(RevisionConflict):
        store.commit(found, expect=2)
    assert case.open().load(ID).task == "mine"


def test_a_list_shows_what_the_newest_commits_and_edits_say(case: Case) -> None:
    store = case.open()
    made = store.create(session())
    assert case.open().list()[0].completed == 0
    done = store.commit(after_plan(made), expect=1)
    assert case.open().list()[0].completed == 1
    time.sleep(0.03)  # longer than a tick of the clock that tells files apart
    case.edit(ID, lambda data: data.replace(b"Compare the limits.", b"And mine."))
    assert case.open().list()[0].task.endswith("And mine.")
    case.edit(ID, lambda data: data.replace(b"And mine.", b"Compare the limits."))
    store.commit(replace(done, status="completed"), expect=2)
    assert (case.open().list()[0].status, case.open().list()[0].revision) == ("completed", 3)


def _view(store: SessionStore) -> Any:
    file = store.file(ID)
    if file is None or not file.is_file():
        pytest.skip("it has no files")
    return json.loads(file.read_text("utf-8"))


def test_files_that_may_be_late_are_written_when_it_is_asked_for_or_the_run_is_over(store: SessionStore) -> None:
    """W2, W5, W7: a commit under `views_later` is durable at once; its files follow, all of them and the newest state of each."""
    texts = stage_files(1, "plan", context="what it was given", output="what it wrote")
    with store.lease(ID):
        store.create(session())
        _view(store)
        for revision in (1, 2, 3):
            store.commit(after_plan(store.load(ID)), expect=revision, files=texts if revision == 2 else None, views_later=True)
        last = replace(after_plan(session()), task="the fifth")
        store.commit(last, expect=4, views_later=True)
        store.commit(last, expect=5, views_later=True)
        store.write_views(ID)
        assert _view(store)["revision"] == 6
        store.commit(replace(last, task="the seventh"), expect=6, views_later=True)
    assert (_view(store)["revision"], _view(store)["task"]) == (7, "the seventh")
    folder = store.folder(ID)
    assert folder is not None
    stages = folder.parent / "stages" / "01-plan"
    assert sorted(path.read_text("utf-8").strip() for path in stages.glob("*.md")) == ["what it was given", "what it wrote"]


def test_an_edit_while_the_files_are_late_is_neither_overlooked_nor_overwritten(store: SessionStore) -> None:
    """W4: the next commit is refused, also where the file that was edited is behind the log."""
    with store.lease(ID):
        store.create(session())
        document = _view(store)
        first = store.commit(session(), expect=1, views_later=True)
        second = store.commit(replace(first, task="another"), expect=2, views_later=True)
        file = store.file(ID)
        assert file is not None
        edited = json.dumps({**document, "task": "A person's own words."})
        file.write_text(edited, "utf-8")
        for later in (True, False):
            with pytest.raises(RevisionConflict):
                store.commit(replace(second, task="a third"), expect=3, views_later=later)
            store.write_views(ID)
            assert file.read_text("utf-8") == edited
    assert file.read_text("utf-8") == edited


def test_files_that_were_late_when_their_process_died_are_written_by_whoever_loads_it(case: Case) -> None:
    """W6: nobody takes a file that is behind for an edit."""
    dying = case.open()
    with dying.lease(ID):
        dying.create(session())
        _view(dying)
        done = dying.commit(after_plan(session()), expect=1, files={"01-plan/output.md": "what it wrote"}, views_later=True)
        dying.commit(replace(done, task="the third"), expect=2, views_later=True)
        other = case.open()
        assert other.load(ID).task == "the third"
        assert _view(other)["revision"] == 3
        assert dying.commit(replace(done, task="the fourth"), expect=3, views_later=True).revision == 4
