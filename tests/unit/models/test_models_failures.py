"""Every provider's failure becomes one kind, one sentence and one hint, without secrets (A15, C3); retries follow the kind."""

from __future__ import annotations

import traceback
from typing import Any, cast

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRequest
from langchain_core.messages import AIMessage, HumanMessage

from holdfast.agents.middleware.base import Pause
from holdfast.agents.middleware.model_calls import Retry, middlewares
from holdfast.errors import (
    CallFailed,
    CallUnavailable,
    ContextOverflow,
    FailureKind,
    HoldfastError,
    LimitExceeded,
    ModelUnavailable,
    StorageError,
)
from holdfast.models.failures import cause_of, ending_of, flaw_of, is_cut, is_retryable, kind_of, retry_after, typed
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import ERRORS, raises

KEY = "sk-never-show-this-0123456789"

KINDS: dict[str, FailureKind] = {
    "overflow": "overflow",
    "rate_limit": "rate_limit",
    "timeout": "timeout",
    "connection": "connection",
    "server": "server",
    "invalid": "invalid",
    "unauthorized": "authentication",
    "forbidden": "permission",
    "not_found": "not_found",
}
RETRYABLE = {"rate_limit", "timeout", "connection", "server"}


class Response:
    """What an HTTP library hands out beside its error."""

    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.status_code = status
        self.headers = headers or {}


class StatusError(Exception):
    """An error of a client library that LangChain does not know: a status and a text are all it has."""

    def __init__(self, message: str, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.response = Response(status, headers)


class ReadTimeout(Exception):
    """Named as in the HTTP libraries, which share no ancestor."""


def test_every_typed_error_of_langchain_has_its_kind() -> None:
    """A15"""
    assert set(KINDS) == set(ERRORS)
    for name, kind in KINDS.items():
        error = typed(ERRORS[name]("said the provider"), model="m")
        assert isinstance(error, CallFailed)
        assert (error.kind, error.retryable) == (kind, kind in RETRYABLE)
        assert error.hint
        assert "'m'" in error.message


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (StatusError("no", 401), "authentication"),
        (StatusError("no", 402), "quota"),
        (StatusError("no", 403), "permission"),
        (StatusError("no", 404), "not_found"),
        (StatusError("no", 408), "timeout"),
        (StatusError("no", 413), "overflow"),
        (StatusError("no", 418), "invalid"),
        (StatusError("slow down", 429), "rate_limit"),
        (StatusError("You exceeded your current quota, check your billing", 429), "quota"),
        (StatusError("overloaded", 529), "server"),
        (StatusError("bad gateway", 502), "server"),
        (StatusError("This model's maximum context length is 8192 tokens", 400), "overflow"),
        (StatusError("input token count exceeds the maximum number of tokens allowed", 400), "overflow"),
        (StatusError("prompt is too long: 210000 tokens > 200000 maximum", 400), "overflow"),
        (StatusError("max_tokens must be positive", 400), "invalid"),
        (TimeoutError("slow"), "timeout"),
        (ReadTimeout(), "timeout"),
        (ConnectionRefusedError("no"), "connection"),
        (ValueError("a defect of a program"), None),
        (LimitExceeded("spent", account="run", kind="tokens", used=2, allowed=1), None),
    ],
)
def test_errors_that_langchain_does_not_know_are_told_by_status_and_words(error: Exception, kind: FailureKind | None) -> None:
    """A15: gateways raise plain errors."""
    assert kind_of(error) == kind


def test_a_full_window_and_a_failed_service_are_told_apart_by_class() -> None:
    assert isinstance(typed(StatusError("maximum context length", 400)), ContextOverflow)
    assert not isinstance(typed(StatusError("maximum context length", 400)), ModelUnavailable)
    assert isinstance(typed(StatusError("no", 503)), CallUnavailable)
    assert isinstance(typed(StatusError("no", 503)), ModelUnavailable)


def test_what_a_provider_says_of_a_refused_key_is_not_repeated_even_shortened() -> None:
    """C3: some show the first and last letters of the key."""
    assert "wxyz" not in str(typed(StatusError("Incorrect API key provided: abcd****wxyz", 401)))


def test_an_error_of_ours_stays_what_it_is() -> None:
    ours = StorageError("full.")
    assert typed(ours) is ours
    twice = typed(StatusError("no", 503), model="m")
    assert typed(twice) is twice


def test_what_no_rule_knows_is_still_one_clear_line() -> None:
    error = typed(ValueError("first line\nsecond line"), model="m")
    assert isinstance(error, CallFailed)
    assert error.kind == "unknown"
    assert "ValueError: first line second line" in str(error)


@pytest.mark.parametrize(
    ("headers", "seconds", "again"),
    [
        ({}, None, True),
        ({"retry-after": "2"}, 2.0, True),
        ({"retry-after-ms": "1500"}, 1.5, True),
        ({"retry-after": "60"}, 60.0, True),
        ({"retry-after": "61"}, 61.0, False),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None, True),
        ({"retry-after": "-5"}, None, True),
        ({"retry-after": "inf"}, None, True),
        ({"retry-after": "nan"}, None, True),
    ],
)
def test_a_server_that_asks_for_too_long_a_wait_is_not_waited_for(headers: dict[str, str], seconds: float | None, again: bool) -> None:
    error = StatusError("slow down", 429, headers)
    assert retry_after(error) == seconds
    assert is_retryable(error) is again


def test_pauses_grow_and_are_no_shorter_than_the_server_asked_for() -> None:
    request, slow = cast("ModelRequest[Any]", object()), StatusError("slow down", 429, {"retry-after": "2"})
    work = Retry(times=2, first_delay=1.0).around_model(request)
    pauses = []
    for _ in range(2):
        assert next(work) is request
        pauses.append(work.throw(slow))
    assert all(isinstance(pause, Pause) for pause in pauses)
    assert 2.75 <= pauses[0].seconds <= 3.25
    assert 3.5 <= pauses[1].seconds <= 4.5
    assert next(work) is request
    with pytest.raises(StatusError):  # asked as often as it may be
        work.throw(slow)


@given(st.text(max_size=80), st.sampled_from([400, 401, 403, 404, 422, 429, 500, 503]), st.text(max_size=80))
def test_no_text_of_a_provider_carries_a_key_through(before: str, status: int, after: str) -> None:
    """C3"""
    for secret in (KEY, "a plain word as key"):
        error = StatusError(f"{before} {secret} {after}", status)
        ours = typed(error, model="m", secrets=[secret])
        ours.__cause__, ours.__suppress_context__ = cause_of(error, [secret]), True
        shown = "".join(traceback.format_exception(ours))
        assert secret not in shown
        assert "\n" not in str(ours)
        assert len(str(ours)) < 700


def ask(*steps: Any, retries: int = 2, fallbacks: tuple[Any, ...] = ()) -> tuple[str, int]:
    """One turn of a real agent; the answer and how often its own model was asked."""
    model = ScriptedModel(list(steps))
    agent = create_agent(model, [], middleware=middlewares(["m"], retries=retries, fallbacks=fallbacks, first_delay=0.0))
    try:
        state = agent.invoke({"messages": [HumanMessage("hello")]})
    except HoldfastError as error:
        return f"{type(error).__name__}: {getattr(error, 'kind', '')}", len(model.requests)
    return str(state["messages"][-1].text), len(model.requests)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_an_agent_asks_again_exactly_for_what_may_pass(name: str) -> None:
    """A15"""
    answer, asked = ask(raises(name), "Hello.")
    if KINDS[name] in RETRYABLE:
        assert (answer, asked) == ("Hello.", 2)
    else:
        assert asked == 1
        assert answer.endswith(KINDS[name])


def test_when_all_retries_fail_the_error_is_raised_and_not_answered() -> None:
    """A15: LangChain's own default would make the error text the model's answer."""
    assert ask(*[raises("server")] * 3) == ("CallUnavailable: server", 3)
    assert ask(raises("server"), retries=0) == ("CallUnavailable: server", 1)


def test_the_fallback_answers_with_the_same_request() -> None:
    other = ScriptedModel(["From the other."])
    assert ask(raises("not_found"), fallbacks=(other,)) == ("From the other.", 1)
    assert [message.text for message in other.requests[0].messages] == ["hello"]


def test_a_defect_in_a_program_is_not_dressed_up_as_a_failure_of_the_model() -> None:
    model = ScriptedModel([raises(ZeroDivisionError("a defect"))])
    agent = create_agent(model, [], middleware=middlewares(["m"], first_delay=0.0))
    with pytest.raises(ZeroDivisionError):
        agent.invoke({"messages": [HumanMessage("hello")]})
    assert len(model.requests) == 1


def test_a_limit_that_is_used_up_ends_the_run_at_once() -> None:
    """T5"""
    other = ScriptedModel(["From the other."])
    spent = raises(LimitExceeded("spent.", account="run", kind="tokens", used=2, allowed=1))
    assert ask(spent, fallbacks=(other,))[0].startswith("LimitExceeded")
    assert other.requests == ()


@pytest.mark.parametrize(
    "ending",
    [
        {"finish_reason": "length"},
        {"finish_reason": "MAX_TOKENS"},
        {"finish_reason": "model_length"},
        {"stop_reason": "max_tokens"},
        {"done_reason": "length"},
        {"incomplete_details": {"reason": "max_output_tokens"}},
    ],
)
def test_an_answer_that_was_cut_is_known_however_its_provider_says_so(ending: dict[str, Any]) -> None:
    """S15, A15: the summarizer and the stages are told by the same words."""
    cut = AIMessage("The tower is", response_metadata=ending)
    assert is_cut(cut) and flaw_of(cut) == "was cut at the limit of its tokens"
    whole = AIMessage("The tower is tall.", response_metadata={"finish_reason": "stop", "incomplete_details": None})
    assert not is_cut(whole) and flaw_of(whole) is None


ASKED: Any = None  # the request, which nobody reads here


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"message": "Overloaded", "type": "overloaded_error"}, "server"),
        ({"message": "slow down", "type": "rate_limit_error"}, "rate_limit"),
        ({"message": "nobody has a word for it"}, "unknown"),
        ("plain words", "unknown"),
        ({"message": "bad gateway", "code": "502"}, "server"),
    ],
)
def test_an_error_in_the_middle_of_a_stream_has_its_kind_without_a_status(body: Any, kind: FailureKind) -> None:
    """A1: no error of a provider's client leaves as one that should not happen."""
    error = openai.APIError("words", ASKED, body=body)
    assert kind_of(error) == kind
    assert isinstance(typed(error, model="m"), CallFailed)


def test_what_a_provider_says_and_our_hint_are_sentences_of_their_own() -> None:
    error = openai.APIError("words", ASKED, body={"message": "scripted error", "code": 500})
    assert "scripted error. Try again later" in str(typed(error))


@pytest.mark.parametrize(
    ("message", "ending"),
    [
        (AIMessage("Half", response_metadata={"finish_reason": "lengthlength"}), "cut"),
        (AIMessage("", response_metadata={"stop_reason": "refusal"}), "filtered"),
        (AIMessage("", response_metadata={"finish_reason": "SAFETY"}), "filtered"),
        (AIMessage("", additional_kwargs={"refusal": "I cannot."}), "filtered"),
        (AIMessage(" \n"), "empty"),
        (AIMessage([{"type": "reasoning", "reasoning": "hm"}]), "empty"),
        (AIMessage([{"type": "image", "url": "x"}]), None),
        (AIMessage("", tool_calls=[{"name": "a", "args": {}, "id": "1"}], response_metadata={"finish_reason": "length"}), None),
        (AIMessage("All of it.", response_metadata={"finish_reason": "stop"}), None),
    ],
)
def test_it_is_known_how_an_answer_ended_that_is_no_whole_one(message: AIMessage, ending: str | None) -> None:
    """A13"""
    assert ending_of(message) == ending
