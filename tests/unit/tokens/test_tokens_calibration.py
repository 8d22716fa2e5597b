"""Counts are corrected by the usage that the provider reports, without a clamp (T1)."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from holdfast.tokens.usage import Calibration


def usage(tokens: int) -> dict[str, int]:
    return {"input_tokens": tokens, "output_tokens": 5, "total_tokens": tokens + 5}


def test_a_model_without_reports_is_not_corrected() -> None:
    calibration = Calibration()
    assert calibration.factor("m") == 1.0
    assert calibration.corrected("m", 1234) == calibration.room("m", 1234) == 1234


@pytest.mark.parametrize("truth", [0.2, 0.5, 0.9, 1.0, 1.1, 1.42, 2.0, 4.0, 12.0])
def test_the_factor_reaches_any_truth_and_stays_there(truth: float) -> None:
    calibration = Calibration()
    for _ in range(20):
        calibration.observe("m", 5000, usage(round(5000 * truth)))
    assert calibration.factor("m") == pytest.approx(truth, rel=0.03)
    assert calibration.corrected("m", 1000) == pytest.approx(1000 * truth, rel=0.04)
    assert calibration.room("m", 1000) == pytest.approx(1000 / truth, rel=0.04)
    assert calibration.factor("other") == 1.0


def test_a_usual_correction_is_learned_within_three_reports() -> None:
    calibration = Calibration()
    for _ in range(3):
        calibration.observe("m", 5000, usage(7000))
    assert calibration.factor("m") == pytest.approx(1.4, rel=0.05)


@pytest.mark.parametrize("odd", [1, 50, 500_000, 50_000_000])
@pytest.mark.parametrize("before", [0, 1, 10])
def test_one_odd_report_moves_the_factor_by_at_most_a_quarter(odd: int, before: int) -> None:
    calibration = Calibration()
    for _ in range(before):
        calibration.observe("m", 5000, usage(5000))
    calibration.observe("m", 5000, usage(odd))
    assert 1 / 1.26 <= calibration.factor("m") <= 1.26
    for _ in range(6):
        calibration.observe("m", 5000, usage(5000))
    assert calibration.factor("m") == pytest.approx(1.0, rel=0.04)


def test_noise_is_smoothed() -> None:
    random_source = random.Random(5)
    calibration = Calibration()
    for _ in range(60):
        calibration.observe("m", 4000, usage(round(4000 * 1.3 * random_source.uniform(0.9, 1.1))))
    assert calibration.factor("m") == pytest.approx(1.3, rel=0.08)


def test_small_requests_say_little() -> None:
    """A fixed addition of 400 tokens to a request of 10 is no error of the vocabulary."""
    small, large = Calibration(), Calibration()
    small.observe("m", 10, usage(410))
    large.observe("m", 10_000, usage(12_000))
    assert small.factor("m") < 1.2 < large.factor("m") + 0.01


@pytest.mark.parametrize(
    "nothing",
    [None, 0, -3, {}, {"input_tokens": 0, "output_tokens": 0}, {"input_tokens": None}, float("nan"), True, "many", AIMessage("x")],
)
def test_an_absent_zero_or_senseless_report_changes_nothing(nothing: object) -> None:
    calibration = Calibration()
    calibration.observe("m", 1000, nothing)
    calibration.observe("m", 0, usage(500))
    assert (calibration.factor("m"), calibration.reports("m")) == (1.0, 0)


def test_what_was_read_from_a_cache_is_part_of_the_request() -> None:
    """Anthropic's own form leaves cached tokens out of `input_tokens`; LangChain's holds them."""
    theirs, langchains = Calibration(), Calibration()
    for _ in range(5):
        theirs.observe(
            "m", 1000, {"input_tokens": 100, "cache_read_input_tokens": 800, "cache_creation_input_tokens": 100, "output_tokens": 5}
        )
        langchains.observe(
            "m",
            1000,
            AIMessage(
                "x",
                usage_metadata={"input_tokens": 1000, "output_tokens": 5, "total_tokens": 1005, "input_token_details": {"cache_read": 800}},
            ),
        )
    assert theirs.factor("m") == langchains.factor("m") == 1.0
    assert theirs.reports("m") == 5


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 10**6), st.integers(1, 10**6)), max_size=30))
def test_a_snapshot_is_plain_json_and_brings_everything_back(reports: list[tuple[str, int, int]]) -> None:
    calibration = Calibration()
    for model, counted, reported in reports:
        calibration.observe(model, counted, reported)
    restored = Calibration.restore(json.loads(json.dumps(calibration.snapshot())))
    assert restored.snapshot() == calibration.snapshot()
    for model in "abc":
        assert restored.observe(model, 1000, 1300) == calibration.observe(model, 1000, 1300)


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        [],
        "x",
        {"models": 3},
        {"models": {"m": None}},
        {"models": {"m": {"log_factor": "x"}}},
        {"models": {"m": {"log_factor": float("nan"), "reports": 1}}},
    ],
)
def test_a_damaged_snapshot_is_learned_again(damaged: object) -> None:
    assert Calibration.restore(damaged).factor("m") == 1.0
