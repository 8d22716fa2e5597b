"""A live folder is copied soundly (O7): while others write, with databases, logs and blobs, and never half."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sqlite3
import stat
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import build
from holdfast.backup import back_up
from holdfast.config.loading import config_from_values
from holdfast.durable.append import AppendLog
from holdfast.durable.copying import copy_live, restore
from holdfast.durable.database import open_database, transaction
from holdfast.durable.folder import remove_tree
from holdfast.durable.lock import Lock
from holdfast.durable.replace import Blobs, replace_json
from holdfast.errors import Damaged, InputError, Locked, WriteFailed
from holdfast.health import examine

WRITER = textwrap.dedent(
    """
    import sys
    from holdfast.durable.append import AppendLog
    from holdfast.durable.replace import Blobs
    from holdfast.durable.database import open_database, transaction
    from holdfast.durable.replace import replace_json
    base = sys.argv[1]
    blobs, log = Blobs(base + "/raw"), AppendLog(base + "/log.jsonl")
    db = open_database(base + "/queue.db", migrations=["CREATE TABLE done (n INTEGER)"])
    for n in range(100_000):
        key = blobs.put(f"blob {n}".encode())
        replace_json(base + "/state.json", {"n": n, "blob": key})
        log.append({"n": n})
        with transaction(db):
            db.execute("INSERT INTO done VALUES (?)", (n,))
        print(n, flush=True)
    """
)


def test_a_copy_made_while_another_process_writes_is_what_a_crash_would_have_left(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    with subprocess.Popen([sys.executable, "-c", WRITER, str(base)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(20):
            writer.stdout.readline()
        try:
            copies = [copy_live(base, tmp_path / f"copy-{n}") for n in range(5)]
        finally:
            writer.kill()
    for copy in copies:
        state = json.loads((copy.path / "state.json").read_text())
        assert Blobs(copy.path / "raw").get(state["blob"]) == f"blob {state['n']}".encode()
        logged = [record["n"] for record in AppendLog(copy.path / "log.jsonl").read().records]
        assert logged == list(range(len(logged)))
        with closing(sqlite3.connect(copy.path / "queue.db")) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            (done,) = database.execute("SELECT max(n) FROM done").fetchone()
        assert done <= state["n"]
        assert done <= logged[-1]
        assert not list(copy.path.rglob("*.lock"))
        assert not list(copy.path.rglob("*-wal"))


def test_the_list_in_a_copy_names_every_file_with_its_hash(tmp_path: Path) -> None:
    base = tmp_path / "base"
    replace_json(base / "agents" / "coder" / "memory.json", {"facts": []})
    with closing(open_database(base / "a.db", migrations=["CREATE TABLE t (x)"])) as database, transaction(database):
        database.execute("INSERT INTO t VALUES (1)")
    copy = copy_live(base, tmp_path / "copy")
    listed = json.loads((copy.path / "backup.json").read_text())["files"]
    assert [one["name"] for one in listed] == ["a.db", "agents/coder/memory.json"]
    for one in listed:
        assert hashlib.sha256((copy.path / one["name"]).read_bytes()).hexdigest() == one["sha256"]


def test_what_cannot_be_copied_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (tmp_path / "there").mkdir()
    for source, target in ((base, tmp_path / "there"), (base, base / "inside"), (tmp_path / "missing", tmp_path / "copy")):
        with pytest.raises(InputError):
            copy_live(source, target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "there"]


def test_a_full_disk_leaves_no_half_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "base"
    replace_json(base / "a.json", {})

    real = os.fsync

    def full(handle: int) -> None:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(WriteFailed):
        copy_live(base, tmp_path / "out" / "copy")
    assert list((tmp_path / "out").iterdir()) == []


def test_what_lies_outside_the_base_directory_is_copied_or_named(tmp_path: Path) -> None:
    """O7: files are copied with their place; what is in a database is said."""
    base, runs = tmp_path / "base", tmp_path / "runs"
    values = {"session": {"path": str(runs)}, "knowledge": {"path": "notes.db"}, "memory": {"dsn": "postgresql://h/d"}}
    config = config_from_values(values, environ={"HOLDFAST_HOME": str(base)})
    replace_json(runs / "s1.json", {"id": "s1"})
    with build(config) as harness:
        harness.make_base()
        done = back_up(harness, tmp_path / "copies")
    assert done.copy.path.parent == tmp_path / "copies"
    assert done.copy.outside == (("sessions", str(runs)),)
    assert (done.copy.path / ".outside" / "sessions" / "s1.json").is_file()
    assert done.elsewhere == ("memory, with what waits to be learned from, is in PostgreSQL",)
    with (
        pytest.raises(InputError, match="nothing to copy"),
        build(config_from_values({}, environ={"HOLDFAST_HOME": "/nowhere"})) as harness,
    ):
        back_up(harness, tmp_path)


@pytest.mark.parametrize(
    ("values", "kept", "named"),
    [
        ({"session": {"vector_store": {"provider": "sqlite", "connection": "OUT/k.db", "collection": "c"}}}, "session-knowledge/k.db", ""),
        (
            {"session": {"vector_store": {"provider": "markdown", "connection": "OUT/k.db", "collection": "c"}}},
            "session-knowledge/a.md",
            "",
        ),
        ({"knowledge": {"adapter": "langchain", "use": "some.where:Store", "path": "OUT/k.db"}}, "knowledge/k.db", "vectors are in"),
        ({"memory": {"session_memory": {"path": "OUT/{session_id}/state.json"}}}, "", "are written again from the sessions' logs"),
        ({"memory": {"storage_class": "some.where:Store"}}, "", "memory is kept by some.where:Store"),
        ({"session": {"vector_store": {"provider": "mcp", "connection": "http://h/"}}}, "", "knowledge is kept by an MCP server"),
    ],
)
def test_every_place_that_a_setting_leads_to_is_in_a_copy_or_named(
    tmp_path: Path, values: dict[str, object], kept: str, named: str
) -> None:
    """O7: also what `session.vector_store`, a vector store's own list, a class and a path with a folder for each session keep elsewhere."""
    out = tmp_path / "out"
    place = out / "k.db"
    if kept.endswith(".md"):
        replace_json(place / "a.md", {})
    else:
        with closing(open_database(place, migrations=["CREATE TABLE t (x)"])):
            pass
    config = config_from_values(json.loads(json.dumps(values).replace("OUT", str(out))), environ={"HOLDFAST_HOME": str(tmp_path / "base")})
    with build(config) as harness:
        harness.make_base()
        done = back_up(harness, tmp_path / "copies")
    assert [one.name for one in done.copy.files] == ([f".outside/{kept}"] if kept else [])
    assert [named in one for one in done.elsewhere] == [True] * bool(named)


def test_only_locks_and_journals_of_our_own_are_left_out(base: Path, tmp_path: Path) -> None:
    """O7: `poetry.lock` beside a stage or in a skill is no lock, and what ends in -wal is no journal unless its database is there."""
    theirs = ["sessions/s1/files/01-a/poetry.lock", "skills/pdf/uv.lock", "skills/pdf/x-wal"]
    for name in theirs:
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text("[[package]]")
    with closing(open_database(base / "a.db", migrations=["CREATE TABLE t (x)"])), Lock(base / "a.json.lock"):
        copy = copy_live(base, tmp_path / "copy")
    names = {one.name for one in copy.files}
    assert names >= set(theirs)
    assert not names & {"a.db-wal", "a.db-shm", "a.json.lock"}
    assert copy.complete


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base directory with an agent's folder in it."""
    base = tmp_path / "base"
    (base / "threads" / "t1" / "user-data" / "workspace").mkdir(parents=True)
    replace_json(base / "memory.json", {"facts": []})
    return base


def test_links_are_copied_as_links_and_never_followed(base: Path, tmp_path: Path) -> None:
    """O7, A9: a link that a command planted brings no file of the host into the copy."""
    (tmp_path / "key").write_text("HOST-SECRET")
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "more").write_text("HOST-SECRET")
    work = base / "threads" / "t1" / "user-data" / "workspace"
    (work / "notes.txt").symlink_to(tmp_path / "key")
    (work / "folder").symlink_to(tmp_path / "host")
    (work / "nowhere").symlink_to("/does/not/exist")
    (base / "threads" / "t2").symlink_to(tmp_path / "host")
    copy = copy_live(base, tmp_path / "copy")
    assert copy.complete
    assert "HOST-SECRET" not in "".join(path.read_text() for path in copy.path.rglob("*") if path.is_file() and not path.is_symlink())
    for name in ("notes.txt", "folder", "nowhere"):
        assert (copy.path / "threads/t1/user-data/workspace" / name).readlink() == (work / name).readlink()
    restored = restore(copy.path, tmp_path / "again")
    assert (restored.path / "threads/t1/user-data/workspace/notes.txt").readlink() == tmp_path / "key"


def test_a_folder_that_was_moved_to_another_disk_is_copied(base: Path, tmp_path: Path) -> None:
    """O7: a link at the top stands for the folder that it leads to, as it does for every command."""
    replace_json(tmp_path / "big" / "s1.json", {"id": "s1"})
    (base / "sessions").symlink_to(tmp_path / "big")
    copy = copy_live(base, tmp_path / "copy")
    assert json.loads((copy.path / "sessions" / "s1.json").read_text()) == {"id": "s1"}
    assert not (copy.path / "sessions").is_symlink()


def test_nothing_that_an_agent_keeps_is_dropped_by_its_name(base: Path, tmp_path: Path) -> None:
    """O7: lock files of package managers, journals, hidden files, empty folders, and names that are no text."""
    work = base / "threads" / "t1" / "user-data" / "workspace"
    names = [b"uv.lock", b"Cargo.lock", b"x-wal", b"y-journal", b".hidden", b"\xff\xfe.zip", b"line\nbreak", b".new-0123456789abcdef.tmp"]
    for name in names:
        Path(os.fsdecode(bytes(work) + b"/" + name)).write_bytes(name)
    (work / "empty" / "deeper").mkdir(parents=True)
    with closing(sqlite3.connect(work / "own.db")) as database:
        database.execute("CREATE TABLE t (x)")
    copy = copy_live(base, tmp_path / "copy")
    assert (copy.complete, copy.left_out) == (True, ())
    restored = restore(copy.path, tmp_path / "again")
    for folder in (copy.path, restored.path):
        here = folder / "threads/t1/user-data/workspace"
        assert sorted(os.fsencode(path.name) for path in here.iterdir()) == sorted([*names, b"empty", b"own.db"])
        assert all(Path(os.fsdecode(bytes(here) + b"/" + name)).read_bytes() == name for name in names)
        assert (here / "empty" / "deeper").is_dir()


def test_a_tree_of_three_thousand_folders_breaks_neither_backup_restore_doctor_nor_deletion(base: Path, tmp_path: Path) -> None:
    """O7, A9: one loop of `mkdir` in a sandbox."""
    work = base / "threads" / "t1" / "user-data" / "workspace"
    here = os.open(work, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("end.txt", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    copy = copy_live(base, tmp_path / "copy")
    assert copy.complete
    assert any(one.name.endswith("/d/end.txt") and one.name.count("/d") == 3000 for one in copy.files)
    with build(config_from_values({}, environ={"HOLDFAST_HOME": str(base)})) as harness:
        assert {check.about: check.state for check in examine(harness)}["base directory"] != "bad"
    again = restore(copy.path, tmp_path / "again")
    assert again.files == len(copy.files)
    for folder in (base, copy.path, again.path):
        remove_tree(folder)
        assert not folder.exists()
    assert [path.name for path in tmp_path.iterdir()] == []


def test_what_cannot_be_read_is_named_and_the_rest_is_copied(base: Path, tmp_path: Path) -> None:
    """O7: a pipe, and for an ordinary user a file and a folder without rights; the program ends with another code than 0."""
    work = base / "threads" / "t1" / "user-data" / "workspace"
    os.mkfifo(work / "pipe")
    (work / "closed").mkdir()
    (work / "closed" / "inside").write_text("x")
    (work / "closed").chmod(0o000)
    (work / "mine").write_text("x")
    (work / "mine").chmod(0o000)
    (work / "fine").write_text("y")
    before = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    program = [*before, sys.executable, "-m", "holdfast.app.main", "backup", "--to", str(tmp_path / "copies"), "--json"]
    try:
        done = subprocess.run(program, env={**os.environ, "HOLDFAST_HOME": str(base)}, capture_output=True, text=True, timeout=240)
    finally:
        (work / "closed").chmod(0o700)
    said = json.loads(done.stdout)
    assert (done.returncode, said["complete"]) == (1, False)
    place = "threads/t1/user-data/workspace"
    assert said["left_out"] == {
        f"{place}/closed/": "Permission denied",
        f"{place}/mine": "Permission denied",
        f"{place}/pipe": "neither a file nor a folder nor a link",
    }
    assert (Path(said["path"]) / place / "fine").read_text() == "y"


@pytest.mark.parametrize("head", [b"SQLite format 3\x00", b"noise"])
def test_a_damaged_database_does_not_keep_the_rest_from_being_copied(base: Path, tmp_path: Path, head: bytes) -> None:
    """O7: it is copied byte by byte and named, also where its very beginning is lost."""
    (base / "knowledge.db").write_bytes(head + b"noise" * 2000)
    copy = copy_live(base, tmp_path / "copy")
    assert not copy.complete
    assert copy.left_out == (("knowledge.db (as a database)", "it is damaged, and was copied byte by byte"),)
    assert (copy.path / "knowledge.db").read_bytes() == (base / "knowledge.db").read_bytes()
    assert (copy.path / "memory.json").is_file()


MEMORY_WRITER = textwrap.dedent(
    """
    import sys
    from holdfast import build
    from holdfast.config.loading import config_from_values
    with build(config_from_values({"memory": {"max_facts": 10_000}}, environ={"HOLDFAST_HOME": sys.argv[1]})) as harness:
        for n in range(100_000):
            harness.memory.add(f"User has seen the number {n} on {n} signs of street {n * 7}")
            print(n, flush=True)
    """
)


def test_memory_and_its_history_agree_in_a_copy_made_under_load(tmp_path: Path) -> None:
    """O7, M6: they are of one moment, and everything that was acknowledged before the copy began is in it."""
    home = tmp_path / "home"
    copies = []
    with subprocess.Popen([sys.executable, "-c", MEMORY_WRITER, str(home)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        try:
            for number in range(4):
                seen = [int(writer.stdout.readline()) for _ in range(5)][-1]
                with build(config_from_values({}, environ={"HOLDFAST_HOME": str(home)})) as harness:
                    copies.append((seen, back_up(harness, tmp_path / f"copies-{number}")))
        finally:
            writer.kill()
    for seen, made in copies:
        back = restore(made.copy.path, tmp_path / "back" / made.copy.path.parent.name)
        with build(config_from_values({"memory": {"max_facts": 10_000}}, environ={"HOLDFAST_HOME": str(back.path)})) as harness:
            changes = harness.memory.history()
            document = harness.memory.document()
            known = {fact.content for fact in document.facts}
            assert max(change.revision for change in changes) == document.revision
            assert {f"User has seen the number {n} on {n} signs of street {n * 7}" for n in range(seen + 1)} <= known
            harness.memory.add("User goes on after the restore")


def test_a_copy_that_was_changed_is_not_restored(base: Path, tmp_path: Path) -> None:
    """O7: every file is checked before anything is touched."""
    copy = copy_live(base, tmp_path / "copy")
    (copy.path / "memory.json").write_text("{}")
    with pytest.raises(Damaged, match=r"memory\.json has changed"):
        restore(copy.path, tmp_path / "again")
    (copy.path / "memory.json").unlink()
    with pytest.raises(Damaged, match=r"memory\.json"):
        restore(copy.path, tmp_path / "again")
    with pytest.raises(InputError, match="is no backup"):
        restore(base, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_restoring_moves_aside_what_is_there_and_removes_nothing(base: Path, tmp_path: Path) -> None:
    """O7: a base directory in use is refused, one with something in it needs `replace`."""
    copy = copy_live(base, tmp_path / "copy")
    replace_json(base / "memory.json", {"facts": ["new"]})
    with pytest.raises(InputError, match="not empty"):
        restore(copy.path, base)
    with Lock(base / "memory.json.lock"), pytest.raises(Locked, match="in use"):
        restore(copy.path, base, replace=True)
    done = restore(copy.path, base, replace=True)
    assert json.loads((base / "memory.json").read_text()) == {"facts": []}
    assert done.before is not None
    assert json.loads((done.before / "memory.json").read_text()) == {"facts": ["new"]}


def test_parts_outside_go_back_to_where_they_were(base: Path, tmp_path: Path) -> None:
    """O7: where something is by now, the copy stays and is named."""
    replace_json(tmp_path / "runs" / "s1.json", {"id": "s1"})
    replace_json(tmp_path / "elsewhere" / "m.json", {"facts": [1]})
    places = {"sessions": tmp_path / "runs", "memory": tmp_path / "elsewhere" / "m.json"}
    copy = copy_live(base, tmp_path / "copy", outside=places)
    remove_tree(tmp_path / "runs")
    done = dict(restore(copy.path, tmp_path / "again", outside=places).outside)
    assert json.loads((tmp_path / "runs" / "s1.json").read_text()) == {"id": "s1"}
    assert done[str(tmp_path / "runs")] == "put back"
    assert "something is there already" in done[str(tmp_path / "elsewhere" / "m.json")]
    assert not (tmp_path / "again" / ".outside").exists()


def test_the_draft_of_a_killed_backup_is_removed_by_the_next_one(base: Path, tmp_path: Path) -> None:
    """O7: and one that is still being made is left alone."""
    dead = tmp_path / "copies" / ".new-0123456789abcdef.tmp"
    dead.mkdir(parents=True)
    alive = tmp_path / "copies" / ".new-fedcba9876543210.tmp"
    alive.mkdir()
    handle = os.open(alive, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        copy_live(base, tmp_path / "copies" / "one")
        assert sorted(path.name for path in (tmp_path / "copies").iterdir()) == [alive.name, "one"]
    finally:
        os.close(handle)


def test_the_commands_make_a_copy_and_put_it_back(tmp_path: Path) -> None:
    """O1, O7: as a person does it."""

    def holdfast(*words: str) -> dict[str, object]:
        program = [sys.executable, "-m", "holdfast.app.main", *words, "--json"]
        env = {**os.environ, "HOLDFAST_HOME": str(tmp_path / "home")}
        return dict(json.loads(subprocess.run(program, env=env, capture_output=True, text=True, check=True, timeout=240).stdout))

    holdfast("memory", "add", "User keeps bees")
    made = holdfast("backup", "--to", str(tmp_path / "copies"))
    holdfast("memory", "add", "User sold the bees")
    done = holdfast("restore", str(made["path"]), "--replace")
    assert [fact["content"] for fact in holdfast("memory", "export")["facts"]] == ["User keeps bees"]  # type: ignore[attr-defined]
    assert Path(str(done["before"])).is_dir()


def _forged(base: Path, tmp_path: Path, **changed: object) -> Path:
    copy = copy_live(base, tmp_path / "copy").path
    listing = json.loads((copy / "backup.json").read_text())
    (copy / "backup.json").write_text(json.dumps({**listing, **changed}))
    return copy


@pytest.mark.parametrize(
    "changed",
    [
        {"folders": ["../planted"]},
        {"folders": ["/planted"]},
        {"folders": ["a//b"]},
        {"links": [{"name": "../planted", "to": "/etc"}]},
        {"links": [{"name": "way", "to": ".."}, {"name": "way/planted", "to": "/etc"}]},
        {"links": [{"name": "way", "to": ".."}], "folders": ["way/planted"]},
        {"files": [{"name": "../host", "bytes": 1, "sha256": "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"}]},
    ],
)
def test_a_listing_that_leads_out_of_its_folder_is_refused(base: Path, tmp_path: Path, changed: dict[str, object]) -> None:
    """O7: a backup may come from anywhere; nothing is written but below the place that was named."""
    (tmp_path / "host").write_text("x")
    copy = _forged(base, tmp_path, **changed)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(Damaged, match=r"no place below a folder|behind a link"):
        restore(copy, tmp_path / "again")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_parts_outside_go_where_the_configuration_says_and_not_where_the_copy_says(base: Path, tmp_path: Path) -> None:
    """O7: the path in a copy is not believed; what has no place is named and stays in the copy."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "deep").mkdir()
    (tmp_path / "elsewhere" / "deep" / "s1.json").write_text("{}")
    (tmp_path / "mem.json").write_text('{"facts": []}')
    outside = {"sessions": tmp_path / "elsewhere", "memory": tmp_path / "mem.json"}
    copy = copy_live(base, tmp_path / "copy", outside=outside).path
    told = restore(copy, tmp_path / "none").outside
    assert [why.split(";")[0] for _, why in told] == ["nothing of that kind is kept elsewhere by this configuration"] * 2
    places = {"sessions": tmp_path / "new" / "sessions", "memory": tmp_path / "new" / "other.json"}
    told = restore(copy, tmp_path / "again", outside=places).outside
    assert sorted(told) == sorted((str(place), "put back") for place in places.values())
    assert (tmp_path / "new" / "sessions" / "deep" / "s1.json").read_text() == "{}"
    assert (tmp_path / "new" / "other.json").read_text() == '{"facts": []}'
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["other.json", "sessions"]
    assert stat.S_IMODE((tmp_path / "new" / "sessions").stat().st_mode) == 0o700


REPLACER = textwrap.dedent(
    """
    import sys
    from holdfast.durable.copying import restore
    restore(sys.argv[1], sys.argv[2], replace=True)
    """
)


def test_while_a_copy_is_put_in_its_place_there_is_always_a_folder(base: Path, tmp_path: Path) -> None:
    """O7: whoever looks sees the old one or the new one, never nothing; what was there before is kept whole."""
    copy = copy_live(base, tmp_path / "copy").path
    replace_json(base / "memory.json", {"facts": ["new"]})
    seen = {(base / "memory.json").read_text()}
    program = subprocess.Popen([sys.executable, "-c", REPLACER, str(copy), str(base)])
    while program.poll() is None:
        seen.add((base / "memory.json").read_text())
    assert program.returncode == 0
    seen.add((base / "memory.json").read_text())
    assert len(seen) == 2
    (kept,) = tmp_path.glob("base.before-*")
    assert json.loads((kept / "memory.json").read_text()) == {"facts": ["new"]}
