"""`holdfast approve`: agree with the output of a stage that waits, and go on (W14)."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.app.commands.run import KnowledgeOption, ModelOption, RememberOption, SessionConfigOption
from holdfast.app.output import ConfigOption, JsonOption, show

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog="Example: holdfast approve research-2026-04-19-001 synthesis")
def approve(
    id: Annotated[str, typer.Argument(help="The id of the session.")],
    stage: Annotated[str | None, typer.Argument(help="The stage. Default: the only one that waits.")] = None,
    later: Annotated[bool, typer.Option("--later", help="Only note the approval; `holdfast resume` goes on.")] = False,
    model: ModelOption = None,
    session_config: SessionConfigOption = None,
    knowledge: KnowledgeOption = None,
    remember: RememberOption = True,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Agree with what a stage wrote. The session goes on at once."""
    from holdfast.app.deciding import sessions
    from holdfast.app.running import launch
    from holdfast.workflow import control

    with sessions(config, session_config) as store:
        session = control.approve(store, id, stage)
    if later or session.status == "paused":
        value = {"session": id, "status": session.status, "approved": stage}
        show(value, lambda console: console.print(f"Approved. Session {id} is {session.status}.", markup=False), as_json=as_json)
        return
    launch(
        lambda launcher: launcher.resume(id),
        config=config,
        session_config=session_config,
        model=model,
        knowledge=knowledge,
        remember=remember,
        as_json=as_json,
    )
