"""What is served to other programs: `holdfast serve` (HTTP, O1, O3), `holdfast mcp` (O5) and `holdfast acp` for editors (O1, A13)."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from holdfast.app.output import JSON_LOG, KNOWLEDGE, MEMORY, SESSIONS, command, echo, given, open_harness, say, typed
from holdfast.config.sections import Config
from holdfast.errors import ExtraMissing, InputError
from holdfast.server.access import Guard, Keys, find_token
from holdfast.validation import missing_extra

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from holdfast.durable.lock import Presence
    from holdfast.harness import Harness


app = typer.Typer(rich_markup_mode=None, add_completion=False)


@command(app, epilog="Examples: holdfast serve | holdfast serve --port 0 | OPENAI_API_KEY=$(holdfast serve --show-token) my-client")
def serve(
    host: Annotated[str | None, typer.Option("--host", help="Where to listen. Default: server.host, this machine alone.")] = None,
    port: Annotated[int | None, typer.Option("--port", "-p", min=0, max=65535, help="0 takes a free one. Default: server.port.")] = None,
    show_token: Annotated[bool, typer.Option("--show-token", help="Print the token and end.")] = False,
) -> None:
    """Serve memory, conversations, sessions and knowledge over HTTP, and any model to clients of OpenAI's and Anthropic's APIs.

    Only this machine can reach it, and only with the token. Ctrl-C stops it in order: streams end, turns keep what was said, stages come to
    their next commit, and what waits is learned from.
    """
    harness = open_harness("models", "server", *MEMORY, *KNOWLEDGE, *SESSIONS, traced=not show_token, logs=not show_token)
    token = find_token(harness.config)
    if show_token:
        harness.close()
        say({"token": token}, token)
        return
    from holdfast.server.http_server import bind, run_server

    presence = harness.attend("serve")
    settings = harness.config.server
    listening = bind(host or settings.host, settings.port if port is None else port)
    address = _address(*listening.getsockname()[:2])
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    lines = [
        f"Holdfast serves at {address} (Ctrl-C stops it).",
        f"In a browser:  {address}/login?token={token}",
        f"For a client:  OPENAI_BASE_URL={address}/v1  OPENAI_API_KEY=$({typed('serve', show_token=True, config=given().config)})",
        *_warnings(harness.config, listening.getsockname()[0]),
        *_beside(presence),
    ]

    def started() -> None:
        if JSON_LOG.is_set() and not given().as_json and not sys.stdout.isatty():  # both streams are one log where a service runs
            for line in [lines[0], *lines[3:]]:
                logging.getLogger("holdfast.server").info("%s", line)
        else:
            say({"address": address, "token": token}, "\n".join(lines))

    run_server(harness, token, listening, presence=presence, started=started)


def _address(host: str, port: int) -> str:
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 - compared
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def _beside(presence: Presence | None) -> list[str]:
    """Other servers over the same base directory: locks hold, but each has turns and streams of its own."""
    others = [who for who in presence.others() if who.startswith("holdfast serve")] if presence is not None else []
    return [f"Another server uses this base directory: {who}. A turn of a thread runs in one of them at a time." for who in others]


def _warnings(config: Config, host: str) -> list[str]:
    if host.startswith("127.") or host == "::1":
        return []
    known = ", ".join(config.server.allowed_hosts) or "none yet"
    return [f"It listens beyond this machine, without encryption. It answers for the names in server.allowed_hosts: {known}."]


@command(
    app,
    epilog="Examples: holdfast mcp | holdfast mcp --read-only | holdfast mcp --http --port 8766 | claude mcp add holdfast -- holdfast mcp",
    json=False,
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
) -> None:
    """Serve memory, knowledge, history and sessions by the Model Context Protocol. Over stdio it ends with its input."""
    with open_harness(*MEMORY, *KNOWLEDGE, *SESSIONS, "server", traced=not show_token) as harness:
        if show_token:
            echo(find_token(harness.config))
            return
        _serve_mcp(harness, read_only=read_only, speaks_for_user=speaks_for_user, port=port if http else None)


def _serve_mcp(harness: Harness, *, read_only: bool, speaks_for_user: bool, port: int | None) -> None:
    """Serve until the input ends or somebody says stop."""
    try:
        from holdfast.app.mcp_server import ServerOptions, make_server
    except ModuleNotFoundError as error:
        raise (missing_extra(error) or ExtraMissing("mcp", "mcp")) from error
    harness.attend("mcp")
    server = make_server(harness, ServerOptions(read_only=read_only, speaks_for_user=speaks_for_user))
    if port is None:
        server.run("stdio")
        return
    _serve_mcp_http(server, harness.config, port, started=lambda address: sys.stderr.write(f"holdfast mcp: {address}\n"))


@command(app, epilog="Examples: holdfast acp | holdfast acp --project ask | holdfast acp --agent coder --model large", json=False)
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
) -> None:
    """Serve the agent to an editor (Zed and others) by the Agent Client Protocol. The editor starts it; it ends with its input."""
    try:
        from holdfast.app.acp_agent import AcpOptions, serve_editor
        from holdfast.app.commands.chat import check_agent
    except ModuleNotFoundError as error:
        raise (missing_extra(error) or ExtraMissing("acp", "acp")) from error
    with open_harness("models", traced=True) as harness:
        check_agent(agent, harness.base)
        harness.attend("acp")
        asyncio.run(serve_editor(harness, AcpOptions(agent, model, None if project == "off" else project)))


_LOOPBACK = "127.0.0.1"


def _serve_mcp_http(server: MCPServer[Any], config: Config, port: int, *, started: Callable[[str], object]) -> None:
    """Serve at `http://127.0.0.1:PORT/mcp` until somebody says stop, for whoever has the token. `started` is told the address."""
    import uvicorn

    from holdfast.server.orderly import OrderlyServer

    token = find_token(config)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each small answer waits 40 ms for an acknowledgement
        try:
            listening.bind((_LOOPBACK, port))
        except OSError as error:
            raise InputError(f"port {port} cannot be used: {error.strerror}.", hint="Choose another: --port 0 takes a free one.") from error
        number = listening.getsockname()[1]
        hosts = [f"{name}:{number}" for name in (_LOOPBACK, "localhost", "[::1]")]
        door = Guard(
            server.streamable_http_app(stateless_http=True, json_response=True),
            keys=Keys(token, number),
            hosts=hosts,
            origins=[f"http://{host}" for host in hosts],
            max_body=config.server.max_upload_bytes,
            is_open=lambda path: False,
        )
        started(f"http://{_LOOPBACK}:{number}/mcp (a token is needed: holdfast mcp --show-token)")
        settings = uvicorn.Config(door, log_level="error", server_header=False, timeout_graceful_shutdown=5)
        OrderlyServer(settings).run(sockets=[listening])
