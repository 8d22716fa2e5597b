"""A program for `test_terminal_screens`: makes a base directory with realistic content and runs commands in a real pseudo-terminal.

Times and ids are made, not drawn: the same words give the same screen on every machine. Run by hand it prints the screens:

    python tests/integration/terminal_screens.py 80 threads "memory show"
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pty
import re
import shlex
import shutil
import struct
import sys
import tempfile
import termios
import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

import holdfast
from holdfast.app.main import main
from holdfast.config.trust import agree
from holdfast.context.records import SummaryRecord, records_of
from holdfast.context.view import PlainMessage
from holdfast.harness import Harness
from holdfast.knowledge.records import Record
from holdfast.session.output import Finding, StageOutput
from holdfast.session.state import Session, SessionError, StageRecord
from holdfast.testing.clock import FakeClock
from holdfast.testing.models import ScriptedModel

BEGIN = datetime(2026, 4, 19, 9, 12, tzinfo=UTC)
THREADS = ("thread-1m7h87219f30c38b5ae", "thread-1m7h872199f51bff25e")
CONFIG = """
holdfast_version: 1
memory: {debounce_seconds: 5}
summarization: {trigger: {type: fraction, value: 0.8}}
channels: {slack: {enabled: true}}
"""
MODELS = """
holdfast_version: 1
models:
  - {name: main, use: openai, model: gpt-4o, api_key: $OPENAI_API_KEY, max_input_tokens: 128000, pricing: {input: 2.5, output: 10}}
  - {name: small, use: openai, model: gpt-4o-mini, api_key: $OPENAI_API_KEY, lightweight: true}
"""


class LongIds:
    """Ids as long as real ones, and the same in every run."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def new(self, prefix: str = "") -> str:
        self._counts[prefix] += 1
        body = "1m7h87219" + blake2b(f"{prefix}{self._counts[prefix]}".encode(), digest_size=5).hexdigest()
        return f"{prefix}-{body}" if prefix else body


def furnish(folder: Path) -> None:
    """A project folder with a configuration, and in its base directory something of everything."""
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "models.yaml").write_text(MODELS)
    (folder / "research.yaml").write_text(WORKFLOW)
    (folder / "notes").mkdir()
    (folder / "notes" / "heating.md").write_text(HEATING)
    (folder / "skills" / "report-writing").mkdir(parents=True)
    (folder / "skills" / "report-writing" / "SKILL.md").write_text(
        "---\nname: report-writing\ndescription: How reports are written here, from the outline to the check of figures.\n---\nBegin.\n"
    )
    clock = FakeClock(BEGIN)
    with holdfast.build(folder / "config.yaml", clock=clock, ids=LongIds()) as harness:
        _memory(harness, clock)
        _conversations(harness, clock)
        _knowledge(harness)
        _sessions(harness)


WORKFLOW = """
id: noise
task: How loud is the Calora M9 at the neighbour's window, and what is the heat loss of the house?
stages:
  - {name: plan, agent_type: planner}
  - {name: research, agent_type: researcher, sources: {folder: notes}}
  - {name: report, agent_type: writer}
"""
HEATING = """# Heating of the house at 12 Elm Row

## Heat loss

The survey of 2025 puts the heat loss of the house at 6.8 kW at minus 7 degrees outside. The installer's own estimate is 5.4 kW.

## Noise

The Calora M9 gave 41 dB(A) at the neighbour's window in night mode, and 44 dB(A) by day.
"""


def _memory(harness: Harness, clock: FakeClock) -> None:
    memory = harness.memory
    for content, category, confidence in (
        ("Prefers short answers with the figures first, and no polite padding at the end", "preference", 0.95),
        ("Works as a nurse in Lisbon and is on night shift in every third week", "context", 0.9),
        ("Uses PostgreSQL 17", "knowledge", 1.0),
        ("Is choosing a heat pump for the house at 12 Elm Row before the grant ends in June", "goal", 0.85),
    ):
        memory.add(content, category=category, confidence=confidence)
        clock.advance(86_400)
    memory.write_slot(
        "topOfMind", "The heat pump: three offers are in, the neighbour is worried about the noise, and the grant ends in June."
    )
    facts = memory.document().facts
    memory.edit(facts[2].id, content="Uses PostgreSQL 18, and pgvector for everything that has to be found by meaning")


def _conversations(harness: Harness, clock: FakeClock) -> None:
    clock.advance(3_600)
    with harness.lead_agent(model=ScriptedModel(["Lisbon has three good markets.", "The one in Ribeira is open on Sundays."])) as agent:
        talk = agent.conversation(THREADS[0])
        talk.ask("Which markets are there in Lisbon, and which of them are open on a Sunday morning?")
        talk.ask("And on Sundays?")
        talk.title = "Markets in Lisbon on a Sunday morning"
    clock.advance(86_400)
    said = [
        PlainMessage(
            "human",
            "We call the staging server heron. It stands in Frankfurt, and the owner is the platform team.",
            "message-1m7h87219nz0001",
        ),
        PlainMessage(
            "ai",
            "Noted: heron, in Frankfurt, owned by the platform team.",
            "message-1m7h87219nz0002",
            tool_calls=[{"id": "c1", "name": "bash", "args": {"command": "uptime"}}],
        ),
        PlainMessage("tool", "up 3 weeks", "message-1m7h87219nz0003", tool_call_id="c1", name="bash"),
    ]
    harness.archive.add("staging", records_of(said, history=said, tokens={"message-1m7h87219nz0001": 24}))
    harness.archive.add(
        "staging", [SummaryRecord("summary-1m7h87219nz0004", "They named heron.", ("message-1m7h87219nz0001",), 900, 40, "small", "model")]
    )
    clock.advance(60)
    asked = [
        PlainMessage("human", "What is the heat loss of the house at 12 Elm Row?", "message-1m7h87219nz0005"),
        PlainMessage(
            "ai",
            "- The survey puts it at 6.8 kW. [notes/heating.md]",
            "message-1m7h87219nz0006",
            additional_kwargs={"holdfast": {"extracted": True}},
        ),
    ]
    harness.archive.add(THREADS[1], records_of(asked))


def _knowledge(harness: Harness) -> None:
    day = BEGIN
    records = []
    for text, source, tags in (
        (
            "The staging server is called heron. It stands in Frankfurt and is owned by the platform team, who answer within the hour.",
            "wiki/servers",
            ("infra",),
        ),
        (
            "Throughput of Harrow: 12,400 messages per second on three nodes with replication, 31,000 without. "
            + "The test ran for an hour. " * 30,
            "bench/harrow.md",
            ("queues", "measured"),
        ),
        (
            "The heat loss of the house was measured at 6.8 kW; the installer assumed 5.4 kW, hence the smaller pump in his offer.",
            "notes/heating.md",
            ("house",),
        ),
    ):
        records.append(Record(text, source=source, tags=tags, time=day, kind="note", trust="high"))
        day += timedelta(days=1)
    harness.knowledge.add(records)


def _sessions(harness: Harness) -> None:
    store = harness.sessions
    names = ("plan", "web_research", "synthesis", "report")
    workflow = {"id": "vector-databases", "stages": [{"name": name} for name in names]}
    task = "Which vector database fits a team of four with ten million records, and what does it cost in a year?"
    outputs = {
        "plan": StageOutput(
            "plan", "Four questions follow from the task: cost, speed, upkeep and who has used it at this size.", (), "high"
        ),
        "web_research": StageOutput(
            "web_research",
            "Nine sources were read. Two of them were measured by others than the maker, and these disagree with the makers' own figures.",
            (
                Finding(
                    "Osprey answers in 12 ms at ten million records on a machine with 32 GB of memory", "https://bench.example/osprey", True
                ),
                Finding("Harrow costs nothing up to a million records", "https://harrow.example/pricing", False),
            ),
            "medium",
            ("Ask for the price of ten million records",),
            ("raw:sha256-3f1c9a",),
        ),
    }
    stages = {
        "plan": StageRecord("completed", 1, seconds=2.3, tokens=1520, model="main"),
        "web_research": StageRecord("completed", 2, seconds=41.7, tokens=28_410, model="main"),
    }
    made = store.create(Session("vector-databases-2026-04-19-001", task=task, workflow=workflow, topic_tag="databases"))
    state = store.commit(
        replace(made, status="running", current_stage="synthesis", completed_stages=names[:2], stage_outputs=outputs, stages=stages),
        expect=1,
    )
    store.checkpoint(state, "002-web_research")
    error = SessionError(
        "synthesis",
        "malformed_output",
        "the output does not fit its form",
        ("key_findings[0].source: is missing",),
        '{"summary": "Osprey is the one"}',
    )
    store.commit(replace(state, status="halted", error=error), expect=2)
    done = store.create(
        Session(
            "heat-pumps-2026-04-20-001",
            task="Which of the three heat pumps is the quietest?",
            workflow={"id": "heat-pumps", "stages": [{"name": "report"}]},
        )
    )
    report = StageOutput("report", "The Norvik is the quietest, at 36 dB(A).", (), "high", data={"report": REPORT})
    store.commit(replace(done, status="completed", completed_stages=("report",), stage_outputs={"report": report}), expect=1)


REPORT = """# Which heat pump is the quietest?

The **Norvik Aero 8** is, at *36 dB(A)* at the neighbour's window [1]. The maker of the Calora says 49 dB(A) of sound power.

## What speaks against it

- It was measured in night mode only [1], and by day nobody has measured it yet, so that the comparison with the others rests on one figure.
- The installer has not fitted one before [2].

| pump | night | day |
|---|---|---|
| Calora M9 | 41 dB(A) | 44 dB(A) |
| Norvik Aero 8 | 36 dB(A) | not measured |
"""


def screen(words: list[str], width: int, folder: Path, typed: str = "") -> str:
    """What stands on a terminal of this width after a command, without colours. `typed` is what a person types into it."""
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))  # before there is anybody who could look
    child = os.fork()
    if child == 0:
        os.close(terminal)
        os.login_tty(inside)
        os.chdir(folder)
        sys.stdin = os.fdopen(0, "r")
        sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
        sys.argv[:] = ["holdfast", *words]
        try:
            main()
        except SystemExit:
            pass
        except BaseException:  # noqa: BLE001 - it is seen on the screen
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
    os.close(inside)
    os.write(terminal, typed.encode())
    seen = b""
    while True:
        try:
            part = os.read(terminal, 65_536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(terminal)
    os.waitpid(child, 0)
    return plain(seen.decode("utf-8", "replace"), folder)


def plain(seen: str, folder: Path) -> str:
    """Without what commands the terminal, with one name for the folder, and with made times and ids in place of those of this run."""
    seen = re.sub(r"\x1b\][^\x07]*\x07|\x1b\[[0-9;?]*[A-Za-z]", "", seen).replace("\r\n", "\n")
    seen = seen.replace(str(folder), "/home/ann/my/heat-pumps")
    seen = re.sub(r"\b(thread-|fact_|change-|message-)(?!1m7h87219)[0-9a-z]{19}", r"\g<1>1m7h87219xxxxxxxxxx", seen)
    seen = re.sub(r"20\d\d-(?!04-)\d\d-\d\d", "2026-11-16", seen)
    return "\n".join(line.rstrip() for line in seen.splitlines()).strip("\n") + "\n"


def play(commands: Mapping[str, str], width: int, folder: Path) -> dict[str, str]:
    """The screen of each command, one after the other; what a person types is given where it is not empty."""
    agree(folder / "config.yaml", CONFIG.encode(), None, time="2026-04-19T09:00:00+00:00")
    return {words: screen(shlex.split(words), width, folder, typed) for words, typed in commands.items()}


def main_program() -> None:
    """`--json` reads {width: {command: what is typed}} and prints {width: {command: screen}}; words are a width and commands to show."""
    for name in ("COLUMNS", "LINES", "NO_COLOR", "HOLDFAST_HOME", "HOLDFAST_CONFIG", "OPENAI_API_KEY"):
        os.environ.pop(name, None)
    os.environ["TERM"] = "xterm-256color"
    os.environ["HOLDFAST_CONFIG"] = "config.yaml"  # named, so that it counts whole and everything is kept beside it
    logging.getLogger("holdfast").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="screens-", dir="/tmp") as above:
        os.environ["HOME"] = os.environ["XDG_CONFIG_HOME"] = str(Path(above, "home"))
        first = Path(above, "0")
        first.mkdir()
        furnish(first)
        words = sys.argv[1:]
        asked: dict[str, Any] = json.load(sys.stdin) if words == ["--json"] else {words[0]: dict.fromkeys(words[1:], "")}
        found = {}
        for number, (width, commands) in enumerate(asked.items(), 1):
            folder = Path(above, str(number))
            shutil.copytree(first, folder)
            found[width] = play(commands, int(width), folder)
    if words == ["--json"]:
        print(json.dumps(found))
        return
    for screens in found.values():
        for command, seen in screens.items():
            print(f"\x1b[7m$ holdfast {command}\x1b[0m\n{seen}")


if __name__ == "__main__":
    main_program()
