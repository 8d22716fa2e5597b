"""W17: PostgreSQL goes away and comes back while a worker is in a stage: the stage goes on, is committed afterwards, and ran once."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tests.conftest import until
from tests.crash.postgres_server import Server, own_server
from tests.integration.test_workers import put, working
from tests.unit.workflow.support import Agent, linear, output

from holdfast.config.loading import config_from_values
from holdfast.errors import HoldfastError
from holdfast.harness import build
from holdfast.workers.queue_worker import SessionTakenOver
from holdfast.workers.session_queue import SessionQueue
from holdfast.workflow.agent import StageRequest

AWAY = 1.5
"""Seconds: longer than any pause in which somebody looks whether it is to stop."""


@pytest.mark.parametrize("asks", [True, False], ids=["asks whether it is cancelled", "never asks"])
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_stage_that_runs_while_postgresql_restarts_is_committed_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, *, asks: bool
) -> None:
    """W17, W5: also what it keeps meanwhile, and one whose result comes while the server is away."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    begun, back = threading.Event(), threading.Event()

    def slow(request: StageRequest) -> object:
        begun.set()
        while not back.wait(0.02):
            if asks and request.cancelled():
                raise AssertionError("it was broken off")
        request.raw.put("found meanwhile")
        return output("a")

    with own_server() as server:
        agent = Agent({"a": [slow]})
        with build(config_from_values({"session": {"storage_backend": "postgresql", "connection": server.dsn}})) as harness:
            queue = SessionQueue.open(harness.sessions)
            put(harness, queue, agent, linear("a", "b"), "s1")
            with harness.bus.collect() as told, working(harness, queue, agent):
                assert begun.wait(240)
                _away(server, how)
                back.set()  # its result is there before the server is
                time.sleep(AWAY)
                server.start()
                until(lambda: _status(queue, "s1") == "completed")
                until(lambda: queue.left() == 0)
            assert agent.ran == ["a", "b"]
            assert [record.errors for record in queue.store.load("s1").stages.values()] == [(), ()]
    assert [event for event in told if isinstance(event, SessionTakenOver)] == []


def _away(server: Server, how: str) -> None:
    getattr(server, how)()
    time.sleep(AWAY)


def _status(queue: SessionQueue, name: str) -> str | None:
    try:
        return queue.store.load(name).status
    except HoldfastError:  # not back yet
        return None
