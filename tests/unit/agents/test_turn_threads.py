"""A turn's thread is free when its end is told; a tool that never returns keeps neither a turn nor a process from ending (A5, A10)."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.agents.turn import LoopThread, TurnRunner, WorkerThreads
from holdfast.talk import Ended, Token, TurnEvent

STUCK = """
import sys, threading
from langchain_core.tools import tool
from holdfast.agents.lead import make_lead_agent
from holdfast.config.loading import config_from_values
from holdfast.talk import ToolCalled
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import call

begun = threading.Event()

@tool
def stuck() -> str:
    "Never returns."
    begun.set()
    threading.Event().wait()
    return ""

model = ScriptedModel([[call("stuck")]], profile={"max_input_tokens": 8000})
with make_lead_agent(config_from_values({}, environ={"HOLDFAST_HOME": sys.argv[1]}), model=model, tools=[stuck]) as agent:
    talk = agent.conversation("t")
    def stop():
        begun.wait()
        talk.cancel()
    threading.Thread(target=stop).start()
    for event in talk.send("go"):
        pass
print("over")
"""


def test_a_process_ends_after_a_turn_was_cancelled_whatever_its_tool_does(tmp_path: Path) -> None:
    """A10: before, Python waited for the thread of the tool, for ever. (Then this test runs into its limit.)"""
    ended = subprocess.run([sys.executable, "-c", STUCK, str(tmp_path)], capture_output=True, text=True, timeout=240, check=True)
    assert ended.stdout == "over\n"


def test_who_hears_of_the_end_of_a_turn_may_begin_the_next_one_at_once(tmp_path: Path) -> None:
    """A14, O3: before, the end was told while the turn held its thread, and a client that sent its next message at once was refused."""

    async def work(tell: Callable[[TurnEvent], None]) -> TurnEvent:
        tell(Token("well"))
        return Ended("completed", "well")

    async def failing(tell: Callable[[TurnEvent], None]) -> TurnEvent:
        raise ValueError("no")

    loop = LoopThread()
    runner, other = (TurnRunner("t", tmp_path, loop) for _ in range(2))
    try:
        for _ in range(200):
            for event in runner.watch(work):
                if isinstance(event, Ended):
                    with other.alone():  # Locked, if it is still held
                        pass
            with pytest.raises(ValueError, match="no"):
                next(runner.watch(failing))
            with other.alone():
                pass
    finally:
        loop.close()


def test_the_pool_does_what_it_is_given_with_as_many_threads_as_it_may() -> None:
    pool, gate = WorkerThreads(3, "test"), threading.Barrier(3)
    assert sorted(future.result() for future in [pool.submit(gate.wait, 60) for _ in range(3)]) == [0, 1, 2], "three at the same moment"
    assert sorted(future.result() for future in [pool.submit(pow, number, 2) for number in range(200)]) == [n * n for n in range(200)]
    with pytest.raises(ZeroDivisionError):
        pool.submit(divmod, 1, 0).result()
    held, begun = threading.Event(), threading.Barrier(4)
    busy = [pool.submit(lambda: (begun.wait(240), held.wait(240))) for _ in range(3)]
    begun.wait(240)
    late = pool.submit(pow, 2, 2)
    pool.shutdown(wait=False, cancel_futures=True)
    held.set()
    assert all(future.result()[1] for future in busy)
    assert late.cancelled()
    with pytest.raises(RuntimeError):
        pool.submit(pow, 2, 2)
    pool.shutdown()
