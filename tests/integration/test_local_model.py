"""A real small model answers over the OpenAI client: plain, streamed, in a schema (A15, T3, C3).

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
from langchain.agents.structured_output import ProviderStrategy
from langchain_core.exceptions import ModelAuthenticationError, ModelInvalidRequestError, OutputParserException
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field, SecretStr
from tests.conftest import until

from holdfast.errors import ModelTooWeak, ModelUnavailable
from holdfast.models.abilities import CAN
from holdfast.models.failures import kind_of
from holdfast.models.local_model import LocalChat, local_chat_model
from holdfast.models.local_server import LocalServer, ServerOptions, shared_server
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
    """S10: told in the same words as by any server; the middleware that keeps the window goes by the kind."""
    long = "word " * (WINDOW + 100)
    asked: tuple[Any, ...] = (lambda: model.invoke(long), lambda: list(model.stream(long)), lambda: asyncio.run(model.ainvoke(long)))
    for ask in asked:
        with pytest.raises(ModelInvalidRequestError, match=rf"{WINDOW} tokens") as caught:
            ask()
        assert kind_of(caught.value) == "overflow"


def test_its_profile_and_abilities_are_honest(model: LocalChat) -> None:
    assert model.profile is not None
    assert model.profile["max_input_tokens"] == WINDOW
    assert model.profile["tool_calling"] is False
    assert (model.abilities.summary, model.abilities.extraction, model.abilities.tools) == (False, False, False)


# -- in a schema ------------------------------------------------------------------------------------------------------


def test_it_answers_in_a_schema_and_keeps_its_ranges(model: LocalChat) -> None:
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
        "properties": {"names": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3}},
        "required": ["names"],
    }
    chain = model.with_structured_output(schema)
    answer = await chain.ainvoke("Name three cities.")
    assert all(isinstance(name, str) for name in answer["names"])
    assert [part async for part in chain.astream("Name three cities.")][-1].keys() == {"names"}


def test_a_looping_model_comes_to_an_end(model: LocalChat) -> None:
    """Texts, lists and numbers without a bound of their own get one, so that an answer fits `max_tokens` of an ordinary size."""

    class Essay(BaseModel):
        parts: list[str]
        number: float

    asked = "Repeat the word echo for ever: echo echo echo echo echo echo echo echo"
    answer = model.with_structured_output(Essay, max_tokens=900).invoke(asked)
    assert isinstance(answer, Essay)
    assert len(answer.parts) <= 8


def test_an_answer_that_is_cut_is_reported_and_its_text_is_there(model: LocalChat) -> None:
    wide = {"title": "W", "type": "object", "properties": {"text": {"type": "string", "minLength": 100}}, "required": ["text"]}
    with pytest.raises(OutputParserException, match="cut"):
        model.with_structured_output(wide, max_tokens=8).invoke("Write digits: 1 2 3 4 5 6 7 8 9")
    told = model.with_structured_output(wide, max_tokens=8, include_raw=True).invoke("Write digits: 1 2 3 4 5 6 7 8 9")
    assert told["parsed"] is None
    assert isinstance(told["parsing_error"], OutputParserException)
    assert told["raw"].text.startswith("{")


def test_an_agent_gives_a_structured_response(model: LocalChat) -> None:
    agent = create_agent(model, [], response_format=ProviderStrategy(City))
    result = agent.invoke({"messages": [HumanMessage("Tell me about Paris, a large city.")]}, {"recursion_limit": 10})
    assert isinstance(result["structured_response"], City)


# -- tools ------------------------------------------------------------------------------------------------------------


def test_a_model_too_weak_for_tools_says_so_before_it_is_asked(model: LocalChat) -> None:
    """A15"""
    with pytest.raises(ModelTooWeak, match=r"smollm2 \(135 million parameters\) is too weak for tools"):
        model.bind_tools([weather])
    with pytest.raises(ModelTooWeak):
        create_agent(model, [weather]).invoke({"messages": [HumanMessage("What is the weather in Paris?")]})


def test_calls_that_another_model_made_are_told_as_text(model: LocalChat) -> None:
    """A15: a thread may go on with a model whose template has no place for calls."""
    call = {"name": "weather", "args": {"city": "Paris"}, "id": "1"}
    history = [HumanMessage("The weather?"), AIMessage("", tool_calls=[call]), ToolMessage("21 degrees", tool_call_id="1")]
    sent = model._get_request_payload(history)["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert sent[1]["content"] == 'weather({"city": "Paris"})'
    assert sent[2]["content"] == "Result of weather: 21 degrees"
    assert model.invoke(history).text


def test_where_the_configuration_insists_the_tools_reach_the_server(model: LocalChat) -> None:
    """A15: `can: {tools: true}`; whether this model makes use of them is not judged."""
    willing = model.model_copy(update={"profile": {**(model.profile or {}), CAN: {"tools": True}}})
    assert willing.bind_tools([weather], tool_choice="none").invoke("What is the weather in Paris?").text
    assert willing.get_num_tokens_from_messages([HumanMessage("Hello")], tools=[weather]) > 3


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
        with pytest.raises(ModelInvalidRequestError, match="512 tokens"):
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
    until(lambda: len(list(Path("/proc/self/task").iterdir())) <= before, "the threads are gone")  # the kernel takes them a moment later
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
    closed, says = results.get(timeout=240)
    child.join(240)
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
    closer.join(240)
    assert server.closed
    stream.close()  # type: ignore[attr-defined]  # it is a generator
