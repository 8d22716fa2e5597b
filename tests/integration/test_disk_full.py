"""W15: a disk that is really full (bytes, then inodes): a typed error at the write, the old content stays, freed space is used again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast

SCRIPT = """
import json, os, sqlite3, sys
from holdfast.durable.append import AppendLog
from holdfast.durable.replace import Blobs
from holdfast.durable.folder import Folder
from holdfast.durable.database import open_database, transaction
from holdfast.durable.replace import read_json, replace_json
from holdfast.errors import HoldfastError

fill, base = sys.argv[1:3]
small, big = {"n": 0}, {"n": 1, "text": "x" * 3_000_000}

def attempt(action):
    try:
        action()
    except HoldfastError as error:
        return type(error).__name__
    return "done"

def insert(text):
    with transaction(database):
        database.execute("INSERT INTO rows VALUES (?)", [text])

def state():
    return {
        "file": read_json(base + "/file.json"),
        "log": list(log.read().records),
        "damage": len(log.read().damage),
        "blobs": [blobs.get(key).decode() for key in blobs.list()],
        "folder": folder.read_text("note.txt"),
        "rows": database.execute("SELECT count(*), max(length(text)) FROM rows").fetchone(),
        "wal": os.path.getsize(base + "/store.db-wal"),
        "temps": [name for _, _, names in os.walk(base) for name in names if name.endswith(".tmp")],
    }

log, blobs, folder = AppendLog(base + "/log"), Blobs(base + "/raw"), Folder(base)
database = open_database(base + "/store.db", migrations=["CREATE TABLE rows (text)"])
replace_json(base + "/file.json", small)
log.append(small)
blobs.put(b"small")
folder.write("note.txt", b"small")
insert("small")
database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
open_database(base + "/second.db", migrations=["CREATE TABLE rows (text)"]).close()
before = state()
stuffing = []
if fill == "inodes":
    try:
        while True:
            stuffing.append(base + f"/stuffing-{len(stuffing)}")
            os.close(os.open(stuffing[-1], os.O_CREAT | os.O_EXCL))
    except OSError:
        stuffing.pop()
    outcomes = {
        "file": attempt(lambda: replace_json(base + "/file.json", big)),
        "blob": attempt(lambda: blobs.put(b"big")),
        "folder": attempt(lambda: folder.write("note.txt", b"big")),
        "new log": attempt(lambda: AppendLog(base + "/new/log").append(small)),
        "database that is opened again": attempt(lambda: open_database(base + "/second.db", migrations=["CREATE TABLE rows (text)"])),
    }
else:
    outcomes = {
        "file": attempt(lambda: replace_json(base + "/file.json", big)),
        "log": attempt(lambda: log.append(big)),
        "blob": attempt(lambda: blobs.put(b"y" * 3_000_000)),
        "folder": attempt(lambda: folder.write("note.txt", b"z" * 3_000_000)),
        "database": attempt(lambda: insert("q" * 3_000_000)),
    }
    stuffing = [base + "/stuffing"]
    with open(stuffing[0], "wb", 0) as file:
        try:
            while file.write(b"s" * 4096) == 4096:
                pass
        except OSError:
            pass
    outcomes["database that is opened again"] = attempt(lambda: open_database(base + "/second.db", migrations=["CREATE TABLE rows (text)"]))
    outcomes["tiny file on a full disk"] = attempt(lambda: replace_json(base + "/file.json", {"n": 2}))
after = state()
for path in stuffing:
    os.unlink(path)
freed = {
    "file": attempt(lambda: replace_json(base + "/file.json", {"n": 3})),
    "log": attempt(lambda: log.append({"n": 3})),
    "blob": attempt(lambda: blobs.put(b"three")),
    "folder": attempt(lambda: folder.write("note.txt", b"three")),
    "database": attempt(lambda: insert("three")),
}
print(json.dumps({"before": before, "outcomes": outcomes, "after": after, "freed": freed, "end": state()}))
"""


def on_a_small_disk(bwrap: str, fill: str, tmp_path: Path) -> dict[str, Any]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    source = str(Path(holdfast.__file__).parents[1])
    command = [bwrap, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    full = tmp_path / "full"
    full.mkdir()
    run = [sys.executable, str(script), fill, str(full)]
    if fill == "bytes":
        command += ["--size", "2000000", "--tmpfs", str(full), "--setenv", "PYTHONPATH", source, *run]
    else:  # bubblewrap cannot limit inodes: mount a second time inside a user namespace
        inner = 'mount -t tmpfs -o nr_inodes=60,size=8m none "$0" && exec "$@"'
        command += ["--tmpfs", str(full), "--unshare-user", "--uid", "0", "--gid", "0", "--cap-add", "CAP_SYS_ADMIN"]
        command += ["--setenv", "PYTHONPATH", source, "sh", "-c", inner, str(full), *run]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if fill == "inodes" and "mount:" in done.stderr:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("fill", ["bytes", "inodes"])
def test_a_full_disk_is_told_at_the_write_and_costs_nothing(bwrap: str, fill: str, tmp_path: Path) -> None:
    story = on_a_small_disk(bwrap, fill, tmp_path)
    assert set(story["outcomes"].values()) == {"DiskFull"}, story["outcomes"]
    assert story["after"] == story["before"]
    assert story["before"]["temps"] == []
    assert story["before"]["damage"] == 0
    assert set(story["freed"].values()) == {"done"}, story["freed"]
    end = story["end"]
    assert end["file"] == {"n": 3}
    assert end["log"] == [{"n": 0}, {"n": 3}]
    assert sorted(end["blobs"]) == ["small", "three"]
    assert end["folder"] == "three"
    assert end["rows"] == [2, 5]
    assert story["after"]["wal"] < 100_000, "the write-ahead log sits on the space that the failed transaction took"
