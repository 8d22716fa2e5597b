"""LangGraph's `SqliteStore` with an index beside Holdfast's knowledge store, with the same embedder: see `benchmarks/parts/store_sides.py`.

Its index is an extension of SQLite. A Python that was built without loading those gets SQLite from a package, for the peer alone.
"""

from __future__ import annotations

import importlib
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.parts.store_sides import DIMENSION, Embed, compare_stores

SPACE = ("notes",)


class Peer:
    def __init__(self, folder: Path, embed: Embed) -> None:
        if not hasattr(sqlite3.Connection, "enable_load_extension"):
            sys.modules["sqlite3"] = importlib.import_module("pysqlite3")
        from langgraph.store.base import PutOp
        from langgraph.store.sqlite import SqliteStore

        self.put = PutOp
        self.opened = ExitStack()
        index: Any = {"dims": DIMENSION, "embed": embed, "fields": ["text"]}
        self.store = self.opened.enter_context(SqliteStore.from_conn_string(str(folder / "store.db"), index=index))
        self.store.setup()

    def add(self, texts: Mapping[str, str]) -> None:
        self.store.batch([self.put(SPACE, id, {"text": text}) for id, text in texts.items()])

    def search(self, question: str, limit: int) -> list[str]:
        return [item.key for item in self.store.search(SPACE, query=question, limit=limit)]

    def ids(self) -> set[str]:
        return {item.key for item in self.store.search(SPACE, limit=1_000_000)}

    def close(self) -> None:
        self.opened.close()


if __name__ == "__main__":
    compare_stores("langgraph-store", ["langgraph==1.2.20", "langgraph-checkpoint-sqlite==3.1.2", "pysqlite3-binary==0.5.4.post2"], Peer)
