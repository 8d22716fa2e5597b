"""The budget adds up, whatever the window (T4)."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.errors import BudgetError, InputError
from holdfast.tokens.budget import PARTS, Budget, Share

windows = st.integers(1, 10_000_000)


def test_8000_tokens_are_split_as_documented() -> None:
    budget = Budget.split(8000)
    assert (budget.system, budget.history, budget.tools_and_response) == (1500, 5000, 1500)
    assert budget.as_dict() == {
        "window": 8000,
        "base": 500,
        "memory": 500,
        "skills": 300,
        "instructions": 200,
        "kept": 3000,
        "buffer": 2000,
        "tool_definitions": 1000,
        "response": 500,
    }


def test_memory_takes_at_most_max_injection_tokens_and_the_buffer_gets_the_rest() -> None:
    budget = Budget.split(128_000)
    assert budget.memory == 2000
    assert budget.buffer == 32_000 + 6000
    assert Budget.split(128_000, None).memory == 8000
    assert Budget.split(8000, 0).memory == 0
    assert Budget.split(8000, 2000).memory == 500


@given(windows, st.none() | st.integers(0, 20_000))
def test_a_split_adds_up_exactly_and_keeps_the_proportion(window: int, most: int | None) -> None:
    budget = Budget.split(window, most)
    assert budget.system + budget.history + budget.tools_and_response == window
    assert budget.input + budget.response == window
    for name, share in PARTS.items():
        tokens = getattr(budget, name)
        assert tokens >= 0
        if name not in ("memory", "buffer"):
            assert abs(tokens - window * share / 8000) < 1
    assert abs(budget.memory - min(window / 16, window if most is None else most)) < 1
    assert abs(budget.memory + budget.buffer - window * 2500 / 8000) < 2


@given(windows, st.dictionaries(st.sampled_from(sorted(PARTS)), st.integers(0, 10_000_000)))
def test_parts_given_by_name_have_exactly_that_size_or_do_not_fit(window: int, parts: dict[str, int]) -> None:
    given_tokens = sum(parts.values())
    if given_tokens > window or (len(parts) == len(PARTS) and given_tokens < window):
        with pytest.raises(BudgetError) as caught:
            Budget.split(window, **parts)
        assert caught.value.needs == parts
        return
    budget = Budget.split(window, **parts)
    assert {name: getattr(budget, name) for name in parts} == parts
    assert sum(getattr(budget, name) for name in PARTS) == window


@given(windows)
def test_the_tree_of_parts_adds_up_at_every_level(window: int) -> None:
    for _, share in Budget.split(window).parts().walk():
        assert not share.parts or sum(part.tokens for part in share.parts) == share.tokens
    leaves = [share.name for _, share in Budget.split(window).parts().walk() if not share.parts]
    assert sorted(leaves) == sorted(PARTS)


def test_the_tree_says_what_belongs_to_what() -> None:
    tree = Budget.split(8000).parts()
    assert [(part.name, part.tokens) for part in tree.parts] == [("system", 1500), ("history", 5000), ("tools and response", 1500)]
    assert tree.parts[1].parts == (Share("kept", 3000), Share("buffer", 2000))


@pytest.mark.parametrize("window", [0, -1, True, 1.5, "8000", None])
def test_what_is_no_window_is_refused(window: object) -> None:
    with pytest.raises(InputError):
        Budget.split(window)  # type: ignore[arg-type]  # that is the point


def test_an_unknown_part_and_a_negative_one_are_refused() -> None:
    with pytest.raises(InputError, match=r"'respnse'.*response"):
        Budget.split(8000, respnse=5)
    with pytest.raises(InputError, match="response"):
        Budget.split(8000, response=-5)


@given(windows, st.sampled_from(sorted(PARTS)), st.integers(-5, 5))
def test_a_budget_that_does_not_add_up_cannot_be_made(window: int, name: str, change: int) -> None:
    assume(change)
    shares = Budget.split(window).as_dict()
    shares[name] += change
    with pytest.raises(InputError):
        Budget(**shares)
