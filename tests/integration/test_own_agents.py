"""A user's own agent: found beside its workflow file, and when it raises, the line of his that raised is shown (W12, W19, O1)."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.workflow import events
from holdfast.workflow.launcher import Launcher

_PROGRAM = [sys.executable, "-m", "holdfast.app.main"]
_AGENTS = """
from {helper} import LIMIT

def careful(request):
    return {{"summary": "within the limit of %d" % LIMIT, "key_findings": [], "confidence": "high"}}

def boom(request):
    return weigh([1, 2, 3])

def weigh(values):
    raise ValueError("boom in my agent")  # the line to be found

def leaking(request):
    raise ValueError("the key is sk-proj-abcdefghijklmnopqrstuvwxyz0123456789")

def late(request):
    import {helper}
    return {{"summary": str({helper}.LIMIT), "key_findings": [], "confidence": "high"}}
"""


def _project(folder: Path, *agents: str, name: str, **stage: Any) -> Path:
    """A folder with a workflow file, a module of agents beside it, and a module that those import. Names differ: modules stay imported."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(_AGENTS.format(helper=f"{name}_limits"))
    (folder / f"{name}_limits.py").write_text("LIMIT = 42\n")
    stages = [{"name": f"s{number}", "agent_type": f"{name}:{agent}", "retries": 0, **stage} for number, agent in enumerate(agents, 1)]
    file = folder / "w.yaml"
    file.write_text(json.dumps({"id": "w", "task": "t", "stages": stages}))
    return file


def _holdfast(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [*_PROGRAM, *words], capture_output=True, text=True, env={**env, "HOLDFAST_HOME": str(home)}, cwd="/", timeout=240
    )


def test_a_module_beside_the_workflow_file_is_found_from_anywhere(tmp_path: Path) -> None:
    """W12: also what that module imports, when it is loaded and later, and when the session goes on as it was started."""
    file = _project(tmp_path / "project", "careful", "late", name="beside_one", approve=True)
    done = _holdfast("run", str(file), "--id", "s", "--no-remember", home=tmp_path / "home")
    assert done.returncode == 5, done.stderr
    file.write_text(file.read_text().replace('"t"', '"another task"').replace("late", "careful"))
    assert _holdfast("approve", "s", "s1", "--later", home=tmp_path / "home").returncode == 0
    on = _holdfast("resume", "s", "--as-started", "--no-remember", home=tmp_path / "home")
    assert on.returncode == 5, on.stderr
    saved = json.loads((tmp_path / "home/sessions/s.json").read_text())
    assert saved["stage_outputs"]["s1"]["summary"] == "within the limit of 42"
    assert saved["stage_outputs"]["s2"]["summary"] == "42"


def test_the_python_path_is_left_alone_by_a_workflow_without_agents_of_its_own(tmp_path: Path) -> None:
    """W12: a folder is searched only where the module is in it."""
    file = tmp_path / "w.yaml"
    file.write_text("id: w\ntask: t\nstages:\n- {name: s1, agent_type: 'holdfast.offline.panel:Plain'}\n")
    before = list(sys.path)
    holdfast.run_workflow(file, config={}, folder=tmp_path / "files", session_config={"session": {"path": str(tmp_path / "sessions")}})
    assert sys.path == before


def test_another_module_of_the_same_name_is_refused_not_run(tmp_path: Path) -> None:
    """W12: what is beside the file is meant; if something else has the name, no code of the wrong one is run."""
    (tmp_path / "json.py").write_text("def boom(request): return 1\n")
    (tmp_path / "w.yaml").write_text("id: w\ntask: t\nstages:\n- {name: s1, agent_type: 'json:dumps'}\n")
    with pytest.raises(holdfast.NotImportable, match="json") as raised:
        Launcher(config={}).run(tmp_path / "w.yaml")
    assert "other name" in str(raised.value)
    assert str(tmp_path / "json.py") in str(raised.value)


def test_a_module_that_is_nowhere_is_asked_for_beside_the_file(tmp_path: Path) -> None:
    """W12: the error says where it was looked for."""
    (tmp_path / "w.yaml").write_text("id: w\ntask: t\nstages:\n- {name: s1, agent_type: 'nowhere_at_all:boom'}\n")
    with pytest.raises(holdfast.NotImportable, match="beside the workflow file"):
        Launcher(config={}).run(tmp_path / "w.yaml")


def test_the_traceback_is_in_the_stage_files_and_named_in_the_terminal(tmp_path: Path) -> None:
    """W19, O1: from the first line of the user's own, without the harness's frames; whole on the terminal with --verbose."""
    file = _project(tmp_path / "project", "boom", name="beside_two")
    done = _holdfast("run", str(file), "--id", "s", "--no-remember", home=tmp_path / "home")
    assert done.returncode == 4
    written = tmp_path / "home/sessions/s/stages/01-s1/output.md"
    assert str(written) in done.stdout
    assert "Traceback (most recent" not in done.stdout + done.stderr
    text = written.read_text()
    assert "Traceback (most recent call last)" in text
    assert 'beside_two.py", line 11, in weigh' in text
    assert "in boom" in text
    assert "timed_executor" not in text
    for words in (("--verbose", "resume", "s"), ("resume", "s", "--verbose"), ("resume", "s", "--verbose", "--json")):
        loud = _holdfast(*words, "--no-remember", home=tmp_path / "home")
        assert loud.returncode == 4
        assert 'beside_two.py", line 11, in weigh' in loud.stderr


def test_the_traceback_is_in_the_debug_log_of_every_try_without_secrets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """O2, C3, W19: a try that is repeated leaves its traceback too."""
    file = _project(tmp_path / "project", "leaking", name="beside_three", retries=1, retry_seconds=0)
    with caplog.at_level(logging.DEBUG, "holdfast"):
        session = holdfast.run_workflow(file, config={}, session_config={"session": {"path": str(tmp_path / "sessions")}})
    traces = [line for line in caplog.text.splitlines() if line.endswith("in leaking")]
    assert len(traces) == 2
    assert all(line.startswith("    ") for line in traces), "no line of it looks like another event"
    assert "abcdefghijklmnop" not in caplog.text
    written = next((tmp_path / "sessions").rglob("output.md")).read_text()
    assert "in leaking" in written
    assert "abcdefghijklmnop" not in written
    assert session.status == "halted"


def test_check_raises_from_what_the_agent_raised(tmp_path: Path) -> None:
    """P1, W19: `__cause__` is the agent's own exception, with its traceback; also by the harness."""
    file = _project(tmp_path / "project", "boom", name="beside_four")
    settings = {"session": {"path": str(tmp_path / "sessions")}}
    with pytest.raises(holdfast.StageFailed) as raised:
        holdfast.run_workflow(file, config={}, session_config=settings, session_id="s", check=True)
    cause = raised.value.__cause__
    assert isinstance(cause, ValueError)
    assert str(cause) == "boom in my agent"
    assert cause.__traceback__ is not None
    with pytest.raises(holdfast.StageFailed) as again:
        holdfast.resume("s", config={}, session_config=settings, check=True)
    assert isinstance(again.value.__cause__, ValueError)


def test_a_failure_has_an_event_with_the_traceback(tmp_path: Path) -> None:
    """O2: whoever watches the bus sees it as well; a time-out has none."""
    seen: list[Any] = []
    bus = holdfast.events.Bus(seen.append)
    file = _project(tmp_path / "project", "boom", name="beside_five")
    holdfast.run_workflow(file, config={}, session_config={"session": {"path": str(tmp_path / "sessions")}}, bus=bus)
    (event,) = [event for event in seen if isinstance(event, events.StageRaised)]
    assert event.error == "ValueError: boom in my agent"
    assert "in weigh" in event.traceback
