"""A persistent chromadb collection beside Holdfast's knowledge store, with the same embedder: see `benchmarks/parts/store_sides.py`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.parts.store_sides import Embed, compare_stores


class Peer:
    def __init__(self, folder: Path, embed: Embed) -> None:
        import chromadb
        from chromadb.config import Settings

        self.embed = embed
        client = chromadb.PersistentClient(str(folder / "chroma"), settings=Settings(anonymized_telemetry=False))
        self.notes: Any = client.get_or_create_collection("notes", metadata={"hnsw:space": "cosine"}, embedding_function=None)

    def add(self, texts: Mapping[str, str]) -> None:
        said = list(texts.values())
        self.notes.add(ids=list(texts), documents=said, embeddings=self.embed(said))

    def search(self, question: str, limit: int) -> list[str]:
        return list(self.notes.query(query_embeddings=self.embed([question]), n_results=limit)["ids"][0])

    def ids(self) -> set[str]:
        return set(self.notes.get(include=[])["ids"])

    def close(self) -> None: ...


if __name__ == "__main__":
    compare_stores("chromadb", ["chromadb==1.5.9"], Peer)
