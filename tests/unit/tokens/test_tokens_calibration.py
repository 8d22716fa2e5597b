"""Counts are corrected by the usage that the provider reports, and a report may shrink the room, never enlarge it (T1)."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from holdfast.events import Bus, line_of
from holdfast.tokens.windows import HELD_SECONDS, Calibration, ReportNotBelieved, RequestsTruncated, WindowLearned, start_of


def usage(tokens: int) -> dict[str, int]:
    return {"input_tokens": tokens, "output_tokens": 5, "total_tokens": tokens + 5}


def grow(calibration: Calibration, truth: float, *, to: int = 8000, step: int = 400) -> None:
    """A conversation that grows, and a server that reports what it truly read."""
    for counted in range(step, to + 1, step):
        calibration.observe("m", counted, usage(round(counted * truth)), thread="t")


def test_a_model_without_reports_is_not_corrected() -> None:
    calibration = Calibration()
    assert calibration.factor("m") == 1.0
    assert calibration.corrected("m", 1234) == calibration.room("m", 1234) == 1234
    assert calibration.window("m", 8192) == 8192


@pytest.mark.parametrize("truth", [1.0, 1.1, 1.42, 2.0, 2.9])
def test_what_the_server_counts_more_is_learned_and_stays(truth: float) -> None:
    calibration = Calibration()
    grow(calibration, truth)
    assert calibration.corrected("m", 8000) == pytest.approx(8000 * truth, rel=0.02)
    assert calibration.room("m", 8000) == pytest.approx(8000 / truth, rel=0.09)
    assert calibration.room("m", 8000) <= 8000 / truth + 1
    assert calibration.factor("other") == 1.0


@pytest.mark.parametrize("share", [0.0, 0.1, 0.49, 0.5, 0.7, 0.99])
def test_a_report_of_less_than_we_count_enlarges_nothing(share: float) -> None:
    calibration = Calibration(Bus())
    for _ in range(50):
        calibration.observe("m", 5000, usage(round(5000 * share)))
    assert calibration.factor("m") == 1.0
    assert calibration.room("m", 8192) == 8192


def test_a_factor_never_falls() -> None:
    calibration = Calibration()
    for reported in (7000, 7000, *[3000] * 40):
        calibration.observe("m", 5000, reported)
    assert calibration.corrected("m", 5000) >= 7000 - 1


def test_a_usual_correction_is_learned_within_three_reports() -> None:
    calibration = Calibration()
    for _ in range(3):
        calibration.observe("m", 5000, usage(7000))
    assert calibration.corrected("m", 5000) == pytest.approx(7000, rel=0.01)


@pytest.mark.parametrize("odd", [1, 50, 14_000, 500_000, 50_000_000])
@pytest.mark.parametrize("before", [1, 10])
def test_one_odd_report_raises_the_factor_by_at_most_a_quarter(odd: int, before: int) -> None:
    calibration = Calibration(Bus())
    for _ in range(before):
        calibration.observe("m", 5000, usage(5000))
    calibration.observe("m", 5000, usage(odd))
    for _ in range(6):
        calibration.observe("m", 5000, usage(5000))
    assert 1 <= calibration.factor("m") <= 1.25


@pytest.mark.parametrize("reported", [100, 2499, 15_601 + 1, 99_999])
def test_a_report_outside_half_and_three_times_is_not_believed_and_said_once(reported: int) -> None:
    bus = Bus()
    calibration = Calibration(bus)
    with bus.collect() as seen:
        for _ in range(5):
            calibration.observe("m", 5000, usage(reported))
        calibration.observe("other", 5000, usage(5000))
    (event,) = seen
    assert isinstance(event, ReportNotBelieved)
    assert (event.model, event.counted, event.reported) == ("m", 5000, reported)
    assert "not used" in line_of(event)
    assert (calibration.factor("m"), calibration.reports("m")) == (1.0, 0)


def test_what_a_server_adds_to_every_request_is_an_amount_and_not_a_factor() -> None:
    """A chat template or instructions for tools: 400 tokens more for a request of 300 are not twice as many for one of 30,000."""
    calibration = Calibration()
    for counted in (300, 500, 2000, 8000):
        calibration.observe("m", counted, usage(counted + 400))
    assert calibration.factor("m") == 1.0
    assert calibration.corrected("m", 30_000) == 30_400
    assert calibration.room("m", 30_400) == 30_000


@pytest.mark.parametrize(
    "nothing",
    [None, 0, -3, {}, {"input_tokens": 0, "output_tokens": 0}, {"input_tokens": None}, float("nan"), True, "many", AIMessage("x")],
)
def test_an_absent_zero_or_senseless_report_changes_nothing(nothing: object) -> None:
    calibration = Calibration()
    calibration.observe("m", 1000, nothing)
    calibration.observe("m", 0, usage(500))
    assert (calibration.factor("m"), calibration.reports("m")) == (1.0, 0)


@pytest.mark.parametrize(
    "report",
    [
        {"input_tokens": 100, "cache_read_input_tokens": 1200, "cache_creation_input_tokens": 100, "output_tokens": 5},  # Anthropic
        {"prompt_tokens": 1400, "prompt_tokens_details": {"cached_tokens": 1200}},  # OpenAI: a part of the prompt
        {"prompt_tokens": 200, "prompt_tokens_details": {"cached_tokens": 1200}},  # a server that reports the rest alone
        AIMessage(
            "x",
            usage_metadata={"input_tokens": 1400, "output_tokens": 5, "total_tokens": 1405, "input_token_details": {"cache_read": 1200}},
        ),
    ],
)
def test_cached_tokens_are_added_back_where_the_usage_names_them(report: object) -> None:
    calibration = Calibration()
    calibration.observe("m", 1000, usage(1000))
    for _ in range(3):
        calibration.observe("m", 1000, report)
    assert calibration.factor("m") == pytest.approx(1.4)
    assert calibration.reports("m") == 4


@pytest.mark.parametrize("step", [80, 260, 800])
@pytest.mark.parametrize("jitter", [0, 150])
def test_a_report_that_stands_still_while_the_request_grows_is_a_window(step: int, jitter: int) -> None:
    """Some servers cut at exactly their window, some at the message before it."""
    bus = Bus()
    calibration = Calibration(bus)
    cut = 0
    with bus.collect() as seen:
        for number, counted in enumerate(range(step, 8000, step)):
            reported = min(counted, 4096 - (number * 37 % jitter if jitter else 0))
            cut += reported < counted
            calibration.observe("m", counted, usage(reported), thread="t")
            if seen:
                break
    (event,) = seen
    assert isinstance(event, RequestsTruncated)
    assert 3900 <= event.window <= 4096
    assert cut <= max(3, 600 // step + 1), "at the first sign"
    assert calibration.window("m", 8192) == event.window
    assert calibration.window("m", 2000) == 2000


def test_a_window_far_smaller_than_was_said_is_found_after_a_long_paste() -> None:
    """A server that was started with its usual 4,096 tokens, and a configuration that says 131,072."""
    calibration = Calibration(Bus())
    for counted in (400, 900, 1500, 20_000, 20_600):
        calibration.observe("m", counted, usage(min(counted, 4096)), thread="t")
    assert calibration.window("m", 131_072) == 4096


@pytest.mark.parametrize("fixed", [10, 1500])
@pytest.mark.parametrize("step", [60, 700, 1500])
@pytest.mark.parametrize("block", [1, 128, 1024])
def test_a_server_that_reports_only_what_was_not_cached_is_not_taken_for_one_that_cuts(fixed: int, step: int, block: int) -> None:
    calibration, cached = Calibration(Bus()), 0
    for turn in range(1, 40):
        counted = fixed + turn * step
        calibration.observe("m", counted, usage(counted - cached), thread="t")
        cached = counted // block * block
    assert calibration.window("m", 8192) == 8192
    assert calibration.room("m", 8192) > 8192 * 0.9


def test_conversations_are_told_apart() -> None:
    """A longer one of cheaper text is no sign."""
    calibration = Calibration(Bus())
    for turn in range(1, 30):
        calibration.observe("m", turn * 100, usage(turn * 100), thread="a")
        calibration.observe("m", turn * 150, usage(turn * 100), thread="b")
    assert calibration.window("m", 8192) == 8192


def test_a_refusal_says_that_a_model_counts_more_or_reads_less() -> None:
    """S10: which of the two, the reports show; one refusal far below the window is not believed."""
    silent, reporting, strange = Calibration(), Calibration(), Calibration()
    silent.refused("m", 5000, 8000)
    assert silent.room("m", 8000) < 5001
    assert silent.window("m", 8000) == 8000
    grow(reporting, 1.0, to=5000)
    reporting.refused("m", 5000, 8000)
    assert (reporting.factor("m"), reporting.window("m", 8000)) == (1.0, 5000)
    strange.refused("m", 300, 8000)
    assert (strange.factor("m"), strange.window("m", 8000)) == (1.0, 8000)
    strange.refused("m", 300, 8000)
    assert strange.window("m", 8000) == 2000, "never less than a quarter of what it is said to read"


class Watch:
    """A clock that is set by hand."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_refusal_is_believed_for_half_an_hour_and_said_when_it_begins() -> None:
    """S10, O2: what one request taught does not stand for ever, and whoever reads the log sees it."""
    bus, watch = Bus(), Watch()
    calibration = Calibration(bus, now=watch)
    grow(calibration, 1.0, to=3000)
    with bus.collect() as seen:
        calibration.refused("m", 5000, 8000)
        calibration.refused("m", 5000, 8000)
    (event,) = [event for event in seen if isinstance(event, WindowLearned)]
    assert (event.counted, event.window, event.said, event.level) == (5000, 5000, 8000, logging.WARNING)
    watch.seconds = HELD_SECONDS - 1
    assert (calibration.window("m", 8000), calibration.learned("m", 8000)) == (5000, 5000)
    watch.seconds = 2 * HELD_SECONDS
    assert (calibration.window("m", 8000), calibration.learned("m", 8000), calibration.factor("m")) == (8000, None, 1.0)


def test_the_window_that_a_refusal_names_is_taken() -> None:
    """S10: at the first refusal, and without a guess."""
    calibration = Calibration(Bus())
    calibration.refused("m", 9000, 131_072, named=4096)
    assert (calibration.window("m", 131_072), calibration.factor("m")) == (4096, 1.0)
    more = Calibration(Bus())
    more.refused("m", 6000, 8192, named=8192, sent=9000)
    assert (more.window("m", 8192), more.factor("m")) == (8192, 1.5), "it has the window that was said, and counts more than we do"


@pytest.mark.parametrize("named", [None, 600, 4000])
def test_no_refusal_makes_a_window_smaller_than_what_the_model_took_before(named: int | None) -> None:
    """S10"""
    calibration = Calibration(Bus())
    grow(calibration, 1.0, to=5000)
    for _ in range(3):
        calibration.refused("m", 900, 8000, named=named)
    assert calibration.window("m", 8000) >= 4800
    assert calibration.room("m", 8000) >= 4800


def test_what_a_refusal_said_is_forgotten_when_the_model_takes_more() -> None:
    """S10"""
    bus = Bus()
    calibration = Calibration(bus)
    calibration.refused("m", 5000, 8000, named=4096)
    assert calibration.window("m", 8000) == 4096
    with bus.collect() as seen:
        calibration.accepted("m", 5000)
    assert calibration.window("m", 8000) == 8000
    assert [type(event).__name__ for event in seen] == ["WindowForgotten"]


@given(
    st.lists(st.tuples(st.integers(1, 20_000), st.none() | st.integers(0, 10**6), st.none() | st.integers(1, 10**6)), max_size=30),
    st.lists(st.integers(1, 8192), max_size=5),
)
def test_whatever_is_refused_a_quarter_of_the_window_is_left_unless_the_model_names_less(
    refusals: list[tuple[int, int | None, int | None]], taken: list[int]
) -> None:
    """S10, T1: nor is less left than what was taken, and never more than what was said."""
    calibration = Calibration(Bus())
    for tokens in taken:
        calibration.observe("m", tokens, tokens)
    for counted, named, sent in refusals:
        calibration.refused("m", counted, 8192, named=named, sent=sent)
    least = min([2048, *(named for _, named, _ in refusals if named is not None and named >= 512)])
    assert max([least, *taken]) <= calibration.window("m", 8192) <= 8192
    assert calibration.factor("m") <= 3


@given(st.lists(st.tuples(st.integers(1, 10**5), st.integers(-5, 10**6), st.sampled_from(["a", "b", None])), max_size=60))
def test_whatever_is_reported_the_room_never_grows(reports: list[tuple[int, int, str | None]]) -> None:
    calibration = Calibration(Bus())
    calibration.observe("m", 200, 200)
    rooms = [8192]
    for counted, reported, thread in reports:
        calibration.observe("m", counted, reported, thread=thread)
        rooms.append(min(calibration.room("m", 8192), calibration.window("m", 8192)))
    assert rooms == sorted(rooms, reverse=True)


@pytest.mark.parametrize(
    ("model", "provider", "expected"),
    [
        ("gpt-4o-mini", "", (1.0, 1.0)),
        ("claude-sonnet-5", "", (1.4, 1.0)),
        ("my-deployment", "anthropic", (1.4, 1.0)),
        ("nobody-knows", "", (1.0, 1.1)),
        ("gpt-4", "", (1.0, 1.1)),
    ],
)
def test_a_model_starts_from_the_factor_of_its_provider_or_with_less_room(model: str, provider: str, expected: tuple[float, float]) -> None:
    assert start_of(model, provider) == expected
