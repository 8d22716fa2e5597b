"""A store of texts beside Holdfast's knowledge store, with the same embedder: recall, latency, bytes, and what `kill -9` leaves.

The texts are a conversation of 1,000 messages in which 200 facts are said once; it is asked for each with a question that mostly shares one
word with it (`Fact.sparsest`). Both sides embed what they are given by the same model, and that is in the times of adding and of searching.
Kills: a process adds one text after the other and says so when the call has returned; what it said and what a new process finds
is compared. Syncs are counted with `strace`, where it is installed: without one an add is not on the disk when the call returns.
"""

from __future__ import annotations

import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.parts.conversation import conversation, facts
from benchmarks.parts.knowledge_records import Seeded
from benchmarks.parts.peer_runs import Result, Row, compare

from holdfast.knowledge.records import Record
from holdfast.knowledge.sqlite import SqliteStore
from holdfast.search.minilm import MiniLM

__all__ = ["DIMENSION", "Embed", "Side", "compare_stores"]

DIMENSION = MiniLM.dimension
Embed = Callable[[Sequence[str]], list[list[float]]]


class Side(Protocol):
    """A store as this comparison uses it. `add` returns when the store says that it has it."""

    def add(self, texts: Mapping[str, str]) -> None: ...
    def search(self, question: str, limit: int) -> list[str]: ...
    def ids(self) -> set[str]: ...
    def close(self) -> None: ...


Open = Callable[[Path, Embed], Side]


class Ours:
    """Holdfast's store in one SQLite file."""

    def __init__(self, folder: Path, embedder: MiniLM) -> None:
        self.store = SqliteStore(folder / "knowledge.db", embedder=embedder)

    def add(self, texts: Mapping[str, str]) -> None:
        self.store.add([Record(text, id=id) for id, text in texts.items()])

    def search(self, question: str, limit: int) -> list[str]:
        return [hit.record.id for hit in self.store.search(question, top_k=limit)]

    def ids(self) -> set[str]:
        return {record.id for record in self.store.records()}

    def close(self) -> None:
        self.store.close()


def batches(texts: Mapping[str, str], size: int = 100) -> Iterator[dict[str, str]]:
    items = list(texts.items())
    for start in range(0, len(items), size):
        yield dict(items[start : start + size])


def sizes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measured(open_peer: Open, folder: Path, length: int, count: int) -> dict[str, dict[str, float]]:
    """By side: recall at 10, milliseconds of a search and of an add, bytes."""
    messages, places = conversation(length, facts()[:count])
    texts = {str(message.id): message.text for message in messages if message.text.strip()}
    model = MiniLM()

    def embed(some: Sequence[str]) -> list[list[float]]:
        return [one.vector.tolist() for one in model.embed(list(some))]

    found: dict[str, dict[str, float]] = {}
    opened: dict[str, Side] = {}
    for name in ("ours", "theirs"):
        place = folder / name
        place.mkdir()
        opened[name] = side = Ours(place, model) if name == "ours" else open_peer(place, embed)
        began = time.perf_counter()
        for batch in batches(texts):
            side.add(batch)
        found[name] = {"add_ms": (time.perf_counter() - began) * 1000 / len(texts)}
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    hits = {"ours": 0, "theirs": 0}
    for id, fact in places.items():
        for name, side in opened.items():  # by turns: what disturbs the machine meets both
            began = time.perf_counter()
            answer = side.search(fact.sparsest, 10)
            times[name].append((time.perf_counter() - began) * 1000)
            hits[name] += id in answer
    for name, side in opened.items():
        side.close()
        split = statistics.quantiles(times[name], n=20)
        found[name] |= {"recall": hits[name] / count, "p50": split[9], "p95": split[18], "bytes": sizes(folder / name) / len(texts)}
    return found


def seeded(texts: Sequence[str]) -> list[list[float]]:
    return [one.vector.tolist() for one in Seeded().embed(list(texts))]


def add_for_ever(side: Side, first: int, count: int) -> None:
    """In a process of its own: one text after the other, each said when the store has taken it."""
    for number in range(first, first + count):
        side.add({f"r{number}": f"The harbour master wrote down number {number}, and went home."})
        print(f"r{number}", flush=True)


def kills(script: Path, folder: Path, way: str, count: int) -> dict[str, float]:
    """Acknowledged adds that a new process does not find, after so many kills of processes that were adding."""
    chance = random.Random(7)
    place = folder / f"killed-{way}"
    place.mkdir()
    said: set[str] = set()
    words = [sys.executable, str(script), "--child", way, str(place)]
    for number in range(count):
        child = subprocess.Popen([*words, str(number * 10_000), "10000"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert child.stdout is not None
        for _ in range(chance.randint(5, 25)):
            said.add(child.stdout.readline().strip())
        time.sleep(chance.uniform(0, 0.03))
        child.send_signal(signal.SIGKILL)
        said |= {line.strip() for line in child.stdout.read().splitlines() if line.strip()}
        child.wait()
    said.discard("")
    there = subprocess.run([*words, "ids"], capture_output=True, text=True, check=False)
    found = set(there.stdout.split())
    return {"said": len(said), "lost": len(said - found)}


def syncs(script: Path, folder: Path, way: str, adds: int = 20) -> float | None:
    """Syncs that one acknowledged add asks of the disk; None without `strace`."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    place = folder / f"synced-{way}"
    place.mkdir()
    counted = []
    for turn, many in enumerate((1, 1, 1 + adds)):  # the first makes the store; the difference of the others is what the adds cost
        log = folder / f"{way}-{turn}.strace"
        words = [strace, "-f", "-qq", "-e", "trace=fsync,fdatasync,msync,sync_file_range", "-o", str(log)]
        child = [sys.executable, str(script), "--child", way, str(place), str(turn * 1000), str(many)]
        subprocess.run([*words, *child], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        counted.append(sum("sync(" in line for line in log.read_text().splitlines()))
    return (counted[2] - counted[1]) / adds


def child(open_peer: Open, way: str, folder: Path, words: Sequence[str]) -> None:
    side = Ours(folder, Seeded()) if way == "ours" else open_peer(folder, seeded)
    if words == ["ids"]:
        print("\n".join(side.ids()))
    else:
        add_for_ever(side, int(words[0]), int(words[1]))
    side.close()


def compare_stores(name: str, packages: Sequence[str], open_peer: Open, notes: Sequence[str] = ()) -> None:
    """The main program of a comparison of stores."""
    if sys.argv[1:2] == ["--child"]:
        child(open_peer, sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
        return
    script = Path(sys.argv[0]).resolve()

    def measure(folder: Path, quick: bool) -> Result:
        length, count, killed = (300, 30, 2) if quick else (1000, 200, 6)
        found = measured(open_peer, folder, length, count)
        ours, theirs = found["ours"], found["theirs"]
        rows = [
            Row(f"recall at 10, {count} facts in {length:,} messages, sparsely worded", ours["recall"], theirs["recall"], "more", "%"),
            Row("a search, median", ours["p50"], theirs["p50"], "less", "ms"),
            Row("a search, 95th percentile", ours["p95"], theirs["p95"], "less", "ms"),
            Row("an add in batches of 100, with its embedding", ours["add_ms"], theirs["add_ms"], "less", "ms"),
            Row("kept of a text", ours["bytes"], theirs["bytes"], "less", "bytes"),
        ]
        lost = {way: kills(script, folder, way, killed) for way in ("ours", "theirs")}
        rows.append(Row(f"acknowledged adds lost, {killed} kills", lost["ours"]["lost"], lost["theirs"]["lost"], "less"))
        synced = {way: syncs(script, folder, way) for way in ("ours", "theirs")}
        if synced["ours"] is not None and synced["theirs"] is not None:
            rows.append(Row("syncs to the disk of one acknowledged add", synced["ours"], synced["theirs"]))
        return Result(rows, notes, {"measured": found, "kills": lost})

    measure.__module__ = "__main__"
    compare(name, packages, measure)
