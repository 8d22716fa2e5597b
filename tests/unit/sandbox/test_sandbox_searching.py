"""A10: glob and grep: what they find, what they leave out, and that no pattern makes them hang."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import InputError
from holdfast.sandbox.files import ThreadFiles
from holdfast.sandbox.paths import UPLOADS, WORKSPACE, ThreadFolders, VirtualPaths
from holdfast.sandbox.searching import SearchLimits, glob, grep


@pytest.fixture
def files(tmp_path: Path) -> Iterator[ThreadFiles]:
    with ThreadFolders(tmp_path).open("t1") as thread:
        made = ThreadFiles(VirtualPaths(thread.roots))
        made.write("src/app.py", "def main():\n    return 1\n")
        made.write("src/deep/tool.py", "# MAIN tool\nx = 'main'\n")
        made.write("readme.md", "main text\r\nsecond\r\n")
        made.write(f"{UPLOADS}/data.csv", "main,1\n")
        made.write("picture.png", b"\x89PNG\0main")
        yield made


PATTERNS = {
    "*.md": ["readme.md"],
    "**/*.py": ["src/app.py", "src/deep/tool.py"],
    "src/*": ["src/app.py", "src/deep/"],
    "s?c/*.py": ["src/app.py"],
    "[rs]*": ["readme.md", "src/"],
    f"{WORKSPACE}/src/**/*.py": ["src/app.py", "src/deep/tool.py"],
    "nothing*": [],
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_glob_finds_what_fits(files: ThreadFiles, pattern: str) -> None:
    assert glob(files, pattern).text.splitlines() == [f"{WORKSPACE}/{path}" for path in PATTERNS[pattern]]


def test_a_glob_from_above_goes_through_all_folders(files: ThreadFiles) -> None:
    assert glob(files, "/mnt/user-data/**/*.csv").text == f"{UPLOADS}/data.csv"
    assert glob(files, "uploads/*.csv", path="/mnt/user-data").text == f"{UPLOADS}/data.csv"
    assert glob(files, "*.py", path="src").text == f"{WORKSPACE}/src/app.py"


def test_a_glob_that_looked_at_too_much_says_so(files: ThreadFiles) -> None:
    found = glob(files, "**", limits=SearchLimits(entries=2))
    assert len(found.entries) == 2
    assert found.left_out is None
    assert found.text.endswith("... and more")


def test_grep_gives_path_number_and_line(files: ThreadFiles) -> None:
    found = grep(files, "main")
    assert [(line.path, line.number, line.text) for line in found.lines] == [
        (f"{WORKSPACE}/readme.md", 1, "main text"),
        (f"{WORKSPACE}/src/app.py", 1, "def main():"),
        (f"{WORKSPACE}/src/deep/tool.py", 2, "x = 'main'"),
    ]
    assert found.skipped == 1  # the picture
    assert "src/app.py:1: def main():" in found.text


def test_grep_takes_expressions_plain_text_case_and_names(files: ThreadFiles) -> None:
    assert [line.number for line in grep(files, r"^x = .main.$").lines] == [2]
    assert len(grep(files, r"m.in", ignore_case=True, include="*.py").lines) == 3
    assert len(grep(files, "MAIN", ignore_case=True, path="src").lines) == 3
    assert [line.text for line in grep(files, "main():", literal=True).lines] == ["def main():"]
    assert len(grep(files, "main", path="src/app.py").lines) == 1
    assert len(grep(files, "m[a]in", path="/mnt/user-data").lines) == 4
    assert grep(files, "nowhere").text == "Nothing fits.\n[Left out: 1 file, not text or too large.]"


@pytest.mark.parametrize("pattern", ["(", "[a", "*a", "(?P<x", "a{2,1}"])
def test_what_is_no_expression_is_refused(files: ThreadFiles, pattern: str) -> None:
    with pytest.raises(InputError, match="no regular expression"):
        grep(files, pattern)


EXPLODING = ["(a+)+$", "(a|a)*b", "(.*)*y", "(a*)*$", "(x+x+)+y", "((a+)+)+b"]


@pytest.mark.parametrize("pattern", EXPLODING)
def test_an_expression_that_explodes_is_stopped(files: ThreadFiles, pattern: str) -> None:
    files.write("trap.txt", "a" * 5000 + "x" * 5000 + "!\n")
    with pytest.raises(InputError, match="too long"):
        grep(files, pattern, path="trap.txt", limits=SearchLimits(seconds=0.5))
    assert grep(files, "m.in", path="readme.md").lines  # the next one is not held up


def test_grep_stops_at_its_limits_and_says_so(files: ThreadFiles) -> None:
    files.write("many.txt", "needle\n" * 500)
    found = grep(files, "needle", limits=SearchLimits(lines=20))
    assert len(found.lines) == 20
    assert "20 lines or more" in found.text
    assert "bytes were looked at" in (grep(files, "second", limits=SearchLimits(bytes=1)).stopped or "")
    assert grep(files, "needle", limits=SearchLimits(file_bytes=100)).lines == ()


def test_long_lines_are_shown_in_part(files: ThreadFiles) -> None:
    files.write("long.txt", "needle" + "x" * 100_000)
    assert len(grep(files, "needle", path="long.txt").lines[0].text) == 403


def test_a_text_with_strange_signs_is_searched(files: ThreadFiles) -> None:
    files.write("strange.txt", "a\u2028b\x0cneedle\n\u0085needle 2\n")
    assert [line.number for line in grep(files, "ne+dle", path="strange.txt").lines] == [1, 2]
