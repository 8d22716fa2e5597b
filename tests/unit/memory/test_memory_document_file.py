"""M6, M7, M14: a change is one record with one sync; the file beside it is made again, adopted or set aside, and never counts for more."""

from __future__ import annotations

import errno
import json
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast import build
from holdfast.backup import back_up
from holdfast.config.loading import config_from_values
from holdfast.durable.disk import REAL, RealDisk
from holdfast.errors import Damaged, DiskFull, StorageError, StoreUnavailable, SyncFailed
from holdfast.events import Bus
from holdfast.memory.document import Document
from holdfast.memory.facts import Fact
from holdfast.memory.history import Held
from holdfast.memory.memory_store import Edit, MemoryDamaged
from holdfast.memory.service import MemoryService
from holdfast.memory.storage import FileMemoryStorage
from holdfast.storage.backend import Change, Mark
from holdfast.testing.disk import PowerCut, SimulatedDisk
from holdfast.testing.failing_disk import FailingDisk, Fault


def adding(*names: str, held: tuple[Held, ...] = ()) -> Callable[[Document], Edit]:
    def edit(document: Document) -> Edit:
        for name in names:
            document = document.with_fact(Fact(name, f"knows {name}"))
        return Edit(document, "user", "test", held=held)

    return edit


def names(storage: FileMemoryStorage) -> list[str]:
    return [fact.id for fact in storage.document().facts]


def test_a_change_is_one_sync(tmp_path: Path) -> None:
    """M6: one record, synced once; the readable file is put without a sync. (A step of several files before it may cost one more.)"""
    disk = FailingDisk(RealDisk())
    storage = FileMemoryStorage(tmp_path, disk=disk, bus=Bus())
    storage.change(None, adding("a"))
    storage.change(None, adding("b"))
    folder = tmp_path / ".pending"
    while (found := REAL.identity(str(folder))) is None or not found.settled:  # until it is no longer of this very moment
        time.sleep(0.005)
    storage.change(None, adding("c"))
    disk.calls.clear()
    storage.change(None, adding("d"))
    assert [call.operation for call in disk.calls if call.operation in ("sync", "sync_folder")] == ["sync"]
    assert names(FileMemoryStorage(tmp_path)) == ["a", "b", "c", "d"]


def test_a_power_cut_or_a_kill_at_any_moment_loses_no_acknowledged_change_and_no_edit() -> None:
    """M6: at every call of the disk, with edits of a person in between: what was acknowledged is there after it, in file and history."""
    for moment in range(1, 150):
        for way in ("crash", "kill"):
            disk = SimulatedDisk(seed=moment, cut_at=moment)
            done: list[str] = []
            with suppress(PowerCut):
                storage = FileMemoryStorage("/base", disk=disk, bus=Bus())
                for number in range(3):
                    storage.change(None, adding(f"f{number}"))
                    done.append(f"f{number}")
            after = FileMemoryStorage("/base", disk=disk.crash() if way == "crash" else disk.kill(), bus=Bus())
            found = names(after)
            assert found[: len(done)] == done and len(found) <= len(done) + 1, (moment, way, done, found)
            assert [change.revision for change in after.changes()] == list(range(1, len(found) + 1)), (moment, way)
            after.change(None, adding("last"))
            assert names(FileMemoryStorage("/base", disk=after.backend.disk, bus=Bus())) == [*found, "last"], (moment, way)  # type: ignore[attr-defined]


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "create", "unlink", "truncate", "open_log", "sync_folder"])
@pytest.mark.parametrize("held", [False, True])
def test_a_change_that_was_said_to_have_failed_is_never_carried_out(tmp_path: Path, operation: str, held: bool) -> None:
    """M6: a disk that is full at any call. What was refused is not there and does not come with the next change; what was not is."""
    for nth in range(1, 12):
        base = tmp_path / str(nth)
        FileMemoryStorage(base, bus=Bus()).change(None, adding("first"))
        disk = FailingDisk(RealDisk(), [Fault(operation, nth=nth, error=errno.ENOSPC)])
        waiting = (Held("q", "2026", Fact("q", "x"), "why"),) if held else ()
        acknowledged: bool | None = True
        try:
            FileMemoryStorage(base, disk=disk, bus=Bus()).change(None, adding("second", held=waiting))
        except SyncFailed:
            acknowledged = None  # nobody can know
        except StorageError:
            acknowledged = False
        after = FileMemoryStorage(base, bus=Bus())
        if acknowledged is not None:
            assert ("second" in names(after)) is acknowledged, (operation, nth)
        after.change(None, adding("third"))
        assert acknowledged is None or ("second" in names(after)) is acknowledged, (operation, nth)
        assert names(after)[-1] == "third"
        assert [change.revision for change in after.changes()] == list(range(1, len(names(after)) + 1))


def test_a_full_disk_that_only_refuses_the_view_costs_no_change(tmp_path: Path) -> None:
    """M6: the record is on the disk, so the change is made; the file follows with the next reading."""
    storage = FileMemoryStorage(tmp_path, bus=Bus())
    storage.change(None, adding("first"))
    disk = FailingDisk(RealDisk(), [Fault("create", nth=1, error=errno.ENOSPC, persistent=True)])
    FileMemoryStorage(tmp_path, disk=disk, bus=Bus()).change(None, adding("second"))
    assert "second" not in (tmp_path / "memory.json").read_text()
    assert names(storage) == ["first", "second"]
    assert "second" in (tmp_path / "memory.json").read_text(), "written again by the reading"


def test_a_store_that_goes_away_right_after_a_change_does_not_make_it_a_failed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M6: what was committed is acknowledged, also when the next look at the store fails; what nobody knows is not called unwritten."""
    storage = FileMemoryStorage(tmp_path, bus=Bus())
    storage.change(None, adding("a"))

    def gone(key: str) -> None:
        raise StoreUnavailable("the server went away.", path=key, operation="read")

    write = storage.backend.write

    def written(*changes: Change) -> tuple[Mark, ...]:
        marks = write(*changes)
        monkeypatch.setattr(storage.backend, "glance", gone)
        return marks

    monkeypatch.setattr(storage.backend, "write", written)
    assert storage.change(None, adding("b")) is not None
    monkeypatch.undo()
    assert names(storage) == ["a", "b"]

    def lost(*changes: Change) -> tuple[Mark, ...]:
        write(*changes)
        raise StorageError("the connection was lost at the moment of the commit.", path="x", operation="commit")

    monkeypatch.setattr(storage.backend, "write", lost)
    monkeypatch.setattr(storage.backend, "last", gone)
    with pytest.raises(StorageError, match="at the moment of the commit"):
        storage.change(None, lambda document: Edit(document.with_fact(Fact("c", "c")), "user", "test"))


def test_a_file_that_is_behind_its_history_is_written_again_before_it_is_backed_up(tmp_path: Path) -> None:
    """O7, M6: in a copy it would pass for somebody's edit, and what came after it would be lost."""
    base = tmp_path / "base"
    FileMemoryStorage(base, bus=Bus()).change(None, adding("first"))
    disk = FailingDisk(RealDisk(), [Fault("create", nth=1, error=errno.ENOSPC, persistent=True)])
    FileMemoryStorage(base, disk=disk, bus=Bus()).change(None, adding("second"))
    with build(config_from_values({}, environ={"HOLDFAST_HOME": str(base)})) as harness:
        copy = back_up(harness, tmp_path / "copies").copy.path
    assert names(FileMemoryStorage(copy, bus=Bus())) == ["first", "second"]


def test_an_older_copy_that_a_person_puts_back_counts(tmp_path: Path) -> None:
    """M2, M6: whoever copies an earlier memory.json back means it, by whatever means; changes go on from there."""
    file = tmp_path / "memory.json"
    storage = FileMemoryStorage(tmp_path, bus=Bus())
    storage.change(None, adding("a"))
    shutil.copy2(file, tmp_path / "copy")
    storage.change(None, adding("b"))
    shutil.copy2(tmp_path / "copy", file)
    assert names(storage) == ["a"]
    (tmp_path / "copy").replace(file)
    assert names(FileMemoryStorage(tmp_path, bus=Bus())) == ["a"]
    storage.change(None, adding("c"))
    assert names(FileMemoryStorage(tmp_path, bus=Bus())) == ["a", "c"]


def test_a_file_that_a_person_removes_stays_removed(tmp_path: Path) -> None:
    """M6: an absent file is an empty memory; what is learned next stands alone in it."""
    storage = FileMemoryStorage(tmp_path, bus=Bus())
    storage.change(None, adding("a", "b"))
    (tmp_path / "memory.json").unlink()
    assert storage.own() is None
    storage.change(None, adding("c"))
    assert names(FileMemoryStorage(tmp_path, bus=Bus())) == ["c"]


@pytest.mark.parametrize("way", ["", "[", "{", "not JSON", '{"facts": 3}'])
def test_a_damaged_file_is_made_again_from_its_history_and_kept_aside(tmp_path: Path, way: str) -> None:
    """M6: a comma that was forgotten in an editor empties nothing; after a hand edit that fitted, that is what is made again."""
    file, bus = tmp_path / "memory.json", Bus()
    storage = FileMemoryStorage(tmp_path, bus=bus)
    storage.change(None, adding("a", "b"))
    value = json.loads(file.read_text())
    value["facts"].append({"id": "mine", "content": "written by hand"})
    file.write_text(json.dumps(value))
    storage.change(None, adding("c"))
    file.write_text(way)
    with bus.collect() as events:
        assert names(FileMemoryStorage(tmp_path, bus=bus)) == ["a", "b", "mine", "c"]
    (told,) = [event for event in events if isinstance(event, MemoryDamaged)]
    assert "made again" in told.then
    assert Path(told.aside).read_text() == way
    assert [fact["id"] for fact in json.loads(file.read_text())["facts"]] == ["a", "b", "mine", "c"]


def test_forgetting_and_pruning_leave_a_history_that_still_holds_the_document(tmp_path: Path) -> None:
    """M14: no word of it is in the state that the history keeps, and a damaged file is still made again without it."""
    with MemoryService.at(tmp_path) as memory:
        memory.add("Lives in Elm Street 5")
        memory.add("Likes tea")
        (tmp_path / "memory.json").write_text((tmp_path / "memory.json").read_text().replace("tea", "green tea"))
        memory.add("Likes rain")
        memory.forget_text("Elm Street")
        assert b"Elm" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert memory.prune("2100-01-01T00:00:00Z") == {"global: history": 3}
        (tmp_path / "memory.json").write_text("[")
        assert [fact.content for fact in memory.document().facts] == ["Likes green tea", "Likes rain"]


def test_a_document_that_was_lost_is_an_error_for_the_library_too(tmp_path: Path) -> None:
    (tmp_path / "memory.json").write_text("{")
    with MemoryService.at(tmp_path) as memory, pytest.raises(Damaged, match="memory repair"):
        memory.export()


def test_a_full_disk_is_said_and_the_same_command_works_when_there_is_room(tmp_path: Path) -> None:
    """M6, W15: the case of a tmpfs with a few bytes left."""
    storage = FileMemoryStorage(tmp_path, bus=Bus())
    storage.change(None, adding("a"))
    full = FailingDisk(RealDisk(), [Fault("write", nth=1, error=errno.ENOSPC, persistent=True)])
    with pytest.raises(DiskFull):
        FileMemoryStorage(tmp_path, disk=full, bus=Bus()).change(None, adding("b"))
    storage.change(None, adding("c"))
    assert names(storage) == ["a", "c"]
