"""Memory in PostgreSQL: many writers, killed processes, a killed server. Nothing is lost, nothing is there twice (M6)."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Effort
from tests.crash import memory_worker
from tests.crash.memory_worker import Ledger, Quotes
from tests.crash.postgres_server import own_server
from tests.crash.test_memory_kill import FRESH_EVERY, killed

from holdfast.config.memory_sections import Memory
from holdfast.errors import StorageError, StoreUnavailable
from holdfast.memory.document import Document
from holdfast.memory.facts import Fact
from holdfast.memory.service import MemoryService
from holdfast.memory.storage import PostgresMemoryStorage
from holdfast.memory.store import Edit

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

WRITER = """
import sys
from dataclasses import replace
from holdfast.memory.store import Edit
from holdfast.memory.facts import Fact
from holdfast.memory.storage import PostgresMemoryStorage

me, count = sys.argv[3], int(sys.argv[4])
storage = PostgresMemoryStorage(sys.argv[1], sys.argv[2], timeout=240)

def edit(document):
    for id in ("shared", me):
        fact = document.fact(id) or Fact(id, "0")
        document = document.with_fact(replace(fact, content=str(int(fact.content) + 1)))
    return Edit(document, "user", f"{me} counts")

for _ in range(count):
    storage.change(None, edit)
    own = storage.own()
    assert own is not None and own.fact(me) is not None
storage.close()
"""


@pytest.mark.prove
@pytest.mark.timeout(1800)
def test_many_writers_lose_nothing(effort: Effort, postgres: str, tmp_path: Path) -> None:
    writers = 8 if effort.proving else 4
    count = effort(50, 500)
    running = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), postgres, f"w{me}", str(count)]) for me in range(writers)]
    assert [process.wait() for process in running] == [0] * writers
    storage = PostgresMemoryStorage(tmp_path, postgres)
    document = storage.document()
    assert {fact.id: fact.content for fact in document.facts} == {
        "shared": str(writers * count),
        **{f"w{me}": str(count) for me in range(writers)},
    }
    changes = storage.changes()
    assert [change.revision for change in changes] == list(range(1, writers * count + 1))
    storage.close()


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_nothing_is_lost_or_learned_twice_when_the_process_is_killed(
    effort: Effort, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(base: Path) -> MemoryService:
        storage = PostgresMemoryStorage(base, postgres, schema=f"run {base.name}")
        return MemoryService(storage, settings=Memory(debounce_seconds=0, max_facts=1_000_000), extractor=Quotes())

    monkeypatch.setattr(memory_worker, "opened", opened)
    choose = random.Random(effort.seed)
    base, ledger, done = tmp_path / "0", Ledger(), 0
    for run in range(effort(10, 300)):
        if run % FRESH_EVERY == 0:
            done += sum(map(len, ledger.done.values()))
            base, ledger = tmp_path / str(run), Ledger()
        first = max((number for numbers in ledger.begun.values() for number in numbers), default=0)
        ledger.hear(killed(base, first, effort.seed + run, choose.randrange(6), choose.uniform(0, 0.1)))
        for fault in ledger.faults(base):
            effort.fail(f"run {run}: {fault}")
    done += sum(map(len, ledger.done.values()))
    assert done > effort.runs, "the workers came to something"


class Writers:
    """Threads that write until they are told to stop, and what became of each change."""

    def __init__(self, storage: PostgresMemoryStorage, count: int) -> None:
        self.acknowledged: list[str] = []
        self.refused: list[str] = []
        self.unknown: list[str] = []
        self._storage = storage
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(me,)) for me in range(count)]
        for thread in self._threads:
            thread.start()

    def go_on(self, count: int) -> None:
        """Wait until so many more changes were acknowledged."""
        wanted, end = len(self.acknowledged) + count, time.monotonic() + 240
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < end, "nothing is written any more"
            time.sleep(0.01)

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _write(self, me: int) -> None:
        number = 0
        while not self._over.is_set():
            number += 1
            fact = Fact(f"w{me}-{number}", f"fact {number} of {me}")
            try:
                self._storage.change(None, added(fact))
                self.acknowledged.append(fact.id)
            except StoreUnavailable:
                self.refused.append(fact.id)
                time.sleep(0.02)
            except StorageError:
                self.unknown.append(fact.id)


def added(fact: Fact) -> Callable[[Document], Edit]:
    return lambda document: Edit(document.with_fact(fact), "user", "test")


@pytest.mark.prove
@pytest.mark.timeout(1800)
def test_a_server_that_is_killed_and_started_again_costs_an_error_and_nothing_else(effort: Effort, tmp_path: Path) -> None:
    """Every change that was acknowledged is there once; every error is ours, and what it says about the change is true."""
    with own_server(tmp_path / "server") as server:
        storage = PostgresMemoryStorage(tmp_path / "base", server.dsn)
        writers = Writers(storage, 3)
        choose = random.Random(effort.seed)
        for _ in range(effort(3, 30)):
            writers.go_on(choose.randint(1, 12))
            server.kill()
            time.sleep(choose.uniform(0, 0.2))
            server.start()
        writers.go_on(1)  # it works after the last restart
        writers.stop()
        assert writers.refused or writers.unknown, "the writers noticed"
        document = storage.document()
        found = {fact.id for fact in document.facts}
        history = storage.changes()
        if not set(writers.acknowledged) <= found:
            effort.fail(f"lost {set(writers.acknowledged) - found}")
        if found & set(writers.refused):
            effort.fail(f"said to be not written, and there: {found & set(writers.refused)}")
        if [change.revision for change in history] != list(range(1, document.revision + 1)):
            effort.fail(f"{len(history)} changes, revision {document.revision}")
        assert [one.id for change in history for one in change.differences] == [fact.id for fact in document.facts]
        storage.close()
