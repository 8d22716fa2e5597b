"""Many processes change one memory at once: no change is lost, nobody waits for ever (M6)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import Effort

from holdfast.memory.storage import FileMemoryStorage

WRITER = """
import sys
from dataclasses import replace
from holdfast.memory.memory_store import Edit
from holdfast.memory.facts import Fact
from holdfast.memory.storage import FileMemoryStorage

me, count = sys.argv[2], int(sys.argv[3])
storage = FileMemoryStorage(sys.argv[1], timeout=240)

def edit(document):
    for id in ("shared", me):
        fact = document.fact(id) or Fact(id, "0")
        document = document.with_fact(replace(fact, content=str(int(fact.content) + 1)))
    return Edit(document, "user", f"{me} counts")

for _ in range(count):
    storage.change(None, edit)
    own = storage.own()
    assert own is not None and own.fact(me) is not None
"""


@pytest.mark.prove
@pytest.mark.timeout(1800)
def test_many_writers_lose_nothing(effort: Effort, tmp_path: Path) -> None:
    writers = 8 if effort.proving else 4
    count = effort(50, 500)
    running = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), f"w{me}", str(count)]) for me in range(writers)]
    assert [process.wait() for process in running] == [0] * writers
    storage = FileMemoryStorage(tmp_path)
    document = storage.document()
    assert {fact.id: fact.content for fact in document.facts} == {
        "shared": str(writers * count),
        **{f"w{me}": str(count) for me in range(writers)},
    }
    assert document.revision == writers * count
    changes = storage.changes()
    assert [change.revision for change in changes] == list(range(1, writers * count + 1))
    assert storage.damage() == []
