"""O1, C6, A14: what stands on a terminal of 80 and 120 columns, and how on one of 40: a real pseudo-terminal, with realistic content.

The screens are in `tests/fixtures/screens/`, one file for each width. Where a change is meant, write them anew and look at them:

    python -m tests.integration.test_terminal_screens
"""

from __future__ import annotations

import difflib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "screens"
WIDTHS = (80, 120)
NARROW = 40
THREADS = ("thread-1m7h87219f30c38b5ae", "thread-1m7h872199f51bff25e")
SESSION = "vector-databases-2026-04-19-001"
KEPT = (
    "threads",
    "threads --last 1",
    "history",
    "history staging",
    "history staging search where does heron stand",
    "history staging show #1 --around 1",
    "memory show",
    "memory search lisbon",
    "memory history",
    "memory review",
    "memory show --injected",
    "knowledge search throughput of Harrow",
    "knowledge search heat loss of the house",
    "sessions",
    f"session show {SESSION}",
    "session report heat-pumps-2026-04-20-001",
    f"session diff {SESSION} 002-web_research",
    "skills list",
    "budget --window 8000",
)
"""What is compared word for word."""
CHAT = "chat --thread new-talk"
TYPED = {CHAT: "/help\n/threads\n/title\nWhat is the heat loss of the house?\n/history\n/memory lisbon\n/quit\n"}
"""What a person types into a command."""
LOOKED_AT = (
    "config check",
    "config check --all --config models.yaml",
    "doctor",
    "models list --config models.yaml",
    "knowledge stats",
    "memory add Has a cat that is called Pixel and sleeps on the keyboard whenever a deadline is near",
    "memory undo",
    "memory forget --yes fact_1m7h87219a72043e53f",
    "memory edit topOfMind Nothing much, for the first time in months, and it feels a little strange",
    "knowledge add The cat sleeps on the keyboard --tag house",
    "knowledge import notes",
    "knowledge forget --yes --text keyboard",
    f"session fork {SESSION} --from 002-web_research",
    f"session restore {SESSION} 002-web_research",
    f"session export {SESSION} --markdown",
    f"cancel {SESSION}",
    "sessions --status completed",
    "prune --dry-run --sessions 0",
    "backup --to .",
    "run research.yaml --no-remember",
    "history nobody",
    "config init --output other.yaml",
    *(f"{name} --help" for name in ("", "chat", "threads", "history", "run", "resume", "session", "sessions", "memory", "memory add")),
    *(
        f"{name} --help"
        for name in ("knowledge", "knowledge search", "knowledge import", "config", "doctor", "models", "prune", "eval recall")
    ),
)
"""What depends on the machine, the hour or the words of others: only how it stands on the screen is looked at."""


def taken() -> dict[int, dict[str, str]]:
    """The screens of all commands, by width."""
    narrow = {**dict.fromkeys((*KEPT, *LOOKED_AT), ""), **TYPED}
    asked = json.dumps({NARROW: narrow, 80: narrow, 120: {**dict.fromkeys((*KEPT, "config check", "doctor"), ""), **TYPED}})
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("terminal_screens.py")), "--json"],
        input=asked,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {int(width): screens for width, screens in json.loads(done.stdout).items()}


@pytest.fixture(scope="module")
def screens() -> dict[int, dict[str, str]]:
    return taken()


def as_file(screens: dict[str, str]) -> str:
    """All of them one after the other; of a search the best hit, since how much else is worth showing is a matter of the ranking."""
    return "".join(f"$ holdfast {words}\n{best_hit(screens[words]) if ' search ' in words else screens[words]}\n" for words in KEPT)


def best_hit(seen: str) -> str:
    return re.split(r"^(?:2\. |#2 |#3 |\d+ records? with )", seen, maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_screens_are_those_that_were_looked_at(width: int, screens: dict[int, dict[str, str]]) -> None:
    """O1: tables, prose and snippets, word for word."""
    wanted, found = (FIXTURES / f"{width}.txt").read_text("utf-8"), as_file(screens[width])
    assert found == wanted, "\n".join(difflib.unified_diff(wanted.splitlines(), found.splitlines(), "kept", "now", lineterm=""))


@pytest.mark.parametrize("width", (*WIDTHS, NARROW))
def test_no_line_is_broken_by_the_terminal(width: int, screens: dict[int, dict[str, str]]) -> None:
    """O1: a line is wider than the terminal only where it is one word (a path, an address), or a command that is to be pasted."""
    for words, seen in screens[width].items():
        assert seen.strip(), words
        assert "Traceback" not in seen, seen
        for line in seen.splitlines():
            if len(line) > width and not re.match(r"\s*(HOLDFAST_\w+=\S+ )?\S*holdfast ", line):
                assert len(re.sub(r"^[\s•→+|-]*", "", line).split()) == 1, f"{words}: {line}"


@pytest.mark.parametrize("width", (*WIDTHS, NARROW))
def test_ids_are_whole(width: int, screens: dict[int, dict[str, str]]) -> None:
    """O1, A14: what one command prints the next one takes."""
    here = screens[width]
    for words, ids in {
        "threads": (*THREADS, "staging"),
        "history staging": ("message-1m7h87219nz0001", "message-1m7h87219nz0003"),
        "sessions": (SESSION, "heat-pumps-2026-04-20-001"),
        CHAT: (*THREADS, "staging"),
    }.items():
        for id in ids:
            assert re.search(rf"(?<!\S){re.escape(id)}(?!\S)", here[words]), f"{id} is not whole in {words}:\n{here[words]}"
    facts = re.findall(r"fact_\w+", here["memory show"])
    assert len(facts) == 4 and all(len(fact) == 24 for fact in facts)


def test_nothing_is_cut_on_a_very_narrow_terminal(screens: dict[int, dict[str, str]]) -> None:
    """O1: stages have their whole names while they run, and a command of a chat stands above what it does."""
    ran = screens[NARROW]["run research.yaml --no-remember"]
    assert all(re.search(rf"✓\s+{stage}\b", ran) for stage in ("plan", "research", "report")) and "…" not in ran.split("✓")[-1]
    assert re.search(r"rese…|repo…|sec…", ran) is None
    assert "/memory [WORDS | undo [CHANGE]]\n    what is known about you" in screens[NARROW][CHAT]


if __name__ == "__main__":
    for width, found in taken().items():
        if width not in WIDTHS:
            continue
        FIXTURES.mkdir(exist_ok=True)
        (FIXTURES / f"{width}.txt").write_text(as_file(found), "utf-8")
