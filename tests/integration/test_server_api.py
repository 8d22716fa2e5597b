"""O3, M14, A6: `holdfast serve` over HTTP: who may, what errors say, memory, conversations, sessions, streams that miss nothing."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from tests.conftest import Effort
from tests.integration.server_bench import ROOT, ModelServer, Served, model_server, models, serving, start

from holdfast.server import wire
from holdfast.server.access import OPEN
from holdfast.server.http_server import PAGES, TimeLimit
from holdfast.server.runs import EventStream

SECRET = "sk-proj-9fK2mQ7xT4vB8nL1cR6wZ3yD5hJ0pS"  # noqa: S105 - made up
WORKFLOW: dict[str, Any] = {
    "id": "harbour",
    "task": "What do the notes say about the harbour? Notes: The harbour of Rostock has four piers. Pier four was built in 1998.",
    "stages": [
        {"name": "plan", "agent_type": "planner"},
        {"name": "write", "agent_type": "writer", "approve": True},
        {"name": "final", "agent_type": "synthesizer"},
    ],
}


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with model_server() as played:
        yield played


@pytest.fixture(scope="module")
def served(model: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("api"), models(model)) as running:
        yield running


@pytest.fixture
def api(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


def raw_request(served: Served, *lines: str, body: str = "") -> tuple[int, str]:
    """Exactly these bytes, as no client library would send them."""
    host, port = served.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=240) as connection:
        connection.sendall(("\r\n".join([*lines, "Connection: close", "", body])).encode())
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
    return int(answer.split(b" ")[1]), answer.decode("utf-8", "replace")


def test_without_the_token_nothing_is_answered_but_401(served: Served, api: httpx.Client) -> None:
    """O3: every operation of the description, with every wrong key."""
    described = api.get("/openapi.json").json()["paths"]
    host = served.address.removeprefix("http://")
    tried = 0
    with httpx.Client(base_url=served.address, trust_env=False, timeout=120) as nobody:
        for path, operations in described.items():
            if path in ("/healthz", "/readyz"):
                continue
            plain = path.replace("{id}", "x").replace("{", "").replace("}", "")
            for method in operations:
                for headers in (
                    {},
                    {"Authorization": "Bearer wrong"},
                    {"Authorization": "Basic x"},
                    {"x-api-key": ""},
                    {"Cookie": "holdfast=1"},
                ):
                    answer = nobody.request(method.upper(), plain, headers=headers)
                    assert answer.status_code == 401, (method, path, headers)
                    assert answer.headers["www-authenticate"] == "Bearer"
                    tried += 1
        assert nobody.get("/openapi.json").status_code == 401
        assert nobody.get("/healthz").json() == {"status": "ok"}
        assert nobody.get("/login", params={"token": "wrong"}).headers["content-type"] == "application/problem+json"
        wrong = nobody.get("/login", params={"token": "wrong"}, headers={"Accept": "text/html"})
        assert wrong.status_code == 401 and "holdfast serve --show-token" in wrong.text and "not the one of this server" in wrong.text
    assert tried > 200
    assert (
        raw_request(
            served, "GET /api/v1/about HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {served.token}", "Authorization: Bearer x"
        )[0]
        == 400
    )


def test_without_the_token_no_page_is_answered_but_the_way_in(served: Served) -> None:
    """O3: every page and every form, which no description lists, with every method; and what is no page at all."""
    routes = [route for router in PAGES for route in router.routes]
    paths = {re.sub(r"\{[^}]*\}", "x", route.path) for route in routes if isinstance(route, APIRoute)}
    assert len(paths) > 30
    with httpx.Client(base_url=served.address, trust_env=False, headers={"Accept": "text/html"}, timeout=120) as nobody:
        for path in sorted({*paths, "/nothing", "/docs", "/redoc", "/openapi.json", "/v1/nothing", "//", "/static/../config.yaml"} - OPEN):
            for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"):
                answer = nobody.request(method, path, content=b"x=1" if method == "POST" else None)
                assert answer.status_code == 401, (method, path, answer.status_code)
                assert "x-holdfast-thread" not in answer.headers and str(served.base) not in answer.text
        for path in ("/static/holdfast.css", "/healthz"):
            assert nobody.get(path).status_code == 200
        assert nobody.get("/static/..%2fhtml_pages.py").status_code == 404, "nothing but what is in that folder"


def test_other_hosts_and_origins_are_refused(served: Served) -> None:
    """O3: DNS rebinding, pages of others."""
    host = served.address.removeprefix("http://")
    key = f"Authorization: Bearer {served.token}"
    assert raw_request(served, "GET /api/v1/about HTTP/1.1", f"Host: {host}", key)[0] == 200
    assert raw_request(served, "GET /api/v1/about HTTP/1.1", "Host: evil.test", key)[0] == 421
    assert raw_request(served, "GET /healthz HTTP/1.1", f"Host: evil.test:{host.split(':')[1]}")[0] == 421
    assert raw_request(served, "GET /api/v1/about HTTP/1.1", f"Host: {host}", key, "Origin: http://evil.test")[0] == 403
    assert raw_request(served, "GET /api/v1/about HTTP/1.1", f"Host: {host}", key, "Origin: null")[0] == 403
    assert raw_request(served, "GET /api/v1/about HTTP/1.1", f"Host: {host}", key, f"Origin: http://{host}")[0] == 200
    assert raw_request(served, "GET /api/v1/about HTTP/1.1", f"Host: {host}", "Host: evil.test", key)[0] == 400


async def test_a_request_that_takes_too_long_is_answered_and_a_stream_goes_on() -> None:
    """O3: the limit holds until the answer begins."""

    async def hangs(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    async def streams(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(0.05)
        await send({"type": "http.response.body", "body": b"late"})

    async def receive() -> Any:
        await asyncio.Event().wait()

    for app, status, words in ((hangs, 504, b"took too long"), (streams, 200, b"late")):
        told: list[Any] = []

        async def send(message: Any, told: list[Any] = told) -> None:
            told.append(message)

        await TimeLimit(app, 0.01)({"type": "http", "headers": []}, receive, send)
        assert told[0]["status"] == status and words in told[1]["body"]


async def test_an_error_that_nobody_foresaw_is_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    """O2, O3: the framework raises again what our answer told of, and its server would log it a second time."""
    app = FastAPI()
    app.add_exception_handler(Exception, wire.of_others)

    @app.get("/")
    def broken() -> None:
        raise ZeroDivisionError("nobody foresaw it")

    async with httpx.AsyncClient(transport=httpx.ASGITransport(TimeLimit(app, 60)), base_url="http://here") as client:
        answer = await client.get("/")
    assert answer.status_code == 500 and answer.json()["reference"] in caplog.text
    assert [one.exc_info[0] for one in caplog.records if one.exc_info] == [ZeroDivisionError]


def test_a_browser_that_showed_the_token_is_let_in_by_a_cookie_without_it(served: Served) -> None:
    """O3"""
    with httpx.Client(base_url=served.address, trust_env=False, timeout=120) as browser:
        answer = browser.get("/login", params={"token": served.token})
        assert answer.status_code == 303 and answer.headers["location"] == "/"
        cookie = answer.headers["set-cookie"]
        assert served.token not in cookie and "HttpOnly" in cookie and "samesite=strict" in cookie.lower()
        assert browser.get("/api/v1/about").status_code == 200
        assert browser.post("/api/v1/memory/flush").status_code == 401, "a form of another page brings the cookie along, and no origin"
        assert browser.post("/api/v1/memory/flush", headers={"Origin": served.address}).status_code == 200


def test_errors_are_problems_without_paths_or_secrets(served: Served, api: httpx.Client) -> None:
    """O3, C3: RFC 9457; each says what would fit."""
    for answer, status in (
        (api.get("/api/v1/nothing"), 404),
        (api.get("/api/v1/sessions/no-such-session"), 404),
        (api.get("/api/v1/memory/facts/fact_nothing"), 404),
        (api.get("/api/v1/threads/nothing/messages"), 404),
        (api.get("/api/v1/runs/run-nothing/events"), 404),
        (api.get("/api/v1/knowledge/records/k-nothing"), 404),
        (api.put("/api/v1/about"), 405),
        (api.post("/api/v1/memory/facts", json={"content": ""}), 422),
        (api.post("/api/v1/memory/facts", json={"content": "x", "confidence": False}), 422),
        (api.post("/api/v1/memory/facts", content=b"{", headers={"content-type": "application/json"}), 422),
        (api.post("/api/v1/sessions", json={"workflow": {"id": "x", "stages": [{"name": "a", "agent_type": f"os:{SECRET}"}]}}), 400),
        (api.post("/api/v1/sessions", json={"name": "../../etc/passwd"}), 404),
        (api.get("/api/v1/threads", params={"cursor": "zzzz"}), 422),
        (api.post("/api/v1/memory/import", json={"memory": {"facts": f"/etc/passwd {SECRET}"}}), 400),
    ):
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        told = answer.json()
        assert told["status"] == status and told["type"].startswith("urn:holdfast:")
        assert SECRET not in answer.text and str(served.base) not in answer.text and "/work/" not in answer.text
    assert api.put("/api/v1/memory/facts/x").headers["allow"] == "DELETE, GET, HEAD, PATCH"
    big = raw_request(
        served,
        "POST /api/v1/memory/facts HTTP/1.1",
        f"Host: {served.address.removeprefix('http://')}",
        f"Authorization: Bearer {served.token}",
        "Content-Type: application/json",
        "Content-Length: 99999999999",
    )
    assert big[0] == 413 and "application/problem+json" in big[1]
    for name in ("content-security-policy", "x-content-type-options", "referrer-policy"):
        assert name in api.get("/healthz").headers


def test_memory_has_every_operation(api: httpx.Client) -> None:
    """M14: show, search, add, edit, forget, undo, history, export, import, review, each with `agent`."""
    for agent in ({}, {"agent": "coder"}):
        fact = api.post("/api/v1/memory/facts", params=agent, json={"content": f"User keeps bees {agent}", "category": "context"}).json()
        id = fact["id"]
        assert api.get(f"/api/v1/memory/facts/{id}", params=agent).json()["fact"]["content"] == fact["content"]
        assert [hit["fact"]["id"] for hit in api.get("/api/v1/memory/facts", params={**agent, "q": "bees"}).json()["items"]][:1] == [id]
        changed = api.patch(f"/api/v1/memory/facts/{id}", params=agent, json={"confidence": 0.5}).json()
        assert changed["confidence"] == 0.5
        assert api.post("/api/v1/memory/undo", params=agent, json={}).json()["undoes"]
        assert api.get(f"/api/v1/memory/facts/{id}", params=agent).json()["fact"]["confidence"] == 1.0
        assert len(api.get("/api/v1/memory/history", params=agent).json()["items"]) >= 3
        assert "bees" in api.get("/api/v1/memory/rendered", params=agent).json()["text"]
        exported = api.get("/api/v1/memory", params=agent).json()
        assert api.post("/api/v1/memory/import", params=agent, json={"memory": exported}).status_code == 200
        assert api.put("/api/v1/memory/slots/topOfMind", params=agent, json={"text": "The hives"}).json()["text"] == "The hives"
        assert api.get("/api/v1/memory/review", params=agent).json()["items"] == []
        assert api.delete(f"/api/v1/memory/facts/{id}", params=agent).status_code == 204
        assert api.post("/api/v1/memory/undo", params=agent, json={}).status_code == 200
        assert api.post(f"/api/v1/memory/facts/{id}/forget", params=agent).json()["facts"] == [id]
        assert api.get(f"/api/v1/memory/facts/{id}", params=agent).status_code == 404
    api.post("/api/v1/memory/facts", json={"content": "User lives at Elm Street 5"}).raise_for_status()
    assert api.post("/api/v1/memory/forget", json={"text": "Elm Street 5"}).json()["facts"]
    assert "Elm Street" not in api.get("/api/v1/memory").text
    assert set(api.get("/api/v1/memory/scopes").json()["items"]) == {None, "coder"}


def test_knowledge_and_search_over_everything(api: httpx.Client) -> None:
    """K1, S9"""
    added = api.post("/api/v1/knowledge/records", json={"text": "The staging server is called heron", "tags": ["infra"]}).json()
    id = added["record"]["id"]
    hits = api.post("/api/v1/knowledge/search", json={"query": "staging server"}).json()["items"]
    assert hits[0]["record"]["id"] == id and hits[0]["why"]
    assert api.get("/api/v1/knowledge/records", params={"tag": "infra"}).json()["items"][0]["id"] == id
    found = api.get("/api/v1/search", params={"q": "staging server"}).json()
    assert api.get(found["knowledge"][0]["href"]).json()["id"] == id
    assert api.delete(f"/api/v1/knowledge/records/{id}").status_code == 204
    assert api.get(f"/api/v1/knowledge/records/{id}").status_code == 404


def frames(text: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Id, kind and data of each event."""
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and not line.startswith(":"))
        if "data" in lines:
            found.append((lines["id"], lines["event"], json.loads(lines["data"])))
    return found


def test_a_run_goes_on_without_its_client_and_its_events_can_be_joined_again(api: httpx.Client, model: ModelServer) -> None:
    """A13, A6: leave in the middle, come back with the last id: nothing is missed and nothing comes twice."""
    with model.endless():
        begun = api.post(
            "/api/v1/threads/joined/runs",
            json={"content": "Say something that has many pieces: " + " ".join(f"piece {n}" for n in range(30))},
        )
        assert begun.status_code == 202
        where = begun.headers["location"]
        assert api.post("/api/v1/threads/joined/runs", json={"content": "at once"}).status_code == 409
        seen = ""
        with api.stream("GET", f"{where}/events") as stream:
            for piece in stream.iter_text():
                seen += piece
                if seen.count("event: token") >= 3:
                    break
    first = frames(seen.rpartition("\n\n")[0])
    rest = frames(api.get(f"{where}/events", headers={"Last-Event-ID": first[-1][0]}).text)
    everything = frames(api.get(f"{where}/events").text)
    assert [*first, *rest] == everything
    assert everything[0][1] == "run_started" and everything[-1][1] == "run_ended"
    told = "".join(data["data"]["text"] for _, kind, data in everything if kind == "token")
    assert told == everything[-1][2]["data"]["text"] == api.get(where).json()["text"]
    strange = frames(api.get(f"{where}/events", headers={"Last-Event-ID": "00000000-7"}).text)
    assert strange[0][1] == "reset" and strange[1:] == everything
    listed = api.get("/api/v1/threads/joined/messages").json()["items"]
    assert [one["role"] for one in listed] == ["human", "ai"] and all(one["in_window"] for one in listed)
    calls = api.get("/api/v1/threads/joined/calls").json()["items"]
    assert [one["number"] for one in calls] == [1] and calls[0]["by_origin"]["conversation"] > 0
    window = api.get("/api/v1/threads/joined/calls/1").json()
    texts = [api.get(f"/api/v1/threads/joined/calls/1/parts/{index}").json() for index in range(len(window["parts"]))]
    assert texts[0]["text"].startswith("You are Holdfast") and texts[-1]["text"].startswith("Say something")
    assert api.get("/api/v1/threads/joined/search", params={"q": "many pieces"}).json()["items"]


def test_figures_count_what_was_done_and_name_nobody(tmp_path: Path) -> None:
    """O2: Prometheus' names for model calls, tokens, cost, windows, turns, stages, memory and sessions; no thread or session in a label."""
    with model_server() as played:
        settings = models(played)
        settings["models"] = [{**settings["models"][0], "pricing": {"input": 2, "output": 10}}]
        with serving(tmp_path, {**settings, "knowledge": {"embedder": "none"}}) as served, served.client() as api:
            run = api.post("/api/v1/threads/secret-thread/runs", json={"content": "Hello"}).raise_for_status().json()["id"]
            api.get(f"/api/v1/runs/{run}/events")
            say = {"model": "small", "messages": [{"role": "user", "content": "Hello, gateway"}]}
            api.post("/v1/chat/completions", json=say).raise_for_status()
            api.post("/api/v1/memory/facts", json={"content": "User keeps bees"}).raise_for_status()
            api.post("/api/v1/knowledge/search", json={"query": "bees"}).raise_for_status()
            small = {**WORKFLOW, "id": "secret-flow", "stages": [{"name": "plan", "agent_type": "planner", "use_model": False}]}
            started = api.post("/api/v1/sessions", json={"workflow": small, "id": "secret-session"})
            assert started.status_code in (201, 202), started.text
            until = time.monotonic() + 240
            while api.get("/api/v1/sessions/secret-session").json()["status"] not in ("completed", "halted"):
                assert time.monotonic() < until
                time.sleep(0.05)
            text = api.get("/api/v1/metrics").text
    figures = {name: float(value) for line in text.splitlines() if not line.startswith("#") for name, _, value in [line.rpartition(" ")]}
    assert figures['holdfast_model_calls_total{model="small",outcome="ok",purpose="answer"}'] >= 2
    sent, said = (
        sum(value for name, value in figures.items() if name.startswith(f'holdfast_tokens_total{{kind="{kind}"'))
        for kind in ("input", "output")
    )
    assert sent > 10 and said == 7 * sum(value for name, value in figures.items() if name.startswith("holdfast_model_calls_total"))
    assert figures['holdfast_cost_dollars_total{model="small"}'] == pytest.approx((2 * sent + 10 * said) / 1e6)
    assert figures["holdfast_window_fill_ratio_count"] >= 2
    assert figures['holdfast_turns_total{agent="lead",reason="completed"}'] == 1
    assert figures['holdfast_gateway_turns_total{model="small",placed="starts"}'] == 1
    assert figures['holdfast_stage_seconds_count{agent_type="planner",outcome="ok"}'] >= 1
    assert sum(value for name, value in figures.items() if name.startswith("holdfast_sessions{")) == 1
    assert figures['holdfast_memory_facts{scope="global"}'] == 1 and figures["holdfast_knowledge_search_seconds_count"] >= 1
    assert figures['holdfast_takeovers_total{by="server"}'] == figures["holdfast_events_dropped_total"] == 0
    assert "secret" not in text and "Hello" not in text


def test_a_session_whose_server_was_killed_is_taken_over_and_that_is_counted_and_told(tmp_path: Path) -> None:
    """W6, O2, O4: a session that was made and begun is started, one that was left is resumed, and a page says which."""
    task = {**WORKFLOW, "stages": [{"name": "plan", "agent_type": "planner", "use_model": True}]}
    with model_server() as model:
        settings = {**models(model), "knowledge": {"embedder": "none"}}
        model.pause = 600.0
        with serving(tmp_path, settings) as killed, killed.client() as api:
            api.post("/api/v1/sessions", json={"workflow": task, "id": "left"}).raise_for_status()
            told = ""
            with api.stream("GET", "/api/v1/sessions/left/events") as stream:
                for piece in stream.iter_text():
                    told += piece
                    if "event: stage_started" in told:
                        break
            kinds = [kind for _, kind, _ in frames(told)]
            assert kinds[0] == "session_started" and "session_resumed" not in kinds
            killed.kill()
        model.pause = 0.0
        with serving(tmp_path, settings) as served, served.client() as api:
            api.post("/api/v1/sessions/left/resume", json={"as_started": True}).raise_for_status()
            ends = (api.get("/api/v1/sessions/left").json()["status"] for _ in iter(lambda: time.sleep(0.1), 0))
            assert next(status for status in ends if status in ("completed", "halted"))
            page = api.get("/sessions/left", headers={"Accept": "text/html"}).text
            assert 'holdfast_takeovers_total{by="server"} 1.0' in api.get("/api/v1/metrics").text
    assert "resumed: 0 of 1 stages are done; whoever ran it before ended without a word" in page


async def test_a_listener_that_comes_too_late_is_told_and_what_it_missed_is_counted() -> None:
    """O3, O2"""
    missed: list[int] = []
    stream = EventStream(asyncio.get_running_loop(), keep=5, dropped=missed.append)
    for number in range(20):
        stream.publish("tick", {"n": number}, last=number == 19)
    await asyncio.sleep(0)
    late = [one async for data in stream.follow(f"{stream.epoch}-10") for one in frames(data.decode())]
    assert [kind for _, kind, _ in late] == ["reset", *["tick"] * 5] and missed == [5]
    slow = EventStream(asyncio.get_running_loop(), keep=5, dropped=missed.append)
    following = slow.follow()
    slow.publish("tick", {"n": 0})
    await asyncio.sleep(0)
    await anext(following)
    for number in range(1, 10):
        slow.publish("tick", {"n": number}, last=number == 9)
    await asyncio.sleep(0)
    rest = [one async for data in following for one in frames(data.decode())]
    assert [kind for _, kind, _ in rest] == ["reset", *["tick"] * 5] and missed == [5, 4]
    gone = [one async for data in slow.follow("another-3") for one in frames(data.decode())]
    assert gone[0][1] == "reset" and missed == [5, 4], "of another server nobody knows how many there were"


def test_a_cancelled_run_keeps_what_was_said(api: httpx.Client, model: ModelServer) -> None:
    """A13"""
    with model.endless():
        where = api.post("/api/v1/threads/stopped/runs", json={"content": "Never mind the rest " + "of it " * 60}).headers["location"]
        with api.stream("GET", f"{where}/events") as stream:
            for piece in stream.iter_text():
                if "event: token" in piece:
                    break
        assert api.post(f"{where}/cancel").json()["status"] == "cancelled"
    run = api.get(where).json()
    assert run["status"] == "cancelled" and run["text"].startswith("You said: "), "what was said of it, as the thread has it"
    assert api.get("/api/v1/threads/stopped").json()["interrupted"] is False, "somebody stopped it: it was not broken off"
    assert api.post("/api/v1/threads/stopped/resume").status_code == 409
    listed = api.get("/api/v1/threads/stopped/messages").json()["items"]
    assert listed[0]["text"].startswith("Never mind")
    assert api.post("/api/v1/threads/stopped/branch", json={"at": listed[0]["id"]}).json()["parent"] == "stopped"
    assert api.patch("/api/v1/threads/stopped", json={"title": "Stopped"}).json()["title"] == "Stopped"
    assert api.delete("/api/v1/threads/stopped").status_code == 204
    assert api.get("/api/v1/threads/stopped").status_code == 404


def test_a_turn_that_waits_for_a_yes_is_not_broken_off(tmp_path: Path) -> None:
    """A10, O3: who goes on with all that was broken off is not sent round and round by a call that waits."""

    def writes(request: dict[str, Any]) -> Any:
        done = request["messages"][-1]["role"] == "tool"
        return "Done." if done else [("write_file", {"description": "d", "path": "/mnt/user-data/outputs/a.txt", "content": "x"})]

    with model_server(writes) as server:
        config = {**models(server, window=32_000), "sandbox": {"approve": ["write_file"]}}
        with serving(tmp_path, config) as served, served.client() as api:
            run = api.post("/api/v1/threads/ap/runs", json={"content": "Write it."}).json()["id"]
            while api.get(f"/api/v1/runs/{run}").json()["status"] == "running":
                time.sleep(0.05)
            thread = api.get("/api/v1/threads/ap").json()
            assert (thread["interrupted"], thread["running"], len(thread["approvals"])) == (False, False, 1)
            refused = api.post("/api/v1/threads/ap/resume")
            assert refused.status_code == 409 and "waits for a decision" in refused.json()["detail"]
            decided = api.post("/api/v1/threads/ap/decisions", json={"all": {"type": "approve"}})
            assert decided.status_code == 202


def test_files_of_a_conversation(api: httpx.Client) -> None:
    """A11: uploads are kept under clean names, and handed out as attachments."""
    api.post("/api/v1/threads", json={"title": "With files"}).raise_for_status()
    thread = api.get("/api/v1/threads").json()["items"][0]["id"]
    taken = api.post(f"/api/v1/threads/{thread}/files/uploads", files={"file": ("../../evil.html", b"<script>alert(1)</script>")})
    assert taken.status_code == 201 and taken.json()["name"] == "evil.html"
    assert [one["path"] for one in api.get(f"/api/v1/threads/{thread}/files/uploads").json()["items"]] == ["evil.html"]
    got = api.get(f"/api/v1/threads/{thread}/files/uploads/evil.html")
    assert got.content.startswith(b"<script>") and got.headers["content-disposition"].startswith("attachment")
    assert got.headers["content-type"] == "application/octet-stream" and got.headers["x-content-type-options"] == "nosniff"
    assert api.get(f"/api/v1/threads/{thread}/files/uploads/..%2F..%2F..%2Fconfig.yaml").status_code in (400, 404)
    assert api.get(f"/api/v1/threads/{thread}/files/uploads/%0A").status_code == 404, "a line break is part of a path too"
    assert api.delete(f"/api/v1/threads/{thread}/files/uploads/evil.html").status_code == 204
    name = "\u00dcbersicht \u65e5\u672c\u8a9e.txt"
    api.post(f"/api/v1/threads/{thread}/files/uploads", files={"file": (name, b"hi")}).raise_for_status()
    said = api.get(f"/api/v1/threads/{thread}/files/uploads/{quote(name)}").headers["content-disposition"]
    assert said == f"inline; filename=\"Ubersicht ___.txt\"; filename*=UTF-8''{quote(name)}", "RFC 6266: the name with all its letters"


def test_sessions_are_started_watched_approved_and_fixed_and_a_stream_outlives_the_server(tmp_path: Path) -> None:
    """W6, W14, W19, O4: the journal has one number for each event, over restarts and whoever runs the session."""
    settings = {"memory": {"enabled": False}, "knowledge": {"adapter": "sqlite", "embedder": "none"}}
    served = start(tmp_path, settings)
    with served.client() as api:
        checked = api.post(
            "/api/v1/workflows/check", json={"workflow": {"id": "x", "stages": [{"name": "a", "agent_type": "nobody"}]}}
        ).json()
        assert not checked["ok"] and checked["problems"]
        lacking = {"name": "look", "agent_type": "researcher", "sources": {"folder": "nowhere-at-all", "top_k": 0}}
        checked = api.post("/api/v1/workflows/check", json={"workflow": {"id": "x", "task": "t", "stages": [lacking]}}).json()
        assert [one["at"] for one in checked["problems"]] == ["stages.look.sources.top_k", "stages.look.sources.folder"], (
            "before it is started"
        )
        id = api.post("/api/v1/sessions", json={"workflow": WORKFLOW, "id": "harbour-1"}).json()["id"]
        seen = ""
        with api.stream("GET", f"/api/v1/sessions/{id}/events") as stream:
            for piece in stream.iter_text():
                seen += piece
                if "event: stage_waiting" in seen and "event: session_ended" in seen:
                    break
        first = frames(seen.rpartition("\n\n")[0])
        shown = api.get(f"/api/v1/sessions/{id}").json()
        assert shown["status"] == "paused" and shown["waiting"] == ["write"]
    assert served.stop() == 0
    again = start(tmp_path, settings)
    try:
        with again.client() as api:
            assert api.get("/api/v1/sessions").json()["items"][0]["workflow_id"] == id
            stage = api.get(f"/api/v1/sessions/{id}/stages/write").json()
            assert stage["output"]["summary"] and "context.md" in stage["texts"]
            assert api.post(f"/api/v1/sessions/{id}/fork", json={"id": "harbour-2"}).status_code == 201
            assert api.post(f"/api/v1/sessions/{id}/approve", json={}).json()["status"] == "running"
            rest = frames(api.get(f"/api/v1/sessions/{id}/events", headers={"Last-Event-ID": first[-1][0]}).text)
            assert rest[-1][1] == "end"
            whole = frames(api.get(f"/api/v1/sessions/{id}/events").text)
            assert whole[0][1] == "session_started" and rest[0][1] == "stage_approved"
            assert [*first, *rest] == whole
            assert [int(number) for number, _, _ in whole[:-1]] == list(range(1, len(whole)))
            assert api.get(f"/api/v1/sessions/{id}").json()["status"] == "completed"
            rejected = api.post("/api/v1/sessions/harbour-2/reject", json={"why": "too short"}).json()
            assert rejected["status"] == "halted"
            output = {**stage["output"], "summary": "Four piers, the newest of 1998."}
            assert api.put("/api/v1/sessions/harbour-2/stages/write/output", json={**output, "confidence": "sure"}).status_code in (
                400,
                422,
            )
            assert api.put("/api/v1/sessions/harbour-2/stages/write/output", json=output).json()["status"] == "ready"
            assert api.post("/api/v1/sessions/harbour-2/resume", json={"as_started": True}).status_code == 202
            told = frames(api.get("/api/v1/sessions/harbour-2/events").text)
            assert [kind for _, kind, _ in told][:3] == ["stage_rejected", "output_fixed", "session_resumed"]
            assert told[0][2]["data"]["why"] == "too short"
            page = api.get("/sessions/harbour-2", headers={"Accept": "text/html"}).text
            assert "Stage write was rejected: too short" in page and "a person corrected the output" in page
            assert api.get("/api/v1/sessions/harbour-2").json()["status"] == "completed"
            assert api.delete("/api/v1/sessions/harbour-2").status_code == 204
            assert api.post(f"/api/v1/sessions/{id}/cancel").status_code == 409
    finally:
        assert again.stop() == 0


def reached(api: httpx.Client, id: str, status: str) -> dict[str, Any]:
    """The session, when it has this status."""
    until = time.monotonic() + 60
    while (found := api.get(f"/api/v1/sessions/{id}").json())["status"] != status:
        assert time.monotonic() < until, found["status"]
        time.sleep(0.05)
    return dict(found)


def test_saving_a_corrected_output_is_not_approving_it(tmp_path: Path) -> None:
    """W4, W14: by the API and by the page the stage waits as before; "Save and go on" says yes."""
    served = start(tmp_path, {"memory": {"enabled": False}, "knowledge": {"adapter": "sqlite", "embedder": "none"}})
    try:
        with served.client() as api:
            api.post("/api/v1/sessions", json={"workflow": WORKFLOW, "id": "h-1"})
            reached(api, "h-1", "paused")
            output = {**api.get("/api/v1/sessions/h-1/stages/write").json()["output"], "summary": "By hand."}
            assert api.put("/api/v1/sessions/h-1/stages/write/output", json=output).json()["status"] == "paused"
            saved = api.post("/sessions/h-1/stages/write/output", data={"text": json.dumps(output)})
            shown = api.get("/api/v1/sessions/h-1").json()
            assert (saved.status_code, shown["status"], shown["waiting"]) == (303, "paused", ["write"])
            assert api.post("/api/v1/sessions/h-1/fork", json={"id": "h-2"}).status_code == 201
            assert api.post("/api/v1/sessions/h-2/reject", json={"why": "too short"}).json()["status"] == "halted"
            api.post("/sessions/h-1/stages/write/output", data={"text": json.dumps(output), "go_on": "1"})
            assert reached(api, "h-1", "completed")["stage_outputs"]["write"]["summary"] == "By hand."
    finally:
        assert served.stop() == 0


def test_it_stops_in_order_with_streams_open_and_a_turn_running(tmp_path: Path) -> None:
    """O3: streams are told, the half-said answer is kept, the exit code is 0."""
    ended: list[str] = []
    speaking = threading.Event()
    with model_server() as model:
        served = start(tmp_path, models(model))
        with served.client() as api, model.endless():
            where = api.post("/api/v1/threads/half/runs", json={"content": "Something long " + "and longer " * 60}).headers["location"]

            def listen() -> None:
                seen = ""
                with served.client() as other, other.stream("GET", f"{where}/events") as stream:
                    for piece in stream.iter_text():
                        seen += piece
                        if "event: token" in seen:
                            speaking.set()
                ended.append(seen)

            listener = threading.Thread(target=listen)
            listener.start()
            assert speaking.wait(240)
            assert served.stop() == 0
            listener.join(240)
        assert frames(ended[0])[-1][1] == "end"
        with serving(tmp_path, models(model)) as again, again.client() as api:
            said = api.get("/api/v1/threads/half/messages").json()["items"]
    assert [one["role"] for one in said] == ["human", "ai"] and said[1]["text"].startswith("You said")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGHUP])
def test_a_terminal_that_closes_stops_it_in_order_as_well(tmp_path: Path, how: signal.Signals) -> None:
    """O3: SIGHUP is what a service manager sends for a reload, and a terminal when it goes."""
    assert start(tmp_path, {}).stop(how) == 0


@pytest.mark.prove
async def test_many_streams_miss_nothing(effort: Effort) -> None:
    """O3: hundreds of listeners of one stream, some leaving and coming back: each sees every event once and in order."""
    listeners, count = effort(40, 200), 500
    stream = EventStream(asyncio.get_running_loop())

    async def listen(number: int) -> list[int]:
        seen: list[int] = []
        last: str | None = None
        while True:
            taken = 0
            async for data in stream.follow(last):
                for id, _, told in frames(data.decode()):
                    last = id
                    seen.append(told["n"])
                taken += 1
                if number % 3 == 0 and taken == 4:
                    break
            else:
                return seen

    tasks = [asyncio.create_task(listen(number)) for number in range(listeners)]
    for number in range(count):
        stream.publish("tick", {"n": number}, last=number == count - 1)
        if number % 7 == 0:
            await asyncio.sleep(0)
    for seen in await asyncio.gather(*tasks):
        assert seen == list(range(count))


@pytest.mark.prove
async def test_many_open_streams_of_a_workflow_that_runs_miss_nothing(tmp_path: Path, effort: Effort) -> None:
    """O3, O4, W6: each client sees each event once and in order, also who leaves and comes back; what they cost does not grow."""
    many, width = effort(20, 200), 12
    stages = [{"name": "plan", "agent_type": "planner"}] + [{"name": f"part-{n}", "agent_type": "synthesizer"} for n in range(width)]
    definition = {**WORKFLOW, "stages": stages}
    quiet = {"memory": {"enabled": False}, "knowledge": {"adapter": "sqlite", "embedder": "none"}}
    with serving(tmp_path, quiet) as served:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(
            base_url=served.address, headers=served.headers, trust_env=False, timeout=240, limits=limits
        ) as client:

            async def listen(number: int, path: str) -> list[tuple[str, str]]:
                seen: list[tuple[str, str]] = []
                while not seen or seen[-1][1] != "end":
                    text = ""
                    last = {"Last-Event-ID": seen[-1][0]} if seen else {}
                    async with client.stream("GET", path, headers=last) as stream:
                        async for piece in stream.aiter_text():
                            text += piece
                            if number % 3 == 0 and text.count("event: stage_completed") >= 2:
                                break  # leaves, perhaps in the middle of an event, and comes back
                    seen += [(id, kind) for id, kind, _ in frames(text.rpartition("\n\n")[0])]
                return seen

            sizes = []
            for round in range(2):
                id = f"streamed-{round}"
                await client.post("/api/v1/sessions", json={"workflow": definition, "id": id, "start": False})
                listening = [asyncio.create_task(listen(number, f"/api/v1/sessions/{id}/events")) for number in range(many)]
                while f"holdfast_streams_open {many}.0\n" not in (await client.get("/api/v1/metrics")).text:
                    await asyncio.sleep(0.05)
                before = _resident(served)
                assert (await client.post(f"/api/v1/sessions/{id}/resume", json={"as_started": True})).status_code == 202
                seen = await asyncio.gather(*listening)
                sizes.append((before, _resident(served)))
                whole = [(number, kind) for number, kind, _ in frames((await client.get(f"/api/v1/sessions/{id}/events")).text)]
                assert [kind for _, kind in whole].count("stage_completed") == width + 1
                assert [int(number) for number, _ in whole[:-1]] == list(range(1, len(whole)))
                for number, one in enumerate(seen):
                    if one != whole:
                        effort.fail(f"listener {number} of {many} saw {len(one)} events of {len(whole)}")
    assert sizes[1][1] - sizes[0][1] < 30_000, f"kB before and after each round of {many} streams: {sizes}"


def _resident(served: Served) -> int:
    """Memory of the server in kB."""
    told = Path(f"/proc/{served.process.pid}/status").read_text()
    return int(told.partition("VmRSS:")[2].split()[0])


def test_the_token_is_shown_and_a_busy_port_is_said(tmp_path: Path, served: Served) -> None:
    """O1"""
    environment = {"HOLDFAST_HOME": str(tmp_path), "PATH": "/usr/bin", "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "holdfast.app.main", "serve"]
    shown = [
        subprocess.run([*command, "--show-token"], env=environment, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
        for _ in range(2)
    ]
    assert shown[0] == shown[1] and len(shown[0].strip()) > 30
    assert (tmp_path / "server.token").stat().st_mode & 0o777 == 0o600
    busy = subprocess.run(
        [*command, "--port", served.address.rsplit(":", 1)[1]], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert busy.returncode == 2 and "nothing can listen" in busy.stderr


def test_what_serve_prints_has_the_token_once(tmp_path: Path) -> None:
    """O1, C3: in the address for a browser; the line for a client asks for it, so that it is not copied about."""
    environment = {**os.environ, "HOLDFAST_HOME": str(tmp_path), "HOLDFAST_CONFIG": ""}
    command = [sys.executable, "-m", "holdfast.app.main", "serve"]
    shown = subprocess.run([*command, "--show-token"], env=environment, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    with subprocess.Popen([*command, "--port", "0"], env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = "".join(process.stdout.readline() for _ in range(3))
        process.terminate()
    assert told.count(shown.strip()) == 1 and f"/login?token={shown.strip()}" in told, told
    line = next(line for line in told.splitlines() if line.startswith("For a client:"))
    assert "OPENAI_API_KEY=$(" in line and line.endswith("serve --show-token)")


def test_the_first_page_of_a_fresh_clone_shows_the_session_of_make_run_and_what_to_try(tmp_path: Path) -> None:
    """O4: the part of `make run` that leaves something, then the server on the same base directory."""
    tour = "import sys; sys.path.insert(0, 'examples'); import tour; tour.show_workflow()"
    environment = {**os.environ, "HOLDFAST_HOME": str(tmp_path / "home"), "HOLDFAST_CONFIG": ""}
    subprocess.run([sys.executable, "-c", tour], cwd=ROOT, env=environment, check=True, capture_output=True, timeout=300)
    with serving(tmp_path, {"knowledge": {"embedder": "none"}}) as served, served.client() as api:
        (made,) = api.get("/api/v1/sessions").json()["items"]
        page = api.get("/", headers={"Accept": "text/html"}).text
        whole = api.get(f"/sessions/{made['workflow_id']}", headers={"Accept": "text/html"}).text
    before, _, _ = whole.partition('id="stages"')
    task, _, report = before.partition('<div id="live"')
    assert task.count("<details") == 1 and "<details" not in report, "only the long task is folded"
    assert "Where the sources disagree" in report, "the report is open, above the stages"
    assert whole.count("Where the sources disagree</") == 1
    assert made["status"] == "completed" and f'href="/sessions/{made["workflow_id"]}"' in page
    tries = page.partition('<ol class="tries">')[2].partition("</ol>")[0]
    assert tries.count("<li>") == 3
