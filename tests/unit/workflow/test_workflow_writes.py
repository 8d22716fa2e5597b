"""W15: whatever write fails, at whatever moment, the run stops with that error, the old state stands, and it can be resumed."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workflow.support import Agent, Place, linear, output

from holdfast.durable.disk import REAL
from holdfast.errors import DiskFull, RevisionConflict, StorageError
from holdfast.session.store import SessionStore
from holdfast.testing.clock import FakeClock
from holdfast.testing.failing_disk import FailingDisk, Fault
from holdfast.workflow.agent import StageRequest
from holdfast.workflow.run_settings import file_sessions


def stages(place: Place) -> list[str]:
    found: dict[str, Any] = json.loads(place.file.read_text("utf-8"))
    return list(found["completed_stages"])


def with_raw(request: StageRequest) -> object:
    return output(request.stage.name, raw_data_refs=[request.raw.put(f"page of {request.stage.name}")])


class Hurrying(FakeClock):
    """A second later at each look: the files of the session are written with every commit, so that each run makes the same writes."""

    def monotonic(self) -> float:
        self.advance(1)
        return super().monotonic()


def test_each_write_of_a_run_may_fail_and_nothing_is_lost_or_done_twice(tmp_path: Path) -> None:
    names = ("a", "b", "c")
    probe = FailingDisk(REAL)
    place = Place(tmp_path / "probe", Agent({name: [with_raw] for name in names}))
    place.store = file_sessions(place.folder / "sessions", disk=probe, clock=Hurrying())
    place.run(linear(*names))
    writes = [number for number, call in enumerate([one for one in probe.calls if one.operation == "write"], start=1)]
    assert len(writes) > 15
    for nth in writes:
        place = Place(tmp_path / str(nth), Agent({name: [with_raw] * 2 for name in names}))
        disk = FailingDisk(REAL, [Fault("write", nth, errno.ENOSPC, persistent=True)])
        place.store = file_sessions(place.folder / "sessions", disk=disk, clock=Hurrying())
        with pytest.raises(DiskFull):
            place.run(linear(*names))
        place.store = file_sessions(place.folder / "sessions")  # what counts is in the log: the file may not have been written any more
        there = bool(place.store.list())
        kept = list(place.store.load("s1").completed_stages) if there else []
        ran = list(place.agent.ran)
        assert ran in ([*kept], [*kept, *names[len(kept) : len(kept) + 1]]), "it stopped at the write that failed"
        session = place.resume() if there else place.run(linear(*names))
        assert session.status == "completed"
        assert place.agent.ran[len(ran) :] == list(names[len(kept) :]), "what was kept did not run again"


def test_a_write_that_an_agent_swallowed_stops_the_run_all_the_same(tmp_path: Path) -> None:
    def careless(request: StageRequest) -> object:
        with suppress(StorageError):
            request.raw.put("page")
        return output("b")

    place = Place(tmp_path, Agent({"a": [output("a")], "b": [careless]}))
    usual = file_sessions(tmp_path / "sessions")
    place.store = Full(usual.backend, views=usual.views)
    with pytest.raises(DiskFull):
        place.run(linear("a", "b", retries=5, on_error="skip"))
    assert stages(place) == ["a"]


class Full(SessionStore):
    def raw_put(self, *given: Any, **settings: Any) -> str:
        raise DiskFull("there is no space left.")


def test_a_disk_that_is_full_under_the_agent_itself_is_not_tried_again(tmp_path: Path) -> None:
    place = Place(tmp_path, Agent({"a": [OSError(errno.ENOSPC, "No space left on device", "report.md")]}))
    with pytest.raises(DiskFull, match=r"report\.md"):
        place.run(linear("a", retries=5))
    assert place.agent.ran == ["a"]


def test_a_session_that_a_person_edits_while_it_runs_is_not_overwritten(tmp_path: Path) -> None:
    place = Place(tmp_path)
    edited: list[str] = []

    def while_it_runs(request: StageRequest) -> object:
        edited.append(place.file.read_text("utf-8").replace("Find out.", "Find out more."))
        place.file.write_text(edited[0], "utf-8")
        return output("a")

    place.agent.script = {"a": [while_it_runs]}
    with pytest.raises(RevisionConflict):
        place.run(linear("a", "b"))
    assert place.file.read_text("utf-8") == edited[0]
    assert place.resume().task == "Find out more."


def test_what_an_agent_wrote_to_its_folder_is_on_the_disk_before_the_stage_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W5, W12: files, the folders they are in, and the names of these are synced before the record that completes the stage."""
    synced: list[str] = []

    def noted(call: Callable[[int], None]) -> Callable[[int], None]:
        def sync(handle: int) -> None:
            synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
            call(handle)

        return sync

    def write(request: StageRequest) -> object:
        (request.folder / "tables").mkdir()
        (request.folder / "tables" / "one.csv").write_text("1,2", encoding="utf-8")
        (request.folder / "link").symlink_to("nowhere")
        synced.clear()
        return output(request.stage.name)

    place = Place(tmp_path, Agent({"a": [write]}))
    monkeypatch.setattr(os, "fsync", noted(os.fsync))
    monkeypatch.setattr(os, "fdatasync", noted(os.fdatasync))
    place.run(linear("a"))
    work = place.folder / "sessions" / "s1" / "files" / "01-a"
    log = synced.index(str(place.folder / "sessions" / "s1" / "log.jsonl"))
    for path in (work / "tables" / "one.csv", work / "tables", work, work.parent, work.parent.parent):
        assert str(path) in synced[:log], (path, synced)
