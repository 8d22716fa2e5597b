"""O3, O4: pages with nothing on them yet, pages that say what is wrong, and texts from outside on those that other tests do not show."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from tests.conftest import Effort, need_program
from tests.integration.browser import HOSTILE, NARROW, Visitor, chromium_browser, visiting, watch
from tests.integration.server_bench import Served, serving
from typer.main import get_command

from holdfast.app.main import app

pytestmark = pytest.mark.prove  # all rules of axe in both schemes

ODD = f"{HOSTILE[1]}.md"
NOTES = f"# Piers {HOSTILE[0]}\n\nPier nine was built in 2001 {HOSTILE[1]} by Ann.\n\n{HOSTILE[6]} {HOSTILE[3]} {HOSTILE[4]}\n"
WORKFLOW = {
    "id": "odd",
    "task": f"When was pier nine built? {HOSTILE[0]}",
    "stages": [{"name": "plan", "agent_type": "planner"}, {"name": "read", "agent_type": "researcher", "sources": {"folder": "notes"}}],
}
EMPTY = {
    "start-new": ("/", "holdfast run workflow.yaml"),
    "sessions-new": ("/sessions", "holdfast run workflow.yaml"),
    "threads-new": ("/threads", "holdfast chat"),
    "memory-new": ("/memory", "holdfast memory add"),
    "review-new": ("/memory/review", "holdfast memory review"),
    "memory-history-new": ("/memory/history", "holdfast memory history"),
    "knowledge-new": ("/knowledge", "holdfast knowledge import"),
    "search-new": ("/search", "holdfast memory search"),
    "search-nothing": ("/search?q=harbour", "holdfast knowledge import"),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A new installation: nothing in it but a folder of workflows, with a mistake in its settings."""
    base = tmp_path_factory.mktemp("new")
    notes = base / "workflows" / "notes"
    notes.mkdir(parents=True)
    (notes / ODD.replace("/", "-")).write_text(NOTES, "utf-8")
    (base / "workflows" / "odd.yaml").write_text(json.dumps(WORKFLOW), "utf-8")
    with serving(base, {"server": {"workflows": "workflows"}, HOSTILE[1]: 1, "knowledge": {"embedder": "none"}}) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium_browser(need_program("chromium", "chromium")) as made:
        yield made


@pytest.fixture
def visitor(browser: Any, served: Served) -> Iterator[Visitor]:
    with visiting(browser, served) as tab:
        yield tab


def is_a_command(words: list[str]) -> bool:
    """Whether `holdfast` has this command."""
    found: Any = get_command(app)
    for word in words[1:]:
        if not hasattr(found, "commands"):
            return True
        if word not in found.commands:
            return False
        found = found.commands[word]
    return True


@pytest.mark.prove
def test_a_new_installation_says_what_to_do(visitor: Visitor, effort: Effort) -> None:
    """O3, O1: an empty place names the command that fills it, and there is such a command; three things to try."""
    for name, (path, command) in EMPTY.items():
        page = visitor.go(path)
        assert command in page.inner_text("main"), path
        for code in page.locator("main code").all_inner_texts():
            assert not code.startswith("holdfast ") or is_a_command(code.split()), code
        if effort(3, len(EMPTY)) == len(EMPTY) or name in ("start-new", "memory-new", "search-nothing"):
            visitor.check(name)
        else:  # the rest is made of the same pieces: `make prove` looks at all of them
            visitor.shot(name)
    page = visitor.go("/")
    assert page.inner_text("h1") == "Welcome" and page.locator(".tries > li").count() == 3
    for link in page.locator(".tries a").all():
        assert visitor.page.request.get(visitor.address + str(link.get_attribute("href"))).ok


def test_what_is_wrong_is_a_page_that_says_what_to_do(browser: Any, visitor: Visitor, served: Served) -> None:
    """O3: no token, a wrong one, a thing that is not there, a request that does not fit; names from outside are text there too."""
    wrong = {
        "not-there": ("/sessions/nothing", "no session"),
        "no-page": (f"/nothing/{quote(HOSTILE[1], safe='')}", "Look in"),
        "unfit": (f"/sessions/{quote(HOSTILE[0], safe='')}", "Look in"),
        "no-calls": ("/threads/nothing/calls", "no thread"),
    }
    for name, (path, words) in wrong.items():
        page = visitor.go(path)
        assert words.lower() in page.inner_text("main").lower(), path
        assert page.title() != "owned" and page.locator("main img, main script").count() == 0
        visitor.check(f"error-{name}")
    visitor.troubles.clear()  # a browser tells of each of these answers
    nobody = browser.new_context()
    try:
        tab = Visitor(nobody.new_page(), served.address)
        watch(tab)
        assert "--show-token" in tab.go(f"/sessions?next={quote(HOSTILE[2], safe='')}").inner_text("main")
        tab.check("login")
        tab.go("/login?token=" + quote(HOSTILE[1], safe=""))
        assert tab.page.title() != "owned" and tab.page.locator("main img").count() == 0
        assert [one for one in tab.troubles if "401" not in one] == []
    finally:
        nobody.close()


def test_texts_of_sources_and_settings_are_text(visitor: Visitor, served: Served) -> None:
    """O3, W10: names and words of files in the evidence, a key of `config.yaml`, a workflow that is checked, what was forgotten."""

    def sound(name: str, *, shows: str) -> None:
        visitor.page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        shown = visitor.page.inner_text("main") + " ".join(
            visitor.page.locator("main textarea").evaluate_all("all => all.map((one) => one.value)")
        )
        assert shows in shown, name
        assert visitor.page.title() != "owned" and visitor.page.locator("main b:text-is('bold'), main img, main script").count() == 0
        visitor.check(name)

    page = visitor.go("/about")
    sound("about-notice", shows="onerror")
    page = visitor.go("/sessions/new")
    sound("new-session-odd", shows="<script>")
    page.fill("#text", f"id: x\nstages:\n  - {json.dumps(HOSTILE[6])}: 1\n")
    page.wait_for_selector("#checked .problem")
    sound("new-session-wrong", shows="</textarea>")
    visitor.go("/sessions/new")
    visitor.follow("button[aria-label='Start odd']")
    page.wait_for_selector("#head .pill.completed")
    page.click("#f-2 summary")
    assert re.search("Pier nine", page.inner_text("#f-2"))
    visitor.go(str(page.locator("#f-2 .findings a").first.get_attribute("href")))
    assert "Pier nine was built" in page.inner_text("mark")
    sound("evidence-odd", shows="onerror")
    visitor.go("/memory")
    page.fill("#forget", HOSTILE[1])
    page.click("summary:has-text('Forget …')")
    visitor.follow("text=Forget it everywhere")
    page.wait_for_selector("h1:has-text('orgotten'), h1:has-text('nowhere')")
    visitor.check("forgotten")


HEBREW = "הדבורים של המשתמש בברן (Bern)."
TURNED = "pay \u202e001 rof\u202c to Ann \u2066now"


def test_every_text_has_its_own_direction_and_turns_nothing_else(visitor: Visitor, served: Served) -> None:
    """O3, O4: what is written from right to left is laid out so, in messages, facts, records and fields; signs that turn it are seen."""
    with served.client() as api:
        api.post("/api/v1/memory/facts", json={"content": HEBREW}).raise_for_status()
        record = api.post("/api/v1/knowledge/records", json={"text": f"{HEBREW}\n{TURNED}"}).json()["record"]["id"]
        thread = api.post("/api/v1/threads", json={"title": HEBREW}).json()["id"]
        for words in (HEBREW, TURNED):
            run = api.post(f"/api/v1/threads/{thread}/runs", json={"content": words}).json()["id"]
            api.get(f"/api/v1/runs/{run}/events").raise_for_status()
    direction = "(all) => all.map((one) => getComputedStyle(one).direction)"
    page = visitor.go(f"/threads/{thread}")
    assert set(page.locator(".entry.human .said", has_text="בברן").evaluate_all(direction)) == {"rtl"}
    assert set(page.locator(".entry.human .said", has_text="to Ann").evaluate_all(direction)) == {"ltr"}
    assert page.locator("h1").evaluate_all(direction) == ["rtl"]
    said = page.locator(".entry.human .said", has_text="to Ann").inner_text()
    assert said == "pay ‹U+202E›001 rof‹U+202C› to Ann ‹U+2066›now"
    page.fill("#content", HEBREW)
    assert page.locator("#content").evaluate_all(direction) == ["rtl"]
    visitor.check("thread-rtl")
    page = visitor.go("/memory")
    assert set(page.locator(".content.said", has_text="בברן").evaluate_all(direction)) == {"rtl"}
    visitor.check("memory-rtl")
    page = visitor.go(f"/knowledge/{record}")
    lines = page.locator(".this .said").evaluate(
        """(one) => { const range = document.createRange(); const at = one.firstChild;
        const left = (from, to) => { range.setStart(at, from); range.setEnd(at, to); return range.getBoundingClientRect(); };
        const end = at.data.indexOf("\\n"); const box = one.getBoundingClientRect();
        return [box.right - left(0, end).right, left(end + 1, at.data.length).left - box.left]; }"""
    )
    assert all(abs(gap) < 2 for gap in lines), lines  # the Hebrew line at the right edge, the other at the left one
    visitor.shot("record-rtl")


def test_a_long_text_is_folded_and_can_be_opened_without_a_script(browser: Any, served: Served) -> None:
    """O3, O4: a fact without a space in it does not make a page of many screens; the whole of it is one step away."""
    long = "W" * 1_900
    with served.client() as api:
        fact = api.post("/api/v1/memory/facts", json={"content": long}).json()["id"]
        api.patch(f"/api/v1/memory/facts/{fact}", json={"content": long[:-1]}).raise_for_status()
    with visiting(browser, served, script=False) as visitor:
        for path in ("/memory", "/memory/history", "/search?q=WWWW"):
            page = visitor.go(path)
            page.set_viewport_size(NARROW)  # type: ignore[arg-type, unused-ignore]  # a TypedDict of playwright's
            assert int(page.evaluate("document.documentElement.scrollHeight")) < 4_000, path
        page = visitor.go("/memory")
        shown = page.locator(".facts-list details.rest").first
        assert not shown.locator(".said").is_visible()
        shown.locator("summary").click()
        assert shown.locator(".said").inner_text() == long[:-1]
        visitor.shot("memory-long")
        page = visitor.go(f"/memory/history?fact={fact}")
        page.locator("details.rest summary").first.click()
        assert page.locator("details.rest").first.inner_text().count("W" * 1_899)
