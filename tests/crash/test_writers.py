"""M6: four processes read, change and replace one file a hundred times each under the lock; no change is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import Effort

from holdfast.durable.append import AppendLog
from holdfast.durable.lock import Lock
from holdfast.durable.replace import read_json, replace_json

WRITER = """
import os, signal, sys
from holdfast.durable.append import AppendLog
from holdfast.durable.lock import Lock
from holdfast.durable.replace import read_json, replace_json

path, me, count, die_at, locked = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5] == "locked"
log = AppendLog(path + ".log")
for number in range(count):
    lock = Lock(path + ".lock", timeout=240) if locked else open(os.devnull)
    with lock:
        document = read_json(path)
        if number == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        document["changes"].append([me, number])
        replace_json(path, document)
    log.append({"by": me, "number": number})
"""


def run(path: Path, count: int, *, die_at: tuple[int, ...] = (-1, -1, -1, -1), way: str = "locked") -> list[int]:
    replace_json(path, {"changes": []})
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, str(me), str(count), str(point), way]) for me, point in enumerate(die_at)
    ]
    return [writer.wait() for writer in writers]


@pytest.mark.prove
def test_four_writers_lose_nothing(effort: Effort, tmp_path: Path) -> None:
    count = effort(100, 500)
    path = tmp_path / "memory.json"
    assert run(path, count) == [0, 0, 0, 0]
    changes = read_json(path)["changes"]
    assert sorted(changes) == [[me, number] for me in range(4) for number in range(count)]
    reading = AppendLog(f"{path}.log").read()
    assert reading.damage == ()
    assert sorted((record["by"], record["number"]) for record in reading.records) == [(me, n) for me in range(4) for n in range(count)]


def test_a_writer_killed_while_it_holds_the_lock_stops_nobody(tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    assert run(path, 30, die_at=(-1, 10, -1, -1)) == [0, -9, 0, 0]
    changes = read_json(path)["changes"]
    assert sorted(changes) == sorted([[me, n] for me in (0, 2, 3) for n in range(30)] + [[1, n] for n in range(10)])
    with Lock(f"{path}.lock", timeout=0):
        pass


def test_without_the_lock_changes_are_lost(tmp_path: Path) -> None:
    """The test has teeth: the same writers without the lock overwrite each other."""
    path = tmp_path / "memory.json"
    for _ in range(20):  # on a busy machine they may happen to come one after the other
        run(path, 100, way="free")
        if len(read_json(path)["changes"]) < 400:
            return
    raise AssertionError("nothing was lost")
