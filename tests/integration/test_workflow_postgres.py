"""W16, W1: the runner behaves the same over PostgreSQL, and the file that a path asks for is written after each commit, and is an input."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workflow.support import Agent, linear, output

from holdfast.clock import SystemClock
from holdfast.errors import Locked
from holdfast.workflow.agent import StageRequest
from holdfast.workflow.control import approve, cancel
from holdfast.workflow.launcher import Launcher
from holdfast.workflow.run_settings import open_session_store, settings_of


@pytest.fixture
def wanted(postgres: str, tmp_path: Path) -> dict[str, Any]:
    """A session configuration in the form of the reference."""
    return {
        "session": {"storage_backend": "postgresql", "connection": postgres, "checkpoint_interval": 2},
        "memory": {"session_memory": {"persist": True, "path": str(tmp_path / "exports" / "{session_id}.json")}},
    }


def launcher(wanted: dict[str, Any], agent: Agent, **more: Any) -> Launcher:
    return Launcher(config={}, session_config=wanted, agents={"x": agent}, **more)


def test_a_session_in_a_database_halts_is_resumed_and_is_exported(wanted: dict[str, Any], tmp_path: Path) -> None:
    agent = Agent({"b": ["not json"]})
    session = launcher(wanted, agent).run(linear("a", "b", "c", max_repairs=0), session_id="s1")
    file = tmp_path / "exports" / "s1.json"
    assert session.status == "halted"
    assert json.loads(file.read_text("utf-8"))["error"]["raw_output"] == "not json"
    assert launcher(wanted, agent).resume("s1").status == "completed"
    assert agent.ran == ["a", "b", "b", "c"]
    exported = json.loads(file.read_text("utf-8"))
    assert exported["completed_stages"] == ["a", "b", "c"]
    assert "password" not in file.read_text("utf-8")


def test_a_session_in_a_database_is_approved_and_cancelled_from_elsewhere(wanted: dict[str, Any]) -> None:
    running, release = threading.Event(), threading.Event()

    def endless(request: StageRequest) -> object:
        running.set()
        release.wait(240)
        return output("b")

    agent = Agent({"b": [endless]})
    workflow = linear("a", "b")
    workflow["stages"][0]["approve"] = True
    assert launcher(wanted, agent).run(workflow, session_id="s1").status == "paused"
    one = launcher(wanted, agent)
    store = open_session_store(settings_of([one._session_config]), one._config, disk=one.disk, clock=SystemClock())
    approve(store, "s1")
    ended: list[str] = []
    thread = threading.Thread(target=lambda: ended.append(one.resume("s1").status))
    thread.start()
    assert running.wait(240)
    with pytest.raises(Locked):
        launcher(wanted, agent).resume("s1")
    assert cancel(store, "s1", wait=60).status == "cancelled"
    thread.join(240)
    release.set()
    assert ended == ["cancelled"]
    assert launcher(wanted, agent).resume("s1").status == "completed"
    store.close()


def test_what_an_agent_notes_is_found_again_by_whoever_runs_the_stage_next(wanted: dict[str, Any]) -> None:
    """W12, W16: the journal of a stage is kept where the session is."""
    seen: list[Any] = []

    def crawl(request: StageRequest) -> object:
        seen.append([dict(record) for record in request.journal.read()])
        request.journal.append({"page": len(seen)})
        if len(seen) == 1:
            raise ValueError("broken off")
        return output("a")

    agent = Agent({"a": [crawl, crawl]})
    assert launcher(wanted, agent).run(linear("a", retries=0), session_id="s1").status == "halted"
    assert launcher(wanted, agent).resume("s1").status == "completed"
    assert seen == [[], [{"page": 1}]]


def test_with_a_folder_named_each_session_in_a_database_is_exported_to_it(postgres: str, tmp_path: Path) -> None:
    """W1: with PostgreSQL as backend and a path given, the file is an export."""
    wanted = {"session": {"storage_backend": "postgresql", "connection": postgres, "path": str(tmp_path / "out")}}
    agent = Agent({"b": ["not json"]})
    assert launcher(wanted, agent).run(linear("a", "b", max_repairs=0), session_id="s1").status == "halted"
    assert json.loads((tmp_path / "out" / "s1.json").read_text("utf-8"))["completed_stages"] == ["a"]
    assert launcher(wanted, agent).resume("s1").status == "completed"
    assert json.loads((tmp_path / "out" / "s1.json").read_text("utf-8"))["completed_stages"] == ["a", "b"]
    assert launcher(wanted, agent).run(linear("a"), session_id="s2").status == "completed"
    assert sorted(path.name for path in (tmp_path / "out").glob("*.json")) == ["s1.json", "s2.json"]
