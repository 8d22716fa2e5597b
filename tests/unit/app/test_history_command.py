"""`holdfast history` for a person and for a program (S9, O1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.app.commands.history import app
from holdfast.context.archive import FileArchive
from holdfast.context.records import SummaryRecord, records_of
from holdfast.context.view import PlainMessage
from holdfast.errors import InputError

TALK = [
    PlainMessage("human", "We call the staging server heron.\nIt stands in Frankfurt.", "m1"),
    PlainMessage("ai", "[bold]Noted[/bold] \x1b[31m", "m2", tool_calls=[{"id": "c1", "name": "bash", "args": {"command": "uptime"}}]),
    PlainMessage("tool", "up 3 weeks", "m3", tool_call_id="c1", name="bash"),
]


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    archive = FileArchive(tmp_path / "state")
    archive.add("trip", records_of(TALK, history=TALK, tokens={"m1": 14}))
    archive.add("trip", [SummaryRecord("s1", "They set up heron.", ("m1", "m2"), 900, 40, "small", "model")])
    return tmp_path / "state"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def value(*arguments: str) -> dict[str, Any]:
    found = json.loads(run(*arguments, "--json"))
    assert isinstance(found, dict)
    return found


def test_without_a_thread_all_threads_are_listed(base: Path) -> None:
    assert "trip" in run()
    threads = value()["threads"]
    assert isinstance(threads, list)
    assert (threads[0]["thread"], threads[0]["messages"], threads[0]["summaries"]) == ("trip", 3, 1)


def test_without_any_archive_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "none"))
    assert "No conversations are archived" in run()
    assert not (tmp_path / "none").exists(), "looking writes nothing"


def test_the_transcript_is_compact_and_shows_the_summaries(base: Path) -> None:
    output = run("trip")
    assert "We call the staging server heron." in output
    assert "It stands in Frankfurt" not in output, "the first line only"
    assert "[bold]Noted[/bold]" in output, "text is never markup"
    assert "\x1b[31m" not in output, "text never commands the terminal"
    assert "-> bash" in output
    assert "summary s1 (model by small) of 2 messages, 900 -> 40 tokens" in output
    found = value("trip", "--last", "1")
    assert [message["id"] for message in found["messages"]] == ["m3"]
    assert [message["id"] for message in value("trip", "list", "--role", "user")["messages"]] == ["m1"]


def test_searching_shows_the_sentence_and_why(base: Path) -> None:
    output = run("trip", "search", "where", "does", "heron", "stand")
    assert "#1 m1" in output
    assert "heron" in output
    hit = value("trip", "search", "heron")["hits"][0]
    assert hit["message"]["content"] == TALK[0].content
    assert hit["why"] == ["heron"]
    assert "None of the 3 messages fits" in run("trip", "search", "zebra")


def test_showing_is_word_for_word_with_what_was_said_around(base: Path) -> None:
    assert "We call the staging server heron.\nIt stands in Frankfurt." in run("trip", "show", "m1")
    output = run("trip", "show", "m2", "--around", "1")
    assert output.index("m1") < output.index("m2") < output.index("up 3 weeks")
    assert '{"command": "uptime"}' in output
    found = value("trip", "show", "#2")
    assert found["message"]["text"] == TALK[1].content


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "There are: trip"),
        (["../x"], "There are: trip"),
        ([""], "not a usable thread"),
        (["trip", "burn"], "Use list, search or show"),
        (["trip", "search"], "Give the words"),
        (["trip", "show"], "Give the id"),
        (["trip", "show", "m9"], "lists the ids"),
        (["trip", "list", "words"], "Use search"),
        (["trip", "search", "x", "--role", "pilot"], "not a role"),
        (["trip", "search", "x", "--after", "soon"], "not a date"),
    ],
)
def test_what_does_not_fit_is_answered_with_what_would(base: Path, arguments: list[str], says: str) -> None:
    with pytest.raises(InputError) as caught:
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert says in str(caught.value)


def test_damage_is_said_and_the_rest_shown(base: Path) -> None:
    log = base / "threads" / "trip" / "archive.jsonl"
    log.write_bytes(log.read_bytes().replace(b"up 3 weeks", b"up 4 weeks"))
    assert "Damaged:" in run("trip")
    assert "heron" in run("trip")
    assert len(value("trip")["thread"]["damage"]) == 1


def test_help_has_an_example() -> None:
    assert "Example" in run("--help")
