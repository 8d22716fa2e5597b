"""O2: every event is one log line in the documented form, under its component's name, and a structured record on request."""

from __future__ import annotations

import importlib
import json
import logging
import pkgutil
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast import errors, events
from holdfast.events import Bus, Event, JsonLines, LogSink, line_of, record_of

EXAMPLES = [
    (events.TokenCount(tokens=6553, window=8192), "[SummarizationMiddleware] Token count: 6553 / 8192 (80%)"),
    (events.TriggerMet(trigger="fraction", value=0.8), "[SummarizationMiddleware] Trigger: fraction threshold met (0.8)"),
    (events.CompactionPlanned(removed=42, kept=20), "[SummarizationMiddleware] Summarizing 42 messages, keeping last 20"),
    (events.SummaryMade(tokens=311), "[SummarizationMiddleware] Summary generated: 311 tokens"),
    (events.Compacted(messages=21, tokens=2900), "[SummarizationMiddleware] New message count: 21, token count: 2900"),
    (events.UpdateQueued(thread="t-1", messages=4), "[MemoryMiddleware] Queued conversation for t-1 (4 messages)"),
    (events.UpdateDebounced(thread="t-1", seconds=30), "[MemoryQueue] Debouncing update for t-1 (30s wait)"),
    (events.UpdateStarted(thread="t-1"), "[MemoryUpdater] Processing update for t-1"),
    (events.FactsExtracted(confidences=(0.95, 0.9)), "[MemoryUpdater] Extracted 2 new facts (confidence: [0.95, 0.9])"),
    (events.MemoryUpdated(slot="topOfMind"), "[MemoryUpdater] Updated topOfMind"),
    (events.MemoryPersisted(path="memory.json"), "[MemoryUpdater] Memory persisted to memory.json"),
    (events.TaskStarted(description="count words"), '[SubagentExecutor] Starting task: "count words"'),
    (events.TaskThread(thread="subagent-7"), "[SubagentExecutor] Isolated thread: subagent-7"),
    (events.TaskTurn(turn=3, max_turns=20), "[SubagentExecutor] Turn 3/20 completed"),
    (events.TaskCompleted(turns=3), "[SubagentExecutor] Task completed after 3 turns"),
    (events.TaskOutput(output="done"), '[SubagentExecutor] Final output: "done"'),
    (events.Artifacts(artifacts=("a.md", "b.md")), "[SubagentExecutor] Artifacts: [a.md, b.md]"),
]


@pytest.mark.parametrize(("event", "line"), EXAMPLES, ids=lambda v: v.kind() if isinstance(v, Event) else "")
def test_an_event_is_one_line_in_the_documented_form(event: Event, line: str) -> None:
    assert line_of(event) == line


def test_the_reference_forms_are_all_there() -> None:
    """Every line of the reference's form has an event whose template has the same words, where that file is at hand."""
    forms = Path(__file__).parents[3] / "shared" / "reference" / "log_lines.txt"
    if not forms.exists():
        pytest.skip("the reference forms are not beside this project; the examples above hold their own copies")
    hole = re.compile(r"\{\w+\}")
    ours = {hole.sub("{}", f"[{type(event).component}] {type(event).text}") for event, _ in EXAMPLES}
    wanted = {hole.sub("{}", line) for line in forms.read_text().splitlines() if line.startswith("[")}
    assert wanted == ours


SAMPLES: dict[object, object] = {str: "x", int: 3, float: 1.5, bool: True, type(None): None, tuple: ("x",), dict: {"x": 1}}


def sample(hint: Any) -> object:
    """Some value of a field's type."""
    origin = get_origin(hint)
    if origin is Literal:
        return get_args(hint)[0]
    return SAMPLES.get(origin or hint) if origin not in (Union, UnionType) else sample(get_args(hint)[0])


def all_events() -> Iterator[type[Event]]:
    """Every kind of event in the package, its modules imported as far as their extras are installed."""
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if ".testing" not in module.name and not module.name.endswith("__main__"):
            with suppress(ImportError, errors.HoldfastError):
                importlib.import_module(module.name)
    waiting = [Event]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.text and kind.__module__.startswith("holdfast."):
            yield kind


def test_every_event_can_be_written_as_a_line() -> None:
    """O2: a template that its fields do not fit would lose the line just when something went wrong."""
    kinds = list(all_events())
    assert len(kinds) > 40
    for kind in kinds:
        hints = get_type_hints(kind)
        make: Any = kind
        event = make(**{field.name: sample(hints[field.name]) for field in fields(kind)})
        assert line_of(event).startswith(f"[{kind.component}] ")


@given(st.text())
def test_a_value_is_never_a_template_and_never_a_second_line(text: str) -> None:
    line = line_of(events.TaskStarted(description=text))
    assert line.isprintable()
    if text.isprintable():
        assert line == f'[SubagentExecutor] Starting task: "{text}"'


def test_an_event_is_logged_under_its_component(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="holdfast")
    Bus(LogSink()).emit(events.SummaryMade(tokens=7))
    (record,) = caplog.records
    assert record.name == "holdfast.SummarizationMiddleware"
    assert record.getMessage() == "[SummarizationMiddleware] Summary generated: 7 tokens"
    assert record.holdfast_event == events.SummaryMade(tokens=7)  # type: ignore[attr-defined]  # set through `extra`


def test_the_structured_record_names_kind_component_and_fields() -> None:
    assert record_of(events.TaskTurn(turn=1, max_turns=5)) == {
        "event": "task_turn",
        "component": "SubagentExecutor",
        "turn": 1,
        "max_turns": 5,
    }


def test_a_failing_sink_does_not_stop_the_others_and_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: Event) -> None:
        raise RuntimeError("no")

    bus = Bus(broken)
    with bus.collect() as seen:
        bus.emit(events.SummaryMade(tokens=1))
    assert seen == [events.SummaryMade(tokens=1)]
    assert "a sink failed on summary_made" in caplog.text


def test_a_sink_that_left_hears_nothing_more() -> None:
    bus, seen = Bus(), list[Event]()
    leave = bus.subscribe(seen.append)
    leave()
    bus.emit(events.SummaryMade(tokens=1))
    assert seen == []


def test_a_user_can_make_events_of_his_own() -> None:
    @dataclass(frozen=True, kw_only=True)
    class BoxOpened(Event):
        component: ClassVar[str] = "Box"
        text: ClassVar[str] = "Opened {name}"
        name: str

    assert line_of(BoxOpened(name="{tokens}\n")) == "[Box] Opened {tokens}\\n"


def test_structured_logs_are_one_json_object_a_line() -> None:
    def made(name: str, message: str, **extra: object) -> logging.LogRecord:
        record = logging.LogRecord(name, logging.WARNING, __file__, 1, message, (), None)
        record.__dict__.update(extra)
        return record

    of_event = json.loads(JsonLines().format(made("holdfast.X", "line", holdfast_event=events.TaskOutput(output="a\nb"))))
    assert (of_event["event"], of_event["output"], of_event["level"]) == ("task_output", "a\nb", "warning")
    assert of_event["time"].endswith("Z")
    plain = JsonLines().format(made("holdfast.Y", "two\nlines"))
    assert "\n" not in plain
    assert json.loads(plain)["message"] == "two\nlines"


def test_a_key_in_a_provider_s_error_reaches_neither_the_line_nor_the_record(caplog: pytest.LogCaptureFixture) -> None:
    """C3, O2"""

    @dataclass(frozen=True, kw_only=True)
    class Refused(events.Event):
        text: ClassVar[str] = "Failed ({reason}; {others})"
        reason: str
        others: tuple[str, ...] = ()

    key = "sk-proj-Ab3dEf6hIj9kLm"
    event = Refused(reason=f"Incorrect API key provided: {key}", others=(f"Authorization: Bearer {key}",))
    with caplog.at_level(logging.INFO, "holdfast"):
        events.Bus(events.LogSink()).emit(event)
    assert "Incorrect API key" in caplog.text
    assert key not in caplog.text
    assert key not in json.dumps(events.record_of(event))
    plain = logging.LogRecord("holdfast", logging.ERROR, __file__, 1, "asked with %s", (key,), None)
    assert key not in events.JsonLines().format(plain)
