"""A10, W14: tools that wait for a person wait in workflow stages as they do in a conversation, and for commands on the host too."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool

from holdfast.agents.stages.stage_agents import stage_agents
from holdfast.config.loading import config_from_values
from holdfast.config.sections import Config
from holdfast.errors import InputError
from holdfast.harness import Harness
from holdfast.sandbox.local import LocalSandbox
from holdfast.session.store import SessionStore
from holdfast.session.story import story_markdown, tell
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import call, structured
from holdfast.workflow import control
from holdfast.workflow.launcher import resume, run_workflow


def config_of(tmp_path: Path, *approve: str, **sandbox: Any) -> Config:
    values = {"sandbox": {"approve": list(approve), **sandbox}}
    return config_from_values(values, environ={"HOLDFAST_HOME": str(tmp_path / "base")}, cwd=tmp_path)


def on_host(config: Config) -> Callable[[str], LocalSandbox]:
    """Sandboxes without a boundary: `/bin/false` is a bubblewrap that does not work."""
    return lambda thread: LocalSandbox(thread, base=config.base, allow_host_bash=True, bubblewrap="/bin/false")


def opened(config: Config) -> SessionStore:
    return Harness(config).open_sessions()


def answer(stage: str, *findings: tuple[str, str]) -> Any:
    return structured(
        {
            "stage_name": stage,
            "summary": f"What {stage} found.",
            "key_findings": [{"fact": fact, "source": source} for fact, source in findings],
            "confidence": "high",
            "next_stage_recommendations": [],
            "raw_data_refs": [],
        }
    )


CODE = "print('The product is', 6 * 7)\nopen('ran.txt', 'w').close()  # \u202eegdelwonk\u202c"
CODER = {"id": "w", "task": "Multiply.", "stages": [{"name": "count", "agent_type": "coder", "code": CODE}]}


def has_run(config: Config) -> bool:
    return any(config.base.rglob("ran.txt"))


def test_code_on_the_host_waits_until_a_person_agrees_to_that_very_code(tmp_path: Path) -> None:
    """A10: nothing runs before, the whole call is shown with what cannot be seen, and the answer is found by another process."""
    config = config_of(tmp_path, "bash")
    agents = stage_agents(config, environ={}, open_sandbox=on_host(config))
    session = run_workflow(CODER, config=config, agents=agents, session_id="s")
    assert (session.status, session.stages["count"].status, has_run(config)) == ("paused", "waiting", False)
    told = story_markdown(tell(session))
    assert "Waits for a person to approve this call" in told
    for line in ("bash", "6 * 7", "open('ran.txt', 'w')", "‹U+202E›egdelwonk‹U+202C›"):
        assert line in told
    assert resume("s", config=config, agents=agents).status == "paused", "waiting is not agreeing"
    assert not has_run(config)
    store = opened(config)
    assert control.approve(store, "s").status == "ready"
    with pytest.raises(InputError, match="waits for a person"):
        control.approve(store, "s")
    store.close()
    fresh = stage_agents(config, environ={}, open_sandbox=on_host(config))
    session = resume("s", config=config, agents=fresh)
    assert (session.status, has_run(config)) == ("completed", True)
    assert session.stage_outputs["count"].key_findings[0].fact == "The product is 42"
    assert "asks" not in session.stages["count"].extra


def test_a_refused_call_is_not_made_and_the_stage_is_told_why(tmp_path: Path) -> None:
    """A10"""
    config = config_of(tmp_path, "ba*")
    agents = stage_agents(config, environ={}, open_sandbox=on_host(config))
    run_workflow(CODER, config=config, agents=agents, session_id="s")
    store = opened(config)
    assert control.reject(store, "s", why="no files, please").status == "ready"
    store.close()
    session = resume("s", config=config, agents=agents)
    assert (session.status, has_run(config)) == ("completed", False)
    assert "no files, please" in str(session.stage_outputs["count"].data)
    assert session.stage_outputs["count"].confidence == "low"


def test_without_a_name_in_approve_code_runs_as_before(tmp_path: Path) -> None:
    """A10"""
    config = config_of(tmp_path, "web_fetch")
    session = run_workflow(CODER, config=config, agents=stage_agents(config, environ={}, open_sandbox=on_host(config)))
    assert (session.status, has_run(config)) == ("completed", True)


def program(code: str) -> Any:
    return structured({"language": "python", "code": code})


def test_the_program_that_a_model_wrote_is_the_one_that_runs_after_the_answer(tmp_path: Path) -> None:
    """A10: the model is not asked for another one, which nobody has seen."""
    config = config_of(tmp_path, "bash")
    workflow = {"id": "w", "task": "Multiply.", "stages": [{"name": "count", "agent_type": "coder"}]}
    first = ScriptedModel([program(CODE)])
    session = run_workflow(workflow, config=config, agents=stage_agents(config, model=first, open_sandbox=on_host(config)), session_id="s")
    assert (session.status, has_run(config), len(first.requests)) == ("paused", False, 1)
    store = opened(config)
    control.approve(store, "s", "count")
    store.close()
    second = ScriptedModel([answer("count", ("The product is 42", "output 1"))])
    session = resume("s", config=config, agents=stage_agents(config, model=second, open_sandbox=on_host(config)))
    assert session.status == "completed", session.error
    assert session.stage_outputs["count"].key_findings[0].grounded is True
    assert len(second.requests) == 1


def tides(place: str) -> str:
    """The tides of a place."""
    return f"High water at {place} is at 04:12."


def test_a_tool_of_a_stage_waits_and_each_other_call_is_asked_about_too(tmp_path: Path) -> None:
    """A10: an answer is about one exact call."""
    config = config_of(tmp_path, "tid*")
    asked: list[str] = []

    def recorded(place: str) -> str:
        """The tides of a place."""
        asked.append(place)
        return tides(place)

    tool = StructuredTool.from_function(recorded, name="tides")
    workflow = {"id": "w", "task": "Tides?", "stages": [{"name": "last", "agent_type": "llm"}]}

    def go(model: ScriptedModel, **more: Any) -> Any:
        agents = stage_agents(config, model=model, tools=lambda request: [tool])
        return run_workflow(workflow, config=config, agents=agents, session_id="s") if more else resume("s", config=config, agents=agents)

    first = ScriptedModel([[call("tides", {"place": "Husum"})]])
    assert (go(first, new=True).status, asked) == ("paused", [])
    store = opened(config)
    wanted = control.asked_calls(store.load("s"))["last"]
    assert (wanted["tool"], wanted["args"]) == ("tides", {"place": "Husum"})
    control.approve(store, "s")
    second = ScriptedModel([[call("tides", {"place": "Emden"})]])
    assert (go(second).status, asked) == ("paused", ["Husum"])
    assert any(isinstance(message, ToolMessage) and "Husum" in message.text for message in second.requests[0].messages)
    control.reject(store, "s", why="one place is enough")
    third = ScriptedModel([[call("tides", {"place": "Husum"})], "Enough.", answer("last", ("High water at Husum is at 04:12.", "tides 1"))])
    session = go(third)
    store.close()
    assert session.status == "completed", session.error
    assert set(asked) == {"Husum"}
    refused = [message.text for message in third.requests[0].messages if isinstance(message, ToolMessage)]
    assert any("one place is enough" in text for text in refused)
    assert session.stage_outputs["last"].key_findings[0].grounded is True


def test_stages_that_need_no_answer_go_on_meanwhile(tmp_path: Path) -> None:
    """W13: only what depends on the answer waits."""
    config = config_of(tmp_path, "bash")
    stages = [
        {"name": "count", "agent_type": "coder", "code": CODE, "needs": []},
        {"name": "plan", "agent_type": "planner", "needs": []},
        {"name": "last", "agent_type": "synthesizer", "needs": ["count", "plan"]},
    ]
    agents = stage_agents(config, environ={}, open_sandbox=on_host(config))
    session = run_workflow({"id": "w", "task": "Multiply.", "stages": stages}, config=config, agents=agents)
    assert session.status == "paused"
    assert session.completed_stages == ("plan",)


# By the commands


FLOW = "id: w\ntask: Multiply.\nstages:\n  - name: count\n    agent_type: coder\n    code: |\n      print('The product is', 6 * 7)\n"
PROGRAM = [sys.executable, "-m", "holdfast.app.main"]


@pytest.fixture
def place(tmp_path: Path, bwrap: str) -> Path:
    (tmp_path / "config.yaml").write_text("sandbox: {approve: [bash]}\n")
    (tmp_path / "flow.yaml").write_text(FLOW)
    return tmp_path


def surroundings(place: Path) -> dict[str, str]:
    source = str(Path(__file__).parents[2] / "src")
    return {**os.environ, "HOLDFAST_HOME": str(place / "base"), "HOLDFAST_CONFIG": str(place / "config.yaml"), "PYTHONPATH": source}


def holdfast(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *words], cwd=place, env=surroundings(place), capture_output=True, text=True, check=False)


def test_without_a_terminal_the_session_waits_and_commands_answer(place: Path) -> None:
    """A10, W14, O1"""
    waits = holdfast(place, "run", "flow.yaml", "--id", "s")
    assert waits.returncode == 5, waits.stderr
    assert "print('The product is', 6 * 7)" in waits.stdout
    assert "holdfast approve s count" in waits.stdout
    shown = holdfast(place, "session", "show", "s").stdout
    assert "print('The product is', 6 * 7)" in shown
    went_on = holdfast(place, "approve", "s")
    assert (went_on.returncode, "completed" in went_on.stdout) == (0, True), went_on.stderr


def test_at_a_terminal_the_person_is_asked_right_there(place: Path) -> None:
    """A10"""
    main, side = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, "run", "flow.yaml", "--id", "s"], cwd=place, env=surroundings(place), stdin=side, stdout=side, stderr=side
    )
    os.close(side)
    said, answered, until = b"", False, time.monotonic() + 200
    while time.monotonic() < until:
        ready, _, _ = select.select([main], [], [], 1)
        try:
            part = os.read(main, 65_536) if ready else b""
        except OSError:  # the other side is closed
            break
        said += part
        if b"say why not" in said and not answered:
            answered = True
            os.write(main, b"y\n")
        if not part and process.poll() is not None:
            break
    os.close(main)
    assert process.wait(240) == 0, said
    assert answered
    assert b"print('The product is', 6 * 7)" in said
    assert b"is completed" in said
