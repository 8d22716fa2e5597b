"""W17: `max_concurrent` and `requests_per_minute` hold around every way to call a model, and a call is counted once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from holdfast.config.sections import ModelConfig
from holdfast.models.call_limits import CallLimit, LocalLimiter, kept_by, limited

_COUNTING = threading.Lock()


class Counting(BaseChatModel):
    """A model that notes how many of its calls run at once. `_generate` goes by `_stream`, as classes of providers do."""

    seen: list[int]
    running: list[int]

    @property
    def _llm_type(self) -> str:
        return "counting"

    def _enter(self) -> None:
        with _COUNTING:  # adding to a list's element is no single step, and a lost one would look like a call too many
            self.running[0] += 1
            self.seen.append(self.running[0])
        time.sleep(0.01)
        with _COUNTING:
            self.running[0] -= 1

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        list(self._stream(messages))
        return ChatResult(generations=[ChatGeneration(message=AIMessage("yes"))])

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        self._enter()
        yield ChatGenerationChunk(message=AIMessageChunk(content="yes"))


class Counted(LocalLimiter):
    """Counts the calls that were let through."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    @contextmanager
    def call(self, limit: CallLimit) -> Iterator[None]:
        with super().call(limit):
            self.calls += 1
            yield


def made(**limits: Any) -> Counting:
    model = limited(Counting(seen=[], running=[0]), ModelConfig(name="m", **limits))
    assert isinstance(model, Counting)
    return model


def test_no_more_calls_run_at_once_than_are_allowed_by_any_way_and_each_counts_once() -> None:
    """W17"""
    model, limiter = made(max_concurrent=2), Counted()

    async def ways() -> None:
        async def stream() -> AsyncIterator[Any]:
            async for piece in model.astream("x"):
                yield piece

        async def whole() -> None:
            assert "".join([str(piece.text) async for piece in stream()]) == "yes"

        await asyncio.gather(*(model.ainvoke("x") for _ in range(4)), *(whole() for _ in range(3)))

    with kept_by(limiter):
        threads = [threading.Thread(target=lambda: model.invoke("x")) for _ in range(4)]
        threads += [threading.Thread(target=lambda: list(model.stream("x"))) for _ in range(3)]
        for thread in threads:
            thread.start()
        asyncio.run(ways())
        for thread in threads:
            thread.join(240)
    assert len(model.seen) == 14
    assert max(model.seen) <= 2
    assert limiter.calls == 14


def test_a_model_without_limits_is_left_as_it_is() -> None:
    """W17"""
    model = Counting(seen=[], running=[0])
    assert limited(model, ModelConfig(name="m")) is model
    assert type(model) is Counting


def test_a_call_that_is_cancelled_while_it_waits_gives_its_place_back() -> None:
    """W17: asynchronous callers are cancelled when a turn is."""
    model = made(max_concurrent=1)

    async def cancelled() -> str:
        with _limiter.call(CallLimit("m", 1)):
            waiting = asyncio.ensure_future(model.ainvoke("x"))
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        return str((await asyncio.wait_for(model.ainvoke("x"), 240)).text)

    _limiter = LocalLimiter()
    with kept_by(_limiter):
        assert asyncio.run(cancelled()) == "yes"


@pytest.mark.parametrize("per_minute", [1.0, 6.0, 60.0, 600.0, 6000.0])
def test_burst_and_rate_together_never_allow_more_than_was_said(per_minute: float) -> None:
    """W17: in any minute; and not much less."""
    limit = CallLimit("m", per_minute=per_minute)
    most = limit.burst + limit.rate * 60
    assert most <= max(per_minute, 1.5)
    assert limit.rate * 60 >= per_minute * 0.5


def test_calls_of_a_minute_run_out_and_come_back() -> None:
    """W17"""
    limiter, limit = LocalLimiter(), CallLimit("m", per_minute=1200)  # a burst of 120, then 18 a second
    began, calls = time.monotonic(), 0
    while calls < 125:
        with limiter.call(limit):
            calls += 1
    took = time.monotonic() - began
    assert calls <= limit.burst + limit.rate * took + 1
