"""`holdfast reject`: refuse the output of a stage that waits, and say why (W14)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.app.commands.run import SessionConfigOption
from holdfast.app.output import ConfigOption, JsonOption, show

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog='Example: holdfast reject research-2026-04-19-001 synthesis --why "The second figure has no source"')
def reject(
    id: Annotated[str, typer.Argument(help="The id of the session.")],
    stage: Annotated[str | None, typer.Argument(help="The stage. Default: the only one that waits.")] = None,
    why: Annotated[str, typer.Option("--why", help="The reason; the stage is told it when it runs again.")] = "",
    session_config: SessionConfigOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Refuse what a stage wrote. The session halts; `holdfast resume` runs the stage again with the reason."""
    _reject(id, stage, why, session_config, config, as_json=as_json)


def _reject(id: str, stage: str | None, why: str, session_config: Path | None, config: Path | None, *, as_json: bool) -> None:
    from holdfast.app.deciding import sessions
    from holdfast.workflow import control

    with sessions(config, session_config) as store:
        session = control.reject(store, id, stage, why=why)
    refused = session.error.stage if session.error is not None else stage
    line = f"Rejected {refused}. `holdfast resume {id}` runs it again."
    show(
        {"session": id, "status": session.status, "rejected": refused, "why": why},
        lambda console: console.print(line, markup=False, soft_wrap=True),
        as_json=as_json,
    )
