"""Two processes add to one knowledge store and are killed: what was acknowledged is there and found, and nothing is half there (K2, O7)."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.knowledge.sqlite import SqliteStore

if TYPE_CHECKING:
    from tests.conftest import Effort

ADDER = Path(__file__).with_name("knowledge_adder.py")


def said_by(out: Path) -> list[str]:
    return [line.rstrip("\n") for line in out.read_text().splitlines(keepends=True) if line.endswith("\n")]


def check(path: Path, said: list[str]) -> None:
    added = {line for line in said if not line.startswith("-")}
    forgotten = {line[1:] for line in said if line.startswith("-")}
    with SqliteStore(path) as store:
        ids = {record.id for record in store.records()}
        last = {max((int(id.split("-")[1]) for id in added if id.startswith(owner)), default=0) for owner in ("ada", "bob")}
        unsure = {f"{owner}-{number + step}-0" for owner in ("ada", "bob") for number in last for step in range(-3, 2)}
        assert added - forgotten - unsure <= ids, "something acknowledged is lost"
        assert not forgotten & ids, "something forgotten is back"
        for id in sorted(added - forgotten - unsure)[:: max(len(added) // 5, 1)]:
            hits = store.search(id.replace("-", "x"), top_k=3)
            assert any(hit.record.id == id for hit in hits), f"{id} is not found"
    with sqlite3.connect(path) as database:
        (indexed,) = database.execute("SELECT sum(records) FROM segments").fetchone()
        (kept,) = database.execute("SELECT count(*) FROM records").fetchone()
        orphans = "SELECT count(*) FROM meanings WHERE number NOT IN (SELECT meaning FROM records WHERE meaning IS NOT NULL)"
        assert indexed == kept, "the index and the records differ"
        assert database.execute(orphans).fetchone() == (0,), "a meaning without a record"
    database.close()


@pytest.mark.prove
def test_two_processes_that_are_killed_lose_nothing_that_was_acknowledged(tmp_path: Path, effort: Effort) -> None:
    for run in range(effort(1, 40)):
        rng = random.Random(effort.seed + run)
        path = tmp_path / f"knowledge{run}.db"
        outs = [tmp_path / f"{run}-{owner}.out" for owner in ("ada", "bob")]
        adders = []
        for owner, out in zip(("ada", "bob"), outs, strict=True):
            with out.open("wb") as sink:
                adders.append(subprocess.Popen([sys.executable, str(ADDER), str(path), owner, str(run)], stdout=sink))
        deadline = time.monotonic() + 240
        wanted = rng.randrange(12, 40)
        while time.monotonic() < deadline and any(len(said_by(out)) < wanted for out in outs):
            assert all(adder.poll() is None for adder in adders), "an adder ended by itself"
            time.sleep(0.02)
        time.sleep(rng.random() * 0.2)
        for adder in adders:
            adder.send_signal(signal.SIGKILL)
            adder.wait()
        check(path, [line for out in outs for line in said_by(out)])
