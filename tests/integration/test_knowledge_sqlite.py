"""The SQLite knowledge store with its real embedder: what is embedded when, what is repaired, and what forgetting reaches (K2, K3, K5)."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

import holdfast.knowledge.sqlite as sqlite_store
import holdfast.search.embedding as embedding
from holdfast.errors import Damaged, StorageError
from holdfast.events import Bus
from holdfast.knowledge.base import KeywordsOnly, RerankerMissing
from holdfast.knowledge.records import Record, to_json
from holdfast.knowledge.sqlite import IndexRebuilt, SqliteStore
from holdfast.knowledge.store import stats_to_json
from holdfast.search.embedding import Embedding
from holdfast.search.minilm import MiniLM

ADDING = """
import sys
from holdfast.knowledge.records import Record
from holdfast.knowledge.sqlite import SqliteStore
with SqliteStore(sys.argv[1]) as store:
    for number in range(6):
        store.add([Record("All of them wrote this."), Record(f"Writer {sys.argv[2]} wrote line {number}.")])
"""
NOTES = [
    Record("The staging server is called heron and stands in Frankfurt."),
    Record("Payments are settled every Friday by the finance team."),
    Record("My puppy was ill last week and would not eat."),
]


class Counting(MiniLM):
    """The real model, counting what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str], *, question: bool = False) -> list[Embedding]:
        self.texts += [] if question else texts
        return super().embed(texts, question=question)


class Other(Counting):
    name = "another/form"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "knowledge.db"


def best(store: SqliteStore, question: str) -> str:
    return store.search(question, top_k=1)[0].record.text


def test_nothing_is_embedded_twice(path: Path) -> None:
    model = Counting()
    with SqliteStore(path, embedder=model) as store:
        assert store.add(NOTES).embedded == 3
        assert store.add(NOTES).embedded == 0
        assert store.add([Record(NOTES[0].text, tags=("again",), session="s", position=1)]).embedded == 0
    with SqliteStore(path, embedder=model) as store:
        assert best(store, "health of the dog") == NOTES[2].text
    assert sorted(model.texts) == sorted(record.text for record in NOTES)


def test_the_meaning_of_a_forgotten_text_is_gone_and_that_of_others_stays(path: Path) -> None:
    model = Counting()
    with SqliteStore(path, embedder=model) as store:
        twin = Record(NOTES[0].text, session="s", position=1)
        store.add([*NOTES, twin])
        store.forget([twin.id])
        assert store.stats().vectors == 3, "another record has the same text"
        store.forget([NOTES[0].id])
        assert store.stats().vectors == 2
        model.texts.clear()
        assert store.add([NOTES[1], NOTES[0]]).embedded == 1
        assert model.texts == [NOTES[0].text]


def test_without_the_extra_words_are_searched_and_meaning_comes_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus()
    with monkeypatch.context() as patched, bus.collect() as seen:
        patched.setattr(embedding, "_PARTS", ("no_such_part_of_it",))
        patched.setattr(sqlite_store, "numpy_installed", lambda: False)
        with SqliteStore(path, bus=bus) as store:
            assert store.add(NOTES).embedded == 0
            assert best(store, "who settles payments") == NOTES[1].text
            assert store.search("health of the dog") == []
            store.forget([NOTES[0].id])
            assert store.stats().records == 2
        assert [type(event) for event in seen] == [KeywordsOnly]
    with SqliteStore(path) as store:
        assert best(store, "health of the dog") == NOTES[2].text
        assert store.stats().vectors == 2


def test_an_embedder_can_be_switched_off(path: Path) -> None:
    bus = Bus()
    with bus.collect() as seen, SqliteStore(path, embedder="none", bus=bus) as store:
        store.add(NOTES)
        assert best(store, "who settles payments") == NOTES[1].text
        assert store.search("who settles payments")[0].why.sentence is None
    assert seen == []


@pytest.mark.parametrize(
    "spoiled",
    [
        "UPDATE segments SET body = zeroblob(100)",
        "UPDATE segments SET body = substr(body, 9)",
        "UPDATE segments SET body = CAST(substr(body, 1, length(body) - 1) || x'07' AS BLOB)",
    ],
)
def test_a_damaged_part_of_the_index_is_noticed_said_and_made_again(path: Path, spoiled: str) -> None:
    model, bus = Counting(), Bus()
    with SqliteStore(path, embedder=model) as store:
        store.add(NOTES)
    with sqlite3.connect(path) as connection:
        connection.execute(spoiled)
    connection.close()
    with bus.collect() as seen, SqliteStore(path, embedder=model, bus=bus) as store:
        assert best(store, "staging server") == NOTES[0].text
        assert [type(event) for event in seen] == [IndexRebuilt]
    assert len(model.texts) == 3, "the vectors were still there"


def test_lost_parts_of_the_index_are_made_again(path: Path) -> None:
    with SqliteStore(path) as store:
        store.add(NOTES)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM segments")
        connection.execute("DELETE FROM meanings")
    connection.close()
    with SqliteStore(path) as store:
        assert best(store, "health of the dog") == NOTES[2].text


def test_vectors_of_words_that_are_lost_cost_only_the_comparison_word_by_word(path: Path) -> None:
    with SqliteStore(path) as store:
        store.add(NOTES)
        store.database.execute("UPDATE meanings SET tokens = x'01'")
        assert best(store, "staging server") == NOTES[0].text


def test_another_embedder_makes_the_index_anew(path: Path) -> None:
    first, second = Counting(), Other()
    with SqliteStore(path, embedder=first) as store:
        store.add(NOTES)
    with SqliteStore(path, embedder=second, bus=Bus()) as store:
        assert best(store, "health of the dog") == NOTES[2].text
    assert len(second.texts) == 3


def test_a_file_that_is_no_database_is_named_and_left_alone(path: Path) -> None:
    path.write_bytes(b"this is no database, but somebody's notes " * 100)
    with pytest.raises(Damaged, match=path.name):
        SqliteStore(path)
    assert path.read_bytes().startswith(b"this is no database")


@pytest.mark.parametrize("content", ['{"schema": 1, "id": "k-1', "[]", "7", "{}", "[" * 100_000], ids=lambda content: content[:9])
def test_a_row_that_holds_no_record_is_damage(path: Path, content: str) -> None:
    """K2, P1: said in a sentence, not by an error of the JSON reader."""
    with SqliteStore(path, embedder=None) as store:
        store.add([NOTES[0]])
    database = sqlite3.connect(path)
    with database:
        database.execute("UPDATE records SET record = ?", (content,))
    database.close()
    with SqliteStore(path, embedder=None) as store:
        with pytest.raises(Damaged, match="cannot be read"):
            list(store.records())
        with pytest.raises(Damaged, match="cannot be read"):
            store.search("staging server")


COLUMNS = {
    "records": ("id", "session", "time", "kind", "record", "meaning", "segment"),
    "tags": ("tag",),
    "meanings": ("hash", "vectors", "tokens"),
    "segments": ("form", "records", "checksum", "body"),
}
OF_ANOTHER_TYPE = {"bytes": "x'ff00fe'", "no UTF-8": "CAST(x'61ff62' AS TEXT)", "a text": "'abc'", "a number": "9000000000000000000"}


@pytest.mark.parametrize("value", OF_ANOTHER_TYPE.values(), ids=OF_ANOTHER_TYPE)
@pytest.mark.parametrize(("table", "column"), [(table, column) for table, columns in COLUMNS.items() for column in columns])
def test_a_value_of_another_type_is_damage_with_a_name_or_does_not_matter(path: Path, table: str, column: str, value: str) -> None:
    """K2, P1: SQLite keeps any value in any column. Each command of reading works, or says which file is damaged."""
    note = Record("The staging server is called heron.", tags=("infra",), session="s", time=datetime(2026, 5, 8, tzinfo=UTC), id="k-1")
    with SqliteStore(path) as store:
        store.add([note])
        store.database.execute(f"UPDATE {table} SET {column} = {value}")  # noqa: S608 - names of this test
    readings: list[Callable[[SqliteStore], object]] = [
        lambda store: json.dumps(stats_to_json(store.stats())),
        lambda store: store.get("k-1"),
        lambda store: [json.dumps(to_json(record)) for record in store.records()],
        lambda store: [hit.record for hit in store.search("staging server")],
        lambda store: [hit.record for hit in store.search("staging server", tags=["infra"], session="s")],
    ]
    for read in readings:
        with SqliteStore(path, bus=Bus()) as store:
            try:
                read(store)
            except Damaged as error:
                assert error.path == str(path)
                assert str(path) in str(error)
                assert table in ("records", "tags"), "everything else is made again from these"


def test_a_damaged_meaning_is_made_again_with_its_index(path: Path) -> None:
    with SqliteStore(path) as store:
        store.add(NOTES)
        store.database.execute("UPDATE meanings SET vectors = x'01'")
        store.database.execute("DELETE FROM segments")
    with SqliteStore(path, bus=Bus()) as store:
        assert best(store, "health of the dog") == NOTES[2].text
        assert store.stats().vectors == 3


def test_a_closed_store_says_so(path: Path) -> None:
    store = SqliteStore(path)
    store.close()
    with pytest.raises(StorageError, match="closed"):
        store.search("anything")


def test_a_reranker_that_is_not_there_is_said_once_and_the_ranking_stands(path: Path) -> None:
    bus = Bus()
    with bus.collect() as seen, SqliteStore(path, rerank=True, rerank_model="cross-encoder/none", bus=bus) as store:
        store.add(NOTES)
        assert best(store, "staging server") == NOTES[0].text
        assert best(store, "payments") == NOTES[1].text
        assert any("reranker" in problem for problem in store.stats().problems)
    assert [type(event) for event in seen] == [RerankerMissing]


class Longest:
    """A reranker that likes long texts."""

    def score(self, question: str, texts: Sequence[str]) -> list[float]:
        return [float(len(text)) for text in texts]


def test_a_reranker_decides_the_order_and_is_named_as_the_reason(path: Path) -> None:
    with SqliteStore(path, rerank_model=Longest()) as store:
        store.add(NOTES)
        hits = store.search("staging server", top_k=2)
        assert [len(hit.record.text) for hit in hits] == sorted((len(note.text) for note in NOTES), reverse=True)[:2]
        assert hits[0].why.rerank == len(NOTES[0].text)


def test_many_small_adds_leave_few_parts(path: Path) -> None:
    with SqliteStore(path) as store:
        for number in range(40):
            store.add([Record(f"Entry {number} of the ledger names lot {number * 7}.", session="s", position=number)])
        (parts,) = store.database.execute("SELECT count(*) FROM segments").fetchone()
        assert parts <= 7
        assert best(store, "which entry names lot 140") == "Entry 20 of the ledger names lot 140."


def test_what_is_replaced_is_found_no_more(path: Path) -> None:
    with SqliteStore(path) as store:
        store.add([Record("The key is under the mat.", id="key"), *NOTES])
        store.add([Record("The key hangs in the shed.", id="key")])
        found = store.search("where is the key", top_k=4)
        assert found[0].record.text == "The key hangs in the shed."
        assert not any("mat" in hit.record.text for hit in found)
        store.add([Record("One.", id="twice"), Record("Two.", id="twice")])
        assert store.get("twice") == Record("Two.", id="twice")


def test_four_processes_add_at_once_and_all_is_found(path: Path) -> None:
    SqliteStore(path).close()
    names = ("ann", "bob", "cid", "dora")
    writers = [subprocess.Popen([sys.executable, "-c", ADDING, str(path), name], stderr=subprocess.PIPE) for name in names]
    for writer in writers:
        _, said = writer.communicate(timeout=200)
        assert writer.returncode == 0, said.decode()
    with SqliteStore(path) as store:
        assert store.stats().records == 25
        for name in names:
            found = [hit.record.text for hit in store.search(f"what did writer {name} write", top_k=8)]
            assert sum(f"Writer {name} " in text for text in found) >= 5
        assert store.database.execute("SELECT count(*) FROM records WHERE segment IS NULL").fetchone() == (0,)
        assert store.database.execute("SELECT sum(records) FROM segments").fetchone() == (25,)
