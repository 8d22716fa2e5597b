"""S10: what providers say in figures when a request is too long for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import CallFailed
from holdfast.models.failures import kind_of, typed
from holdfast.models.refusals import Refusal, asked_for, read_refusal

SAID = {
    "openai": (
        "This model's maximum context length is 8192 tokens. However, you requested 32120 tokens (50 in the messages, 70 in the functions, "
        "and 32000 in the completion). Please reduce the length of the messages, functions, or completion.",
        Refusal(8192, 120, 32000),
    ),
    "openai, messages alone": (
        "This model's maximum context length is 16,385 tokens. However, your messages resulted in 19,000 tokens.",
        Refusal(16385, 19000, None),
    ),
    "vllm": (
        "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 8192 tokens and your request "
        "has 50 input tokens (32000 > 8192 - 50).",
        Refusal(8192, 50, 32000),
    ),
    "vllm, input": (
        "This model's maximum context length is 8192 tokens. However, your request has 9000 input tokens.",
        Refusal(8192, 9000),
    ),
    "sglang": (
        "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 32050 tokens: 50 tokens "
        "from the input messages and 32000 tokens for the completion.",
        Refusal(8192, 50, 32000),
    ),
    "openrouter": (
        "This endpoint's maximum context length is 8192 tokens. However, you requested about 32050 tokens (50 of text input, 32000 in the "
        "output).",
        Refusal(8192, 50, 32000),
    ),
    "anthropic": ("prompt is too long: 208310 tokens > 200000 maximum", Refusal(200000, 208310)),
    "anthropic, both": (
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again",
        Refusal(200000, 188240, 21333),
    ),
    "llama.cpp": ("request (9000 tokens) exceeds the available context size (8000 tokens), try increasing it", Refusal(8000, 9000)),
    "google": (
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        Refusal(1048576, 1200000),
    ),
    "mistral": (
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        Refusal(32768, 40000),
    ),
    "tgi": (
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 50 `inputs` tokens and 32000 `max_new_tokens`",
        Refusal(4096, 50, 32000),
    ),
    "nothing": ("context_length_exceeded", Refusal()),
}


class StatusError(Exception):
    """What a client library raises."""

    status_code = 400


@pytest.mark.parametrize("who", sorted(SAID))
def test_the_figures_of_a_refusal_are_read(who: str) -> None:
    """S10"""
    text, figures = SAID[who]
    assert read_refusal(text) == figures


@pytest.mark.parametrize(
    ("who", "kind"),
    [(who, "max_tokens" if figures.is_hopeless else "overflow") for who, (_, figures) in sorted(SAID.items())],
)
def test_a_refusal_for_the_answers_sake_is_no_overflow_of_the_request(who: str, kind: str) -> None:
    """S10: whoever asked for the answer is told what it is called, and no window is learned from it."""
    error = StatusError(SAID[who][0])
    assert kind_of(error) == kind
    if kind == "max_tokens":
        told: Any = typed(error, model="small")
        assert isinstance(told, CallFailed) and told.kind == "max_tokens" and "`max_tokens`" in str(told) and not told.retryable


def test_an_answer_that_would_leave_half_of_the_window_is_made_room_for() -> None:
    """S10: of a request that is full of history the history leaves, as it does for any other reason."""
    refused = read_refusal(
        "maximum context length is 8192 tokens. However, you requested 9000 tokens (5000 in the messages, 4000 in the completion)"
    )
    assert refused.is_about_the_answer and not refused.is_hopeless


@pytest.mark.parametrize(
    ("settings", "model", "asked"),
    [
        ({"max_tokens": 77}, SimpleNamespace(max_tokens=5), 77),
        ({"max_completion_tokens": 78}, None, 78),
        ({"extra_body": {"max_tokens": 79}}, SimpleNamespace(max_tokens=5), 79),
        ({}, SimpleNamespace(max_tokens=80), 80),
        ({"max_tokens": True}, SimpleNamespace(max_tokens="many"), None),
    ],
)
def test_how_long_an_answer_is_asked_for_is_in_the_request_or_the_model(settings: dict[str, Any], model: object, asked: int | None) -> None:
    """S10"""
    assert asked_for(settings, model) == asked


@given(st.text(alphabet="0123456789,() >+tokensinthe completion", max_size=300))
def test_whatever_a_refusal_says_it_is_read(text: str) -> None:
    """S10: it is text from outside."""
    read_refusal(text)
