"""A9, P3: no path, name, link or race leads a file tool out of the thread's folders.

Every case is a path (or a thing at a path) and an operation. What is asked for may be refused or may do something inside; what lies outside
is compared byte by byte before and after, and the text of the canaries there must not come back from anything.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conftest import Effort

from holdfast.agents.checkpoints import open_checkpoints
from holdfast.agents.threads import Threads
from holdfast.context.archive import FileArchive
from holdfast.durable.beneath import Mechanism, openat2_works
from holdfast.durable.folder import Folder
from holdfast.errors import HoldfastError, InputError, NotWritable, OutsideRoot
from holdfast.sandbox.files import ThreadFiles
from holdfast.sandbox.paths import WORKSPACE, Root, ThreadFolders, VirtualPaths
from holdfast.sandbox.searching import glob, grep
from holdfast.sandbox.uploads import Uploads

CANARY = "canary-7f3a"
INSIDE = "inside-text"


@dataclass(frozen=True)
class Ground:
    """A thread with files in it, and around it what must not be touched."""

    place: Path
    files: ThreadFiles
    uploads: Uploads
    before: dict[str, bytes | str | None] = field(default_factory=dict)

    @property
    def workspace(self) -> Path:
        return self.place / "base" / "threads" / "t1" / "user-data" / "workspace"

    def outside(self) -> dict[str, bytes | str | None]:
        """Everything that is not in the thread's three folders."""
        own = self.workspace.parent
        found: dict[str, bytes | str | None] = {}
        for top, folders, files in os.walk(self.place):
            if Path(top) == own:
                folders[:] = [name for name in folders if name not in ("workspace", "uploads", "outputs")]
            for name in (*folders, *files):
                path = Path(top) / name
                if name != "uploads.lock":
                    found[str(path)] = str(path.readlink()) if path.is_symlink() else path.read_bytes() if name in files else None
        return found


@pytest.fixture(params=["openat2", "walk"])
def mechanism(request: pytest.FixtureRequest) -> Mechanism:
    if request.param == "openat2" and not openat2_works():
        pytest.skip("this kernel has no openat2")
    kind: Mechanism = request.param
    return kind


@pytest.fixture
def ground(tmp_path: Path, mechanism: Mechanism, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    monkeypatch.setattr("holdfast.durable.folder.openat2_works", lambda: mechanism == "openat2")
    for name in (
        "outside",
        "skills",
        "base/threads/t1",
        "base/threads/t1-x",
        "base/threads/t2/user-data/workspace",
        "base/threads/t1/user-data-x",
    ):
        (tmp_path / name).mkdir(parents=True)
    for name in ("canary", "outside/canary", "base/canary", "base/threads/t1/canary", "base/threads/t1/user-data-x/canary"):
        (tmp_path / name).write_text(CANARY)
    (tmp_path / "base/threads/t2/user-data/workspace/canary").write_text(CANARY)
    (tmp_path / "skills" / "guide.md").write_text("a skill")
    with ThreadFolders(tmp_path / "base").open("t1") as thread:
        skills = Root("/mnt/skills", Folder(tmp_path / "skills"), read_only=True)
        files = ThreadFiles(VirtualPaths((*thread.roots, skills)))
        (thread.path / "workspace" / "inside.txt").write_text(INSIDE)
        (thread.path / "workspace" / "sub").mkdir()
        (thread.path / "workspace" / "sub" / "below.txt").write_text(INSIDE)
        made = Ground(tmp_path, files, Uploads("t1", files, base=tmp_path / "base"))
        yield replace(made, before=made.outside())


def handed_out(ground: Ground, path: str) -> bytes:
    given = ground.files.artifact(path, within=WORKSPACE)
    with given.stream:
        return given.stream.read()


Operation = Callable[[Ground, str], object]
READING: dict[str, Operation] = {
    "read": lambda ground, path: ground.files.read(path),
    "stat": lambda ground, path: ground.files.stat(path),
    "list": lambda ground, path: ground.files.ls(path, depth=3).text,
    "glob below": lambda ground, path: glob(ground.files, "**", path=path).text,
    "glob": lambda ground, path: glob(ground.files, path).text,
    "grep": lambda ground, path: grep(ground.files, CANARY, path=path).text,
    "artifact": handed_out,
    "copy from": lambda ground, path: ground.files.copy(path, "copied.txt") and ground.files.read("copied.txt"),
}
WRITING: dict[str, Operation] = {
    "write": lambda ground, path: ground.files.write(path, "evil"),
    "append": lambda ground, path: ground.files.append(path, "evil"),
    "str_replace": lambda ground, path: ground.files.str_replace(path, CANARY, "evil"),
    "make_folder": lambda ground, path: ground.files.make_folder(path),
    "delete": lambda ground, path: ground.files.delete(path),
    "delete tree": lambda ground, path: ground.files.delete(path, tree=True),
    "move from": lambda ground, path: ground.files.move(path, "moved.txt") and ground.files.read("moved.txt"),
    "move to": lambda ground, path: ground.files.move("inside.txt", path),
    "copy to": lambda ground, path: ground.files.copy("inside.txt", path),
    "upload": lambda ground, path: ground.uploads.take(path, b"evil"),
    "remove upload": lambda ground, path: ground.uploads.remove(path),
}
EVERYTHING = READING | WRITING


def stays_inside(ground: Ground, operation: Operation, path: str) -> None:
    """Whatever the operation does or says, the outside is as before, and its content does not come back."""
    answer: object = None
    with suppress(HoldfastError, FileNotFoundError, FileExistsError):
        answer = operation(ground, path)
    assert ground.outside() == ground.before, path
    said = repr(answer).replace(path, "").replace(repr(path)[1:-1], "")
    assert CANARY not in said, path


OUT = [  # names that lead out, or would if somebody unfolded, decoded or normalised them in the wrong place
    "..",
    "../..",
    "../canary",
    "../../canary",
    "../../../../../canary",
    "sub/../../../canary",
    "sub/..",
    "./../canary",
    ".//..//canary",
    "/mnt/user-data/workspace/../../../canary",
    "/mnt/user-data/../canary",
    "/mnt/user-data/workspace/..",
    "/mnt/user-data/..",
    "/mnt/user-data-x/canary",
    "/mnt/user-data-x",
    "/mnt/user-data/workspace-x/canary",
    "/mnt/user-dataworkspace/canary",
    "/mnt/skills/../user-data/workspace/../../canary",
    "/mnt/skills-x/guide.md",
    "/mnt",
    "/",
    "//",
    "//etc/passwd",
    "/etc/passwd",
    "/etc/shadow",
    "/proc/self/environ",
    "/proc/self/root/etc/passwd",
    "/proc/self/cwd",
    "/dev/zero",
    "/dev/stdin",
    "/root/.ssh/id_rsa",
    "/tmp",  # noqa: S108 - a name to be refused
    "{place}/canary",
    "{place}/base/threads/t1/canary",
    "{place}/base/threads/t1/user-data/workspace/inside.txt",
    "{place}/base/threads/t2/user-data/workspace/canary",
    "~",
    "~/canary",
    "~root/canary",
    "\0",
    "inside.txt\0",
    "inside.txt\0/../../canary",
    "../canary\0.txt",
    "\n",
    "inside.txt\n",
    "..\n/canary",
    "\r\n../canary",
    " ",
    "sub/ /canary",
    "\x1b]0;x\x07",
    "\x7f",
    "",
    "n" * 300,
    "é" * 200,
    "a/" * 2100 + "a",
    "\ud800",
    "\udcff/canary",
]
LITERAL = [  # these only look as if they led out: a plain name somewhere inside, or refused
    "%2e%2e/canary",
    "..%2fcanary",
    "%2e%2e%2fcanary",
    "..%252fcanary",
    "%c0%ae%c0%ae/canary",
    "..\\canary",
    "..\\..\\canary",
    "C:\\canary",
    "C:/canary",
    "\\\\host\\share",
    "．．/canary",
    "‥/canary",
    "․․/canary",
    "..\u2215canary",
    "..\u2044canary",
    "..／canary",
    "\u202e/canary",
    "..\u200b/canary",
    "... /canary",
    "...",
    ".. /canary",
    "$HOME/canary",
    "${HOME}/canary",
    "`pwd`/canary",
    "$(pwd)/canary",
    "*/canary",
    "file:///etc/passwd",
    "http://127.0.0.1/canary",
    "-rf",
    "--help",
    "sub/~/canary",
    "cafe\u0301/canary",
    "caf\u00e9/canary",
    "K\u212a/canary",
    "{0.__class__}",
    "%s%n",
]


@pytest.mark.parametrize("operation", EVERYTHING)
def test_no_name_leads_out(ground: Ground, operation: str) -> None:
    for name in (*OUT, *LITERAL):
        stays_inside(ground, EVERYTHING[operation], name.replace("{place}", str(ground.place)))


FILE_TOOLS = [name for name in EVERYTHING if name not in ("upload", "remove upload", "glob")]


@pytest.mark.parametrize("operation", FILE_TOOLS)
def test_a_name_that_leads_out_is_refused_and_told_what_would_fit(ground: Ground, operation: str) -> None:
    for name in OUT:
        if name in ("/mnt", "/", "//"):  # folders that exist as a part of other paths: they can be listed and nothing else
            continue
        path = name.replace("{place}", str(ground.place))
        with pytest.raises((OutsideRoot, InputError)) as caught:
            EVERYTHING[operation](ground, path)
        assert caught.value.hint, path


def test_what_only_looks_dangerous_is_a_plain_name(ground: Ground) -> None:
    for name in LITERAL:
        before = ground.outside()
        ground.files.write(name, "plain")
        assert ground.files.read(name).text == "plain"
        assert ground.outside() == before


LINKS: dict[str, dict[str, str]] = {  # what links to what; `{place}` is the folder around everything
    "to a file": {"link": "{place}/canary"},
    "to a file, relative": {"link": "../../../../../canary"},
    "to a folder": {"link": "{place}/outside"},
    "to a folder, relative": {"link": "../../../../../outside"},
    "to the folder above": {"link": ".."},
    "to another thread": {"link": "../../../t2/user-data/workspace"},
    "to everything": {"link": "/"},
    "chain": {"three": "../../../../../outside", "two": "three", "link": "two"},
    "through a folder": {"link": "sub/../../../canary"},
    "to itself": {"link": "link"},
    "loop": {"link": "other", "other": "link"},
    "out and in again": {"link": "../../user-data/workspace/inside.txt"},
    "absolute, to the inside": {"link": "{place}/base/threads/t1/user-data/workspace/inside.txt"},
    "to nothing": {"link": "{place}/not-there"},
    "to nothing, in a folder outside": {"link": "{place}/outside/not-there"},
    "process root": {"link": "/proc/self/root"},
    "process folder": {"link": "/proc/self/cwd"},
    "descriptor": {"link": "/proc/self/fd/0"},
    "deep": {"sub/deep": "../../../../../../outside", "link": "sub/deep"},
}


def make_links(kind: str, ground: Ground) -> None:
    for name, target in LINKS[kind].items():
        (ground.workspace / name).symlink_to(target.replace("{place}", str(ground.place)))


@pytest.mark.parametrize("kind", LINKS)
def test_no_link_leads_out(ground: Ground, kind: str) -> None:
    for name, operation in EVERYTHING.items():
        for path in ("link", "link/canary", "link/new", ".", f"{WORKSPACE}/*/canary"):
            if path == "." and name in WRITING:
                continue
            stays_inside(ground, operation, path)
            for link in LINKS[kind]:  # what an operation removed or replaced is put back for the next one
                with suppress(OSError):
                    (ground.workspace / link).unlink()
                with suppress(OSError):
                    (ground.workspace / link).rmdir()
            (ground.workspace / "sub").mkdir(exist_ok=True)
            (ground.workspace / "inside.txt").write_text(INSIDE)
            with suppress(FileExistsError):
                make_links(kind, ground)


@pytest.mark.parametrize("where", ["canary", "outside/canary", "base/threads/t2/user-data/workspace/canary"])
@pytest.mark.parametrize("operation", FILE_TOOLS)
def test_a_second_name_of_a_foreign_file_gives_nothing_away_and_changes_nothing(ground: Ground, operation: str, where: str) -> None:
    os.link(ground.place / where, ground.workspace / "hard")
    for path in ("hard", "."):
        if path == "hard" or operation in READING:
            stays_inside(ground, EVERYTHING[operation], path)


def test_names_that_are_all_inside_are_no_second_names(ground: Ground) -> None:
    os.link(ground.workspace / "inside.txt", ground.workspace / "sub" / "twin.txt")
    assert ground.files.read("sub/twin.txt").text == INSIDE
    assert [line.path for line in grep(ground.files, INSIDE).lines] == [
        f"{WORKSPACE}/inside.txt",
        f"{WORKSPACE}/sub/below.txt",
        f"{WORKSPACE}/sub/twin.txt",
    ]
    ground.files.append("sub/twin.txt", "!")
    assert ground.files.read("inside.txt").text == INSIDE  # a link is never written through


@pytest.mark.parametrize("root", ["/mnt/skills", "/mnt/skills/guide.md", "/mnt/skills/new.md"])
@pytest.mark.parametrize(
    "operation", ["write", "append", "str_replace", "make_folder", "delete", "delete tree", "move from", "move to", "copy to"]
)
def test_what_can_only_be_read_is_not_written(ground: Ground, operation: str, root: str) -> None:
    before = ground.outside()
    with pytest.raises(NotWritable):
        WRITING[operation](ground, root)
    assert ground.outside() == before


THREADS = [
    "",
    ".",
    "..",
    "../t1",
    "t1/..",
    "/etc",
    "a/b",
    "a\\b",
    "a\0",
    "t1\n",
    "~",
    "x" * 129,
    "é",
    " ",
    "t 1",
    ":",
    "..:",
    "%2e%2e/x",
    None,
    7,
]


@pytest.mark.parametrize("thread", THREADS)
def test_no_thread_name_leads_out(tmp_path: Path, thread: object) -> None:
    """A9, S16: any text that names a thread has one folder of its own directly below `threads`; what is no text, or none, is refused."""
    (tmp_path / "canary").write_text(CANARY)
    folders = ThreadFolders(tmp_path / "base")
    if not isinstance(thread, str) or not thread or len(thread) > 1000:
        with pytest.raises(InputError):
            folders.open(thread)  # type: ignore[arg-type]  # what a careless caller gives
        assert sorted(path.name for path in tmp_path.rglob("*")) == ["canary"]
        return
    folders.open(thread).close()
    (folder,) = (tmp_path / "base" / "threads").iterdir()
    assert folder.is_dir()
    assert not folder.is_symlink()
    assert (folder / "user-data" / "workspace").is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "canary"]
    with closing(open_checkpoints(tmp_path / "base")) as checkpoints:
        assert Threads(tmp_path / "base", checkpoints, FileArchive(tmp_path / "base")).delete(thread) == [thread]
    assert not folder.exists()
    assert (tmp_path / "canary").read_text() == CANARY


def test_a_thread_whose_folder_became_a_link_is_not_followed_when_removed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "canary").write_text(CANARY)
    folders = ThreadFolders(tmp_path / "base")
    folders.open("t1").close()
    (tmp_path / "base" / "threads" / "evil").symlink_to(tmp_path / "outside")
    (tmp_path / "outside" / "user-data").mkdir()
    with pytest.raises(OutsideRoot):
        folders.open("evil")
    with closing(open_checkpoints(tmp_path / "base")) as checkpoints, pytest.raises(OutsideRoot):
        Threads(tmp_path / "base", checkpoints, FileArchive(tmp_path / "base")).delete("evil")
    assert (tmp_path / "outside" / "canary").read_text() == CANARY
    assert (tmp_path / "outside" / "user-data").is_dir()


PARTS = st.sampled_from(
    [
        ".",
        "..",
        "/",
        "//",
        "a",
        "sub",
        "out",
        "file",
        "inside.txt",
        "canary",
        "\0",
        "\n",
        "~",
        "%2e",
        "\\",
        "．．",
        "*",
        "**",
        "/mnt/user-data",
        "x",
    ]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PARTS, max_size=7).map("".join), st.sampled_from(sorted(READING)))
def test_no_combination_reads_from_outside(ground: Ground, path: str, operation: str) -> None:
    for name, target in (("out", "outside"), ("file", "canary")):
        if not (ground.workspace / name).is_symlink():
            (ground.workspace / name).symlink_to(ground.place / target)
    stays_inside(ground, READING[operation], path)


RACING = ["read", "list", "glob below", "grep", "artifact", "write", "append", "delete", "make_folder", "copy to", "move to"]


@pytest.mark.prove
@pytest.mark.parametrize("operation", RACING)
def test_a_folder_that_is_swapped_for_a_link_during_the_call_does_not_lead_out(ground: Ground, operation: str, effort: Effort) -> None:
    """A thread swaps the folder for a link to the outside and back as fast as it can, while the operation goes through it."""
    calls = effort(150, 5_000)
    work = ground.workspace / "swapped"
    work.mkdir()
    (work / "canary").write_text(INSIDE)
    (ground.workspace / "evil").symlink_to(ground.place / "outside")
    before, done = ground.outside(), threading.Event()

    def swap() -> None:
        first, second, spare = ground.workspace / "swapped", ground.workspace / "evil", ground.workspace / "spare"
        while not done.is_set():
            with suppress(OSError):
                first.rename(spare)
                second.rename(first)
                spare.rename(second)
            time.sleep(0)

    attacker = threading.Thread(target=swap)
    attacker.start()
    path = "swapped" if operation in ("list", "glob below", "grep") else "swapped/new" if operation == "make_folder" else "swapped/canary"
    try:
        for number in range(calls):
            answer: object = None
            with suppress(HoldfastError, FileNotFoundError, FileExistsError):
                (ground.workspace / "inside.txt").write_text(INSIDE)
                answer = EVERYTHING[operation](ground, path)
            if CANARY in repr(answer):
                effort.fail(f"call {number} of {operation} read from outside")
    finally:
        done.set()
        attacker.join()
    if ground.outside() != before:
        effort.fail(f"{operation} changed the outside")


def test_there_are_at_least_three_hundred_cases() -> None:
    names = len(OUT) + len(LITERAL)
    cases = names * len(EVERYTHING) + len(LINKS) * len(EVERYTHING) * 5 + 3 * len(FILE_TOOLS) + len(THREADS) * 4 + len(RACING)
    assert cases >= 300
