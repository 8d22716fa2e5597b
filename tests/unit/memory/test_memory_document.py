"""The memory document: both spellings of the reference are read, one is written, what is not known survives (M2, O7)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Damaged, StorageError
from holdfast.memory.document import Document, parse, to_json
from holdfast.memory.facts import Fact, Origin

FIXTURES = Path(__file__).parents[2] / "fixtures" / "memory"
SHARED = Path(__file__).parents[4] / "shared" / "reference"
REFERENCE = [
    *FIXTURES.glob("*.json"),
    *(path for path in (SHARED / "memory.json", SHARED / "memory_v2.json") if path.exists()),
]


def load(name: str) -> Any:
    return json.loads((FIXTURES / name).read_text())


def test_plain_strings_are_read_and_written_as_summaries() -> None:
    document = parse(load("plain_strings.json"))
    assert document.slot("workContext").text == "Runs the tide tables of a harbour office"
    assert document.slot("longTermBackground").text == "Sails since childhood"
    assert [fact.id for fact in document.facts] == ["fact-1", "fact-2"]
    written = to_json(document)
    assert "userContext" not in written
    assert written["user"]["topOfMind"] == {"summary": "The new buoy firmware", "updatedAt": ""}


def test_unknown_members_survive_at_every_level() -> None:
    written = to_json(parse(load("with_summaries.json")))
    assert written["plugins"] == {"ours": [1, 2]}
    assert written["user"]["moodOfTheWeek"] == "calm"
    assert written["user"]["workContext"]["author"] == "mia"
    assert written["facts"][1]["team"] == "bakery"
    assert written["facts"][1]["sourceError"] == "booked by bag"


def test_a_fact_of_the_reference_is_written_as_it_was() -> None:
    given = load("with_summaries.json")
    assert to_json(parse(given))["facts"] == given["facts"]


@pytest.mark.parametrize("path", REFERENCE, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_reading_what_was_written_gives_the_same(path: Path) -> None:
    document = parse(json.loads(path.read_text()))
    assert document.facts
    assert parse(to_json(document)) == document
    assert to_json(parse(to_json(document))) == to_json(document)


def test_the_order_of_members_is_one() -> None:
    assert list(to_json(parse(load("with_summaries.json")))) == [
        *("version", "schema", "revision", "lastUpdated", "user", "history", "facts", "plugins")
    ]


def test_the_fuller_of_two_spellings_wins() -> None:
    both = {"user": {"workContext": {"summary": "new"}, "topOfMind": ""}, "userContext": {"workContext": "old", "topOfMind": "old top"}}
    document = parse(both)
    assert (document.slot("workContext").text, document.slot("topOfMind").text) == ("new", "old top")


def test_what_we_add_to_a_fact_survives() -> None:
    fact = Fact(
        "f1",
        "Likes tea",
        "preference",
        0.8,
        "2026-01-01T00:00:00Z",
        "t1",
        Origin("user", "t1", ("m1", "m2"), "I like tea"),
        status="provisional",
        confirmations=3,
        confirmed="2026-02-01T00:00:00Z",
        valid_from="2026-01-01T00:00:00Z",
        replaces=("f0",),
        extra={"team": "x"},
    )
    document = Document(facts=(fact,), revision=7)
    assert parse(json.loads(json.dumps(to_json(document)))).facts == (fact,)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"content": "no id"}, ("no id", 0.5, "context")),
        ("only words", ("only words", 0.5, "context")),
        ({"id": "a", "content": "x", "confidence": "0.8"}, ("x", 0.8, "context")),
        ({"id": "a", "content": "x", "confidence": 7}, ("x", 1.0, "context")),
        ({"id": "a", "content": "x", "confidence": True, "category": None}, ("x", 0.5, "context")),
        ({"id": 12, "content": "x", "confirmationCount": -3}, ("x", 0.5, "context")),
    ],
)
def test_a_fact_that_lacks_something_is_still_a_fact(entry: Any, expected: tuple[str, float, str]) -> None:
    (fact,) = parse({"facts": [entry]}).facts
    assert (fact.content, fact.confidence, fact.category) == expected
    assert fact.id


def test_two_facts_of_one_id_are_kept_apart_and_strange_entries_are_kept() -> None:
    document = parse({"facts": [{"id": "a", "content": "x"}, {"id": "a", "content": "y"}, 17, None]})
    assert [(fact.id, fact.content) for fact in document.facts] == [("a", "x"), ("a-2", "y")]
    assert to_json(document)["strangeFacts"] == [17, None]


@pytest.mark.parametrize("value", [[], "text", None, {"facts": {}}, {"user": []}, {"history": 1}, {"blocks": "x"}])
def test_what_is_no_memory_document_is_damaged(value: Any) -> None:
    with pytest.raises(Damaged):
        parse(value)


def test_a_newer_schema_is_refused_and_not_damaged() -> None:
    with pytest.raises(StorageError, match="newer version") as caught:
        parse({"schema": 99})
    assert not isinstance(caught.value, Damaged)


def test_what_is_no_text_and_where_a_fact_was_learned_survive_a_change() -> None:
    """M2: in a file of the reference that is used in place."""
    source = {"type": "conversation", "threadId": "t9"}
    value = {
        "facts": [
            {"id": "f9", "content": ["a", "b"]},
            {"id": "f3", "content": {"text": "x"}},
            {"id": "f1", "content": "Likes tea", "source": source},
        ]
    }
    document = parse(value)
    assert [(fact.id, fact.source) for fact in document.facts] == [("f1", "t9")]
    again = to_json(parse(to_json(document)))
    assert again["strangeFacts"] == value["facts"][:2]
    assert again["facts"][0]["source"] == source
