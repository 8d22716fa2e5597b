"""The HTTP server: routes, the door in front of them, how errors are answered, and uvicorn, which is stopped in order.

Streams are told first, so that nobody waits for them, and the process ends with 0.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware

from holdfast import __version__
from holdfast.durable.lock import Presence
from holdfast.errors import HoldfastError, InputError
from holdfast.harness import Harness
from holdfast.redaction import visible
from holdfast.server import wire
from holdfast.server.access import App, Guard, Keys, Receive, Scope, Send
from holdfast.server.gateway import gateway_routes
from holdfast.server.orderly import OrderlyServer
from holdfast.server.routes import (
    about,
    html_pages,
    knowledge_routes,
    memory_routes,
    session_pages,
    sessions_api,
    thread_pages,
    threads_api,
)
from holdfast.server.server_metrics import ServerMetrics
from holdfast.server.services import DISPLACED, Services
from holdfast.tracing import below_request

_access = logging.getLogger("holdfast.server.access")


class _Server(OrderlyServer):
    """Tells the streams to end before it waits for them."""

    def __init__(self, config: uvicorn.Config, leaving: Callable[[], None]) -> None:
        super().__init__(config)
        self._leaving = leaving

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._leaving()
        super().handle_exit(sig, frame)


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens there. InputError, in words, where that is not possible."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each small answer waits 40 ms for an acknowledgement
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        why = error.strerror or type(error).__name__
        elsewhere = "An address of this machine: `--host 127.0.0.1`." if error.errno in (errno.EADDRNOTAVAIL, None) else None
        hint = elsewhere or "`--port 0` takes a free one."
        raise InputError(f"nothing can listen on {host}:{port}: {why}.", hint=hint) from error
    return made


def run_server(
    harness: Harness,
    token: str,
    listening: socket.socket,
    *,
    presence: Presence | None = None,
    started: Callable[[], None] | None = None,
) -> None:
    """Serve until somebody says stop. The harness is closed at the end. By `presence` it notices that its base directory was replaced."""
    settings = harness.config.server
    host, port = listening.getsockname()[:2]
    services = Services(harness, Keys(token, port), presence)
    hosts = hosts_of(settings.host if settings.host != host else host, port, settings.allowed_hosts) | hosts_of(host, port)
    origins = {f"http://{name}" for name in hosts} | {origin.lower().rstrip("/") for origin in settings.cors}
    config = uvicorn.Config(
        make_app(services, hosts=hosts, origins=origins),
        lifespan="on",
        server_header=False,
        log_config=None,
        access_log=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(settings.shutdown_seconds) + 1,
        h11_max_incomplete_event_size=65_536,
        limit_concurrency=2_000,
        ws="none",
    )
    server = _Server(config, services.stop_streams)

    async def main() -> None:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if server.started and started is not None:
            started()
        await serving

    asyncio.run(main())


API = (about.router, memory_routes.router, knowledge_routes.router, threads_api.router, sessions_api.router, sessions_api.queue_router)
PAGES = (about.pages, session_pages.router, thread_pages.router, memory_routes.pages, knowledge_routes.pages)
_SPARE = 1_000_000
"""Bytes of a body beside the file in it."""


def make_app(services: Services, *, hosts: Collection[str], origins: Collection[str] = ()) -> Any:
    """The ASGI application of a server. It answers for these hosts (with port) alone, and to pages of these origins."""
    settings = services.harness.config.server

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        services.open()
        yield
        await services.close(settings.shutdown_seconds)

    app = FastAPI(
        title="Holdfast",
        version=__version__,
        description="Memory, conversations, sessions and knowledge of a Holdfast installation. Every operation but health needs the token.",
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        responses=wire.PROBLEMS,
        generate_unique_id_function=lambda route: route.name,
        telemetry={"logs": False},
    )
    app.state.services = services
    app.include_router(about.open_router)
    for part in API:
        app.include_router(part, prefix="/api/v1")
    for part in (gateway_routes.router, gateway_routes.agui_router, *PAGES):
        app.include_router(part)
    app.mount("/static", html_pages.Static(), name="static")
    form = wire.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    definitions = form.pop("$defs", {})
    app.openapi = lambda: wire.describe(app, form, definitions)  # type: ignore[method-assign]  # as FastAPI's documentation does it
    for kind, handler in (
        (HoldfastError, wire.of_ours),
        (RequestValidationError, wire.of_validation),
        (HTTPException, wire.of_http),
        (Exception, wire.of_others),
    ):
        app.add_exception_handler(kind, _readable(handler))
    limit = settings.max_upload_bytes + _SPARE
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=limit)
    measured = _Measured(_InPlace(TimeLimit(app, settings.request_seconds), services), services.metrics)
    return AccessLog(Guard(HeadOnly(measured), keys=services.keys, hosts=hosts, origins=origins, max_body=limit))


def _readable(handler: Callable[[Request, Exception], Awaitable[JSONResponse]]) -> Callable[[Request, Exception], Awaitable[Response]]:
    """An error as a page for a browser, as `problem+json` for a program."""

    async def answer(request: Request, error: Exception) -> Response:
        return html_pages.as_page(request, await handler(request, error))

    return answer


class _InPlace:
    """Refuses whatever changes something once the base directory is another one: it would be acknowledged, and lost."""

    def __init__(self, app: App, services: Services) -> None:
        self._app, self._services = app, services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD", "OPTIONS") and self._services.displaced():
            refused = wire.problem(503, "replaced", DISPLACED, hint="Restart the server: it then works with what is there now.")
            await wire.told_at(scope.get("path", ""), refused)(scope, receive, send)
            return
        await self._app(scope, receive, send)


class HeadOnly:
    """Answers HEAD wherever GET is answered: the same status and headers, and no body. What would go on, a stream, is not begun."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        over = asyncio.timeout(None)

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b""})
            elif message.get("more_body"):
                over.reschedule(0)
                await asyncio.Event().wait()  # until it is ended here

        try:
            async with over:
                await self._app({**scope, "method": "GET"}, receive, sending)
        except TimeoutError:
            if not over.expired():
                raise


class TimeLimit:
    """Answers with 504 where nothing else was answered in time: a body that never ends, a store that hangs, a model that says nothing."""

    def __init__(self, app: App, seconds: float) -> None:
        self._app, self._seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = asyncio.timeout(self._seconds)

        async def sending(message: Any) -> None:
            limit.reschedule(None)  # it has begun: how long a stream goes on is its own business
            await send(message)

        try:
            async with limit:
                await self._app(scope, receive, sending)
        except Exception as error:  # the framework raises again what it answered, and uvicorn would log it once more
            if not isinstance(error, TimeoutError) or not limit.expired():
                if wire.TOLD in scope:
                    return
                raise
            hint = "`server.request_seconds` says how long a request may take."
            slow = wire.problem(504, "too-slow", "It took too long.", hint=hint)
            await wire.told_at(scope.get("path", ""), slow)(scope, receive, send)


class AccessLog:
    """One line for each request, those that were refused at the door as well: method, path without its query, status, time, who asked."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _access.isEnabledFor(logging.INFO):
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 500

        async def sending(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            who, took = (scope.get("client") or ("-",))[0], 1000 * (time.monotonic() - began)
            _access.info("%s %s %d %.0f ms %s", scope["method"], visible(scope["path"][:500].replace("\n", " ")), status, took, who)


class _Measured:
    """Counts requests by the pattern of their route."""

    def __init__(self, app: App, metrics: ServerMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 500

        async def sending(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            with below_request(scope["headers"]):
                await self._app(scope, receive, sending)
        finally:
            route = getattr(scope.get("route"), "path", None) or "none"
            self._metrics.request(route, status, time.monotonic() - began)


def hosts_of(host: str, port: int, more: Collection[str] = ()) -> set[str]:
    """The names, with port, under which a server on this address answers."""
    names = {host, "localhost", "127.0.0.1"} if host in ("127.0.0.1", "localhost", "::1", "0.0.0.0") else {host}  # noqa: S104 - compared
    known = {f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in names}
    return known | {name.lower() if ":" in name else f"{name.lower()}:{port}" for name in more}
