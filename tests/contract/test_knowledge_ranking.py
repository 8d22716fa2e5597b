"""One ranking over all adapters: the same records and questions give the same scores, wherever the records are kept (K2, K3)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.knowledge.langchain_store import LangChainStore
from holdfast.knowledge.markdown import MarkdownStore
from holdfast.knowledge.postgres import PostgresStore
from holdfast.knowledge.records import Record
from holdfast.knowledge.sqlite import SqliteStore
from holdfast.knowledge.store import KnowledgeStore
from holdfast.knowledge.vector_store import VectorSource
from holdfast.search.embedding import Embedding

WORDS = ["heron", "herons", "ledger", "quay", "lantern", "orchard", "saddle", "violin", "may", "2024", "gate"]
NOW = datetime(2024, 6, 1, tzinfo=UTC)


class Letters:
    """An embedder that counts letters: quick, and the same everywhere."""

    name = "letters"
    dimension = 26

    def embed(self, texts: Sequence[str], *, question: bool = False) -> list[Embedding]:
        return [self._one(text.lower()) for text in texts]

    def _one(self, text: str) -> Embedding:
        words = tuple(word for word in text.split() if any("a" <= letter <= "z" for letter in word))
        return Embedding(_unit(text), np.stack([_unit(word) for word in words]) if words else np.zeros((0, 26), np.float32), words)


def _unit(text: str) -> Any:
    found = np.zeros(26, np.float32)
    for letter in text:
        if "a" <= letter <= "z":
            found[ord(letter) - ord("a")] += 1
    return found / max(float(np.linalg.norm(found)), 1e-6)


@st.composite
def records(draw: Any) -> list[Record]:
    made = []
    for number in range(draw(st.integers(1, 14))):
        session = draw(st.sampled_from([None, "talk", "talk/two", "chat"]))
        role = draw(st.sampled_from(["person", "assistant"])) if session == "chat" else None
        made.append(
            Record(
                draw(st.sampled_from(["", "", "Always "]))
                + " ".join(draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=50)))
                + draw(st.sampled_from(["", "?"])),
                id=f"r{number}",
                session=session,
                position=number if session else None,
                role=role,
                speaker=draw(st.sampled_from([None, "Ann", "Bob Marsh"])) if role is None else None,
                time=draw(st.one_of(st.none(), st.integers(0, 60).map(lambda days: NOW - timedelta(days=days)))),
                tags=tuple(draw(st.sets(st.sampled_from(["x", "y"])))) if session != "chat" else (),
            )
        )
    return made


QUESTIONS = st.lists(
    st.sampled_from([*WORDS, "Ann", "Bob Marsh's", "lanterns", "orchrad", "nowhere", "last week", "on 8 May 2024"]), min_size=1, max_size=5
).map(" ".join)
FILTERS = st.sampled_from([{}, {"session": "talk"}, {"session": "chat"}, {"tags": ["x"]}, {"after": NOW - timedelta(days=30)}])


def answers(store: KnowledgeStore, question: str, chosen: dict[str, Any]) -> tuple[dict[tuple[str, ...], Any], list[float]]:
    hits = store.search(question, top_k=100, now=NOW, **chosen)
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    found = {tuple(one.id for one in hit.records): (pytest.approx(hit.score, abs=1e-4), hit.why.words) for hit in hits}
    return found, scores


def _vector_stores(folder: str) -> list[tuple[str, VectorSource]]:
    qdrant = VectorSource("qdrant", base=Path(folder))
    return [("qdrant", qdrant), ("memory", VectorSource("langchain_core.vectorstores:InMemoryVectorStore"))]


@pytest.mark.parametrize("vectors", [True, False], ids=["by meaning", "by words"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=records(), question=QUESTIONS, chosen=FILTERS)
def test_every_adapter_gives_the_same_scores(
    postgres: str, vectors: bool, made: list[Record], question: str, chosen: dict[str, Any]
) -> None:
    embedder = Letters() if vectors else None
    with TemporaryDirectory() as folder:
        stores: dict[str, KnowledgeStore] = {
            "sqlite": SqliteStore(Path(folder, "k.db"), embedder=embedder),
            "markdown": MarkdownStore(Path(folder, "notes"), embedder=embedder),
            "postgres": PostgresStore(postgres, collection="ranking", embedder=embedder),
        }
        if embedder is not None:  # a vector store without an embedder is none
            stores |= {
                name: LangChainStore(Path(folder, f"{name}.db"), source, embedder=embedder) for name, source in _vector_stores(folder)
            }
        try:
            found = {}
            for name, store in stores.items():
                store.forget([record.id for record in store.records()])
                store.add(made)
                found[name], _ = answers(store, question, chosen)
            for name in stores:
                assert found[name] == found["sqlite"], name
        finally:
            for store in stores.values():
                store.close()
