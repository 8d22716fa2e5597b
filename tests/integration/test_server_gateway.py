"""O3: clients of other APIs, changed in nothing but their base address, get a window that holds and a history that loses nothing."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from tests.conftest import Effort
from tests.integration.server_bench import ROOT, ModelServer, Served, echo, model_server, models, serving, start, words_of

from holdfast.agents.threads import transcript
from holdfast.config.loading import config_from_values
from holdfast.harness import build
from holdfast.tokens.counter import open_counter

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with model_server() as played:
        yield played


@pytest.fixture(scope="module")
def served(model: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("gateway"), models(model)) as running:
        yield running


_clients: list[Any] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """The clients of a test are closed after it."""
    yield
    while _clients:
        _clients.pop().close()


def http_client() -> Any:
    """One that asks nobody but the address."""
    made = openai.DefaultHttpxClient(trust_env=False, timeout=120)
    _clients.append(made)
    return made


def open_ai(served: Served, key: str | None = None) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{served.address}/v1", api_key=key or served.token, max_retries=0, timeout=120, http_client=http_client()
    )


def said_in(base: Path, thread: str) -> list[tuple[str, str]]:
    """Everything that was said in a thread, as the files have it."""
    with build(config_from_values({}, environ={"HOLDFAST_HOME": str(base / "home")})) as harness:
        return [(record.role, record.text) for record in transcript(harness.archive, thread, harness.threads.window(thread))]


def test_the_openai_client_talks_streams_and_goes_on_in_its_thread(served: Served, model: ModelServer) -> None:
    """O3: chat completions, unmodified client; usage is what was sent; headers say what was done."""
    client = open_ai(served)
    assert [one.id for one in client.models.list()][:1] == ["small"]
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "First words of a talk about bees"}]
    raw = client.chat.completions.with_raw_response.create(model="small", messages=messages)
    first = raw.parse()
    assert first.choices[0].message.content == "You said: First words of a talk about bees"
    assert first.usage is not None and first.usage.prompt_tokens > 5 and first.choices[0].finish_reason == "stop"
    assert raw.headers["x-holdfast-placed"] == "starts" and raw.headers["x-holdfast-compacted"] == "false"
    assert int(raw.headers["x-holdfast-sent-tokens"]) > 5
    sent = model.requests[-1]["messages"]
    assert sent[0]["role"] == "system" and words_of(sent[0]).startswith("Be brief.")
    messages += [{"role": "assistant", "content": first.choices[0].message.content}, {"role": "user", "content": "And then?"}]
    with client.chat.completions.with_streaming_response.create(
        model="small", messages=messages, stream=True, stream_options={"include_usage": True}
    ) as streamed:
        assert streamed.headers["x-holdfast-placed"] == "continues"
        assert streamed.headers["x-holdfast-thread"] == raw.headers["x-holdfast-thread"]
        chunks = [json.loads(line[6:]) for line in streamed.iter_lines() if line.startswith("data: {")]
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"]) == "You said: And then?"
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["total_tokens"] > 0
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    said = said_in(served.base, raw.headers["x-holdfast-thread"])
    assert said == [
        ("human", "First words of a talk about bees"),
        ("ai", "You said: First words of a talk about bees"),
        ("human", "And then?"),
        ("ai", "You said: And then?"),
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_tools_of_the_client_pass_through(served: Served, model: ModelServer, stream: bool) -> None:
    """O3: the call reaches the client, its result comes back into the same thread, arguments whole."""
    client = open_ai(served)
    messages: list[Any] = [{"role": "user", "content": f"What is the weather in Bern, {stream}?"}]
    answer: Any
    if stream:
        with client.chat.completions.stream(model="small", messages=messages, tools=[WEATHER]) as streamed:
            answer = streamed.get_final_completion()
    else:
        answer = client.chat.completions.create(model="small", messages=messages, tools=[WEATHER])
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls
    call: Any = choice.message.tool_calls[0]
    assert json.loads(call.function.arguments) == {"city": "Bern", "b": 1, "a": [1, 2]}
    again = {
        "id": call.id,
        "type": "function",
        "function": {"name": call.function.name, "arguments": json.dumps({"a": [1, 2], "b": 1, "city": "Bern"})},
    }
    messages += [
        {"role": "assistant", "content": None, "tool_calls": [again]},
        {"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 degrees"},
    ]
    raw = client.chat.completions.with_raw_response.create(model="small", messages=messages, tools=[WEATHER])
    assert raw.headers["x-holdfast-placed"] == "continues"
    assert raw.parse().choices[0].message.content == "Done: sunny, 21 degrees"
    assert [one["role"] for one in model.requests[-1]["messages"]][-3:] == ["user", "assistant", "tool"]


def test_structured_output_and_parameters_reach_the_model(served: Served, model: ModelServer) -> None:
    """O3"""
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {}}}}
    open_ai(served).chat.completions.create(
        model="small",
        messages=[{"role": "user", "content": "As JSON please"}],
        response_format=form,
        temperature=0.25,
        max_tokens=77,
        seed=3,
        stop=["END"],
    )
    sent = model.requests[-1]
    assert sent["response_format"] == form and sent["temperature"] == 0.25 and sent["seed"] == 3 and sent["stop"] == ["END"]
    assert (sent.get("max_tokens"), sent.get("max_completion_tokens")) == (77, None), "a server that is not OpenAI's may know only this"


def test_a_limit_that_a_client_names_newly_keeps_its_name(served: Served, model: ModelServer) -> None:
    """O3"""
    said: Any = [{"role": "user", "content": "Be short"}]
    open_ai(served).chat.completions.create(model="small", messages=said, max_completion_tokens=78)
    sent = model.requests[-1]
    assert (sent.get("max_tokens"), sent.get("max_completion_tokens")) == (None, 78)


def test_the_responses_api_goes_on_from_its_answers(served: Served, model: ModelServer) -> None:
    """O3: `previous_response_id`, a stream, and a tool call."""
    client = open_ai(served)
    first = client.responses.create(model="small", input="Tell me about the tide gauge", instructions="Be brief.")
    assert first.output_text == "You said: Tell me about the tide gauge" and first.status == "completed"
    second = client.responses.create(model="small", input="And its colour?", previous_response_id=first.id)
    assert second.output_text == "You said: And its colour?"
    assert [words_of(one) for one in model.requests[-1]["messages"]][-3:] == [
        "Tell me about the tide gauge",
        "You said: Tell me about the tide gauge",
        "And its colour?",
    ]
    with client.responses.stream(model="small", input="Once more", previous_response_id=second.id) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert final.output_text == "You said: Once more"
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed" and "response.output_text.delta" in kinds
    tool_form: Any = {"type": "function", "name": "get_weather", "parameters": WEATHER["function"]["parameters"], "strict": False}
    asked = client.responses.create(model="small", input="What is the weather?", tools=[tool_form])
    call: Any = next(item for item in asked.output if item.type == "function_call")
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    done = client.responses.create(model="small", input=[result], previous_response_id=asked.id, tools=[tool_form])
    assert done.output_text == "Done: rain"
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="small", input="x", previous_response_id="resp_nothing")


def test_the_anthropic_client_talks_streams_and_calls_its_tools(served: Served, model: ModelServer) -> None:
    """O3: `/v1/messages`, the official client."""
    client = anthropic.Anthropic(base_url=served.address, api_key=served.token, max_retries=0, http_client=http_client())
    messages: list[Any] = [{"role": "user", "content": "A word about lighthouses"}]
    first = client.messages.create(model="small", max_tokens=100, system="Be brief.", messages=messages)
    assert first.content[0].type == "text" and first.content[0].text == "You said: A word about lighthouses"
    assert first.stop_reason == "end_turn" and first.usage.input_tokens > 3
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [{"type": "text", "text": "And more"}]}]
    with client.messages.stream(model="small", max_tokens=100, messages=messages) as stream:
        assert "".join(stream.text_stream) == "You said: And more"
        assert stream.get_final_message().stop_reason == "end_turn"
    assert len(model.requests[-1]["messages"]) == 3
    tools: Any = [{"name": "get_weather", "description": "w", "input_schema": WEATHER["function"]["parameters"]}]
    asked: list[Any] = [{"role": "user", "content": "The weather, for Anthropic"}]
    with client.messages.stream(model="small", max_tokens=100, messages=asked, tools=tools) as stream:
        answer = stream.get_final_message()
    use: Any = answer.content[-1]
    assert use.type == "tool_use" and use.input == {"city": "Bern", "b": 1, "a": [1, 2]} and answer.stop_reason == "tool_use"
    asked += [
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "snow"}]},
    ]
    done = client.messages.create(model="small", max_tokens=100, messages=asked, tools=tools)
    assert done.content[0].type == "text" and done.content[0].text == "Done: snow"
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="nothing", max_tokens=10, messages=[{"role": "user", "content": "x"}])


def test_langchain_agents_work_through_it(served: Served) -> None:
    """O3: `create_agent` with langchain-openai, tools on the client's side."""

    @tool
    def get_weather(city: str, b: int = 0, a: list[int] | None = None) -> str:
        """The weather of a city."""
        return f"windy in {city}"

    chat = ChatOpenAI(model="small", base_url=f"{served.address}/v1", api_key=served.token, max_retries=0, http_client=http_client())  # type: ignore[arg-type]  # a plain text does
    agent = create_agent(chat, [get_weather])
    given: Any = {"messages": [{"role": "user", "content": "Please look up the weather for LangChain"}]}
    done = agent.invoke(given)
    assert done["messages"][-1].text == "Done: windy in Bern"


def test_an_edit_a_second_try_and_equal_beginnings_never_mix(served: Served) -> None:
    """O3: an edit is a branch, the old way stays; a repeat of the same question is a branch of its own."""
    client = open_ai(served)

    def ask(*turns: str) -> tuple[str, str, str]:
        talk: list[Any] = [{"role": "user" if index % 2 == 0 else "assistant", "content": text} for index, text in enumerate(turns)]
        raw = client.chat.completions.with_raw_response.create(model="small", messages=talk)
        return str(raw.parse().choices[0].message.content), raw.headers["x-holdfast-thread"], raw.headers["x-holdfast-placed"]

    one, thread, _ = ask("Let us plan a trip to Oslo")
    two, same, how = ask("Let us plan a trip to Oslo", one, "by train")
    assert (same, how) == (thread, "continues")
    edited, other, how = ask("Let us plan a trip to Oslo", one, "by boat")
    assert how == "branches" and other != thread and edited == "You said: by boat"
    on, on_thread, how = ask("Let us plan a trip to Oslo", one, "by boat", edited, "in May")
    assert (on_thread, how) == (other, "continues")
    back, back_thread, how = ask("Let us plan a trip to Oslo", one, "by train", two, "in June")
    assert (back_thread, how) == (thread, "continues")
    assert [text for _, text in said_in(served.base, other)] == ["Let us plan a trip to Oslo", one, "by boat", edited, "in May", on]
    assert [text for _, text in said_in(served.base, thread)] == ["Let us plan a trip to Oslo", one, "by train", two, "in June", back]
    _, afresh, how = ask("Let us plan a trip to Oslo")
    assert how == "starts" and afresh not in (thread, other), "the same words are not the same conversation"


def test_a_client_that_did_not_hear_the_answer_asks_again_and_the_model_is_asked_once(served: Served, model: ModelServer) -> None:
    """O3: a retry that says so, streamed or not; an answer into a broken connection; what failed is tried again; others are meant."""
    body: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "A question that is asked again by its client"}]}
    retry, usual = {"x-stainless-retry-count": "1"}, model.answer
    with served.client() as client:
        for more in ({}, {"stream": True}):
            asked = {**body, **more, "user": str(more)}
            first, before = client.post("/v1/chat/completions", json=asked), len(model.requests)
            again = client.post("/v1/chat/completions", json=asked, headers=retry)
            assert len(model.requests) == before and again.headers["x-holdfast-thread"] == first.headers["x-holdfast-thread"]
            assert "asked again" in again.text and again.status_code == 200
            meant = client.post("/v1/chat/completions", json=asked)
            assert len(model.requests) == before + 1 and meant.headers["x-holdfast-thread"] != first.headers["x-holdfast-thread"]
            assert client.post("/v1/chat/completions", json={**asked, "seed": 1}, headers=retry).status_code == 200
            assert len(model.requests) == before + 2, "another request"
        go_on, before = threading.Event(), len(model.requests)
        model.answer = lambda request: (go_on.wait(240), usual(request))[1]
        lost = {**body, "user": "lost"}
        try:
            with pytest.raises(httpx.ReadTimeout):
                client.post("/v1/chat/completions", json=lost, timeout=1.5)
            joined = threading.Thread(target=lambda: client.post("/v1/chat/completions", json=lost, headers=retry))
            joined.start()
            go_on.set()
            joined.join(240)
        finally:
            go_on.set()
            model.answer = usual
        assert len(model.requests) == before + 1, "the second try waited for the answer of the first"
        model.answer = lambda request: (500, "broken")
        try:
            assert client.post("/v1/chat/completions", json={**body, "user": "fails"}).status_code >= 500
        finally:
            model.answer = usual
        assert client.post("/v1/chat/completions", json={**body, "user": "fails"}, headers=retry).status_code == 200


def test_calls_side_by_side_are_kept_apart(served: Served) -> None:
    """O3: a title beside the answer, and the same request several times at once."""
    client = open_ai(served)
    start: list[Any] = [{"role": "user", "content": "A conversation that has calls side by side"}]
    first = str(client.chat.completions.create(model="small", messages=start).choices[0].message.content)
    talk = [*start, {"role": "assistant", "content": first}, {"role": "user", "content": "go on"}]
    title = [
        {"role": "system", "content": "Write a title."},
        {"role": "user", "content": "Title for: a conversation that has calls side by side"},
    ]

    def ask(messages: Any) -> tuple[str, str]:
        raw = client.chat.completions.with_raw_response.create(model="small", messages=messages)
        return raw.headers["x-holdfast-thread"], str(raw.parse().choices[0].message.content)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, [talk, title, talk, talk]))
    assert len({thread for thread, _ in found}) == 4
    assert {text for _, text in found} == {"You said: go on", f"You said: {title[1]['content']}"}


def test_errors_have_the_form_that_clients_know(served: Served, model: ModelServer) -> None:
    """O3: status and code by which a client chooses its exception; no path, no key."""
    client = open_ai(served)
    say: list[Any] = [{"role": "user", "content": "fail"}]
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="nothing", messages=say)
    assert missing.value.code == "model_not_found"
    for body, status in (({"model": "small"}, 400), ({"model": "small", "messages": say, "n": 3}, 400), ({"messages": say}, 400)):
        answer = http_client().post(f"{served.address}/v1/chat/completions", json=body, headers=served.headers)
        assert answer.status_code == status and "message" in answer.json()["error"]
    with pytest.raises(openai.AuthenticationError):
        open_ai(served, "wrong").models.list()
    before, model.answer = model.answer, lambda request: (429, "slow down, key sk-proj-9fK2mQ7xT4vB8nL1cR6wZ3yD5hJ0pS")
    try:
        streamed = {"model": "small", "messages": [{"role": "user", "content": "too fast, streamed"}], "stream": True}
        answer = http_client().post(f"{served.address}/v1/chat/completions", json=streamed, headers=served.headers)
        assert answer.status_code == 429, "a stream that did not begin is an error with its status"
    finally:
        model.answer = before


def test_who_leaves_early_goes_on_in_the_same_thread(served: Served, model: ModelServer) -> None:
    """O3: the turn is cancelled, and the client's second try is answered where the first one was broken off."""
    client = open_ai(served).with_options(max_retries=20)  # 409 while the turn that was left still ends: the client asks again
    messages: list[Any] = [{"role": "user", "content": "A long answer that nobody waits for " + "and on " * 30}]
    with model.endless():
        with client.chat.completions.with_streaming_response.create(model="small", messages=messages, stream=True) as streamed:
            thread = streamed.headers["x-holdfast-thread"]
            next(iter(streamed.iter_lines()))
        assert model.left.wait(240)
    ask, end = partial(client.chat.completions.with_raw_response.create, model="small", messages=messages), time.monotonic() + 240
    while (raw := ask()).headers["x-holdfast-placed"] != "resumes":
        assert time.monotonic() < end, "the turn that was left has not ended"
    assert raw.headers["x-holdfast-thread"] == thread
    assert [role for role, _ in said_in(served.base, thread)] == ["human", "ai"]


@pytest.mark.prove
def test_hundreds_of_turns_over_a_small_window_lose_nothing(tmp_path: Path, effort: Effort) -> None:
    """O3, S9, S10: the client sends everything each time; what the model is sent fits its window, and the thread has every word."""
    turns = effort(36, 400)
    counter = open_counter()
    filler = "The gauge at pier {0} showed {1} centimetres at dawn, and the warden wrote it down beside the wind from the north-west. " * 3
    with (
        model_server(lambda request: f"Noted, answer {len(request['messages'])}. " + "All is written down. " * 8) as model,
        serving(tmp_path, models(model)) as served,
    ):
        client = open_ai(served)
        messages: list[Any] = [{"role": "system", "content": "You keep a log of the harbour."}]
        threads = set()
        for number in range(turns):
            messages.append({"role": "user", "content": f"Step {number}: {filler.format(number, number * 37 % 900)}"})
            raw = client.chat.completions.with_raw_response.create(model="small", messages=messages)
            threads.add(raw.headers["x-holdfast-thread"])
            messages.append({"role": "assistant", "content": raw.parse().choices[0].message.content})
        (thread,) = threads
        over = [size for request in model.requests if (size := counter.count_messages(request["messages"])) > 8_000]
        assert not over
        assert max(len(request["messages"]) for request in model.requests) < len(messages)
        with served.client() as api:
            found = api.get(f"/api/v1/threads/{thread}/search", params={"q": "Step 7 pier 7"}).json()["items"]
        assert any(hit["message"]["text"].startswith("Step 7:") for hit in found)
    wanted = [("human" if one["role"] == "user" else "ai", one["content"]) for one in messages[1:]]
    assert said_in(tmp_path, thread) == wanted


@pytest.mark.prove
def test_many_conversations_at_once_are_never_mixed(tmp_path: Path, effort: Effort) -> None:
    """O3: interleaved, some edited on the way, some cut by their client: each request is answered with its own history and no other."""
    count, turns = effort(8, 50), 6 if not effort.proving else 20
    mixed: list[str] = []
    rng = random.Random(effort.seed)

    def answer(request: dict[str, Any]) -> str:
        said = [words_of(one) for one in request["messages"] if one["role"] != "system"]
        owners = {word for text in said for word in text.split() if word.startswith("talk")}
        if len(owners) != 1:
            mixed.append(" ".join(sorted(owners)))
        return f"answer of {next(iter(owners), 'nobody')} number {len(said)}, said at length so that it is known again"

    class Talk:
        def __init__(self, name: str, kind: str) -> None:
            self.name, self.kind, self.messages, self.turn = name, kind, list[Any](), 0

    talks = [Talk(f"talk{number:03d}", ("plain", "edited", "cut")[number % 3]) for number in range(count)]
    with model_server(answer) as model, serving(tmp_path, models(model)) as served:
        client = open_ai(served)

        def step(talk: Talk) -> None:
            talk.turn += 1
            if talk.kind == "edited" and talk.turn % 4 == 0 and len(talk.messages) > 2:
                talk.messages = talk.messages[:-2]
            if talk.kind == "cut" and len(talk.messages) > 4:
                talk.messages = talk.messages[-4:]
            talk.messages.append({"role": "user", "content": f"{talk.name} says its line {talk.turn} about the harbour and the wind"})
            done = client.chat.completions.create(model="small", messages=talk.messages)
            said = done.choices[0].message.content
            if f"answer of {talk.name} " not in f"{said} ":
                mixed.append(f"{talk.name} got {said}")
            talk.messages.append({"role": "assistant", "content": said})

        for _ in range(turns):
            rng.shuffle(talks)
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(step, talks))
        with served.client() as api:
            listed = api.get("/api/v1/threads", params={"limit": 500}).json()["items"]
    assert not mixed
    for info in listed:
        owners = {word for _, text in said_in(tmp_path, info["id"]) for word in text.split() if word.startswith("talk")}
        assert len(owners) == 1, "a thread has one conversation's words"
    cut = [talk for talk in talks if talk.kind == "cut"]
    lines = {text for info in listed for _, text in said_in(tmp_path, info["id"])}
    assert all(f"{talk.name} says its line {line} about the harbour and the wind" in lines for talk in cut for line in range(1, turns + 1))
    assert len([info for info in listed if not info["parent"]]) == count, "a client that forgets its beginning is known again"


def test_a_killed_server_goes_on(tmp_path: Path) -> None:
    """O3: SIGKILL in the middle of an answer; the same client asks again, and everything acknowledged is there."""
    with model_server() as model:
        served = start(tmp_path, models(model))
        messages: list[Any] = [{"role": "user", "content": "Before the power goes out, remember the red door"}]
        first = open_ai(served).chat.completions.with_raw_response.create(model="small", messages=messages)
        thread = first.headers["x-holdfast-thread"]
        messages += [
            {"role": "assistant", "content": first.parse().choices[0].message.content},
            {"role": "user", "content": "And now? " * 30},
        ]
        began = threading.Event()

        def ask() -> None:
            try:
                with open_ai(served).chat.completions.with_streaming_response.create(
                    model="small", messages=messages, stream=True
                ) as streamed:
                    for _ in streamed.iter_lines():
                        began.set()
            except Exception:  # noqa: BLE001 - the server is killed under it: whatever that is to the client
                began.set()

        asking = threading.Thread(target=ask)
        with model.endless():
            asking.start()
            assert began.wait(240)
            served.kill()
            asking.join()
        with serving(tmp_path, models(model)) as again:
            raw = open_ai(again).chat.completions.with_raw_response.create(model="small", messages=messages)
            assert raw.headers["x-holdfast-placed"] in ("resumes", "branches")
            assert [words_of(one) for one in model.requests[-1]["messages"]][:2] == [words_of(messages[0]), words_of(messages[1])]
            said = said_in(tmp_path, raw.headers["x-holdfast-thread"])
    assert [text for _, text in said][:3] == [words_of(one) for one in messages]
    assert said_in(tmp_path, thread)[:2] == said[:2]


def test_memory_is_shown_where_it_is_switched_on_and_learned_only_when_asked_for(tmp_path: Path) -> None:
    """O3, M12: what is known stands in the system prompt; nothing that a client sends is learned unless it says so."""
    with model_server() as model, serving(tmp_path, models(model)) as served, served.client() as api:
        api.post("/api/v1/memory/facts", json={"content": "User drinks oolong tea"}).raise_for_status()
        say = {"model": "small", "messages": [{"role": "user", "content": "My name is Ada Fenwick. What do I drink?"}]}
        api.post("/v1/chat/completions", json=say).raise_for_status()
        assert "oolong" in words_of(model.requests[-1]["messages"][0])
        api.post("/v1/chat/completions", json=say, headers={"X-Holdfast-Memory": "off"}).raise_for_status()
        assert "oolong" not in json.dumps(model.requests[-1])
        api.post("/api/v1/memory/flush").raise_for_status()
        assert "Fenwick" not in api.get("/api/v1/memory").text
        api.post("/v1/chat/completions", json=say, headers={"X-Holdfast-Learn": "on"}).raise_for_status()
        api.post("/api/v1/memory/flush").raise_for_status()
        assert "Fenwick" in api.get("/api/v1/memory").text


def test_our_own_agent_is_a_model_too(served: Served, model: ModelServer) -> None:
    """O3: `holdfast` has its own tools beside the client's, and the client sees only its own calls."""
    answer = open_ai(served).chat.completions.create(
        model="holdfast", messages=[{"role": "user", "content": "Tell me the weather, lead agent"}], tools=[WEATHER]
    )
    assert answer.choices[0].finish_reason == "tool_calls"
    names = {one["function"]["name"] for one in model.requests[-1]["tools"]}
    assert "get_weather" in names and len(names) > 1


@pytest.mark.parametrize("name", ["small", "holdfast"])
def test_plain_text_stays_plain_text_when_a_reminder_rides_on_it(tmp_path: Path, name: str) -> None:
    """O3, M9: simple model servers know no parts of content."""
    with model_server() as model, serving(tmp_path, models(model)) as served, served.client() as api:
        talk: list[dict[str, Any]] = []
        for fact, said in (
            ("User keeps bees", "Hello there."),
            ("User likes green tea", "What tea do I like?"),
            ("User is a nurse", "Thanks."),
        ):
            api.post("/api/v1/memory/facts", json={"content": fact}).raise_for_status()
            talk.append({"role": "user", "content": said})
            answer = api.post("/v1/chat/completions", json={"model": name, "messages": talk}).raise_for_status().json()
            talk.append(answer["choices"][0]["message"])
        sent = [request["messages"] for request in model.requests]
    assert len(sent) == 3 and all(isinstance(message["content"], str) for request in sent for message in request), sent
    asked = next(message["content"] for message in sent[1] if "What tea" in message["content"])
    assert asked.startswith("<reminder>") and "green tea" in asked and asked.endswith("</reminder>\n\nWhat tea do I like?")
    assert sent[2][: len(sent[1])] == sent[1], "what was sent once is sent again as it was"


@pytest.mark.parametrize("mode", ["auto", "tool"])
def test_our_own_agents_take_and_learn_from_memory_as_any_model_of_the_gateway_does(tmp_path: Path, mode: str) -> None:
    """O3, M8, M12, M15: `server.gateway_learn` and both headers count for `holdfast` and `holdfast/NAME`, and for their sub-agents."""

    def played(request: dict[str, Any]) -> Any:
        names = {tool["function"]["name"] for tool in request.get("tools") or ()}
        last = words_of(request["messages"][-1])
        if "delegate" in last and "task" in names:
            return [("task", {"description": "look", "prompt": "Look at the kite, please.", "subagent_type": "general-purpose"})]
        if "note it" in last:
            return [("memory_add", {"content": "User prefers purple kites"})]
        return echo(request)

    with model_server(played) as server:
        config = models(server, window=32_000)
        config["memory"] |= {"mode": "tool"} if mode == "tool" else {}
        (tmp_path / "home" / "agents" / "research").mkdir(parents=True)
        with serving(tmp_path, config) as served, served.client() as api:

            def ask(words: str, model: str = "holdfast", **headers: str) -> list[str]:
                """What the model was sent for it, request by request."""
                before = len(server.requests)
                said = {"model": model, "messages": [{"role": "user", "content": words}]}
                api.post("/v1/chat/completions", json=said, headers=headers).raise_for_status()
                return [json.dumps(one) for one in server.requests[before:]]

            def facts() -> str:
                api.post("/api/v1/memory/flush").raise_for_status()
                return api.get("/api/v1/memory/facts").text + api.get("/api/v1/memory/facts", params={"agent": "research"}).text

            api.post("/api/v1/memory/facts", json={"content": "User keeps a green kite.", "category": "context"}).raise_for_status()
            for model in ("holdfast", "holdfast/research"):
                assert "green kite" in ask(f"Hello there, {model}.", model)[0]
                sent = ask(f"Please delegate this, {model}.", model, **{"X-Holdfast-Memory": "off"})
                assert len(sent) >= 3, "the sub-agent asked as well"
                assert not [one for one in sent if "green kite" in one or "memory_search" in one]
                ask("I prefer blue pens over pencils.", model)
                ask("I prefer blue pens over pencils!", model, **{"X-Holdfast-Learn": "off"})
                ask("I prefer blue pens over pencils; note it.", model, **{"X-Holdfast-Learn": "off"})
                ask("I prefer blue pens over pencils, note it.", model, **{"X-Holdfast-Memory": "off", "X-Holdfast-Learn": "on"})
            assert "blue pens" not in facts() and "purple kites" not in facts()
            if mode != "tool":
                ask("I prefer grey cats over dogs.", **{"X-Holdfast-Learn": "on"})
                assert "grey cats" in facts()


def writes(request: dict[str, Any]) -> Any:
    """A model that writes a file when it is asked to."""
    last = words_of(request["messages"][-1])
    if request["messages"][-1]["role"] == "user" and "write it" in last:
        return [("write_file", {"description": "d", "path": "/mnt/user-data/outputs/a.txt", "content": "one\ntwo ``` three"})]
    return echo(request)


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_waits_for_a_yes_is_told_to_clients_and_goes_on_after_it(tmp_path: Path, stream: bool) -> None:
    """O3, A10: name, place and arguments in the answer of each API; what is approved on the page is what the next message goes on after."""
    with model_server(writes) as server:
        config = {**models(server, window=32_000), "sandbox": {"approve": ["write_file"]}}
        with serving(tmp_path, config) as served, served.client() as api:
            said: list[Any] = [{"role": "user", "content": "Please write it down."}]
            bodies: dict[str, dict[str, Any]] = {
                "chat/completions": {"model": "holdfast", "messages": said},
                "responses": {"model": "holdfast", "input": said},
                "messages": {"model": "holdfast", "messages": said, "max_tokens": 500},
            }
            for path, body in bodies.items():
                answer = api.post(f"/v1/{path}", json={**body, "stream": stream})
                assert answer.status_code == 200
                thread = answer.headers["x-holdfast-thread"]
                assert f"{served.address}/threads/{thread}" in answer.text
                assert (
                    "`write_file` waits for your yes" in answer.text and "outputs/a.txt" in answer.text and "two ``` three" in answer.text
                )
                assert stream or answer.headers["x-holdfast-waiting"] == "1"
            client = open_ai(served)
            told = str(client.chat.completions.create(model="holdfast", messages=said).choices[0].message.content)
            asked = [*said, {"role": "assistant", "content": told}, {"role": "user", "content": "Was it done?"}]
            thread = told.partition("/threads/")[2].split()[0]
            if stream:  # approved on the page, while the client waits
                run = api.post(f"/api/v1/threads/{thread}/decisions", json={"all": {"type": "approve"}}).json()["id"]
                while api.get(f"/api/v1/runs/{run}").json()["status"] == "running":
                    time.sleep(0.05)
            raw = client.chat.completions.with_raw_response.create(model="holdfast", messages=asked)
            assert (raw.headers["x-holdfast-placed"], raw.headers["x-holdfast-thread"]) == ("continues", thread)
            results = [words_of(one) for one in server.requests[-1]["messages"] if one["role"] == "tool"]
            assert len(results) == 1
            written = tmp_path / "home" / "threads" / thread / "user-data" / "outputs" / "a.txt"
            if stream:
                assert written.read_text() == "one\ntwo ``` three" and "Not run" not in results[0]
            else:
                assert not written.exists() and "instead of approving" in results[0]
            assert not api.get(f"/api/v1/threads/{thread}").json()["approvals"]


def test_a_request_with_system_messages_alone_is_refused_as_it_is_documented(served: Served, model: ModelServer) -> None:
    """O3: nothing in it is anybody's turn; the model is not asked."""
    before = len(model.requests)
    with served.client() as api:
        answer = api.post("/v1/chat/completions", json={"model": "small", "messages": [{"role": "system", "content": "Say hello."}]})
    assert answer.status_code == 400 and len(model.requests) == before
    documented = (ROOT / "docs" / "server.md").read_text("utf-8")
    assert json.dumps(answer.json()) in documented
