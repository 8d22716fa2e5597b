"""Standing wishes are told from other talk, and found by questions that do not resemble them (K2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.knowledge.base import analyse
from holdfast.knowledge.records import Record
from holdfast.knowledge.sqlite import SqliteStore
from holdfast.search.pieces import WISH, states_a_wish


@pytest.mark.parametrize(
    "text",
    [
        "Always give the units.",
        "Thanks! Please always answer in one paragraph.",
        "never use tables",
        "From now on call me Kit.",
        "Antworte immer auf Deutsch.",
        "Bitte nenne mir immer die Quelle.",
        "Réponds toujours en français.",
        "Responde siempre con una lista.",
    ],
)
def test_what_is_put_as_an_order_is_a_wish(text: str) -> None:
    """K2: in the languages in which we know how orders are put."""
    assert states_a_wish(text)


@pytest.mark.parametrize("text", ["I always take the bus.", "She had never seen it.", "Wir waren immer dort.", "What is a wish:?", ""])
def test_what_is_told_is_none(text: str) -> None:
    """K2: what somebody does is no order."""
    assert not states_a_wish(text)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", ["\n" * 200_000, " \n" * 100_000, "." * 100_000 + " " * 100_000, '."' * 100_000, "from " * 40_000])
def test_a_text_of_any_shape_is_looked_at_in_one_pass(text: str) -> None:
    """K2: text from outside costs what its length costs."""
    assert not states_a_wish(text)


@pytest.mark.parametrize("text", ["Hello.\n\n  Always give the units.", '"Never use tables"', "Two things:\n\talways cite"])
def test_a_wish_may_begin_a_line(text: str) -> None:
    """K2"""
    assert states_a_wish(text)


def test_only_what_a_person_tells_an_assistant_and_notes_count() -> None:
    """K2: people cheer each other with "Never give up!", and an assistant gives advice."""
    text = "Never give up!"
    made = {
        "note": Record(text),
        "person": Record(text, role="person", speaker="user", session="s", position=0),
        "assistant": Record(text, role="assistant", session="s", position=1),
        "friend": Record(text, speaker="Ann", session="s", position=2),
    }
    assert {name for name, record in made.items() if WISH in analyse(record)[0]} == {"note", "person"}


def test_a_wish_stands_before_what_is_as_far_from_the_question_and_says_so(tmp_path: Path) -> None:
    """K2: one word in common each; the wish is raised, and nothing is found by being a wish alone."""
    wish, other = Record("Always give units with a distance."), Record("Sometimes there was units talk about a distance.")
    with SqliteStore(tmp_path / "k.db", embedder="none") as store:
        store.add([other, wish, *(Record(f"The weather on day {number} was fine.") for number in range(20))])
        first, second = store.search("What is the distance to the moon?", top_k=5)
        assert (first.record, second.record) == (wish, other)
        assert first.why.notes == ("a standing wish",)
        assert second.why.notes == ()
        assert all(hit.record != wish for hit in store.search("Which weather was it?"))
        assert store.search("wish:") == []
