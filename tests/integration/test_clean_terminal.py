"""O1, O2: no text of a model, a tool, a file or a page commands the terminal, whatever command prints it."""

from __future__ import annotations

import ast
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from holdfast.app.main import app, main
from holdfast.app.output import TRACEBACKS, console, echo_json
from holdfast.context.records import MessageRecord
from holdfast.events import JsonLines, PlainLines
from holdfast.harness import build
from holdfast.knowledge.records import Record
from holdfast.memory.facts import Fact
from holdfast.memory.memory_store import Edit

ROOT = Path(__file__).parents[2]
EVIL = {
    "clear": "\x1b[2J\x1b[H",
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;cm0gLXJm\x1b\\",
    "link": "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "c1": "\x9b2J\x9d0;x\x9c",
    "erase": "harmless\x08\x08\x08\x08evil",
    "carriage": "safe\rrm -rf",
    "bidi": "\u202egnp.exe\u2066",
    "tag": "\U000e0041\U000e0042",
    "bell": "\x07\x0e\x0f",
    "delete": "\x7f",
    "null": "\x00",
    "separator": "\u2028\u2029\x85",
}
TEXT = "shown before " + " ".join(EVIL.values()) + " shown after [bold]x[/bold] [link=http://evil]y[/link]"
ALLOWED = {"\n", "\t"}


def unseen(text: str) -> set[str]:
    return {sign for sign in text if not sign.isprintable() and sign not in ALLOWED}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A base directory in which everything that can be called something is called that."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "base"))
    monkeypatch.chdir(tmp_path)
    storable = TEXT.replace("\x00", "")
    stages = [{"name": name, "agent_type": kind, "retries": 0} for name, kind in (("first", "holds"), ("second", "fails"))]
    workflow = {"id": "w", "task": storable, "stages": stages}

    def holds(request: Any) -> dict[str, Any]:
        request.emit(TEXT)
        return {
            "summary": storable,
            "key_findings": [{"fact": storable, "source": storable}],
            "confidence": "high",
            "data": {"k": storable},
        }

    def fails(request: Any) -> None:
        raise ValueError(storable)

    with build() as harness:
        fact = Fact("f-1", storable, confidence=1.0, created="2026-01-01T00:00:00Z")
        # what somebody states or imports may not hold these; the file of another program may
        harness.memory.store.change(None, lambda document: Edit(document.with_fact(fact), "storage", "put there"))
        harness.knowledge.add([Record(storable, source=storable, speaker=storable, tags=(storable,), id="k-1")])
        harness.run_workflow(workflow, agents={"holds": holds, "fails": fails}, remember=False, session_id="s")
        harness.run_workflow({**workflow, "stages": stages[:1]}, agents={"holds": holds}, remember=False, session_id="done")
        harness.archive.add("t", [MessageRecord(id="m-1", role="human", content=storable), MessageRecord(id="m-2", role="ai", content="x")])
    return tmp_path


COMMANDS = [
    ["memory", "show"],
    ["memory", "search", "shown"],
    ["memory", "history"],
    ["memory", "export"],
    ["memory", "review"],
    ["knowledge", "search", "shown"],
    ["knowledge", "show", "k-1"],
    ["knowledge", "stats"],
    ["knowledge", "export"],
    ["sessions"],
    ["session", "show", "s"],
    ["session", "export", "s"],
    ["session", "export", "s", "--markdown"],
    ["session", "report", "done"],
    ["resume", "s"],
    ["history"],
    ["history", "t"],
    ["history", "t", "search", "shown"],
    ["history", "t", "show", "m-1"],
    ["knowledge", "add", TEXT.replace("\x00", "")],
    ["config", "check"],
    ["doctor"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=[" ".join(words)[:30] for words in COMMANDS])
def test_no_command_prints_what_would_command_the_terminal(home: Path, words: list[str]) -> None:
    """O1"""
    ran = CliRunner().invoke(app, words)
    assert unseen(ran.output) == set(), repr(ran.output)
    if (
        words[0] not in ("config", "doctor", "resume")
        and words != ["memory", "review"]
        and words != ["knowledge", "stats"]
        and words != ["history"]
    ):
        assert "shown" in ran.output


SHOWN = TEXT.replace("\x00", "")
MISTYPED = {
    "an unknown option": [f"--{SHOWN}"],
    "an unknown option of a command": ["knowledge", "search", f"--{SHOWN}"],
    "an unknown command": [SHOWN],
    "an unknown command below one": ["knowledge", SHOWN],
    "a value that is no number": ["knowledge", "search", "x", "--top", SHOWN],
    "one argument too many": ["chat", "a", SHOWN],
    "a value for a flag": ["eval", "recall", f"--ablate={SHOWN}"],
    "a file that is not there": ["run", f"/nowhere/{SHOWN}"],
}


@pytest.mark.parametrize("words", MISTYPED.values(), ids=MISTYPED)
def test_what_was_mistyped_is_said_again_without_what_commands_the_terminal(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """O1: a name or a line that was pasted is foreign text, also where it is the command line itself."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["holdfast", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capfd.readouterr().err
    assert ended.value.code == 2
    assert unseen(said) == set(), repr(said)


def test_a_traceback_is_clean_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """O1: `--verbose` shows the message of an error with what was given."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["holdfast", "run", f"/nowhere/{SHOWN}", "--verbose"])
    monkeypatch.setattr(TRACEBACKS, "set", lambda: None)
    with pytest.raises(SystemExit):
        main()
    said = capfd.readouterr().err
    assert "Traceback" in said
    assert unseen(said) == set(), repr(said)


@pytest.mark.parametrize(
    "words",
    [one for one in COMMANDS if one[1:2] != ["export"] and one[0] not in ("resume", "doctor")],
    ids=lambda words: " ".join(words)[:30],
)
def test_json_keeps_the_value_and_hides_nothing_in_it(home: Path, words: list[str]) -> None:
    """O1: escapes, so that a program gets the very text and a terminal no command."""
    ran = CliRunner().invoke(app, [*words, "--json"])
    assert unseen(ran.output) == set(), repr(ran.output)
    json.loads(ran.output)


def test_json_is_the_same_value(capsys: pytest.CaptureFixture[str]) -> None:
    """O1"""
    echo_json({"text": TEXT})
    said = capsys.readouterr().out
    assert unseen(said) == set()
    assert json.loads(said) == {"text": TEXT}


def test_the_console_cleans_lines_tables_and_styled_text(capsys: pytest.CaptureFixture[str]) -> None:
    """O1: one place for all of them, so that no command can forget it."""
    table = Table(TEXT, TEXT)
    table.add_row(TEXT, Text(TEXT, "bold"))
    for thing in (TEXT, Text(TEXT, "red"), table):
        console().print(thing, markup=False)
        assert unseen(capsys.readouterr().out) == set()


def test_the_log_is_clean_too() -> None:
    """O2"""
    record = logging.LogRecord("holdfast.x", logging.WARNING, "f", 1, "%s", (TEXT,), None)
    assert unseen(PlainLines("%(message)s").format(record)) == set()
    line = JsonLines().format(record)
    assert unseen(line) == set()
    assert json.loads(line)["message"].startswith("shown before")


def test_nothing_in_the_program_prints_by_another_way() -> None:
    """O1: `print`, `typer.echo` and rich's own console are used where the text is cleaned, and nowhere else."""
    allowed = {"output.py", "main.py"}
    found = []
    for file in sorted((ROOT / "src/holdfast/app").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and file.name not in allowed:
                name = ast.unparse(node.func)
                if name in ("print", "typer.echo", "typer.secho", "Console", "rich.print", "sys.stdout.write"):
                    found.append(f"{file.name}:{node.lineno} {name}")
    assert found == []
