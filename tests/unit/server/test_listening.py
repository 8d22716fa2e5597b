"""O3: the socket that the server listens on."""

from __future__ import annotations

import socket

from holdfast.server.http_server import bind


def test_small_answers_are_sent_at_once() -> None:
    """O3: Nagle's algorithm is off, else each answer in two pieces waits 40 ms for the acknowledgement of the first."""
    with bind("127.0.0.1", 0) as listening:
        listening.listen()
        with socket.create_connection(listening.getsockname(), 60), listening.accept()[0] as taken:
            assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
