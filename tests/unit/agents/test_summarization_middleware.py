"""S1-S17, A11: `SummarizationMiddleware` in a real `create_agent`. Each test is a defect that a naive implementation has."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.exceptions import ModelInvalidRequestError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.context.archive import FileArchive, MemoryArchive
from holdfast.context.compaction import LEAD
from holdfast.context.window import LeaveFailed, SummaryFailed
from holdfast.errors import BudgetError, ConfigError, StorageError
from holdfast.events import Bus, line_of
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import call, delay, raises, repeat
from holdfast.tokens.accounts import Accounts
from holdfast.tokens.counter import open_counter

WINDOW = 8000
COUNT = open_counter("exact")
FILLER = "The quarterly planning notes mention several small items that nobody needs to remember for long. "


def talk(turns: int, words: int = 1) -> list[Any]:
    """A conversation of alternating messages with ids."""
    history: list[Any] = []
    for turn in range(turns):
        history.append(HumanMessage(f"Question {turn}: {FILLER * words}", id=f"h{turn}"))
        history.append(AIMessage(f"Answer {turn}: {FILLER * words}", id=f"a{turn}"))
    return history


def loop(calls: int, words: int = 2) -> list[Any]:
    """One goal and a long tool loop."""
    history: list[Any] = [HumanMessage("GOAL: find the cheapest region", id="goal")]
    for number in range(calls):
        history.append(AIMessage("", id=f"a{number}", tool_calls=[{"id": f"c{number}", "name": "probe", "args": {"n": number}}]))
        history.append(ToolMessage(f"RESULT-{number} {FILLER * words}", id=f"t{number}", tool_call_id=f"c{number}", name="probe"))
    return history


def summarizer(*steps: Any) -> ScriptedModel:
    return ScriptedModel(list(steps) or [repeat("NOTES of what was said")], profile={"max_input_tokens": 8000})


def runner() -> ScriptedModel:
    return ScriptedModel([repeat("fine")], profile={"max_input_tokens": WINDOW})


def sent(model: ScriptedModel, number: int = -1) -> list[Any]:
    return list(model.requests[number].messages)


def run(
    history: Sequence[Any], middleware: SummarizationMiddleware, model: ScriptedModel | None = None, **more: Any
) -> tuple[ScriptedModel, dict[str, Any]]:
    model = model or runner()
    agent = create_agent(model, more.pop("tools", []), middleware=[middleware], **more)
    return model, agent.invoke({"messages": [*history, HumanMessage("And now?", id="newest")]})


def made(model: ScriptedModel | None, **settings: Any) -> SummarizationMiddleware:
    return SummarizationMiddleware(model, **{"trigger": ("tokens", 800), "keep": ("messages", 4), "archive": MemoryArchive(), **settings})


def archived(middleware: SummarizationMiddleware) -> dict[str, str]:
    return {record.id: record.text for thread in middleware.archive.threads() for record in middleware.archive.messages(thread)}


def test_old_messages_leave_by_a_summary_and_are_in_the_archive_word_for_word() -> None:
    """S8, S9"""
    middleware = made(summarizer())
    history = talk(20)
    model, state = run(history, middleware)
    messages = sent(model)
    assert messages[0].text.startswith(LEAD)
    assert isinstance(messages[0], HumanMessage)
    assert [m.id for m in messages[-4:]] == ["a18", "h19", "a19", "newest"]
    assert "h0" in {m.id for m in messages}, "the first goal stays"
    stored = archived(middleware)
    gone = [m for m in history if m.id not in {kept.id for kept in messages}]
    assert gone
    assert all(stored[str(m.id)] == m.text for m in gone)
    assert [m.id for m in state["messages"]][:-1] == [m.id for m in messages], "the state holds summary and tail, then the answer"
    (record,) = middleware.archive.summaries(middleware.archive.threads()[0])
    assert set(record.covers) == {m.id for m in gone}
    assert record.how == "model"


@pytest.mark.parametrize(
    "answer",
    ["", "  \n ", "I'm sorry, but I can't help with that.", "word " * 9000, raises(RuntimeError("down")), raises("timeout")],
    ids=str,
)
def test_a_useless_summary_changes_nothing_and_is_not_tried_again_at_once(answer: Any) -> None:
    """S10: empty, blank, refused, over-long, raising."""
    model = summarizer(repeat(answer))
    middleware = made(model)
    history = talk(20)
    running, state = run(history, middleware)
    assert [m.id for m in sent(running)] == [*(m.id for m in history), "newest"]
    tried = len(model.requests)
    for _ in range(3):
        run(history, middleware, running)
    assert len(model.requests) == tried, "it was asked again on the very next calls"
    assert len(state["messages"]) == len(history) + 2


def test_when_the_window_would_overflow_an_extract_takes_the_place_of_a_failed_summary() -> None:
    """S10"""
    middleware = made(summarizer(repeat(raises(RuntimeError("down")))), trigger=("fraction", 0.9))
    history = talk(300)
    model, _ = run(history, middleware)
    messages = sent(model)
    assert COUNT.count_messages(messages) <= WINDOW
    assert "Made without a model" in messages[0].text
    (record,) = middleware.archive.summaries(middleware.archive.threads()[0])
    assert record.how == "extract"


def test_a_summarizer_that_hangs_costs_the_time_out_only() -> None:
    """S10"""
    middleware = made(summarizer(delay(30, "late")), timeout=0.2)
    history = talk(20)
    model, _ = run(history, middleware)
    assert len(sent(model)) == len(history) + 1


def test_a_summarizer_with_a_small_window_reads_everything_in_chunks() -> None:
    """S7"""
    small = ScriptedModel([repeat("NOTES")], profile={"max_input_tokens": 1024})
    middleware = made(small, trim_tokens_to_summarize=None)
    history = talk(60)
    run(history, middleware)
    read = "\n".join(request.text for request in small.requests)
    assert all(COUNT.count_text(request.text) <= 1024 for request in small.requests)
    gone = set(middleware.archive.summaries(middleware.archive.threads()[0])[0].covers)
    assert len(gone) > 50
    assert all(m.text.split(":")[0] + ":" in read for m in history if m.id in gone)


def test_in_a_tool_loop_the_goal_stays_and_all_results_reach_the_summarizer() -> None:
    """S6, S7: one user message and 120 assistant and tool messages over 4,000 tokens."""
    model = summarizer()
    middleware = made(model)
    history = loop(60, words=3)
    assert COUNT.count_messages(history) > 4000
    agent_model = runner()
    create_agent(agent_model, [], middleware=[middleware]).invoke({"messages": history})
    messages = sent(agent_model)
    read = "\n".join(request.text for request in model.requests)
    kept = {m.id for m in messages}
    assert "goal" in kept
    for number in range(60):
        assert f"t{number}" in kept or f"RESULT-{number} " in read, f"result {number} was neither kept nor read"


def test_the_tenth_compaction_still_knows_what_the_first_one_knew() -> None:
    """S7: the previous summary is folded in explicitly."""

    def fold(request: Any) -> str:
        lines = [line for line in request.text.splitlines() if "KEY-" in line]
        return "NOTES " + " ".join(sorted({word for line in lines for word in line.split() if word.startswith("KEY-")}))

    model = ScriptedModel([repeat(fold)], profile={"max_input_tokens": 8000})
    middleware = made(model, keep=("messages", 2), recall=False)
    running = ScriptedModel([repeat("ok")], profile={"max_input_tokens": WINDOW})
    agent = create_agent(running, [], middleware=[middleware], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "long"}}
    for turn in range(200):
        agent.invoke({"messages": [HumanMessage(f"KEY-{turn} {FILLER * 3}")]}, config)
    summaries = middleware.archive.summaries("long")
    assert len(summaries) >= 10
    assert all(f"KEY-{turn}" in summaries[-1].text for turn in range(1, 150))
    assert summaries[-1].previous == summaries[-2].id


def test_keep_larger_than_the_trigger_does_not_thrash() -> None:
    """S11: at most one compaction in ten calls."""
    model = summarizer()
    middleware = made(model, trigger=("tokens", 600), keep=("messages", 20), recall=False)
    running = ScriptedModel([repeat(f"answer {FILLER}")], profile={"max_input_tokens": WINDOW})
    agent = create_agent(running, [], middleware=[middleware], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    for turn in range(60):
        agent.invoke({"messages": [HumanMessage(f"Question {turn} {FILLER * 2}")]}, config)
    compactions = len(middleware.archive.summaries("t"))
    assert 1 <= compactions <= 6


def test_thirty_parallel_results_stay_within_keep() -> None:
    """S5, S11: keep is a bound, and the batch stays whole."""
    calls = [{"id": f"c{n}", "name": "probe", "args": {}} for n in range(30)]
    history: list[Any] = [
        HumanMessage("GOAL", id="goal"),
        AIMessage("", id="batch", tool_calls=calls),
        *(ToolMessage(FILLER * 60, id=f"t{n}", tool_call_id=f"c{n}", name="probe") for n in range(30)),
    ]
    middleware = made(summarizer(), trigger=("tokens", 4000), keep=("tokens", 2000))
    running = ScriptedModel([repeat("fine")], profile={"max_input_tokens": 60_000})
    create_agent(running, [], middleware=[middleware]).invoke({"messages": history})
    messages = sent(running)
    assert COUNT.count_messages(messages) < 16_000
    batch = next((m for m in messages if m.id == "batch"), None)
    results = [m for m in messages if isinstance(m, ToolMessage)]
    assert (batch is None) == (not results)
    assert not results or len(results) == 30
    assert all(text == FILLER * 60 for id, text in archived(middleware).items() if id.startswith("t"))


def test_one_message_larger_than_the_window_is_clipped_and_archived() -> None:
    """S10"""
    huge = "START " + FILLER * 2000 + " END"
    middleware = made(None, trigger=None)
    model = runner()
    create_agent(model, [], middleware=[middleware]).invoke({"messages": [HumanMessage(huge, id="huge")]})
    (message,) = sent(model)
    assert COUNT.count_message(message) <= WINDOW
    assert message.text.startswith("START")
    assert message.text.endswith("END")
    assert 'read_history("huge")' in message.text
    assert archived(middleware)["huge"] == huge


def test_fixed_parts_that_do_not_fit_are_a_budget_error_that_says_what_needs_how_much() -> None:
    """S10"""
    middleware = made(None, trigger=None)
    with pytest.raises(BudgetError) as caught:
        run([], middleware, system_prompt=FILLER * 1000)
    assert caught.value.needs["system prompt, memory and tools"] > WINDOW


def test_braces_in_a_custom_prompt_are_literal() -> None:
    """S13"""
    model = summarizer()
    middleware = made(model, summary_prompt='Answer as {"notes": "..."} about {messages}. {unknown}')
    run(talk(20), middleware)
    assert model.requests[0].text.count('{"notes": "..."}') == 1
    assert "Question 1:" in model.requests[0].text
    assert "{messages}" not in model.requests[0].text


def test_system_messages_in_the_history_survive() -> None:
    """S6"""
    history = [
        SystemMessage("RULE one", id="s1"),
        *talk(10),
        SystemMessage("RULE two", id="s2"),
        *(m.model_copy(update={"id": f"x{m.id}"}) for m in talk(10)),
    ]
    model, _ = run(history, made(summarizer()))
    ids = [m.id for m in sent(model)]
    assert ids[0] == "s1"
    assert "s2" in ids


def test_orphans_late_and_missing_results_are_repaired_before_inside_and_after_the_cut() -> None:
    """S5: the request is whole, and what was taken out is in the archive."""
    broken: list[Any] = [
        HumanMessage("GOAL", id="goal"),
        ToolMessage("nobody asked", id="orphan1", tool_call_id="zz"),
        AIMessage("", id="a1", tool_calls=[{"id": "c1", "name": "probe", "args": {}}, {"id": "c2", "name": "probe", "args": {}}]),
        HumanMessage("in between", id="between"),
        ToolMessage("late", id="t1", tool_call_id="c1"),
        *talk(12),
        AIMessage("", id="a2", tool_calls=[{"id": "c3", "name": "probe", "args": {}}]),
        ToolMessage("again nobody", id="orphan2", tool_call_id="yy"),
    ]
    for trigger in (None, ("tokens", 400)):
        middleware = made(summarizer(), trigger=trigger)
        model, _ = run(broken, middleware)
        whole(sent(model))
        assert {"orphan1", "orphan2"} <= set(archived(middleware))


def whole(messages: Sequence[Any]) -> None:
    for index, message in enumerate(messages):
        asked = [c["id"] for c in message.tool_calls] if isinstance(message, AIMessage) else []
        answers = [m.tool_call_id for m in messages[index + 1 : index + 1 + len(asked)] if isinstance(m, ToolMessage)]
        assert answers == asked
    count = sum(len(m.tool_calls) for m in messages if isinstance(m, AIMessage))
    assert sum(isinstance(m, ToolMessage) for m in messages) == count


def test_a_late_real_result_takes_the_place_of_a_made_up_one() -> None:
    """S5"""
    middleware = made(None, trigger=None)
    running = ScriptedModel([repeat("ok")], profile={"max_input_tokens": WINDOW})
    history: list[Any] = [
        HumanMessage("GOAL", id="goal"),
        AIMessage("", id="a", tool_calls=[{"id": "c", "name": "probe", "args": {}}]),
    ]
    _, state = run(history, middleware, running)
    assert any(isinstance(m, ToolMessage) and "No result" in m.text for m in sent(running))
    late = [*state["messages"], ToolMessage("the real one", id="real", tool_call_id="c")]
    create_agent(running, [], middleware=[middleware]).invoke({"messages": late})
    results = [m for m in sent(running) if isinstance(m, ToolMessage)]
    assert [m.id for m in results] == ["real"]


def test_a_fraction_works_on_a_model_without_a_profile() -> None:
    """T3, S2"""
    running = ScriptedModel([repeat("fine")])
    model, _ = run(talk(150), made(summarizer(), trigger=("fraction", 0.5)), running)
    assert COUNT.count_messages(sent(model)) < 8192 * 0.5


def test_the_fraction_is_of_the_run_model_not_of_the_summarizer() -> None:
    """S14"""
    tiny = ScriptedModel([repeat("NOTES")], profile={"max_input_tokens": 1000})
    model, _ = run(talk(20), made(tiny, trigger=("fraction", 0.9)))
    assert len(sent(model)) == 41
    assert not tiny.requests


@pytest.mark.parametrize(
    "text",
    [
        "项目的数据库迁移计划已经确定下个月开始执行",
        "会議の議事録はサーバーに保存されています",
        '{"id": "9f8e7d6c", "value": 0.1234567, "ok": true}',
    ],
)
def test_chinese_japanese_and_json_trigger_in_time(text: str) -> None:
    """T1: by characters divided by four they would be far too late."""
    history = [HumanMessage(text * 30, id=f"m{n}") if n % 2 == 0 else AIMessage(text * 30, id=f"m{n}") for n in range(12)]
    limit = COUNT.count_messages(history) - 200
    model, _ = run(history, made(summarizer(), trigger=("tokens", limit)))
    assert sent(model)[0].text.startswith(LEAD)


def test_the_system_prompt_and_the_tools_count_for_a_fraction_and_not_for_tokens() -> None:
    """S2, S4: `tokens` measures the message history, `fraction` the whole request."""

    @tool
    def probe(region: str) -> str:
        """Look at a region."""
        return region

    history = talk(40)
    alone = COUNT.count_messages(history)
    share = (alone + 600) / WINDOW
    quiet, _ = run(history, made(summarizer(), trigger=("fraction", share)), tools=[probe])
    assert len(sent(quiet)) == 81
    loud, _ = run(history, made(summarizer(), trigger=("fraction", share)), tools=[probe], system_prompt=FILLER * 40)
    assert sent(loud)[1].text.startswith(LEAD)
    tokens, _ = run(history, made(summarizer(), trigger=("tokens", alone + 600)), tools=[probe], system_prompt=FILLER * 40)
    assert len(sent(tokens)) == 82


def test_the_summary_is_in_nobodys_stream_and_charged_to_its_own_account() -> None:
    """S15"""
    accounts = Accounts()
    middleware = made(summarizer(repeat("SECRET NOTES")), accounts=accounts)
    agent = create_agent(runner(), [], middleware=[middleware])
    parts = [str(part) for part in agent.stream({"messages": [*talk(20), HumanMessage("go", id="n")]}, stream_mode="messages")]
    assert parts
    assert not any("SECRET" in part for part in parts)
    assert accounts.total(purpose="summary").calls >= 1
    assert accounts.total(purpose="answer").calls == 0


async def test_async_does_the_same() -> None:
    """S16"""
    model, middleware = summarizer(), made(summarizer())
    running = runner()
    agent = create_agent(running, [], middleware=[middleware])
    parts = [str(part) async for part in agent.astream({"messages": [*talk(20), HumanMessage("go", id="n")]}, stream_mode="messages")]
    assert sent(running)[0].text.startswith(LEAD)
    assert not any("NOTES" in part for part in parts)
    assert not model.requests
    failing = made(summarizer(repeat(raises(RuntimeError("down")))))
    await create_agent(running, [], middleware=[failing]).ainvoke({"messages": [*talk(20), HumanMessage("go", id="n")]})
    assert len(sent(running)) == 41


async def test_a_cancelled_run_stays_cancelled() -> None:
    """S16"""
    model, running = summarizer(delay(600, "late")), runner()
    agent = create_agent(running, [], middleware=[made(model, timeout=600)])
    task = asyncio.create_task(agent.ainvoke({"messages": [*talk(20), HumanMessage("go", id="n")]}))
    async with asyncio.timeout(240):
        while not model.requests:  # it is cancelled in the middle of the summary, not before
            await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not running.requests, "nothing goes on after it"


def test_a_model_that_fails_after_the_summary_does_not_cost_a_second_one() -> None:
    """S10: the state is as before, and the summary of the same messages is used again."""
    model = summarizer()
    middleware = made(model)
    running = ScriptedModel([raises(RuntimeError("provider down")), repeat("fine")], profile={"max_input_tokens": WINDOW})
    agent = create_agent(running, [], middleware=[middleware], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    with pytest.raises(RuntimeError, match="provider down"):
        agent.invoke({"messages": [*talk(20), HumanMessage("go", id="n")]}, config)
    assert len(agent.get_state(config).values["messages"]) == 41
    asked = len(model.requests)
    agent.invoke(None, config)
    assert len(model.requests) == asked
    assert agent.get_state(config).values["messages"][0].text.startswith(LEAD)
    assert len(middleware.archive.summaries("t")) == 1


def test_messages_without_ids_are_kept_apart() -> None:
    """S9"""
    middleware = made(summarizer())
    history = [message.model_copy(update={"id": None}) for message in talk(20)]
    _, state = run(history, middleware)
    texts = set(archived(middleware).values()) | {m.text for m in state["messages"]}
    assert all(m.text in texts for m in history)


def test_stale_tool_results_are_cleared_before_a_model_is_asked() -> None:
    """S12"""
    model = summarizer()
    middleware = made(model, trigger=("tokens", 5000), keep=("messages", 40))
    history = loop(14, words=30)
    running = ScriptedModel([repeat("fine")], profile={"max_input_tokens": 60_000})
    create_agent(running, [], middleware=[middleware]).invoke({"messages": history})
    assert not model.requests, "the cheap tier was enough"
    messages = sent(running)
    assert len(messages) == len(history)
    cleared = [m for m in messages if "was cleared" in m.text]
    assert cleared
    assert all(archived(middleware)[str(m.id)].startswith("RESULT-") for m in cleared)
    assert "RESULT-13" in messages[-1].text, "the newest results stay"


def test_what_was_cleared_is_read_whole_by_the_summarizer_later() -> None:
    """S7, S12"""
    model = summarizer()
    middleware = made(model, trigger=("tokens", 5000), keep=("messages", 6), recall=False)
    running = ScriptedModel([repeat("fine")], profile={"max_input_tokens": 60_000})
    agent = create_agent(running, [], middleware=[middleware], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    agent.invoke({"messages": loop(14, words=30)}, config)
    for turn in range(12):
        agent.invoke({"messages": [HumanMessage(f"more {turn} {FILLER * 30}")]}, config)
    read = "\n".join(request.text for request in model.requests)
    gone = {id for summary in middleware.archive.summaries("t") for id in summary.covers}
    assert {f"t{number}" for number in range(10)} <= gone
    for number in range(14):
        if f"t{number}" in gone:
            assert f"RESULT-{number} " in read


def test_switched_off_no_summarizer_is_called_and_a_reference_stands_for_what_left() -> None:
    """S1"""
    model = summarizer()
    middleware = made(model, enabled=False, trigger=None)
    running, _ = run(talk(300), middleware)
    messages = sent(running)
    assert not model.requests
    assert COUNT.count_messages(messages) <= WINDOW
    assert "are in its archive" in messages[0].text


def test_the_agent_finds_and_reads_what_left() -> None:
    """S9: the tools are there without being asked for, and work in the agent's own thread."""
    middleware = made(summarizer())
    running = ScriptedModel(
        [[call("search_history", {"query": "zebra crossing code"})], lambda request: [call("read_history", {"id": "secret"})], "done"],
        profile={"max_input_tokens": WINDOW},
    )
    agent = create_agent(running, [], middleware=[middleware], checkpointer=InMemorySaver())
    history = talk(20)
    history[4] = HumanMessage("The zebra crossing has the code 4711.", id="secret")
    config: Any = {"configurable": {"thread_id": "t"}}
    agent.invoke({"messages": [*history, HumanMessage("What was the code?", id="n")]}, config)
    results = [m.text for m in sent(running) if isinstance(m, ToolMessage)]
    assert "[secret]" in results[0]
    assert "4711" in results[1]


def test_compact_by_hand_with_force_and_keep() -> None:
    """S17"""
    middleware = made(summarizer(), trigger=None)
    running = runner()
    agent = create_agent(running, [], middleware=[middleware], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    agent.invoke({"messages": [*talk(10), HumanMessage("go", id="n")]}, config)
    assert not middleware.compact_thread(agent, "t", model=running, force=False).changed
    prepared = middleware.compact_thread(agent, "t", model=running, keep=("messages", 3))
    assert prepared.changed
    ids = [m.id for m in agent.get_state(config).values["messages"]]
    assert len(ids) <= 6
    assert "h0" in ids
    assert "n" in ids


def test_pending_calls_stay_when_a_person_compacts() -> None:
    """S5"""
    middleware = made(summarizer(), trigger=None)
    history = [*talk(10), AIMessage("", id="pending", tool_calls=[{"id": "c", "name": "probe", "args": {}}])]
    prepared = middleware.compact(history, thread="t", model=runner(), keep=("messages", 1))
    assert prepared.messages[-1].id == "pending"
    assert not any("No result" in str(m.content) for m in prepared.messages)


def test_other_middlewares_changes_to_the_request_do_not_become_the_state() -> None:
    """S16: a request that was blanked by an outer middleware stays whole in the state."""
    from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware

    middleware = made(summarizer(), keep=("messages", 8))
    outer = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=10, keep=1, placeholder="[blank]")])
    running = runner()
    agent = create_agent(running, [], middleware=[outer, middleware])
    state = agent.invoke({"messages": loop(40)})
    texts = [m.text for m in state["messages"] if isinstance(m, ToolMessage)]
    assert texts
    assert not any(text == "[blank]" for text in texts)


def test_langchains_own_arguments_are_accepted() -> None:
    """S16: a drop-in by changing the import."""
    from langchain_core.messages.utils import count_tokens_approximately

    middleware = SummarizationMiddleware(
        model=summarizer(),
        trigger=[("tokens", 5000), {"messages": 10, "tokens": 600}],
        keep=("messages", 4),
        token_counter=count_tokens_approximately,
        trim_tokens_to_summarize=4000,
        archive=MemoryArchive(),
    )
    model, _ = run(talk(20), middleware)
    assert sent(model)[0].text.startswith(LEAD)
    with pytest.raises(ConfigError):
        SummarizationMiddleware(summarizer(), trigger=("tokens", 0), archive=MemoryArchive())


def test_hooks_run_before_messages_leave() -> None:
    """S18"""
    seen: list[tuple[str, int]] = []
    middleware = made(summarizer(), on_leave=[lambda thread, messages: seen.append((thread, len(messages)))])
    run(talk(20), middleware)
    assert len(seen) == 1
    assert seen[0][1] > 30


def test_a_hook_that_raises_stops_no_turn_and_loses_nothing() -> None:
    """S9, S18: what leaves is in the archive whatever somebody else's code does with it."""

    def failing(thread: str, messages: Sequence[Any]) -> None:
        raise ValueError("the sink is closed")

    heard: list[Any] = []
    bus, archive = Bus(), MemoryArchive()
    bus.subscribe(heard.append)
    model, _ = run(talk(20), made(summarizer(), on_leave=[failing], archive=archive, bus=bus))
    assert [line_of(event) for event in heard if isinstance(event, LeaveFailed)] == [
        "[SummarizationMiddleware] on_leave failed: ValueError: the sink is closed (the messages are in the archive)"
    ]
    assert sent(model)[0].text.startswith(LEAD)
    assert "h1" in {record.id for thread in archive.threads() for record in archive.messages(thread)}


def test_while_there_is_room_an_archive_that_cannot_be_written_stops_no_turn(tmp_path: Path) -> None:
    """S9, S10: nothing leaves that is not kept, and nothing has to leave yet; where the window is full the error is told."""
    blocked = tmp_path / "file"
    blocked.write_text("a file, where a folder should be")
    archive, bus, heard = FileArchive(blocked), Bus(), list[Any]()
    bus.subscribe(lambda event: heard.append(event) if isinstance(event, SummaryFailed) else None)
    middleware = made(summarizer(), archive=archive, bus=bus, trigger=("messages", 10), keep=("messages", 4), enabled=False)
    agent = create_agent(runner(), [], middleware=[middleware], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    for turn in range(10):
        answer = agent.invoke({"messages": [HumanMessage(f"turn {turn}")]}, config)
    assert len(answer["messages"]) == 20, "nothing left"
    assert len(heard) in (2, 3), "and it is not tried at every call"
    assert "nothing was changed" in line_of(heard[0])
    with pytest.raises(StorageError):
        agent.invoke({"messages": [*talk(200, words=5), HumanMessage("and this?")]}, config)


def test_the_manifest_says_what_was_sent() -> None:
    """O4"""
    middleware = made(summarizer())
    running = runner()
    agent = create_agent(running, [], middleware=[middleware], system_prompt="Be kind.", checkpointer=InMemorySaver())
    agent.invoke({"messages": [*talk(20), HumanMessage("go", id="n")]}, {"configurable": {"thread_id": "t"}})
    manifest = middleware.manifest("t")
    assert manifest is not None
    origins = manifest.by_origin()
    assert {"system", "tools", "summary", "conversation"} <= set(origins)
    assert manifest.how == "model"
    assert len(manifest.left) > 30
    assert manifest.tokens <= manifest.cap
    assert manifest.as_dict()["tokens"] == manifest.tokens


def test_between_two_compactions_the_prefix_is_the_same_and_marked_where_the_provider_wants_it() -> None:
    """S19"""

    class Claude(ScriptedModel):
        @property
        def _llm_type(self) -> str:
            return "anthropic-chat"

    middleware = made(None, trigger=("fraction", 0.8))
    make: Any = Claude
    running = make([repeat("fine")], profile={"max_input_tokens": WINDOW})
    agent: Any = create_agent(running, [], middleware=[middleware], system_prompt="Be kind.", checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    for turn in range(12):
        agent.invoke({"messages": [HumanMessage(f"Question {turn}")]}, config)
    requests = running.requests
    assert all(request.kwargs["cache_control"] == {"type": "ephemeral"} for request in requests)
    for before, after in itertools.pairwise(requests):
        old, new = [m.text for m in before.messages], [m.text for m in after.messages]
        assert new[: len(old)] == old
    plain, _ = run(talk(2), made(None))
    assert "cache_control" not in plain.requests[0].kwargs


@pytest.mark.parametrize("history", [talk(12), talk(60)], ids=["quiet", "near the trigger"])
def test_a_model_that_counts_more_than_we_do_is_asked_once_more_with_less(history: list[Any]) -> None:
    """S10: another vocabulary, or a window smaller than anybody said."""
    middleware = made(None, trigger=("fraction", 0.5))
    running = ScriptedModel([raises("overflow"), repeat("fine")], profile={"max_input_tokens": WINDOW})
    model, state = run(history, middleware, running)
    refused, taken = model.requests[0].messages, model.requests[1].messages
    assert COUNT.count_messages(taken) < COUNT.count_messages(refused)
    assert state["messages"][-1].text == "fine"
    kept = {m.id for m in state["messages"]} | set(archived(middleware))
    assert all(m.id in kept for m in history)
    believed = COUNT.count_messages(refused) * 3 > WINDOW  # one refusal of less is too strange to be learned from
    assert (middleware.calibration.factor(model.model_name) > 1) is believed


class Refused(ModelInvalidRequestError):
    """What a client raises for a server that says it in words of its own, as llama.cpp does."""

    status_code = 400


def test_an_overflow_is_known_by_what_the_server_says_too() -> None:
    """S10: not every client has a class for it."""
    said = "request (9000 tokens) exceeds the available context size (8000 tokens), try increasing it"
    running = ScriptedModel([raises(Refused(said)), repeat("fine")], profile={"max_input_tokens": WINDOW})
    model, state = run(talk(12), made(None, trigger=("fraction", 0.5)), running)
    assert len(model.requests) == 2
    assert state["messages"][-1].text == "fine"
    other = ScriptedModel([raises(Refused("no such parameter")), repeat("fine")], profile={"max_input_tokens": WINDOW})
    with pytest.raises(Refused, match="no such parameter"):
        run(talk(12), made(None, trigger=("fraction", 0.5)), other)


@pytest.mark.parametrize("takes", [True, False])
def test_the_archive_is_offered_only_to_a_model_that_takes_tools(takes: bool) -> None:
    """S9, A15"""
    running = ScriptedModel([repeat("fine")], profile={"max_input_tokens": WINDOW, "tool_calling": takes})
    model, _ = run(talk(30), made(None), running)
    assert bool(model.requests[0].tools) is takes


async def test_the_same_when_awaited() -> None:
    """S10"""
    middleware = made(None, trigger=("fraction", 0.5))
    running = ScriptedModel([raises("overflow"), repeat("fine")], profile={"max_input_tokens": WINDOW})
    await create_agent(running, [], middleware=[middleware]).ainvoke({"messages": talk(60)})
    assert len(running.requests) == 2


def test_usage_that_is_more_than_the_window_says_nothing() -> None:
    """T1: some clients report the sum of several calls."""
    middleware = made(None)
    running = ScriptedModel(
        [repeat(AIMessage("x", usage_metadata={"input_tokens": 99_999, "output_tokens": 1, "total_tokens": 100_000}))],
        profile={"max_input_tokens": WINDOW},
    )
    run(talk(3), middleware, running)
    assert middleware.calibration.factor(running.model_name) == 1


def test_a_message_that_was_edited_after_a_failed_call_is_sent_as_edited() -> None:
    """S4, S10: the summary that was held for a second try is not used for another history."""
    middleware = made(summarizer())
    running = ScriptedModel([raises(RuntimeError("provider down")), repeat("fine")], profile={"max_input_tokens": WINDOW})
    history = talk(20)
    with pytest.raises(RuntimeError):
        run(history, middleware, running)
    edited = [*history[:-1], history[-1].model_copy(update={"content": "EDITED answer 19"})]
    _, state = run(edited, middleware, running)
    assert "EDITED answer 19" in [m.text for m in state["messages"]]


@pytest.mark.parametrize(
    ("history", "instead"), [(talk(20), "nothing was changed"), (talk(300), "an extract takes its place")], ids=["kept", "extract"]
)
def test_a_failed_summary_is_said_and_shows_no_key(history: list[Any], instead: str) -> None:
    """S10, O2, C3: nothing is lost, but a summarizer that is down must not go unnoticed."""
    key = "sk-" + "a1B2c3D4e5F6" * 4
    bus = Bus()
    middleware = made(summarizer(repeat(raises(RuntimeError(f"bad key {key}")))), bus=bus)
    with bus.collect() as seen:
        run(history, middleware)
    (event,) = [event for event in seen if isinstance(event, SummaryFailed)]
    assert "RuntimeError" in event.reason
    assert key not in line_of(event)
    assert event.instead == instead
