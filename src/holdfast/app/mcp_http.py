"""The MCP server over HTTP: on loopback alone, for whoever has the token, and for no page of a browser (O5)."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.config.sections import Config
from holdfast.errors import InputError
from holdfast.server.access_token import Keys, find_token
from holdfast.server.asgi_guard import Guard

if TYPE_CHECKING:
    from mcp.server import MCPServer

HOST = "127.0.0.1"


def serve_http(server: MCPServer[Any], config: Config, port: int, *, started: Callable[[str], object]) -> None:
    """Serve at `http://127.0.0.1:PORT/mcp` until somebody says stop. `started` is told the address."""
    import uvicorn

    token = find_token(config)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each small answer waits 40 ms for an acknowledgement
        try:
            listening.bind((HOST, port))
        except OSError as error:
            raise InputError(f"port {port} cannot be used: {error.strerror}.", hint="Choose another: --port 0 takes a free one.") from error
        number = listening.getsockname()[1]
        hosts = [f"{name}:{number}" for name in (HOST, "localhost", "[::1]")]
        door = Guard(
            server.streamable_http_app(stateless_http=True, json_response=True),
            keys=Keys(token, number),
            hosts=hosts,
            origins=[f"http://{host}" for host in hosts],
            max_body=config.server.max_upload_bytes,
            is_open=lambda path: False,
        )
        started(f"http://{HOST}:{number}/mcp (a token is needed: holdfast mcp --show-token)")
        settings = uvicorn.Config(door, log_level="error", server_header=False, timeout_graceful_shutdown=5)
        uvicorn.Server(settings).run(sockets=[listening])
