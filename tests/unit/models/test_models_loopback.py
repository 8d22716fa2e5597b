"""Looking for model servers on this machine: only loopback is asked, and only what really speaks the protocol counts (A15)."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.models.choice import Endpoint, endpoints, parse_ollama_host, servers
from holdfast.models.providers import is_loopback

OLLAMA = {
    "/api/tags": {
        "models": [
            {"name": "nomic-embed-text:latest", "details": {"family": "nomic-bert", "parameter_size": "137M"}},
            {"name": "qwen3:8b", "details": {"family": "qwen3", "parameter_size": "8.2B"}},
            {"name": "smollm2:135m", "details": {"family": "llama", "parameter_size": "134.52M"}},
        ]
    }
}
LLAMA_CPP = {
    "/v1/models": {"object": "list", "data": [{"id": "qwen.gguf", "meta": {"n_params": 7_600_000_000, "n_ctx_train": 131072}}]},
    "/props": {"default_generation_settings": {"n_ctx": 16384}},
}

_LEAF = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
_KEYS = st.sampled_from(["models", "name", "details", "parameter_size", "family", "data", "id", "meta", "n_params"])
STRANGE = st.recursive(_LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4), max_leaves=12)


@contextmanager
def serving(answers: dict[str, Any], kind: str) -> Iterator[tuple[Endpoint, list[str]]]:
    """A real server with these JSON documents; everything else is 404. Yields where it is and the paths it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

        def do_GET(self) -> None:
            asked.append(self.path)
            answer = answers.get(self.path)
            if isinstance(answer, str):
                self.send_response(302)
                self.send_header("Location", answer)
                self.end_headers()
                return
            status, answer = answer if isinstance(answer, tuple) else (404 if answer is None else 200, answer)
            raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.end_headers()
            self.wfile.write(raw)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield Endpoint(kind, "127.0.0.1", server.server_address[1]), asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_ollama_is_found_with_a_model_that_can_chat() -> None:
    """A15: the first listed model makes vectors and is passed over."""
    with serving(OLLAMA, "ollama") as (place, _):
        (server,) = servers([place], patience=5)
    assert server.model == "qwen3:8b"
    assert server.models == ("qwen3:8b", "smollm2:135m")
    assert server.parameters == 8.2e9
    assert server.base_url == f"http://127.0.0.1:{place.port}/v1"


def test_ollamas_window_is_what_it_gives_and_not_what_the_model_could() -> None:
    """T3: Ollama cuts longer input without a word."""
    with serving(OLLAMA, "ollama") as (place, _):
        assert servers([place], patience=5)[0].window == 4096
    with serving({**OLLAMA, "/api/ps": {"models": [{"name": "qwen3:8b", "context_length": 40960}]}}, "ollama") as (place, _):
        assert servers([place], patience=5)[0].window == 40960


def test_a_wanted_model_is_taken_where_the_server_has_it() -> None:
    with serving(OLLAMA, "ollama") as (place, _):
        assert servers([place], wanted="smollm2:135m", patience=5)[0].model == "smollm2:135m"
        assert servers([place], wanted="gemma4", patience=5)[0].model == "qwen3:8b"


def test_llama_cpp_is_found_with_the_window_of_a_slot() -> None:
    """A15, T3"""
    with serving(LLAMA_CPP, "llama.cpp") as (place, _):
        (server,) = servers([place], patience=5)
    assert (server.model, server.window, server.parameters) == ("qwen.gguf", 16384, 7.6e9)


def test_any_server_with_the_openai_protocol_will_do() -> None:
    with serving({"/v1/models": {"data": [{"id": "m", "max_model_len": 32000}]}}, "llama.cpp") as (place, _):
        assert servers([place], patience=5)[0].window == 32000
    with serving({"/v1/models": {"data": [{"id": "m"}]}}, "llama.cpp") as (place, _):
        assert servers([place], patience=5)[0].window is None


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"/v1/models": b"<html>a web page</html>"},
        {"/v1/models": b"\xff\xfe\x00"},
        {"/v1/models": []},
        {"/v1/models": {"data": "none"}},
        {"/v1/models": {"data": []}},
        {"/v1/models": {"data": [None, 3, {"id": 7}]}},
        {"/v1/models": (503, LLAMA_CPP["/v1/models"])},
    ],
)
def test_what_does_not_speak_the_protocol_is_no_server(answers: dict[str, Any]) -> None:
    with serving(answers, "llama.cpp") as (place, asked):
        assert servers([place], patience=5) == ()
    assert asked


@given(STRANGE)
def test_no_answer_of_a_strange_server_raises(answer: Any) -> None:
    """Whatever JSON comes back, the search goes on."""
    from holdfast.models import choice

    def strange(place: Endpoint, path: str, patience: float) -> Any:
        return answer

    original: Callable[..., Any] = choice.ask
    choice.ask = strange
    try:
        found = servers([Endpoint("ollama", "127.0.0.1", 1), Endpoint("llama.cpp", "127.0.0.1", 1)], patience=5)
    finally:
        choice.ask = original
    assert all(isinstance(server.model, str) for server in found)


def test_a_redirect_is_not_followed() -> None:
    """A server here cannot send the search elsewhere."""
    with (
        serving(LLAMA_CPP, "llama.cpp") as (target, asked),
        serving({"/v1/models": f"{target.address}/v1/models"}, "llama.cpp") as (place, _),
    ):
        assert servers([place], patience=5) == ()
    assert asked == []


def test_a_proxy_in_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serving(LLAMA_CPP, "llama.cpp") as (place, _):
        assert servers([place], patience=5)[0].model == "qwen.gguf"


def test_an_address_elsewhere_is_never_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A15: not even when somebody puts it into the list."""

    def refuse(*args: Any, **options: Any) -> Any:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket, "create_connection", refuse)
    assert servers([Endpoint("ollama", "192.0.2.7", 11434), Endpoint("llama.cpp", "models.example.org", 8080)]) == ()


def test_a_server_that_says_nothing_does_not_keep_the_others_waiting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, serving(LLAMA_CPP, "llama.cpp") as (place, _):
        found = servers([Endpoint("ollama", "127.0.0.1", silent.getsockname()[1]), place], patience=0.3)
    assert [server.endpoint for server in found] == [place]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1", ("127.0.0.1", 11434)),
        ("127.0.0.1:11500", ("127.0.0.1", 11500)),
        ("http://localhost:11500/", ("127.0.0.1", 11500)),
        ("0.0.0.0", ("127.0.0.1", 11434)),  # noqa: S104 - what a server binds to
        (":11500", ("127.0.0.1", 11500)),
        ("[::1]:11500", ("::1", 11500)),
        ("127.8.9.10", ("127.8.9.10", 11434)),
        ("ollama.example.org", None),
        ("192.168.1.5:11434", None),
        ("127.0.0.1.example.org", None),
        ("localhost.example.org", None),
        ("https://127.0.0.1:11434", None),
        ("127.0.0.1:notaport", None),
        ("http://user@10.0.0.1", None),
        ("[::1", None),
    ],
)
def test_ollama_host_counts_only_when_it_is_this_machine(text: str, expected: tuple[str, int] | None) -> None:
    """A15"""
    found = parse_ollama_host(text)
    assert (None if found is None else (found.host, found.port)) == expected
    assert (found in endpoints({"OLLAMA_HOST": text})) is (found is not None)


@given(st.text(max_size=40))
def test_no_text_in_ollama_host_leads_off_this_machine(text: str) -> None:
    assert all(is_loopback(place.host) for place in endpoints({"OLLAMA_HOST": text}))


def test_the_usual_places_are_asked_once_each() -> None:
    usual = endpoints({})
    assert [(place.kind, place.port) for place in usual] == [("ollama", 11434), ("llama.cpp", 8080)]
    assert endpoints({"OLLAMA_HOST": "127.0.0.1:11434"}) == usual
