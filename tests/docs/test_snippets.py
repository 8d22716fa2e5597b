"""P1, O1: every Python block and every `holdfast` line of the README and the docs runs as it is printed there.

A block that cannot run here has a comment before it, `<!-- not run: the reason -->`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer import Context
from typer.core import TyperGroup
from typer.main import get_command

from holdfast.app.main import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"(?P<why><!-- not run: [^>]+ -->\n)?```(?P<kind>python|sh)\n(?P<code>.*?)```", re.DOTALL)


def snippets() -> list[tuple[str, str, str]]:
    """(name, kind, code) of every block that is to run."""
    found = []
    for page in PAGES:
        text = page.read_text("utf-8")
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            if match["why"] is None:
                found.append((f"{page.name}:{line}", match["kind"], match["code"]))
    return found


def clean_environment(home: Path) -> dict[str, str]:
    """No keys and no settings of the machine: what the docs promise holds on a bare one."""
    keep = {name: os.environ[name] for name in ("PATH", "LANG", "HOME") if name in os.environ}
    return {**keep, "PATH": f"{Path(sys.executable).parent}:{keep.get('PATH', '')}", "HOLDFAST_HOME": str(home), "COLUMNS": "120"}


@pytest.mark.parametrize(("name", "code"), [(n, c) for n, k, c in snippets() if k == "python"])
def test_the_python_block_runs(name: str, code: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env=clean_environment(tmp_path / "home"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{name}\n{done.stderr}"
    expected = re.findall(r"^(?:print\(.*\)|[^#\n]*)  # -> (.*)$", code, re.MULTILINE)
    for line in expected:
        assert line in done.stdout, f"{name}: {line!r} was not printed\n{done.stdout}"


@pytest.mark.parametrize(("name", "code"), [(n, c) for n, k, c in snippets() if k == "sh" and re.search(r"^holdfast ", c, re.MULTILINE)])
def test_the_holdfast_lines_run(name: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")  # as in the project's folder
    for line in code.splitlines():
        if not line.startswith("holdfast "):
            continue
        words = shlex.split(line, comments=True)
        done = subprocess.run(
            words,
            cwd=tmp_path,
            env=clean_environment(tmp_path / "home"),
            input="hello\n" if words == ["holdfast", "chat"] else "",  # somebody has to say something in a chat
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {line}\n{done.stdout}\n{done.stderr}"


def test_the_pages_have_snippets_at_all() -> None:
    assert len(snippets()) >= 5


LINK = re.compile(r"\]\((?!https?:|#)(?P<to>[^)#\s]+)")


def test_every_page_is_in_the_site_and_every_link_leads_to_a_file() -> None:
    """O1, P1: `make docs` builds the site from the same list, and refuses what leads nowhere."""
    listed = set(re.findall(r'= "([\w/-]+\.md)"', (ROOT / "zensical.toml").read_text("utf-8")))
    written = {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]}
    made = {"reference/commands.md", "reference/python.md", "changelog.md", "contributing.md"}
    assert listed - made == written
    broken = [
        f"{page.relative_to(ROOT)}: {match['to']}"
        for page in [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
        for match in LINK.finditer(page.read_text("utf-8"))
        if not (page.parent / match["to"]).exists()
    ]
    assert broken == []


INLINE = re.compile(r"`holdfast ((?:[a-z][a-z-]*)(?: [a-z][a-z-]*)*)")


def known_command(words: list[str]) -> bool:
    """Whether these words lead to a command: what follows the name of one is its arguments."""
    here: Any = get_command(app)
    for word in words:
        if not isinstance(here, TyperGroup):
            break
        if word not in here.commands:
            return False
        here = here.resolve_command(Context(here), [word])[1]  # imports it
    return True


def test_every_command_that_a_sentence_names_is_there() -> None:
    """O1: as in "`holdfast memory review accept ID` lets it in"."""
    named = [(page.name, match[1].split()) for page in PAGES for match in INLINE.finditer(page.read_text("utf-8"))]
    assert len(named) > 50
    assert [f"{page}: holdfast {' '.join(words)}" for page, words in named if not known_command(words)] == []
