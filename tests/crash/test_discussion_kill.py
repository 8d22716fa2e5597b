"""W6, W12: kill -9 in any turn of a discussion, then resume: it goes on after the last turn that was kept, and nothing is said twice."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Effort
from tests.crash.discussion_forge import ID, NAMES, TURNS
from tests.crash.test_workflow_kill import Forge, quick  # noqa: F401 - a fixture


@pytest.fixture
def talking() -> Iterator[Forge]:
    found = Forge("tests.crash.discussion_forge")
    yield found
    found.close()


def kept(base: Path) -> int:
    """How many turns are on disk."""
    file = base / "sessions" / ID / "journal" / "panel.jsonl"
    lines = file.read_bytes().split(b"\n") if file.exists() else []
    return sum(b'"kind":"turn"' in line.replace(b" ", b"") for line in lines[:-1])


def asked(base: Path) -> list[tuple[int, str, int]]:
    file = base / "asked"
    found = [line.split() for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    return [(int(child), who, int(turns)) for child, who, turns in found]


def charged(document: dict[str, Any]) -> dict[str, int]:
    """The tokens of each participant in the accounts of the session."""
    found = dict.fromkeys(NAMES, 0)
    for entry in document["usage"]["entries"]:
        if entry["subagent"] in found:
            found[entry["subagent"]] += entry["input_tokens"] + entry["output_tokens"]
    return found


def reached(base: Path, calls: int) -> Callable[[], bool]:
    """Whether the model has been asked so often."""
    return lambda: len(asked(base)) >= calls


@pytest.mark.prove
@pytest.mark.timeout(1200)
def test_a_discussion_that_is_killed_in_any_turn_goes_on_after_the_last_one_that_was_kept(
    talking: Forge,
    quick: Path,  # noqa: F811
    effort: Effort,
) -> None:
    choose = random.Random(effort.seed)
    (quick / "plain").mkdir()
    assert talking.run("run", quick / "plain")[0] == 0
    transcript = Path("sessions", ID, "stages", "01-panel", "transcript.md")
    undisturbed = (quick / "plain" / transcript).read_text("utf-8")
    assert undisturbed.count("\n## ") == TURNS
    children, killed = 1, 0
    for number in range(effort(4, 100)):
        base = quick / str(number)
        base.mkdir()
        before: dict[int, int] = {}
        command = "run"
        for _ in range(choose.randint(1, 3)):
            so_far = len(asked(base)) + choose.randint(0, TURNS // 2)
            code, _ = talking.run(command, base, choose.uniform(0, 0.006), reached(base, so_far))
            killed += code == -signal.SIGKILL
            command = "resume"
            children += 1
            before[children] = kept(base)
        code, _ = talking.run(command, base)
        children += 1
        if code != 0:
            effort.fail(f"run {number}: the last process ended with {code}: {[path.read_text() for path in base.glob('error-*')]}")
            continue
        if (base / transcript).read_text("utf-8") != undisturbed:
            effort.fail(f"run {number}: the transcript is not that of an undisturbed talk")
        again = [(child, who, turns) for child, who, turns in asked(base) if who in NAMES and turns < before.get(child, 0)]
        if again:
            effort.fail(f"run {number}: asked again although it was kept: {again}")
        document = json.loads((base / "sessions" / f"{ID}.json").read_bytes())
        about = document["stage_outputs"]["panel"]["discussion"]
        spent = {name: one["tokens"] for name, one in about["participants"].items()}
        if charged(document) != spent:
            effort.fail(f"run {number}: {charged(document)} was charged, and {spent} was used (T5)")
        if about["turns"] != TURNS or sum(one["turns"] for one in about["participants"].values()) != TURNS:
            effort.fail(f"run {number}: {about}")
    assert killed > effort.runs / 3, "the kills came too late to mean anything"
