"""What a Python program does to a session between two runs: approve, reject, fix, fork (P1, W4, W5, W14)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.workflow.support import Agent, linear, output

import holdfast
from holdfast import approve, build, fix, fork, reject, resume, run_workflow
from holdfast.errors import ConfigError, InputError, InTheWay, OutputInvalid, WorkflowChanged, WorkflowError, WrongType
from holdfast.workflow.agent import StageRequest

TWO = {
    "id": "demo",
    "task": "Find out.",
    "stages": [{"name": "a", "agent_type": "x", "approve": True}, {"name": "b", "agent_type": "x"}],
}


def parts(folder: Path, agent: Agent | None = None, **more: Any) -> dict[str, Any]:
    """The same keywords for all of them."""
    config = {
        "session": {"storage_backend": "file"},
        "memory": {"session_memory": {"persist": True, "path": str(folder / "{session_id}.json")}},
    }
    return {"config": config, "agents": {"x": agent or Agent()}, **more}


def test_a_program_agrees_with_a_stage_and_the_session_goes_on(tmp_path: Path) -> None:
    """W14, P1: with the keywords that it runs and resumes with."""
    common = parts(tmp_path)
    assert run_workflow(TWO, session_id="s1", **common).status == "paused"
    assert approve("s1", **common).completed_stages == ("a",)
    assert resume("s1", **common).status == "completed"
    with pytest.raises(InTheWay, match="waits for a person"):
        approve("s1", **common)


def test_a_program_refuses_a_stage_and_the_agent_is_told_why(tmp_path: Path) -> None:
    """W14"""
    agent = Agent()
    common = parts(tmp_path, agent)
    run_workflow(TWO, session_id="s1", **common)
    assert reject("s1", "a", why="The second figure has no source.", **common).status == "halted"
    resume("s1", **common)
    assert "The second figure has no source." in (agent.requests[-1].feedback or "")
    with pytest.raises(InputError, match="reason"):
        reject("s1", why=" ", **common)


def test_a_program_corrects_an_output_as_a_mapping_or_as_text(tmp_path: Path) -> None:
    """W4: checked like that of an agent; what does not fit changes nothing."""
    common = parts(tmp_path, Agent({"a": ["no output"] * 9}))
    assert run_workflow(linear("a", "b", max_repairs=0), session_id="s1", **common).status == "halted"
    with pytest.raises(OutputInvalid):
        fix("s1", "a", {"summary": 3}, **common)
    with pytest.raises(InputError, match="no output of a stage"):
        fix("s1", "a", 3, **common)  # type: ignore[arg-type]
    fix("s1", "a", {"summary": "by hand", "key_findings": [], "confidence": "high"}, **common)
    ended = resume("s1", **common)
    assert (ended.status, ended.stage_outputs["a"].summary) == ("completed", "by hand")


def test_a_program_begins_another_session_from_a_recovery_point(tmp_path: Path) -> None:
    """W5: under a name of its own, or the next that is free."""
    agent = Agent()
    common = parts(tmp_path, agent)
    run_workflow(linear("a", "b"), session_id="s1", **common)
    point = "001-a"
    made = fork("s1", checkpoint=point, **common)
    assert (made.workflow_id, made.completed_stages) == ("s1-fork-001", ("a",))
    assert fork("s1", "mine", **common).workflow_id == "mine"
    agent.requests.clear()
    assert resume("s1-fork-001", **common).status == "completed"
    assert agent.ran == ["b"]


def test_the_harness_does_the_same_in_its_own_sessions(tmp_path: Path) -> None:
    """P1, W14: one composition root."""
    with build({"session": {}, "memory": {"enabled": False}}) as harness:
        agents = {"x": Agent({"a": [output("a"), output("a")]})}
        harness.run_workflow(TWO, session_id="s1", agents=agents)
        assert harness.reject("s1", why="Look again.").status == "halted"
        assert harness.resume("s1", agents=agents).status == "paused"
        harness.fix("s1", "a", {"summary": "by hand", "key_findings": [], "confidence": "high"})
        assert harness.approve("s1").completed_stages == ("a",)
        assert harness.fork("s1").completed_stages == ("a",)
        assert harness.resume("s1", agents=agents).stage_outputs["a"].summary == "by hand"


def test_a_keyword_that_there_is_not_is_named(tmp_path: Path) -> None:
    """P1"""
    with pytest.raises(TypeError, match="agents"):
        approve("s1", agent={})  # type: ignore[call-arg]
    assert {"approve", "reject", "fix", "fork"} <= set(holdfast.__all__)


def test_what_a_program_is_told_names_its_keywords(tmp_path: Path) -> None:
    """P1, W6: a session keeps no functions, a changed workflow is taken by a keyword, and one that waits says what goes on."""
    common = parts(tmp_path)
    run_workflow(TWO, session_id="s1", **common)
    with pytest.raises(WorkflowChanged, match="`accept_changes=True`") as changed:
        resume("s1", workflow=linear("a"), **common)
    assert "--" not in str(changed.value)
    with pytest.raises(WorkflowError, match="`approve` agrees"):
        resume("s1", check=True, **common)
    with pytest.raises(ConfigError, match="give `agents=` again"):
        resume("s1", config=common["config"])
    with pytest.raises(WrongType, match="`agents` takes a mapping"):
        run_workflow(TWO, agents=[print])  # type: ignore[arg-type]


# Settings that nobody would read


def plain(request: StageRequest) -> dict[str, Any]:
    return output(request.stage.name)


def patient(request: StageRequest, timeout: int = 5) -> dict[str, Any]:
    return output(request.stage.name, summary=str(request.stage.settings["timeout"]))


class Patient:
    def __init__(self, timeout: int = 5) -> None:
        self.timeout = timeout

    def run(self, request: StageRequest) -> dict[str, Any]:
        return output(request.stage.name, summary=str(request.stage.settings["timeout"]))


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("timeout", "timeout_seconds"),
        ("depends_on", "needs"),
        ("retry", "retries"),
        ("retrys", "retries"),
        ("max_retries", "retries"),
        ("Max-Retries", "retries"),
    ],
)
def test_a_setting_that_reads_like_a_key_of_ours_is_refused_where_the_agent_has_none_of_that_name(
    tmp_path: Path, key: str, meant: str
) -> None:
    """W1, C3: a stage that hangs under `timeout: 3` would hang for ever. Both of two mistakes are told."""
    stages = [{"name": name, "agent_type": "own", key: 3} for name in ("a", "b")]
    with pytest.raises(ConfigError, match=f"Did you mean `{meant}`") as caught:
        run_workflow({"id": "w", "task": "t", "stages": stages}, **parts(tmp_path) | {"agents": {"own": plain}})
    assert caught.value.nearest == meant
    assert len(caught.value.others) == 1


@pytest.mark.parametrize("agent", [patient, Patient, Patient(7)])
def test_a_setting_that_the_agent_has_a_parameter_for_goes_to_it(tmp_path: Path, agent: Any) -> None:
    """W1"""
    workflow = {"id": "w", "task": "t", "stages": [{"name": "a", "agent_type": "own", "timeout": 3, "max_entries": 2}]}
    ended = run_workflow(workflow, **parts(tmp_path) | {"agents": {"own": agent}})
    assert ended.stage_outputs["a"].summary == "3"


def test_a_session_that_was_begun_with_such_a_setting_goes_on(tmp_path: Path) -> None:
    """W6: what was accepted when it began stays accepted."""
    workflow = {"id": "w", "task": "t", "stages": [{"name": "a", "agent_type": "own", "timeout": 3, "approve": True}]}
    common = parts(tmp_path)
    run_workflow(workflow, session_id="s1", **common | {"agents": {"own": patient}})
    reject("s1", why="again", **common)
    assert resume("s1", **common | {"agents": {"own": plain}}).status == "paused"
