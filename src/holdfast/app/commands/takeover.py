"""`holdfast import`: take over another installation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.app.logs import open_config
from holdfast.app.output import ConfigOption, JsonOption, show
from holdfast.clock import SystemClock
from holdfast.takeover import Plan, apply, plan

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    help="Take over memory and configuration from another installation.",
    epilog="Example: holdfast import deerflow ~/deer-flow --dry-run",
    rich_markup_mode=None,
    add_completion=False,
)


@app.callback()
def importing() -> None:
    """Take over memory and configuration from another installation."""


@app.command(epilog="Example: holdfast import deerflow ~/deer-flow --dry-run")
def deerflow(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Its folder: the one with config.yaml, or its .deer-flow folder.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be taken over and write nothing.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take over memory (global, per agent, per user folder) and config from DeerFlow, once, without changing it."""
    loaded = open_config(config)
    target = loaded.file or loaded.base.parent / "config.yaml"
    found = plan(folder.expanduser(), base=loaded.base, config_target=target, keep_config=loaded.file is not None)
    if not dry_run:
        apply(found, clock=SystemClock())
    value = {
        "source": found.source,
        "base": found.base,
        "written": not dry_run,
        "files": [{"kind": s.kind, "source": s.source, "target": s.target, "facts": s.facts} for s in found.steps],
        "already_there": found.same,
        "conflicts": found.conflicts,
        "unreadable": [{"file": path, "why": why} for path, why in found.unreadable],
        "notes": found.notes,
    }
    show(value, lambda console: _draw(console, found, dry_run), as_json=as_json)
    if found.unreadable or (dry_run and found.conflicts):
        raise typer.Exit(1)


def _draw(console: Console, found: Plan, dry_run: bool) -> None:
    word = "would write" if dry_run else "wrote"
    for step in found.steps:
        facts = f" ({step.facts} facts)" if step.kind == "memory" else ""
        console.print(f"{word} {step.target}{facts}  from {step.source}", markup=False)
    for path in found.same:
        console.print(f"already there: {path}", markup=False)
    for path in found.conflicts:
        console.print(f"in the way: {path} holds something else", markup=False)
    for path, why in found.unreadable:
        console.print(f"not taken over: {path}: {why}", markup=False)
    for note in found.notes:
        console.print(note, markup=False)
    if not (found.steps or found.conflicts):
        console.print("There is nothing new to take over.")
