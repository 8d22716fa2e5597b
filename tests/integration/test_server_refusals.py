"""What the server refuses, without a model, and how it says so: on the API, on pages, to clients of other APIs (O3, W4, W6)."""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from markupsafe import escape
from tests.integration.server_bench import Served, serving

from holdfast.config.loading import config_from_values
from holdfast.harness import build
from holdfast.workflow.run_settings import file_sessions

PAGE = {"Accept": "text/html"}
NOTES = "Notes: The harbour of Rostock has four piers. Pier four was built in 1998."
FLOW: dict[str, Any] = {
    "id": "harbour",
    "task": f"What do the notes say about the harbour? {NOTES}",
    "stages": [
        {"name": "plan", "agent_type": "planner"},
        {"name": "research", "agent_type": "writer", "approve": True},
        {"name": "write", "agent_type": "writer"},
        {"name": "final", "agent_type": "synthesizer"},
    ],
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    base = tmp_path_factory.mktemp("refusals")
    (base / "workflows").mkdir()
    (base / "workflows" / "harbour.yaml").write_text(json.dumps(FLOW))  # JSON is YAML
    with serving(base, {"server": {"workflows": "workflows"}, "knowledge": {"embedder": "none"}}) as running:
        yield running


@pytest.fixture
def api(served: Served) -> Iterator[httpx.Client]:
    with served.client() as client:
        yield client


def halted(api: httpx.Client, id: str, **how: Any) -> None:
    """A session that a person stopped after its second stage."""
    api.post("/api/v1/sessions", json={"id": id, **how}).raise_for_status()
    until = time.monotonic() + 120
    while api.get(f"/api/v1/sessions/{id}").json()["status"] != "paused" or api.get(f"/api/v1/sessions/{id}").json()["owner"]:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert api.post(f"/api/v1/sessions/{id}/reject", json={"why": "too short"}).json()["status"] == "halted"


def edited(served: Served, id: str, **changes: Any) -> None:
    """The file of a session as a person changes it."""
    file = next((served.base / "home").rglob(f"{id}.json"))
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}, indent=2))


def test_a_hand_edit_that_is_refused_is_told_to_who_resumes(served: Served, api: httpx.Client) -> None:
    """W4, W6, O3: with the reason, as a problem and on the page; the session stays as it is and can be mended."""
    halted(api, "slip", workflow=FLOW)
    edited(served, "slip", completed_stages=["plan", "reserch"])
    answer = api.post("/api/v1/sessions/slip/resume", json={"as_started": True})
    assert answer.status_code == 422 and answer.headers["content-type"] == "application/problem+json", answer.text
    assert "completed_stages names 'reserch'" in answer.json()["detail"] and answer.json()["hint"]
    page = api.post("/sessions/slip/resume", headers={**PAGE, "Origin": served.address})
    assert page.status_code == 422 and 'role="alert"' in page.text
    assert "names &#39;reserch&#39;" in page.text and "<b>1</b> of <b>4</b> stages" in page.text
    assert "not a stage of this workflow" in page.text
    assert "1 of 4" in api.get("/sessions", headers=PAGE).text
    brief = next(one for one in api.get("/api/v1/sessions").json()["items"] if one["workflow_id"] == "slip")
    assert (brief["completed"], brief["total"]) == (1, 4)
    assert api.get("/api/v1/sessions/slip").json()["status"] == "halted"
    edited(served, "slip", completed_stages=["plan"])
    assert api.post("/api/v1/sessions/slip/resume", json={"as_started": True}).status_code == 202, "nothing holds it"


def test_a_workflow_file_that_has_changed_is_told_to_who_resumes(served: Served, api: httpx.Client) -> None:
    """W6, O3: what would mend it is said in the words of the API."""
    halted(api, "changed", name="harbour")
    (served.base / "workflows" / "harbour.yaml").write_text(json.dumps({**FLOW, "stages": FLOW["stages"][:-1]}))
    answer = api.post("/api/v1/sessions/changed/resume", json={})
    assert answer.status_code == 409 and answer.json()["type"] == "urn:holdfast:workflow-changed", answer.text
    assert "final is gone" in answer.json()["detail"]
    assert "`accept_changes: true`" in answer.json()["hint"] and "--" not in answer.json()["hint"]
    assert str(served.base) not in answer.text
    assert api.post("/api/v1/sessions/changed/resume", json={"accept_changes": True}).status_code == 202


def test_a_page_names_the_command_for_what_it_cannot_do(served: Served, api: httpx.Client) -> None:
    """W6, O3: an output of a stage that the workflow does not have."""
    halted(api, "strange", workflow=FLOW)
    outputs = api.get("/api/v1/sessions/strange").json()["stage_outputs"]
    edited(
        served,
        "strange",
        completed_stages=["plan", "reserch"],
        stage_outputs={**outputs, "reserch": {**outputs["plan"], "stage_name": "reserch"}},
    )
    page = api.post("/sessions/strange/resume", headers={**PAGE, "Origin": served.address})
    assert page.status_code == 409 and "Did you mean <code>research</code>?" in page.text, page.text
    assert "<code>holdfast resume strange --accept-changes</code>" in page.text


def test_a_session_that_runs_elsewhere_is_not_said_to_run_here(served: Served, api: httpx.Client) -> None:
    """W6, O3"""
    halted(api, "held", workflow=FLOW)
    with closing(file_sessions(served.base / "home" / "sessions")) as store, store.lease("held", owner="a terminal"):
        answer = api.post("/api/v1/sessions/held/resume", json={"as_started": True})
    assert answer.status_code == 409 and "a terminal" in answer.text


def test_a_hand_edit_that_cannot_be_read_is_told_with_its_place(served: Served, api: httpx.Client) -> None:
    """W4, O3: what does not fit and in which line, and no path of this machine."""
    halted(api, "torn", workflow=FLOW)
    outputs = api.get("/api/v1/sessions/torn").json()["stage_outputs"]
    edited(served, "torn", stage_outputs={**outputs, "plan": {**outputs["plan"], "confidence": "sure"}})
    for answer in (
        api.post("/api/v1/sessions/torn/resume", json={}),
        api.get("/api/v1/sessions/torn"),
        api.get("/sessions/torn", headers=PAGE),
        api.post("/sessions/torn/resume", headers={**PAGE, "Origin": served.address}),
    ):
        assert answer.status_code == 409, answer.text
        assert "stage_outputs.plan.confidence" in answer.text and "(line " in answer.text
        assert str(served.base) not in answer.text


def test_below_v1_errors_have_the_form_of_the_api_that_is_spoken_there(served: Served, api: httpx.Client) -> None:
    """O3: also those of the door and of paths that nobody has; a client of OpenAI or Anthropic shows the words."""
    wrong = {"Authorization": "Bearer wrong"}
    for answer, status, code in (
        (api.post("/v1/chat/completions", json={}, headers=wrong), 401, "invalid_api_key"),
        (api.get("/v1/models", headers={**wrong, "Accept": "text/html"}), 401, "invalid_api_key"),
        (api.post("/v1/embeddings", json={"model": "x", "input": "y"}), 404, "not_found"),
        (api.put("/v1/models", json={}), 405, "method_not_allowed"),
        (api.get("/v1/models", headers={"Origin": "http://elsewhere.example"}), 403, "wrong_origin"),
    ):
        assert answer.status_code == status and answer.headers["content-type"] == "application/json", answer.text
        error = answer.json()["error"]
        assert (error["code"], error["type"]) == (code, "invalid_request_error") and error["message"]
    assert "--show-token" in api.post("/v1/responses", json={}, headers=wrong).json()["error"]["message"]
    assert api.get("/v1/models", headers=wrong).headers["www-authenticate"] == "Bearer"
    assert api.put("/v1/models").headers["allow"] == "GET, HEAD"
    told = api.post("/v1/messages", json={}, headers=wrong).json()
    assert told["type"] == "error" and told["error"]["type"] == "authentication_error" and "--show-token" in told["error"]["message"]
    with (
        openai.OpenAI(base_url=f"{served.address}/v1", api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError, match="A token is needed"),
    ):
        client.models.list()
    assert api.get("/api/v1/nothing").headers["content-type"] == "application/problem+json", "our own API keeps its form"


@pytest.mark.parametrize("name", ["holdfast", "gpt-5"])
def test_without_a_model_a_client_is_told_what_to_do_instead(api: httpx.Client, name: str) -> None:
    """O3, A15: the addresses that do answer without one do."""
    answer = api.post("/v1/chat/completions", json={"model": name, "messages": [{"role": "user", "content": "How many piers?"}]})
    said = answer.json()["error"]
    assert answer.status_code == 404 and said["code"] == "model_not_found"
    assert "`models` in config.yaml" in said["message"] and "`holdfast chat` answer by looking things up" in said["message"], said
    assert "done by extraction" not in said["message"], "it is not done here"
    assert api.post("/api/v1/threads/piers/runs", json={"content": "How many piers?"}).status_code == 202


def test_the_notice_that_no_model_answered_is_a_paragraph_of_its_own(api: httpx.Client) -> None:
    """A15, O3: and no part of the last sentence that was found."""
    api.post("/api/v1/knowledge/records", json={"text": "The laser training is given by Mara Stein."}).raise_for_status()
    run = api.post("/api/v1/threads/laser/runs", json={"content": "Who gives the laser training?"})
    events = api.get(f"{run.headers['location']}/events").text
    assert "Mara Stein" in events and "run_ended" in events, events
    page = api.get("/threads/laser", headers=PAGE).text
    assert re.search(r'Mara Stein[^<]*</li>\s*</ul>\s*<p dir="auto">\(No model is configured', page), page


def test_a_long_task_has_a_short_title_and_stands_whole_below_it(api: httpx.Client) -> None:
    """O3: ten questions are no heading, and no name of a tab."""
    task = "\n".join(f"{number}. Which pump of the hall number {number} is the loudest one at night?" for number in range(1, 11))
    api.post("/api/v1/sessions", json={"workflow": FLOW, "task": task, "id": "ten", "start": False}).raise_for_status()
    for address in ("/sessions/ten", "/sessions/ten/stages/plan"):
        page = api.get(address, headers=PAGE).text
        title, heading = (re.search(rf"<{tag}[^>]*>(.*?)</{tag}>", page, re.DOTALL) for tag in ("title", "h1"))
        assert title is not None and heading is not None
        assert len(title[1]) < 120 and len(heading[1]) < 100 and "1. Which pump of the hall" in title[1]
    page = api.get("/sessions/ten", headers=PAGE).text
    assert task in page[page.index('<details id="task">') : page.index("</details>")]
    api.post("/api/v1/sessions", json={"workflow": FLOW, "task": "Why?", "id": "one", "start": False}).raise_for_status()
    assert "The whole task" not in api.get("/sessions/one", headers=PAGE).text


@pytest.mark.parametrize("name", ["../../etc", "anna@example.com", "what? #1 & co", ".."])
def test_a_thread_with_an_odd_name_has_a_page_that_lists_lead_to(served: Served, api: httpx.Client, name: str) -> None:
    """O3: whatever another program called it, it can be opened, renamed on its page, and read over the API."""
    settings = {"HOLDFAST_HOME": str(served.base / "home")}
    with build(config_from_values({}, environ=settings, cwd=served.base)) as harness, closing(harness.conversation(name)) as talk:
        list(talk.send("How many piers has Rostock?"))
    listed = re.findall(r'href="(/threads/[^"]+)"', api.get("/threads", headers=PAGE).text)
    found = {address: api.get(address, headers=PAGE) for address in listed}
    address = next(address for address, page in found.items() if f'<li class="id">{escape(name)}</li>' in page.text)
    assert found[address].status_code == 200 and "How many piers has Rostock?" in found[address].text
    read = api.get(f"/api/v1{address}/messages")
    assert read.status_code == 200 and "How many piers" in read.text
    assert api.get("/threads/~nothing~" + "0" * 32, headers=PAGE).status_code == 404


def test_a_workflow_over_the_network_reads_and_starts_nothing_of_this_machine(served: Served, api: httpx.Client) -> None:
    """O3, W1: folders and scripts are below the folder of workflows; settings that name places or programs are refused."""
    folder = served.base / "workflows"
    (folder / "notes").mkdir(exist_ok=True)
    (folder / "notes" / "harbour.md").write_text("The harbour of Rostock has four piers.\n")
    secret = served.base / "secret"
    secret.mkdir(exist_ok=True)
    (secret / "codes.md").write_text("The launch code of silo seven is 8841.\n")
    (folder / "way-out").symlink_to(secret)

    def with_stage(**stage: Any) -> dict[str, Any]:
        asked = {"name": "a", "agent_type": "researcher", **stage}
        return {"id": "leak", "task": "What is the launch code of silo seven?", "stages": [asked]}

    stages: list[dict[str, Any]] = [
        *({"sources": {"folder": one}} for one in (str(secret), "/etc", "../secret", "notes/../../secret", "~/secret", "way-out", "a\0b")),
        *({"sources": {"folder": ["notes", one]}} for one in (str(secret), "..")),
        {"sources": {"folder": "notes", "globs": ["../../secret/*"]}},
        {"agent_type": "coder", "script": "/etc/hostname"},
        {"agent_type": "coder", "script": "../config.yaml"},
        {"agent_type": "os:system"},
    ]
    sections: list[dict[str, Any]] = [
        {"knowledge": {"adapter": "mcp", "server": {"command": "touch", "args": ["x"]}}},
        {"knowledge": {"adapter": "markdown", "path": str(secret)}},
        {"session": {"path": str(secret)}},
        {"session": {"id": "$HOME"}},
        {"memory": {"session_memory": {"path": f"{secret}/x.json"}}},
    ]
    before = [one["workflow_id"] for one in api.get("/api/v1/sessions").json()["items"]]
    for asked in [*(with_stage(**one) for one in stages), *({**with_stage(), **one} for one in sections)]:
        for path, body in (("/api/v1/sessions", {"workflow": asked, "start": False}), ("/api/v1/workflows/check", {"workflow": asked})):
            said = api.post(path, json=body)
            refused = said.status_code in (400, 422) or (path.endswith("check") and said.json()["ok"] is False)
            assert refused, (path, asked, said.text)
            assert str(served.base) not in said.text
        page = api.post("/sessions/new", data={"text": json.dumps(asked), "keep": "1"}, headers={**PAGE, "Origin": served.address})
        assert page.status_code in (400, 422), (asked, page.status_code)
    assert [one["workflow_id"] for one in api.get("/api/v1/sessions").json()["items"]] == before
    made = api.post("/api/v1/sessions", json={"workflow": with_stage(sources={"folder": "notes"}), "id": "inside"})
    assert made.status_code == 202
    until = time.monotonic() + 120
    while (found := api.get("/api/v1/sessions/inside").json())["status"] != "completed":
        assert time.monotonic() < until
        assert found["status"] != "halted", found
        time.sleep(0.05)


@pytest.mark.parametrize("written", ["2025", "1763000000", "tomorrow-ish", 2025])
def test_a_time_that_is_no_date_is_refused_with_its_field(api: httpx.Client, written: str | int) -> None:
    """O3, K1: figures are not seconds since 1970; a date is read as the command line reads it."""
    for path, body, field in (
        ("/api/v1/knowledge/records", {"text": "Pier four was built", "time": written}, "time"),
        ("/api/v1/knowledge/search", {"query": "pier", "after": written}, "after"),
        ("/api/v1/knowledge/search", {"query": "pier", "before": written}, "before"),
    ):
        answer = api.post(path, json=body)
        assert answer.status_code == 422, answer.text
        assert [one["at"] for one in answer.json()["errors"]] == [f"/body/{field}"]
        assert f"'{written}' is not a date" in answer.json()["errors"][0]["message"]
    kept = api.post("/api/v1/knowledge/records", json={"text": "Pier four was built, it is said", "time": "8 May 2026"}).json()["record"]
    assert kept["time"].startswith("2026-05-08T00:00:00")
    found = api.post("/api/v1/knowledge/search", json={"query": "pier four", "after": "2026-05-08", "before": "2026-05-09"}).json()
    assert [hit["record"]["id"] for hit in found["items"]] == [kept["id"]]


def test_a_refused_form_comes_back_with_the_reason_and_with_what_was_written(served: Served, api: httpx.Client) -> None:
    """O3, O4: adding and changing facts, keeping records, beginning and going on with a conversation, naming it."""
    post = {**PAGE, "Origin": served.address}
    long = "bees " * 1_000
    there = api.post("/api/v1/memory/facts", json={"content": "User keeps <bees> & hens"}).json()
    talk = api.post("/api/v1/threads", json={"title": "Hens"}).json()["id"]
    for path, form, reason in (
        ("/memory/add", {"content": long, "category": "hobby & work"}, "at most"),
        ("/memory/add", {"content": there["content"], "category": "context"}, "known already"),
        ("/memory/edit", {"fact": there["id"], "content": long, "category": "hobby", "confidence": "0.5"}, "at most"),
        (
            "/memory/edit",
            {"fact": there["id"], "content": "User keeps ducks", "category": "hobby", "confidence": "many"},
            "not a confidence",
        ),
        ("/memory/edit", {"fact": "fact_gone", "content": "User keeps geese", "category": "hobby"}, "there is no fact"),
        (
            "/knowledge",
            {"text": "  ", "tags": "sea & land, x", "source": "a <map>", "trust": "low"},
            "text needs at least one visible character.",
        ),
        ("/knowledge", {"text": "tide " * 30_000, "tags": "sea", "trust": "medium"}, "at most 100,000 characters"),
        ("/threads", {"content": " \n "}, "nothing in the message"),
        (f"/threads/{talk}/send", {"content": "  \n"}, "nothing in the message"),
        (f"/threads/{talk}/title", {"title": "long & winding " * 20}, "a title has"),
    ):
        answer = api.post(path, data=form, headers=post)
        assert answer.status_code in (400, 404, 409, 422), (path, answer.status_code)
        shown = html.unescape(answer.text)
        assert 'role="alert"' in answer.text and reason in shown.lower(), (path, reason)
        for name, value in form.items():
            inside = f'value="{value}"' in shown or f">\n{value}</textarea>" in shown or f'"{value}" selected' in shown
            assert inside or name == "fact", f"{path} has lost {name}"
    assert not [one for one in api.get("/api/v1/threads").json()["items"] if not one["messages"] and one["id"] != talk]


def test_the_address_of_a_form_leads_to_the_page_that_has_it(api: httpx.Client) -> None:
    """O4: after a refusal it stands in the address bar, and is opened again by whoever reloads it."""
    talk = api.post("/api/v1/threads", json={"title": "Hens"}).json()["id"]
    halted(api, "reloaded", workflow=FLOW)
    for path, place in (
        ("/memory/add?agent=coder", "/memory?agent=coder"),
        ("/memory/undo", "/memory"),
        ("/knowledge/forget", "/knowledge"),
        (f"/threads/{talk}/send", f"/threads/{talk}"),
        ("/sessions/reloaded/approve", "/sessions/reloaded"),
        ("/sessions/reloaded/stages/plan/output", "/sessions/reloaded/stages/plan"),
        ("/sessions/new/check", "/sessions/new"),
    ):
        answer = api.get(path, headers=PAGE)
        assert (answer.status_code, answer.headers.get("location")) == (303, place)
        assert api.get(place, headers=PAGE).status_code == 200
    assert api.get("/api/v1/memory/undo", headers=PAGE).status_code == 405
    assert api.get("/memory/add").status_code == 405


def test_head_is_answered_wherever_get_is(served: Served, api: httpx.Client) -> None:
    """O3: the same status and headers, no body, and no less is asked of who asks; a stream is told of and not begun."""
    for path, kind in (
        ("/healthz", "application/json"),
        ("/readyz", "application/json"),
        ("/", "text/html"),
        ("/memory", "text/html"),
        ("/static/holdfast.css", "text/css"),
        ("/static/htmx.min.js", "text/javascript"),
        ("/api/v1/memory", "application/json"),
        ("/api/v1/events", "text/event-stream"),
        ("/api/v1/sessions/nothing", "application/problem+json"),
        ("/nothing", "application/problem+json"),
    ):
        answer = api.head(path)
        assert answer.content == b"" and answer.headers["content-type"].startswith(kind), path
        assert "content-security-policy" in answer.headers
        if kind != "text/event-stream":
            asked = api.get(path)
            assert answer.status_code == asked.status_code and int(answer.headers["content-length"]) > 0, path
    assert api.head("/api/v1/memory/undo").status_code == 405
    with served.client(headers={}) as stranger:
        assert stranger.head("/healthz").status_code == 200
        assert stranger.head("/").status_code == 401 and stranger.head("/api/v1/memory").status_code == 401
    assert api.get("/healthz").json() == {"status": "ok"}
    assert "Traceback" not in (served.base / "server.log").read_text()


def test_no_body_is_an_empty_one_where_every_field_may_be_left_out(api: httpx.Client) -> None:
    """O3: the session waits for a yes, and gets one; what needs a field names it."""
    begun = api.post("/api/v1/sessions", json={"id": "bare", "workflow": FLOW}).json()
    assert begun["id"] == begun["workflow_id"] == "bare"
    until = time.monotonic() + 120
    while (session := api.get("/api/v1/sessions/bare").json())["status"] != "paused" or session["owner"]:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert session["id"] == session["workflow_id"] == "bare"
    assert all(one["id"] == one["workflow_id"] for one in api.get("/api/v1/sessions").json()["items"])
    talk = api.post("/api/v1/threads")
    assert talk.status_code == 201
    for path, status in (
        ("/api/v1/sessions/bare/resume", 202),
        ("/api/v1/sessions/bare/fork", 201),
        ("/api/v1/sessions/bare/approve", 200),
    ):
        answer = api.post(path)
        assert answer.status_code == status, (path, answer.text)
        assert answer.json()["id"] == answer.json()["workflow_id"]
        time.sleep(0.5 if status == 202 else 0)
    nothing = api.post("/api/v1/sessions")
    assert (nothing.status_code, nothing.json()["detail"]) == (400, "give a workflow or the name of one.")
    optional = [
        f"{method.upper()} {path}"
        for path, operations in api.get("/openapi.json").json()["paths"].items()
        for method, operation in operations.items()
        if path.startswith("/api/") and "requestBody" in operation and not operation["requestBody"].get("required")
    ]
    assert len(optional) == 12, optional


def test_a_body_that_does_not_say_what_it_is_gets_the_same_answer_as_one_that_says_something_else(api: httpx.Client) -> None:
    """O3: 415, and what to send."""
    for kind in ({}, {"content-type": "text/plain"}):
        for path in ("/api/v1/knowledge/search", "/api/v1/sessions/nothing/resume"):
            answer = api.post(path, content=b'{"query": "pier"}', headers=kind)
            assert answer.status_code == 415, answer.text
            assert "must be JSON" in answer.json()["detail"] and "application/json" in answer.json()["hint"]
    missing = api.post("/api/v1/knowledge/search")
    assert missing.status_code == 422 and missing.json()["errors"][0]["at"] == "/body"


def test_what_does_not_fit_is_said_in_words_and_never_as_a_pattern(api: httpx.Client) -> None:
    """O3, O4: for every field that has a pattern."""
    for method, path, body, words in (
        ("POST", "/api/v1/knowledge/records", {"text": " \u200b"}, "needs at least one visible character"),
        ("GET", "/api/v1/threads?cursor=zzzz", None, "the `next` of the page before"),
        ("GET", "/api/v1/memory?agent=a/b", None, "the name of an agent"),
        ("POST", "/api/v1/sessions", {"id": "../x", "workflow": {}}, "a name of at most 100 letters"),
        ("GET", "/api/v1/sessions/-x", None, "a name of at most 128 letters"),
        ("GET", "/api/v1/threads/a%20b", None, "the id of a thread"),
        ("GET", "/knowledge?since=2026", None, "a day, written like 2026-04-19"),
        ("GET", "/sessions/x/raw/a%20b", None, "is not written as it is wanted here"),
        ("POST", "/api/v1/knowledge/records", {"text": ""}, "needs at least 1 character"),
    ):
        answer = api.request(method, path, json=body)
        assert answer.status_code == 422, (path, answer.text)
        assert [one for one in answer.json()["errors"] if words in one["message"]], (path, answer.text)
        assert "pattern" not in answer.text and "[^" not in answer.text and "A-Z" not in answer.text


def test_what_cannot_be_done_as_things_stand_is_a_conflict(api: httpx.Client) -> None:
    """O3, W6: 409 where nothing waits and nothing was broken off; the same request may do later."""
    halted(api, "stands", workflow=FLOW)
    api.post("/api/v1/threads/stands/runs", json={"content": "pier"}).raise_for_status()
    for path, words in (
        ("/api/v1/sessions/stands/approve", "no stage of session stands waits"),
        ("/api/v1/threads/stands/resume", "no turn of this thread was broken off"),
        ("/api/v1/threads/stands/decisions", "no call waits"),
    ):
        answer = api.post(path, json={"all": {"type": "approve"}} if path.endswith("decisions") else {})
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:holdfast:in-the-way"), answer.text
        assert words in answer.json()["detail"]
    assert api.post("/api/v1/sessions/stands/cancel").status_code == 200
    assert api.post("/api/v1/sessions/stands/cancel").status_code == 409


def test_who_brings_no_token_is_asked_for_it_and_told_where_it_is(served: Served) -> None:
    """O3, O4: it is not said that a token was wrong that nobody gave."""
    with served.client(headers=PAGE) as nobody:
        for answer in (nobody.get("/login"), nobody.post("/login", data={"token": " "}, headers={"Origin": served.address})):
            assert answer.status_code == 401 and 'name="token"' in answer.text and "holdfast serve --show-token" in answer.text
            assert "not the one of this server" not in answer.text and 'role="alert"' not in answer.text
        told = nobody.get("/login", headers={"Accept": "application/json"}).json()
        assert told["detail"] == "The token is needed." and "--show-token" in told["hint"]
        wrong = nobody.get("/login?token=wrong")
        assert wrong.status_code == 401 and "not the one of this server" in wrong.text and 'role="alert"' in wrong.text


def test_a_server_of_tools_that_cannot_be_reached_is_named_without_its_path(tmp_path: Path) -> None:
    """O3, O5: on the first page and by the doctor of the API."""
    servers = {"tides": {"command": "/opt/nowhere/tide-server", "args": ["/srv/private/tides.py"]}}
    with serving(tmp_path, {"knowledge": {"embedder": "none"}, "mcp": {"servers": servers}}) as served, served.client() as api:
        said = next(one["text"] for one in api.get("/api/v1/doctor").json()["items"] if one["about"] == "mcp")
        assert said.startswith("tides: the MCP server tide-server tides.py cannot be reached"), said
        page = api.get("/", headers=PAGE).text
        assert "tides: the MCP server tide-server tides.py cannot be reached" in page
        assert not any(place in text for text in (said, page) for place in ("/opt/nowhere", "/srv/private"))


def test_a_conversation_without_a_model_is_uploaded_to_named_branched_and_deleted_on_its_page(served: Served, api: httpx.Client) -> None:
    """O4, W18: what it can do is offered there, and nothing else."""
    post = {**PAGE, "Origin": served.address}
    begun = api.post("/threads", data={"content": "What about the moorings?"}, headers=post)
    place = begun.headers["location"].partition("#")[0]

    def shown() -> str:
        """The page, when nothing runs any more."""
        while any(run["status"] == "running" for run in api.get(f"/api/v1{place}/runs").json()["items"]):
            time.sleep(0.05)
        return api.get(place, headers=PAGE).text

    page = shown()
    for form in ("send", "title", "branch", "delete"):
        assert f'action="{place}/{form}"' in page, form
    assert 'type="file"' in page and "Branch here" in page and f"{place}/compact" not in page
    files = {"files": ("moorings.txt", b"The moorings were renewed in 2019.", "text/plain")}
    sent = api.post(f"{place}/send", data={"content": "When were the moorings renewed?"}, files=files, headers=post)
    assert sent.status_code == 303
    page = shown()
    assert "renewed in 2019" in page and "files/uploads/moorings.txt" in page
    assert api.post(f"{place}/title", data={"title": "Moorings & more"}, headers=post).status_code == 303
    assert '<h1 dir="auto" id="title" class="said">Moorings &amp; more</h1>' in api.get(place, headers=PAGE).text
    branch = api.post(f"{place}/branch", headers=post).headers["location"].partition("?")[0]
    assert branch != place and "renewed in 2019" in api.get(branch, headers=PAGE).text
    assert api.post(f"{place}/delete", headers=post).headers["location"] == "/threads"
    assert api.get(place, headers=PAGE).status_code == 404 and api.get(branch, headers=PAGE).status_code == 200
