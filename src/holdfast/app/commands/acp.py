"""`holdfast acp`: the agent in the panel of an editor, by the Agent Client Protocol over stdio (O1, A13)."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import typer

from holdfast.app.commands.chat import check_agent
from holdfast.app.output import ConfigOption, open_harness
from holdfast.errors import ExtraMissing
from holdfast.imports import missing_extra

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog="Examples: holdfast acp | holdfast acp --project ask | holdfast acp --agent coder --model large")
def acp(
    agent: Annotated[str | None, typer.Option("--agent", "-a", metavar="NAME", help="An agent with a memory of its own.")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="A model of config.yaml. Default: the first one.")] = None,
    project: Annotated[
        Literal["read", "ask", "write", "off"],
        typer.Option(
            "--project",
            metavar="MODE",
            help="What may be done in the folder of the editor at first: read, ask (each change waits for you), write, or off.",
        ),
    ] = "read",
    config: ConfigOption = None,
) -> None:
    """Serve the agent to an editor (Zed and others) by the Agent Client Protocol. The editor starts it; it ends with its input."""
    try:
        from holdfast.app.acp_agent import AcpOptions, serve_editor
    except ModuleNotFoundError as error:
        raise (missing_extra(error) or ExtraMissing("acp", "acp")) from error
    with open_harness(config, "models", traced=True) as harness:
        check_agent(agent, harness.base)
        asyncio.run(serve_editor(harness, AcpOptions(agent, model, None if project == "off" else project)))
