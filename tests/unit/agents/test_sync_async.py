"""A1: a middleware that is written once works in both ways, and sees what goes wrong behind it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage

from holdfast.agents.middleware.base import AWAY, AroundModelCall, AroundToolCall, Pause, adrive, drive
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import call, raises


def work(log: list[str]) -> Generator[Any, Any, str]:
    try:
        first = yield "one"
        second = yield first + 1
    except ValueError as error:
        log.append(f"caught {error}")
        second = yield "instead"
    finally:
        log.append("closed")
    return f"got {second}"


def answer(want: Any) -> int:
    if want == 2:
        raise ValueError("no")
    return 1 if want == "one" else 9


async def later(want: Any) -> int:
    await asyncio.sleep(0)
    return answer(want)


def test_what_is_raised_outside_arrives_inside() -> None:
    log: list[str] = []
    assert drive(work(log), answer) == "got 9"
    assert asyncio.run(adrive(work(log), later)) == "got 9"
    assert log == ["caught no", "closed"] * 2


async def test_a_cancellation_goes_through_the_work_and_out_again() -> None:
    log: list[str] = []
    task = asyncio.create_task(adrive(work(log), lambda want: asyncio.sleep(60)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["closed"]


def wandering(threads: list[str]) -> Generator[Any, Any, str]:
    threads.append(threading.current_thread().name)
    yield Pause(0.001)
    threads.append(threading.current_thread().name)
    yield AWAY
    threads.append(threading.current_thread().name)
    try:
        yield "asked"
    finally:
        threads.append(threading.current_thread().name)
    return "done"


async def test_work_goes_on_in_a_thread_from_where_it_says_so_and_only_for_async_callers() -> None:
    here, threads = threading.current_thread().name, list[str]()
    assert drive(wandering(threads), answer) == "done"
    assert threads == [here] * 4
    threads.clear()
    assert await adrive(wandering(threads), later) == "done"
    assert threads[:2] == [here, here]
    assert here not in threads[2:]


async def test_who_cancels_does_not_wait_for_a_thread() -> None:
    here, threads = threading.current_thread().name, list[str]()
    asked = asyncio.Event()

    async def never(want: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(adrive(wandering(threads), never))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert threads[3:] == [here]


class Watch(AroundModelCall, AroundToolCall):
    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []

    def around_model(self, request: Any) -> Generator[Any, Any, Any]:
        try:
            response = yield request
        except RuntimeError as error:
            self.log.append(f"model: {error}")
            return AIMessage("mended")
        self.log.append("model")
        return response

    def around_tool(self, request: Any) -> Generator[Any, Any, Any]:
        result = yield request
        self.log.append(f"tool: {result.content}")
        return result


def probe() -> str:
    """Looks."""
    return "seen"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_one_generator_surrounds_calls_in_both_ways(asynchronous: bool) -> None:
    watch = Watch()
    agent = create_agent(ScriptedModel([call("probe"), raises(RuntimeError("down"))]), [probe], middleware=[watch])
    given: Any = {"messages": [HumanMessage("go")]}
    state = asyncio.run(agent.ainvoke(given)) if asynchronous else agent.invoke(given)
    assert watch.log == ["model", "tool: seen", "model: down"]
    assert state["messages"][-1].text == "mended"
