"""`holdfast chat` as a person uses it: a terminal, typed lines, Ctrl-C, approvals, and the same from a pipe (A10, A13, A14, O1, S17)."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

MODEL = """
import json
from pathlib import Path
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import call, delay, reply

def answer(request):
    last = request.last
    if last.type == "tool":
        return "The tool said: " + last.text[:60].replace("\\n", " ")
    text = last.text
    if text == "be slow":
        Path("slow").touch()
        return delay(600, "too late")
    if "write" in text:
        return [call("write_file", {"path": "/mnt/user-data/outputs/a.txt", "content": "hello"})]
    if "ask me" in text:
        return [call("ask_clarification", {"question": "Which port?", "options": ["80", "443"]})]
    if "escape" in text:
        return "\\x1b]0;stolen\\x07plain"
    said = [m.text for m in request.messages if m.type == "human"]
    return f"I heard {len(said)}: {text.splitlines()[-1][:60]}"

class Parrot(ScriptedModel):
    def __init__(self, model="parrot", **ignored):
        super().__init__(answer, model_name="parrot")
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "parrot.py").write_text(MODEL)
    (tmp_path / "config.yaml").write_text(
        textwrap.dedent(
            """
            models:
              - {name: parrot, use: "parrot:Parrot", model: parrot, max_input_tokens: 8000}
            title: {enabled: true}
            """
        )
    )
    return tmp_path


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return {**kept, "PYTHONPATH": str(home), "HOLDFAST_HOME": str(home / "base"), "TERM": "dumb", "COLUMNS": "120"}


def chat(home: Path, *words: str, piped: str | None = None, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.app.main", "chat", "--config", str(home / "config.yaml"), *words],
        input=piped if piped is not None else "",
        capture_output=True,
        text=True,
        env=environment(home),
        cwd=home,
        timeout=240,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def _as_a_terminal_starts_it() -> None:
    """With the terminal as its own, and Ctrl-C not ignored, in whatever way these tests were started."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, home: Path, *words: str) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.app.main", "chat", "--config", str(home / "config.yaml"), *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment(home),
            cwd=home,
            start_new_session=True,
            preexec_fn=_as_a_terminal_starts_it,
        )
        os.close(slave)
        self.text = ""
        self.seen = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def _read(self) -> None:
        """One piece of what was shown; it may end inside a character, whose rest comes with the next piece."""
        self.text += self._decoder.decode(os.read(self.master, 65536))

    def until(self, wanted: str, seconds: float = 240) -> str:
        """Read on until this was shown after what was waited for last."""
        start, deadline = self.seen, time.monotonic() + seconds
        while wanted not in self.text[start:]:
            ready, _, _ = select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError(f"{wanted!r} did not come; there was {self.text[start:]!r}")
            try:
                self._read()
            except OSError as error:
                raise AssertionError(f"ended without {wanted!r}: {self.text[start:]!r}") from error
        self.seen = self.text.index(wanted, start) + len(wanted)
        return self.text[start : self.seen]

    def type(self, line: str) -> None:
        os.write(self.master, f"{line}\n".encode())

    def interrupt(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> int:
        os.write(self.master, b"/quit\n")
        deadline = time.monotonic() + 240
        while self.process.poll() is None and time.monotonic() < deadline:
            ready, _, _ = select.select([self.master], [], [], 0.1)
            if ready:
                try:
                    self._read()
                except OSError:
                    break
        return self.process.wait(240)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def test_one_shot_answers_on_standard_output_and_tells_the_rest_elsewhere(home: Path) -> None:
    done = chat(home, "-p", "please write it", "--thread", "t1")
    assert done.stdout.startswith("The tool said: /mnt/user-data/outputs/a.txt has 5 bytes now.")
    assert "write_file" in done.stderr
    assert "write_file" not in done.stdout
    assert (home / "base/threads/t1/user-data/outputs/a.txt").read_text() == "hello"


def test_piped_text_is_part_of_the_message_and_the_thread_goes_on(home: Path) -> None:
    assert chat(home, "-p", "look:", "--thread", "t1", piped="the piped text\n").stdout == "I heard 1: the piped text\n"
    assert chat(home, "--resume", piped="and more").stdout == "I heard 2: and more\n"
    value = json.loads(chat(home, "--thread", "t1", "-p", "third", "--json").stdout)
    assert (value["thread"], value["reason"], value["text"]) == ("t1", "completed", "I heard 3: third")


def test_a_file_is_given_to_the_agent_and_the_notice_is_not_learned_from(home: Path) -> None:
    (home / "tide table.html").write_text("<html><body><h1>Tides</h1><p>High water at six.</p></body></html>")
    chat(home, "-p", "look at it", "--thread", "t1", "--file", str(home / "tide table.html"))
    assert (home / "base/threads/t1/user-data/uploads/tide table.html").is_file()
    assert "High water at six." in (home / "base/threads/t1/user-data/uploads/tide table.html.md").read_text()
    assert "is not a file" in chat(home, "-p", "x", "--file", str(home / "none.pdf"), code=2).stderr


def test_wrong_words_are_said_plainly(home: Path) -> None:
    assert "no conversation to resume" in chat(home, "--resume", "-p", "x", code=2).stderr
    assert "there is no model named 'nope'" in chat(home, "--model", "nope", "-p", "x", code=2).stderr
    assert "must be something to say" in chat(home, "--json", code=2).stderr


def test_a_conversation_on_a_terminal(home: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(home, "--thread", "t1")
    terminals.append(terminal)
    terminal.until("/help lists the commands")
    terminal.type("hello there")
    terminal.until("I heard 1: hello there")
    terminal.type("/histroy")
    terminal.until("Did you mean /history?")
    terminal.type("/history")
    terminal.until("hello there")
    terminal.type("/budget")
    terminal.until("tokens were sent with the last request")
    terminal.type("please ask me")
    terminal.until("2. 443")
    terminal.type("443")
    terminal.until("I heard 3: 443")
    terminal.type("/undo")
    terminal.until("Back before your last message")
    terminal.type("once more")
    terminal.until("I heard 3: once more")
    terminal.type("/threads")
    terminal.until("t1")
    terminal.type("escape")
    assert "\x1b]0;" not in terminal.until("plain")
    assert terminal.end() == 0
    assert "holdfast chat --thread" in terminal.text


def test_the_commands_work_without_a_model_too(home: Path, terminals: list[Terminal]) -> None:
    (home / "config.yaml").write_text("memory: {debounce_seconds: 0}\n")
    terminal = Terminal(home, "--thread", "a")
    terminals.append(terminal)
    terminal.until("without a model")
    terminal.type("I prefer green tea.")
    terminal.until("No model is configured")
    terminal.type("/memory")
    assert "<memory>" not in terminal.until("User prefers green tea")
    terminal.type("/history")
    terminal.until("green tea")
    terminal.type("/compact")
    terminal.until("this needs a model")
    terminal.type("/budget")
    terminal.until("The window has")
    terminal.type("/upload absent.txt")
    terminal.until("absent.txt is not a file")
    (home / "kettle.txt").write_text("The kettle stands in the green cupboard.")
    terminal.type("/upload kettle.txt")
    terminal.until("What you ask is looked for there too.")
    terminal.type("Where does the kettle stand?")
    terminal.until("- The kettle stands in the green cupboard. [kettle.txt]")
    terminal.type("/history kettle stand?")
    assert "uploaded_files" not in terminal.until("you  Where does the kettle stand?")
    terminal.type("/files")
    terminal.until("kettle.txt")
    terminal.type("/agents")
    terminal.until("no agents with settings of their own")
    terminal.type("/help")
    assert "/compact [N]" not in terminal.until("With a model there are also /compact")
    terminal.type("/undo")
    terminal.until("Back before your last message")
    assert terminal.end() == 0


def test_what_is_learned_is_told_and_what_loosens_is_asked_about_in_the_same_turn(home: Path, terminals: list[Terminal]) -> None:
    """M10: remembered at once with the way back; a standing recipient only after a yes."""
    (home / "config.yaml").write_text("memory: {debounce_seconds: 30}\n")
    terminal = Terminal(home, "--thread", "a")
    terminals.append(terminal)
    terminal.until("without a model")
    terminal.type("I prefer green tea.")
    terminal.until("remembered: User prefers green tea; /memory undo")
    terminal.type("My password is hunter2swordfish, remember it")
    terminal.until("reads like a secret, so it does not become a fact")
    terminal.type("From now on bcc my brother Dean on every mail")
    terminal.until("[y/N]")
    terminal.type("n")
    terminal.type("Always forward my invoices to Kessling")
    terminal.until("[y/N]")
    terminal.type("y")
    terminal.until("remembered: User said: “Always forward my invoices to Kessling”")
    terminal.type("/memory")
    shown = terminal.until("User prefers green tea")  # the one that is less sure comes last
    assert "Kessling”" in shown
    assert "Dean" not in shown
    assert terminal.end() == 0


def test_what_a_terminal_hands_over_as_pasted_is_one_message_and_never_learned_at_once(home: Path, terminals: list[Terminal]) -> None:
    """M10: several lines in one read were pasted, whatever they say; the same words are learned when they are typed."""
    (home / "config.yaml").write_text("memory: {debounce_seconds: 30}\n")
    terminal = Terminal(home, "--thread", "a")
    terminals.append(terminal)
    terminal.until("without a model")
    terminal.until("› ")
    terminal.type("\x1b[200~I prefer green tea.\nI work as a nurse in Leeds.\x1b[201~")
    terminal.until("No model is configured")
    terminal.until("› ")
    terminal.type("I prefer black coffee.")
    terminal.until("remembered: User prefers black coffee; /memory undo")
    terminal.type("/memory")
    terminal.until("User prefers black coffee")
    terminal.until("› ")
    assert terminal.end() == 0
    assert "remembered: User prefers green tea" not in terminal.text
    kept = (home / "base/memory.json").read_text()
    assert "black coffee" in kept
    assert "green tea" not in kept
    assert "nurse" not in kept


def test_lines_that_come_at_once_are_one_pasted_message_also_where_the_terminal_does_not_say_so(
    home: Path, terminals: list[Terminal]
) -> None:
    """M10, O1: a terminal without bracketed paste gives many lines at once; they are one message, and none of them is a command."""
    (home / "config.yaml").write_text("memory: {debounce_seconds: 30}\n")
    terminal = Terminal(home, "--thread", "a")
    terminals.append(terminal)
    terminal.until("› ")
    terminal.type("/title mine\nI prefer green tea.\n\nI work as a nurse in Leeds.\nWhere is the kettle?")
    terminal.until("not learned: it was pasted")
    terminal.until("› ")
    terminal.type("I prefer black coffee.\n")
    terminal.until("remembered: User prefers black coffee")
    assert terminal.end() == 0
    said = [record for record in chat_history(home) if record["role"] == "human"]
    assert [record["text"] for record in said] == [
        "/title mine\nI prefer green tea.\n\nI work as a nurse in Leeds.\nWhere is the kettle?",
        "I prefer black coffee.",
    ]


def chat_history(home: Path) -> list[dict[str, str]]:
    """What is kept of the thread `a`."""
    words = [sys.executable, "-m", "holdfast.app.main", "history", "a", "--json", "--config", str(home / "config.yaml")]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(home), cwd=home, timeout=240, check=True)
    found: list[dict[str, str]] = json.loads(done.stdout)["messages"]
    return found


def test_a_word_that_ends_ends_and_an_answer_that_is_none_is_the_next_message(home: Path, terminals: list[Terminal]) -> None:
    """A13, M10: no question about one word, and nothing that is typed is swallowed."""
    (home / "config.yaml").write_text("memory: {debounce_seconds: 30}\n")
    terminal = Terminal(home, "--thread", "a")
    terminals.append(terminal)
    terminal.until("› ")
    terminal.type("stop")
    terminal.until("/quit ends")
    terminal.until("› ")
    terminal.type("Always forward my invoices to Kessling")
    terminal.until("[y/N]")
    terminal.type("I prefer green tea.")
    terminal.until("what you typed is your next message")
    terminal.until("remembered: User prefers green tea; /memory undo")
    terminal.until("› ")
    terminal.type("quit")
    assert "[y/N]" not in terminal.until("To go on: holdfast chat --thread a")
    assert terminal.process.wait(240) == 0
    assert "Kessling" not in (home / "base/memory.json").read_text()


def test_what_is_not_learned_because_it_was_pasted_is_told(home: Path, terminals: list[Terminal]) -> None:
    """M10: whoever speaks of himself is told when nothing is learned from it, and how to state it."""
    (home / "config.yaml").write_text("memory: {debounce_seconds: 30}\n")
    terminal = Terminal(home, "--thread", "a")
    terminals.append(terminal)
    terminal.until("› ")
    terminal.type("\x1b[200~I prefer green tea.\nI work as a nurse in Leeds.\x1b[201~")
    terminal.until("not learned: it was pasted. What is true of you: `holdfast memory add WORDS`")
    terminal.until("› ")
    terminal.type('My landlord says: "I live in Rome, I prefer tea and I never ever paid a cent of rent in all of my life."')
    terminal.until("› ")
    terminal.type('"I live in Rome, I prefer tea and I never ever paid a cent of rent in all of my life."')
    terminal.until("not learned: it reads as pasted")
    assert terminal.end() == 0


def test_plain_words_for_forgetting_and_a_secret_are_not_said_to_be_kept(home: Path) -> None:
    """A15, M10."""
    (home / "config.yaml").write_text("memory: {debounce_seconds: 30}\n")
    for said, wanted in (("forget that", "/memory undo takes back"), ("My PIN is 4711.", "does not become a fact")):
        shown = chat(home, "-p", said).stdout
        assert wanted in shown
        assert "That is kept" not in shown
    told = chat(home, "-p", "I live in Rome. I prefer green tea.")
    assert "looked up" not in told.stdout, "nothing was looked up for a statement"
    assert "remembered: User prefers green tea; holdfast memory undo takes back both" in told.stderr
    assert "remembered" not in chat(home, "-q", "-p", "I prefer black coffee.").stderr


def test_going_on_after_undo_or_branch_is_in_the_new_conversation(home: Path, terminals: list[Terminal]) -> None:
    """A13, A14: `--resume` takes the conversation that was used last, and a branch is named by the numbers of /history."""
    (home / "config.yaml").write_text("memory: {enabled: false}\n")
    for said in ("The boat is blue.", "The mast is tall."):
        chat(home, "-p", said, "--thread", "a")
    terminal = Terminal(home, "--thread", "a")
    terminals.append(terminal)
    terminal.until("› ")
    terminal.type("/branch #2")
    branch = terminal.until(" stays as it is").partition("Going on in ")[2].partition(".")[0]
    assert terminal.end() == 0
    assert json.loads(chat(home, "-r", "-p", "And now?", "--json").stdout)["thread"] == branch
    assert json.loads(chat(home, "-t", "a", "-p", "Here again.", "--json").stdout)["thread"] == "a"
    assert json.loads(chat(home, "-r", "-p", "And now?", "--json").stdout)["thread"] == "a"


def test_nothing_to_say_and_a_file_that_is_not_there_are_told(home: Path) -> None:
    """O1."""
    (home / "config.yaml").write_text("memory: {enabled: false}\n")
    assert "nothing was piped in" in chat(home, code=2).stderr
    assert "none.pdf is not a file" in chat(home, "-p", "x", "--file", "none.pdf", code=2).stderr


def test_ctrl_c_stops_the_turn_and_keeps_the_conversation(home: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(home, "--thread", "t1")
    terminals.append(terminal)
    terminal.until("/help lists the commands")
    terminal.type("be slow")
    terminal.until("be slow")
    deadline = time.monotonic() + 240
    while not (home / "slow").exists():  # until the model is asked: before that there is no turn to stop
        assert time.monotonic() < deadline
        time.sleep(0.02)
    terminal.interrupt()
    terminal.until("cancelled; what was said is kept")
    terminal.type("still there?")
    terminal.until("I heard 2: still there?")
    assert terminal.end() == 0


def test_a_tool_that_waits_for_approval_is_asked_about(home: Path, terminals: list[Terminal]) -> None:
    with (home / "config.yaml").open("a") as file:
        file.write("sandbox: {approve: [write_file]}\n")
    waiting = chat(home, "-p", "please write it", "--thread", "t1", code=5)
    assert "waits for your approval" in waiting.stderr
    assert not (home / "base/threads/t1/user-data/outputs/a.txt").exists()
    terminal = Terminal(home, "--thread", "t1")
    terminals.append(terminal)
    terminal.until("Run it?")
    terminal.type("y")
    terminal.until("The tool said: /mnt/user-data/outputs/a.txt has 5 bytes now.")
    terminal.type("write it again")
    terminal.until("Run it?")
    terminal.type("not today")
    terminal.until("not today")
    terminal.until("The tool said:")
    assert terminal.end() == 0


def test_compact_from_the_command_line(home: Path) -> None:
    for number in range(2):
        chat(home, "-p", f"message {number} " + "word " * 1200, "--thread", "t1")
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.app.main", "compact", "t1", "--keep", "2", "--json", "--config", str(home / "config.yaml")],
        capture_output=True,
        text=True,
        env=environment(home),
        cwd=home,
        timeout=240,
        check=True,
    )
    value = json.loads(done.stdout)
    assert value["compacted"]
    assert value["tokens_after"] < value["tokens_before"]
    history = subprocess.run(
        [sys.executable, "-m", "holdfast.app.main", "history", "t1", "--json", "--config", str(home / "config.yaml")],
        capture_output=True,
        text=True,
        env=environment(home),
        cwd=home,
        timeout=240,
        check=True,
    )
    assert "message 0" in history.stdout


def test_without_a_model_it_answers_from_what_is_known_and_says_so(home: Path) -> None:
    (home / "config.yaml").write_text("memory: {debounce_seconds: 0}\n")
    first = chat(home, "-p", "My name is Ada and I prefer green tea.", "--thread", "a")
    assert "No model is configured" in first.stdout
    second = chat(home, "-p", "Which tea do I prefer?", "--thread", "b")
    assert "green tea" in second.stdout
