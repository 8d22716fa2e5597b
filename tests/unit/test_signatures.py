"""P1: what an editor, a type checker and `help()` show of the public functions."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.validation import spelled_out

ROOT = Path(__file__).parents[2]
_PARTS = {"config", "session_config", "store", "agents", "knowledge", "remember", "model", "folder", "bus", "counter", "stop", "started"}
_STORE = {"adapter", "path", "dsn", "collection", "server", "use", "arguments", "rerank", "rerank_model", "embedder"}


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (holdfast.run_workflow, _PARTS | {"task", "parameters", "session_id", "check"}),
        (holdfast.resume, _PARTS | {"workflow", "accept_changes", "as_started", "check"}),
        (holdfast.open_knowledge, _STORE),
        (holdfast.SummarizationMiddleware, {"model", "trigger", "keep", "token_counter", "summarizer", "window", "tools"}),
    ],
)
def test_every_keyword_is_shown_with_its_type(function: object, wanted: set[str]) -> None:
    """P1: nothing hides behind `**parts` or `Any`."""
    shown = inspect.signature(function).parameters  # type: ignore[arg-type]
    assert wanted <= shown.keys()
    assert [name for name in wanted if shown[name].annotation in (inspect.Parameter.empty, "Any")] == []


@pytest.mark.parametrize(
    "function", [holdfast.run_workflow, holdfast.resume, holdfast.open_knowledge, holdfast.SummarizationMiddleware.__init__]
)
def test_help_can_be_read(function: Any) -> None:
    """P1: types as they are written, defaults that say what they are, and a text."""
    shown = pydoc.plain(pydoc.render_doc(function))
    assert "ForwardRef" not in shown and "Ellipsis" not in shown and "object at 0x" not in shown
    assert inspect.getdoc(function) and inspect.getdoc(function) != inspect.getdoc(object.__init__)
    if "<default>" in str(inspect.signature(function)):
        assert "`<default>`" in (function.__doc__ or "")
        assert inspect.signature(holdfast.run_workflow).parameters["agents"].annotation == "Agents | None"


def test_a_wrong_keyword_is_refused_under_the_name_that_was_called() -> None:
    """P1: with the nearest one; not by the name of a class that the caller never saw."""
    with pytest.raises(TypeError, match=r"run_workflow\(\) got an unexpected keyword argument 'agent'. Did you mean 'agents'"):
        holdfast.run_workflow({}, agent={})  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"resume\(\) got an unexpected keyword argument 'zzz'. There are session_id,"):
        holdfast.resume("s", zzz=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no `\\*\\*`"):
        spelled_out(dict)(len)


_SCRIPT = """
from holdfast import Conversation, LeadAgent, SummarizationMiddleware, open_knowledge, resume, run_workflow

session = run_workflow("w.yaml", agents={"mine": lambda request: {}}, remember=True, check=True)
reveal_type(session)
resume("s", store=None, model="m")
open_knowledge("notes/", rerank=True, adapter="markdown")
SummarizationMiddleware(trigger=("fraction", 0.8), keep=("messages", 20))
SummarizationMiddleware(trigger=[("tokens", 4000), {"messages": 50}], keep={"type": "tokens", "value": 500})
def talk(agent: LeadAgent) -> Conversation:
    return agent.conversation("t")

run_workflow("w.yaml", agent={})
run_workflow("w.yaml", remember="yes")
open_knowledge("notes/", rerank="yes")
SummarizationMiddleware(trigger=0.8)
SummarizationMiddleware(keep=("tokens", "many"))
"""


@pytest.mark.prove
def test_a_type_checker_knows_the_arguments(tmp_path: Path) -> None:
    """P1: right calls pass, each wrong one is found, in a program of the user's own."""
    script = tmp_path / "mine.py"
    script.write_text(_SCRIPT)
    words = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(ROOT / "pyproject.toml"),
        "--cache-dir",
        str(tmp_path / "cache"),
        str(script),
    ]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=600)
    lines = _SCRIPT.splitlines()
    first_wrong = next(number for number, line in enumerate(lines, 1) if "agent={}" in line)
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if "mine.py:" in line and ": error:" in line}
    assert found == set(range(first_wrong, first_wrong + 5)), done.stdout
    assert 'Revealed type is "holdfast.session.state.Session"' in done.stdout


def test_the_agent_and_its_conversation_are_public() -> None:
    """P1: whoever annotates what `make_lead_agent` and `Harness.conversation` give imports the names from the top."""
    from holdfast.agents.conversation import Conversation
    from holdfast.agents.lead import LeadAgent

    assert holdfast.LeadAgent is LeadAgent
    assert holdfast.Conversation is Conversation
    assert {"LeadAgent", "Conversation"} <= set(holdfast.__all__)


def test_short_help_everywhere() -> None:
    """O1: `-h` for the program, a group, a command below one, and a command."""
    for words in (["-h"], ["session", "-h"], ["session", "show", "-h"], ["run", "-h"], ["import", "deerflow", "-h"]):
        done = subprocess.run([sys.executable, "-m", "holdfast.app.main", *words], capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, (words, done.stderr)
        assert done.stdout.startswith("Usage: holdfast")
