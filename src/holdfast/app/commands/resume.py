"""`holdfast resume`: go on with a session that was stopped, halted or killed (W6)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.app.commands.run import KnowledgeOption, ModelOption, RememberOption, SessionConfigOption
from holdfast.app.output import ConfigOption, JsonOption

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog="Example: holdfast resume research-2026-04-19-001")
def resume(
    id: Annotated[str, typer.Argument(help="The id of the session; `holdfast sessions` lists them.")],
    workflow: Annotated[
        Path | None, typer.Option("--workflow", "-w", metavar="FILE", help="The workflow, where the session does not say which it was.")
    ] = None,
    accept_changes: Annotated[bool, typer.Option("--accept-changes", help="Go on although the workflow file has changed since.")] = False,
    as_started: Annotated[
        bool, typer.Option("--as-started", help="Go on with the workflow as it was, whatever the file says now.")
    ] = False,
    model: ModelOption = None,
    session_config: SessionConfigOption = None,
    knowledge: KnowledgeOption = None,
    remember: RememberOption = True,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Go on with a session. Completed stages do not run again; the interrupted one starts from its beginning."""
    from holdfast.app.running import launch

    launch(
        lambda launcher: launcher.resume(id, workflow=workflow, accept_changes=accept_changes, as_started=as_started),
        config=config,
        session_config=session_config,
        model=model,
        knowledge=knowledge,
        remember=remember,
        as_json=as_json,
    )
