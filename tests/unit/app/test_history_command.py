"""`holdfast history` for a person and for a program (S9, O1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.agents.lead import make_lead_agent
from holdfast.app.commands.history import app
from holdfast.config.loading import config_from_values
from holdfast.context.archive import FileArchive
from holdfast.context.records import SummaryRecord, records_of
from holdfast.context.view import PlainMessage
from holdfast.errors import InputError, NotThere
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import repeat

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
    result = CliRunner().invoke(app, ["history", *arguments], catch_exceptions=False)
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
    assert "No conversations are kept" in run()
    with pytest.raises(NotThere, match="`holdfast threads` lists them; there are none yet"):
        run("trip")
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
        (["nowhere"], "there is no conversation 'nowhere'"),
        (["nowhere"], "There are: trip. `holdfast threads` lists them."),
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
        CliRunner().invoke(app, ["history", *arguments], catch_exceptions=False)
    assert says in str(caught.value)


def test_damage_is_said_and_the_rest_shown(base: Path) -> None:
    log = base / "threads" / "trip" / "archive.jsonl"
    log.write_bytes(log.read_bytes().replace(b"up 3 weeks", b"up 4 weeks"))
    assert "Damaged:" in run("trip")
    assert "heron" in run("trip")
    assert len(value("trip")["thread"]["damage"]) == 1


def test_help_has_an_example() -> None:
    assert "Example" in run("--help")


def test_a_conversation_that_still_fits_its_window_is_shown_too(base: Path) -> None:
    """S9: what is only in the window is listed, searched and shown as what is archived is; looking archives nothing."""
    config = config_from_values({}, environ={"HOLDFAST_HOME": str(base)})
    model = ScriptedModel([repeat("The ferry leaves at 7:40.")], profile={"max_input_tokens": 8000})
    with make_lead_agent(config, model=model) as agent:
        agent.conversation("anna@example.com").ask("When does the ferry to Hiddensee leave?")
    assert {one["thread"]: one["messages"] for one in value()["threads"]} == {"trip": 3, "anna@example.com": 2}
    assert "anna@example.com" in run()
    listed = value("anna@example.com")
    assert [message["text"] for message in listed["messages"]] == ["When does the ferry to Hiddensee leave?", "The ferry leaves at 7:40."]
    hits = value("anna@example.com", "search", "Hiddensee ferry")["hits"]
    assert hits[0]["message"]["id"] == listed["messages"][0]["id"]
    assert value("anna@example.com", "show", "#2")["message"]["text"] == "The ferry leaves at 7:40."
    archive = FileArchive(base)
    assert archive.threads() == ["trip"]
    archive.close()


def test_a_conversation_half_of_which_left_is_shown_whole(base: Path) -> None:
    """S9"""
    config = config_from_values({}, environ={"HOLDFAST_HOME": str(base)})
    model = ScriptedModel([repeat("Noted.")], profile={"max_input_tokens": 8000})
    with make_lead_agent(config, model=model) as agent:
        talk = agent.conversation("t")
        for number in range(6):
            talk.ask(f"Step {number} is done.")
        talk.compact(keep=("messages", 2))
        talk.ask("Step 6 is done.")
    said = [message["text"] for message in value("t")["messages"] if message["role"] == "human"]
    assert said == [f"Step {number} is done." for number in range(7)]
    assert next(one["messages"] for one in value()["threads"] if one["thread"] == "t") == 14
