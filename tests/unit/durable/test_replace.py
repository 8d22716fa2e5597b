"""W15, M6: replacing a file, JSON as it is stored, sweeping, and setting aside."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.durable import strict_json
from holdfast.durable.append import AppendLog
from holdfast.durable.database import open_database
from holdfast.durable.disk import REAL, make_folders, read_whole
from holdfast.durable.replace import Blobs, read_json, replace, replace_json, replace_text, set_aside, sweep
from holdfast.errors import Damaged, DiskFull, HoldfastError, InputError, NotWritable, StorageError, SyncFailed, WriteFailed
from holdfast.testing.disk import SimulatedDisk
from holdfast.testing.failing_disk import FailingDisk, Fault, ShortWrite


def test_the_order_is_write_sync_close_rename_sync_folder() -> None:
    disk = FailingDisk(SimulatedDisk())
    replace("/a/b", b"old", disk=disk)
    disk.calls.clear()
    replace("/a/b", b"new", disk=disk)
    verbs = [call.operation for call in disk.calls if call.operation not in ("kind", "imitate")]
    assert verbs == ["create", "write", "sync", "close", "rename", "sync_folder"]


def test_the_parent_of_every_folder_is_synced_once() -> None:
    disk = FailingDisk(SimulatedDisk())
    replace("/a/b/c", b"", disk=disk)
    replace("/a/b/d", b"", disk=disk)
    assert [call.path for call in disk.calls if call.operation == "sync_folder"] == ["/", "/a", "/a/b", "/a/b"]


def test_two_writers_never_share_a_temporary_name() -> None:
    disk = FailingDisk(SimulatedDisk())
    for _ in range(50):
        replace("/a", b"", disk=disk)
    names = [call.path for call in disk.calls if call.operation == "create"]
    assert len(set(names)) == 50


FAULTS = [
    ("create", errno.ENOSPC, DiskFull),
    ("create", errno.EACCES, NotWritable),
    ("write", errno.ENOSPC, DiskFull),
    ("write", errno.EDQUOT, DiskFull),
    ("write", errno.EIO, WriteFailed),
    ("sync", errno.EIO, SyncFailed),
    ("sync", errno.ENOSPC, SyncFailed),
    ("close", errno.EIO, WriteFailed),
    ("rename", errno.EROFS, NotWritable),
    ("rename", errno.EIO, WriteFailed),
    ("imitate", errno.EPERM, NotWritable),
]


@pytest.mark.parametrize(("verb", "number", "kind"), FAULTS)
def test_a_fault_before_the_rename_keeps_the_old_content_and_leaves_nothing_behind(
    verb: str, number: int, kind: type[StorageError]
) -> None:
    """W15"""
    inner = SimulatedDisk()
    replace("/base/a", b"old", disk=inner)
    disk = FailingDisk(inner, [Fault(verb, 1, number)])
    with pytest.raises(kind) as caught:
        replace("/base/a", b"new", disk=disk)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.path
    assert inner.list("/base") == ["a"]
    assert read_whole(inner, "/base/a") == b"old"
    assert disk.open_handles == 0
    assert disk.synced_again_after_failing() == []


def test_a_fault_of_the_last_sync_is_told_though_the_new_content_can_be_read() -> None:
    inner = SimulatedDisk()
    replace("/base/a", b"old", disk=inner)
    with pytest.raises(SyncFailed):
        replace("/base/a", b"new", disk=FailingDisk(inner, [Fault("sync_folder", 1, errno.EIO)]))
    assert read_whole(inner, "/base/a") == b"new"


def test_short_writes_are_gone_on_with() -> None:
    disk = FailingDisk(SimulatedDisk(), [ShortWrite(1, 3, persistent=True)])
    replace("/a", b"0123456789", disk=disk)
    assert read_whole(disk, "/a") == b"0123456789"
    assert sum(call.operation == "write" for call in disk.calls) == 4


def test_after_a_failed_sync_the_next_replacing_uses_a_new_file() -> None:
    disk = FailingDisk(SimulatedDisk(), [Fault("sync", 1, errno.EIO)])
    with pytest.raises(SyncFailed):
        replace("/a", b"x", disk=disk)
    replace("/a", b"y", disk=disk)
    assert disk.synced_again_after_failing() == []
    assert isinstance(disk.disk, SimulatedDisk)
    assert read_whole(disk.disk.crash(), "/a") == b"y"


def test_the_mode_of_an_existing_file_is_kept_and_a_new_one_is_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a"
    replace(path, b"1")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(0o644)
    replace(path, b"2")
    assert path.stat().st_mode & 0o777 == 0o644
    replace(path, b"3", mode=0o640)
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_root_does_not_take_a_users_file_away(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1")
    os.chown(path, 12345, 12345)
    replace(path, b"2")
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 12345)


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.json"
    link.symlink_to("real/file.json")
    replace_json(link, {"a": 1})
    assert link.is_symlink()
    assert read_json(tmp_path / "real" / "file.json") == {"a": 1}


def test_a_name_of_the_greatest_length_can_be_replaced(tmp_path: Path) -> None:
    replace_text(tmp_path / ("n" * 255), "x")
    with pytest.raises(WriteFailed):
        replace_text(tmp_path / ("n" * 256), "x")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_was_removed_meanwhile_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "thread" / "deep" / "a"
    replace(path, b"1")
    shutil.rmtree(tmp_path / "thread")
    replace(path, b"2")
    assert path.read_bytes() == b"2"


def test_a_folder_in_the_way_is_an_error_and_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(WriteFailed):
        replace(tmp_path / "a", b"")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_json_is_written_for_people(tmp_path: Path) -> None:
    replace_json(tmp_path / "a.json", {"b": "é 日本", "a": [1, 2.5, None, True]})
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == (
        '{\n  "b": "é 日本",\n  "a": [\n    1,\n    2.5,\n    null,\n    true\n  ]\n}\n'
    )


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@given(VALUES)
def test_what_json_can_hold_comes_back_equal(value: object) -> None:
    assert strict_json.decode(strict_json.encode(value)) == value


@given(st.binary(max_size=60) | st.text('[]{}",:0eN-aI \\u').map(str.encode))
def test_any_bytes_are_read_or_refused_with_a_position(data: bytes) -> None:
    try:
        strict_json.decode(data)
    except Damaged as error:
        assert error.position is not None
        assert 0 <= error.position <= len(data)


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        {"a": [float("inf")]},
        {1: "a", "1": "b"},
        {None: 1},
        b"bytes",
        {"a": object()},
        "\ud800",
        json.loads("[" * 300 + "]" * 300),
    ],
)
def test_what_json_cannot_hold_is_refused_before_anything_is_written(value: object, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        replace_json(tmp_path / "a.json", value)
    assert list(tmp_path.iterdir()) == []


def test_a_circle_is_refused(tmp_path: Path) -> None:
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(InputError):
        replace_json(tmp_path / "a.json", circle)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        (b'{"a": 1, "b": {"x": 1}, "a": 2}', 24),
        (b'{"b": {"a": 1}, "c": [{"k": 1, "\\u006b": 2}], "a": 0}', 31),
        ('{"é": NaN}'.encode(), 7),
        (b'{"s": "NaN", "x": -Infinity}', 18),
        (b"[1, 1e999]", 4),
        (b"[1, 2", 5),
        (b'{"a": 1} x', 9),
        (b'\xef\xbb\xbf{"a": }', 9),
        (b'{"a": "\xff"}', 7),
        (b"[" * 201 + b"]" * 201, 200),
        (b"[" * 1_000_000, 200),
        (b"", 0),
        (b"\0\0\0\0", 0),
        (b"1" * 5000, 0),
    ],
)
def test_damage_is_refused_with_its_position(text: bytes, position: int, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text)
    with pytest.raises(Damaged) as caught:
        read_json(path)
    assert caught.value.position == position
    assert caught.value.path == str(path)


def test_a_byte_order_mark_and_windows_line_ends_are_let_pass(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{\r\n  "a": 1\r\n}\r\n')
    assert read_json(tmp_path / "a.json") == {"a": 1}


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "none.json")


class Hands:
    """A clock that stands."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None: ...


def test_sweeping_removes_what_is_old_and_ours_alone(tmp_path: Path) -> None:
    stale, fresh, foreign = tmp_path / ".new-0123456789abcdef.tmp", tmp_path / ".new-fedcba9876543210.tmp", tmp_path / "work.tmp"
    for path in (stale, fresh, foreign):
        path.write_bytes(b"")
    now = datetime.now(UTC)
    for path in (stale, foreign):
        os.utime(path, ((now - timedelta(hours=2)).timestamp(),) * 2)
    assert sweep(tmp_path, clock=Hands(now)) == [str(stale)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [fresh.name, foreign.name]


def test_a_damaged_file_is_set_aside_and_never_overwritten(tmp_path: Path) -> None:
    """M6"""
    clock = Hands(datetime(2026, 4, 19, 8, 15, 30, tzinfo=UTC))
    names = []
    for content in ("one", "two", "three"):
        path = tmp_path / "memory.json"
        path.write_text(content, encoding="utf-8")
        names.append(set_aside(path, clock=clock))
        assert not path.exists()
    assert [Path(name).name for name in names] == [
        "memory.json.damaged-20260419T081530Z",
        "memory.json.damaged-20260419T081530Z-1",
        "memory.json.damaged-20260419T081530Z-2",
    ]
    assert [Path(name).read_text(encoding="utf-8") for name in names] == ["one", "two", "three"]
    with pytest.raises(FileNotFoundError):
        set_aside(tmp_path / "memory.json")


def test_setting_aside_that_fails_leaves_the_file_and_no_empty_one() -> None:
    inner = SimulatedDisk()
    replace("/base/a", b"damaged", disk=inner)
    with pytest.raises(HoldfastError):
        set_aside("/base/a", disk=FailingDisk(inner, [Fault("rename", 1, errno.EACCES)]))
    assert inner.list("/base") == ["a"]


def test_relative_paths_work_from_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P2: a script of one's own begins with `at("home")`."""
    monkeypatch.chdir(tmp_path)
    make_folders(REAL, "home/state")
    replace("file", b"1")
    AppendLog("log").append({"n": 1})
    Blobs("raw").put(b"x")
    open_database("data.db").close()
    assert {path.name for path in tmp_path.iterdir()} >= {"home", "file", "log", "raw", "data.db"}


def test_a_folder_that_a_link_leads_to_is_followed_anew_when_the_link_is_changed(tmp_path: Path) -> None:
    """M6: what is remembered of a path never leads to a folder that is no longer the one."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "a")
    found = [REAL.resolve(str(link / "file")), REAL.resolve(str(link / "new" / "file"))]
    link.unlink()
    link.symlink_to(tmp_path / "b")
    found.append(REAL.resolve(str(link / "file")))
    (tmp_path / "b").rename(tmp_path / "c")
    link.unlink()
    link.symlink_to(tmp_path / "c")
    found.append(REAL.resolve(str(link / "file")))
    (tmp_path / "c" / "file").symlink_to(tmp_path / "a" / "target")
    found.append(REAL.resolve(str(link / "file")))
    real = tmp_path.resolve()
    assert found == [str(real / one) for one in ("a/file", "a/new/file", "b/file", "c/file", "a/target")]


@pytest.mark.parametrize("readable", [True, False])
def test_what_json_has_no_form_for_is_refused_in_both_forms(readable: bool) -> None:
    """A key that is no text, a number that is none, and nesting one level too deep are refused before anything is written (W15)."""
    deepest: object = 1
    for _ in range(strict_json.MAX_DEPTH):
        deepest = [deepest] if isinstance(deepest, dict) else {"in": deepest}
    assert strict_json.decode(strict_json.encode(deepest, readable=readable)) == deepest
    for value, why in (({"a": {1: "x"}}, "the key 1 is not text"), ([math.nan], "JSON"), ([deepest], "deeper"), ({"a": {1, 2}}, "JSON")):
        with pytest.raises(InputError, match=why):
            strict_json.encode(value, readable=readable)


@pytest.mark.parametrize("readable", [False, True])
def test_what_holds_itself_more_than_once_is_refused_and_not_unfolded(readable: bool) -> None:
    """W3: a tree whose members know their parent would double at each level."""
    root: dict[str, object] = {"name": "root"}
    root["children"] = [{"parent": root, "name": str(n)} for n in range(8)]
    with pytest.raises(InputError, match="no form in JSON"):
        strict_json.encode({"data": root}, readable=readable)
