"""O3, W4, W14: the start page, sessions, stages and /about in a real browser: live, with and without a script, in both schemes."""

from __future__ import annotations

import html
import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page
from tests.conftest import need_program
from tests.integration.browser import HOSTILE, NARROW, WIDE, Visitor, chromium_browser, visiting
from tests.integration.server_bench import ROOT, Served, serving

from holdfast.session.state import Session
from holdfast.workflow.run_settings import file_sessions

pytestmark = pytest.mark.prove  # all rules of axe in both schemes

EXAMPLE = (ROOT / "src/holdfast/server/routes/example/workflow.yaml").read_text("utf-8")
HARD = {
    "id": "hostile",
    "task": " ".join(HOSTILE[:6]),
    "stages": [
        {"name": "plan", "agent_type": "planner"},
        {"name": "odd", "agent_type": "synthesizer", "approve": True, "inputs": [], "system_prompt": HOSTILE[2]},
        {"name": "last", "agent_type": "synthesizer"},
    ],
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    base = tmp_path_factory.mktemp("pages")
    (base / "workflows").mkdir()
    shutil.copytree(ROOT / "src/holdfast/server/routes/example/notes", base / "workflows" / "notes")
    (base / "workflows" / "harbour.yaml").write_text(EXAMPLE, "utf-8")
    (base / "workflows" / "broken.yaml").write_text("id: broken\nstages:\n  - nam: plan\n", "utf-8")
    with serving(base, {"server": {"workflows": "workflows"}}) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium_browser(need_program("chromium", "chromium")) as made:
        yield made


@pytest.fixture
def visitor(browser: Any, served: Served) -> Iterator[Visitor]:
    with visiting(browser, served) as tab:
        yield tab


def test_a_workflow_is_started_watched_fixed_approved_and_its_evidence_opens(visitor: Visitor, served: Served) -> None:
    """O3, W4, W10, W14: stages arrive without a reload; a wrong output comes back with what is wrong; the source of a finding is marked."""
    page = visitor.go("/sessions/new")
    visitor.check("new-session")
    page.fill("#text", "id: x\nstages:\n  - nam: plan\n")
    page.wait_for_selector("#checked .problem")
    assert "line 3" in page.inner_text("#checked")
    page.fill("#text", EXAMPLE)
    page.wait_for_selector("#checked .good")
    visitor.follow("section[aria-labelledby=h-text] button.main")
    page.wait_for_selector("button:has-text('Approve')")  # arrives by the stream: the page was not loaded again
    assert page.inner_text("#head .pill") == "waits for you"
    loaded = page.evaluate("performance.getEntriesByType('navigation').length")
    assert loaded == 1
    page.click("#f-2 summary")
    visitor.check("session-waiting")
    id = page.url.rpartition("/")[2]

    visitor.follow("a:has-text('Edit the output')")
    page.wait_for_selector("#fix textarea")
    page.wait_for_function("window.htmx !== undefined")
    page.fill("#fix textarea", '{"summary": 4}')
    page.wait_for_selector("#checked .problem")
    visitor.check("stage")
    visitor.follow("#fix button:has-text('Save'):not(.main)")
    page.wait_for_selector(".problem[role=alert]")
    assert '{"summary": 4}' in page.input_value("#fix textarea")
    visitor.troubles = [one for one in visitor.troubles if "422" not in one]
    with served.client() as api:
        before = api.get(f"/api/v1/sessions/{id}").json()
    fixed = {**before["stage_outputs"]["synthesize"], "summary": "Pier four is 210 metres long, says a person."}
    page.fill("#fix textarea", json.dumps(fixed))
    page.wait_for_selector("#checked .good")
    visitor.follow("#fix button.main")
    page.wait_for_selector("#head .pill.completed")
    assert "says a person" in page.inner_text("#stages")

    page.click("#f-2 summary")
    source = page.locator("#f-2 .findings a").first
    fact = page.locator("#f-2 .findings .said").first.inner_text()
    visitor.follow(source)
    page.wait_for_selector("mark")
    assert "".join(page.inner_text("mark").split()).rstrip(".") in "".join(fact.split())
    visitor.check("evidence")


def start(served: Served, text: str, **fields: str) -> str:
    """Start a session with a form, as a page does; gives its address."""
    with served.client() as client:
        answer = client.post("/sessions/new", data={"text": text, **fields})
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"])


def test_eight_tabs_follow_a_session_that_others_change(visitor: Visitor, served: Served) -> None:
    """O3: a browser opens six connections at most. What a person was writing stays while it is drawn anew, and what he opened."""
    own = EXAMPLE.replace("{folder: notes}", "{folder: notes}\n    inputs: []")
    own = own.replace("approve: true", "inputs: [research]\n    approve: true")
    where = start(served, own)  # what waits has not read the plan, so that it still waits when that is corrected
    page = visitor.go(where)
    page.wait_for_selector("button:has-text('Approve')")
    others = [page.context.new_page() for _ in range(7)]
    for other in others:
        other.goto(served.address + where)
    page.click("summary:has-text('Reject')")
    page.fill("textarea[name=why]", "half a thought")
    page.click("#f-2 summary")
    with served.client() as api:
        output = api.get(f"/api/v1{where}").json()["stage_outputs"]["plan"]
        assert api.put(f"/api/v1{where}/stages/plan/output", json={**output, "summary": "Changed by somebody else."}).status_code == 200
    page.wait_for_selector("#stages :text('Changed by somebody else.')")
    assert page.input_value("textarea[name=why]") == "half a thought"
    assert page.is_visible("#f-2 .findings") and page.is_visible("textarea[name=why]")
    with served.client() as api:
        assert api.post(f"/api/v1{where}/approve", json={}).status_code == 200
    for one in (page, *others):
        one.wait_for_selector("#head .pill.completed")
    page.click("#again-2 summary")
    visitor.follow("#again-2 button")
    page.wait_for_selector("button:has-text('Approve')")  # of what was run again
    assert "before-restore-001" in page.inner_text("#side")
    page.click("#again-2 summary")
    visitor.follow("#again-2 button")
    page.wait_for_selector("button:has-text('Approve')")  # of what was run again
    assert "before-restore-001" in page.inner_text("#side")


def test_rejecting_needs_a_reason_and_the_stage_is_told(visitor: Visitor, served: Served) -> None:
    """O3, W14"""
    where = start(served, EXAMPLE)
    page = visitor.go(where)
    page.wait_for_selector("button:has-text('Approve')")
    page.click("summary:has-text('Reject')")
    page.fill("textarea[name=why]", "the treasurer says another figure")
    visitor.follow("button:has-text('Reject and stop')")
    page.wait_for_selector("#trouble")
    assert "the treasurer says another figure" in page.inner_text("#trouble")
    visitor.check("session-stopped")
    visitor.follow("button:has-text('Resume')")
    page.wait_for_selector("button:has-text('Approve')")


def test_lists_the_start_page_and_about_in_both_schemes(visitor: Visitor, served: Served) -> None:
    """O3: what waits stands first; a filter; keys; every list can be walked."""
    start(served, EXAMPLE, keep="1", task="A task of its own about the lighthouse")
    page = visitor.go("/sessions?q=lighthouse")
    assert page.locator(".rows > li").count() == 1
    assert visitor.go("/sessions?tag=harbour&status=ready").locator(".rows > li").count() >= 1
    assert visitor.go("/sessions?tag=nothing").locator(".empty").count() == 1
    page = visitor.go("/sessions")
    visitor.check("sessions")
    page.keyboard.press("j")
    page.keyboard.press("j")
    first = page.evaluate("document.activeElement.getAttribute('href')")
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.getAttribute('href')") != first
    page.keyboard.press("?")
    assert page.is_visible("#help")
    page.keyboard.press("Escape")
    page = visitor.go("/")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    visitor.check("start")
    visitor.go("/about?window=8000")
    visitor.check("about")


def _loaded_until(page: Page, wanted: str) -> None:
    """Load the page again and again until this is on it."""
    until = time.monotonic() + 240
    while not page.locator(wanted).count():
        assert time.monotonic() < until, f"{wanted} did not come"
        page.wait_for_timeout(100)
        page.reload()


def test_without_a_script_everything_is_there_and_can_be_done(browser: Any, served: Served) -> None:
    """O3: plain forms, answered with a redirect."""
    with visiting(browser, served, script=False) as tab:
        page = tab.go("/sessions/new")
        tab.follow("button[aria-label='Start harbour']")
        _loaded_until(page, "button:has-text('Approve')")
        tab.follow("button:has-text('Approve')")
        _loaded_until(page, "#head .pill.completed")
        tab.follow("#stages a.name >> nth=2")
        assert "What it was given" in page.inner_text("main")
        tab.follow("#fix button:has-text('Save'):not(.main)")
        assert "fixed by hand" in page.inner_text("#stages")


def test_hostile_texts_are_shown_as_text(visitor: Visitor, served: Served) -> None:
    """O3: in tasks, names of stages, outputs, reasons and errors, on every page that shows them."""
    where = start(served, json.dumps(HARD))
    page = visitor.go(where)
    page.wait_for_selector("button:has-text('Approve')")
    id = where.rpartition("/")[2]
    output = {
        "summary": " ".join(HOSTILE),
        "key_findings": [{"fact": text, "source": text.strip() or "x"} for text in HOSTILE],
        "confidence": "high",
        "next_stage_recommendations": list(HOSTILE),
        "raw_data_refs": [],
        "data": {"report": "\n\n".join(HOSTILE)},
    }
    with served.client() as api:
        assert api.put(f"/api/v1/sessions/{id}/stages/plan/output", json=output).status_code == 200
    for place in (where, f"{where}/stages/plan", "/sessions", "/", f"/sessions?q={HOSTILE[2]}"):
        page = visitor.go(place)
        page.wait_for_selector("main h1")
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert page.title() != "owned"
        assert page.locator("main b:text-is('bold'), main img, main script").count() == 0
        assert "<script>" in page.inner_text("main") or place != where
    page.goto(f"{served.address}{where}")
    page.wait_for_selector("button:has-text('Approve')")
    visitor.follow("button:has-text('Approve')")
    page.wait_for_selector("#head .pill.completed")
    visitor.check("hostile")


def test_nobody_sees_a_page_without_the_token_or_acts_from_another_origin(browser: Any, served: Served) -> None:
    """O3: a page that says how to be let in; a form of another page is refused."""
    context = browser.new_context()
    visitor = Visitor(context.new_page(), served.address)
    page = visitor.page
    refused = page.goto(f"{served.address}/sessions")
    assert refused is not None and refused.status == 401
    assert "--show-token" in page.inner_text("main") and page.locator(".rows").count() == 0
    page.fill("#token", "wrong-token-of-somebody")
    visitor.follow("button:has-text('Let me in')")
    assert "not the one of this server" in page.inner_text("main")
    page.goto(f"{served.address}/sessions")
    page.fill("#token", served.token)
    visitor.follow("button:has-text('Let me in')")
    page.wait_for_url("**/sessions")
    cookie = "; ".join(f"{one['name']}={one['value']}" for one in context.cookies())
    context.close()
    with httpx.Client(base_url=served.address, trust_env=False, headers={"Cookie": cookie, "Accept": "text/html"}) as client:
        for headers, status in (({}, 401), ({"Origin": "http://evil.test"}, 403), ({"Origin": "null"}, 403)):
            answer = client.post("/sessions/new", data={"text": EXAMPLE}, headers=headers)
            assert answer.status_code == status and "<html" in answer.text
        assert client.post("/sessions/new", data={"text": EXAMPLE, "keep": "1"}, headers={"Origin": served.address}).status_code == 303
        missing = client.get("/sessions/no-such-session")
        assert missing.status_code == 404 and "<h1>" in missing.text and "content-security-policy" in missing.headers
        assert client.get("/sessions/no-such-session", headers={"Accept": "*/*"}).json()["type"] == "urn:holdfast:not-there"
        wrong = client.post("/sessions/new", data={"text": "stages: []", "keep": "1"}, headers={"Origin": served.address})
        assert wrong.status_code == 400 and "stages: []" in wrong.text
        code = "id: x\ntask: t\nstages:\n  - name: a\n    agent_type: os:system\n"
        assert client.post("/sessions/new", data={"text": code}, headers={"Origin": served.address}).status_code == 400
        assert str(served.base) not in missing.text + wrong.text + client.get("/sessions").text
        assert "Queue and workers" not in client.get("/sessions").text
        about = html.unescape(client.get("/about").text)
        for place, why in (
            ("home", "environment HOLDFAST_HOME"),
            ("config.yaml", "it was named"),
            ("home/sessions", "in the base directory"),
        ):
            assert f'{served.base / place}</div><div class="meta"><span>{why}</span>' in about, place
        assert str(served.base) not in client.get("/api/v1/about").text


def test_the_list_is_walked_by_pages_and_counted_only_while_it_is_short(tmp_path: Path) -> None:
    """O3, W17: each session once, newest first; with many of them the page does not read them all to count them."""
    store = file_sessions(tmp_path / "home" / "sessions")
    for number in range(60):
        store.create(Session(f"run-{number:03d}", "weigh the harbour"))
    with serving(tmp_path, {}) as running, running.client() as client:

        def walked(address: str) -> list[str]:
            seen: list[str] = []
            while address:
                text = client.get(address).text
                seen += re.findall(r'href="/sessions/(run-\d+)"', text)
                onward = re.search(r'rel="next" href="([^"]+)"', text)
                address = html.unescape(onward[1]) if onward else ""
            return list(dict.fromkeys(seen))

        def api() -> list[str]:
            seen, cursor = [], None
            while True:
                told = client.get("/api/v1/sessions", params={"limit": 20} | ({"cursor": cursor} if cursor else {})).json()
                seen += [one["workflow_id"] for one in told["items"]]
                cursor = told["next"]
                if cursor is None:
                    return seen

        names = [f"run-{number:03d}" for number in reversed(range(60))]
        assert "ready (60)" in client.get("/sessions").text
        assert walked("/sessions") == names == api()
        for number in range(60, 110):
            store.create(Session(f"run-{number:03d}", "weigh the harbour"))
        names = [f"run-{number:03d}" for number in reversed(range(110))]
        text = client.get("/sessions").text
        assert "ready (" not in text and '<option value="ready"' in text
        assert walked("/sessions") == names == api()
        assert walked("/sessions?q=run-00&status=ready") == names[-10:]
    store.close()


def test_a_session_is_queued_for_workers_on_other_machines(postgres: str, tmp_path: Path) -> None:
    """O3, W17: where sessions are in PostgreSQL the page offers the queue; the list of sessions and /about show it, with its rates."""
    with serving(tmp_path, {"session": {"storage_backend": "postgresql", "connection": postgres}}) as running, running.client() as client:
        assert "Queue for a worker" in client.get("/sessions/new").text
        where = client.post("/sessions/new", data={"text": EXAMPLE, "queue": "1"}).headers["location"]
        assert client.get(where).status_code == 200
        for page in ("/about", "/sessions"):
            said = client.get(page).text
            assert "<b>1</b> wait" in said and "holdfast worker" in said and "completed in the last minute" in said
        assert "session.storage_backend (" in client.get("/about").text and "secret" not in client.get("/about").text


def test_downloads_are_files_and_hide_secrets(served: Served, tmp_path: Path) -> None:
    """O3, C3"""
    where = start(served, EXAMPLE, keep="1")
    with served.client() as client:
        for form, kind in (("json", "application/json"), ("story", "text/markdown")):
            answer = client.get(f"{where}/download/{form}")
            assert answer.status_code == 200 and answer.headers["content-type"].startswith(kind)
            assert answer.headers["content-disposition"].startswith("attachment")
            assert str(served.base) not in answer.text
        assert client.get(f"{where}/download/report").status_code == 404


def test_a_page_that_was_just_opened_stays_at_its_head(visitor: Visitor, served: Served) -> None:
    """O4: a page a little longer than the window does not jump to its end when its live part is drawn; who reads the end stays there."""
    page = visitor.go(start(served, EXAMPLE))
    page.wait_for_selector("button:has-text('Approve')")
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": 1280, "height": height - 300})
    page.reload()
    page.evaluate("document.dispatchEvent(new Event('htmx:sse:after:message'))")
    assert page.evaluate("window.scrollY") == 0
    page.evaluate("window.scrollTo(0, 200)")
    page.evaluate("document.dispatchEvent(new Event('htmx:sse:after:message'))")
    assert page.evaluate("window.scrollY") > 200


def test_long_words_do_not_widen_the_page_of_a_search(visitor: Visitor, served: Served) -> None:
    """O4: a tag of 200 letters is broken, on a wide screen and on a narrow one."""
    with served.client() as api:
        record = {"text": "The osprey nests on the mast.", "tags": ["W" * 200]}
        assert api.post("/api/v1/knowledge/records", json=record).status_code == 201
    for size in (WIDE, NARROW):
        visitor.page.set_viewport_size({"width": size["width"], "height": size["height"]})
        page = visitor.go("/search?q=osprey")
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
