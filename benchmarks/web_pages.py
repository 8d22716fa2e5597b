"""What the worst pages cost to read, beside an ordinary one of the same size: `python benchmarks/web_pages.py [BYTES]`.

Each kind of page is made for the size that `web_fetch` reads at most (3,000,000 bytes) and converted in a process of its own. What counts
is the ratio to the ordinary page in the same run, of processor time and of memory.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SOURCE = str(Path(__file__).parents[1] / "src")
WORDS = "The tide is the rise and fall of sea levels caused by the moon. "


def filled(piece: str, size: int, before: str = "", after: str = "") -> str:
    return before + piece * (size // len(piece)) + after


PAGES: dict[str, Callable[[int], str]] = {
    "ordinary": lambda size: filled(f"<h2>Tides</h2><p>{WORDS * 6}</p><ul><li>one</li><li>two</li></ul>", size, "<html><body>"),
    "comments that never end": lambda size: filled("<!--", size),
    "tags that never end": lambda size: filled("<a ", size),
    "end tags": lambda size: filled("</", size),
    "closed end tags": lambda size: filled("</p>", size),
    "nested div": lambda size: filled("<div>", size),
    "nested spans with text": lambda size: filled("<b>x", size),
    "nested tables": lambda size: filled("<table><tr><td>", size),
    "cells": lambda size: filled("<td>", size, "<table><tr>"),
    "rows": lambda size: filled("<tr><td>x", size, "<table>"),
    "breaks": lambda size: filled("<br>", size),
    "list items": lambda size: filled("<li>", size, "<ul>"),
    "ampersands": lambda size: filled("&", size),
    "entities": lambda size: filled("&#x41;", size),
    "long entity": lambda size: "&#" + "1" * size,
    "cdata": lambda size: filled("<![CDATA[", size),
    "attributes": lambda size: "<p " + filled("a=1 ", size) + ">",
    "attributes without end": lambda size: '<p a="' + "x" * size,
    "many attributes of many": lambda size: filled('<p a="1" b="2" c="3">', size),
    "styles that hide": lambda size: filled('<p style="display:none">x</p>', size),
    "style sheet": lambda size: "<style>" + filled(".a{display:none}", size) + "</style>",
    "style sheet of classes": lambda size: "<style>" + "".join(f".c{n}{{display:none}}" for n in range(size // 22)) + "</style>",
    "spaces": lambda size: "<p>" + " " * size,
    "one word": lambda size: "<p>" + "x" * size,
    "links": lambda size: filled('<a href="http://x.example/">y</a>', size),
    "scripts that never end": lambda size: filled("<script>", size),
    "textarea": lambda size: filled("<textarea></textarea", size),
    "doctypes": lambda size: filled("<!DOCTYPE html>", size),
    "question marks": lambda size: filled("<?x", size),
    "null bytes": lambda size: filled("\0", size),
    "style tags that never end": lambda size: filled("<style", size),
    "a style of zeros": lambda size: '<p style="opacity:' + "0" * size + 'x">',
    "nested articles": lambda size: filled("<i>x</i>", size, "<article>" * 110),
    "nested headers": lambda size: filled("<i>x</i>", 180_000 * 8, "<header>" * 110, "<h1>t</h1>"),
    "quoted lines": lambda size: filled("x\n", size, "<blockquote>" * 110 + "<pre>"),
    "nested lists": lambda size: filled("<li>x", size, "<ul>" * 110),
    "stars": lambda size: "<p>" + "*_`#" * (size // 4),
}


def one(kind: str, size: int) -> dict[str, float]:
    """Convert one page here, and say what it took."""
    sys.path.insert(0, SOURCE)
    from holdfast.text.html import read_html

    body = PAGES[kind](size).encode()[:size]
    read_html(b"<p>warm</p>", marks=True, main_only=True)
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    text = read_html(body, charset="utf-8", marks=True, main_only=True).text
    took = time.process_time() - began
    return {"seconds": took, "mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, "characters": len(text)}


def main(size: int) -> None:
    found = {}
    for kind in PAGES:
        told = subprocess.run([sys.executable, __file__, str(size), kind], capture_output=True, text=True, check=True, timeout=600)
        found[kind] = json.loads(told.stdout)
    usual = found["ordinary"]
    for kind, cost in sorted(found.items(), key=lambda pair: -pair[1]["seconds"]):
        cost["ratio"] = cost["seconds"] / usual["seconds"]
        print(
            f"{kind:28} {cost['seconds']:7.2f} s  {cost['ratio']:6.2f} x  {cost['mib']:7.0f} MiB  {cost['characters']:>10,.0f} characters"
        )
    print(json.dumps({"bytes": size, "worst_ratio": round(max(cost["ratio"] for cost in found.values()), 2)}))


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 3_000_000
    if len(sys.argv) > 2:
        print(json.dumps(one(sys.argv[2], wanted)))
    else:
        main(wanted)
