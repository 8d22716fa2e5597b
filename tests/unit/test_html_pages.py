"""O3: what pages are made of: vendored scripts as their authors made them, nothing from elsewhere, text of others as text."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from jinja2 import UndefinedError

from holdfast.server.routes import html_pages
from holdfast.server.routes.html_pages import HERE, error_page, live_event, markdown, money, number, render, wants_page, when
from holdfast.validation import counted

VENDORED = {
    "htmx.min.js": "e484d9171a9db30a39c8f16e3d709d4137f3211c659f8e6125816635033d593f",
    "hx-sse.min.js": "8a834680c4000a9034d79228872372a92e140c810a075cb6d4a76690dfc13085",
}
"""htmx.org 4.0.0, `dist/htmx.min.js` and `dist/ext/hx-sse.min.js`."""


def test_the_vendored_scripts_are_those_that_their_authors_published() -> None:
    """O3: by their SHA-256, with their licence beside them."""
    for name, digest in VENDORED.items():
        assert hashlib.sha256((HERE / "static" / name).read_bytes()).hexdigest() == digest, name
    assert "Zero-Clause BSD" in (HERE / "static" / "htmx-LICENSE.txt").read_text("utf-8")


def test_htmx_waits_for_its_extension() -> None:
    """O3: deferred, htmx starts by a timer and not when the page is read; without its extension a page is not live."""
    layout = (HERE / "templates" / "layout.html").read_text("utf-8")
    for name in VENDORED:
        assert f'<script src="/static/{name}"></script>' in layout


def test_our_own_script_stays_small() -> None:
    """O3: a page works without one."""
    ours = [path for path in (HERE / "static").glob("*.js") if path.name not in VENDORED]
    assert sum(len(path.read_text("utf-8").splitlines()) for path in ours) <= 40


def test_templates_hold_no_style_no_code_and_nothing_from_elsewhere() -> None:
    """O3: the policy of the guard would stop it; so it is not written at all."""
    found = sorted((HERE / "templates").glob("*.html"))
    assert found
    for path in found:
        text = path.read_text("utf-8")
        assert not re.search(
            r"""\sstyle\s*=|<style|\son[a-z]+\s*=|\bhx-on|javascript:|\bjs:|\|\s*safe\b|<script(?![^>]*\bsrc="/static/)""", text
        ), path
        assert not re.search(r"""\b(?:src|href|action|hx-get|hx-post)\s*=\s*["'](?:https?:)?//""", text), path
    sheet = (HERE / "static" / "holdfast.css").read_text("utf-8")
    assert not re.search(r"@import|url\(", sheet)


HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1))",
    "![pixel](http://evil.test/p.png)",
    "<svg onload=alert(1)>",
    "`</code><script>alert(1)</script>`",
    '[a](https://evil.test "\\" onmouseover=alert(1)")',
    "[a](data:text/html;base64,PHNjcmlwdD4=)",
    "| a |\n|---|\n| <iframe src=//evil.test> |",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;script&gt;",
    "<!-- --><style>*{display:none}</style>",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_others_stays_text(text: str) -> None:
    """O3: as a value and as Markdown."""
    for shown in (str(markdown(text)), render("problem.html", problem={**_PROBLEM, "detail": text, "hint": text})):
        tags = set(re.findall(r"<(?!/)([a-z0-9]+)", shown))
        assert tags <= {"p", "a", "code", "b", "div", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}, shown
        for attributes in re.findall(r"<[a-z0-9]+([^>]*)>", shown):
            assert not re.search(r"\son\w+\s*=(?!&)", re.sub(r'"[^"]*"', '""', attributes)), shown
        assert not re.search(r"""href=["']?\s*(?:javascript|data):""", shown), shown


_PROBLEM: dict[str, Any] = {"title": "x", "errors": [], "owner": None, "hint": None, "reference": None, "detail": None, "status": 400}


def test_links_say_nothing_and_headings_are_no_headings_of_the_page() -> None:
    """O3"""
    shown = str(markdown("# Big\n\n[a](https://example.org)"))
    assert 'rel="noreferrer nofollow"' in shown and "<h1" not in shown and "Big" in shown


def test_a_template_that_lacks_a_value_fails() -> None:
    """O3: an empty place on a page would hide it."""
    with pytest.raises(UndefinedError):
        render("problem.html")


def test_moments_are_relative_with_the_exact_one_in_the_title() -> None:
    """O3"""
    shown = str(when((datetime.now(UTC) - timedelta(minutes=3, seconds=5)).isoformat()))
    assert ">3 min ago</time>" in shown and "UTC" in shown
    assert (
        str(when("2020-04-01T08:00:00.000Z"))
        == '<time datetime="2020-04-01T08:00:00+00:00" title="2020-04-01 08:00:00 UTC">2020-04-01</time>'
    )
    assert str(when(None)) == "" and str(when("<b>")) == "&lt;b&gt;" and str(when(float("inf"))) == ""


def test_figures_are_readable() -> None:
    """O3"""
    assert (number(None), number(1234567), money(None), money(0.00042)) == ("–", "1,234,567", "–", "$0.0004")
    assert (counted(1, "finding"), counted(2, "finding"), counted(0, "entry", "entries")) == ("1 finding", "2 findings", "0 entries")


def test_a_part_goes_out_as_one_event_whatever_its_lines_end_with() -> None:
    """O3: a line of text cannot begin an event of its own."""
    sent = live_event("<p>a\r\n\nevent: end\rdata: x\x0b\x85b</p>")
    assert sent.endswith(b"\n\n") and sent.count(b"\n\n") == 1
    assert all(line.startswith(b"data: ") for line in sent.rstrip(b"\n").splitlines())


def test_errors_are_pages_for_browsers_alone() -> None:
    """O3"""
    assert wants_page("text/html,*/*", "/sessions/x")
    assert (
        not wants_page("*/*", "/sessions/x")
        and not wants_page("text/html", "/api/v1/sessions")
        and not wants_page("text/html", "/v1/models")
    )
    whole = error_page("/sessions", {"title": "no token", "status": 401, "detail": "A token is needed."})
    assert "<h1>No token</h1>" in whole and 'action="/login"' in whole and "--show-token" in whole
    assert "<html" not in error_page("/x", {"title": "not there", "status": 404}, small=True)
    assert html_pages.HEADERS["referrer-policy"] == "same-origin"
