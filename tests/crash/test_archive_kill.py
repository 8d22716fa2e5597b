"""Two real processes archive the same and different messages and are killed: nothing acknowledged is lost, nothing is doubled (S9)."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.context.archive import FileArchive
from holdfast.context.records import records_of
from holdfast.context.view import PlainMessage

if TYPE_CHECKING:
    from tests.conftest import Effort

WRITER = Path(__file__).with_name("archive_writer.py")


def start(base: Path, owner: str, count: int, seed: int, out: Path) -> subprocess.Popen[bytes]:
    with out.open("wb") as sink:
        return subprocess.Popen([sys.executable, str(WRITER), str(base), owner, str(count), str(seed)], stdout=sink)


def said_by(out: Path) -> list[str]:
    return [line for line in out.read_text().splitlines(keepends=True) if line.endswith("\n")]


def check(base: Path, acknowledged: set[str]) -> None:
    archive = FileArchive(base)
    ids = [record.id for record in archive.messages("t")]
    assert acknowledged <= set(ids), "something acknowledged is lost"
    assert len(ids) == len(set(ids)), "something is there twice"
    seqs = [record.seq for record in archive.messages("t")]
    assert len(seqs) == len(set(seqs)), "a number was given twice"
    for record in archive.messages("t"):
        owner, number = record.id.split("-")
        assert record.text == f"{owner} says number {number}. " * 4
    if ids:
        assert archive.search("t", "shared number 0", 3)
    archive.close()


@pytest.mark.prove
def test_two_processes_that_are_killed_lose_and_double_nothing(tmp_path: Path, effort: Effort) -> None:
    for run in range(effort(1, 60)):
        rng = random.Random(effort.seed + run)
        base = tmp_path / f"base{run}"
        outs = [tmp_path / f"{run}-{owner}.out" for owner in ("ada", "bob")]
        writers = [start(base, owner, 3_000, run, out) for owner, out in zip(("ada", "bob"), outs, strict=True)]
        deadline = time.monotonic() + 600  # for a writer that hangs; a slow machine is waited for
        wanted = rng.randrange(20, 120) if effort.proving else 30
        while time.monotonic() < deadline and any(len(said_by(out)) < wanted for out in outs):
            assert all(writer.poll() is None for writer in writers), "a writer ended by itself"
            time.sleep(0.02)
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
        for writer in writers:
            writer.wait()
        acknowledged = {line.strip() for out in outs for line in said_by(out)}
        assert len(acknowledged) >= wanted
        check(base, acknowledged)


def test_two_processes_that_finish_keep_the_shared_messages_once(tmp_path: Path) -> None:
    outs = [tmp_path / f"{owner}.out" for owner in ("ada", "bob")]
    writers = [start(tmp_path, owner, 15, 1, out) for owner, out in zip(("ada", "bob"), outs, strict=True)]
    assert [writer.wait(timeout=240) for writer in writers] == [0, 0]
    check(tmp_path, {f"{owner}-{n}" for owner in ("shared", "ada", "bob") for n in range(15)})
    assert FileArchive(tmp_path).stats("t").messages == 45
    assert FileArchive(tmp_path).add("t", records_of([PlainMessage("human", "after", "after")])) == 1
