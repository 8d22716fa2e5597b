"""A real small model as summarizer and as run model, over HTTP: whatever it answers, the window holds (S5, S7, S9, S10, S15, A15).

It cannot summarize, and that is what is wanted here: it loops, repeats its orders and says nothing. One thread and short outputs; what it
says is not judged, only that calls and results stay together, that every request fits by its own vocabulary, and that no word is lost.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.context.archive import FileArchive
from holdfast.errors import ModelUnavailable
from holdfast.events import Bus, Compacted
from holdfast.models.local_model import LocalChat, local_chat_model
from holdfast.models.weights import find_weights
from holdfast.tokens.accounts import Accounts

WINDOW = 768
ANSWER = 20
PROMPT = "Write notes on this conversation: names, numbers and decisions.\n{messages}\nNotes:"
SMALL = 350  # tokens of one summarizer call
THREAD: Any = {"configurable": {"thread_id": "t"}}


@pytest.fixture(scope="module")
def model() -> Iterator[LocalChat]:
    try:
        import xllamacpp  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: F401 - only whether it is there

        find_weights("smollm2")
    except (ImportError, ModelUnavailable) as error:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(f"the local model cannot be tried: {error}")
        pytest.skip(f"the local model cannot be tried: {error}")
    chat = local_chat_model("smollm2", window=WINDOW, threads=1, max_tokens=ANSWER)
    yield chat
    chat.server.close()


class Watch(AgentMiddleware[Any, Any, Any]):
    """The innermost middleware: what is really sent. The model is not left the choice of a tool; its taste is not what is tested."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[list[AnyMessage]] = []

    def _noted(self, request: Any) -> Any:
        system = [request.system_message] if request.system_message else []
        self.sent.append([*system, *request.messages])
        return request.override(tool_choice="none")

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(self._noted(request))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(self._noted(request))


def office_move() -> list[AnyMessage]:
    """A conversation with two batches of tool calls, longer than the window."""
    said: list[AnyMessage] = [HumanMessage("GOAL: plan the move of the office to Mill Lane. The budget is 48,000 euros.", id="goal")]
    for number in range(6):
        said += [
            AIMessage("", id=f"a{number}", tool_calls=[_call(number, 0), _call(number, 1)]),
            ToolMessage(
                f"Offer {number}: {600 + number} euros a day, free from the {number + 3}rd of May.",
                id=f"t{number}",
                tool_call_id=f"c{number}0",
            ),
            ToolMessage(
                f"Lift {number} carries {300 + number} kg and is out of order on Mondays.", id=f"u{number}", tool_call_id=f"c{number}1"
            ),
            AIMessage(f"Firm {number} would do it for {600 + number} euros a day.", id=f"b{number}"),
            HumanMessage(
                f"Note that for firm {number}. The contact there is person number {number}, ask for the big van.", id=f"h{number}"
            ),
        ]
    return said


def _call(number: int, which: int) -> dict[str, Any]:
    return {"id": f"c{number}{which}", "name": "offer" if which == 0 else "lift", "args": {"firm": number}}


class Bench:
    """An agent on the real model, and everything that was ever said in its thread."""

    def __init__(self, model: LocalChat, base: Path, **settings: Any) -> None:
        self.model, self.watch, self.archive = model, Watch(), FileArchive(base)
        self.bus = Bus()
        self.middleware = SummarizationMiddleware(
            model, **{"keep": ("messages", 5), "archive": self.archive, "summary_prompt": PROMPT, "bus": self.bus, **settings}
        )
        self.agent: Any = create_agent(
            model,
            [],
            middleware=[self.middleware, self.watch],
            system_prompt="You are brief.",
            checkpointer=InMemorySaver(),
        )
        self.said: dict[str, str] = {}

    def state(self) -> list[AnyMessage]:
        found: list[AnyMessage] = self.agent.get_state(THREAD).values["messages"]
        return found

    def check(self, given: Sequence[BaseMessage]) -> None:
        """The invariants, after a turn in which these messages came in."""
        state = self.state()
        self.said |= {str(message.id): message.text for message in [*given, *state] if not message.additional_kwargs.get("holdfast")}
        for sent in self.watch.sent:
            assert_whole([message for message in sent if message.type != "system"])
            tokens = self.model.get_num_tokens_from_messages(sent)
            assert tokens + ANSWER <= WINDOW, f"a request of {tokens} tokens was sent"
        ids = [message.id for message in state]
        assert len(ids) == len(set(ids))
        shown = {str(message.id): message.text for message in state}
        held = {id: record.text for id, record in self.archive.originals("t", self.said).items()}
        lost = {id: text for id, text in self.said.items() if text not in (shown.get(id), held.get(id))}
        assert not lost
        covered = [id for record in self.archive.summaries("t") for id in record.covers]
        assert len(covered) == len(set(covered)), "a message left twice"
        assert set(covered) <= set(held)


def assert_whole(messages: Sequence[BaseMessage]) -> None:
    results = 0
    for index, message in enumerate(messages):
        asked = [call["id"] for call in message.tool_calls] if isinstance(message, AIMessage) else []
        following = messages[index + 1 : index + 1 + len(asked)]
        assert [one.tool_call_id for one in following if isinstance(one, ToolMessage)] == asked
        results += len(asked)
    assert results == sum(isinstance(message, ToolMessage) for message in messages)


def question(number: int) -> HumanMessage:
    return HumanMessage(f"Question {number}: {'which of the firms was it, and what did we say about the van? ' * 4}", id=f"q{number}")


def test_whatever_the_model_makes_of_it_nothing_is_lost_and_every_request_fits(model: LocalChat, tmp_path: Path) -> None:
    """S5, S7, S9, S10: more than the window at once, then turn after turn with a trigger."""
    bench = Bench(model, tmp_path, trigger=("fraction", 0.75), trim_tokens_to_summarize=SMALL)
    given: list[AnyMessage] = [*office_move(), question(0)]
    assert model.get_num_tokens_from_messages(given) > WINDOW
    compactions = number = 0
    while compactions < 2 and number < 12:  # how soon the second comes depends on what the model answered; the window forces it at last
        with bench.bus.collect() as events:
            bench.agent.invoke({"messages": given}, THREAD)
        bench.check(given)
        compactions += sum(isinstance(event, Compacted) for event in events)
        number += 1
        given = [question(number)]
    assert compactions >= 2
    assert "goal" in {message.id for message in bench.state()}
    assert {record.how for record in bench.archive.summaries("t")} <= {"model", "extract"}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_summary_call_is_not_heard_in_the_stream(model: LocalChat, tmp_path: Path, asynchronous: bool) -> None:
    """S15: what is streamed is the answer and only that, and the summary has an account of its own."""
    accounts = Accounts(bus=Bus())
    bench = Bench(model, tmp_path, trim_tokens_to_summarize=SMALL, accounts=accounts)
    given = [*office_move(), question(0)]

    async def heard() -> list[Any]:
        return [piece async for piece, _ in bench.agent.astream({"messages": given}, THREAD, stream_mode="messages")]

    if asynchronous:
        pieces = asyncio.run(heard())
    else:
        pieces = [piece for piece, _ in bench.agent.stream({"messages": given}, THREAD, stream_mode="messages")]
    bench.check(given)
    answer = bench.state()[-1]
    assert accounts.total(purpose="summary").calls > 1, "the model was not asked for a summary"
    assert "".join(piece.text for piece in pieces if isinstance(piece, AIMessageChunk)) == answer.text


def test_it_holds_when_awaited_and_with_the_prompt_of_the_project(model: LocalChat, tmp_path: Path) -> None:
    """S7, S13: the default prompt leaves little room in so small a window; then an extract takes its place."""
    bench = Bench(model, tmp_path, summary_prompt=None)
    given = [*office_move(), question(0)]
    asyncio.run(bench.agent.ainvoke({"messages": given}, THREAD))
    bench.check(given)
    assert len(bench.archive.summaries("t")) == 1
