"""O2: the reference's seventeen log lines, letter by letter, each event once, from a real conversation; under its names too."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agents.bench import PROFILE, configured, is_subagent_call, look, make

from holdfast import make_lead_agent
from holdfast.agents.middleware.memory import open_memory
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import Request, call, repeat

FORMS = {
    "token count": r"\[SummarizationMiddleware\] Token count: \d+ / \d+ \(\d+%\)",
    "trigger": r"\[SummarizationMiddleware\] Trigger: messages threshold met \(8\)",
    "summarizing": r"\[SummarizationMiddleware\] Summarizing \d+ messages, keeping last \d+",
    "summary": r"\[SummarizationMiddleware\] Summary generated: \d+ tokens",
    "new count": r"\[SummarizationMiddleware\] New message count: \d+, token count: \d+",
    "queued": r"\[MemoryMiddleware\] Queued conversation for t1 \(2 messages\)",
    "debouncing": r"\[MemoryQueue\] Debouncing update for t1 \(30s wait\)",
    "processing": r"\[MemoryUpdater\] Processing update for t1",
    "extracted": r"\[MemoryUpdater\] Extracted 2 new facts \(confidence: \[0\.95, 0\.9\]\)",
    "updated": r"\[MemoryUpdater\] Updated topOfMind",
    "persisted": r"\[MemoryUpdater\] Memory persisted to /\S+/memory\.json",
    "starting": r'\[SubagentExecutor\] Starting task: "write a report"',
    "thread": r"\[SubagentExecutor\] Isolated thread: subagent-\w+",
    "turn": r"\[SubagentExecutor\] Turn [12]/20 completed",
    "completed": r"\[SubagentExecutor\] Task completed after 2 turns",
    "output": r'\[SubagentExecutor\] Final output: "Wrote the report\."',
    "artifacts": r"\[SubagentExecutor\] Artifacts: \[report\.md\]",
}
ONCE = sorted(set(FORMS) - {"token count", "turn", "queued", "debouncing"})
PLACES = {
    "SummarizationMiddleware": "agents.middlewares.summarization_middleware",
    "MemoryMiddleware": "agents.middlewares.memory_middleware",
    "MemoryQueue": "agents.memory.queue",
    "MemoryUpdater": "agents.memory.updater",
    "SubagentExecutor": "subagents.executor",
}
SAID = ["I prefer Emacs and I live in Lisbon.", "Please write a report.", "Thanks.", "Fine."]
LEARNED: Any = {
    "facts": [
        {"content": "User prefers Emacs", "category": "preference", "confidence": 95, "quote": SAID[0]},
        {"content": "User lives in Lisbon", "category": "identity", "confidence": 90, "quote": SAID[0]},
    ],
    "slots": [{"slot": "topOfMind", "text": "User prefers Emacs and lives in Lisbon."}],
}


def answer(request: Request) -> Any:
    if is_subagent_call(request):
        return [call("make", {"name": "report.md"})] if request.last.type == "human" else "Wrote the report."
    if request.last.type == "human" and "report" in request.last.text:
        return [call("task", {"description": "write a report", "prompt": "Write it."})]
    return "Noted."


def talk(base: Path) -> None:
    """Four turns: something to learn, a sub-agent that makes a file, and one compaction."""
    values = {
        "models": [
            {"name": "light", "use": "holdfast.testing.models:ScriptedModel", "script": ["All is well."] * 9, "max_input_tokens": 8000}
        ],
        "summarization": {"enabled": True, "trigger": {"type": "messages", "value": 8}, "keep": {"type": "messages", "value": 4}},
        "title": {"enabled": False},
    }
    config = configured(base, values)
    memory = open_memory(config, model=ScriptedModel([repeat(LEARNED)], profile=PROFILE))
    with memory, make_lead_agent(config, model=ScriptedModel(answer, profile=PROFILE), tools=[look, make], memory=memory) as agent:
        conversation = agent.conversation("t1")
        for text in SAID:
            conversation.ask(text)
        memory.flush()


class Heard(logging.Handler):
    """Keeps what reaches a handler: who logged it, and the line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("["):
            self.lines.append((record.name, record.getMessage()))


@pytest.fixture
def heard() -> Iterator[Heard]:
    """A handler at the root, as a program has one; levels are put back afterwards."""
    handler, root = Heard(), logging.getLogger()
    names = ["", "holdfast", "src", "deerflow", "src.agents.middlewares", "src.agents.memory", "src.subagents"]
    levels = {name: logging.getLogger(name).level for name in names}
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def check(lines: list[str]) -> None:
    found = Counter({name: sum(re.fullmatch(form, line) is not None for line in lines) for name, form in FORMS.items()})
    strange = [line for line in lines if not any(re.fullmatch(form, line) for form in FORMS.values())]
    assert not [line for line in strange if line.split("]")[0][1:] in PLACES], strange
    assert {name: found[name] for name in ONCE} == dict.fromkeys(ONCE, 1)
    assert found["turn"] == 2
    assert found["queued"] == found["debouncing"] == len(SAID)
    assert found["token count"] == len(SAID) + 3, "one for each model call: of the turns, after the sub-agent, and of the sub-agent"


def test_all_lines_come_from_a_real_conversation_each_event_once(tmp_path: Path, heard: Heard) -> None:
    logging.getLogger("holdfast").setLevel(logging.INFO)
    talk(tmp_path)
    check([line for _, line in heard.lines])
    assert {(name, line.split("]")[0][1:]) for name, line in heard.lines} >= {(f"holdfast.{place}", place) for place in PLACES}


@pytest.mark.parametrize("where", [["deerflow"], ["src.agents.middlewares", "src.agents.memory", "src.subagents"]], ids=["new", "old"])
@pytest.mark.parametrize("also", [logging.WARNING, logging.INFO], ids=["alone", "beside ours"])
def test_the_reference_s_loggers_set_to_debug_give_the_same_lines_once(tmp_path: Path, heard: Heard, where: list[str], also: int) -> None:
    """A program with a handler at the root reads each line once, under the name that it switched on."""
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("holdfast").setLevel(also)
    for name in where:
        logging.getLogger(name).setLevel(logging.DEBUG)
    talk(tmp_path)
    check([line for _, line in heard.lines])
    prefix = where[0].partition(".")[0]
    for name, line in heard.lines:
        component = line.split("]")[0][1:]
        if component in PLACES:
            assert name == f"{prefix}.{PLACES[component]}"
