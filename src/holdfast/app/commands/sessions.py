"""`holdfast sessions`: all sessions in a table (O1)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.app.commands.run import SessionConfigOption
from holdfast.app.output import ConfigOption, JsonOption, show
from holdfast.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_COLOURS = {"completed": "green", "halted": "red", "damaged": "red", "running": "cyan"}


@app.command(epilog="Examples: holdfast sessions | holdfast sessions --status halted | holdfast sessions --json")
def sessions(
    status: Annotated[
        str | None, typer.Option("--status", help="Only these: ready, running, interrupted, paused, halted, completed, cancelled, damaged.")
    ] = None,
    last: Annotated[int | None, typer.Option("--last", min=1, metavar="N", help="Only the newest N.")] = None,
    session_config: SessionConfigOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the sessions, newest first: how far each came, and what keeps it."""
    from holdfast.app import deciding

    known = ("ready", "running", "interrupted", "paused", "halted", "completed", "cancelled", "damaged")
    if status is not None and status not in known:
        raise InputError(f"{status!r} is not a status.", hint=f"Use one of {', '.join(known)}.")
    with deciding.sessions(config, session_config) as store:
        rows: list[dict[str, Any]] = []
        for brief in store.list():
            found = "damaged" if brief.problem is not None else str(brief.status)
            if found == "running" and store.owner(brief.workflow_id) is None:
                found = "interrupted"  # it says that it runs, and nobody runs it
            if status in (None, found):
                rows.append(asdict(brief) | {"status": found})
    rows = rows[:last]
    show({"sessions": rows}, lambda console: _draw(console, rows, filtered=status is not None), as_json=as_json)


def _draw(console: Console, rows: list[dict[str, Any]], *, filtered: bool) -> None:
    from rich.table import Table

    from holdfast.app.memory_tables import plain

    if not rows:
        console.print(
            "No session has this status." if filtered else "There are no sessions yet. `holdfast run FILE` starts one.", markup=False
        )
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("id", "status", "stage", "progress", "updated", "task or problem"):
        table.add_column(name, no_wrap=name not in ("id", "task or problem"), overflow="fold")
    for row in rows:
        status = row["status"]
        progress = f"{row['completed']}/{row['total'] if row['total'] is not None else '?'}" if status != "damaged" else ""
        said = row["problem"] or row["error"] or row["task"]
        stage = row["current_stage"] or row["next_stage"] or ""
        table.add_row(
            plain(row["workflow_id"]),
            plain(status, _COLOURS.get(status, "yellow")),
            plain(stage if status != "completed" else ""),
            progress,
            plain(row["updated_at"][:16].replace("T", " ")),
            plain(" ".join(said.split())[:160]),
        )
    console.print(table)
