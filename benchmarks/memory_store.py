"""What memory costs: injection from cache against reading the file, and the queue and a save beside a bare durable write. Prints JSON.

injection: microseconds of `render_for` from cache, of parsing the file alone, of parsing and rendering it, and their ratios (M7, M12).
save: milliseconds of one change (note, history, document) and of one bare durable replace of the same file, and the ratio (M6).
queue: milliseconds of one `put` and of claim + complete, beside one bare committed SQLite row, and the ratios (M8).
writers: changes a second with one process and with four at once on one file.

`--quick` makes everything smaller; its figures are no results.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.config.memory_sections import Memory
from holdfast.durable.database import open_database
from holdfast.durable.replace import replace_json
from holdfast.events import Bus
from holdfast.memory.document import Document, parse, to_json
from holdfast.memory.facts import Fact, Origin, Turn
from holdfast.memory.memory_store import Edit
from holdfast.memory.queue import MemoryQueue
from holdfast.memory.rendering import render
from holdfast.memory.service import MemoryService
from holdfast.memory.storage import FileMemoryStorage

_SAYS = "deploys the billing service with Ansible on Fridays and keeps its records in PostgreSQL, table number"


def facts(count: int) -> tuple[Fact, ...]:
    return tuple(
        Fact(
            f"fact_{n:04}",
            f"User {_SAYS} {n}",
            "knowledge",
            0.9,
            "2026-01-01T00:00:00Z",
            "t",
            Origin("user", "t", (f"m{n}",), f"table {n}"),
        )
        for n in range(count)
    )


def each(work: Callable[[], object], times: int) -> float:
    """The median time of one call, in seconds, over batches."""
    batches = []
    for _ in range(7):
        begun = time.perf_counter()
        for _ in range(times):
            work()
        batches.append((time.perf_counter() - begun) / times)
    return statistics.median(batches)


def injection(base: Path, times: int) -> dict[str, float]:
    memory = MemoryService(FileMemoryStorage(base), settings=Memory())
    path = base / "memory.json"
    replace_json(path, to_json(Document(facts=facts(100), revision=1)))
    os.utime(path, ns=(1, 1))
    memory.render_for()
    count = memory.counter.count_text
    cached = each(memory.render_for, times * 20)
    parsing = each(lambda: parse(json.loads(path.read_bytes())), times)
    whole = each(lambda: render(parse(json.loads(path.read_bytes())), 2000, count), max(times // 10, 1))
    return {
        "cached_us": round(cached * 1e6, 2),
        "parse_us": round(parsing * 1e6, 1),
        "parse_and_render_us": round(whole * 1e6, 1),
        "parse_over_cached": round(parsing / cached, 1),
        "parse_and_render_over_cached": round(whole / cached, 1),
    }


def save(base: Path, times: int) -> dict[str, float]:
    storage = FileMemoryStorage(base, bus=Bus())
    start = Document(facts=facts(100))
    storage.change(None, lambda document: Edit(start, "user", "start"))
    numbers = iter(range(10**9))

    def change() -> None:
        new = Fact("counter", str(next(numbers)))
        storage.change(None, lambda document: Edit(document.with_fact(new), "user", "count"))

    value = to_json(start)
    one, bare = each(change, times), each(lambda: replace_json(base / "bare.json", value), times)
    return {"change_ms": round(one * 1e3, 2), "bare_replace_ms": round(bare * 1e3, 2), "ratio": round(one / bare, 2)}


def queue(base: Path, times: int) -> dict[str, float]:
    waiting = MemoryQueue(base / "queue.db", debounce=0, bus=Bus())
    numbers = iter(range(10**9))

    def put() -> None:
        n = next(numbers)
        waiting.put(f"t{n}", [Turn(f"m{n}", "user", "words " * 40)])

    def work() -> None:
        item = waiting.claim()
        assert item is not None
        waiting.complete(item)

    database = open_database(base / "bare.db", migrations=["CREATE TABLE rows (n INTEGER PRIMARY KEY, text TEXT)"])
    bare = each(lambda: database.execute("INSERT INTO rows (text) VALUES (?)", ("words " * 40,)), times)
    putting, working = each(put, times), each(work, times)
    database.close()
    waiting.close()
    return {
        "put_ms": round(putting * 1e3, 2),
        "claim_and_complete_ms": round(working * 1e3, 2),
        "bare_insert_ms": round(bare * 1e3, 2),
        "put_over_bare": round(putting / bare, 2),
        "work_over_two_bare": round(working / bare / 2, 2),
    }


_WRITER = """
import sys
from holdfast.memory.memory_store import Edit
from holdfast.memory.facts import Fact
from holdfast.memory.storage import FileMemoryStorage
storage = FileMemoryStorage(sys.argv[1], timeout=120)
for n in range(int(sys.argv[3])):
    storage.change(None, lambda document: Edit(document.with_fact(Fact(sys.argv[2], str(n))), "user", "count"))
"""


def writers(base: Path, times: int) -> dict[str, float]:
    found = {}
    for processes in (1, 4):
        place = base / str(processes)
        begun = time.perf_counter()
        running = [subprocess.Popen([sys.executable, "-c", _WRITER, str(place), f"w{n}", str(times)]) for n in range(processes)]
        assert all(process.wait() == 0 for process in running)
        assert FileMemoryStorage(place).document().revision == processes * times, "a change was lost"
        found[f"changes_a_second_{processes}"] = round(processes * times / (time.perf_counter() - begun), 1)
    return found


def main() -> None:
    quick = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    quick.add_argument("--quick", action="store_true")
    small = quick.parse_args().quick
    with tempfile.TemporaryDirectory() as place:
        base = Path(place)
        result = {
            "injection": injection(base / "injection", 5 if small else 60),
            "save": save(base / "save", 3 if small else 40),
            "queue": queue(base / "queue", 5 if small else 60),
            "writers": writers(base / "writers", 5 if small else 150),
        }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
