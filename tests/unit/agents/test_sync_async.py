"""A1: a middleware that is written once works in both ways, and sees what goes wrong behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage

from holdfast.agents.middleware.thread_data import AroundModelCall, AroundToolCall, adrive, drive
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
