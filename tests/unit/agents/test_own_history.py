"""S4, S9, S11, S16: a program that keeps the conversation itself, and sends all of it again each time, has its triggers too."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.context.archive import MemoryArchive
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import call, repeat

TURNS = 60
MOST = 12 + 2 * 10  # the trigger, and what ten calls bring, which is how long a compaction rests


def notes() -> ScriptedModel:
    return ScriptedModel([repeat("The notes.")], profile={"max_input_tokens": 8_000})


def middleware(summarizer: ScriptedModel | None = None, archive: MemoryArchive | None = None) -> SummarizationMiddleware:
    archive = archive or MemoryArchive()
    return SummarizationMiddleware(summarizer or notes(), trigger=("messages", 12), keep=("messages", 4), archive=archive)


def model(*steps: Any) -> ScriptedModel:
    return ScriptedModel(list(steps) or [repeat("Noted.")], profile={"max_input_tokens": 100_000})


def fact(number: int) -> str:
    return f"fact {number} is {number * 17}, said in some more words than a few"


def sizes(asked: ScriptedModel) -> list[int]:
    return [len(request.messages) for request in asked.requests]


@pytest.mark.parametrize("named", [True, False], ids=["with ids", "made anew"])
@pytest.mark.parametrize("thread", ["own", None], ids=["a thread", "no thread"])
def test_a_history_that_comes_whole_each_time_is_compacted_once_and_not_again(named: bool, thread: str | None) -> None:
    """S11: what had left stays out, at no further summary; S9: the archive has each message once."""
    asked, summarizer, archive, left = model(), notes(), MemoryArchive(), list[str]()
    keep = middleware(summarizer, archive)
    keep.context_window.on_leave = [lambda name, messages: left.append(name)]
    agent = create_agent(asked, [], middleware=[keep])
    config: Any = {"configurable": {"thread_id": thread} if thread else {}}
    talk: list[tuple[type[Any], str]] = []
    for number in range(TURNS):
        talk.append((HumanMessage, fact(number)))
        known = [named or (thread is None and place == 0) for place in range(len(talk))]  # without a thread by its first message
        history = [kind(text, id=f"m{place}" if known[place] else None) for place, (kind, text) in enumerate(talk)]
        answer = agent.invoke({"messages": history}, config)
        talk.append((AIMessage, answer["messages"][-1].text))
    assert max(sizes(asked)) <= MOST
    assert len(summarizer.requests) <= TURNS // 10
    sent = asked.requests[-1].messages
    assert fact(0) in [message.text for message in sent], "the first goal stays (S6)"
    assert sent[-1].text == fact(TURNS - 1)
    (name,) = set(left)
    kept = [record.text for record in archive.messages(name) if record.text.startswith("fact")]
    assert len(kept) == len(set(kept))
    assert fact(3) in kept


def test_an_agent_that_is_a_subgraph_is_compacted_as_any_other() -> None:
    """S16: the state of the parent keeps everything, and gives all of it to the agent each time."""
    asked = model()
    inner = create_agent(asked, [], middleware=[middleware()])
    graph = StateGraph(MessagesState)
    graph.add_node("agent", inner)
    graph.add_edge(START, "agent")
    graph.add_edge("agent", END)
    outer: Any = graph.compile(checkpointer=InMemorySaver())
    for number in range(TURNS):
        outer.invoke({"messages": [HumanMessage(fact(number))]}, {"configurable": {"thread_id": "t"}})
    assert max(sizes(asked)) <= MOST


def test_an_edited_beginning_is_another_history() -> None:
    """S4: what was compacted does not stand for words that were changed since."""
    summarizer = notes()
    agent = create_agent(model(), [], middleware=[middleware(summarizer)])
    config: Any = {"configurable": {"thread_id": "edited"}}
    history: list[Any] = [kind(f"{fact(n)}", id=f"{kind.__name__}{n}") for n in range(10) for kind in (HumanMessage, AIMessage)]
    agent.invoke({"messages": [*history, HumanMessage("and now?", id="last")]}, config)
    history[2] = HumanMessage("fact 1 was changed", id=history[2].id)
    agent.invoke({"messages": [*history, HumanMessage("and now?", id="last")]}, config)
    assert [len(request.messages) for request in summarizer.requests] == [1, 1], "the changed words were summarized anew"
    assert "fact 1 was changed" in summarizer.requests[-1].messages[0].text


def test_within_a_turn_with_tools_the_whole_history_is_taken_up_again_at_every_call() -> None:
    """S5, S11: calls and results of the turn follow what the compaction left."""

    @tool
    def look(place: int) -> str:
        """Look somewhere."""
        return f"at {place}: nothing"

    asked = model(*[step for n in range(6) for step in (call("look", {"place": n}), "Noted.")])
    agent = create_agent(asked, [look], middleware=[middleware()])
    talk: list[Any] = [kind(fact(n)) for n in range(10) for kind in (HumanMessage, AIMessage)]
    for turn in range(6):
        talk.append(HumanMessage(f"turn {turn}"))
        answer = agent.invoke({"messages": [type(one)(one.text) for one in talk]}, {"configurable": {"thread_id": "tools"}})
        talk.append(AIMessage(answer["messages"][-1].text))
    assert max(sizes(asked)) <= MOST
    for request in asked.requests:
        results = [message for message in request.messages if isinstance(message, ToolMessage)]
        calls = [one["id"] for message in request.messages if isinstance(message, AIMessage) for one in message.tool_calls]
        assert [one.tool_call_id for one in results] == calls


def test_langchains_own_hook_takes_it_up_as_well() -> None:
    """S16: `before_model` of a graph that does not keep what it gave back."""
    keep = middleware()
    whole = [kind(fact(n), id=f"{kind.__name__}{n}") for n in range(10) for kind in (HumanMessage, AIMessage)]
    runtime: Any = None
    first: Any = keep.before_model({"messages": whole}, runtime)
    again: Any = keep.before_model({"messages": [*whole, HumanMessage("more", id="more")]}, runtime)
    assert isinstance(first["messages"][0], RemoveMessage)
    assert isinstance(again["messages"][0], RemoveMessage)
    assert [one.id for one in again["messages"][1:]] == [*(one.id for one in first["messages"][1:]), "more"]
