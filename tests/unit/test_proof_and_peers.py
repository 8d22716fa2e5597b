"""P1: the long runs can be split without losing any, and the tables of the peers say who is ahead and have a place on their page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.parts.peer_runs import Row, table
from benchmarks.peers import run_all
from scripts import prove
from tests.conftest import Effort

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("whole", "shares"), [(100_000, 20), (7, 3), (2, 5)])
def test_the_shares_of_a_long_run_are_together_the_whole(whole: int, shares: int) -> None:
    parts = [Effort(True, 1, share=(number, shares))(1, whole) for number in range(1, shares + 1)]
    assert sum(parts) == whole
    assert max(parts) - min(parts) <= 1


def test_every_test_with_a_long_version_is_in_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prove, "SHARES", {"tests/property/test_context.py": 3})
    parts = prove.all_parts()
    files = {part.file for part in parts}
    assert {"tests/crash/test_worker_kill.py", "tests/property/test_framing.py", "tests/unit/test_signatures.py"} <= files
    assert "tests/conftest.py" not in files
    assert [part.name for part in parts[-3:]] == [f"tests/property/test_context.py {number}/3" for number in (1, 2, 3)]
    assert len({part.note for part in parts}) == len(parts)


def test_what_was_not_run_and_what_failed_is_said() -> None:
    done, missing = prove.Part("tests/a/test_a.py", 1, 2), prove.Part("tests/a/test_a.py", 2, 2)
    proof = {"name": "tests/a/test_a.py::test_it_holds", "seed": 7, "n": 500, "failures": 1, "seconds": 3.0, "skipped": ""}
    text = prove.table([done, missing], {done: {"proofs": [proof], "passed": False, "seconds": 60.0, "cpu_seconds": 30.0}}, 7)
    assert "| it holds (`test_a.py`); 1 of 2 shares | 500 | 1 | 3 |" in text
    assert "1 proofs, 1 failures" in text
    assert "Failed: tests/a/test_a.py 1/2." in text
    assert "Not run: tests/a/test_a.py" in text


@pytest.mark.parametrize(
    ("ours", "theirs", "better", "ahead"),
    [(1, 2, "less", "Holdfast"), (2, 1, "less", "peer"), (1, 2, "more", "peer"), (2, 2, "more", "equal"), (1, 2, None, "")],
)
def test_a_row_says_who_is_ahead(ours: float, theirs: float, better: str | None, ahead: str) -> None:
    assert Row("x", ours, theirs, better).ahead == ahead  # type: ignore[arg-type]  # one of the two words


def test_a_table_marks_the_peer_that_is_ahead() -> None:
    rows = [
        {"what": "time", "peer": "A", "ours": 2.0, "theirs": 1.0, "unit": "ms", "ahead": "peer"},
        {"what": "time", "peer": "B", "ours": 2.0, "theirs": 3.0, "unit": "ms", "ahead": "Holdfast"},
        {"what": "loss", "peer": "A", "ours": 0.0, "theirs": 0.5, "unit": "%", "ahead": "Holdfast"},
        {"what": "kills", "peer": "A", "ours": 0, "theirs": 9, "unit": "", "ahead": "Holdfast"},
        {"what": "kills", "peer": "B", "ours": 0, "theirs": 0, "unit": "", "ahead": "equal"},
    ]
    found = {
        "command": "python x.py",
        "peers": {"a": "1.0"},
        "python": "3.11",
        "cores": 2,
        "load": [1.0, 3.0],
        "rows": rows,
        "notes": ["N."],
    }
    lines = table(found).splitlines()
    assert lines[0] == "| figure | Holdfast | A | B | ahead |"
    assert lines[2] == "| time | 2 ms | 1 ms | 3 ms | **A** |"
    assert lines[3] == "| loss | 0.0 % | 50.0 % |  | Holdfast |"
    assert lines[4] == "| kills | 0 | 9 | 0 | Holdfast and B |"
    assert lines[-2:] == ["`python x.py`; a 1.0, Python 3.11, 2 cores, load 1 to 3.", "N."]


def test_every_comparison_has_its_place_on_the_page_and_pins_its_peer() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text("utf-8")
    names = run_all.comparisons()
    assert len(names) == 7
    for name in names:
        assert "| figure | X |" in run_all.written(page, name, "| figure | X |")
        text = (ROOT / f"benchmarks/peers/{name}.py").read_text("utf-8")
        packages = re.search(r"compare(?:_stores)?\(\s*\"[\w-]+\",\s*\[([^\]]*)\]", text)
        assert packages is not None
        assert all("==" in package for package in packages[1].split(",") if package.strip())
    with pytest.raises(KeyError, match="no place"):
        run_all.written(page, "nobody", "")
