"""K2, O7, W15: what is kept can be searched and copied where nothing can be written: a read-only file system, a full disk."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.knowledge.records import Record
from holdfast.knowledge.sqlite import SqliteStore

SOURCE = str(Path(holdfast.__file__).parents[1])
ON_A_FULL_DISK = """
import os, shutil, sys
from holdfast.errors import DiskFull
from holdfast.knowledge.records import Record
from holdfast.knowledge.sqlite import SqliteStore

file, full = sys.argv[1:]
place = shutil.copy(file, full)
with open(full + "/stuffing", "wb", 0) as stuffing:
    try:
        while stuffing.write(b"s" * 4096):
            pass
    except OSError:
        pass
with SqliteStore(place) as store:
    print([hit.record.text for hit in store.search("Alpha")], store.stats().records)
    try:
        store.add([Record("Beta is 2.")])
    except DiskFull as error:
        print("DiskFull")
    os.unlink(full + "/stuffing")
    store.add([Record("Beta is 2.")])
    print(sorted(hit.record.text for hit in store.search("Alpha Beta", top_k=5)))
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    with SqliteStore(made / "knowledge.db") as store:
        store.add([Record("Alpha is 1.")])
    (made / "memory.json").write_text('{"facts": []}')
    return made


def command(bwrap: str, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command with a home that is mounted read-only."""
    out = home.parent / "out"
    out.mkdir(exist_ok=True)
    mounts = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--ro-bind", str(home), str(home), "--bind", str(out), str(out)]
    settings = ["--setenv", "PYTHONPATH", SOURCE, "--setenv", "HOLDFAST_HOME", str(home), "--chdir", str(out)]
    run = [bwrap, *mounts, *settings, sys.executable, "-m", "holdfast", *words]
    return subprocess.run(run, capture_output=True, text=True, check=False)


def test_knowledge_on_a_read_only_file_system_is_searched_and_backed_up(bwrap: str, home: Path) -> None:
    """K2, O7: nothing is written to what is read."""
    before = sorted(path.name for path in home.iterdir())
    for words in (("search", "Alpha"), ("stats",)):
        done = command(bwrap, home, "knowledge", *words)
        assert done.returncode == 0, done.stderr
    assert "Alpha is 1." in command(bwrap, home, "knowledge", "search", "Alpha").stdout
    refused = command(bwrap, home, "knowledge", "add", "Beta is 2.")
    assert (refused.returncode, "The file system is read-only" in refused.stderr) == (3, True), refused.stderr
    done = command(bwrap, home, "backup", "--to", str(home.parent / "out"), "--json")
    assert done.returncode == 0, done.stderr
    (copy,) = (path for path in (home.parent / "out").iterdir() if path.name.startswith("holdfast-"))
    with SqliteStore(copy / "knowledge.db") as store:
        assert [hit.record.text for hit in store.search("Alpha")] == ["Alpha is 1."]
    assert sorted(path.name for path in home.iterdir()) == before


def test_what_only_stands_in_a_log_beside_the_database_is_not_left_out_without_a_word(bwrap: str, home: Path) -> None:
    """K2: a copy without its last changes would pass for a whole one."""
    torn = home / "torn"
    torn.mkdir()
    with SqliteStore(home / "knowledge.db") as store:
        store.add([Record("Beta is 2.")])
        for end in ("", "-wal"):
            shutil.copy(home / f"knowledge.db{end}", torn / f"knowledge.db{end}")
    done = command(bwrap, torn, "knowledge", "search", "Beta")
    assert done.returncode == 3
    assert f"{torn}/knowledge.db" in done.stderr
    assert "left beside it has to be taken in first" in done.stderr
    (torn / "memory.json").write_text('{"facts": []}')
    done = command(bwrap, torn, "backup", "--to", str(home / "out"), "--json")
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert "knowledge.db" in json.dumps(told)
    assert "taken in first" in json.dumps(told)
    (copy,) = (path for path in (home / "out").iterdir() if path.name.startswith("holdfast-"))
    assert (copy / "memory.json").exists()


def test_knowledge_on_a_full_disk_is_searched_and_written_again_once_there_is_room(bwrap: str, home: Path) -> None:
    """K2, W15: by the same process."""
    script, full = home.parent / "script.py", home.parent / "full"
    script.write_text(ON_A_FULL_DISK)
    full.mkdir()
    mounts = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--size", "3000000", "--tmpfs", str(full)]
    run = [bwrap, *mounts, "--setenv", "PYTHONPATH", SOURCE, sys.executable, str(script), str(home / "knowledge.db"), str(full)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["['Alpha is 1.'] 1", "DiskFull", "['Alpha is 1.', 'Beta is 2.']"]
