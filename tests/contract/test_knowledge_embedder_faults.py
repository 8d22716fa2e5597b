"""What every knowledge store does when its embedder fails: records are kept and found by words, and the vectors follow (K1, K2, K3, K5).

The MCP adapter has no embedder of its own: that of its server is one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.contract.knowledge_stores import ADAPTERS, Bench, bench_of

from holdfast.errors import StorageError
from holdfast.events import Bus, Event
from holdfast.knowledge.adapters import open_knowledge
from holdfast.knowledge.patience import VectorsWait
from holdfast.knowledge.records import Record
from holdfast.knowledge.store import KnowledgeStore
from holdfast.search.embedding import Embedding
from holdfast.testing.clock import FakeClock

HERON = Record("The staging server is called heron.", id="heron")
CRANE = Record("The backup server is called crane.", id="crane")
ROBIN = Record("Payments are settled every Friday.", id="robin")
LATER = 3600.0  # seconds: longer than any embedder is left alone


class Letters:
    """Embeddings in LangChain's form that count letters, and can fail."""

    def __init__(self) -> None:
        self.up = True
        self.poison = ""
        self.texts: list[str] = []
        self.questions = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if not self.up:
            raise RuntimeError("429 quota of sk-proj-abcdefghijklmnopqrstuvwx is used up")
        self.texts += texts
        return [self._one(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        if not self.up:
            raise RuntimeError("429 quota of sk-proj-abcdefghijklmnopqrstuvwx is used up")
        self.questions += 1
        return self._one(text)

    def _one(self, text: str) -> list[float]:
        found = [float(text.lower().count(chr(ord("a") + place))) for place in range(26)]
        return [float("nan"), *found[1:]] if self.poison and self.poison in text else found


class Own:
    """An embedder of the user's own class, around the same."""

    name, dimension = "own", 26

    def __init__(self, letters: Letters) -> None:
        self._letters = letters

    def embed(self, texts: Sequence[str], *, question: bool = False) -> list[Embedding]:
        made = [self._letters.embed_query(text) for text in texts] if question else self._letters.embed_documents(list(texts))
        return [Embedding(np.array(one, np.float32) / max(1e-6, float(np.linalg.norm(one)))) for one in made]


FORMS: dict[str, Callable[[Letters], Any]] = {"embeddings": lambda letters: letters, "own": Own}


class Watched:
    """A store over an embedder that can fail, a clock, and what was said."""

    def __init__(self, bench: Bench, form: str) -> None:
        self.bench, self.form = bench, form
        self.letters, self.clock = Letters(), FakeClock()
        self.said: list[Event] = []

    def open(self) -> KnowledgeStore:
        bus = Bus()
        bus.subscribe(self.said.append)
        store = open_knowledge(self.bench.source, embedder=FORMS[self.form](self.letters), clock=self.clock, bus=bus, **self.bench.settings)
        return self.bench.opened.enter_context(store)

    @property
    def warnings(self) -> list[VectorsWait]:
        return [event for event in self.said if isinstance(event, VectorsWait)]

    @property
    def embedded(self) -> list[str]:
        return sorted(text for text in self.letters.texts if text.endswith("."))


@pytest.fixture(params=[name for name in ADAPTERS if name != "mcp"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    yield from bench_of(request, tmp_path)


@pytest.fixture(params=list(FORMS))
def watched(request: pytest.FixtureRequest, bench: Bench) -> Watched:
    return Watched(bench, request.param)


def likeness(store: KnowledgeStore, question: str) -> dict[str, float | None]:
    return {hit.record.id: hit.why.sentence for hit in store.search(question)}


def best(store: KnowledgeStore, question: str) -> str:
    return store.search(question, top_k=1)[0].record.id


def test_what_is_added_while_the_embedder_is_away_is_kept_found_by_words_and_embedded_once_it_is_back(watched: Watched) -> None:
    """K1, K2, K5: said once, told by `stats` with how many wait, without secrets; nothing is embedded twice."""
    store = watched.open()
    store.add([HERON])
    watched.letters.up = False
    report = store.add([CRANE, ROBIN])
    assert (report.added, report.embedded) == (2, 0)
    assert best(store, "how is the backup server called?") == "crane"
    assert best(store, "how is the staging server called?") == "heron"
    assert store.search("backup server")[0].why.sentence is None
    assert store.add([CRANE]).unchanged == 1
    (problem,) = store.stats().problems
    assert "429 quota" in problem
    assert "2 records wait" in problem or "2 pieces wait" in problem
    (warning,) = watched.warnings
    assert "sk-proj" not in problem + warning.reason
    assert warning.waits in ("; 2 records wait for vectors", "; 2 pieces wait for vectors")
    watched.letters.up = True
    watched.clock.advance(LATER)
    assert all(found for found in likeness(store, "backup server").values())
    assert store.stats().problems == ()
    assert store.stats().vectors == 3
    assert watched.embedded == sorted(record.text for record in (HERON, CRANE, ROBIN))


def test_a_store_opens_while_its_embedder_is_away(watched: Watched) -> None:
    """K2, K5: what is there is found by its words, what is added waits; opened anew when it is back, the store goes on as before."""
    with watched.open() as store:
        store.add([HERON])
    watched.letters.up = False
    with watched.open() as store:
        assert best(store, "how is the staging server called?") == "heron"
        assert store.add([CRANE]).added == 1
        assert best(store, "how is the backup server called?") == "crane"
        assert store.stats().records == 2
        assert "429 quota" in store.stats().problems[0]
    watched.letters.up = True
    with watched.open() as store:
        assert all(found for found in likeness(store, "backup server").values())
        assert store.stats().problems == ()
    assert watched.embedded == sorted(record.text for record in (HERON, CRANE))


def test_a_store_that_was_opened_without_its_embedder_takes_it_up_when_it_is_back(watched: Watched) -> None:
    """K2, K5: by the next search; nobody has to open anything again."""
    watched.letters.up = False
    store = watched.open()
    store.add([HERON, CRANE])
    assert best(store, "backup server") == "crane"
    watched.letters.up = True
    watched.clock.advance(LATER)
    assert all(found for found in likeness(store, "backup server").values())
    assert store.stats().problems == ()


def test_an_embedder_that_does_not_answer_is_left_alone_for_a_while(watched: Watched) -> None:
    """K2: a search does not wait for it each time."""
    store = watched.open()
    store.add([HERON])
    watched.letters.up = False
    store.search("heron")
    watched.letters.up = True
    asked = watched.letters.questions
    assert best(store, "staging server") == "heron"
    assert watched.letters.questions == asked
    watched.clock.advance(LATER)
    store.search("staging server")
    assert watched.letters.questions == asked + 1


def test_a_text_whose_vector_is_not_finite_is_found_by_its_words_and_the_others_by_meaning(watched: Watched) -> None:
    """K3: one nan is like nothing, and would hide all records; it costs only the text it was given for."""
    store = watched.open()
    watched.letters.poison = "crane"
    report = store.add([HERON, CRANE, ROBIN])
    assert (report.added, report.embedded) == (3, 2)
    found = likeness(store, "which server is the backup?")
    assert (found["heron"] or 0) > 0.5
    assert not found["crane"]
    assert best(store, "backup crane") == "crane"
    assert "not finite" in store.stats().problems[0]
    assert "1 record waits" in store.stats().problems[0] or "1 piece waits" in store.stats().problems[0]
    store.add([Record("Ann likes tea.", id="tea")])
    assert (likeness(store, "tea for Ann")["tea"] or 0) > 0.5, "others go on getting vectors"
    watched.clock.advance(LATER)
    store.search("server")
    assert len(watched.warnings) == 1
    assert watched.embedded.count(HERON.text) == 1
    watched.letters.poison = ""
    watched.clock.advance(LATER)
    store.search("server")
    assert (likeness(store, "backup server")["crane"] or 0) > 0.5
    assert store.stats().problems == ()


def test_a_question_whose_vector_is_not_finite_is_answered_by_words(watched: Watched) -> None:
    """K3: with one warning however often it is asked, and told by `stats` until a question works again."""
    store = watched.open()
    store.add([HERON, CRANE])
    watched.letters.poison = "which"
    for _ in range(3):
        assert best(store, "which server is crane") == "crane"
        assert "not finite" in store.stats().problems[0]
    assert len(watched.warnings) == 1
    assert likeness(store, "the crane server")["crane"] is not None
    assert store.stats().problems == ()


def test_making_all_vectors_anew_keeps_those_there_are_while_the_embedder_is_away(watched: Watched) -> None:
    """K2, K5: it is refused with the embedder's error, and nothing is lost by it."""
    store = watched.open()
    store.add([HERON, CRANE])
    watched.letters.up = False
    with pytest.raises(StorageError, match="429 quota"):
        store.reembed()  # type: ignore[attr-defined]  # all adapters with an embedder have it
    watched.letters.up = True
    watched.clock.advance(LATER)
    assert likeness(store, "crane")["crane"] is not None
    assert watched.embedded == sorted(record.text for record in (HERON, CRANE))
