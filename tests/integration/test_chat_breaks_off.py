"""`holdfast chat` when an answer is none, breaks off, or was left open: what a pipe gets, what is asked, how it goes on (A13, A14, O1)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.scripted_server import Said, ScriptedServer, scripted_server
from tests.integration.test_chat_command import Terminal, chat

from holdfast import build
from holdfast.config.loading import load_config

REFUSED = Said(status=401, error={"message": "bad key"})
WRITES = Said(calls=[("write_file", json.dumps({"path": "/mnt/user-data/outputs/a.txt", "content": "hello"}))])


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as fake:
        yield fake


@pytest.fixture
def home(tmp_path: Path, server: ScriptedServer) -> Path:
    configure(tmp_path, server)
    return tmp_path


def configure(home: Path, server: ScriptedServer, *more: dict[str, Any], **values: Any) -> None:
    said: dict[str, Any] = {"title": {"enabled": False}, "memory": {"extractor": "rules", "debounce_seconds": 0}, **values}
    models = [server.model(max_retries=0, fallbacks=[one["name"] for one in more]), *more]
    (home / "config.yaml").write_text(json.dumps({"holdfast_version": 1, "models": models, **said}))  # JSON is YAML


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def opened(home: Path, terminals: list[Terminal], *words: str) -> Terminal:
    terminals.append(Terminal(home, *words))
    return terminals[-1]


def told(server: ScriptedServer) -> str:
    return json.dumps(server.requests[-1]["messages"])


@pytest.mark.parametrize(
    ("said", "reason", "code", "note"),
    [
        (Said(""), "empty", 1, "nothing was answered"),
        (Said("", finish="content_filter"), "filtered", 1, "held back by a filter"),
        (Said("Half of it", finish="length"), "cut", 0, "max_tokens"),
        (Said("", finish="length"), "cut", 1, "max_tokens"),
    ],
)
def test_an_answer_that_is_none_is_said_and_told_by_the_exit_code(
    home: Path, server: ScriptedServer, said: Said, reason: str, code: int, note: str
) -> None:
    server.say(said, said, said)
    shown = chat(home, "-t", "a", "-p", "x", code=code)
    assert shown.stdout == (f"{said.text}\n" if said.text else "")
    assert note in shown.stderr
    quiet = chat(home, "-t", "b", "-q", "-p", "x", code=code)
    assert (note in quiet.stderr) == (code == 1)
    assert json.loads(chat(home, "-t", "c", "-p", "x", "--json", code=code).stdout)["reason"] == reason


def test_a_question_to_the_user_is_printed_once(home: Path, server: ScriptedServer) -> None:
    """A13"""
    asked = json.dumps({"question": "Which database?", "options": ["PG", "SQLite"]})
    server.say(Said(calls=[("ask_clarification", asked)]))
    assert chat(home, "-q", "-p", "set up").stdout == "Which database?\n1. PG\n2. SQLite\n"


@pytest.mark.parametrize("how", [{"error": {"message": "Overloaded"}}, {"breaks": True}])
def test_a_pipe_gets_the_answer_alone_and_a_note_says_who_answers(home: Path, server: ScriptedServer, how: dict[str, Any]) -> None:
    configure(home, server, server.model("second"))
    server.say(Said("Half of a thing", **how), "The whole of it.")
    done = chat(home, "-p", "x")
    assert done.stdout == "The whole of it.\n"
    assert "'main'" in done.stderr and "second answers instead" in done.stderr
    server.say(Said("I look first.", calls=[("ls", '{"path": "/mnt/user-data"}')]), "There is nothing.")
    done = chat(home, "-p", "y")
    assert done.stdout == "There is nothing.\n", "what is said before a call is no answer"
    assert "I look first." in done.stderr


def test_a_turn_that_broke_off_shuts_nobody_out(home: Path, server: ScriptedServer, terminals: list[Terminal]) -> None:
    """A14: an error in the middle of a stream, and one at once, end the turn and not the chat; opening it asks whether to go on."""
    terminal = opened(home, terminals, "-t", "w")
    terminal.until("› ")
    server.say(Said("alpha beta", error={"message": "Overloaded mid stream"}), REFUSED)
    terminal.type("hello")
    terminal.until("Overloaded mid stream.")
    terminal.until("› ")
    terminal.type("again")
    terminal.until("refused the key")
    terminal.until("› ")
    assert terminal.end() == 0
    before = len(server.requests)
    terminal = opened(home, terminals, "-t", "w")
    terminal.until("Go on with it? [Y/n]")
    assert len(server.requests) == before, "nothing is asked, or paid, without a word"
    server.say(REFUSED)
    terminal.type("")
    terminal.until("refused the key")
    terminal.until("› ")
    server.say("I am back.")
    terminal.type("/resume")
    terminal.until("I am back.")
    terminal.until("› ")
    terminal.type("/resume")
    terminal.until("no turn was broken off here")
    assert terminal.end() == 0


def test_what_is_typed_in_place_of_going_on_is_the_next_message(home: Path, server: ScriptedServer, terminals: list[Terminal]) -> None:
    server.say(REFUSED)
    chat(home, "-t", "w", "-p", "hello", code=1)
    terminal = opened(home, terminals, "-t", "w")
    terminal.until("Go on with it? [Y/n]")
    terminal.type("/usr/bin/python3 segfaults, why?")
    terminal.until("Noted.")
    assert "/usr/bin/python3 segfaults, why?" in told(server), "a path is no command"
    terminal.until("› ")
    terminal.type("/histroy")
    terminal.until("Did you mean /history?")
    assert terminal.end() == 0


def test_opening_a_conversation_in_which_a_call_waits_asks_about_it(home: Path, server: ScriptedServer, terminals: list[Terminal]) -> None:
    """A10"""
    configure(home, server, sandbox={"approve": ["write_file"]})
    server.say(WRITES)
    chat(home, "-t", "a", "-p", "write it", code=5)
    terminal = opened(home, terminals, "-t", "other")
    terminal.until("› ")
    terminal.type("/open a")
    terminal.until("Run it?")
    server.say("It is written.")
    terminal.type("y")
    terminal.until("It is written.")
    assert (home / "base/threads/a/user-data/outputs/a.txt").read_text() == "hello"
    assert terminal.end() == 0


def test_history_shows_the_numbers_that_branch_takes(home: Path, server: ScriptedServer, terminals: list[Terminal]) -> None:
    """A14: of what is still in the window too."""
    server.say("First answer.", "Second answer.")
    terminal = opened(home, terminals, "-t", "h")
    for words, answer in (("one", "First answer."), ("two", "Second answer.")):
        terminal.until("› ")
        terminal.type(words)
        terminal.until(answer)
    terminal.until("› ")
    terminal.type("/history")
    terminal.until("#3    you  two")
    terminal.until("› ")
    terminal.type("/branch 2")
    terminal.until("Going on in ")
    terminal.until("› ")
    terminal.type("/history")
    shown = terminal.until("› ")
    assert "First answer." in shown and "two" not in shown
    assert terminal.end() == 0


def test_ctrl_c_in_a_command_stops_the_command_alone(home: Path, server: ScriptedServer, terminals: list[Terminal]) -> None:
    """S17"""
    configure(home, server, summarization={"enabled": True, "trigger": {"type": "fraction", "value": 0.9}})
    go = threading.Event()
    terminal = opened(home, terminals, "-t", "c")
    for number in range(3):
        terminal.until("› ")
        terminal.type(f"Message {number} of some length, about the harbour and its four piers")
        terminal.until("Noted.")
    terminal.until("› ")
    server.say(Said("A summary.", until=go))
    before = len(server.requests)
    terminal.type("/compact 1")
    deadline = time.monotonic() + 240
    while len(server.requests) == before:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    terminal.interrupt()
    terminal.until("(stopped; the conversation goes on)")
    go.set()
    terminal.type("still there?")
    terminal.until("Noted.")
    terminal.until("› ")
    assert terminal.end() == 0


def test_a_conversation_keeps_its_agent(home: Path, server: ScriptedServer, terminals: list[Terminal]) -> None:
    """A14, M3: so that what is said stays in the memory that it belongs to."""
    for name in ("coder", "writer"):
        (home / "base/agents" / name).mkdir(parents=True)
        (home / f"base/agents/{name}/SOUL.md").write_text(f"You are the {name} SOULTEXT-{name}.\n")
    chat(home, "-a", "coder", "-t", "ag", "-p", "Hello")
    for words in (("-t", "ag"), ("-r",), ("-t", "ag", "-a", "coder")):
        chat(home, *words, "-p", "And now? I live in Bern.")
        assert "SOULTEXT-coder" in told(server)
    refused = chat(home, "-t", "ag", "-a", "writer", "-p", "x", code=2)
    assert "is with coder, and not with writer" in refused.stderr and "Leave the agent out" in refused.stderr
    assert (home / "base/agents/coder/memory.json").is_file()
    terminal = opened(home, terminals, "-t", "plain")
    terminal.until("› ")
    terminal.type("/open ag")
    terminal.until("Going on in ag, with coder.")
    terminal.until("› ")
    terminal.type("still you?")
    terminal.until("Noted.")
    assert "SOULTEXT-coder" in told(server)
    terminal.until("› ")
    terminal.type("/quit")
    terminal.until("To go on: holdfast chat --thread ag --config")


def test_without_a_model_a_conversation_keeps_its_agent_too(tmp_path: Path) -> None:
    """A14, W18"""
    (tmp_path / "base/agents/coder").mkdir(parents=True)
    (tmp_path / "config.yaml").write_text("memory: {debounce_seconds: 0}\n")
    chat(tmp_path, "-a", "coder", "-t", "ag", "-p", "I prefer green tea.")
    chat(tmp_path, "-t", "ag", "-p", "I live in Bern.")
    assert not (tmp_path / "base/memory.json").exists()
    assert "Bern" in (tmp_path / "base/agents/coder/memory.json").read_text()


def test_what_is_piped_in_is_not_learned_as_the_users_own_words(home: Path, server: ScriptedServer) -> None:
    """M10, M11: what was typed after -p is."""
    notes = "I am a dentist.\nI live in Nassau.\nI prefer Vim.\n"
    piped = chat(home, "-t", "p", piped=notes)
    assert "not learned: it was piped in" in piped.stderr
    chat(home, "-t", "q", "-p", "I live in Bern.", piped="My sister works as a pilot.\nI work as a dentist.\n")
    config = load_config(home / "config.yaml", environ={"HOLDFAST_HOME": str(home / "base")})
    with build(config) as harness:
        harness.memory.flush(60)
        known = " ".join(fact.content for fact in harness.memory.document(None).facts)
        assert not [held for held in harness.memory.review(None) if "Vim" in held.fact.content and held.rule != "not-typed"]
    assert "Bern" in known
    for word in ("dentist", "Nassau", "Vim", "pilot"):
        assert word not in known
