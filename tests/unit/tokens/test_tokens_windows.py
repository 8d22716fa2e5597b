"""A model's window: where it comes from, and that it never raises (T3)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.events import Bus, Event
from holdfast.tokens import windows as windows_module
from holdfast.tokens.windows import DEFAULT_WINDOW, Notices, WindowUnknown, find_window


@pytest.fixture(autouse=True)
def _nothing_said_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_module, "_notices", Notices())


@pytest.mark.parametrize(
    ("config", "profile", "window", "source"),
    [
        ({"max_input_tokens": 8000, "context_window": 9000}, {"max_input_tokens": 7}, 8000, "max_input_tokens"),
        ({"context_window": 9000}, {"max_input_tokens": 7}, 9000, "context_window"),
        ({}, {"max_input_tokens": 200_000}, 200_000, "profile"),
        (SimpleNamespace(max_input_tokens=None, context_window=5), None, 5, "context_window"),
        (SimpleNamespace(profile={"max_input_tokens": 77}), None, 77, "profile"),
        ({"max_input_tokens": -1, "context_window": "many"}, {"max_input_tokens": 64}, 64, "profile"),
        ({"max_input_tokens": "128k"}, None, 128_000, "max_input_tokens"),
        ({"max_input_tokens": "200_000"}, None, 200_000, "max_input_tokens"),
        ({"max_input_tokens": "1M"}, None, 1_000_000, "max_input_tokens"),
        ({"max_input_tokens": 4096.0}, None, 4096, "max_input_tokens"),
        ({"max_input_tokens": True}, None, DEFAULT_WINDOW, "default"),
        (None, None, DEFAULT_WINDOW, "default"),
    ],
)
def test_the_window_is_taken_from_the_first_that_says_a_usable_one(config: Any, profile: Any, window: int, source: str) -> None:
    found = find_window(config, profile, bus=Bus())
    assert (found.tokens, found.source) == (window, source)


@pytest.mark.parametrize(
    "bad", [None, 0, -5, "", "x", "8k tokens", float("nan"), float("inf"), -0.5, [], {}, object(), True, "9" * 400, 10**40]
)
def test_a_value_that_is_no_window_is_passed_over(bad: object) -> None:
    assert find_window({"max_input_tokens": bad, "context_window": bad}, {"max_input_tokens": 1234}, bus=Bus()).tokens == 1234
    assert find_window({"name": "m", "max_input_tokens": bad}, bad, bus=Bus()).tokens == DEFAULT_WINDOW


def test_the_default_is_warned_about_once_for_each_model() -> None:
    seen: list[Event] = []
    bus = Bus(seen.append)
    for _ in range(3):
        assert find_window({"name": "a"}, bus=bus).tokens == 8192
        assert find_window({"model": "b"}, bus=bus).tokens == 8192
        assert find_window({"name": "c", "context_window": 10}, bus=bus).tokens == 10
    assert seen == [WindowUnknown(model="a", window=8192), WindowUnknown(model="b", window=8192)]


def test_a_model_object_whose_attributes_fail_has_the_default_window() -> None:
    class Broken:
        @property
        def max_input_tokens(self) -> int:
            raise RuntimeError("not connected")

        @property
        def profile(self) -> object:
            raise ValueError("no")

    assert find_window(Broken(), Broken(), bus=Bus()).tokens == DEFAULT_WINDOW


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
_configs = st.dictionaries(st.sampled_from(["max_input_tokens", "context_window", "name", "model", "profile"]), _values) | _values


@given(_configs, _configs)
def test_nothing_whatever_raises_and_the_window_is_a_positive_whole_number(config: object, profile: object) -> None:
    window = find_window(config, profile, bus=Bus()).tokens
    assert isinstance(window, int)
    assert window >= 1
