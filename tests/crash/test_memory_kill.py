"""Processes killed at a random moment of queueing, learning and saving: 0 lost, 0 applied twice; SIGTERM loses nothing (M6, M8)."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.conftest import Effort
from tests.crash.memory_worker import Ledger, name, opened, parse, work

from holdfast.memory.document import Document
from holdfast.memory.facts import Fact
from holdfast.memory.history import Held
from holdfast.memory.memory_store import Edit
from holdfast.memory.storage import FileMemoryStorage
from holdfast.testing.disk import PowerCut, SimulatedDisk

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
FRESH_EVERY = 5  # runs after which a new folder is begun, so that reading all of it stays quick


def killed(base: Path, first: int, seed: int, steps: int, moment: float, dsn: str = "") -> list[tuple[str, str, int]]:
    """Run `work` in a child, kill it `moment` seconds after so many steps are done, and give what it said."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):  # whatever happens, the child must not go on as a second test run
            os.close(reader)
            os.write(writer, b"+ s 0\n")
            work(base, first, seed, writer, dsn)
        os._exit(1)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as said:
        begun = [said.readline() for _ in range(1 + 2 * steps)]  # of each step that it is begun, and that it is done
        time.sleep(moment)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        lines = [*begun, *said]
    assert os.WIFSIGNALED(status), "the worker ended by itself"
    return parse(lines)


@pytest.mark.prove
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("where", ["file", "postgres"])
def test_nothing_is_lost_or_learned_twice_when_the_process_is_killed(
    effort: Effort, tmp_path: Path, where: str, request: pytest.FixtureRequest
) -> None:
    dsn = request.getfixturevalue("postgres") if where == "postgres" else ""
    choose = random.Random(effort.seed)
    base, ledger, done = tmp_path / "0", Ledger(), 0
    for run in range(effort(12, 1000)):
        if run % FRESH_EVERY == 0:
            done += sum(map(len, ledger.done.values()))
            shutil.rmtree(base, ignore_errors=True)
            base, ledger = tmp_path / str(run), Ledger()
        first = max((number for numbers in ledger.begun.values() for number in numbers), default=0)
        ledger.hear(killed(base, first, effort.seed + run, choose.randrange(6), choose.uniform(0, 0.1), dsn))
        for fault in ledger.faults(base, dsn):
            effort.fail(f"run {run}: {fault}")
    done += sum(map(len, ledger.done.values()))
    assert done > effort.runs, "the workers came to something"


SERVER = """
import sys, time
from pathlib import Path
import holdfast.memory.gate  # its tables take their time to be made, and that is not what is waited for at the end
from holdfast.config.memory_sections import Memory
from holdfast.memory.facts import Turn
from holdfast.memory.service import MemoryService
from tests.crash.memory_worker import Quotes, name

class Slow(Quotes):
    def extract(self, turns, facts):
        time.sleep(float(sys.argv[2]))
        return super().extract(turns, facts)

memory = MemoryService.at(Path(sys.argv[1]), extractor=Slow(), settings=Memory(debounce_seconds=30))
memory.worker._exit_seconds = 10.0
memory.start()
for number in range(50):
    memory.enqueue(f"t{number}", [Turn(f"m{number}", "user", f"I know somebody called {name(number)}.")])
print("queued", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("pause", ["0", "0.2"])
def test_fifty_queued_updates_are_all_there_after_sigterm(tmp_path: Path, pause: str) -> None:
    root = Path(__file__).parents[2]
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(tmp_path), pause],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "queued\n"
    server.send_signal(signal.SIGTERM)
    assert server.wait(timeout=240) == 128 + signal.SIGTERM
    server.stdout.close()
    memory = opened(tmp_path)
    learned = len(memory.document().facts)
    assert learned > 0, "it learned from some on its way out"
    assert learned + len(memory.queue) == 50 or pause != "0"
    memory.queue.recover()
    memory.flush()
    assert sorted(fact.content for fact in memory.document().facts) == sorted(f"I know somebody called {name(n)}." for n in range(50))
    memory.close()


@pytest.mark.prove
def test_a_power_cut_at_any_moment_leaves_document_and_history_agreed(effort: Effort) -> None:
    """On a disk that loses what was not synced: every acknowledged change is there, and each is in the history exactly once."""
    cuts = 0
    for run in range(effort(60, 1000)):
        moment = random.Random(effort.seed + run).randrange(1, 220)
        disk = SimulatedDisk(seed=effort.seed + run, cut_at=moment)
        acknowledged: list[str] = []
        try:
            storage = FileMemoryStorage("/base", disk=disk)
            for number in range(8):
                storage.change(None, added(number))
                acknowledged.append(f"f{number}")
        except PowerCut:
            cuts += 1
        after = FileMemoryStorage("/base", disk=disk.crash() if cuts % 2 else disk.kill())
        after.recover()
        document = after.own() or Document()
        ids = [fact.id for fact in document.facts]
        revisions = [change.revision for change in after.changes()]
        if not set(acknowledged) <= set(ids):
            effort.fail(f"run {run}, cut at {moment}: acknowledged {acknowledged}, found {ids}")
        if revisions != list(range(1, document.revision + 1)):
            effort.fail(f"run {run}, cut at {moment}: revision {document.revision}, history {revisions}")
        after.change(None, added(99))
        if [fact.id for fact in after.document().facts] != [*ids, "f99"]:
            effort.fail(f"run {run}, cut at {moment}: it cannot be written any more")
    assert cuts > effort.runs // 2


def added(number: int) -> Callable[[Document], Edit]:
    held = (Held(f"q{number}", "2026", Fact(f"q{number}", "x"), "why"),) if number % 3 == 0 else ()
    return lambda document: Edit(document.with_fact(Fact(f"f{number}", f"fact {number}")), "user", "test", held=held)
