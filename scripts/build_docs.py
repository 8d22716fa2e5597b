"""Builds the documentation site into build/site, offline: the pages of docs/, and a reference made from the code (O1, P1).

Run it by `make docs`. The pages are copied to build/docs first, so that nothing that is made lands beside what is written.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

import holdfast
from holdfast.app.main import app

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
GROUPS = {
    "Working memory": ("SummarizationMiddleware", "FileArchive", "Budget", "TokenCounter", "open_counter"),
    "Memory of the user": ("MemoryMiddleware", "MemoryService"),
    "Workflows and sessions": ("run_workflow", "resume", "result_of", "StageAgent", "StageRequest", "StageResult", "SessionStore"),
    "Knowledge": ("open_knowledge", "KnowledgeStore", "Record"),
    "Agents": ("build", "Harness", "make_lead_agent", "LeadAgent", "Conversation"),
    "Configuration": ("load_config", "Config"),
}


def main(builder: str) -> int:
    """Write the pages that are made, then let `builder` (the path of zensical) make the site. Any issue that it finds is an error."""
    pages = BUILD / "docs"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(ROOT / "docs", pages)
    (pages / "reference").mkdir()
    (pages / "reference/python.md").write_text(python_reference(), "utf-8")
    (pages / "reference/commands.md").write_text(command_reference(), "utf-8")
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        (pages / name.lower()).write_text((ROOT / name).read_text("utf-8").replace("](docs/", "]("), "utf-8")
    return subprocess.run([builder, "build", "--clean", "--strict"], cwd=ROOT, check=False).returncode  # noqa: S603  # the tool that `make docs` installed


def python_reference() -> str:
    """A page with what `from holdfast import ...` gives, by its docstrings."""
    lines = ["# Python", "", "Everything here is imported from `holdfast` itself."]
    for group, names in GROUPS.items():
        lines += ["", f"## {group}"]
        for name in names:
            found = getattr(holdfast, name)
            lines += ["", f"::: {found.__module__}.{name}"]
    lines += ["", "## Errors", "", "::: holdfast.errors"]
    return "\n".join([*lines, ""])


def command_reference() -> str:
    """A page with the help of every command, as it is printed."""
    return "\n".join(["# Commands", "", *_helped(typer.main.get_command(app), ("holdfast",))])


def _helped(command: Any, path: tuple[str, ...]) -> Iterator[str]:
    """The help of a command and of all below it. Typer's own classes are private, hence Any."""
    context = command.make_context(" ".join(path), [], resilient_parsing=True)
    yield from (f"{'#' * min(1 + len(path), 4)} {' '.join(path)}", "", "```text", command.get_help(context).strip(), "```", "")
    for name in list(getattr(command, "commands", ())):
        _, below, _ = command.resolve_command(context, [name])
        if not below.hidden:
            yield from _helped(below, (*path, name))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
