"""How long a search of the SQLite knowledge store takes at 10,000 and 100,000 records, beside peers with the same vectors in the same run.

    python benchmarks/knowledge.py --sizes 10000,100000

Every search begins with embedding the question by the default model. `ours` is the whole search: keywords, vectors, comparison word by
word, reading the records. The peers find the nearest vectors and nothing else: a plain numpy scan, chromadb, and LangGraph's in-memory
store; those that are not installed are named as absent. `start` is a new process from its first line to its first result.

Prints one JSON object; times are milliseconds. Compare inside one run: they depend on the machine and on what else it does.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.parts.knowledge_records import Seeded, questions, talk

from holdfast.knowledge.sqlite import SqliteStore

ROUNDS = 60
START = """
import sys, time
began = time.perf_counter()
sys.path.insert(0, sys.argv[2])
from benchmarks.parts.knowledge_records import Seeded
from holdfast.knowledge.sqlite import SqliteStore
with SqliteStore(sys.argv[1], embedder=Seeded()) as store:
    store.search("what did Bob say about the harbour and the violin?")
    print(time.perf_counter() - began)
"""

Search = Callable[[str], object]


def percentiles(search: Search, asked: Sequence[str]) -> dict[str, float]:
    """p50 and p95 of a warm search, in milliseconds."""
    for question in asked[:3]:
        search(question)
    times = []
    for question in asked:
        began = time.perf_counter()
        search(question)
        times.append((time.perf_counter() - began) * 1000)
    return {"p50": round(float(np.percentile(times, 50)), 2), "p95": round(float(np.percentile(times, 95)), 2)}


def start_of(path: Path) -> float:
    """Seconds from the first line of a new process to its first result, the best of three."""
    command = [sys.executable, "-c", START, str(path), str(Path(__file__).parents[1])]
    return round(min(float(subprocess.run(command, capture_output=True, check=True, text=True).stdout) for _ in range(3)), 3)


def measure(size: int, folder: Path) -> dict[str, Any]:
    """All figures for one size."""
    model, asked = Seeded(), questions(ROUNDS)
    records = list(talk(size))
    path = folder / f"{size}.db"
    with SqliteStore(path, embedder=model) as store:
        began = time.perf_counter()
        store.add(records)
        ingestion = time.perf_counter() - began
        found: dict[str, Any] = {
            "embedding the question": percentiles(lambda question: model.embed([question], question=True), asked),
            "ours": percentiles(store.search, asked),
            "ours, one conversation": percentiles(lambda question: store.search(question, session="talk-7"), asked),
        }
        size_on_disk = store.stats().bytes
    vectors = np.stack([model.embed([record.text])[0].vector for record in records])
    for name, peer in (("numpy scan", _scan), ("chromadb", _chromadb), ("LangGraph InMemoryStore", _in_memory_store)):
        found[name] = _peer(peer, vectors, model, asked)
    scan = found["numpy scan"]["p50"]
    return {
        "milliseconds": found,
        "ours to numpy scan": round(found["ours"]["p50"] / scan, 2),
        "start_seconds": start_of(path),
        "records_per_second_without_embedding": round(size / ingestion),
        "bytes_per_record": round((size_on_disk or 0) / size),
    }


Peer = Callable[[np.ndarray, Seeded], Search | None]


def _peer(peer: Peer, vectors: np.ndarray, model: Seeded, asked: Sequence[str]) -> dict[str, float] | str:
    search = peer(vectors, model)
    return "absent" if search is None else percentiles(search, asked)


def _scan(vectors: np.ndarray, model: Seeded) -> Search:
    def search(question: str) -> object:
        likeness = vectors @ model.embed([question], question=True)[0].vector
        best = np.argpartition(-likeness, 10)[:10]
        return best[np.argsort(-likeness[best])]

    return search


def _chromadb(vectors: np.ndarray, model: Seeded) -> Search | None:
    if find_spec("chromadb") is None:
        return None
    import importlib

    library: Any = importlib.import_module("chromadb")
    collection = library.EphemeralClient().create_collection(f"bench-{len(vectors)}", metadata={"hnsw:space": "cosine"})
    for start in range(0, len(vectors), 5000):
        part = vectors[start : start + 5000]
        collection.add(ids=[str(start + place) for place in range(len(part))], embeddings=part.tolist())
    return lambda question: collection.query(query_embeddings=[model.embed([question], question=True)[0].vector.tolist()], n_results=10)


def _in_memory_store(vectors: np.ndarray, model: Seeded) -> Search | None:
    if find_spec("langgraph") is None:
        return None
    from langgraph.store.memory import InMemoryStore

    known = {f"text {number}": vector for number, vector in enumerate(vectors)}

    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [(known[text] if text in known else model.embed([text], question=True)[0].vector).tolist() for text in texts]

    store = InMemoryStore(index={"dims": vectors.shape[1], "embed": embed, "fields": ["text"]})
    for number in range(len(vectors)):
        store.put(("bench",), str(number), {"text": f"text {number}"})
    return lambda question: store.search(("bench",), query=question, limit=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000", help="numbers of records, with commas between them")
    sizes = [int(size) for size in parser.parse_args().sizes.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps({str(size): measure(size, Path(folder)) for size in sizes}, indent=2))


if __name__ == "__main__":
    main()
