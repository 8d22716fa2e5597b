"""The MCP server over HTTP: on loopback alone, for whoever has the token, and for no page of a browser (O5)."""

from __future__ import annotations

import hmac
import json
import secrets
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from holdfast.config.sections import Config
from holdfast.durable.replace import replace_text
from holdfast.errors import InputError

if TYPE_CHECKING:
    from mcp.server import MCPServer

FILE = "server.token"
HOST = "127.0.0.1"
_SHORTEST = 16

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def find_token(config: Config) -> str:
    """The token of the configuration (`server.token`), else one that is made once and kept in the base directory, for its owner alone."""
    given = config.server.token
    if given is None:
        path = config.base / FILE
        if not path.exists():
            config.base.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_text(path, f"hf-{secrets.token_urlsafe(32)}\n", mode=0o600)
        given = path.read_text("utf-8").strip()
    if len(given) < _SHORTEST or not given.isascii() or not given.isprintable() or " " in given:
        raise InputError(f"the token needs at least {_SHORTEST} ASCII letters or digits.", hint="Leave `server.token` out: one is made.")
    return given


class Door:
    """Lets a request pass that is for this host, from no page of another origin, and has the token."""

    def __init__(self, app: App, token: str, hosts: frozenset[str]) -> None:
        self._app, self._token, self._hosts = app, token.encode(), hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, and hand on."""
        if scope["type"] == "http" and (refusal := self._refusal(scope)) is not None:
            await _answer(send, *refusal)
        elif scope["type"] in ("http", "lifespan"):
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        found: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in found and name in (b"host", b"authorization", b"origin"):
                return 400, "A header stands twice."
            found[name] = value
        if found.get(b"host", b"").decode("latin-1").lower() not in self._hosts:
            return 421, "This server does not answer for that host name."
        origin = found.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower().removeprefix("http://") not in self._hosts:
            return 403, "Pages of other origins may not use this server."
        given = found.get(b"authorization", b"")
        if given[:7].lower() != b"bearer " or not hmac.compare_digest(given[7:].strip(), self._token):
            return 401, "A token is needed: `Authorization: Bearer ...`. `holdfast mcp --show-token` prints it."
        return None


async def _answer(send: Send, status: int, detail: str) -> None:
    body = json.dumps({"status": status, "detail": detail}).encode()
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def serve_http(server: MCPServer[Any], config: Config, port: int, *, started: Callable[[str], object]) -> None:
    """Serve at `http://127.0.0.1:PORT/mcp` until somebody says stop. `started` is told the address."""
    import uvicorn

    token = find_token(config)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except OSError as error:
            raise InputError(f"port {port} cannot be used: {error.strerror}.", hint="Choose another: --port 0 takes a free one.") from error
        number = listening.getsockname()[1]
        hosts = frozenset(f"{name}:{number}" for name in (HOST, "localhost", "[::1]"))
        app = server.streamable_http_app(stateless_http=True, json_response=True)
        started(f"http://{HOST}:{number}/mcp (a token is needed: holdfast mcp --show-token)")
        settings = uvicorn.Config(Door(app, token, hosts), log_level="error", server_header=False, timeout_graceful_shutdown=5)
        uvicorn.Server(settings).run(sockets=[listening])
