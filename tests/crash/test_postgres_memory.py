"""Memory in PostgreSQL: many writers, a killed server. Nothing is lost, nothing is there twice (M6).

Killed processes: test_memory_kill.py, over files and PostgreSQL.
"""

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
from tests.crash.postgres_server import own_server

from holdfast.errors import StorageError, StoreUnavailable
from holdfast.memory.document import Document
from holdfast.memory.facts import Fact
from holdfast.memory.memory_store import Edit
from holdfast.memory.storage import PostgresMemoryStorage

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

WRITER = """
import sys
from dataclasses import replace
from holdfast.memory.memory_store import Edit
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
    with own_server() as server:
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
