"""mem0 without a model (`infer=False`) beside Holdfast's knowledge store, with the same embedder: see `benchmarks/parts/store_sides.py`.

mem0 as it is installed: its default vector store (Qdrant in a folder) and its default search with its threshold.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.parts.store_sides import DIMENSION, Embed, compare_stores

WHO = {"user_id": "somebody"}


class Peer:
    def __init__(self, folder: Path, embed: Embed) -> None:
        os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": str(folder / "mem0"), "OPENAI_API_KEY": "none: no model is asked"}
        from mem0 import Memory
        from mem0.embeddings.base import EmbeddingBase

        class Same(EmbeddingBase):  # type: ignore[misc]  # of the peer's own environment
            def embed(self, text: str, memory_action: str | None = None) -> list[float]:
                return embed([text])[0]

            def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
                return embed(texts)

        place: dict[str, Any] = {
            "path": str(folder / "qdrant"),
            "on_disk": True,
            "embedding_model_dims": DIMENSION,
            "collection_name": "notes",
        }
        config = {"vector_store": {"provider": "qdrant", "config": place}, "history_db_path": str(folder / "history.db")}
        self.memory = Memory.from_config(config)
        self.memory.embedding_model = Same()

    def add(self, texts: Mapping[str, str]) -> None:
        for id, text in texts.items():
            self.memory.add(text, infer=False, metadata={"name": id}, **WHO)

    def search(self, question: str, limit: int) -> list[str]:
        found = self.memory.search(question, filters=WHO, top_k=limit)["results"]
        return [one["metadata"]["name"] for one in found]

    def ids(self) -> set[str]:
        return {one["metadata"]["name"] for one in self.memory.get_all(filters=WHO, top_k=1_000_000)["results"]}

    def close(self) -> None:
        self.memory.vector_store.client.close()


if __name__ == "__main__":
    compare_stores("mem0", ["mem0ai==2.2.1"], Peer, ["mem0 takes one text at a time where nothing is to be inferred."])
