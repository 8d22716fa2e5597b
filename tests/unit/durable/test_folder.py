"""P3, M6: the everyday work of a `Folder`: reading, writing durably, listing, globbing, moving, removing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.durable.beneath import Mechanism, openat2_works
from holdfast.durable.folder import Folder, matches
from holdfast.errors import InputError, StorageError


@pytest.fixture(params=["openat2", "walk"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Folder]:
    if request.param == "openat2" and not openat2_works():
        pytest.skip("this kernel has no openat2")
    mechanism: Mechanism = request.param
    with Folder(tmp_path / "a" / "root", make=True, mechanism=mechanism) as opened:
        yield opened


def test_what_is_written_is_read_listed_and_found(folder: Folder) -> None:
    folder.write("notes/today.md", b"one")
    folder.write_text("notes/old/é.md", "zwei")
    folder.append("notes/log.txt", b"a\n")
    folder.append("notes/log.txt", b"b\n")
    assert folder.read_bytes("notes/today.md") == b"one"
    assert folder.read_text("notes/old/é.md") == "zwei"
    assert folder.read_text("./notes//log.txt") == "a\nb\n"
    assert [entry.path for entry in folder.list("notes")] == ["notes/log.txt", "notes/old", "notes/today.md"]
    assert [entry.path for entry in folder.walk()] == ["notes", "notes/log.txt", "notes/old", "notes/old/é.md", "notes/today.md"]
    assert [entry.path for entry in folder.glob("**/*.md")] == ["notes/old/é.md", "notes/today.md"]
    entry = folder.stat("notes/today.md")
    assert (entry.path, entry.kind, entry.size) == ("notes/today.md", "file", 3)
    assert folder.stat(".").kind == "folder"


def test_modes_are_private_for_new_files_and_kept_for_old_ones(folder: Folder) -> None:
    folder.write("deep/a", b"1")
    path = Path(folder.path) / "deep" / "a"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(0o644)
    folder.write("deep/a", b"2")
    assert path.stat().st_mode & 0o777 == 0o644
    folder.write("deep/a", b"3", mode=0o640)
    assert path.stat().st_mode & 0o777 == 0o640


def test_what_is_absent_is_said_to_be_absent(folder: Folder) -> None:
    assert not folder.exists("none")
    assert not folder.exists("none/deeper")
    for action in (folder.read_bytes, folder.stat, folder.list, folder.remove, folder.folder):
        with pytest.raises(FileNotFoundError):
            action("none")
    with pytest.raises(FileNotFoundError):
        folder.rename("none", "other")


def test_limits_and_encodings_are_held(folder: Folder) -> None:
    folder.write("a", b"\xff" * 10)
    assert len(folder.read_bytes("a", limit=10)) == 10
    with pytest.raises(InputError, match="more than 9"):
        folder.read_bytes("a", limit=9)
    with pytest.raises(InputError, match="not UTF-8"):
        folder.read_text("a")
    with pytest.raises(InputError):
        folder.read_bytes(".")


def test_moving_and_removing(folder: Folder) -> None:
    folder.write("a/b", b"1")
    folder.write("c", b"2")
    folder.rename("a/b", "d/e/f")
    folder.rename("c", "d/e/f")
    assert folder.read_bytes("d/e/f") == b"2"
    with pytest.raises(StorageError):
        folder.remove("d")
    folder.remove("a")
    folder.remove("d", tree=True)
    assert folder.list() == ()
    with pytest.raises(InputError):
        folder.remove(".")
    with pytest.raises(InputError):
        folder.write(".", b"")
    with pytest.raises(InputError):
        folder.rename(".", "x")


def test_making_a_folder_twice_is_harmless_and_a_file_in_the_way_is_an_error(folder: Folder) -> None:
    folder.make_folder("a/b/c")
    folder.make_folder("a/b/c")
    folder.write("file", b"")
    with pytest.raises(StorageError):
        folder.make_folder("file/below")
    with pytest.raises(StorageError):
        folder.write("file/below", b"")
    with pytest.raises(StorageError):
        folder.write("a/b", b"")
    assert [entry.path for entry in folder.list("a/b")] == ["a/b/c"]


def test_no_descriptor_is_left_open(folder: Folder) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        test_what_is_absent_is_said_to_be_absent(folder)
        test_making_a_folder_twice_is_harmless_and_a_file_in_the_way_is_an_error(folder)
        folder.folder("a/b").close()
        list(folder.walk())
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_closed_folder_is_of_no_use(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.close()
    folder.close()
    with pytest.raises(StorageError):
        folder.list()
    with pytest.raises(FileNotFoundError):
        Folder(tmp_path / "none")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError):
        Folder(tmp_path / "file")


def test_files_that_are_only_being_written_are_not_listed(folder: Folder) -> None:
    (Path(folder.path) / ".new-0123456789abcdef.tmp").write_bytes(b"")
    folder.write(".hidden", b"")
    assert [entry.path for entry in folder.list()] == [".hidden"]


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*.md", "a.md", True),
        ("*.md", "x/a.md", False),
        ("**/*.md", "a.md", True),
        ("**/*.md", "x/y/a.md", True),
        ("x/**", "x/y/z", True),
        ("x/**", "x", True),
        ("x/**/z", "x/z", True),
        ("x/**/z", "x/y/y/z", True),
        ("x/**/z", "x/y/y", False),
        ("**", "a/b", True),
        ("a?[bc]", "axb", True),
        ("a?[bc]", "axd", False),
        ("A", "a", False),
        ("**/**/**/**/**/**/a*a*a*a*a*a*b", "/".join(["x"] * 30 + ["a" * 60]), False),
    ],
)
def test_patterns(pattern: str, path: str, fits: bool) -> None:
    assert matches(pattern.split("/"), path.split("/")) is fits
