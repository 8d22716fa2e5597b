"""Sockets with one wall-clock limit over everything: connecting, TLS, headers and body together, however slowly bytes trickle in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ssl import SSLContext
from typing import Any

import httpcore


class DeadlineBackend(httpcore.NetworkBackend):
    """Connects as httpcore does. No call waits longer than `left()` seconds, and none begins when that is zero."""

    def __init__(self, left: Callable[[], float]) -> None:
        self._left = left
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._inner.connect_tcp(host, port, _remaining(self._left, httpcore.ConnectTimeout), local_address, socket_options)
        return _DeadlineStream(stream, self._left)


class _DeadlineStream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, left: Callable[[], float]) -> None:
        self._inner = inner
        self._left = left

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _remaining(self._left, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _remaining(self._left, httpcore.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        inner = self._inner.start_tls(ssl_context, server_hostname, _remaining(self._left, httpcore.ConnectTimeout))
        return _DeadlineStream(inner, self._left)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _remaining(left: Callable[[], float], late: type[Exception]) -> float:
    seconds = left()
    if seconds <= 0:
        raise late("the time is over")
    return seconds
