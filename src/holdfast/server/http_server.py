"""uvicorn, stopped in order: streams are told first, so that nobody waits for them, and the process ends with 0."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from holdfast.errors import InputError
from holdfast.harness import Harness
from holdfast.server.access_token import Keys
from holdfast.server.asgi_app import hosts_of, make_app
from holdfast.server.services import Services


class _Server(uvicorn.Server):
    """Tells the streams to end before it waits for them."""

    def __init__(self, config: uvicorn.Config, leaving: Callable[[], None]) -> None:
        super().__init__(config)
        self._leaving = leaving

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._leaving()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """As uvicorn's, but the signal is not raised again at the end: to be told to stop is no failure."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


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
        raise InputError(
            f"nothing can listen on {host}:{port}: {why}.", hint="Another port: `--port 8766`, or 0 for a free one."
        ) from error
    return made


def run_server(harness: Harness, token: str, listening: socket.socket, *, started: Callable[[], None] | None = None) -> None:
    """Serve until somebody says stop. The harness is closed at the end."""
    settings = harness.config.server
    host, port = listening.getsockname()[:2]
    services = Services(harness, Keys(token, port))
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
