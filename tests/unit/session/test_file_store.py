"""What only the file store has: layout, syncs, full disks, lost permissions, signs of life, leftovers (W1, W2, W5, W7, W15, M14, O7)."""

from __future__ import annotations

import errno
import json
import os
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config.loading import config_from_values, load_config
from holdfast.durable.disk import RealDisk, read_whole
from holdfast.durable.replace import replace as replace_file
from holdfast.errors import (
    ConfigError,
    Damaged,
    DiskFull,
    InputError,
    NotWritable,
    RevisionConflict,
    StorageError,
    SyncFailed,
    WriteFailed,
)
from holdfast.harness import build
from holdfast.session.log import TextPacker, compacted, texts_of
from holdfast.session.output import StageOutput
from holdfast.session.state import Session, stage_files
from holdfast.session.store import SessionStore
from holdfast.storage.backend import Append, Change, Mark
from holdfast.storage.in_memory import MemoryBackend
from holdfast.testing.clock import FakeClock
from holdfast.testing.disk import PowerCut, SimulatedDisk
from holdfast.testing.failing_disk import FailingDisk, Fault
from holdfast.workflow.run_settings import file_sessions


def session(id: str = "w-1", **more: Any) -> Session:
    return Session(id, task="Measure it.", **more)


def grown(of: Session, number: int) -> Session:
    output = StageOutput(f"s{number}", f"summary {number}")
    return replace(of, completed_stages=(*of.completed_stages, f"s{number}"), stage_outputs={**of.stage_outputs, f"s{number}": output})


# Layout


def test_files_lie_where_the_documents_say(tmp_path: Path) -> None:
    store = file_sessions(tmp_path / "sessions")
    made = store.create(session())
    store.checkpoint(made, "p")
    ref = store.raw_put("w-1", b"x")
    store.commit(made, expect=1, files=stage_files(2, "web_research", context="c", output="o"))
    base = tmp_path / "sessions"
    assert json.loads((base / "w-1.json").read_text())["workflow_id"] == "w-1"
    assert (base / "w-1.json").stat().st_mode & 0o777 == 0o600
    assert (base / "w-1/stages/02-web_research/context.md").read_text() == "c"
    assert (base / "w-1/stages/02-web_research/output.md").read_text() == "o"
    assert (base / "w-1/log.jsonl").exists()
    digest = ref.removeprefix("raw:")
    assert (base / "w-1/raw" / digest[7:9] / digest[9:11] / digest).read_bytes() == b"x"


@pytest.mark.parametrize("template", ["files/{session_id}.json", "files/{session_id}/state.json", "files/session-{session_id}.state"])
def test_a_template_puts_the_file_elsewhere(tmp_path: Path, template: str) -> None:
    """W1: `memory.session_memory.path`."""
    store = file_sessions(tmp_path / "sessions", path=str(tmp_path / template))
    made = store.create(session())
    store.create(session("w-2"))
    place = tmp_path / template.replace("{session_id}", "w-1")
    assert json.loads(place.read_text())["workflow_id"] == "w-1"
    (place.parent / "stranger.txt").write_text("not a session")
    (tmp_path / "files" / "empty").mkdir()
    again = file_sessions(tmp_path / "sessions", path=str(tmp_path / template))
    assert {one.workflow_id for one in again.list()} == {"w-1", "w-2"}
    assert again.commit(again.load("w-1"), expect=1).revision == 2
    again.checkpoint(made, "p")
    again.remove("w-1")
    assert [one.workflow_id for one in again.list()] == ["w-2"]


@pytest.mark.parametrize("template", ["sessions.json", "{session_id}/{session_id}.json"])
def test_a_template_needs_the_id_once(tmp_path: Path, template: str) -> None:
    with pytest.raises(ConfigError, match="session_id") as caught:
        file_sessions(tmp_path, path=template)
    assert caught.value.key == "memory.session_memory.path"


def test_the_store_that_a_configuration_describes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    file = tmp_path / "config.yaml"
    file.write_text("session:\n  path: runs\n")
    build(load_config(file)).open_sessions().create(session())
    assert (tmp_path / "home" / "runs" / "w-1.json").exists()
    file.write_text(f'memory:\n  session_memory:\n    path: "{tmp_path}/{{session_id}}.json"\n')
    build(load_config(file)).open_sessions().create(session("w-2"))
    assert (tmp_path / "w-2.json").exists()
    file.write_text("session:\n  storage_backend: postgresql\n")
    with pytest.raises(ConfigError, match="connection"):
        build(load_config(file)).open_sessions()


def test_a_file_that_was_copied_under_another_name_is_told_of(tmp_path: Path) -> None:
    store = file_sessions(tmp_path)
    store.create(session())
    (tmp_path / "copy.json").write_bytes((tmp_path / "w-1.json").read_bytes())
    with pytest.raises(StorageError, match="'w-1'"):
        store.load("copy")
    assert {one.workflow_id: bool(one.problem) for one in store.list()} == {"w-1": False, "copy": True}


def test_a_file_without_a_session_beside_it_is_no_session(tmp_path: Path) -> None:
    store = file_sessions(tmp_path)
    assert store.list() == []
    (tmp_path / ".hidden.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "folder").mkdir()
    assert store.list() == []


# Syncs


def test_a_stage_is_one_sync_with_its_recovery_point_and_its_files() -> None:
    """W5: the record is synced; the files that people read are views of it."""
    disk = FailingDisk(SimulatedDisk())
    store = file_sessions("/sessions", disk=disk)
    state = store.create(session())
    for number in range(3):
        disk.calls.clear()
        files = stage_files(number, "s", context="c", output="o")
        state = store.commit(grown(state, number), expect=state.revision, point=f"p{number}", files=files)
        assert [call.operation for call in disk.calls if call.operation.startswith("sync")] == ["sync"]
    assert disk.open_handles == 0
    assert [one.name for one in store.checkpoints("w-1")] == ["p0", "p1", "p2"]


def test_a_commit_costs_what_is_new(tmp_path: Path) -> None:
    """W5: a stage's output is written once, however many commits and recovery points follow it."""
    store = file_sessions(tmp_path)
    state = store.create(session())
    log, sizes = tmp_path / "w-1/log.jsonl", []
    for number in range(30):
        before = log.stat().st_size
        output = StageOutput(f"s{number}", f"summary {number} " * 100)
        outputs = {**state.stage_outputs, f"s{number}": output}
        state = store.commit(replace(state, stage_outputs=outputs), expect=state.revision, point=f"p{number}")
        sizes.append(log.stat().st_size - before)
    assert max(sizes) < 1.1 * min(sizes)
    assert store.load_checkpoint("w-1", "p29") == state
    assert len(store.load_checkpoint("w-1", "p4").stage_outputs) == 5


# Disks that fail


KINDS = [(errno.ENOSPC, DiskFull), (errno.EACCES, NotWritable), (errno.EIO, WriteFailed)]


@pytest.mark.parametrize(("number", "kind"), KINDS)
@pytest.mark.parametrize("operation", ["open_log", "write"])
def test_a_write_that_fails_says_so_and_leaves_the_old_state(operation: str, number: int, kind: type[StorageError]) -> None:
    """W15."""
    disk = SimulatedDisk()
    made = file_sessions("/sessions", disk=disk).create(session())
    failing = FailingDisk(disk, [Fault(operation, 1, number)])
    store = file_sessions("/sessions", disk=failing)
    with pytest.raises(kind):
        store.commit(grown(made, 1), expect=1)
    assert failing.open_handles == 0
    assert file_sessions("/sessions", disk=disk).load("w-1") == made
    assert store.commit(grown(made, 1), expect=1).revision == 2, "when there is room again it goes on"


@pytest.mark.parametrize(("number", "kind"), KINDS)
@pytest.mark.parametrize("operation", ["create", "rename"])
def test_a_readable_file_that_cannot_be_written_says_so_and_the_commit_stands(
    operation: str, number: int, kind: type[StorageError]
) -> None:
    """W15: what is in the log is there; the file is a view, and is written again."""
    disk = SimulatedDisk()
    made = file_sessions("/sessions", disk=disk).create(session())
    store = file_sessions("/sessions", disk=FailingDisk(disk, [Fault(operation, 1, number)]))
    with pytest.raises(kind):
        store.commit(grown(made, 1), expect=1)
    after = file_sessions("/sessions", disk=disk)
    found = after.load("w-1")
    assert (found.revision, found.completed_stages) == (2, ("s1",))
    assert json.loads(after.document("w-1"))["revision"] == 2
    assert store.commit(grown(found, 2), expect=2).revision == 3


@pytest.mark.parametrize("nth", range(1, 40))
def test_whatever_call_fails_the_old_state_or_the_new_one_is_there(nth: int) -> None:
    disk = SimulatedDisk()
    made = file_sessions("/sessions", disk=disk).create(session())
    store = file_sessions("/sessions", disk=FailingDisk(disk, [Fault("*", nth, errno.ENOSPC)]))
    for work in (
        lambda: store.commit(grown(made, 1), expect=1),
        lambda: store.checkpoint(made, "p"),
        lambda: store.raw_put("w-1", b"data"),
        lambda: store.clear_cancel("w-1"),
    ):
        try:
            work()
        except StorageError:
            break
    after = file_sessions("/sessions", disk=disk)
    assert after.load("w-1").revision in (1, 2)
    assert after.commit(after.load("w-1"), expect=after.load("w-1").revision)
    after.checkpoint(after.load("w-1"), "again")
    assert after.load_checkpoint("w-1", "again") == after.load("w-1")


def test_a_failed_sync_is_told_and_the_next_try_starts_anew() -> None:
    disk = SimulatedDisk()
    made = file_sessions("/sessions", disk=disk).create(session())
    file_sessions("/sessions", disk=disk).checkpoint(made, "p0")
    failing = FailingDisk(disk, [Fault("sync", 1, errno.EIO)])
    store = file_sessions("/sessions", disk=failing)
    with pytest.raises(SyncFailed):
        store.checkpoint(made, "p1")
    store.checkpoint(made, "p2")
    assert failing.synced_again_after_failing() == []
    assert "p2" in [one.name for one in store.checkpoints("w-1")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_any_more(tmp_path: Path) -> None:
    store = file_sessions(tmp_path)
    made = store.create(session())
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(NotWritable):
            store.commit(made, expect=1)
    finally:
        tmp_path.chmod(0o700)
    assert store.load("w-1") == made


# Signs of life


def test_who_holds_a_session_gives_signs_of_life(tmp_path: Path) -> None:
    store, other = file_sessions(tmp_path, beat=0.01), file_sessions(tmp_path)
    store.create(session())
    with store.lease("w-1", owner="me"):
        note = tmp_path / "w-1/owner.json"
        os.utime(note, (1, 1))
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and note.stat().st_mtime < 2:
            time.sleep(0.005)
        owner = other.owner("w-1")
        assert owner is not None
        assert owner.heartbeat > "2020"
    assert not note.exists()


def test_an_owner_that_left_its_note_behind_is_nobody(tmp_path: Path) -> None:
    store = file_sessions(tmp_path)
    store.create(session())
    note = {"name": "dead", "host": "h", "pid": 1, "since": "2026-01-01T00:00:00.000Z"}
    (tmp_path / "w-1/owner.json").write_text(json.dumps(note))
    assert store.owner("w-1") is None
    with store.lease("w-1") as held:
        assert held.taken_over is not None
        assert held.taken_over.name == "dead"


# Time and listing


def test_times_come_from_the_clock(tmp_path: Path) -> None:
    clock = FakeClock()
    store = file_sessions(tmp_path, clock=clock)
    made = store.create(session())
    clock.advance(60)
    done = store.commit(made, expect=1)
    assert done.created_at == made.created_at == made.updated_at
    assert done.updated_at > done.created_at


def test_the_list_notices_every_change_and_what_is_gone(tmp_path: Path) -> None:
    store, other = file_sessions(tmp_path), file_sessions(tmp_path)
    made = store.create(session())
    time.sleep(0.05)  # older than a tick, so that it is kept
    assert store.list()[0].status == "ready"
    other.commit(replace(made, status="halted"), expect=1)
    assert store.list()[0].status == "halted"
    (tmp_path / "w-1.json").write_text("{ my own words")
    assert store.list()[0].problem
    (tmp_path / "w-1.json").unlink()
    assert store.list()[0].problem is None, "the log has it"
    assert store.load("w-1").status == "halted"
    assert json.loads((tmp_path / "w-1.json").read_text())["status"] == "halted", "it is written again"
    store.remove("w-1")
    assert store.list() == []


def test_a_list_reads_one_small_document_for_each_session() -> None:
    """O1: no log and no readable file, whatever they have grown to."""
    disk = SimulatedDisk()
    store = file_sessions("/sessions", disk=disk)
    for name in ("a", "b", "c"):
        state = store.create(session(name))
        store.commit(replace(grown(state, 1), status="completed"), expect=1)
    looking = FailingDisk(disk)
    assert {one.status for one in file_sessions("/sessions", disk=looking).list()} == {"completed"}
    read = [call.path.rpartition("/")[2] for call in looking.calls if call.operation == "read"]
    assert set(read) == {"brief.json"}


def test_a_list_is_right_where_nothing_may_be_written() -> None:
    disk = SimulatedDisk()
    state = file_sessions("/sessions", disk=disk).create(session())
    file_sessions("/sessions", disk=disk).commit(grown(state, 1), expect=1)
    locked = FailingDisk(disk, [Fault(name, 1, errno.EACCES, persistent=True) for name in ("create", "rename")])
    assert file_sessions("/sessions", disk=locked).list()[0].completed == 1
    assert file_sessions("/sessions", disk=locked).load("w-1").completed_stages == ("s1",)


# Damage of recovery points, and forgetting


def test_a_torn_log_gives_what_is_whole(tmp_path: Path) -> None:
    store = file_sessions(tmp_path)
    made = store.create(session())
    store.checkpoint(made, "p1")
    log = tmp_path / "w-1/log.jsonl"
    whole = log.stat().st_size
    store.checkpoint(grown(made, 1), "p2")
    log.write_bytes(log.read_bytes()[: whole + 30])
    again = file_sessions(tmp_path)
    assert [one.name for one in again.checkpoints("w-1")] == ["p1"]
    again.checkpoint(grown(made, 2), "p3")
    assert again.load_checkpoint("w-1", "p3") == grown(made, 2)
    assert again.load_checkpoint("w-1", "p1") == made


def test_a_log_that_lost_a_record_is_told_of_and_the_file_can_take_its_place(tmp_path: Path) -> None:
    """W4: nothing is guessed from the records that are left."""
    store = file_sessions(tmp_path)
    state = store.create(session())
    for number in range(3):
        state = store.commit(grown(state, number), expect=state.revision)
    log = tmp_path / "w-1/log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:2], b"x" + lines[2][1:], *lines[3:]]))
    again = file_sessions(tmp_path)
    with pytest.raises(Damaged, match="record after revision 1 is lost"):
        again.load("w-1")
    assert "lost" in (again.list()[0].problem or "")
    text = again.document("w-1")
    assert again.put_document(state, instead_of=text).revision == 5
    assert file_sessions(tmp_path).load("w-1").completed_stages == state.completed_stages


def test_forgetting_reaches_what_killed_writers_left(tmp_path: Path) -> None:
    """M14: every file is grepped."""
    store = file_sessions(tmp_path)
    store.create(session())
    (tmp_path / ".new-0123456789abcdef.tmp").write_text('{"task": "the heron sings"')
    (tmp_path / "w-1.json.damaged-20260101T000000Z").write_text("the heron sings")
    (tmp_path / "w-1/work").mkdir()
    (tmp_path / "w-1/work/notes.txt").write_text("Well. The heron sings. Good.")
    (tmp_path / "w-1/work/binary").write_bytes(b"\xff\xfe\x80the heron sings\x80")
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone/checkpoints.jsonl.damaged-7").write_text("the heron sings")
    touched = store.forget_text("The heron sings")
    assert {one.kind for one in touched} == {"leftover", "stage file"}
    found = [path for path in tmp_path.rglob("*") if path.is_file() and b"heron" in path.read_bytes()]
    assert found == []
    assert (tmp_path / "w-1/work/notes.txt").read_text() == "Well. [forgotten] Good."


def test_an_id_from_outside_never_leads_out(tmp_path: Path) -> None:
    store = file_sessions(tmp_path / "sessions")
    store.create(session())
    for bad in ("../w-1", "..", "/etc/passwd", "a/../../b"):
        with pytest.raises(InputError):
            store.fork("w-1", bad)
        with pytest.raises(InputError):
            store.remove(bad)
    assert [path.name for path in tmp_path.iterdir()] == ["sessions"]


def test_forgetting_and_pruning_reach_the_folder_and_the_template_that_the_configuration_names(tmp_path: Path) -> None:
    """M14, O7: `session.path` and `memory.session_memory.path`."""
    values = {"session": {"path": "runs"}, "memory": {"session_memory": {"path": str(tmp_path / "out" / "{session_id}.json")}}}
    store = build(config_from_values(values, environ={"HOLDFAST_HOME": str(tmp_path / "home")})).open_sessions()
    made = store.create(Session("w-1", task="Begin. The heron sings. End."))
    store.commit(made, expect=1, point="p", files=stage_files(1, "a", context="The heron sings. And more."))
    assert (tmp_path / "home/runs/w-1/log.jsonl").exists()
    assert (tmp_path / "out/w-1.json").exists()
    assert {one.kind for one in store.forget_text("the heron sings")} >= {"session", "checkpoint", "stage file"}
    assert [path for path in tmp_path.rglob("*") if path.is_file() and b"heron" in path.read_bytes()] == []
    assert store.load("w-1").task == "Begin. [forgotten] End."
    store.remove("w-1")
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"] == []


def test_what_a_record_holds_can_be_read_by_a_person(tmp_path: Path) -> None:
    """W2: the log is JSON Lines, and says what changed."""
    store = file_sessions(tmp_path)
    store.commit(grown(store.create(session()), 1), expect=1, point="p1", files=stage_files(1, "s1", output="written"))
    record = json.loads((tmp_path / "w-1/log.jsonl").read_text().splitlines()[-1])
    assert (record["revision"], record["after"], record["point"]) == (2, 1, "p1")
    assert record["files"] == {"01-s1/output.md": "written"}
    assert {tuple(change["at"]) for change in record["changes"]} == {("completed_stages",), ("stage_outputs", "s1")}


class Restless(MemoryBackend):
    """Somebody else adds to the log before each of our writes to it, once it is there."""

    def write(self, *changes: Change) -> tuple[Mark, ...]:
        for change in changes:
            if isinstance(change, Append) and self.mark(change.key) is not None:
                super().write(Append(change.key, [{"point": "theirs", "at": "", "changes": []}]))
        return super().write(*changes)

    def rewrite(self, key: str, *given: Any, **settings: Any) -> Mark:
        super().write(Append(key, [{"point": "theirs", "at": "", "changes": []}]))
        return super().rewrite(key, *given, **settings)


def test_a_log_that_is_never_at_rest_is_an_error_and_not_silence() -> None:
    """W5: a recovery point that was not kept is not said to be kept, nor one that was not pruned to be gone."""
    store = SessionStore(Restless())
    made = store.create(session())
    with pytest.raises(RevisionConflict, match="all the time"):
        store.checkpoint(made, "p")
    with pytest.raises(RevisionConflict, match="all the time"):
        store.prune_checkpoints("w-1", keep=0)
    assert [point.name for point in store.checkpoints("w-1")] == ["theirs"]


# What stages were given, in the log


@given(st.lists(st.tuples(st.sampled_from(["context.md", "output.md"]), st.text(max_size=40), st.integers(0, 30)), max_size=12))
def test_texts_that_are_written_by_what_is_new_in_them_are_read_back_whole(pieces: list[tuple[str, str, int]]) -> None:
    """W7: in as many records as there are, and when the log is compacted into one."""
    packer, records, wanted, text = TextPacker(), [], {}, "x" * 500
    for number, (kind, more, cut) in enumerate(pieces):
        text = text[: len(text) - cut] + more + text[len(text) - cut :]
        wanted[f"{number % 5:02d}-s/{kind}"] = text
        records.append({"files": packer.packed({f"{number % 5:02d}-s/{kind}": text})})
    assert texts_of(records) == wanted
    assert texts_of(compacted({}, {"revision": 1}, wanted)) == wanted


def test_the_log_grows_by_what_is_new_and_not_by_what_was_given_before(tmp_path: Path) -> None:
    """W5, W7: a stage is given all earlier outputs; the bytes of its record do not depend on how many there are."""
    store = file_sessions(tmp_path)
    made, given = store.create(session()), "# Task\n"
    for number in range(1, 60):
        made = store.commit(grown(made, number), expect=number, files=stage_files(number, f"s{number}", context=given, output="written"))
        given += f"\n## s{number}\n" + "What it found. " * 20
    lines = (tmp_path / "w-1/log.jsonl").read_text().splitlines()
    assert len(lines[-1]) < len(lines[4]) + 50
    assert (tmp_path / "w-1/stages/59-s59/context.md").read_text() == given.rpartition("\n## s59")[0]


def test_a_text_that_stands_across_two_records_is_forgotten(tmp_path: Path) -> None:
    """M14"""
    store = file_sessions(tmp_path)
    begin = "Much that is not of interest here. " * 10 + "The her"
    made = store.commit(grown(store.create(session()), 1), expect=1, files=stage_files(1, "a", context=begin))
    store.commit(grown(made, 2), expect=2, files=stage_files(2, "b", context=f"{begin}on sings. And more."))
    assert store.forget_text("the heron sings")
    assert [path for path in tmp_path.rglob("*") if path.is_file() and b"heron" in path.read_bytes()] == []
    with store.current("w-1") as known:
        assert not any("heron" in text for text in texts_of(known.records()).values())


def test_a_run_leaves_a_log_without_room_behind_its_end(tmp_path: Path) -> None:
    """W2: a log at rest is JSON Lines and nothing else."""
    store = file_sessions(tmp_path)
    with store.lease("w-1"):
        made = store.create(session())
        for number in range(1, 4):
            made = store.commit(replace(grown(made, number), status="running"), expect=number, views_later=True)
        assert (tmp_path / "w-1/log.jsonl").read_bytes().endswith(b" ")
        store.commit(replace(made, status="completed"), expect=4)
    assert (tmp_path / "w-1/log.jsonl").read_bytes().endswith(b"}\n")
    assert file_sessions(tmp_path).load("w-1").status == "completed"


# Lists, leftovers, and what a power cut does to the views


def test_only_what_may_be_among_the_newest_is_read(tmp_path: Path) -> None:
    """W1, O1: sessions whose logs were written days apart."""
    clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
    store = file_sessions(tmp_path / "sessions", clock=clock)
    for number in range(30):
        clock.advance(86_400)
        id = f"w-{(number * 7) % 30:02d}"
        made = store.create(session(id))
        store.commit(replace(made, status="completed"), expect=1)
        moment = clock.now().timestamp()
        for path in (tmp_path / "sessions" / f"{id}.json", tmp_path / "sessions" / id / "log.jsonl"):
            os.utime(path, (moment, moment))
    disk = FailingDisk(RealDisk())
    few = [one.workflow_id for one in islice(file_sessions(tmp_path / "sessions", disk=disk).newest(), 5)]
    read = {call.path.split("/sessions/")[1][:4] for call in disk.calls if call.operation == "open" and "/sessions/" in call.path}
    assert few == [one.workflow_id for one in store.list()][:5]
    assert len(read) <= 6, read
    assert [one.workflow_id for one in store.newest()] == [one.workflow_id for one in store.list()]


def test_markdown_of_stages_that_a_power_cut_tore_or_emptied_is_written_again() -> None:
    """W5, W7: it is put without a sync, and its text is in the log: whoever loads the session next finds it whole."""
    for seed in range(30):
        disk = SimulatedDisk(seed=seed)
        store = file_sessions("/base/sessions", disk=disk)
        state, wanted = store.create(session()), dict[str, str]()
        for number in range(1, 4):
            texts = stage_files(number, f"s{number}", context=f"given {number} " * 200, output=f"wrote {number} " * 100)
            state = store.commit(grown(state, number), expect=state.revision, files=texts)
            wanted |= texts
        after = disk.crash()
        file_sessions("/base/sessions", disk=after).load("w-1")
        for name, text in wanted.items():
            assert read_whole(after, f"/base/sessions/w-1/stages/{name}").decode().startswith(text[:50]), (seed, name)
            assert len(read_whole(after, f"/base/sessions/w-1/stages/{name}")) >= len(text), (seed, name)


def test_an_emptied_stage_file_is_written_again_and_a_person_s_note_in_one_stays(tmp_path: Path) -> None:
    store = file_sessions(tmp_path / "sessions")
    made = store.create(session())
    store.commit(grown(made, 1), expect=1, files=stage_files(1, "s1", context="given", output="written"))
    folder = tmp_path / "sessions" / "w-1" / "stages" / "01-s1"
    (folder / "context.md").write_bytes(b"")
    (folder / "output.md").write_text("my own note")
    file_sessions(tmp_path / "sessions").load("w-1")
    assert (folder / "context.md").read_text().strip() == "given"
    assert (folder / "output.md").read_text() == "my own note"


def test_a_recovery_point_that_is_damaged_is_told_where_it_is_asked_for(tmp_path: Path) -> None:
    """W5: not as if there had never been one."""
    store = file_sessions(tmp_path / "sessions")
    state = store.create(session())
    for number in range(1, 4):
        state = store.commit(grown(state, number), expect=state.revision, point=f"p{number}")
    store.close()
    log = tmp_path / "sessions" / "w-1" / "log.jsonl"
    log.write_bytes(log.read_bytes().replace(b"summary 2", b"summbry 2", 1))
    store = file_sessions(tmp_path / "sessions")
    assert len(store.damage("w-1")) == 1
    with pytest.raises(Damaged, match=r"byte \d+"):
        store.load_checkpoint("w-1", "p2")
    assert store.restore("w-1", "p1").completed_stages == ("s1",)
    with pytest.raises(Damaged, match="p2"):
        file_sessions(tmp_path / "sessions").restore("w-1", "p2")


def test_restoring_over_a_file_that_cannot_be_read_has_no_moment_without_a_session() -> None:
    """W5, W15: killed, or without power, at any call of the disk: the session is listed, and one of its two states is read or restored."""
    for moment in range(1, 60):
        for way in ("crash", "kill"):
            disk = SimulatedDisk(seed=moment)
            store = file_sessions("/base/sessions", disk=disk)
            state = store.create(session())
            for number in (1, 2):
                state = store.commit(grown(state, number), expect=state.revision, point=f"p{number}")
            replace_file("/base/sessions/w-1.json", b'{"workflow_id": "w-1", broken', disk=disk)
            disk.cut_at = disk.calls + moment
            with suppress(PowerCut):
                file_sessions("/base/sessions", disk=disk).restore("w-1", "p1")
            after = disk.crash() if way == "crash" else disk.kill()
            again = file_sessions("/base/sessions", disk=after)
            assert [one.workflow_id for one in again.list()] == ["w-1"], (moment, way)
            assert again.restore("w-1", "p1").completed_stages == ("s1",), (moment, way)
            assert again.load("w-1").completed_stages == ("s1",)


def test_a_list_that_is_asked_for_again_reads_only_what_was_written_since(tmp_path: Path) -> None:
    """W1, O4: and sees whatever was: commits of another process, a person's edit of a file, a session that is gone."""

    class Watched(RealDisk):
        opened: list[str]

        def open(self, path: str) -> int:
            self.opened.append(path)
            return super().open(path)

    disk = Watched()
    disk.opened = []
    store, other = file_sessions(tmp_path / "sessions", disk=disk), file_sessions(tmp_path / "sessions")
    for number in range(20):
        other.create(session(f"w-{number}"))
    for path in (tmp_path / "sessions").rglob("*"):
        os.utime(path, (time.time() - 60 - len(path.name),) * 2)  # what was written this very moment may be written again unnoticed
    first = store.list()
    disk.opened.clear()
    assert store.list() == first and len(first) == len([*store.newest()]) == 20
    assert not disk.opened

    other.commit(replace(other.load("w-3"), status="paused"), expect=1)
    file = tmp_path / "sessions" / "w-5.json"
    file.write_text(file.read_text().replace('"ready"', '"halted"', 1))
    other.remove("w-7")
    found = {one.workflow_id: one.status for one in store.list()}
    assert (found["w-3"], found["w-5"], found["w-8"], "w-7" in found) == ("paused", "halted", "ready", False)
    assert {one.workflow_id for one in store.newest()} == set(found)
    touched = {path.removeprefix(f"{tmp_path}/sessions/").split("/")[0].removesuffix(".json") for path in disk.opened}
    assert touched == {"w-3", "w-5"}
