"""Results packed to a token budget by value (K4)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.knowledge.base import packed
from holdfast.knowledge.records import Hit, Record, Why
from holdfast.tokens.counter import open_counter

COUNTER = open_counter()


def hit(text: str, *answers: str, words: tuple[str, ...] = ()) -> Hit:
    records = (Record(text), *(Record(answer) for answer in answers))
    return Hit(records[0], 1.0, Why(words=words), records if answers else ())


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 120), min_size=1, max_size=3), max_size=12), st.integers(0, 400))
def test_what_is_packed_fits_keeps_its_order_and_leaves_no_room_for_the_next(sizes: list[list[int]], budget: int) -> None:
    hits = [hit(*("word " * size + f"{place}.{part}" for part, size in enumerate(unit))) for place, unit in enumerate(sizes)]
    chosen = packed(hits, budget, COUNTER)
    total = sum(COUNTER.count_text(one.text) for one in chosen)
    assert total <= budget
    places = [int(one.text.split()[-1].split(".")[0]) for one in chosen]
    assert places == sorted(set(places))
    left_out = [one for place, one in enumerate(hits) if place not in places]
    assert not any(COUNTER.count_text(one.text) <= budget - total and budget - total >= 4 for one in left_out)


def test_everything_is_there_when_everything_fits() -> None:
    hits = [hit("one"), hit("two", "three")]
    assert packed(hits, 1000, COUNTER) == hits


def test_of_a_round_that_is_too_long_the_turn_that_matches_best_is_kept() -> None:
    long = "filler " * 300
    asked = hit("How do bees winter?", f"Cork. {long}", words=("bee", "winter"))
    (kept,) = packed([asked], 50, COUNTER)
    assert kept.text == "How do bees winter?"
    assert "one turn of a longer round" in str(kept.why)
    answered = hit(f"Tell me more. {long}", "Use cork insulation.", words=("cork", "insul"))
    (kept,) = packed([answered], 50, COUNTER)
    assert kept.text == "Use cork insulation."
    middle = hit("Tell me more.", "Use cork insulation.", long, words=("cork", "insul"))
    assert [one.text for one in packed([middle], 50, COUNTER)] == ["Use cork insulation."]


def test_a_long_one_does_not_keep_out_the_short_ones_after_it() -> None:
    assert [one.text for one in packed([hit("long " * 500), hit("short")], 20, COUNTER)] == ["short"]
