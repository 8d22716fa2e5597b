"""A real browser (Debian's Chromium, driven by playwright) that was let in to a running server, and what it must never see on a page."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, sync_playwright
from tests.integration.server_bench import ROOT, Served

SHOTS = ROOT / "build" / "pages"
"""Where pictures of pages are left for whoever wants to look at them."""
PROVING = "--prove" in sys.argv
_PATIENCE = 240_000  # milliseconds: they matter only where something is wrong
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
_FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-proxy-server"),
)

HOSTILE = (
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    '"><svg onload="document.title=\'owned\'">',
    "[click](javascript:document.title='owned')",
    "![pixel](http://evil.test/pixel.png)",
    "{{ 7 * 7 }} {% raw %} ${7*7}",
    "</textarea></title></script><b>bold</b>",
    "data: x\n\nevent: end\n\n",
    "\u202eright to left\u202c \u0007 bell",
    "é" * 400,
)
"""Texts that try to be more than text. One of each kind stands somewhere on every page."""


@contextmanager
def chromium_browser(program: str) -> Iterator[Browser]:
    """The browser, while the block runs."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visitor:
    """One tab. `troubles` has what it complained about: errors of scripts, of the policy, requests that left the server."""

    page: Page
    address: str
    troubles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.context.set_default_timeout(_PATIENCE)

    def go(self, path: str) -> Page:
        self.page.goto(self.address + path)
        return self.page

    def follow(self, what: str | Locator) -> None:
        """Click on what leads to another page, and wait until that page is there whole: a click alone returns while it still arrives."""
        with self.page.expect_navigation():
            (self.page.locator(what).first if isinstance(what, str) else what).click()

    def shot(self, name: str) -> None:
        """Pictures of the page as it is now, wide and narrow; it must not be wider than the narrow one."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        for size, where in ((NARROW, "narrow"), (WIDE, "wide")):
            self.page.set_viewport_size(size)  # type: ignore[arg-type, unused-ignore]  # a TypedDict of playwright's
            self.page.screenshot(path=SHOTS / f"{name}-{where}.png", full_page=True)
            width = int(self.page.evaluate("document.documentElement.scrollWidth"))
            assert width <= size["width"], f"{name} is {width} pixels wide in a window of {size['width']}"

    def check(self, name: str) -> None:
        """Nothing that axe finds wrong, in light and in dark; and pictures.

        In the dark only colours are others: `make test` asks for the rules about colours there, `make prove` for all.
        """
        self.shot(name)
        for scheme, rules in (("light", None), ("dark", None if PROVING else {"runOnly": ["color-contrast", "link-in-text-block"]})):
            self.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type, unused-ignore]
            found = Axe().run(self.page, options=rules)
            told = [f"{one['id']}: {[node['html'][:200] for node in one['nodes'][:3]]}" for one in found.response["violations"]]
            assert not told, f"{name}, {scheme}: {told}"
        self.page.emulate_media(color_scheme="light")


@contextmanager
def visiting(browser: Browser, served: Served, *, script: bool = True, scheme: Literal["light", "dark"] = "light") -> Iterator[Visitor]:
    """A tab of its own that was let in. Fails at the end if anything went wrong in it."""
    settings: dict[str, Any] = {"viewport": WIDE, "reduced_motion": "reduce", "color_scheme": scheme, "java_script_enabled": script}
    context = browser.new_context(**settings)
    visitor = Visitor(context.new_page(), served.address)
    watch(visitor)
    try:
        visitor.go(f"/login?token={served.token}")
        yield visitor
    finally:
        context.close()
    assert not visitor.troubles, visitor.troubles


def watch(visitor: Visitor) -> None:
    """Note what the tab complains about. A refusal that a test asks for is taken out by the test."""
    page = visitor.page
    page.on("console", lambda said: visitor.troubles.append(f"console: {said.text}") if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: visitor.troubles.append(f"script: {error}"))
    page.on("request", lambda sent: None if sent.url.startswith(visitor.address) else visitor.troubles.append(f"foreign: {sent.url}"))


def pictures() -> list[Path]:
    """The pictures that are there."""
    return sorted(SHOTS.glob("*.png"))
