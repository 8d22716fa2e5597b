"""`holdfast prune` removes ended sessions and old sub-agents, and nothing else (A8, O7)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

from holdfast import build
from holdfast.config.loading import config_from_values, load_config
from holdfast.forgetting import prune
from holdfast.memory.service import MemoryService
from holdfast.session.state import Session
from holdfast.testing.models import ScriptedModel
from holdfast.workflow.control import cancel


def pruned(base: Path, *words: str) -> dict[str, Any]:
    file = base.parent / "config.yaml"
    named = {"HOLDFAST_CONFIG": str(file)} if file.exists() else {}
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.app.main", "prune", "--json", "--yes", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "HOLDFAST_HOME": str(base), **named},
        cwd=base.parent,
        check=True,
    )
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def good(request: Any) -> dict[str, Any]:
    return {"stage_name": request.stage.name, "summary": "s", "key_findings": [], "confidence": "high"}


def bad(request: Any) -> str:
    return "no output"


def test_only_what_has_ended_and_is_too_old_goes(tmp_path: Path) -> None:
    base = tmp_path / "base"
    nothing = {
        "dry_run": False,
        "sessions": [],
        "recovery_points": 0,
        "kept": [],
        "subagents": [],
        "memory": {},
        "leftovers": [],
        "unread": {},
    }
    assert pruned(base) == nothing
    harness = build(config_from_values({}, environ={"HOLDFAST_HOME": str(base)}))
    agents = {"good": good, "bad": bad}
    done = harness.run_workflow({"id": "done", "task": "t", "stages": [{"name": "a", "agent_type": "good"}]}, agents=agents)
    halted = harness.run_workflow(
        {"id": "halted", "task": "t", "stages": [{"name": "a", "agent_type": "bad", "max_repairs": 0}]}, agents=agents
    )
    assert (done.status, halted.status) == ("completed", "halted")
    with harness.lead_agent(model=ScriptedModel(["Hello."])) as agent:
        agent.conversation("mine").ask("Hello?")
        agent.parts.threads.note("subagent-old")
    assert pruned(base)["sessions"] == []
    assert pruned(base, "--sessions", "1")["sessions"] == []
    would = pruned(base, "--sessions", "0", "--subagents", "0", "--dry-run")
    assert (would["sessions"], would["subagents"]) == ([done.workflow_id], ["subagent-old"])
    gone = pruned(base, "--sessions", "0", "--subagents", "0")
    assert (gone["sessions"], gone["subagents"]) == ([done.workflow_id], ["subagent-old"])
    assert [brief.workflow_id for brief in harness.sessions.list()] == [halted.workflow_id]
    with harness.lead_agent(model=ScriptedModel([])) as agent:
        assert [info.id for info in agent.parts.threads.all(subagents=True)] == ["mine"]


def test_many_sessions_go_together_those_in_use_stay_and_it_says_how_far_it_is(tmp_path: Path) -> None:
    """O7, O1: more than are removed at once."""
    harness = build(config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path / "base")}))
    store = harness.sessions
    for number in range(60):
        store.create(Session(f"s-{number:02d}", task="t", status="completed"))
    told: list[tuple[int, int]] = []
    other = build(config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path / "base")}))
    with other.sessions.lease("s-07"):
        done = prune(harness, session_days=0, told=lambda done, of: told.append((done, of)))
    assert (len(done.sessions), done.kept) == (59, ("s-07",))
    assert told == [(50, 60), (60, 60)]
    assert [brief.workflow_id for brief in store.list()] == ["s-07"]
    assert sorted(path.name for path in (tmp_path / "base" / "sessions").iterdir() if not path.name.endswith(".lock")) == [
        "s-07",
        "s-07.json",
    ]


def test_a_cancelled_session_stays_because_it_can_be_resumed(tmp_path: Path) -> None:
    """O7, W6, W14."""
    base = tmp_path / "base"
    with build(config_from_values({}, environ={"HOLDFAST_HOME": str(base)})) as harness:
        stages = [{"name": "a", "agent_type": "good", "approve": True}]
        waits = harness.run_workflow({"id": "waits", "task": "t", "stages": stages}, agents={"good": good})
        assert cancel(harness.sessions, waits.workflow_id).status == "cancelled"
        assert pruned(base, "--sessions", "0")["sessions"] == []
        assert harness.sessions.exists(waits.workflow_id)


def test_sessions_are_pruned_wherever_the_configuration_keeps_them(tmp_path: Path) -> None:
    """O7: `session.path` is asked for by the store, so pruning finds what is there."""
    base = tmp_path / "base"
    (tmp_path / "config.yaml").write_text("session: {path: runs}\n")
    with build(load_config(tmp_path / "config.yaml", environ={"HOLDFAST_HOME": str(base)})) as harness:
        done = harness.run_workflow({"id": "done", "task": "t", "stages": [{"name": "a", "agent_type": "good"}]}, agents={"good": good})
        assert list((base / "runs").glob("done-*.json"))
        assert pruned(base, "--sessions", "0")["sessions"] == [done.workflow_id]
        assert harness.sessions.list() == []


def test_it_says_how_much_goes_and_asks(tmp_path: Path) -> None:
    """O1: where nobody can answer, nothing is removed without `--yes`; where nothing would go, nobody is asked."""
    base = tmp_path / "base"
    with build(config_from_values({}, environ={"HOLDFAST_HOME": str(base)})) as harness:
        stages = [{"name": name, "agent_type": "good"} for name in "abc"]
        for _ in range(2):
            harness.run_workflow({"id": "done", "task": "t", "stages": stages}, agents={"good": good})

        def asked(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, "-m", "holdfast.app.main", "prune", *words],
                capture_output=True,
                stdin=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "HOLDFAST_HOME": str(base)},
                cwd=tmp_path,
                check=False,
            )

        refused = asked("--sessions", "0")
        assert (refused.returncode, "Remove 2 completed sessions?" in refused.stderr, "--yes" in refused.stderr) == (2, True, True)
        points = asked("--recovery-points", "1")
        assert "Remove 4 recovery points?" in points.stderr, points.stderr
        assert len(harness.sessions.list()) == 2
        assert asked("--sessions", "30").returncode == 0, "nothing would go"
        assert asked("--sessions", "0", "--yes").returncode == 0
        assert harness.sessions.list() == []


def test_changes_of_memory_go_when_asked_and_facts_stay(tmp_path: Path) -> None:
    """O7"""
    base = tmp_path / "base"
    with MemoryService.at(base) as memory:
        memory.add("Likes tea")
    assert pruned(base)["memory"] == {}
    assert pruned(base, "--memory", "1")["memory"] == {}
    assert pruned(base, "--memory", "0", "--dry-run")["memory"] == {"global: history": 1}
    assert pruned(base, "--memory", "0")["memory"] == {"global: history": 1}
    with MemoryService.at(base) as memory:
        assert memory.history() == []
        assert [fact.content for fact in memory.document().facts] == ["Likes tea"]


def test_what_killed_processes_left_behind_goes(tmp_path: Path) -> None:
    """O7: half-removed sessions, files that were never put in place, half a backup; nothing that is new, named otherwise, or a user's."""
    base = tmp_path / "base"
    with build(config_from_values({}, environ={"HOLDFAST_HOME": str(base)})) as harness:
        kept = harness.sessions.new_session_id("given-out", date(2026, 1, 1))
    old = [
        base / "sessions" / "gone" / "stages" / "01-x" / "output.md",
        base / "sessions" / ".new-0123456789abcdef.tmp",
        base / "memory.d" / ".new-0123456789abcdef.tmp",
        base / ".new-aaaaaaaaaaaaaaaa.tmp" / "memory.json",
    ]
    staying = [
        base / "threads" / "t" / "user-data" / "workspace" / ".new-0123456789abcdef.tmp",
        base / "memory.json.damaged-20260101T000000Z",
    ]
    for path in (*old, *staying):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        os.utime(path, (1_700_000_000, 1_700_000_000))
    os.utime(base / ".new-aaaaaaaaaaaaaaaa.tmp", (1_700_000_000, 1_700_000_000))
    new = base / "sessions" / ".new-bbbbbbbbbbbbbbbb.tmp"
    new.write_text("somebody writes this")
    would = pruned(base, "--dry-run")["leftovers"]
    assert len(would) == 4
    assert all(path.exists() for path in old)
    assert pruned(base)["leftovers"] == would
    assert not any(path.exists() for path in old)
    assert not (base / "sessions" / "gone").exists()
    assert all(path.exists() for path in (*staying, new))
    assert (base / "sessions" / kept).is_dir()
