"""O3: the socket that the server listens on."""

from __future__ import annotations

import socket

import pytest

from holdfast.errors import InputError
from holdfast.server.http_server import bind


def test_small_answers_are_sent_at_once() -> None:
    """O3: Nagle's algorithm is off, else each answer in two pieces waits 40 ms for the acknowledgement of the first."""
    with bind("127.0.0.1", 0) as listening:
        listening.listen()
        with socket.create_connection(listening.getsockname(), 60), listening.accept()[0] as taken:
            assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_an_address_that_cannot_be_listened_on_is_told_with_what_would_help() -> None:
    """O3: another address where it is none of this machine's, another port where that one is taken."""
    with pytest.raises(InputError, match="--host 127"):
        bind("192.0.2.1", 0)
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(InputError, match="`--port 0` takes a free one"):
            bind("127.0.0.1", taken.getsockname()[1])
