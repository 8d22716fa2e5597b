"""`holdfast backup`: a sound copy of the base directory while everything goes on running (O7)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.app.logs import open_config
from holdfast.app.output import ConfigOption, JsonOption, show
from holdfast.clock import SystemClock
from holdfast.durable.copying import Copy, copy_live
from holdfast.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.config.sections import Config

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog="Example: holdfast backup --to ~/backups")
def backup(
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Where the copy is put, under a name with the time.")] = Path(),
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy all state, as it is at one moment. To restore, let HOLDFAST_HOME name the copy, or put it in the place of the base directory."""
    loaded = open_config(config)
    if not loaded.base.is_dir():
        raise InputError(f"there is no base directory {loaded.base} yet, so there is nothing to copy.")
    name = f"holdfast-{SystemClock().now():%Y%m%dT%H%M%S}"
    done = copy_live(loaded.base, to.expanduser() / name)
    elsewhere = _elsewhere(loaded)
    value: dict[str, Any] = {
        "path": str(done.path),
        "files": len(done.files),
        "bytes": done.bytes,
        "left_out": dict(done.left_out),
        "elsewhere": elsewhere,
    }
    show(value, lambda console: _draw(console, done, elsewhere), as_json=as_json)


def _elsewhere(config: Config) -> list[str]:
    """What the configuration keeps outside the base directory: no copy of ours reaches it."""
    found = []
    if config.memory.dsn:
        found.append("memory is in PostgreSQL")
    if config.session.storage_backend == "postgresql":
        found.append("sessions are in PostgreSQL")
    if config.knowledge.adapter in ("postgres", "mcp"):
        found.append("knowledge is in PostgreSQL" if config.knowledge.adapter == "postgres" else "knowledge is kept by an MCP server")
    return found


def _draw(console: Console, done: Copy, elsewhere: list[str]) -> None:
    console.print(f"{len(done.files):,} files, {done.bytes:,} bytes, in {done.path}", soft_wrap=True)
    for name, why in done.left_out:
        console.print(f"left out: {name} ({why})", style="yellow", markup=False)
    for what in elsewhere:
        console.print(f"not in it: {what}; use its own backup.", style="yellow", markup=False)
