"""S16: what somebody relies on who changes nothing but the import of LangChain's `SummarizationMiddleware`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from blockbuster import blockbuster_ctx
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel

from holdfast.agents.checkpoints import ThreadState, open_checkpoints
from holdfast.agents.lead import make_lead_agent
from holdfast.agents.middleware.memory import MemoryMiddleware
from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.config.loading import config_from_values
from holdfast.context.archive import FileArchive, MemoryArchive
from holdfast.context.compaction import default_prompt
from holdfast.context.recall import search_history
from holdfast.memory.service import MemoryService
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import repeat, tool_name

SETTINGS: dict[str, Any] = {"trigger": ("messages", 10), "keep": ("messages", 4)}


def model(answer: str = "fine") -> ScriptedModel:
    return ScriptedModel([repeat(answer)], profile={"max_input_tokens": 8000})


def compacting(**settings: Any) -> SummarizationMiddleware:
    return SummarizationMiddleware(model("NOTES"), **{"archive": MemoryArchive(), **SETTINGS, **settings})


def talk(turns: int) -> list[Any]:
    pairs = [(HumanMessage(f"question {n}", id=f"h{n}"), AIMessage(f"answer {n}", id=f"a{n}")) for n in range(turns)]
    return [message for pair in pairs for message in pair]


class Verdict(BaseModel):
    """The answer in a form."""

    good: bool


def steps_of(agent: Any, *texts: str, thread: str = "t") -> list[tuple[str, Any]]:
    """What `stream_mode="updates"` gives, node by node."""
    config = {"configurable": {"thread_id": thread}}
    return [
        step
        for text in texts
        for chunk in agent.stream({"messages": [HumanMessage(text)]}, config, stream_mode="updates")
        for step in chunk.items()
    ]


@pytest.mark.parametrize("schema", [None, ThreadState], ids=["plain", "deltas"])
def test_updates_are_a_dict_with_messages_also_in_a_step_with_a_compaction(schema: Any, tmp_path: Path) -> None:
    """S16, S15: the loop of LangChain's streaming page, `data["messages"][-1]`, and nothing of the summary in it."""
    saver = open_checkpoints(tmp_path)
    agent = create_agent(model(), middleware=[compacting()], checkpointer=saver, state_schema=schema)
    steps = steps_of(agent, *(f"question {turn}" for turn in range(12)))
    assert [name for name, _ in steps] == ["model"] * 12
    assert all([message.text for message in data["messages"]] == ["fine"] for _, data in steps)
    assert all(data["messages"][-1].text == "fine" and data["messages"][0].type == "ai" for _, data in steps)
    again = create_agent(model(), middleware=[compacting()], checkpointer=saver, state_schema=schema)  # read anew from the file
    stored = again.get_state({"configurable": {"thread_id": "t"}}).values["messages"]
    assert len(stored) < 24, "twelve turns are 24 messages; one compaction in ten calls has left some of them out"
    assert sum("NOTES" in message.text for message in stored) == 1
    saver.close()


def test_the_message_stream_has_the_answers_and_no_summary_in_a_step_with_a_compaction() -> None:
    """S15, S16"""
    agent = create_agent(model(), middleware=[compacting()], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    steps: list[Any] = [
        agent.stream({"messages": [HumanMessage(f"question {turn}")]}, config, stream_mode="messages") for turn in range(12)
    ]
    said = [message.text for stream in steps for message, _ in stream]
    assert "".join(said) == "fine" * 12


def test_updates_with_structured_output_keep_their_shape() -> None:
    """S16: the answer is two messages then, and the compaction takes away neither."""
    answers = ScriptedModel(
        [AIMessage("", tool_calls=[{"id": "c1", "name": "Verdict", "args": {"good": True}}])], profile={"max_input_tokens": 8000}
    )
    agent = create_agent(answers, middleware=[compacting()], checkpointer=InMemorySaver(), response_format=ToolStrategy(Verdict))
    config: Any = {"configurable": {"thread_id": "t"}}
    chunks = list(agent.stream({"messages": [*talk(6), HumanMessage("so?")]}, config, stream_mode="updates"))
    assert [message.type for message in chunks[0]["model"]["messages"]] == ["ai", "tool"]
    assert chunks[0]["model"]["structured_response"] == Verdict(good=True)
    values = agent.get_state(config).values
    assert [message.type for message in values["messages"][-2:]] == ["ai", "tool"]
    assert "NOTES" in values["messages"][0].text


@pytest.mark.parametrize("inside", [True, False], ids=["as documented", "the other way round"])
def test_updates_are_a_dict_with_a_reminder_of_the_memory_too(inside: bool, tmp_path: Path) -> None:
    """S16, S19: a reminder that rides on the user's message is stored with it and changes no shape."""
    service = MemoryService.at(tmp_path)
    memory = MemoryMiddleware(service)
    order = [memory, compacting()] if inside else [compacting(), memory]
    agent = create_agent(model(), middleware=order, checkpointer=InMemorySaver())
    steps = steps_of(agent, "hello")
    service.add("User has a cat called Biscuit")
    steps += steps_of(agent, *(f"What is my cat called? {turn}" for turn in range(12)))
    assert all(data["messages"][-1].text == "fine" for _, data in steps)
    stored = agent.get_state({"configurable": {"thread_id": "t"}}).values["messages"]
    reminded = [data["messages"] for _, data in steps if "Biscuit" in str(data["messages"][0].content)]
    assert reminded, "no reminder was made: the test shows nothing"
    assert len(stored) == len({message.id for message in stored})


@pytest.mark.parametrize("thread", ["anna@example.com", "whatsapp:+49170", "tenant/42/7", "../../etc", "Ünal", "x" * 200], ids=ascii)
def test_a_thread_of_any_id_goes_on_after_its_compactions(thread: str, tmp_path: Path) -> None:
    """S9, S16: the archive of an id that is no file name is found again, also by another process."""
    agent = create_agent(model(), middleware=[compacting(archive=FileArchive(tmp_path))], checkpointer=InMemorySaver())
    steps_of(agent, *(f"question {turn}" for turn in range(20)), thread=thread)
    archive = FileArchive(tmp_path)
    assert archive.threads() == [thread]
    assert "question 1" in [record.text for record in archive.messages(thread)]
    assert search_history(archive, thread, "question 3")
    assert [path.name for path in tmp_path.iterdir()] == ["threads"], "nothing was written beside the threads"
    archive.close()


@tool
def weather(city: str) -> str:
    """Says the weather."""
    return f"Sunny in {city}."


def offered(model: ScriptedModel) -> list[list[str]]:
    return [[tool_name(one) for one in request.tools] for request in model.requests]


def test_the_tools_of_the_archive_are_offered_from_the_step_on_in_which_something_left() -> None:
    """S9"""
    asked = model()
    agent = create_agent(asked, [weather], middleware=[compacting()], checkpointer=InMemorySaver())
    steps_of(agent, *(f"question {turn}" for turn in range(8)))
    assert offered(asked)[:4] == [["weather"]] * 4
    first = next(number for number, request in enumerate(asked.requests) if "NOTES" in request.text)
    assert offered(asked) == [["weather"]] * first + [["search_history", "read_history", "weather"]] * (8 - first)


def test_a_cleared_result_alone_brings_the_tools_too() -> None:
    """S9, S12: the reference in its place names them."""
    asked = model()
    history: list[Any] = [HumanMessage("go", id="h0")]
    for number in range(6):
        history.append(AIMessage("", id=f"a{number}", tool_calls=[{"id": f"c{number}", "name": "weather", "args": {"city": "Bonn"}}]))
        history.append(ToolMessage("long " * 1500, id=f"t{number}", tool_call_id=f"c{number}"))
    keeping = SummarizationMiddleware(model("NOTES"), keep=("messages", 40), archive=MemoryArchive())
    agent = create_agent(asked, [weather], middleware=[keeping], checkpointer=InMemorySaver())
    agent.invoke({"messages": [*history, HumanMessage("so?")]}, {"configurable": {"thread_id": "t"}})
    assert "read_history" in asked.requests[0].text
    assert offered(asked) == [["search_history", "read_history", "weather"]]
    steps_of(agent, "and now?")
    assert "read_history" in offered(asked)[-1], "and stay"


def test_tools_can_be_left_out() -> None:
    """S9"""
    asked, middleware = model(), compacting(tools=False)
    agent = create_agent(asked, middleware=[middleware], checkpointer=InMemorySaver())
    steps_of(agent, *(f"question {turn}" for turn in range(12)))
    assert middleware.tools == []
    assert offered(asked) == [[]] * 12
    assert not any("_history" in request.text for request in asked.requests), "no reference names a tool that is not there"


def test_a_model_that_takes_no_tools_is_offered_none() -> None:
    """S9, S16: also after a compaction; `bind_tools` is not called."""
    plain = GenericFakeChatModel(messages=iter([AIMessage(f"answer {turn}") for turn in range(12)]))
    agent = create_agent(plain, middleware=[compacting()], checkpointer=InMemorySaver())
    assert [data["messages"][-1].text for _, data in steps_of(agent, *(f"question {turn}" for turn in range(12)))][-1] == "answer 11"


async def test_nothing_blocks_the_event_loop_from_making_the_middleware_to_its_compactions(tmp_path: Path, monkeypatch: Any) -> None:
    """S16: what `langgraph dev` refuses: no file is touched on the loop, with a default archive, summaries by a model and by extract."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    default_prompt.cache_clear()
    with blockbuster_ctx():
        for summaries in (model("NOTES"), None):
            middleware = SummarizationMiddleware(summaries, **SETTINGS)
            agent = create_agent(model(), [weather], middleware=[middleware], checkpointer=InMemorySaver())
            for turn in range(12):
                await agent.ainvoke({"messages": [HumanMessage(f"question {turn}")]}, {"configurable": {"thread_id": "t"}})
    archive = FileArchive(tmp_path)
    assert archive.threads() == ["t"]
    archive.close()


@pytest.mark.parametrize("ids", [[""], ["", ""], ["c1", ""]], ids=str)
def test_a_call_with_an_empty_id_keeps_its_result(ids: list[str]) -> None:
    """S5: some servers give no ids. The tool is called once, and the model sees what it gave."""
    ran: list[str] = []

    @tool
    def post(text: str) -> str:
        """Posts something."""
        ran.append(text)
        return f"posted {text}"

    calls = [{"id": id, "name": "post", "args": {"text": f"text {number}"}} for number, id in enumerate(ids)]
    asked = ScriptedModel([AIMessage("", tool_calls=calls), repeat("done")], profile={"max_input_tokens": 8000})
    agent = create_agent(asked, [post], middleware=[compacting()], checkpointer=InMemorySaver())
    steps_of(agent, "go", *(f"question {turn}" for turn in range(10)))
    assert sorted(ran) == [f"text {number}" for number in range(len(ids))]
    assert [message.text for message in asked.requests[1].messages if message.type == "tool"] == [f"posted {text}" for text in sorted(ran)]
    assert "NOTES" in asked.requests[-1].text
    assert not any(message.type == "tool" for message in asked.requests[-1].messages), "call and results left together"


def test_calls_that_no_strict_server_takes_are_mended_and_the_original_is_kept() -> None:
    """S5, S9: a call without a name, and arguments that are no JSON object."""
    archive = MemoryArchive()
    broken = AIMessage(
        "let me see",
        id="a1",
        tool_calls=[{"id": "c1", "name": "", "args": {"x": 1}}],
        invalid_tool_calls=[{"id": "c2", "name": "weather", "args": '{"city":', "error": "no JSON", "type": "invalid_tool_call"}],
    )
    results = [ToolMessage("no such tool", tool_call_id="c1", id="t1"), ToolMessage("not understood", tool_call_id="c2", id="t2")]
    asked = model()
    agent = create_agent(asked, [weather], middleware=[compacting(archive=archive)], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    agent.invoke({"messages": [HumanMessage("go"), broken, *results, HumanMessage("so?")]}, config)
    sent: Any = next(message for message in asked.requests[0].messages if message.id == "a1")
    assert [(call["id"], bool(call["name"]), call["args"]) for call in sent.tool_calls] == [("c1", True, {"x": 1})]
    assert [(call["id"], call["name"], json.loads(call["args"])) for call in sent.invalid_tool_calls] == [("c2", "weather", {})]
    assert [message.text for message in asked.requests[0].messages if message.type == "tool"] == ["no such tool", "not understood"]
    assert archive.messages("t")[0].extras["invalid_tool_calls"][0]["args"] == '{"city":'
    agent.invoke({"messages": [HumanMessage("again")]}, config)
    assert len(archive.messages("t")) == 1, "mended once"


def test_an_extract_holds_neither_reasoning_nor_names_of_blocks() -> None:
    """S10: sentences that were said, word for word."""
    history: list[Any] = [HumanMessage("Plan the move of the office to Mill Lane.", id="goal")]
    for number in range(12):
        blocks: list[Any] = [
            {"type": "reasoning", "reasoning": "hm, the user seems to be in a hurry about this."},
            {"type": "thinking", "thinking": "I should not say that the budget is a worry.", "signature": "x"},
            {"type": "text", "text": f"Room {number} of Mill Lane holds {number + 3} desks and a printer."},
            {"type": "server_tool_use", "id": f"s{number}", "name": "web_search", "input": {}},
        ]
        history += [AIMessage(blocks, id=f"a{number}"), HumanMessage(f"Go on with room {number + 1}.", id=f"h{number}")]
    asked = model()
    extracting = SummarizationMiddleware(None, archive=MemoryArchive(), **SETTINGS)
    create_agent(asked, middleware=[extracting]).invoke({"messages": history})
    summary = next(message.text for message in asked.requests[0].messages if "Here is a summary" in message.text)
    assert "holds" in summary
    assert not any(word in summary for word in ("hm,", "worry", "[server_tool_use]", "[reasoning]"))


def test_the_summarizer_sees_the_address_of_a_picture() -> None:
    """S7, S16"""
    picture: Any = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}]
    notes = model("NOTES")
    history: list[Any] = [HumanMessage("Look.", id="goal"), HumanMessage(picture, id="p"), AIMessage("A cat.", id="a"), *talk(6)]
    create_agent(model(), middleware=[SummarizationMiddleware(notes, archive=MemoryArchive(), **SETTINGS)]).invoke({"messages": history})
    assert "https://example.com/cat.png" in notes.requests[0].text


def test_after_a_journey_back_in_time_the_branch_that_was_left_is_marked() -> None:
    """S4, S9: its words stay in the archive; a search says that they are not part of the conversation any more."""
    archive = MemoryArchive()
    asked = model()
    agent = create_agent(asked, middleware=[compacting(archive=archive)], checkpointer=InMemorySaver())
    steps_of(agent, "hello", "The gate code is 7777.", *(f"small step {turn}" for turn in range(8)))
    fork = agent.get_state({"configurable": {"thread_id": "t"}}).config
    steps_of(agent, "The vault code is 1111.", *(f"step {turn}" for turn in range(8)))
    assert any("The vault code is 1111." in record.text for record in archive.messages("t"))
    agent.invoke({"messages": [HumanMessage("The vault code is 2222.")]}, fork)
    steps_of(agent, *(f"other step {turn}" for turn in range(16)))
    search, read = middleware_tools(agent)
    config: Any = {"configurable": {"thread_id": "t"}}
    found = search.invoke({"query": "vault code"}, config).split("\n\n")
    old, new = (next(part for part in found if code in part) for code in ("1111", "2222"))
    assert found.index(new) < found.index(old)
    assert "branch of this conversation that was left" in old
    assert "branch" not in new
    gate = next(part for part in search.invoke({"query": "gate code"}, config).split("\n\n") if "7777" in part)
    assert "branch" not in gate, "what was said before the fork is part of both"
    left = next(record.id for record in archive.messages("t") if "1111" in record.text)
    assert "that was left" in read.invoke({"id": left}, config)
    steps_of(agent, "Please remind me which code I have set for the vault in the cellar, I forgot.")
    assert "1111" not in asked.requests[-1].text, "what comes back by itself is of this branch"
    assert "2222" in asked.requests[-1].text


def middleware_tools(agent: Any) -> Any:
    """`search_history` and `read_history` as the agent's tool node has them."""
    tools = agent.nodes["tools"].bound.tools_by_name
    return tools["search_history"], tools["read_history"]


async def test_memory_beside_it_blocks_no_loop_either(tmp_path: Path) -> None:
    """S16, M8: the middleware is made inside the coroutine, and turns with compactions are awaited there. A store is opened in a thread."""
    asked = model()
    service = await asyncio.to_thread(MemoryService.at, tmp_path)
    with blockbuster_ctx():
        memory = MemoryMiddleware(service, learn=False)
        agent = create_agent(asked, [weather], middleware=[memory, compacting()], checkpointer=InMemorySaver())
        for turn in range(8):
            await agent.ainvoke({"messages": [HumanMessage(f"question {turn}")]}, {"configurable": {"thread_id": "t"}})
    assert "NOTES" in asked.requests[-1].text


async def test_a_lead_agent_blocks_no_loop_either(tmp_path: Path) -> None:
    """S16, A1: its graph, awaited by a server, through compactions."""
    config = config_from_values(
        {"summarization": {"enabled": True, "trigger": {"type": "messages", "value": 10}, "keep": {"type": "messages", "value": 4}}},
        environ={"HOLDFAST_HOME": str(tmp_path)},
    )
    asked = model()
    lead = await asyncio.to_thread(make_lead_agent, config, model=asked)
    try:
        with blockbuster_ctx():
            for turn in range(8):
                await lead.graph.ainvoke({"messages": [HumanMessage(f"question {turn}")]}, {"configurable": {"thread_id": "t"}})
    finally:
        await asyncio.to_thread(lead.close)
    assert "Here is a summary" in asked.requests[-1].text
