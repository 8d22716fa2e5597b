"""Any LangChain `VectorStore`, any embedder, a knowledge store of the user's own: by configuration, over real parts (K1-K6, C2, C3, W1)."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from typer.testing import CliRunner

from holdfast.app.main import app
from holdfast.config.loading import config_from_values, load_config
from holdfast.errors import ConfigError, InputError, StoreUnavailable
from holdfast.events import Bus, Event
from holdfast.forgetting import forget_text
from holdfast.harness import Harness
from holdfast.knowledge.adapters import of_vector_store, open_knowledge
from holdfast.knowledge.base import VectorsUnused
from holdfast.knowledge.langchain_store import LangChainStore
from holdfast.knowledge.patience import VectorsWait
from holdfast.knowledge.records import Record
from holdfast.knowledge.sqlite import SqliteStore
from holdfast.knowledge.store import KnowledgeStore
from holdfast.knowledge.vector_store import VectorSource
from holdfast.search.embedding import Embedding
from holdfast.testing.clock import FakeClock

NOTES = [
    Record("My puppy was ill last week.", id="dog", tags=("pets",), time=datetime(2026, 5, 4, tzinfo=UTC)),
    Record("The invoice is due on Friday.", id="invoice", tags=("money",), time=datetime(2026, 6, 4, tzinfo=UTC)),
    Record("The roof of the barn leaks.", id="roof"),
]
DOWN = {"now": False}


class Letters:
    """An embedder that counts letters."""

    dimension = 26

    def __init__(self, name: str = "letters") -> None:
        self.name = name
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str], *, question: bool = False) -> list[Embedding]:
        self.texts += texts
        return [Embedding(self._one(text.lower())) for text in texts]

    def _one(self, text: str) -> Any:
        found = np.array([text.count(chr(ord("a") + place)) for place in range(self.dimension)], np.float32)
        return found / max(float(np.linalg.norm(found)), 1e-6)


class Shorter(Letters):
    dimension = 20


class LettersOfOthers(Embeddings):
    """Embeddings in LangChain's form, that may cost money."""

    def __init__(self, model: str = "one") -> None:
        self.model = model
        self.asked = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked += len(texts)
        return [Letters()._one(text.lower()).tolist() for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


class Moody(InMemoryVectorStore):
    """A vector store that may be out of reach."""

    contents: ClassVar[dict[str, Any]] = {}

    def __init__(self, embedding: Embeddings, collection_name: str = "") -> None:
        super().__init__(embedding)
        self.store = self.contents.setdefault(collection_name, {})

    def add_texts(self, *args: Any, **kwargs: Any) -> list[str]:
        self._look()
        return super().add_texts(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> None:
        self._look()
        super().delete(*args, **kwargs)

    def similarity_search_by_vector(self, *args: Any, **kwargs: Any) -> list[Document]:
        self._look()
        return super().similarity_search_by_vector(*args, **kwargs)

    def _look(self) -> None:
        if DOWN["now"]:
            raise ConnectionError("the server at vectors.example sk-proj-A8fk29dkLs93mdkq02lfPqz71Xy is away")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    DOWN["now"] = False
    Moody.contents.clear()
    yield
    Moody.contents.clear()


def moody(path: Path, embedder: Any = None, **more: Any) -> LangChainStore:
    return LangChainStore(path, VectorSource(f"{__name__}:Moody"), embedder=embedder or Letters(), **more)


def ids(store: KnowledgeStore, question: str, **more: Any) -> list[str]:
    return [hit.record.id for hit in store.search(question, **more)]


# What others put into a vector store


@pytest.mark.parametrize("use", ["chroma", "qdrant"])
def test_a_collection_that_somebody_else_filled_is_searched_as_it_is(tmp_path: Path, use: str) -> None:
    """K2: a LangChain store filled by another program: found, ranked, filtered, read and forgotten by id."""
    from langchain_chroma import Chroma
    from langchain_qdrant import QdrantVectorStore
    from qdrant_client import QdrantClient

    texts = [note.text for note in NOTES]
    said: list[dict[Any, Any]] = [
        {"tags": "pets, home", "date": "2026-05-04", "source": "a.md"},
        {"created_at": "2026-06-04T10:00:00Z"},
        {"page": 3},
    ]
    keys = [f"00000000-0000-0000-0000-00000000000{number}" for number in range(3)]
    if use == "chroma":
        Chroma("docs", LettersOfOthers(), str(tmp_path / "v")).add_texts(texts, metadatas=said, ids=keys)
    else:
        other = QdrantVectorStore.construct_instance(
            LettersOfOthers(), client_options={"path": str(tmp_path / "v")}, collection_name="docs"
        )
        other.add_texts(texts, metadatas=said, ids=keys)
        other.client.close()
        assert isinstance(other.client, QdrantClient)
    with open_knowledge(
        tmp_path / "side.db", adapter="langchain", use=use, dsn=str(tmp_path / "v"), collection="docs", embedder=LettersOfOthers()
    ) as store:
        best = store.search("my puppy was ill")[0]
        assert (best.record.text, best.record.source, best.record.id) == (texts[0], "a.md", keys[0])
        assert set(best.record.tags) == {"pets", "home"}
        assert best.why.words
        assert (best.why.sentence or 0) > 0.5
        assert ids(store, "my puppy was ill", tags=["pets"]) == [keys[0]]
        assert ids(store, "puppy invoice roof", after=datetime(2026, 6, 1, tzinfo=UTC)) == [keys[1]]
        found = store.get(keys[2])
        assert found is not None
        assert found.extra["page"] == 3
        store.add([Record("The puppy is called Rex.", id="rex")])
        assert set(ids(store, "which puppy was ill")) >= {"rex", keys[0]}
        assert store.stats().records == 1, "only what is listed here is counted"
        assert store.forget([keys[0]]) == 1
        assert store.get(keys[0]) is None
        assert keys[0] not in ids(store, "my puppy was ill")
        assert store.forget_text("roof of the barn") == [keys[2]]


def test_an_open_vector_store_is_searched_without_any_file(tmp_path: Path) -> None:
    """K2, P2: the object itself is enough to search; adding needs a file for the records, and says so."""
    made = InMemoryVectorStore(LettersOfOthers())
    made.add_texts([note.text for note in NOTES], ids=["a", "b", "c"])
    with open_knowledge(made) as store:
        assert ids(store, "the invoice is due", top_k=1) == ["b"]
        with pytest.raises(InputError, match="path"):
            store.add(NOTES)
    with open_knowledge(made, path=str(tmp_path / "side.db")) as store:
        store.add([Record("A goat ate the fence.", id="goat")])
        assert ids(store, "goat at the fence", top_k=1) == ["goat"]
    assert any("goat" in document.page_content for document in made.similarity_search("goat ate the fence", k=5))
    with pytest.raises(InputError, match="no knowledge store"):
        open_knowledge(object())  # type: ignore[arg-type]


def test_what_is_shared_is_found_by_another_machine_and_what_is_not_stays_here(tmp_path: Path) -> None:
    """K2: `share_text` puts the records themselves into the vector store; without it there are vectors and keys alone."""
    with moody(tmp_path / "one.db", share_text=True) as store:
        store.add(NOTES)
    with moody(tmp_path / "two.db", share_text=True) as other:
        assert other.search("my puppy was ill")[0].record == NOTES[0]
        assert ids(other, "puppy", tags=["money"]) == ["invoice"]
    Moody.contents.clear()
    with moody(tmp_path / "three.db") as store:
        store.add(NOTES)
    assert "puppy" not in repr(Moody.contents)
    with moody(tmp_path / "four.db") as other:
        assert other.search("my puppy was ill") == []


# When something is not there


def test_a_vector_store_out_of_reach_loses_nothing_and_the_vectors_follow(tmp_path: Path) -> None:
    """K1, K2: added and found by words meanwhile, said once without secrets, told to `stats`; afterwards everything is as it should be."""
    clock, bus = FakeClock(), Bus()
    said: list[Any] = []
    bus.subscribe(said.append)
    with moody(tmp_path / "side.db", clock=clock, bus=bus) as store:
        store.add(NOTES[:1])
        DOWN["now"] = True
        report = store.add(NOTES[1:])
        assert (report.added, report.embedded) == (2, 0)
        assert ids(store, "invoice", top_k=1) == ["invoice"]
        store.add([Record("One more.", id="more")])
        assert [type(event) for event in said] == [VectorsWait]
        (problem,) = store.stats().problems
        assert "ConnectionError" in problem
        assert "3 pieces wait" in problem
        assert "sk-proj" not in problem + str(said)
        with pytest.raises(StoreUnavailable, match="told again"):
            store.forget(["dog"])
        assert store.get("dog") is None
        DOWN["now"] = False
        assert store.search("invoice")[0].why.sentence is None, "it is left alone for a while"
        clock.advance(3600)
        assert (store.search("invoice")[0].why.sentence or 0) > 0
        assert store.stats().problems == ()
        assert store.stats().vectors == 3
    (collection,) = Moody.contents.values()
    assert len(collection) == 3, "the vectors of what was forgotten are gone too"


def test_a_process_killed_between_the_two_stores_leaves_nothing_undone(tmp_path: Path) -> None:
    """K1, K5: records are durable before their vectors are asked for; the next process puts those that are missing."""
    script = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.integration import test_vector_stores as t
from holdfast.knowledge.vector_store import OutsideVectors
OutsideVectors.put = lambda self, pieces: os.kill(os.getpid(), signal.SIGKILL)
t.LangChainStore({str(tmp_path / "side.db")!r}, t.VectorSource("qdrant", base=t.Path({str(tmp_path)!r})), embedder=t.Letters()).add(t.NOTES)
"""
    killed = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, timeout=240)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    with LangChainStore(tmp_path / "side.db", VectorSource("qdrant", base=tmp_path), embedder=Letters()) as store:
        assert {record.id for record in store.records()} == {"dog", "invoice", "roof"}
        assert store.stats().vectors == 3
        assert (store.search("my puppy was ill")[0].why.sentence or 0) > 0.8


def test_a_vector_store_that_lost_everything_is_noticed(tmp_path: Path) -> None:
    """K2, O7: restored without it, or one that keeps nothing: words still find, and `stats` says what to do."""
    with moody(tmp_path / "side.db") as store:
        store.add(NOTES)
    Moody.contents.clear()
    with moody(tmp_path / "side.db") as store:
        assert ids(store, "invoice", top_k=1) == ["invoice"]
        assert "none of the 3 vectors" in store.stats().problems[0]
        assert store.reembed() == 3
        assert store.stats().problems == ()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"use": "langchain_milvus:Milvus"}, "langchain_milvus"),
        ({"use": "langchain_chroma:Chrom"}, "Chroma"),
        ({"use": "langchain_chroma:Chroma", "arguments": {"folder": "x"}}, "knowledge.arguments"),
        ({"use": "qdrant", "arguments": {"client": {"use": "qdrant_client:QdrantClent"}}}, "QdrantClient"),
        ({"use": "json:dumps"}, "embedding"),
        ({}, "chroma, qdrant"),
    ],
)
def test_a_store_that_cannot_be_made_is_one_clear_message(tmp_path: Path, settings: dict[str, Any], told: str) -> None:
    """Bad input (K1, K2): a missing package, a misspelt class, arguments that do not fit. An `add` that raises has kept nothing."""
    with open_knowledge(tmp_path / "side.db", adapter="langchain", embedder=Letters(), **settings) as store:
        with pytest.raises(ConfigError, match="knowledge") as caught:
            store.add(NOTES)
        assert told in str(caught.value)
        assert list(store.records()) == []


# Embedders


@pytest.mark.parametrize("use", ["chroma", "qdrant", "moody"])
def test_vectors_of_another_embedder_are_never_mixed_and_made_anew_on_request(tmp_path: Path, use: str) -> None:
    """K2, K3: the store says so, searches by words meanwhile, and re-embeds when it is asked to; nothing of the old is left."""
    source = VectorSource(f"{__name__}:Moody") if use == "moody" else VectorSource(use, base=tmp_path)
    with LangChainStore(tmp_path / "side.db", source, embedder=Letters()) as store:
        store.add(NOTES)
        old = store._ledger.form
    other = Shorter("shorter")
    told: list[Event] = []
    with LangChainStore(tmp_path / "side.db", source, embedder=other, bus=Bus(told.append)) as store:
        store.add([Record("A goat ate the fence.", id="goat")])
        assert store.search("my puppy was ill")[0].why.sentence is None
        (problem,) = store.stats().problems
        assert [event.reason for event in told if isinstance(event, VectorsUnused)] == [problem]
        assert "letters" in problem
        assert "holdfast knowledge reembed" in problem
        assert other.texts == [], "nothing is embedded that nobody asked for"
        seen: list[tuple[int, int | None]] = []
        assert store.reembed(progress=lambda done, total: seen.append((done, total))) == 4
        assert seen[-1] == (4, 4)
        assert store.stats().problems == ()
        assert store.search("a goat ate the fence")[0].why.sentence == pytest.approx(1, abs=0.02)
        assert old is not None
        assert store._vectors(old).nearest([1.0] * 26, "x", 10) == [], "the old vectors are gone"
        assert store.reembed() == 4, "it can be done again"
        assert store.stats().vectors == 4


def test_an_embedder_of_another_size_than_the_collection_says_so(tmp_path: Path) -> None:
    """Bad input (K3): the collection was made for 26 numbers. One message, records are kept, words find them."""
    arguments: dict[str, Any] = {"adapter": "langchain", "use": "qdrant", "dsn": str(tmp_path / "v"), "collection": "mine"}
    with open_knowledge(tmp_path / "one.db", embedder=Letters(), **arguments) as store:
        store.add(NOTES)
    with open_knowledge(tmp_path / "two.db", embedder=Shorter("shorter"), **arguments) as store:
        store.add(NOTES)
        (problem,) = store.stats().problems
        assert "26 dimensions" in problem
        assert ids(store, "invoice", top_k=1) == ["invoice"]


@pytest.mark.parametrize("adapter", ["sqlite", "markdown", "postgres"])
def test_an_embedder_that_may_cost_money_re_embeds_on_request_in_every_store(
    request: pytest.FixtureRequest, tmp_path: Path, adapter: str
) -> None:
    """K2, K3: other vectors are neither mixed nor made anew by a mere search."""
    place = request.getfixturevalue("postgres") if adapter == "postgres" else str(tmp_path / ("k.db" if adapter == "sqlite" else "notes"))
    settings: dict[str, Any] = {"adapter": adapter, "collection": "reembed"}
    with open_knowledge(place, embedder=LettersOfOthers("one"), **settings) as store:
        store.add(NOTES)
    second = LettersOfOthers("two")
    told: list[Event] = []
    with open_knowledge(place, embedder=second, bus=Bus(told.append), **settings) as store:
        store.add([Record("A goat ate the fence.", id="goat")])
        assert ids(store, "invoice", top_k=1) == ["invoice"]
        assert store.search("invoice")[0].why.sentence is None
        (unused,) = [event for event in told if isinstance(event, VectorsUnused)]
        assert "holdfast knowledge reembed" in unused.reason, "said once, by the first search"
        assert any("reembed" in problem for problem in store.stats().problems)
        assert second.asked <= 1, "its size is asked for, and no text is embedded"
        assert store.reembed() >= 4  # type: ignore[attr-defined]
        assert store.stats().problems == ()
        assert (store.search("a goat ate the fence")[0].why.sentence or 0) > 0.9
    with open_knowledge(place, embedder=second, **settings) as store:
        before = second.asked
        assert (store.search("a goat ate the fence")[0].why.sentence or 0) > 0.9
        assert second.asked <= before + 2, "only its size and the question"


@dataclass
class EmbeddingServer:
    """Speaks the OpenAI embeddings protocol on this machine, and remembers what it was asked."""

    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    mood: str = "good"
    url: str = ""


@pytest.fixture
def embedding_server() -> Iterator[EmbeddingServer]:
    server = EmbeddingServer()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.requests.append({"path": self.path, **asked})
            server.keys.append(self.headers["Authorization"])
            texts = asked["input"] if isinstance(asked["input"], list) else [asked["input"]]
            size = asked.get("dimensions", 26)
            data = [
                {"object": "embedding", "index": place, "embedding": (Letters()._one(text.lower()).tolist() + [0.0] * size)[:size]}
                for place, text in enumerate(texts)
            ]
            body = {"object": "list", "model": asked["model"], "data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}}
            if server.mood == "short":
                body["data"] = data[:-1]
            if server.mood == "away":
                body = {"error": {"message": "overloaded", "type": "error"}}
            raw = json.dumps(body).encode()
            self.send_response(400 if server.mood == "away" else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    server.url = f"http://127.0.0.1:{listening.server_address[1]}/v1"
    yield server
    listening.shutdown()
    listening.server_close()


def test_text_embedding_3_large_is_a_setting(tmp_path: Path, embedding_server: EmbeddingServer) -> None:
    """K2, K3, C3: `provider:model` with its settings; the request names the model and the size, the key comes from the environment."""
    file = tmp_path / "config.yaml"
    file.write_text(
        f"""
knowledge:
  adapter: langchain
  use: langchain_chroma:Chroma
  arguments: {{persist_directory: "{{base}}/vectors"}}
  embedder:
    use: openai:text-embedding-3-large
    base_url: {embedding_server.url}
    api_key: $EMBEDDING_KEY
    dimensions: 64
"""
    )
    config = load_config(file, environ={"EMBEDDING_KEY": "sk-secret-key-of-the-server"})
    with open_knowledge(config) as store:
        store.add(NOTES)
        assert ids(store, "my puppy was ill", top_k=1) == ["dog"]
        assert (store.search("my puppy was ill")[0].why.sentence or 0) > 0.8
    assert (config.base / "vectors").is_dir()
    sent = embedding_server.requests[-1]
    assert (sent["path"], sent["model"], sent["dimensions"]) == ("/v1/embeddings", "text-embedding-3-large", 64)
    texts = [text for request in embedding_server.requests for text in request["input"]]
    assert NOTES[0].text in texts, "words are sent, not numbers of a vocabulary"
    assert set(embedding_server.keys) == {"Bearer sk-secret-key-of-the-server"}
    assert "sk-secret" not in repr(config)


@pytest.mark.parametrize("mood", ["short", "away"])
def test_an_embedder_that_fails_or_answers_nonsense_is_one_clear_message(
    tmp_path: Path, embedding_server: EmbeddingServer, mood: str
) -> None:
    """Bad input (K3): every store keeps the records and waits; `stats` names the embedder, without its key."""
    wanted = {"use": "openai:m", "base_url": embedding_server.url, "api_key": "sk-secret-key-of-the-server", "max_retries": 0}
    vectors: dict[str, Any] = {"adapter": "langchain", "use": "qdrant", "dsn": str(tmp_path / "v")}
    plain: dict[str, Any] = {}
    for path, settings in (("k.db", plain), ("notes", plain), ("side.db", vectors)):
        embedding_server.mood = "good"
        with open_knowledge(tmp_path / path, embedder=wanted, **settings) as store:
            store.add(NOTES[:1])
            embedding_server.mood = mood
            assert store.add(NOTES).added == 2
            (problem,) = store.stats().problems
            assert "openai:m" in problem
            assert "sk-secret" not in problem
            assert ids(store, "the roof of the barn", top_k=1) == ["roof"]


@pytest.mark.parametrize("name", ["cohere:embed-english-v3.0", "openai:text-embedding-3-large", "nosuch.module:Thing"])
def test_an_embedder_that_cannot_be_made_names_the_setting(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Bad input (K3): no package, no key, no such class."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"knowledge\.embedder"):
        open_knowledge(tmp_path / "k.db", embedder=name)


# By configuration


class OwnStore(SqliteStore):
    """A store of the user's own."""

    def __init__(self, file: str) -> None:
        super().__init__(file, embedder=None)


def test_forgetting_everywhere_reaches_a_vector_store_and_a_store_of_the_users_own(tmp_path: Path) -> None:
    """M14, K2: `holdfast memory forget --text` and every adapter."""
    for number, section in enumerate(
        [{"adapter": "langchain", "use": "chroma"}, {"adapter": f"{__name__}:OwnStore", "arguments": {"file": str(tmp_path / "own.db")}}]
    ):
        config = config_from_values({"knowledge": section}, environ={"HOLDFAST_HOME": str(tmp_path / str(number))})
        with open_knowledge(config) as store:
            store.add([*NOTES, Record("She lives in Elm Street 5.", id="elm")])
        with Harness(config) as harness:
            done = forget_text(harness, "elm street 5")
            assert done.left == []
        with open_knowledge(config) as store:
            assert {record.id for record in store.records()} == {"dog", "invoice", "roof"}


class NoStore:
    def __init__(self, file: str) -> None:
        self.file = file


def test_a_class_of_the_users_own_is_the_store(tmp_path: Path) -> None:
    """K2: `adapter` may be a class path; what is no store, or cannot be made, is refused by name."""
    settings = {"adapter": f"{__name__}:OwnStore", "arguments": {"file": str(tmp_path / "own.db")}}
    with open_knowledge(config_from_values({"knowledge": settings})) as store:
        assert isinstance(store, OwnStore)
        store.add(NOTES)
    with pytest.raises(ConfigError, match="lacks add, search"):
        open_knowledge(config_from_values({"knowledge": {**settings, "adapter": f"{__name__}:NoStore"}}))
    with pytest.raises(ConfigError, match="could not be made"):
        open_knowledge(config_from_values({"knowledge": {**settings, "arguments": {}}}))


@pytest.mark.parametrize("provider", ["chroma", "qdrant"])
def test_a_session_sets_its_vector_store_in_the_references_form(tmp_path: Path, provider: str) -> None:
    """W1, K2: `session.vector_store` with a provider that is a vector store; without a connection it is a folder in the base."""
    file = tmp_path / "config.yaml"
    file.write_text(f"session: {{vector_store: {{provider: {provider}, collection: session_memories}}}}\nknowledge: {{embedder: minilm}}\n")
    config = load_config(file)
    section = of_vector_store(config).knowledge
    assert (section.adapter, section.use, section.collection) == ("langchain", provider, "session_memories")
    with open_knowledge(config) as store:
        store.add(NOTES)
        assert ids(store, "health of the dog", top_k=1) == ["dog"]
    assert (config.base / provider).is_dir()


def test_the_commands_work_on_a_vector_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K1, K2, K6, O1: add, search, export, stats, reembed, forget and eval, with a configuration alone."""
    file = tmp_path / "config.yaml"
    file.write_text("knowledge: {adapter: langchain, use: chroma}\n")
    monkeypatch.setenv("HOLDFAST_CONFIG", str(file))
    runner = CliRunner()

    def run(*words: str) -> Any:
        ran = runner.invoke(app, [*words, "--json"])
        assert ran.exit_code == 0, ran.output
        return json.loads(ran.stdout)

    run("knowledge", "add", "My puppy was ill last week.", "--tag", "pets")
    assert run("knowledge", "search", "health of the dog", "--tag", "pets")["hits"][0]["reasons"]["sentence"] > 0.3
    assert run("knowledge", "stats")["adapter"] == "langchain"
    assert run("knowledge", "reembed")["embedded"] == 1
    assert run("knowledge", "export", str(tmp_path / "out.jsonl"))["records"] == 1
    assert len(run("knowledge", "forget", "--text", "puppy", "--yes")["ids"]) == 1
    data = tmp_path / "questions.jsonl"
    turns = [{"id": f"t{number}", "speaker": "Ann", "text": note.text} for number, note in enumerate(NOTES)]
    data.write_text(
        json.dumps(
            {
                "id": "c",
                "evidence_unit": "turn",
                "sessions": [{"id": "s", "date": "8 May 2026", "turns": turns}],
                "questions": [{"id": "q", "text": "Who was ill?", "date": "", "type": "single", "evidence": ["t0"]}],
            }
        )
    )
    measured = run("eval", "recall", "--data", str(data), "--adapter", "langchain")
    assert measured["adapter"] == "langchain"
    assert math.isclose(measured["overall"]["R@5"], 100)
    assert run("knowledge", "stats")["records"] == 0, "the configured store was not touched"


def test_a_foreign_dotenv_says_nothing_to_a_vector_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C1, K2: Chroma would make an object of any class that a `.env` in the working directory names."""
    (tmp_path / ".env").write_text("CHROMA_API_IMPL=subprocess.Popen\nCHROMA_SYSDB_IMPL=subprocess.Popen\nIS_PERSISTENT=false\n")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "config.yaml"
    file.write_text("knowledge: {adapter: langchain, use: chroma, embedder: minilm}\n")
    with open_knowledge(load_config(file)) as store:
        store.add(NOTES)
        assert ids(store, "health of the dog", top_k=1) == ["dog"]
