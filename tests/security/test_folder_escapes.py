"""P3: nothing that is asked of a `Folder` leaves its root: by name, by link, by race. Both mechanisms, every operation."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conftest import Effort

from holdfast.durable.beneath import Mechanism, openat2_works
from holdfast.durable.folder import Folder
from holdfast.errors import HoldfastError, InputError, OutsideRoot

SECRET = b"the secret"
Operation = Callable[[Folder, str], object]
READING: dict[str, Operation] = {
    "open": lambda folder, path: folder.open(path).close(),
    "read_bytes": lambda folder, path: folder.read_bytes(path),
    "read_text": lambda folder, path: folder.read_text(path),
    "stat": lambda folder, path: folder.stat(path),
    "exists": lambda folder, path: folder.exists(path),
    "list": lambda folder, path: folder.list(path),
    "walk": lambda folder, path: list(folder.walk(path)),
    "folder": lambda folder, path: folder.folder(path).list(),
}
WRITING: dict[str, Operation] = {
    "write": lambda folder, path: folder.write(path, b"evil"),
    "write_text": lambda folder, path: folder.write_text(path, "evil"),
    "append": lambda folder, path: folder.append(path, b"evil"),
    "make_folder": lambda folder, path: folder.make_folder(path),
    "remove": lambda folder, path: folder.remove(path),
    "remove tree": lambda folder, path: folder.remove(path, tree=True),
    "rename from": lambda folder, path: folder.rename(path, "inside-new"),
    "rename to": lambda folder, path: folder.rename("inside.txt", path),
}
EVERYTHING = READING | WRITING


@pytest.fixture(params=["openat2", "walk"])
def mechanism(request: pytest.FixtureRequest) -> Mechanism:
    if request.param == "openat2" and not openat2_works():
        pytest.skip("this kernel has no openat2")
    kind: Mechanism = request.param
    return kind


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A root with something in it, and around it what must not be read or touched."""
    for name in ("root", "root-evil", "outside"):
        (tmp_path / name).mkdir()
    for path in (tmp_path / "secret", tmp_path / "root-evil" / "secret", tmp_path / "outside" / "secret"):
        path.write_bytes(SECRET)
    (tmp_path / "root" / "inside.txt").write_bytes(b"inside")
    (tmp_path / "root" / "sub").mkdir()
    (tmp_path / "root" / "sub" / "below.txt").write_bytes(b"below")
    return tmp_path


@pytest.fixture
def folder(place: Path, mechanism: Mechanism) -> Iterator[Folder]:
    with Folder(place / "root", mechanism=mechanism) as opened:
        yield opened


def outside(place: Path) -> dict[str, bytes | None]:
    """Everything outside of the root, to compare before and after."""
    return {
        str(path.relative_to(place)): path.read_bytes() if path.is_file() else None
        for path in place.rglob("*")
        if not path.is_relative_to(place / "root")
    }


def refused(folder: Folder, operation: Operation, path: str, place: Path, kinds: tuple[type[Exception], ...]) -> None:
    before = outside(place)
    with pytest.raises(kinds):
        operation(folder, path)
    assert outside(place) == before


NAMES_THAT_LEAD_OUT = [
    "..",
    "../secret",
    "sub/../../secret",
    "sub/../inside.txt",
    "./../secret",
    "/etc/passwd",
    "//etc/passwd",
    "/",
    "../root-evil/secret",
    "sub/..",
    "../root/inside.txt",
]
NAMES_THAT_NO_FILE_CAN_HAVE = [
    "",
    "a\0b",
    "\0",
    "inside.txt\0.png",
    "n" * 256,
    "é" * 128,
    "a/" * 2000 + "a",
    "\ud800",
]
NAMES_THAT_NO_FILE_SHOULD_HAVE = ["\n", " ", "a/ /b", "inside.txt\n", "\x1b[31m", "a/\x7f", "sub/\udcff"]
NAMING = ("write", "write_text", "append", "make_folder", "rename to")
"""What gives something a name. The others look for a name that somebody else may have given."""


@pytest.mark.parametrize("path", NAMES_THAT_LEAD_OUT)
def test_a_name_that_leads_out_is_refused(folder: Folder, place: Path, path: str) -> None:
    for operation in EVERYTHING.values():
        refused(folder, operation, path, place, (OutsideRoot,))


@pytest.mark.parametrize("path", NAMES_THAT_NO_FILE_CAN_HAVE)
def test_a_name_that_no_file_can_have_is_refused(folder: Folder, place: Path, path: str) -> None:
    for operation in EVERYTHING.values():
        refused(folder, operation, path, place, (InputError,))


@pytest.mark.parametrize("path", NAMES_THAT_NO_FILE_SHOULD_HAVE)
def test_a_name_that_no_file_should_have_is_not_given_and_can_be_looked_for(folder: Folder, place: Path, path: str) -> None:
    for name, operation in EVERYTHING.items():
        if name == "exists":
            assert not folder.exists(path)
        else:
            refused(folder, operation, path, place, (InputError,) if name in NAMING else (FileNotFoundError,))


ONLY_LOOKS = ["~/secret", "%2e%2e/secret", "..%2fsecret", "C:\\secret", "..\\secret", "．．/secret", "‥/secret", "...", "$HOME"]


@pytest.mark.parametrize("path", ONLY_LOOKS)
def test_a_name_that_only_looks_as_if_it_led_out_is_a_plain_name(folder: Folder, place: Path, path: str) -> None:
    before = outside(place)
    folder.write(path, b"plain")
    assert folder.read_bytes(path) == b"plain"
    assert (place / "root" / path).read_bytes() == b"plain"
    assert outside(place) == before


LINKS: dict[str, dict[str, str]] = {  # what links to what; `{place}` is the folder around the root
    "file": {"link": "{place}/secret"},
    "relative file": {"link": "../secret"},
    "folder": {"link": "{place}/outside"},
    "relative folder": {"link": "../outside"},
    "chain": {"two": "../outside/secret", "one": "two", "link": "one"},
    "through a folder and back out": {"link": "sub/../../secret"},
    "to itself": {"link": "link"},
    "loop": {"link": "other", "other": "link"},
    "out and in again": {"link": "../root/inside.txt"},
    "absolute, to the inside": {"link": "{place}/root/inside.txt"},
    "process": {"link": "/proc/self/root"},
    "descriptor": {"link": "/proc/self/cwd"},
}


def make_links(kind: str, place: Path) -> None:
    for name, target in LINKS[kind].items():
        (place / "root" / name).symlink_to(target.replace("{place}", str(place)))


@pytest.mark.parametrize("kind", LINKS)
def test_a_link_that_leads_out_is_not_read_through(folder: Folder, place: Path, kind: str) -> None:
    make_links(kind, place)
    for operation in READING.values():
        refused(folder, operation, "link", place, (OutsideRoot,))
        refused(folder, operation, "link/secret", place, (OutsideRoot,))


@pytest.mark.parametrize("operation", WRITING)
@pytest.mark.parametrize("kind", LINKS)
def test_a_link_that_leads_out_is_not_written_through(folder: Folder, place: Path, operation: str, kind: str) -> None:
    make_links(kind, place)
    refused(folder, WRITING[operation], "link/secret", place, (HoldfastError, FileNotFoundError))
    before = outside(place)
    with suppress(HoldfastError, FileNotFoundError):
        WRITING[operation](folder, "link")
    assert outside(place) == before


def test_writing_to_a_link_puts_a_file_in_its_place(folder: Folder, place: Path) -> None:
    (place / "root" / "link").symlink_to(place / "secret")
    folder.write("link", b"mine")
    assert not (place / "root" / "link").is_symlink()
    assert (place / "secret").read_bytes() == SECRET


def test_a_link_that_stays_inside_is_followed_by_the_kernel_and_refused_step_by_step(folder: Folder, place: Path) -> None:
    (place / "root" / "link").symlink_to("sub")
    if folder.mechanism == "openat2":
        assert folder.read_bytes("link/below.txt") == b"below"
        folder.write("link/new.txt", b"new")
        assert (place / "root" / "sub" / "new.txt").read_bytes() == b"new"
    else:
        with pytest.raises(OutsideRoot):
            folder.read_bytes("link/below.txt")


def test_links_are_listed_as_links_and_never_walked_into(folder: Folder, place: Path) -> None:
    (place / "root" / "link").symlink_to(place / "outside")
    (place / "root" / "sub" / "up").symlink_to("..")
    found = {entry.path: entry.kind for entry in folder.walk()}
    assert found == {"inside.txt": "file", "link": "link", "sub": "folder", "sub/below.txt": "file", "sub/up": "link"}
    assert [entry.path for entry in folder.glob("**/secret")] == []


def test_removing_a_tree_removes_links_and_not_what_they_point_to(folder: Folder, place: Path) -> None:
    (place / "root" / "sub" / "link").symlink_to(place / "outside")
    (place / "root" / "sub" / "deep").mkdir()
    (place / "root" / "sub" / "deep" / "link").symlink_to(place / "secret")
    before = outside(place)
    folder.remove("sub", tree=True)
    assert not folder.exists("sub")
    assert outside(place) == before


def test_a_second_name_of_a_foreign_file_is_refused_when_asked_for(place: Path, mechanism: Mechanism) -> None:
    os.link(place / "secret", place / "root" / "hard")
    careful = Folder(place / "root", single_links=True, mechanism=mechanism)
    with pytest.raises(OutsideRoot):
        careful.read_bytes("hard")
    with pytest.raises(OutsideRoot):
        careful.append("hard", b"evil")
    assert careful.read_bytes("inside.txt") == b"inside"
    careful.write("hard", b"mine")
    assert (place / "secret").read_bytes() == SECRET


def test_pipes_and_devices_do_not_make_the_reader_wait(folder: Folder, place: Path) -> None:
    os.mkfifo(place / "root" / "pipe")
    for operation in (READING["open"], READING["read_bytes"], WRITING["append"]):
        with pytest.raises(HoldfastError):
            operation(folder, "pipe")
    assert folder.stat("pipe").kind == "other"


def test_a_folder_below_is_a_root_of_its_own(folder: Folder, place: Path) -> None:
    (place / "root" / "sub" / "link").symlink_to("../inside.txt")
    below = folder.folder("sub")
    assert below.read_bytes("below.txt") == b"below"
    with pytest.raises(OutsideRoot):
        below.read_bytes("../inside.txt")
    with pytest.raises(OutsideRoot):
        below.read_bytes("link")


def test_the_folder_stays_the_same_when_its_own_name_goes_to_another(folder: Folder, place: Path) -> None:
    (place / "root").rename(place / "moved")
    (place / "root").symlink_to(place / "outside")
    assert folder.read_bytes("inside.txt") == b"inside"
    folder.write("new.txt", b"new")
    assert (place / "moved" / "new.txt").read_bytes() == b"new"
    assert not (place / "outside" / "new.txt").exists()


ALPHABET = st.sampled_from([".", "..", "/", "a", "sub", "link", "out", "\0", "\n", "~", "%2e", "inside.txt", "secret", "\\", "…"])


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ALPHABET, max_size=8).map("".join), st.sampled_from(sorted(READING)))
def test_no_path_at_all_reads_from_outside(folder: Folder, place: Path, path: str, operation: str) -> None:
    if not (place / "root" / "out").is_symlink():
        (place / "root" / "out").symlink_to(place / "outside")
        (place / "root" / "link").symlink_to("../secret")
    try:
        found = READING[operation](folder, path)
    except (HoldfastError, FileNotFoundError):
        return
    assert SECRET not in str(found).encode()
    assert "secret" not in str(found).replace(path, "")


class Swapper:
    """An attacker who exchanges `swing` for a link to the outside and back, as fast as it goes."""

    def __init__(self, place: Path) -> None:
        self.root, self.target = place / "root", place / "outside"
        (self.root / "real").mkdir()
        (self.root / "real" / "secret").write_bytes(b"harmless")
        (self.root / "evil").symlink_to(self.target)
        self.stop = threading.Event()
        self.swaps = 0
        self.thread = threading.Thread(target=self.work)

    def work(self) -> None:
        root = os.open(self.root, os.O_RDONLY)
        while not self.stop.is_set():
            for name in ("real", "evil"):
                try:
                    os.rename(name, "swing", src_dir_fd=root, dst_dir_fd=root)
                except OSError:  # a writer found no `swing` and made one
                    os.rename("swing", f"made-{self.swaps}", src_dir_fd=root, dst_dir_fd=root)
                else:
                    os.rename("swing", name, src_dir_fd=root, dst_dir_fd=root)
                self.swaps += 1
        os.close(root)

    def __enter__(self) -> Swapper:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()


@pytest.mark.prove
def test_a_folder_swapped_for_a_link_during_the_call_changes_nothing(folder: Folder, place: Path, effort: Effort) -> None:
    before = outside(place)
    done = 0
    with Swapper(place) as swapper:
        rounds = effort(2000, 100_000)
        for number in range(50 * rounds):
            if number >= rounds and done and swapper.swaps > 100:  # how the two threads take turns is the machine's affair
                break
            try:
                if number % 4 == 0:
                    folder.write(f"swing/new-{number % 40}", b"evil")
                elif number % 4 == 1:
                    folder.append("swing/log", b"evil")
                elif number % 4 == 2:
                    folder.remove("swing/secret" if number % 400 == 2 else "swing/log")
                elif folder.read_bytes("swing/secret") == SECRET:
                    effort.fail(f"read the secret in round {number}")
            except (HoldfastError, FileNotFoundError):
                continue
            done += 1
    assert swapper.swaps > 100
    assert done > 0
    assert outside(place) == before


def test_checking_first_and_opening_then_loses_the_race(place: Path) -> None:
    """The race has teeth: the usual check with `resolve` is got past."""
    root = (place / "root").resolve()
    with Swapper(place):
        for _ in range(200_000):
            path = root / "swing" / "secret"
            try:
                if path.resolve().is_relative_to(root) and path.read_bytes() == SECRET:
                    return
            except OSError:
                continue
    raise AssertionError("the race was never lost")
