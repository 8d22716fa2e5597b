"""`holdfast mcp`: memory, knowledge, history and sessions for any program that speaks MCP, over stdio or HTTP on this machine (O5)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.app.output import KNOWLEDGE, MEMORY, SESSIONS, ConfigOption, echo, open_harness
from holdfast.errors import ExtraMissing
from holdfast.imports import missing_extra

if TYPE_CHECKING:
    from holdfast.harness import Harness

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog="Examples: holdfast mcp | holdfast mcp --read-only | holdfast mcp --http --port 8766 | claude mcp add holdfast -- holdfast mcp"
)
def mcp(
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer only what looks, nothing that changes.")] = False,
    http: Annotated[bool, typer.Option("--http", help="Streamable HTTP on this machine, with a token, instead of stdio.")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="With --http: where to listen; 0 takes a free one.")] = 8766,
    speaks_for_user: Annotated[
        bool,
        typer.Option(
            "--speaks-for-user", help="Believe the client when it says what the user said: remembered at once, not held for review."
        ),
    ] = False,
    show_token: Annotated[bool, typer.Option("--show-token", help="Print the token that --http asks for, and end.")] = False,
    config: ConfigOption = None,
) -> None:
    """Serve memory, knowledge, history and sessions by the Model Context Protocol. Over stdio it ends with its input."""
    with open_harness(config, *MEMORY, *KNOWLEDGE, *SESSIONS, "server", traced=not show_token) as harness:
        if show_token:
            from holdfast.server.access_token import find_token

            echo(find_token(harness.config))
            return
        serve(harness, read_only=read_only, speaks_for_user=speaks_for_user, port=port if http else None)


def serve(harness: Harness, *, read_only: bool, speaks_for_user: bool, port: int | None) -> None:
    """Serve until the input ends or somebody says stop."""
    try:
        from holdfast.app.mcp_server import ServerOptions, make_server
    except ModuleNotFoundError as error:
        raise (missing_extra(error) or ExtraMissing("mcp", "mcp")) from error
    server = make_server(harness, ServerOptions(read_only=read_only, speaks_for_user=speaks_for_user))
    if port is None:
        server.run("stdio")
        return
    from holdfast.app.mcp_http import serve_http

    serve_http(server, harness.config, port, started=lambda address: sys.stderr.write(f"holdfast mcp: {address}\n"))
