"""A real small model answers over the OpenAI client: plain, streamed, in a schema, and with tools in an agent (A15, T3, C3).

One thread and short outputs. What the model says is not judged, only that it is really said, counted and held to its form.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.structured_output import ProviderStrategy
from langchain_core.exceptions import ContextOverflowError, ModelAuthenticationError, OutputParserException
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field, SecretStr

from holdfast.errors import InputError, ModelTooWeak, ModelUnavailable
from holdfast.models.local import LocalServer, ServerOptions, local_chat_model, shared_server
from holdfast.models.local_chat import LocalChat
from holdfast.models.weights import find_weights

QUESTION = "Name the capital of France."
WINDOW = 1024


def need_weights(name: str) -> Path:
    """The file of the weights, or a loud skip; with CI=true their absence is a failure."""
    try:
        import xllamacpp  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: F401 - only whether it is there

        return find_weights(name)
    except (ImportError, ModelUnavailable) as error:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(f"the local model cannot be tried: {error}")
        pytest.skip(f"the local model cannot be tried: {error}")


@pytest.fixture(scope="module")
def weights() -> Path:
    return need_weights("smollm2")


@pytest.fixture(scope="module")
def model(weights: Path) -> Iterator[LocalChat]:
    chat = local_chat_model("smollm2", window=WINDOW, threads=1, max_tokens=40)
    yield chat
    chat.server.close()


class City(BaseModel):
    """A city and how sure it is."""

    name: str
    size: Literal["small", "large"]
    sure: float = Field(ge=0, le=1)


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"It is 21 degrees and sunny in {city}."


def whole(pieces: list[Any]) -> AIMessageChunk:
    total = pieces[0]
    for piece in pieces[1:]:
        total = total + piece
    assert isinstance(total, AIMessageChunk)
    return total


# -- plain and streamed -----------------------------------------------------------------------------------------------


def test_it_answers_with_usage_through_the_ordinary_client(model: LocalChat) -> None:
    assert isinstance(model, ChatOpenAI)
    answer = model.invoke(QUESTION)
    assert "Paris" in answer.text
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["input_tokens"] == model.get_num_tokens_from_messages([HumanMessage(QUESTION)])
    assert 1 < answer.usage_metadata["output_tokens"] <= 40


def test_any_openai_client_with_the_key_can_talk_to_it_and_none_without(model: LocalChat) -> None:
    server: LocalServer = model.server
    client: dict[str, Any] = {"model": "any", "base_url": server.base_url, "max_completion_tokens": 8, "max_retries": 0}
    assert ChatOpenAI(**client, api_key=SecretStr(server.api_key)).invoke(QUESTION).text
    with pytest.raises(ModelAuthenticationError):
        ChatOpenAI(**client, api_key=SecretStr("wrong")).invoke(QUESTION)


def test_it_streams_the_same_words_with_usage(model: LocalChat) -> None:
    pieces = list(model.stream(QUESTION))
    assert len([piece for piece in pieces if piece.text]) > 3
    total = whole(pieces)
    assert total.text == model.invoke(QUESTION).text
    assert total.usage_metadata is not None
    assert total.usage_metadata["output_tokens"] > 3


def test_async_calls_work_in_one_event_loop_after_another(model: LocalChat) -> None:
    async def ask() -> tuple[str, str]:
        answer = await model.ainvoke(QUESTION)
        streamed = [piece.text async for piece in model.astream(QUESTION)]
        return answer.text, "".join(streamed)

    first, second = asyncio.run(ask()), asyncio.run(ask())
    assert first == second
    assert first[0] == first[1]


def _connections(server: LocalServer) -> set[str]:
    """The client ends of open connections to the server, as the kernel lists them."""
    port = f":{int(server.base_url.rsplit(':', 1)[1].split('/')[0]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[1] for row in rows if row[2].endswith(port) and row[3] == "01"}


def test_no_connection_outlives_its_event_loop(model: LocalChat) -> None:
    before = _connections(model.server)
    asyncio.run(model.ainvoke(QUESTION))
    model.invoke(QUESTION)
    assert _connections(model.server) <= before


def test_a_request_longer_than_the_window_is_an_overflow_and_not_nonsense(model: LocalChat) -> None:
    long = "word " * (WINDOW + 100)
    with pytest.raises(ContextOverflowError, match=rf"has \d+ tokens and the window of smollm2 is {WINDOW}"):
        model.invoke(long)
    with pytest.raises(ContextOverflowError):
        list(model.stream(long))
    with pytest.raises(ContextOverflowError):
        asyncio.run(model.ainvoke(long))


def test_its_profile_and_abilities_are_honest(model: LocalChat) -> None:
    assert model.profile is not None
    assert model.profile["max_input_tokens"] == WINDOW
    assert model.profile["tool_calling"] is False
    assert (model.abilities.summary, model.abilities.extraction, model.abilities.tools) == (False, False, "schema")


# -- in a schema ------------------------------------------------------------------------------------------------------


def test_it_answers_in_a_schema_and_fractions_come_back_as_fractions(model: LocalChat) -> None:
    answer = model.with_structured_output(City).invoke("Tell me about Paris, a large city.")
    assert isinstance(answer, City)
    raw = model.with_structured_output(City, include_raw=True).invoke("Tell me about Paris, a large city.")
    assert raw["parsed"] == answer
    assert City.model_validate_json(raw["raw"].text) == answer
    assert raw["raw"].response_metadata["finish_reason"] == "stop"


async def test_a_schema_as_json_streams_and_awaits(model: LocalChat) -> None:
    schema = {
        "title": "List",
        "type": "object",
        "properties": {"names": {"type": "array", "items": {"type": "string"}}},
        "required": ["names"],
    }
    chain = model.with_structured_output(schema)
    answer = await chain.ainvoke("Name three cities.")
    assert all(isinstance(name, str) for name in answer["names"])
    assert [part async for part in chain.astream("Name three cities.")][-1].keys() == {"names"}


def test_a_looping_model_cannot_run_over_the_bounds(model: LocalChat) -> None:
    class Essay(BaseModel):
        parts: list[str]
        number: float

    answer = model.with_structured_output(Essay).invoke("Repeat the word echo for ever: echo echo echo echo echo echo echo echo")
    assert isinstance(answer, Essay)


def test_what_cannot_be_answered_within_max_tokens_is_refused_or_reported(model: LocalChat) -> None:
    with pytest.raises(InputError, match="max_tokens"):
        model.with_structured_output(City, max_tokens=5).invoke("Paris")
    wide = {"title": "W", "type": "object", "properties": {"text": {"type": "string", "minLength": 100}}, "required": ["text"]}
    with pytest.raises(OutputParserException, match="cut"):
        model.with_structured_output(wide, max_tokens=38, stop=None).invoke(
            "Write digits: 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9"
        )


# -- tools ------------------------------------------------------------------------------------------------------------


def test_a_forced_tool_is_called_with_arguments_in_its_schema(model: LocalChat) -> None:
    message = model.bind_tools([weather], tool_choice="any").invoke("What is the weather in Paris?")
    (made,) = message.tool_calls
    assert (made["name"], list(made["args"])) == ("weather", ["city"])
    assert message.text == ""
    assert message.response_metadata["finish_reason"] == "tool_calls"


def test_tool_choice_none_gives_text_and_an_unknown_tool_is_refused(model: LocalChat) -> None:
    message = model.bind_tools([weather], tool_choice="none").invoke("What is the weather in Paris?")
    assert message.text
    assert not message.tool_calls
    with pytest.raises(InputError, match="not one of the tools"):
        model.bind_tools([weather], tool_choice="hammer").invoke("x")


def test_a_streamed_tool_choice_is_a_tool_call(model: LocalChat) -> None:
    total = whole(list(model.bind_tools([weather], tool_choice="weather").stream("What is the weather in Paris?")))
    assert total.tool_calls[0]["name"] == "weather"
    assert total.usage_metadata is not None


class FirstAskThenAnswer(AgentMiddleware):
    """Takes the choice between tool and answer from the model, whose taste is not what is tested."""

    def _narrowed(self, request: Any) -> Any:
        done = any(isinstance(message, ToolMessage) for message in request.messages)
        return request.override(tool_choice="none" if done else "any")

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(self._narrowed(request))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(self._narrowed(request))


STATE: Any = {"messages": [HumanMessage("What is the weather in Paris?")]}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_agent_calls_a_tool_and_answers_with_its_result(model: LocalChat, asynchronous: bool) -> None:
    agent = create_agent(model, [weather], middleware=[FirstAskThenAnswer()])
    result = asyncio.run(agent.ainvoke(STATE)) if asynchronous else agent.invoke(STATE)
    _, asked, told, last = result["messages"]
    assert isinstance(asked, AIMessage)
    assert [made["name"] for made in asked.tool_calls] == ["weather"]
    assert isinstance(told, ToolMessage)
    assert "21 degrees" in told.text
    assert isinstance(last, AIMessage)
    assert last.text
    assert not last.text.startswith("{")


def test_an_agent_streams_its_tool_call_and_its_answer(model: LocalChat) -> None:
    agent = create_agent(model, [weather], middleware=[FirstAskThenAnswer()])
    pieces = [message for message, _ in agent.stream(STATE, stream_mode="messages")]
    place = next(number for number, piece in enumerate(pieces) if isinstance(piece, ToolMessage))
    assert any(isinstance(piece, AIMessageChunk) and piece.tool_calls for piece in pieces[:place])
    assert len([piece for piece in pieces[place:] if isinstance(piece, AIMessageChunk) and piece.text]) > 1


def test_a_call_is_not_made_again_when_it_was_just_answered(model: LocalChat) -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    said = AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Paris"}, "id": "1"}])
    history = [*STATE["messages"], said, ToolMessage("It is 21 degrees and sunny in Paris.", tool_call_id="1")]
    bound = model.bind_tools([weather, add])
    for answer in (bound.invoke(history), whole(list(bound.stream(history))), asyncio.run(bound.ainvoke(history))):
        assert ("weather", {"city": "Paris"}) not in [(made["name"], made["args"]) for made in answer.tool_calls]


def test_an_agent_left_to_itself_comes_to_an_end(model: LocalChat) -> None:
    agent = create_agent(model, [weather])
    result = agent.invoke(STATE, {"recursion_limit": 30})
    assert result["messages"][-1].text


def test_an_agent_gives_a_structured_response(model: LocalChat) -> None:
    agent = create_agent(model, [weather], response_format=ProviderStrategy(City))
    result = agent.invoke({"messages": [HumanMessage("What is the weather in Paris?")]}, {"recursion_limit": 10})
    assert isinstance(result["structured_response"], City)


def test_a_model_without_tools_says_so(weights: Path) -> None:
    with LocalServer(weights, ServerOptions(window=256, threads=1)) as server:
        chat = LocalChat.serving(server, tools="none", max_tokens=10)
        with pytest.raises(ModelTooWeak, match="tools"):
            chat.bind_tools([weather])


# -- the server -------------------------------------------------------------------------------------------------------


def test_one_server_serves_all_models_of_the_same_file_and_options(weights: Path, model: LocalChat) -> None:
    assert local_chat_model(weights, window=WINDOW, threads=1).server is model.server
    other = shared_server(weights, ServerOptions(window=512, threads=1))
    assert other is not model.server
    other.close()
    again = shared_server(weights, ServerOptions(window=512, threads=1))
    assert again is not other
    assert not again.closed
    again.close()


def test_slots_serve_several_requests_at_once_each_with_the_whole_window(weights: Path) -> None:
    with LocalServer(weights, ServerOptions(window=512, threads=1, slots=2)) as server:
        assert server.window == 512
        chat = LocalChat.serving(server, max_tokens=6, temperature=0.0)
        answers = chat.batch([QUESTION, QUESTION, QUESTION])
        assert len({answer.text for answer in answers}) == 1
        with pytest.raises(ContextOverflowError, match="is 512"):
            chat.invoke("word " * 600)


def test_a_window_wider_than_the_model_knows_is_narrowed_with_a_warning(weights: Path, caplog: pytest.LogCaptureFixture) -> None:
    with LocalServer(weights, ServerOptions(window=100_000, threads=1)) as server:
        assert server.window == 8192
    assert "trained with a window of 8192" in caplog.text


def test_a_closed_server_frees_its_threads_and_its_model_says_so(weights: Path) -> None:
    gc.collect()
    before = len(list(Path("/proc/self/task").iterdir()))
    with LocalServer(weights, ServerOptions(window=256, threads=1)) as server:
        chat = LocalChat.serving(server, max_tokens=4)
        assert chat.invoke("Hello").text
        assert len(list(Path("/proc/self/task").iterdir())) > before
    server.close()
    assert len(list(Path("/proc/self/task").iterdir())) <= before
    with pytest.raises(ModelUnavailable, match="was closed"):
        chat.invoke("Hello")


def test_a_damaged_file_is_refused_by_name(tmp_path: Path, weights: Path) -> None:
    cut = tmp_path / "cut.gguf"
    with weights.open("rb") as source, cut.open("wb") as target:
        shutil.copyfileobj(source, target)
        target.truncate(20_000_000)
    with pytest.raises(ModelUnavailable, match=r"cut\.gguf"):
        local_chat_model(cut)
    disguised = tmp_path / weights.name
    cut.rename(disguised)
    with pytest.raises(ModelUnavailable, match="SHA-256"):
        local_chat_model(disguised)


def _in_a_child(results: Any, server: LocalServer) -> None:
    try:
        shared_server(server.path, ServerOptions(window=128, threads=1))
    except ModelUnavailable as error:
        results.put((server.closed, str(error)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # newer Pythons warn of every fork with threads
def test_a_forked_child_is_told_that_it_cannot_serve(model: LocalChat) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_in_a_child, args=(results, model.server))
    child.start()
    closed, says = results.get(timeout=60)
    child.join(60)
    assert (closed, child.exitcode) == (True, 0)
    assert "was forked" in says
    assert model.invoke(QUESTION).text


def test_a_stream_can_be_left_and_the_server_closed_while_it_runs(weights: Path) -> None:
    server = LocalServer(weights, ServerOptions(window=512, threads=1))
    chat = LocalChat.serving(server, max_tokens=40)
    stream = chat.stream("Tell me a story.")
    next(stream)
    closer = threading.Thread(target=server.close)
    closer.start()
    closer.join(60)
    assert server.closed
    stream.close()  # type: ignore[attr-defined]  # it is a generator
