"""What the gateway does when the server behind it breaks off, sends no answer, lies or asks to wait, and what it passes on (O3)."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import httpx
import pytest
from tests.integration.server_bench import Served, serving

MODELS = ("ok", "cut", "page", "odd", "empty", "liar", "busy", "failing", "short")
KEY = "sk-" + "a1B2c3D4e5F6" * 4


class _Upstream(BaseHTTPRequestHandler):
    """Speaks OpenAI's chat protocol; how well, says the name of the model."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[dict[str, Any]]] = []

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        whole = {"page": b"<html>It works!</html>", "odd": b'{"choices": "what"}', "empty": b'{"id": "x", "choices": []}'}
        if body["model"] in whole:
            self._send(200, whole[body["model"]])
        elif body["model"] == "short" and (said := _too_long(body)):
            self._send(400, json.dumps({"object": "error", "message": said, "type": "BadRequestError", "code": 400}).encode())
        elif body["model"] == "busy":
            self._send(429, b'{"error": {"message": "slow down", "code": "rate_limit_exceeded"}}', ("retry-after", "7"))
        else:
            self._stream(body["model"])

    def _send(self, status: int, data: bytes, *more: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("content-type", "application/json"), ("content-length", str(len(data))), *more):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, model: str) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        self._chunk(model, [{"index": 0, "delta": {"role": "assistant", "content": "Half an answer"}, "finish_reason": None}])
        if model == "cut":
            return
        if model == "failing":
            error = {"message": f"overloaded, key {KEY}", "type": "server_error", "code": 503}
            self.wfile.write(f"data: {json.dumps({'error': error})}\n\n".encode())
            return
        self._chunk(model, [{"index": 0, "delta": {}, "finish_reason": "stop"}])
        used = (-5, 10**12) if model == "liar" else (11, 3)
        self._chunk(model, [], usage={"prompt_tokens": used[0], "completion_tokens": used[1], "total_tokens": sum(used)})
        self.wfile.write(b"data: [DONE]\n\n")

    def _chunk(self, model: str, choices: list[dict[str, Any]], **more: Any) -> None:
        told = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": choices, **more}
        self.wfile.write(f"data: {json.dumps(told)}\n\n".encode())
        self.wfile.flush()


def _too_long(body: dict[str, Any]) -> str | None:
    """What a server says that counts the answer into a window of 16,000 tokens; None where it fits."""
    sent = len(json.dumps(body["messages"])) // 5
    asked = body.get("max_tokens") or body.get("max_completion_tokens") or 0
    if sent + asked <= 16_000:
        return None
    figures = f"However, you requested {sent + asked} tokens ({sent} in the messages, {asked} in the completion)."
    return f"This model's maximum context length is 16000 tokens. {figures} Please reduce the length of the messages or completion."


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    upstream.daemon_threads = True
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    shared = {"base_url": f"http://127.0.0.1:{upstream.server_address[1]}/v1", "max_input_tokens": 16_000, "max_retries": 0}
    models = [{"name": name, "model": name, "api_key": "none", **shared} for name in MODELS]
    models.append({"name": "pier", "model": "cut", "api_key": "none", **shared})
    models.append({"name": "keyless", "model": "ok", "api_key": "$HOLDFAST_TEST_NO_SUCH_KEY", **shared})
    base = tmp_path_factory.mktemp("upstream")
    for agent in ("research", "failing"):
        (base / "home" / "agents" / agent).mkdir(parents=True)
    (base / "home" / "agents" / "failing" / "config.yaml").write_text("model: failing\n")
    (base / "home" / "agents" / "research" / "SOUL.md").write_text("You look things up.\n")
    values = {"models": models, "memory": {"extractor": "rules"}, "title": {"enabled": False}, "logging": {"level": "info"}}
    try:
        with serving(base, values) as running:
            yield running
    finally:
        upstream.shutdown()
        upstream.server_close()


@pytest.fixture
def api(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


def asking(api: httpx.Client, model: str, words: str = "How long is the pier?", **more: Any) -> httpx.Response:
    """A chat completion."""
    return api.post("/v1/chat/completions", json={"model": model, "messages": [{"role": "user", "content": words}], **more})


def test_an_answer_that_breaks_off_is_an_error_and_never_kept_as_a_whole_one(api: httpx.Client) -> None:
    """O3, A6: streamed and not; the thread has the question alone, and asking again is another try of it."""
    said = asking(api, "cut")
    assert said.status_code == 502
    assert said.json()["error"]["message"] == "model 'cut': the answer broke off before its end."
    streamed = asking(api, "cut", "And how wide?", stream=True)
    assert "broke off before its end" in streamed.text
    assert 'finish_reason": "stop"' not in streamed.text
    assert asking(api, "pier").json()["error"]["message"].startswith("model 'pier':"), "the name that clients know"
    threads = [one["id"] for one in api.get("/api/v1/threads").json()["items"]]
    kept = [one for id in threads for one in api.get(f"/api/v1/threads/{id}/messages").json()["items"]]
    assert {one["text"] for one in kept if one["role"] == "human"} >= {"How long is the pier?", "And how wide?"}
    assert not [one for one in kept if one["role"] == "ai" and one["text"] == "Half an answer"]


@pytest.mark.parametrize("model", ["page", "odd", "empty"])
@pytest.mark.parametrize("stream", [True, False])
def test_what_is_no_answer_is_told_as_the_fault_of_the_server_behind(served: Served, api: httpx.Client, model: str, stream: bool) -> None:
    """O3, A1: 502 with the model's name, and no traceback of ours."""
    said = asking(api, model, stream=stream)
    assert said.status_code == 502
    assert said.json()["error"]["code"] == "upstream_bad_answer"
    assert f"model '{model}': what came is no answer" in said.json()["error"]["message"]
    assert "Traceback" not in _log_of(served)


def test_a_server_that_asks_to_wait_is_heard_by_the_client(api: httpx.Client) -> None:
    """O3: `Retry-After` is passed on."""
    said = asking(api, "busy")
    assert (said.status_code, said.headers["retry-after"]) == (429, "7")


def test_absurd_figures_of_a_server_are_not_believed(api: httpx.Client) -> None:
    """T5, O2: neither told to the client nor counted; our own count stands instead."""
    used = asking(api, "liar").json()["usage"]
    assert 0 < used["prompt_tokens"] < 1_000
    assert 0 < used["completion_tokens"] < 1_000
    figures = [line for line in api.get("/api/v1/metrics").text.splitlines() if line.startswith("holdfast_tokens_total")]
    assert figures
    assert all(float(line.rpartition(" ")[2]) < 1_000_000 for line in figures), figures


def test_fields_that_servers_commonly_take_are_sent_and_others_are_refused_by_name(api: httpx.Client) -> None:
    """O3: nothing is dropped without a word, and nothing is a failure of ours."""
    common: dict[str, Any] = {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1, "guided_json": {}}
    common["chat_template_kwargs"] = {"enable_thinking": False}
    assert asking(api, "ok", **common, temperature=0.5, user="anna").status_code == 200
    sent = _Upstream.asked[-1]
    assert {name: sent[name] for name in common} == common
    assert sent["temperature"] == 0.5
    strange: list[dict[str, Any]] = [{"foo": 1}, {"modalities": ["text", "audio"]}]
    for body in strange:
        refused = asking(api, "ok", **body)
        assert refused.status_code == 400
        assert f"`{next(iter(body))}`" in refused.json()["error"]["message"]
    spoken = api.post("/v1/responses", json={"model": "ok", "input": "hi", "top_k": 5, "tools": [{"type": "web_search"}]})
    assert spoken.status_code == 200
    assert spoken.json()["tools"] == []
    assert _Upstream.asked[-1]["top_k"] == 5
    assert api.post("/v1/responses", json={"model": "ok", "input": "hi", "foo": 5}).status_code == 400
    anthropic = {"model": "ok", "max_tokens": 50, "top_k": 7, "messages": [{"role": "user", "content": "hi"}]}
    assert api.post("/v1/messages", json=anthropic).status_code == 200
    assert _Upstream.asked[-1]["top_k"] == 7


def test_a_gap_in_the_servers_own_settings_is_no_fault_of_the_client(api: httpx.Client) -> None:
    """O3: a key that is not set is 503, not 400."""
    said = asking(api, "keyless")
    assert (said.status_code, said.json()["error"]["code"]) == (503, "not_configured")


def test_an_agent_that_nobody_made_is_not_there_and_one_that_is_stays_with_its_thread(api: httpx.Client) -> None:
    """O3, A6: in the gateway and in the API; a thread without a title is there as well."""
    assert asking(api, "holdfast/research").status_code == 200
    for name in ("holdfast/nosuch", "holdfast/ok", "nosuch"):
        refused = asking(api, name)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
    assert api.post("/api/v1/threads", json={"agent": "nosuch"}).status_code == 404
    for body in ({"agent": "research"}, {"agent": "research", "title": "Piers"}, {}):
        made = api.post("/api/v1/threads", json=body)
        assert made.status_code == 201
        id = made.json()["id"]
        assert api.get(f"/api/v1/threads/{id}").json()["agent"] == body.get("agent")
        run = api.post(f"/api/v1/threads/{id}/runs", json={"content": "Who are you?"})
        assert (run.status_code, run.json()["agent"]) == (202, body.get("agent"))
        until = time.monotonic() + 120
        while api.get(f"/api/v1/runs/{run.json()['id']}").json()["status"] == "running":
            assert time.monotonic() < until
            time.sleep(0.05)
        listed = {one["id"]: one for one in api.get("/api/v1/threads").json()["items"]}
        assert listed[id]["agent"] == body.get("agent")
        assert listed[id]["messages"] == api.get(f"/api/v1/threads/{id}").json()["messages"] == 2
        assert listed[id]["updated"]


def test_what_others_have_below_v1_is_there_or_said_not_to_be_offered(api: httpx.Client) -> None:
    """O3: one model by its name, a count of tokens in Anthropic's form, and words for the rest."""
    assert api.get("/v1/models/ok").json()["id"] == "ok"
    assert api.get("/v1/models/holdfast/research").json()["id"] == "holdfast/research"
    assert api.get("/v1/models/nosuch").status_code == 404
    short, long = ({"model": "ok", "messages": [{"role": "user", "content": words}]} for words in ("hi", "pier " * 100))
    counts = [api.post("/v1/messages/count_tokens", json=body).json()["input_tokens"] for body in (short, long)]
    assert 0 < counts[0] < counts[1] < 1_000
    assert api.post("/v1/messages/count_tokens", json={"model": "ok"}).json()["type"] == "error"
    for method, path in (("POST", "/v1/embeddings"), ("POST", "/v1/completions"), ("GET", "/v1/responses/resp_1")):
        said = api.request(method, path)
        assert said.status_code == 404
        assert "is not offered here" in said.json()["error"]["message"]
    assert api.get("/v1/chat/completions").status_code == 405


@pytest.mark.parametrize("model", ["failing", "holdfast"])
@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
@pytest.mark.parametrize("stream", [True, False])
def test_an_error_in_the_middle_of_a_stream_is_told_as_the_providers_own(
    served: Served, api: httpx.Client, path: str, stream: bool, model: str
) -> None:
    """O3, C3: 502 or 503 with its words, or the error event of each dialect; no traceback, no key, no failure of ours."""
    agent = model == "holdfast"
    said = api.post(f"/v1/{path}", json={**_request(path, "failing" if not agent else "holdfast/failing"), "stream": stream})
    told = said.text
    if not stream:
        assert said.status_code in (502, 503), told
    elif path == "chat/completions":
        assert json.loads(told.rstrip().rpartition("data: ")[2])["error"]["type"] == "server_error"
    else:
        assert "event: error" in told
    assert "overloaded" in told and KEY not in told
    log = _log_of(served)
    assert "Traceback" not in log and KEY not in log


def _log_of(served: Served) -> str:
    """What the server wrote, without what the interpreter itself says of a generator of the HTTP client that it collects just then."""
    return _COLLECTED.sub("", (served.base / "server.log").read_text())


_COLLECTED = re.compile(
    r"Exception ignored in: <async_generator object BoundAsyncStream\.__aiter__ at \w+>\n(?:.*\n){1,8}?"
    r"ValueError: async generator already executing\n"
)


def _request(path: str, model: str, words: str = "How deep is the water?", **more: Any) -> dict[str, Any]:
    """A request in the form of this API."""
    if path == "responses":
        return {"model": model, "input": words, **more}
    needed = {"max_tokens": 100} if path == "messages" else {}
    return {"model": model, "messages": [{"role": "user", "content": words}], **needed, **more}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("chat/completions", "max_tokens"),
        ("chat/completions", "max_completion_tokens"),
        ("responses", "max_output_tokens"),
        ("messages", "max_tokens"),
    ],
)
def test_an_answer_that_is_too_long_is_told_to_its_client_and_changes_nothing_for_others(api: httpx.Client, path: str, name: str) -> None:
    """O3, S10, T3: the client is told the name of what is at fault; the model's window is what it was."""
    for number in range(3):
        refused = api.post(f"/v1/{path}", json=_request(path, "short", f"Client {number} of {name}", **{name: 32_000}))
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert f"`{name}`" in error["message"] and "model 'short'" in error["message"]
        assert error.get("param", name) == name
        assert error.get("code") != "context_length_exceeded", "a client would shorten its history for that"
    asked = len(_Upstream.asked)
    long = "The tide comes in, and the tide goes out again. " * 600
    assert api.post(f"/v1/{path}", json=_request(path, "short", f"{name} {long}")).status_code == 200
    assert len(_Upstream.asked) == asked + 1
    assert long[:-1] in json.dumps(_Upstream.asked[-1]["messages"]), "whole, as the window has room for it"
    assert {one["name"]: one["learned_window"] for one in api.get("/api/v1/models").json()["items"]}["short"] is None


def test_a_failure_of_the_provider_is_told_in_a_run_and_to_front_ends_as_well(served: Served, api: httpx.Client) -> None:
    """O3, C3: in its words, without a key; an agent that nobody made is not there for a front end either."""
    run = api.post("/api/v1/threads", json={"agent": "failing"}).json()["id"]
    where = api.post(f"/api/v1/threads/{run}/runs", json={"content": "Go."}).headers["location"]
    while (ended := api.get(where).json())["status"] == "running":
        time.sleep(0.05)
    body = {"threadId": "front", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "Go."}], "tools": [], "context": []}
    front = api.post("/agui/failing", json={**body, "state": {}, "forwardedProps": {}})
    assert ended["status"] == "failed"
    for told in (ended["error"], front.text):
        assert "overloaded" in told and KEY not in told
    assert "RUN_ERROR" in front.text
    assert api.post("/agui/nosuch", json={**body, "threadId": "other", "state": {}, "forwardedProps": {}}).status_code == 404
    broken = api.post("/agui", content=b"nojson", headers={"content-type": "application/json"})
    assert broken.status_code == 422 and "at character body" not in broken.text
