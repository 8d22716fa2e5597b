"""A process that runs a session is killed at any moment: what was acknowledged is there, every reader finds a whole file (W5, W6, W10)."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import Locked
from holdfast.workflow.run_settings import file_sessions

if TYPE_CHECKING:
    from tests.conftest import Effort

WRITER = Path(__file__).with_name("session_writer.py")


def start(folder: Path, seed: int, out: Path) -> subprocess.Popen[bytes]:
    with out.open("ab") as sink:
        return subprocess.Popen([sys.executable, str(WRITER), str(folder), str(seed)], stdout=sink)


def said(out: Path) -> list[tuple[str, int]]:
    lines = out.read_text().splitlines(keepends=True) if out.exists() else []
    return [(line.split()[0], int(line.split()[1])) for line in lines if line.endswith("\n")]


def wait_for(out: Path, count: int, writer: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 240
    while len(said(out)) < count:
        assert writer.poll() is None, "the writer ended by itself"
        assert time.monotonic() < deadline, "the writer says nothing"
        time.sleep(0.001)


def check(folder: Path, out: Path) -> list[str]:
    store = file_sessions(folder)
    heard = said(out)
    session = store.load("run")
    newest = max(number for way, number in heard if way == "c")
    faults = [] if session.revision >= newest else [f"revision {newest} was acknowledged, {session.revision} is there"]
    for name, output in session.stage_outputs.items():
        if output.summary.split()[:2] != ["revision", str(int(name[1:]) + 1)]:
            faults.append(f"the output of {name} is not its own")
    points = {one.name for one in store.checkpoints("run")}
    faults += [f"the recovery point {number} is lost" for way, number in heard if way == "p" and f"p{number}" not in points]
    for name in points:
        state = store.load_checkpoint("run", name)
        if state.revision != int(name[1:]):
            faults.append(f"the recovery point {name} holds another state")
    texts = {store.raw_get("run", ref).text().split("raw of ")[1] for ref in store.raw("run").refs()}
    faults += [f"the raw data of {number} is lost" for way, number in heard if way == "r" and str(number) not in texts]
    return faults


@pytest.mark.prove
def test_killed_at_any_moment_nothing_acknowledged_is_lost(tmp_path: Path, effort: Effort) -> None:
    folder, out = tmp_path / "sessions", tmp_path / "said"
    for run in range(effort(12, 1000)):
        choose = random.Random(effort.seed + run)
        if run % 25 == 0:  # a session of its own for some runs each, so that it does not grow for ever
            folder, out = tmp_path / f"sessions{run}", tmp_path / f"said{run}"
        writer = start(folder, effort.seed + run, out)
        wait_for(out, len(said(out)) + choose.randrange(1, 8), writer)
        time.sleep(choose.random() * 0.01)
        writer.kill()
        writer.wait()
        for fault in check(folder, out):
            effort.fail(f"run {run}: {fault}")


@pytest.mark.prove
def test_a_reader_at_any_moment_finds_a_whole_file(tmp_path: Path, effort: Effort) -> None:
    out, reads, faults = tmp_path / "said", 0, []
    writer = start(tmp_path / "sessions", effort.seed, out)
    wait_for(out, 1, writer)
    path, store, last = tmp_path / "sessions" / "run.json", file_sessions(tmp_path / "sessions"), 0
    while len(said(out)) < effort(30, 3000):
        value = json.loads(path.read_bytes())
        if value["revision"] < last:
            faults.append(f"revision {value['revision']} after {last}")
        last = max(last, value["revision"])
        store.load("run")
        assert store.list()[0].problem is None
        reads += 1
    writer.kill()
    writer.wait()
    assert not faults
    assert reads


def test_two_processes_cannot_run_one_session_and_a_dead_owner_is_taken_over_at_once(tmp_path: Path) -> None:
    out = tmp_path / "said"
    writer = start(tmp_path / "sessions", 7, out)
    wait_for(out, 3, writer)
    store = file_sessions(tmp_path / "sessions")
    owner = store.owner("run")
    assert owner is not None
    assert (owner.name, owner.pid) == ("writer-7", writer.pid)
    for _ in range(3):
        with pytest.raises(Locked, match="writer-7") as caught, store.lease("run"):
            pass
    assert str(writer.pid) in str(caught.value)
    writer.kill()
    writer.wait()
    assert store.owner("run") is None
    with store.lease("run", owner="second") as held:
        assert held.taken_over is not None
        assert held.taken_over.name == "writer-7"


def test_ids_of_many_processes_never_collide(tmp_path: Path) -> None:
    """W2."""
    code = (
        "import sys, datetime; from holdfast.workflow.run_settings import file_sessions; from holdfast.session.state import Session\n"
        "s = file_sessions(sys.argv[1])\n"
        "for _ in range(15): i = s.new_session_id('w', datetime.date(2026, 1, 1)); s.create(Session(i)); print(i)"
    )
    found: list[str] = []

    def work() -> None:
        ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
        found.extend(ended.stdout.split())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [f"w-2026-01-01-{number:03d}" for number in range(1, 46)]
