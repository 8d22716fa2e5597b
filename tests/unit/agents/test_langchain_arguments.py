"""S16: LangChain's arguments, errors, attributes and hooks on our middleware, and summarizers of every kind it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from blockbuster import blockbuster_ctx
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRetryMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately, get_buffer_string
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.runtime import Runtime
from tests.unit.agents.test_drop_in import SETTINGS, model, steps_of, talk

from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.agents.middleware.window_models import CounterFailed
from holdfast.config.triggers import TriggerClause
from holdfast.context.archive import MemoryArchive
from holdfast.context.window import SummaryFailed
from holdfast.errors import ConfigError
from holdfast.events import Bus
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import call, raises, repeat


def made(summaries: Any = None, **settings: Any) -> SummarizationMiddleware:
    return SummarizationMiddleware(summaries, **{"archive": MemoryArchive(), **SETTINGS, **settings})


def compacted(middleware: SummarizationMiddleware, turns: int = 8) -> tuple[list[str], ScriptedModel]:
    """The messages of the last request after some turns, and the model."""
    asked = model()
    agent = create_agent(asked, middleware=[middleware], checkpointer=InMemorySaver())
    steps_of(agent, *(f"question {turn}" for turn in range(turns)))
    return [message.text for message in asked.requests[-1].messages], asked


class Heard:
    """A summarizer that writes down what it was given."""

    def __init__(self) -> None:
        self.given: list[list[Any]] = []

    def __call__(self, messages: list[Any]) -> str:
        self.given.append(messages)
        return f"  {len(messages)} of them  "

    async def awaited(self, messages: list[Any]) -> str:
        await asyncio.sleep(0)
        return self(messages)


@pytest.mark.parametrize("kind", ["function", "runnable"])
def test_a_summarizer_may_be_a_function_or_a_runnable(kind: str) -> None:
    """S7, S16: it is given the messages themselves, and the model is not asked."""
    heard = Heard()
    never = ScriptedModel([raises("rate_limit")])
    middleware = made(never, summarizer=heard if kind == "function" else RunnableLambda(heard))
    texts, _ = compacted(middleware)
    assert not never.requests
    assert middleware.model is never
    assert heard.given
    assert [message.text for message in heard.given[0]][:3] == ["fine", "question 1", "fine"]
    assert all(message.id and message.type in ("human", "ai") for message in heard.given[0])
    assert texts[0] == f"Here is a summary of the conversation to date:\n\n{len(heard.given[-1])} of them"


async def test_an_async_function_and_a_sync_one_are_awaited_alike() -> None:
    """S16"""
    for function in (Heard().awaited, Heard()):
        asked = model()
        agent = create_agent(asked, middleware=[made(None, summarizer=function)], checkpointer=InMemorySaver())
        with blockbuster_ctx():
            for turn in range(8):
                await agent.ainvoke({"messages": [HumanMessage(f"question {turn}")]}, {"configurable": {"thread_id": "t"}})
        assert "of them" in asked.requests[-1].text


def test_a_summarizer_reads_everything_in_pieces_with_the_notes_so_far_first() -> None:
    """S7: `trim_tokens_to_summarize` bounds one call and drops nothing."""
    heard = Heard()
    history = [
        HumanMessage("the goal", id="goal"),
        *(HumanMessage(f"fact {number}: " + "word " * 60, id=f"m{number}") for number in range(40)),
    ]
    create_agent(model(), middleware=[made(None, summarizer=heard, trim_tokens_to_summarize=1200)]).invoke({"messages": history})  # type: ignore[call-overload]
    assert len(heard.given) > 1
    assert heard.given[1][0].text.startswith("Here is a summary of the conversation to date:")
    read = {message.id for given in heard.given for message in given}
    assert {f"m{number}" for number in range(36)} <= read


@pytest.mark.parametrize("wrong", [lambda messages: AIMessage("no text"), lambda messages: None, lambda messages: 1 / 0])
def test_a_summarizer_that_fails_changes_nothing_and_says_so(wrong: Callable[..., Any]) -> None:
    """S10: unlike LangChain's, the run goes on."""
    bus = Bus()
    with bus.collect() as said:
        texts, _ = compacted(made(None, summarizer=wrong, bus=bus), 7)
    assert texts[0] == "question 0"
    assert len(texts) == 13
    assert any(isinstance(event, SummaryFailed) for event in said)


@pytest.mark.parametrize(
    "end",
    [
        {"finish_reason": "length"},
        {"stop_reason": "max_tokens"},
        {"finish_reason": "MAX_TOKENS"},
        {"incomplete_details": {"reason": "max_output_tokens"}},
    ],
    ids=str,
)
def test_a_summary_that_its_token_limit_cut_is_asked_for_once_more_and_else_refused(end: dict[str, Any]) -> None:
    """S10"""
    cut = AIMessage("6. Search terms: The", response_metadata=end)
    notes = ScriptedModel([cut, repeat("NOTES, whole")], profile={"max_input_tokens": 8000})
    texts, _ = compacted(made(notes))
    assert "NOTES, whole" in texts[0]
    assert "Use at most 30 words." in notes.requests[1].text
    always = ScriptedModel([repeat(cut)], profile={"max_input_tokens": 8000})
    texts, _ = compacted(made(always), 6)
    assert texts[0] == "question 0", "nothing was changed"
    assert len(always.requests) == 2


def test_a_counter_over_a_list_is_given_whole_histories_and_nothing_else() -> None:
    """S4, S16: never a lone result, never a piece of text; what it says of a list need not be a sum."""
    given: list[list[Any]] = []

    def strict(messages: Any) -> int:
        given.append(list(messages))
        open_calls = {asked["id"] for message in messages for asked in getattr(message, "tool_calls", None) or ()}
        if any(message.type == "tool" and message.tool_call_id not in open_calls for message in messages):
            raise ValueError("a result without its call")
        return 700 + count_tokens_approximately(messages)

    @tool
    def look(what: str) -> str:
        """Looks."""
        return f"seen {what}"

    bus = Bus()
    notes = model("NOTES")
    steps: list[Any] = [
        step for number in range(12) for step in ([call("look", {"what": f"thing {number} " + "x " * 60})], f"answer {number}")
    ]
    asked = ScriptedModel(steps, profile={"max_input_tokens": 8000})
    middleware = made(notes, token_counter=strict, trigger=("tokens", 2000), keep=("tokens", 900), bus=bus)
    agent = create_agent(asked, [look], middleware=[middleware], checkpointer=InMemorySaver())
    with bus.collect() as said:
        steps_of(agent, *(f"question {turn} " + "y " * 45 for turn in range(12)))
    assert not any(isinstance(event, CounterFailed) for event in said)
    assert all(len(messages) > 1 or messages[0].type == "human" for messages in given)
    assert notes.requests, "2,000 tokens by its count were reached"
    assert not any("tokens in all; the middle was moved out" in request.text for request in asked.requests), "no short message was clipped"
    for request in asked.requests:
        assert strict(list(request.messages)) < 2000 + 400
    assert middleware.token_counter is strict


def test_a_counter_that_raises_costs_no_run() -> None:
    """S10: our own count takes its place, and it is said once."""
    bus = Bus()
    with bus.collect() as said:
        texts, _ = compacted(made(model("NOTES"), token_counter=lambda messages: 1 / 0, bus=bus))
    assert "NOTES" in texts[0]
    assert sum(isinstance(event, CounterFailed) for event in said) == 1


def test_a_counter_can_be_set_later() -> None:
    """S16"""
    middleware = made(model("NOTES"), trigger=("tokens", 1000), keep=("messages", 2))
    state = {"messages": talk(4)}
    assert middleware.before_model(state, Runtime()) is None
    middleware.token_counter = lambda messages: 1500
    assert middleware.before_model(state, Runtime()) is not None
    assert middleware.token_counter(state["messages"]) == 1500


@pytest.mark.parametrize("asynchronous", [False, True])
def test_before_model_can_be_called_as_langchains(asynchronous: bool) -> None:
    """S16: for a graph of one's own. `create_agent` gets no node from it."""
    middleware = made(model("NOTES"))
    history = talk(8)

    def asked(messages: list[Any]) -> Any:
        state = {"messages": messages}
        return asyncio.run(middleware.abefore_model(state, Runtime())) if asynchronous else middleware.before_model(state, Runtime())

    assert asked(history[:4]) is None
    update = asked(history)
    removal, summary, *kept = update["messages"]
    assert isinstance(removal, RemoveMessage)
    assert removal.id == REMOVE_ALL_MESSAGES
    assert "NOTES" in summary.text
    assert summary.additional_kwargs["lc_source"] == "summarization"
    assert [message.id for message in kept] == ["h0", "h6", "a6", "h7", "a7"], "the goal, and what `keep` says"
    agent: Any = create_agent(model(), middleware=[middleware])
    assert set(agent.nodes) == {"__start__", "model", "tools"}


def test_attributes_are_those_of_langchain() -> None:
    """S16"""
    clause: TriggerClause = {"tokens": 1000}
    summaries = model("NOTES")
    middleware = SummarizationMiddleware(
        summaries, trigger=[clause, ("messages", 9)], keep=("messages", 10), summary_prompt="Sum up {messages}"
    )
    clause["messages"] = 1
    assert middleware.model is summaries
    assert middleware.trigger == [{"tokens": 1000}, ("messages", 9)]
    assert middleware.keep == ("messages", 10)
    assert middleware.summary_prompt == "Sum up {messages}"
    assert middleware.trim_tokens_to_summarize == 4000
    assert middleware.summarizer is None
    assert middleware.token_counter([HumanMessage("one two three")]) > 3


def test_deprecated_arguments_are_taken_with_a_warning() -> None:
    """S16"""
    with pytest.warns(DeprecationWarning) as said:
        middleware = SummarizationMiddleware(model(), max_tokens_before_summary=500, messages_to_keep=5)
    assert [str(one.message).partition(" ")[0] for one in said] == ["max_tokens_before_summary", "messages_to_keep"]
    assert said[0].filename == __file__
    assert (middleware.trigger, middleware.keep) == (("tokens", 500), ("messages", 5))
    with pytest.warns(DeprecationWarning):
        middleware = SummarizationMiddleware(
            model(), trigger=("tokens", 9), max_tokens_before_summary=5, keep=("messages", 7), messages_to_keep=5
        )
    assert (middleware.trigger, middleware.keep) == (("tokens", 9), ("messages", 7)), "what is not deprecated wins"
    with pytest.warns(DeprecationWarning, match="summary_prefix is deprecated and has no effect"):
        SummarizationMiddleware(model(), summary_prefix="Before:")
    with pytest.raises(TypeError, match="unexpected keyword argument 'keep_messages'"):
        SummarizationMiddleware(model(), keep_messages=5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        ({"trigger": ("fraction", 1.5)}, ValueError, "between 0 and 1"),
        ({"keep": ("fraction", -0.1)}, ValueError, "Fractional keep values must be between 0 and 1"),
        ({"trigger": ("tokens", 0)}, ValueError, "greater than 0"),
        ({"trigger": {"messages": -5}}, ValueError, "greater than 0"),
        ({"trigger": {"tokens": 1000.5}}, ValueError, "must be integers"),
        ({"trigger": {"messages": True}}, ValueError, "must be numeric"),
        ({"trigger": {"words": 5}}, ValueError, "Unsupported trigger metric"),
        ({"trigger": {}}, ValueError, "at least one of"),
        ({"trigger": [("tokens", 5), {}]}, ValueError, "at least one of"),
        ({"keep": ("words", 5)}, ValueError, "Unsupported context size type"),
        ({"keep": {"type": "words", "value": 5}}, ValueError, "keep"),
        ({"trigger": {"all": [{"type": "words", "value": 5}]}}, ValueError, "trigger"),
        ({"trigger": "foo"}, TypeError, "Unsupported trigger type"),
        ({"trigger": ["foo"]}, TypeError, "Unsupported trigger item type"),
    ],
    ids=str,
)
def test_wrong_sizes_are_errors_of_both_kinds(arguments: dict[str, Any], kind: type[Exception], says: str) -> None:
    """S2, S16: a ConfigError for who uses Holdfast, a ValueError or TypeError for who comes from LangChain."""
    with pytest.raises(kind, match=says) as caught:
        SummarizationMiddleware(model(), **arguments)
    assert isinstance(caught.value, ConfigError)


class Providers(ScriptedModel):
    """A model of a provider."""

    provider: str = "acme"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return {"ls_provider": self.provider, "ls_model_type": "chat"}


Provided: Any = Providers


@pytest.mark.parametrize(
    ("said", "provider", "met"),
    [("acme", "acme", True), ("bedrock_converse", "amazon_bedrock", True), ("acme", "other", False), (None, "acme", False)],
)
def test_what_the_provider_reported_meets_a_trigger(said: str | None, provider: str, met: bool) -> None:
    """T1, S2: also of a history whose answers this process never saw."""
    usage: Any = {"input_tokens": 4100, "output_tokens": 50, "total_tokens": 4150}
    history = talk(8)
    history[-1] = AIMessage("answer", id="last", usage_metadata=usage, response_metadata={"model_provider": said} if said else {})
    asked: BaseChatModel = Provided([repeat("fine")], provider=provider, profile={"max_input_tokens": 8000})
    notes = model("NOTES")
    middleware = made(notes, trigger=("tokens", 3500))
    create_agent(asked, middleware=[middleware]).invoke({"messages": [*history, HumanMessage("so?")]})
    assert bool(notes.requests) is met


def test_a_held_summary_is_used_again_after_a_failed_model_call() -> None:
    """S10: two failed calls of the model cost one summary, also where the summarizer's report changed our counts in between."""
    usage: Any = {"input_tokens": 3000, "output_tokens": 5, "total_tokens": 3005}
    notes = ScriptedModel([repeat(AIMessage("NOTES", usage_metadata=usage))], profile={"max_input_tokens": 8000})
    asked = ScriptedModel([raises("rate_limit"), raises("rate_limit"), repeat("fine")], profile={"max_input_tokens": 8000})
    retry = ModelRetryMiddleware(max_retries=3, initial_delay=0.0, jitter=False)
    create_agent(asked, middleware=[retry, made(notes)]).invoke({"messages": [*talk(8), HumanMessage("so?")]})
    assert len(notes.requests) == 1
    assert "NOTES" in asked.requests[-1].text


def test_a_summarizer_is_in_nobodys_stream() -> None:
    """S15: a chain that is given as summarizer asks its model unseen."""
    inner = model("NOTES of a chain")
    chain: Any = RunnableLambda(lambda messages: get_buffer_string(messages)) | inner | RunnableLambda(lambda answer: answer.text)
    agent = create_agent(model(), middleware=[made(None, summarizer=chain)], checkpointer=InMemorySaver())

    async def streamed() -> list[str]:
        said = []
        for turn in range(8):
            config: Any = {"configurable": {"thread_id": "t"}}
            message: Any
            async for message, _ in agent.astream({"messages": [HumanMessage(f"question {turn}")]}, config, stream_mode="messages"):
                said.append(message.text)
        return said

    assert "".join(asyncio.run(streamed())) == "fine" * 8
    assert inner.requests
    assert any(isinstance(message, ToolMessage) for message in inner.requests[0].messages) is False
