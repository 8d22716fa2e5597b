"""A9, A10: the file tools on a thread's folders: list, read, write, replace, move, copy, remove."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import ConfigError, InputError, OutsideRoot
from holdfast.sandbox.files import FileLimits, TextForm, ThreadFiles, detect, from_text, to_text
from holdfast.sandbox.local import open_mount
from holdfast.sandbox.paths import OUTPUTS, WORKSPACE, ThreadFolder, ThreadFolders, VirtualPaths


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[ThreadFolder]:
    with ThreadFolders(tmp_path / "base").open("t1") as opened:
        yield opened


@pytest.fixture
def files(thread: ThreadFolder) -> ThreadFiles:
    return ThreadFiles(VirtualPaths(thread.roots), FileLimits(read_chars=1000, list_chars=400, edit_bytes=10_000, write_bytes=20_000))


def on_disk(thread: ThreadFolder, path: str) -> Path:
    return thread.path / path


def test_a_written_file_is_where_a_command_would_find_it(files: ThreadFiles, thread: ThreadFolder) -> None:
    seen = files.write(f"{WORKSPACE}/notes/today.md", "Grüße\n")
    assert (seen.path, seen.kind, seen.size) == (f"{WORKSPACE}/notes/today.md", "file", 8)
    assert on_disk(thread, "workspace/notes/today.md").read_text() == "Grüße\n"


def test_a_relative_path_is_one_in_the_workspace(files: ThreadFiles) -> None:
    files.write("a.txt", "a")
    assert files.read(f"{WORKSPACE}//./a.txt").path == f"{WORKSPACE}/a.txt"


def test_the_folders_of_a_thread_can_be_listed_from_above(files: ThreadFiles) -> None:
    files.write("a.txt", "a")
    assert files.ls("/mnt/user-data").text.splitlines() == [f"/mnt/user-data/{name}/" for name in ("outputs", "uploads", "workspace")]
    assert f"{WORKSPACE}/a.txt" in files.ls("/mnt", depth=2).text
    assert files.stat("/mnt/user-data").kind == "folder"


def test_a_listing_shows_kinds_and_goes_as_deep_as_asked(files: ThreadFiles, thread: ThreadFolder) -> None:
    files.write("sub/deep/c.txt", "c")
    on_disk(thread, "workspace/link").symlink_to("sub")
    assert files.ls().text.splitlines() == [f"{WORKSPACE}/link@", f"{WORKSPACE}/sub/"]
    assert files.ls(depth=3).text.splitlines()[-1] == f"{WORKSPACE}/sub/deep/c.txt"


def test_a_long_listing_says_how_much_is_left_out(files: ThreadFiles) -> None:
    for number in range(40):
        files.write(f"{number:03}.txt", "x")
    listing = files.ls()
    assert len(listing.entries) == 40
    shown = listing.text.splitlines()
    assert shown[-1] == f"... and {40 - len(shown) + 1} more"
    assert len(listing.text) < 450


def test_reading_goes_by_lines(files: ThreadFiles) -> None:
    files.write("a.txt", "".join(f"line {number}\n" for number in range(1, 11)))
    part = files.read("a.txt", offset=3, limit=2)
    assert (part.text, part.first, part.lines, part.more) == ("line 3\nline 4\n", 3, 2, True)
    assert files.read("a.txt", offset=10).more is False
    with pytest.raises(InputError, match="has 10 lines"):
        files.read("a.txt", offset=11)
    for offset, limit in ((0, None), (1, 0), (-1, None)):
        with pytest.raises(InputError):
            files.read("a.txt", offset=offset, limit=limit)


def test_a_long_file_is_cut_and_says_so_and_can_be_read_on(files: ThreadFiles) -> None:
    files.write("a.txt", "x" * 600 + "\n" + "y" * 600 + "\n")
    first = files.read("a.txt")
    assert len(first.text) == 1000
    assert first.more
    assert files.read("a.txt", offset=2).text == "y" * 600 + "\n"


def test_one_endless_line_is_not_read_whole(files: ThreadFiles, thread: ThreadFolder) -> None:
    with on_disk(thread, "workspace/huge").open("wb") as file:
        file.truncate(3 * 1024**3)
        file.seek(0)
        file.write(b"x" * 70_000)
    part = files.read("huge")
    assert part.text == "x" * 1000
    assert part.more


def test_an_empty_file_reads_as_nothing(files: ThreadFiles) -> None:
    files.write("a.txt", "")
    assert (files.read("a.txt").text, files.read("a.txt").more) == ("", False)


BINARIES = {"program": b"\x7fELF\x02\x01\x01" + b"\0" * 40, "picture": b"\x89PNG\r\n\x1a\n\0\0\0", "noise": bytes(range(1, 32)) * 20}


@pytest.mark.parametrize("kind", BINARIES)
def test_what_is_not_text_is_refused(files: ThreadFiles, kind: str) -> None:
    files.write("a.bin", BINARIES[kind])
    with pytest.raises(InputError, match="not a text file"):
        files.read("a.bin")
    with pytest.raises(InputError, match="not a text file"):
        files.str_replace("a.bin", "a", "b")


ENCODINGS = ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-be", "utf-32"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_texts_in_other_encodings_are_read_and_changed_in_them(files: ThreadFiles, thread: ThreadFolder, encoding: str) -> None:
    mark = {"utf-16-be": "\ufeff"}.get(encoding, "")
    on_disk(thread, "workspace/a.txt").write_bytes((mark + "Über\r\nzwei\r\n").encode(encoding))
    assert files.read("a.txt").text == "Über\r\nzwei\r\n"
    files.str_replace("a.txt", "Über\nzwei", "Öl\ndrei")
    assert on_disk(thread, "workspace/a.txt").read_bytes() == (mark + "Öl\r\ndrei\r\n").encode(encoding)
    files.append("a.txt", "ß")
    assert files.read("a.txt").text == "Öl\r\ndrei\r\nß"


@given(st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc")), max_size=200), st.sampled_from(["utf-8", "utf-16-le", "utf-32-be"]))
def test_every_text_survives_there_and_back(text: str, encoding: str) -> None:
    marks = {"utf-8": b"\xef\xbb\xbf", "utf-16-le": b"\xff\xfe", "utf-32-be": b"\0\0\xfe\xff"}
    data = from_text(text, TextForm(encoding, marks[encoding]))
    form = detect(data)
    if encoding == "utf-16-le" and text.startswith("\0"):
        return
    assert form == TextForm(encoding, marks[encoding])
    assert to_text(data, form) == text


def test_a_replacement_must_fit_exactly_once(files: ThreadFiles) -> None:
    files.write("a.txt", "one two two")
    assert files.str_replace("a.txt", "one", "1") == 1
    with pytest.raises(InputError, match="2 times"):
        files.str_replace("a.txt", "two", "2")
    with pytest.raises(InputError, match="not in"):
        files.str_replace("a.txt", "three", "3")
    with pytest.raises(InputError, match="nothing to look for"):
        files.str_replace("a.txt", "", "3")
    assert files.read("a.txt").text == "1 two two"
    assert files.str_replace("a.txt", "two", "2", every=True) == 2
    assert files.read("a.txt").text == "1 2 2"


def test_damaged_text_is_not_made_worse(files: ThreadFiles) -> None:
    files.write("a.txt", b"\xef\xbb\xbfgood \xff bad")
    with pytest.raises(InputError, match="not clean"):
        files.str_replace("a.txt", "good", "better")


def test_nothing_is_lost_when_many_change_one_file(files: ThreadFiles, thread: ThreadFolder) -> None:
    files.write("a.txt", "")
    others = [ThreadFiles(VirtualPaths(thread.roots)) for _ in range(4)]

    def add(own: ThreadFiles, name: int) -> None:
        for number in range(10):
            own.append("a.txt", f"{name}-{number}\n")

    workers = [threading.Thread(target=add, args=(own, name)) for name, own in enumerate(others)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(files.read("a.txt").text.split()) == sorted(f"{name}-{number}" for name in range(4) for number in range(10))


def test_moving_copying_and_removing(files: ThreadFiles) -> None:
    files.write("a/b.txt", "b")
    files.move("a/b.txt", "c/d.txt")
    assert not files.exists("a/b.txt")
    assert files.copy("c/d.txt", f"{OUTPUTS}/d.txt").path == f"{OUTPUTS}/d.txt"
    assert files.move("c/d.txt", f"{OUTPUTS}/e.txt").size == 1
    assert not files.exists("c/d.txt")
    files.delete("c")
    files.write("tree/x/y", "y")
    with pytest.raises(Exception, match="not empty"):
        files.delete("tree")
    files.delete("tree", tree=True)
    assert not files.exists("tree")


MISSING = ["read", "stat", "delete", "str_replace", "copy", "move", "artifact"]


@pytest.mark.parametrize("operation", MISSING)
def test_what_is_not_there_is_said_by_its_path(files: ThreadFiles, operation: str) -> None:
    calls: dict[str, Callable[[], object]] = {
        "read": lambda: files.read("gone.txt"),
        "stat": lambda: files.stat("gone.txt"),
        "delete": lambda: files.delete("gone.txt"),
        "str_replace": lambda: files.str_replace("gone.txt", "a", "b"),
        "copy": lambda: files.copy("gone.txt", "new.txt"),
        "move": lambda: files.move("gone.txt", "new.txt"),
        "artifact": lambda: files.artifact(f"{OUTPUTS}/gone.txt"),
    }
    with pytest.raises(InputError, match=r"there is no /mnt/user-data/\w+/gone\.txt"):
        calls[operation]()


def test_files_and_folders_are_not_mixed_up(files: ThreadFiles) -> None:
    files.write("a/b.txt", "b")
    with pytest.raises(InputError, match="is a folder"):
        files.read("a")
    with pytest.raises(InputError, match="is not a folder"):
        files.ls("a/b.txt")


def test_too_much_at_once_is_refused(files: ThreadFiles) -> None:
    with pytest.raises(InputError, match="too many"):
        files.write("a.txt", "x" * 20_001)
    files.write("a.txt", "x" * 10_001)
    with pytest.raises(InputError, match="more than 10000 bytes"):
        files.str_replace("a.txt", "x", "y")


def test_pipes_do_not_make_the_reader_wait(files: ThreadFiles, thread: ThreadFolder) -> None:
    os.mkfifo(on_disk(thread, "workspace/pipe"))
    with pytest.raises(InputError, match="not a regular file"):
        files.read("pipe")


def test_an_artifact_comes_from_the_outputs_only(files: ThreadFiles) -> None:
    files.write(f"{OUTPUTS}/report.html", "<p>")
    given = files.artifact(f"{OUTPUTS}/report.html")
    with given.stream:
        assert given.stream.read() == b"<p>"
    assert (given.name, given.size, given.media_type) == ("report.html", 3, "text/html")
    files.write("report.html", "<p>")
    with pytest.raises(OutsideRoot, match="not in /mnt/user-data/outputs"):
        files.artifact("report.html")


MOUNTS = [
    "relative",
    "/",
    "/etc",
    "/usr/share",
    "/mnt",
    "/mnt/user-data",
    "/mnt/user-data/workspace/x",
    "/mnt/../etc",
    "/mnt/a\n",
    "/proc/x",
    "",
]


@pytest.mark.parametrize("shown", MOUNTS)
def test_a_mount_does_not_cover_what_is_not_its_own(tmp_path: Path, shown: str) -> None:
    with pytest.raises(ConfigError):
        open_mount(tmp_path, shown, read_only=False)


def test_a_mount_of_a_folder_that_is_not_there_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder"):
        open_mount(tmp_path / "gone", "/mnt/data", read_only=True)


def test_a_root_inside_of_another_one_is_found_first(tmp_path: Path, thread: ThreadFolder) -> None:
    for name in ("outer", "inner"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "who").write_text(name)
    outer = open_mount(tmp_path / "outer", "/mnt/data", read_only=True)
    inner = open_mount(tmp_path / "inner", "/mnt/data/inner", read_only=True)
    files = ThreadFiles(VirtualPaths((*thread.roots, outer, inner)))
    assert (files.read("/mnt/data/who").text, files.read("/mnt/data/inner/who").text) == ("outer", "inner")


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(max_size=30))
def test_every_path_gives_a_place_inside_or_a_clear_refusal(files: ThreadFiles, path: str) -> None:
    try:
        place = files.paths.resolve(path)
    except (InputError, OutsideRoot) as error:
        assert error.hint
    else:
        assert files.paths.resolve(place.path) == place
        assert place.path.startswith(place.root.virtual)
        assert ".." not in place.relative.split("/")
