"""W6: two processes cannot run one session at once; the second says who has it, and takes over when that one is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import Effort, until

from holdfast.errors import Locked
from holdfast.workflow.agent import StageRequest
from holdfast.workflow.launcher import resume
from holdfast.workflow.run_settings import file_sessions

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys, time
from pathlib import Path
from holdfast.errors import HoldfastError
from holdfast.workflow.run_settings import file_sessions
from holdfast.workflow.launcher import resume, run_workflow

base, command = Path(sys.argv[1]), sys.argv[2]

def work(request):
    with (base / "executions").open("a") as file:
        file.write(f"{request.stage.name}\\n")
    while request.stage.name == "b" and not (base / "go").exists() and not request.cancelled():
        time.sleep(0.005)
    return {"summary": "done", "key_findings": [], "confidence": "high"}

workflow = {"id": "w", "task": "t", "stages": [{"name": n, "agent_type": "x"} for n in "abc"]}
store = file_sessions(base / "sessions")
try:
    if command == "run":
        session = run_workflow(workflow, store=store, agents={"x": work}, config={}, session_id="s1")
    else:
        session = resume("s1", store=store, agents={"x": work}, config={})
    print(session.status)
except HoldfastError as error:
    print(type(error).__name__, error)
    sys.exit(error.exit_code)
"""


def started(base: Path, command: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    return subprocess.Popen([sys.executable, "-c", SCRIPT, str(base), command], stdout=subprocess.PIPE, text=True, env=environment)


def executions(base: Path) -> list[str]:
    return (base / "executions").read_text("utf-8").split() if (base / "executions").exists() else []


def never(request: StageRequest) -> object:
    raise AssertionError("a second process ran the session")


def test_the_second_process_says_who_runs_the_session_and_takes_over_when_it_is_killed(tmp_path: Path) -> None:
    first = started(tmp_path, "run")
    until(lambda: "b" in executions(tmp_path), "the second stage runs")
    with pytest.raises(Locked) as caught:
        resume("s1", store=file_sessions(tmp_path / "sessions"), agents={"x": never}, config={})
    assert str(first.pid) in str(caught.value.owner)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate(timeout=240)
    (tmp_path / "go").touch()
    second = started(tmp_path, "resume")
    said, _ = second.communicate(timeout=240)
    assert said.strip() == "completed"
    assert executions(tmp_path) == ["a", "b", "b", "c"]


@pytest.mark.prove
def test_of_processes_that_resume_at_once_exactly_one_runs(tmp_path: Path, effort: Effort) -> None:
    for number in range(effort(2, 20)):
        base = tmp_path / str(number)
        base.mkdir()
        first = started(base, "run")
        until(lambda base=base: "b" in executions(base), "the second stage runs")  # type: ignore[misc]  # mypy cannot type a default of a lambda
        os.kill(first.pid, signal.SIGKILL)
        first.communicate(timeout=240)
        racers = [started(base, "resume") for _ in range(3)]
        until(lambda base=base: executions(base).count("b") >= 2, "somebody took over")  # type: ignore[misc]  # as above
        until(lambda racers=racers: sum(racer.poll() is not None for racer in racers) == 2, "the others gave up")  # type: ignore[misc]
        (base / "go").touch()
        said = sorted(racer.communicate(timeout=240)[0].strip() for racer in racers)
        if sum(words == "completed" for words in said) != 1 or sum(words.startswith("Locked") for words in said) != 2:
            effort.fail(f"run {number}: {said}")
        if executions(base) != ["a", "b", "b", "c"]:
            effort.fail(f"run {number}: ran {executions(base)}")
        assert json.loads((base / "sessions" / "s1.json").read_text("utf-8"))["status"] == "completed"
