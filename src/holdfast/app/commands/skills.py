"""`holdfast skills`: which skills there are, and switching them on and off (A12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.app.output import Column, ConfigOption, JsonOption, listing, open_harness, plain, prose, say, show

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from holdfast.skills import Skills

app = typer.Typer(
    help="List skills, and switch them on and off.",
    epilog="Example: holdfast skills disable report-writing",
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
)

Name = Annotated[str, typer.Argument(help="The skill, as `holdfast skills list` names it.")]


@app.command("list", epilog="Example: holdfast skills list --json")
def list_skills(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show the skills, which of them agents are told of, and what is wrong with the others."""
    with open_harness(config) as harness:
        found, folder = harness.skills.all(), harness.skills.folder
    value = {
        "folder": folder,
        "skills": [
            {name: getattr(skill, name) for name in ("name", "description", "kind", "folder", "enabled", "usable", "problems")}
            for skill in found.skills
        ],
        "problems": found.problems,
    }
    show(value, lambda console: _draw(console, found, folder), as_json=as_json)


def _draw(console: Console, found: Skills, folder: Path | None) -> None:
    if not found.skills:
        where = f"in {folder}" if folder else "yet. Put folders with a SKILL.md into `skills/` beside config.yaml"
        prose(console, plain(f"There are no skills {where}."))
    else:
        columns = (Column("skill"), Column("state"), Column("kind", style="dim"), Column("description", text=True))
        rows = []
        for skill in found.skills:
            state = "on" if skill in found.enabled else "cannot be used" if skill.enabled else "off"
            rows.append((skill.name, state, skill.kind, " ".join(skill.description.split())))
        listing(console, columns, rows, text_first=False)
    for problem in found.problems:
        prose(console, plain(problem, "yellow"))


@app.command(epilog="Example: holdfast skills enable report-writing")
def enable(name: Name, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Tell agents of a skill, from their next conversation on."""
    _switch(name, config, enabled=True, as_json=as_json)


@app.command(epilog="Example: holdfast skills disable report-writing")
def disable(name: Name, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Do not tell agents of a skill any more. Its files stay where they are."""
    _switch(name, config, enabled=False, as_json=as_json)


def _switch(name: str, config: Path | None, *, enabled: bool, as_json: bool) -> None:
    with open_harness(config) as harness:
        skill = harness.skills.switch(name, enabled=enabled)
    say({"name": skill.name, "enabled": skill.enabled}, f"{skill.name} is {'on' if enabled else 'off'}.", as_json=as_json)
