"""S2, S4, S11: a trigger acts where it is set, keeps what `keep` says, and does not come again at once.

The configurations are the eight of the reference's documents; messages have 30, 100 and 300 words.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from benchmarks.parts.trigger_starts import (
    CONFIGURATIONS,
    COUNT,
    Watch,
    lead_agent,
    plain_agent,
    run,
    text_of,
    window_of,
)
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from holdfast import SummarizationMiddleware
from holdfast.context.archive import MemoryArchive
from holdfast.context.window import CompactionWaits
from holdfast.events import Bus
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import repeat

CASES = [(name, words) for name in CONFIGURATIONS for words in (30, 100, 300)]


def sizes(settings: Mapping[str, Any], window: int) -> list[tuple[int, float]]:
    """Where each condition is in a measured request, and its limit."""
    entries = settings["trigger"] if isinstance(settings["trigger"], list) else [settings["trigger"]]
    return [({"fraction": 0, "tokens": 1, "messages": 2}[kind], value * window if kind == "fraction" else value) for kind, value in entries]


def long_talk(settings: Mapping[str, Any], watch: Watch, words: int, fixed: int) -> list[AnyMessage]:
    """A history that is a few turns short of the first threshold."""
    history: list[AnyMessage] = []
    for turn in range(1000):
        pair: list[AnyMessage] = [HumanMessage(text_of(turn, words), id=f"h{turn}"), AIMessage("Noted.", id=f"a{turn}")]
        further = [*history, *pair * 3]
        tokens = COUNT.count_messages(further)
        if any((tokens + fixed, tokens, len(further))[place] >= limit for place, limit in sizes(settings, watch.window)):
            return history
        history += pair
    raise AssertionError("no threshold is met")


def check_start(name: str, words: int, graph: Any, watch: Watch, fixed: int) -> None:
    settings = CONFIGURATIONS[name]
    config = {"configurable": {"thread_id": "t"}}
    history = long_talk(settings, watch, words, fixed)
    graph.invoke({"messages": [*history, HumanMessage(text_of(5000, words))]}, config)
    for turn in range(6):
        if watch.compactions:
            break
        graph.invoke({"messages": [HumanMessage(text_of(6000 + turn, words))]}, config)
    assert watch.compactions, "it started within six turns"
    limits = sizes(settings, watch.window)
    before, earlier = watch.before[0], watch.requests[watch.compactions[0] - 1]
    assert any(before[place] >= limit * 0.999 for place, limit in limits), "not before the threshold"
    assert all(earlier[place] < limit for place, limit in limits), "and at the first call that reached it"
    tokens, messages = watch.kept[0]
    kind, amount = settings.get("keep", ("messages", 20))
    if kind == "messages":
        assert messages == amount
    else:
        one = COUNT.count_message(HumanMessage(text_of(1, words)))
        assert amount * watch.window - one - 20 < tokens <= amount * watch.window


@pytest.mark.parametrize(("name", "words"), CASES)
def test_each_configuration_starts_within_one_message_and_keeps_what_it_says(name: str, words: int) -> None:
    """In a plain `create_agent`."""
    watch = Watch(window_of(CONFIGURATIONS[name]))
    check_start(name, words, plain_agent(CONFIGURATIONS[name], watch), watch, fixed=3)


@pytest.mark.parametrize(("name", "words"), CASES)
def test_the_same_in_the_lead_agent(name: str, words: int, tmp_path: Path) -> None:
    watch = Watch(window_of(CONFIGURATIONS[name]))
    check_start(name, words, lead_agent(CONFIGURATIONS[name], watch, tmp_path), watch, fixed=1300)


@pytest.mark.parametrize("name", ["8k", "minimal", "short_session"])
def test_there_is_at_most_one_compaction_in_ten_calls(name: str) -> None:
    """Also where `keep` alone is at the trigger, and where ten calls bring more than the window has."""
    watch = Watch(window_of(CONFIGURATIONS[name]))
    run(plain_agent(CONFIGURATIONS[name], watch), watch, words=300, turns=60)
    assert 3 <= len(watch.compactions) <= 6
    assert max(whole for whole, _, _ in watch.requests) <= watch.window


def test_a_tight_message_trigger_does_not_compact_on_every_turn() -> None:
    """The summary and the goal, which stay besides `keep`, do not bring the next one nearer."""
    watch = Watch(8192)
    run(plain_agent({"trigger": ("messages", 8), "keep": ("messages", 4)}, watch), watch, words=10, turns=24)
    assert watch.compactions == [4, 14]


def test_a_trigger_that_waits_says_why_once() -> None:
    bus = Bus()
    watch = Watch(8192)
    with bus.collect() as seen:
        run(plain_agent({"trigger": ("messages", 8), "keep": ("messages", 4)}, watch, bus=bus), watch, words=10, turns=13)
    waits = [event for event in seen if isinstance(event, CompactionWaits)]
    assert [event.trigger for event in waits] == ["messages"]
    assert "one in 10" in waits[0].reason


def test_the_rest_after_a_compaction_holds_in_another_process() -> None:
    """S11: the summary itself says until where it reaches; a command that is started for each message would else compact each time."""
    saver, archive = InMemorySaver(), MemoryArchive()
    for turn in range(16):
        notes = ScriptedModel([repeat("NOTES")], usage=False)
        keep = SummarizationMiddleware(notes, trigger=("messages", 8), keep=("messages", 4), archive=archive, recall=False)
        model = ScriptedModel([repeat("fine")], profile={"max_input_tokens": 8192}, usage=False)
        agent = create_agent(model, [], middleware=[keep], checkpointer=saver)
        agent.invoke({"messages": [HumanMessage(f"Question {turn}")]}, {"configurable": {"thread_id": "t"}})
    assert len(archive.summaries("t")) == 2


def test_tools_that_come_with_a_compaction_do_not_start_one() -> None:
    """S2: the whole request is what is sent now. The tools of the archive come once something has left."""
    watch = Watch(8192)
    graph = plain_agent({"trigger": ("fraction", 0.5), "keep": ("messages", 4)}, watch)
    run(graph, watch, words=40, turns=120, until_first=True)
    assert 4096 <= watch.before[0][0] < 4096 + 2 * (watch.requests[1][0] - watch.requests[0][0])
