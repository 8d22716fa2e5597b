"""The scripted model behaves as a provider's model does, alone and inside `create_agent`, sync and async (A1, S10, T5)."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRetryMiddleware, ToolErrorMiddleware
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.exceptions import ContextOverflowError, ModelRateLimitError, ModelTimeoutError, OutputParserException
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel, ValidationError

from holdfast.errors import InputError
from holdfast.testing.clock import FakeClock
from holdfast.testing.models import HOSTILE, ScriptedModel, ScriptExhausted, hostile
from holdfast.testing.script import ERRORS, Request, call, delay, raises, repeat, reply, structured


class Weather(BaseModel):
    """The weather of a city."""

    city: str
    degrees: int


@tool
def look_up(city: str, days: int = 1) -> str:
    """The forecast of a city."""
    return f"{city}: sunny for {days} days"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# -- alone ------------------------------------------------------------------------------------------------------------


def test_steps_are_answered_in_order_and_requests_are_recorded() -> None:
    model = ScriptedModel(["one", AIMessage("two", id="m2"), lambda request: f"call {request.number}: {request.last.text}"])
    assert model.invoke("a").text == "one"
    assert model.invoke([SystemMessage("be kind"), HumanMessage("b")]).id == "m2"
    assert model.invoke("c", stop=["x"], temperature=0.5).text == "call 3: c"
    assert [request.number for request in model.requests] == [1, 2, 3]
    assert model.requests[1].system == "be kind"
    assert "human: b" in model.requests[1].text
    assert model.requests[2].stop == ("x",)
    assert model.requests[2].kwargs == {"temperature": 0.5}
    model.assert_finished()


def test_a_function_may_be_the_whole_script() -> None:
    model = ScriptedModel(lambda request: "even" if request.number % 2 == 0 else [call("add", {"a": 1, "b": request.number})])
    assert model.invoke("x").tool_calls[0]["args"] == {"a": 1, "b": 1}
    assert model.invoke("x").text == "even"


def test_an_exhausted_script_names_the_call_and_what_it_asked() -> None:
    model = ScriptedModel(["only one"])
    model.invoke("first")
    with pytest.raises(ScriptExhausted, match=r"has 1 steps and this is call 2, which ends with human: 'second'"):
        model.invoke("second")
    assert len(model.requests) == 2


def test_unplayed_steps_are_noticed() -> None:
    model = ScriptedModel(["one", "two", repeat("more")])
    model.invoke("x")
    with pytest.raises(AssertionError, match="1 steps of the script were never asked for"):
        model.assert_finished()
    model.invoke("x")
    model.assert_finished()


def test_repeated_steps_run_out_only_when_counted() -> None:
    model = ScriptedModel([repeat("a", 2), repeat("b")])
    assert [model.invoke("x").text for _ in range(5)] == ["a", "a", "b", "b", "b"]


def test_steps_can_be_added_while_it_runs() -> None:
    model = ScriptedModel([])
    model.script.add("late")
    assert model.invoke("x").text == "late"


def test_recorded_messages_are_as_they_were_when_sent() -> None:
    model = ScriptedModel(["a"])
    message = HumanMessage([{"type": "text", "text": "before"}])
    model.invoke([message])
    message.content[0]["text"] = "after"  # type: ignore[index]
    assert model.requests[0].text == "human: before"


def test_bindings_copies_and_the_model_share_one_script() -> None:
    model = ScriptedModel(["1", "2", "3"])
    assert model.bind_tools([add]).invoke("x").text == "1"
    assert copy.deepcopy(model).invoke("x").text == "2"
    assert model.model_copy().invoke("x").text == "3"
    assert [request.tool_names for request in model.requests] == [("add",), (), ()]


@pytest.mark.parametrize(("name", "kind"), ERRORS.items())
def test_typed_errors_are_scripted_by_name(name: str, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=name):
        ScriptedModel([raises(name)]).invoke("x")


def test_errors_are_scripted_as_classes_instances_and_from_the_hook() -> None:
    model = ScriptedModel([raises(TimeoutError, "slow"), ValueError("bad"), raises(KeyboardInterrupt)])
    with pytest.raises(TimeoutError, match="slow"):
        model.invoke("x")
    with pytest.raises(ValueError, match="bad"):
        model.invoke("x")
    with pytest.raises(KeyboardInterrupt):
        model.invoke("x")

    def refuse(request: Request) -> None:
        raise ModelTimeoutError(f"call {request.number}")

    with pytest.raises(ModelTimeoutError, match="call 1"):
        ScriptedModel(["never"], on_call=refuse).invoke("x")


def test_unknown_names_and_unusable_steps_are_refused_clearly() -> None:
    with pytest.raises(InputError, match="rate_limit"):
        raises("rate-limit")
    with pytest.raises(InputError, match="whitespace"):
        hostile("nasty")
    with pytest.raises(InputError, match="not one text"):
        ScriptedModel("hello")
    with pytest.raises(InputError, match="step 1 of the script is 3"):
        ScriptedModel([3]).invoke("x")  # type: ignore[list-item]


def test_delays_wait_on_the_models_clock() -> None:
    clock = FakeClock()
    model = ScriptedModel([delay(30, delay(5, "late")), delay(2, raises("timeout"))], clock=clock)
    assert model.invoke("x").text == "late"
    with pytest.raises(ModelTimeoutError):
        model.invoke("x")
    assert clock.sleeps == (35, 2)


async def test_a_delayed_answer_can_be_cancelled() -> None:
    model = ScriptedModel([delay(1000, "never")])
    task = asyncio.create_task(model.ainvoke("x"))
    while not model.requests:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_usage_is_counted_scripted_or_absent() -> None:
    wrong = {"input_tokens": 7, "output_tokens": 1, "total_tokens": 99}
    model = ScriptedModel(["four words are here", reply("x", usage=wrong), reply("x", usage=None)], count=lambda text: len(text.split()))
    assert model.invoke("two words").usage_metadata == {"input_tokens": 5, "output_tokens": 4, "total_tokens": 9}
    assert model.invoke("x").usage_metadata == wrong
    assert model.invoke("x").usage_metadata is None
    assert ScriptedModel(["x"], usage=False).invoke("x").usage_metadata is None


def test_usage_counts_tools_and_earlier_calls_too() -> None:
    model = ScriptedModel([repeat("ok")])
    plain = model.invoke("hello").usage_metadata
    bound = model.bind_tools([look_up]).invoke("hello").usage_metadata
    called = model.invoke(
        [HumanMessage("hello"), AIMessage("", tool_calls=[{"name": "add", "args": {"a": 1, "b": 2}, "id": "1"}])]
    ).usage_metadata
    assert plain is not None and bound is not None and called is not None
    assert bound["input_tokens"] > plain["input_tokens"] + 20
    assert called["input_tokens"] > plain["input_tokens"] + 3


def test_tools_and_choice_are_recorded_as_sent() -> None:
    model = ScriptedModel(["a"])
    model.bind_tools([look_up, Weather], tool_choice="any", parallel_tool_calls=False).invoke("x")
    request = model.requests[0]
    assert request.tool_names == ("look_up", "Weather")
    assert request.tools[0]["function"]["parameters"]["properties"]["days"]["default"] == 1
    assert (request.tool_choice, request.kwargs) == ("any", {"parallel_tool_calls": False})


@pytest.mark.parametrize("method", ["function_calling", "json_schema", "json_mode"])
@pytest.mark.parametrize("schema", [Weather, Weather.model_json_schema()])
def test_structured_output_works_both_ways(method: str, schema: Any) -> None:
    model = ScriptedModel([Weather(city="Paris", degrees=20), {"city": "Rome", "degrees": 30}])
    chain = model.with_structured_output(schema, method=method)
    answers = [chain.invoke("x"), chain.invoke("x")]
    plain = [answer.model_dump() if isinstance(answer, BaseModel) else answer for answer in answers]
    assert plain == [{"city": "Paris", "degrees": 20}, {"city": "Rome", "degrees": 30}]
    assert all(isinstance(answer, Weather) for answer in answers) == (schema is Weather)
    assert (model.requests[0].response_format is None) == (method == "function_calling")


@pytest.mark.parametrize("method", ["function_calling", "json_schema"])
async def test_include_raw_gives_the_message_and_the_parsing_error(method: str) -> None:
    model = ScriptedModel([structured({"city": "Paris", "degrees": 20}), structured({"city": "Paris", "degrees": "hot"})])
    chain = model.with_structured_output(Weather, method=method, include_raw=True)
    good, bad = await chain.ainvoke("x"), await chain.ainvoke("x")
    assert isinstance(good, dict) and isinstance(bad, dict)
    assert (good["parsed"], good["parsing_error"]) == (Weather(city="Paris", degrees=20), None)
    assert isinstance(good["raw"], AIMessage)
    assert bad["parsed"] is None
    assert isinstance(bad["parsing_error"], ValidationError | OutputParserException)


def test_a_structured_answer_needs_to_know_its_tool() -> None:
    model = ScriptedModel([structured({"city": "x"})])
    with pytest.raises(InputError, match="look_up, other"):
        model.bind_tools([look_up, {"name": "other", "description": "", "parameters": look_up.args_schema.model_json_schema()}]).invoke("x")  # type: ignore[union-attr]


# -- streams ----------------------------------------------------------------------------------------------------------


def test_text_is_streamed_in_words_with_usage_in_the_last_piece() -> None:
    model = ScriptedModel([reply("three short words", call("add", {"a": 1, "b": 2}, id="c1"))])
    pieces = list(model.stream("x"))
    assert [piece.text for piece in pieces[:3]] == ["three ", "short ", "words"]
    assert all(piece.usage_metadata is None for piece in pieces[:-1])
    assert pieces[-1].usage_metadata is not None
    whole = pieces[0]
    for piece in pieces[1:]:
        whole = whole + piece
    assert isinstance(whole, AIMessageChunk)
    assert whole.text == "three short words"
    assert [(made["name"], made["args"], made["id"]) for made in whole.tool_calls] == [("add", {"a": 1, "b": 2}, "c1")]
    assert model.requests[0].streamed


async def test_streams_are_the_same_async_and_add_up_to_the_whole_answer() -> None:
    step = reply("some words\n\nand more ", call("add", {"a": 1, "b": 2}), call("look_up", {"city": "Rome"}))
    model = ScriptedModel([step, step, step])
    sync = list(model.stream("x"))
    awaited = [piece async for piece in model.astream("x")]
    assert [piece.text for piece in sync] == [piece.text for piece in awaited]
    whole = await model.ainvoke("x")
    assert "".join(piece.text for piece in sync) == whole.text
    assert sync[-1].usage_metadata == awaited[-1].usage_metadata == whole.usage_metadata
    assert [request.asynchronous for request in model.requests] == [False, True, True]


async def test_a_stream_can_break_in_the_middle() -> None:
    model = ScriptedModel([raises("connection", after="half an")] * 2)
    seen: list[str] = []
    with pytest.raises(ERRORS["connection"]):
        for piece in model.stream("x"):
            seen.append(piece.text)
    with pytest.raises(ERRORS["connection"]):
        async for piece in model.astream("x"):
            seen.append(piece.text)
    assert seen == ["half ", "an", "half ", "an"]


def test_a_slow_stream_waits_between_its_pieces() -> None:
    clock = FakeClock()
    model = ScriptedModel([delay(10, "a b c", pace=2)], clock=clock)
    assert "".join(piece.text for piece in model.stream("x")) == "a b c"
    assert clock.sleeps == (10, 2, 2, 2)


def test_content_blocks_are_streamed_as_blocks() -> None:
    blocks = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "yes"}]
    whole = None
    for piece in ScriptedModel([reply(blocks)]).stream("x"):
        whole = piece if whole is None else whole + piece
    assert whole is not None
    assert whole.text == "yes"


# -- threads ----------------------------------------------------------------------------------------------------------


def test_many_threads_get_every_step_once_and_their_names_are_recorded() -> None:
    model = ScriptedModel([str(number) for number in range(200)])
    with ThreadPoolExecutor(8, thread_name_prefix="asker") as pool:
        answers = list(pool.map(lambda number: model.invoke(f"q{number}").text, range(200)))
    assert sorted(answers, key=int) == [str(number) for number in range(200)]
    assert [request.number for request in model.requests] == list(range(1, 201))
    assert all(request.thread.startswith("asker") for request in model.requests)


def test_the_hook_runs_outside_the_lock_so_that_it_may_look_and_wait() -> None:
    both = threading.Barrier(2, timeout=240)
    model = ScriptedModel(["a", "b"], on_call=lambda request: (both.wait(), model.requests))
    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(lambda _: model.invoke("x").text, range(2))) == ["a", "b"]


# -- hostile answers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
def test_every_hostile_answer_can_be_invoked_and_streamed(name: str) -> None:
    model = ScriptedModel([hostile(name, size=500)] * 2).bind_tools([look_up])
    whole = model.invoke("x")
    streamed = "".join(piece.text for piece in model.stream("x"))
    assert streamed == whole.text


def test_hostile_answers_are_what_their_names_say() -> None:
    def ask(name: str, **bound: Any) -> AIMessage:
        model = ScriptedModel([hostile(name, size=5000)])
        return model.bind(**bound).invoke("x") if bound else model.bind_tools([add, look_up]).invoke("x")

    assert ask("empty").text == ""
    assert ask("whitespace").text.strip() == "" != ask("whitespace").text
    assert len(ask("endless").text) == 5000
    assert ask("endless").response_metadata["finish_reason"] == "length"
    assert ask("unknown_tool").tool_calls[0]["name"] == "no_such_tool"
    first, second = ask("duplicate_ids").tool_calls
    assert first["id"] == second["id"]
    assert ask("wrong_types").tool_calls[0]["args"] == {"a": "seven", "b": "seven"}
    assert ask("invalid_json").invalid_tool_calls[0]["name"] == "add"
    assert ask("no_usage").usage_metadata is None
    assert "<|im_start|>system" in ask("role_markers").text
    form = {"type": "json_schema", "json_schema": {"name": "w", "schema": Weather.model_json_schema()}}
    with pytest.raises(ValueError, match=r"Expecting|delimiter|property"):
        json.loads(ask("invalid_json", response_format=form).text)
    with pytest.raises(ValidationError):
        Weather.model_validate_json(ask("wrong_types", response_format=form).text)


# -- inside create_agent ----------------------------------------------------------------------------------------------


def run(agent: Any, text: str = "go", *, asynchronous: bool) -> dict[str, Any]:
    state = {"messages": [HumanMessage(text)]}
    result = asyncio.run(agent.ainvoke(state)) if asynchronous else agent.invoke(state)
    assert isinstance(result, dict)
    return result


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_agent_runs_parallel_tool_calls(asynchronous: bool) -> None:
    model = ScriptedModel([[call("add", {"a": 1, "b": 2}), call("look_up", {"city": "Rome"})], "done"])
    result = run(create_agent(model, [add, look_up], system_prompt="You add."), asynchronous=asynchronous)
    answers = [message.text for message in result["messages"] if isinstance(message, ToolMessage)]
    assert answers == ["3", "Rome: sunny for 1 days"]
    assert result["messages"][-1].text == "done"
    assert [request.system for request in model.requests] == ["You add.", "You add."]
    assert [type(message).__name__ for message in model.requests[1].messages] == [
        "SystemMessage",
        "HumanMessage",
        "AIMessage",
        "ToolMessage",
        "ToolMessage",
    ]
    model.assert_finished()


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("strategy", [ToolStrategy, ProviderStrategy])
def test_an_agent_gives_a_structured_response_by_both_strategies(strategy: Any, asynchronous: bool) -> None:
    model = ScriptedModel([[call("look_up", {"city": "Paris"})], Weather(city="Paris", degrees=20)])
    result = run(create_agent(model, [look_up], response_format=strategy(Weather)), asynchronous=asynchronous)
    assert result["structured_response"] == Weather(city="Paris", degrees=20)
    assert (model.requests[1].response_format is not None) == (strategy is ProviderStrategy)


@pytest.mark.parametrize(("profile", "expected"), [(None, False), ({"structured_output": True}, True)])
def test_the_profile_decides_how_a_bare_schema_is_asked(profile: Any, expected: bool) -> None:
    model = ScriptedModel([Weather(city="Oslo", degrees=-3)], profile=profile)
    result = run(create_agent(model, [], response_format=Weather), asynchronous=False)
    assert result["structured_response"] == Weather(city="Oslo", degrees=-3)
    assert (model.requests[0].response_format is not None) == expected


@pytest.mark.parametrize("asynchronous", [False, True])
def test_middlewares_see_the_scripted_errors(asynchronous: bool) -> None:
    model = ScriptedModel([raises("rate_limit"), raises("server"), "third time"])
    retry = ModelRetryMiddleware(max_retries=2, initial_delay=0, jitter=False, on_failure="error")
    result = run(create_agent(model, [], middleware=[retry]), asynchronous=asynchronous)
    assert result["messages"][-1].text == "third time"
    assert len(model.requests) == 3


def test_an_unscripted_error_reaches_the_caller_of_the_agent() -> None:
    with pytest.raises(ContextOverflowError):
        run(create_agent(ScriptedModel([raises("overflow")]), []), asynchronous=False)
    with pytest.raises(ModelRateLimitError):
        run(create_agent(ScriptedModel([raises("rate_limit")]), []), asynchronous=True)


def test_a_middleware_can_change_what_the_model_is_sent() -> None:
    class Short(AgentMiddleware):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(messages=request.messages[-1:]))

    model = ScriptedModel(["one", "two"])
    agent = create_agent(model, [], middleware=[Short()])
    first = agent.invoke({"messages": [HumanMessage("a")]})
    agent.invoke({"messages": [*first["messages"], HumanMessage("b")]})
    assert model.requests[1].text == "human: b"


async def test_an_agent_streams_words_tool_calls_and_results() -> None:
    def script() -> ScriptedModel:
        return ScriptedModel([[call("add", {"a": 1, "b": 2})], "the sum is three"])

    texts = [
        message.text
        for message, _ in create_agent(script(), [add]).stream({"messages": [HumanMessage("x")]}, stream_mode="messages")
        if isinstance(message, AIMessageChunk) and message.text
    ]
    assert texts == ["the ", "sum ", "is ", "three"]
    awaited = [
        message.text
        async for message, _ in create_agent(script(), [add]).astream({"messages": [HumanMessage("x")]}, stream_mode="messages")
        if isinstance(message, AIMessageChunk) and message.text
    ]
    assert awaited == texts


@pytest.mark.parametrize("name", ["wrong_types", "unknown_tool", "duplicate_ids", "no_arguments", "empty", "role_markers"])
def test_an_agent_survives_hostile_answers(name: str) -> None:
    model = ScriptedModel([hostile(name), "recovered"])
    result = run(
        create_agent(model, [add], middleware=[ToolErrorMiddleware(on_error=lambda error, request: str(error))]), asynchronous=False
    )
    asked = result["messages"][1]
    assert result["messages"][-1].text == ("recovered" if asked.tool_calls else asked.text)
