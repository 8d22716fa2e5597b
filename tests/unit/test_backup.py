"""A live folder is copied soundly (O7): while others write, with databases, logs and blobs, and never half."""

from __future__ import annotations

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
from holdfast.durable.blobs import Blobs
from holdfast.durable.copying import copy_live
from holdfast.durable.database import open_database, transaction
from holdfast.durable.replace import replace_json
from holdfast.errors import InputError, WriteFailed

WRITER = textwrap.dedent(
    """
    import sys
    from holdfast.durable.append import AppendLog
    from holdfast.durable.blobs import Blobs
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


def test_what_lies_outside_the_base_directory_is_named(tmp_path: Path) -> None:
    """O7: a copy of the base directory does not hold it, and that is said."""
    base, runs = tmp_path / "base", tmp_path / "runs"
    values = {"session": {"path": str(runs)}, "knowledge": {"path": "notes.db"}, "memory": {"dsn": "postgresql://h/d"}}
    config = config_from_values(values, environ={"HOLDFAST_HOME": str(base)})
    with build(config) as harness:
        harness.make_base()
        done = back_up(harness, tmp_path / "copies")
    assert done.copy.path.parent == tmp_path / "copies"
    assert done.elsewhere == ("memory is in PostgreSQL", f"sessions are in {runs}")
    with (
        pytest.raises(InputError, match="nothing to copy"),
        build(config_from_values({}, environ={"HOLDFAST_HOME": "/nowhere"})) as harness,
    ):
        back_up(harness, tmp_path)
