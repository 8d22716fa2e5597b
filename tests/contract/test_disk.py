"""W15, M6: one suite over every `Disk`: the real one, the simulated one, and the failing one around both."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.durable.disk import Disk, RealDisk, closing, make_folders, read_whole, write_all
from holdfast.errors import Locked, StorageError
from holdfast.testing.disk import SimulatedDisk
from holdfast.testing.failing_disk import FailingDisk

MAKERS: dict[str, Callable[[], Disk]] = {
    "real": RealDisk,
    "simulated": SimulatedDisk,
    "failing, around the real one": lambda: FailingDisk(RealDisk()),
    "failing, around the simulated one": lambda: FailingDisk(SimulatedDisk()),
}


@pytest.fixture(params=MAKERS)
def disk(request: pytest.FixtureRequest) -> Disk:
    return MAKERS[request.param]()


@pytest.fixture
def place(disk: Disk, tmp_path: Path) -> str:
    folder = str(tmp_path / "place")
    make_folders(disk, folder)
    return folder


def put(disk: Disk, path: str, data: bytes) -> None:
    with closing(disk, disk.create(path)) as handle:
        write_all(disk, handle, data)


def test_what_was_written_is_read_back(disk: Disk, place: str) -> None:
    path = f"{place}/a"
    with closing(disk, disk.create(path)) as handle:
        write_all(disk, handle, b"one ")
        write_all(disk, handle, b"two")
        disk.sync(handle)
        assert disk.size(handle) == 7
    assert read_whole(disk, path) == b"one two"


def test_reading_gives_the_part_asked_for_and_nothing_beyond_the_end(disk: Disk, place: str) -> None:
    put(disk, f"{place}/a", b"0123456789")
    with closing(disk, disk.open(f"{place}/a")) as handle:
        assert disk.read(handle, 3, 4) == b"3456"
        assert disk.read(handle, 8, 10) == b"89"
        assert disk.read(handle, 10, 5) == b""
        assert disk.read(handle, 99, 5) == b""


def test_an_empty_file_reads_as_nothing(disk: Disk, place: str) -> None:
    put(disk, f"{place}/empty", b"")
    assert read_whole(disk, f"{place}/empty") == b""


def test_creating_over_something_is_refused(disk: Disk, place: str) -> None:
    put(disk, f"{place}/a", b"old")
    with pytest.raises(FileExistsError):
        disk.create(f"{place}/a")
    disk.make_folder(f"{place}/folder")
    with pytest.raises(FileExistsError):
        disk.create(f"{place}/folder")
    with pytest.raises(FileExistsError):
        disk.make_folder(f"{place}/folder")
    assert read_whole(disk, f"{place}/a") == b"old"


def test_what_is_absent_is_said_to_be_absent(disk: Disk, place: str) -> None:
    absent = f"{place}/absent"
    assert disk.kind(absent) is None
    for call in (disk.open, disk.unlink, disk.modified, disk.list, disk.sync_folder):
        with pytest.raises(FileNotFoundError):
            call(absent)
    with pytest.raises(FileNotFoundError):
        disk.rename(absent, f"{place}/b")
    with pytest.raises(FileNotFoundError):
        disk.create(f"{absent}/below")
    with pytest.raises(FileNotFoundError):
        disk.make_folder(f"{absent}/below")


def test_a_log_handle_always_writes_at_the_end(disk: Disk, place: str) -> None:
    path = f"{place}/log"
    with closing(disk, disk.open_log(path)) as handle:
        write_all(disk, handle, b"one\n")
    with closing(disk, disk.open_log(path)) as first, closing(disk, disk.open_log(path)) as second:
        write_all(disk, first, b"two\n")
        write_all(disk, second, b"three\n")
        assert disk.read(first, 0, 4) == b"one\n"
    assert read_whole(disk, path) == b"one\ntwo\nthree\n"


def test_a_cut_file_grows_again_from_the_cut(disk: Disk, place: str) -> None:
    with closing(disk, disk.open_log(f"{place}/log")) as handle:
        write_all(disk, handle, b"0123456789")
        disk.truncate(handle, 4)
        write_all(disk, handle, b"x")
    assert read_whole(disk, f"{place}/log") == b"0123x"


def test_a_rename_takes_the_place_of_what_was_there(disk: Disk, place: str) -> None:
    put(disk, f"{place}/old", b"old")
    put(disk, f"{place}/new", b"new")
    disk.rename(f"{place}/new", f"{place}/old")
    disk.sync_folder(place)
    assert disk.list(place) == ["old"]
    assert read_whole(disk, f"{place}/old") == b"new"


def test_a_reader_keeps_the_file_that_it_opened(disk: Disk, place: str) -> None:
    put(disk, f"{place}/a", b"old")
    put(disk, f"{place}/b", b"new")
    with closing(disk, disk.open(f"{place}/a")) as handle:
        disk.rename(f"{place}/b", f"{place}/a")
        assert disk.read(handle, 0, 10) == b"old"


def test_a_file_is_not_a_folder_and_a_folder_is_not_a_file(disk: Disk, place: str) -> None:
    put(disk, f"{place}/file", b"")
    disk.make_folder(f"{place}/folder")
    assert (disk.kind(f"{place}/file"), disk.kind(f"{place}/folder")) == ("file", "folder")
    with pytest.raises(StorageError):
        disk.open_log(f"{place}/folder")
    with pytest.raises(StorageError):
        disk.unlink(f"{place}/folder")
    with pytest.raises(StorageError):
        disk.rename(f"{place}/file", f"{place}/folder")
    with pytest.raises(StorageError):
        disk.create(f"{place}/file/below")
    with pytest.raises(StorageError):
        make_folders(disk, f"{place}/file")


def test_listing_is_sorted(disk: Disk, place: str) -> None:
    for name in ("c", "a", "b"):
        put(disk, f"{place}/{name}", b"")
    disk.unlink(f"{place}/b")
    assert disk.list(place) == ["a", "c"]


def test_folders_are_made_down_to_the_last_and_remaking_is_harmless(disk: Disk, place: str) -> None:
    make_folders(disk, f"{place}/a/b/c")
    make_folders(disk, f"{place}/a/b/c")
    assert disk.kind(f"{place}/a/b/c") == "folder"
    assert {f"{place}/a", f"{place}/a/b", f"{place}/a/b/c"} <= disk.settled


def test_a_closed_handle_is_of_no_use(disk: Disk, place: str) -> None:
    handle = disk.create(f"{place}/a")
    disk.close(handle)
    with pytest.raises(StorageError):
        disk.write(handle, b"x")
    with pytest.raises(StorageError):
        disk.close(handle)


def test_a_lock_lets_one_thread_in_at_a_time(disk: Disk, place: str) -> None:
    inside, seen = 0, []

    def work() -> None:
        nonlocal inside
        for _ in range(20):
            with disk.lock(f"{place}/a.lock"):
                inside += 1
                seen.append(inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 80
    assert set(seen) == {1}


def test_a_lock_that_is_not_to_be_had_in_time_is_refused(disk: Disk, place: str) -> None:
    with disk.lock(f"{place}/a.lock"):
        with pytest.raises(Locked) as caught, disk.lock(f"{place}/a.lock", 0.01):
            raise AssertionError("two are inside")
        assert caught.value.owner is not None
    with disk.lock(f"{place}/a.lock", 0.01):
        pass


def test_a_mode_is_set_and_imitated(disk: Disk, place: str) -> None:
    with closing(disk, disk.create(f"{place}/a")) as handle:
        disk.chmod(handle, 0o640)
    with closing(disk, disk.create(f"{place}/b")) as handle:
        disk.imitate(handle, f"{place}/a")
    inner = disk.disk if isinstance(disk, FailingDisk) else disk
    if isinstance(inner, RealDisk):
        assert Path(f"{place}/b").stat().st_mode & 0o777 == 0o640
    else:
        assert isinstance(inner, SimulatedDisk)
        assert inner.mode(f"{place}/b") == 0o640


def test_an_identity_is_another_one_after_any_write(disk: Disk, place: str) -> None:
    """M7: whoever caches what a file holds notices a write, by path and by handle, without reading it."""
    path = f"{place}/a"
    assert disk.identity(path) is None
    put(disk, path, b"one")
    before = disk.identity(path)
    with closing(disk, disk.open(path)) as handle:
        assert disk.identity(handle) is not None
        assert before is not None and disk.identity(handle).facts == before.facts  # type: ignore[union-attr]  # asserted above
    with closing(disk, disk.open_log(path)) as handle:
        write_all(disk, handle, b" two")
    after = disk.identity(path)
    assert after is not None and after.facts != before.facts
    put(disk, f"{place}/b", b"one two")
    disk.rename(f"{place}/b", path)
    again = disk.identity(path)
    assert again is not None and again.facts != after.facts


def test_a_folder_is_scanned_with_kinds_and_sizes(disk: Disk, place: str) -> None:
    put(disk, f"{place}/b", b"12345")
    disk.make_folder(f"{place}/a")
    assert [(one.name, one.kind) for one in disk.scan(place)] == [("a", "folder"), ("b", "file")]
    assert disk.scan(place)[1].size == 5
    with pytest.raises(FileNotFoundError):
        disk.scan(f"{place}/absent")


def test_touching_makes_a_file_newer(disk: Disk, place: str) -> None:
    put(disk, f"{place}/a", b"x")
    before = disk.modified(f"{place}/a")
    disk.touch(f"{place}/a")
    assert disk.modified(f"{place}/a") >= before
    with pytest.raises(FileNotFoundError):
        disk.touch(f"{place}/absent")


def test_only_an_empty_folder_is_removed(disk: Disk, place: str) -> None:
    disk.make_folder(f"{place}/a")
    put(disk, f"{place}/a/x", b"")
    disk.remove_folder(f"{place}/a")
    assert disk.kind(f"{place}/a") == "folder"
    disk.unlink(f"{place}/a/x")
    disk.remove_folder(f"{place}/a")
    disk.remove_folder(f"{place}/a")
    assert disk.kind(f"{place}/a") is None


def test_a_file_that_was_just_written_does_not_come_from_before_the_start(disk: Disk, place: str) -> None:
    """M6: only what is older than the start of the machine may have been torn by a power cut."""
    with pytest.raises(FileNotFoundError):
        disk.predates_start(f"{place}/a")
    put(disk, f"{place}/a", b"x")
    assert not disk.predates_start(f"{place}/a")
    disk.rename(f"{place}/a", f"{place}/b")
    assert not disk.predates_start(f"{place}/b")


def test_after_a_power_cut_files_come_from_before_it_until_they_are_written() -> None:
    """M6: the simulated disk, after each of its starts."""
    disk = SimulatedDisk(seed=3)
    with closing(disk, disk.create("/a")) as handle:
        write_all(disk, handle, b"x")
        disk.sync(handle)
    disk.sync_folder("/")
    assert not disk.kill().predates_start("/a")
    disk = SimulatedDisk(seed=3)
    with closing(disk, disk.create("/a")) as handle:
        write_all(disk, handle, b"x")
        disk.sync(handle)
    disk.sync_folder("/")
    after = disk.crash()
    assert after.predates_start("/a")
    with closing(after, after.open_log("/a")) as handle:
        write_all(after, handle, b"y")
    assert not after.predates_start("/a")
