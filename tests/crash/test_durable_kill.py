"""W15, M6: real processes, killed with SIGKILL at a random moment while they write; what they acknowledged is there."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.conftest import Effort
from tests.crash.ledger import Ledger, parse, work

from holdfast.durable.replace import sweep

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
FRESH_EVERY = 20  # runs after which a new folder is begun, so that reading all of it stays quick


def killed(base: Path, first: int, seed: int, steps: int, moment: float) -> list[tuple[str, str, int]]:
    """Run `work` in a child, kill it `moment` seconds after so many steps are done, and give what it said."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):  # whatever happens, the child must not go on as a second test run
            os.close(reader)
            os.write(writer, b"+ s 0\n")
            work(base, first, seed, writer)
        os._exit(1)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as said:
        begun = [said.readline() for _ in range(1 + 2 * steps)]  # of each step that it is begun, and that it is done
        time.sleep(moment)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        lines = [*begun, *said]
    assert os.WTERMSIG(status) == signal.SIGKILL, "the writer ended by itself"
    return parse(lines)


@pytest.mark.prove
def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(effort: Effort, tmp_path: Path) -> None:
    choose = random.Random(effort.seed)
    base, ledger, done = tmp_path / "0", Ledger(), 0
    for run in range(effort(25, 1000)):
        if run % FRESH_EVERY == 0:
            shutil.rmtree(base, ignore_errors=True)
            base, ledger = tmp_path / str(run), Ledger()
        first = max((number for numbers in ledger.begun.values() for number in numbers), default=0)
        ledger.hear(killed(base, first, effort.seed + run, choose.randrange(4), choose.uniform(0, 0.02)))
        for fault in ledger.faults(base):
            effort.fail(f"run {run}: {fault}")
        done += sum(map(len, ledger.done.values()))
    assert done > 0
    left = [path for path in base.rglob("*.tmp") if path.is_file()]
    assert {str(path) for path in left} == {path for folder in {path.parent for path in left} for path in sweep(folder, older_than=0)}


def torn(path: Path, data: bytes) -> None:
    """How files are written where nobody thought of it."""
    path.write_bytes(data)


@pytest.mark.prove
def test_writing_in_place_is_caught_by_the_same_killing(effort: Effort, tmp_path: Path) -> None:
    """The killing has teeth: a file written in place is found torn."""
    path, choose = tmp_path / "file", random.Random(effort.seed)
    for _ in range(effort(300, 300)):
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                while True:
                    torn(path, b"a" * 400_000)
            os._exit(1)
        time.sleep(choose.uniform(0.001, 0.01))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if path.exists() and path.stat().st_size != 400_000:
            return
    raise AssertionError("not one of 300 kills tore the file")
