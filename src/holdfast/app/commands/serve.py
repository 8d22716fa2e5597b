"""`holdfast serve`: the HTTP API and the gateway, on this machine and with a token (O1, O3)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.app.output import KNOWLEDGE, MEMORY, SESSIONS, ConfigOption, JsonOption, open_harness, say

if TYPE_CHECKING:
    from holdfast.config.sections import Config

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog="Examples: holdfast serve | holdfast serve --port 0 | OPENAI_API_KEY=$(holdfast serve --show-token) my-client")
def serve(
    host: Annotated[str | None, typer.Option("--host", help="Where to listen. Default: server.host, this machine alone.")] = None,
    port: Annotated[int | None, typer.Option("--port", "-p", min=0, max=65535, help="0 takes a free one. Default: server.port.")] = None,
    show_token: Annotated[bool, typer.Option("--show-token", help="Print the token and end.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Serve memory, conversations, sessions and knowledge over HTTP, and any model to clients of OpenAI's and Anthropic's APIs.

    Only this machine can reach it, and only with the token. Ctrl-C stops it in order: streams end, turns keep what was said, stages come to
    their next commit, and what waits is learned from.
    """
    from holdfast.server.access_token import find_token

    harness = open_harness(config, "models", "server", *MEMORY, *KNOWLEDGE, *SESSIONS, traced=not show_token)
    token = find_token(harness.config)
    if show_token:
        harness.close()
        say({"token": token}, token, as_json=as_json)
        return
    from holdfast.server.http_server import bind, run_server

    settings = harness.config.server
    listening = bind(host or settings.host, settings.port if port is None else port)
    address = _address(*listening.getsockname()[:2])
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    lines = [
        f"Holdfast serves at {address} (Ctrl-C stops it).",
        f"In a browser:  {address}/login?token={token}",
        f"For a client:  OPENAI_BASE_URL={address}/v1  OPENAI_API_KEY={token}",
        *_warnings(harness.config, listening.getsockname()[0]),
    ]
    run_server(harness, token, listening, started=lambda: say({"address": address, "token": token}, "\n".join(lines), as_json=as_json))


def _address(host: str, port: int) -> str:
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 - compared
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def _warnings(config: Config, host: str) -> list[str]:
    if host.startswith("127.") or host == "::1":
        return []
    known = ", ".join(config.server.allowed_hosts) or "none yet"
    return [f"It listens beyond this machine, without encryption. It answers for the names in server.allowed_hosts: {known}."]
