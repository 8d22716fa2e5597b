"""`holdfast cancel`: stop a running session from another terminal (W19)."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.app.commands.run import SessionConfigOption
from holdfast.app.output import ConfigOption, JsonOption, show

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog="Example: holdfast cancel research-2026-04-19-001")
def cancel(
    id: Annotated[str, typer.Argument(help="The id of the session.")],
    wait: Annotated[float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait until it has stopped.")] = 10.0,
    session_config: SessionConfigOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop a session at once. What is completed is kept, and `holdfast resume` goes on."""
    from holdfast.app.deciding import sessions
    from holdfast.workflow.control import cancel as ask

    with sessions(config, session_config) as store:
        session = ask(store, id, wait=wait)
    stopped = session.status != "running"
    line = f"Session {id} is {session.status}." if stopped else f"Session {id} was asked to stop and has not stopped yet."
    show(
        {"session": id, "status": session.status, "stopped": stopped},
        lambda console: console.print(line, markup=False, soft_wrap=True),
        as_json=as_json,
    )
    if not stopped:
        raise typer.Exit(1)
