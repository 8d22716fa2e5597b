"""Makes the pictures of pages for the README and the docs: a real server, a real browser, a model that plays a script.

PYTHONPATH=. python scripts/page_pictures.py      # writes docs/images/session.png, window.png and evidence.png
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page
from tests.integration.browser import chromium_browser
from tests.integration.server_bench import ROOT, Served, model_server, models, serving, words_of

IMAGES = ROOT / "docs" / "images"
SIZE: Any = {"width": 1160, "height": 860}
EXAMPLE_TEXT = (ROOT / "src/holdfast/server/routes/example/workflow.yaml").read_text("utf-8")
EXAMPLE = ROOT / "examples" / "research"


def answer(request: dict[str, Any]) -> str:
    """The figures of what was pasted last, as a model would pick them out."""
    said = words_of(request["messages"][-1])
    found = [line.strip() for line in said.replace(". ", ".\n").splitlines() if any(sign.isdigit() for sign in line)]
    return "From what you pasted: " + " ".join(found[1:4])


def talk(served: Served) -> None:
    """A conversation that is longer than its window: a document pasted in each turn."""
    with served.client() as api:
        for path in sorted((EXAMPLE / "corpus").iterdir())[:9]:
            words = f"Which figures matter in {path.stem.replace('-', ' ')}?\n\n{path.read_text('utf-8')[:2_400]}"
            run = api.post("/api/v1/threads/queues/runs", json={"content": words}).json()["id"]
            while api.get(f"/api/v1/runs/{run}").json()["status"] == "running":
                time.sleep(0.2)


def research(served: Served, until: str, **fields: str) -> str:
    """A session of a workflow, until it is so far; gives its address."""
    with served.client() as api:
        where = str(api.post("/sessions/new", data=fields).headers["location"])
        while api.get(f"/api/v1{where}").json()["status"] != until:
            time.sleep(0.5)
        return where


def keep(page: Page, name: str) -> None:
    """The page as it is seen, as a small file."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    path = IMAGES / f"{name}.png"
    page.evaluate("window.scrollTo(0, 0)")
    page.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)
    sys.stdout.write(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes\n")


def main() -> None:
    """Draw them all."""
    with tempfile.TemporaryDirectory() as folder, model_server(answer) as played:
        shutil.copytree(EXAMPLE, Path(folder) / "workflows")
        offline = {"server": {"workflows": "workflows"}}
        with chromium_browser(shutil.which("chromium") or "chromium") as browser:
            page = browser.new_page(viewport=SIZE, reduced_motion="reduce", color_scheme="light")
            with serving(Path(folder), offline) as served:
                page.goto(f"{served.address}/login?token={served.token}")
                page.goto(served.address + research(served, "paused", text=EXAMPLE_TEXT))
                page.click("#f-2 summary")
                page.set_viewport_size({**SIZE, "height": 1200})
                keep(page, "session")
                page.set_viewport_size(SIZE)
                page.goto(served.address + research(served, "completed", name="workflow"))
                page.click("#f-2 summary")
                page.locator("#f-2 .findings a").nth(7).click()
                page.wait_for_selector("mark")
                keep(page, "evidence")
            with serving(Path(folder) / "talk", models(played, 6_000)) as served:
                talk(served)
                page.goto(f"{served.address}/login?token={served.token}")
                page.goto(f"{served.address}/threads/queues/calls/9")
                keep(page, "window")


if __name__ == "__main__":
    main()
