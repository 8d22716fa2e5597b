"""Identifiers as a parameter, and the names that people may give.

Ids are made by an `IdSource` so that tests get the same ones in every run. Names from outside (agents, threads, sessions)
become parts of paths, so `check_name` and `check_thread` are the only gates through which they come in.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from typing import Protocol

from holdfast.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_THREAD = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.:-]{0,127}", re.ASCII)
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u to misread


class IdSource(Protocol):
    """Makes ids that are never given twice."""

    def new(self, prefix: str = "") -> str:
        """A new id, `prefix-...` when a prefix is given. Only ASCII letters, digits and hyphens."""


class RandomIds:
    """Ids that sort by the millisecond they were made in, with 50 random bits after it. Safe for many threads and processes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def new(self, prefix: str = "") -> str:
        with self._lock:  # the clock may stand still or go back: ids of one process still sort in the order of making
            self._last = max(self._last + 1, time.time_ns() // 1_000_000)
            tick = self._last
        body = _base32(tick, 9) + _base32(secrets.randbits(50), 10)
        return f"{prefix}-{body}" if prefix else body


def _base32(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, rest = divmod(number, 32)
        digits.append(_ALPHABET[rest])
    return "".join(reversed(digits))


def check_name(name: str, what: str = "name") -> str:
    """The name as it is used in paths (lower case), or an InputError that says what is allowed.

    >>> check_name("Coder-2")
    'coder-2'
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InputError(
            f"{name!r} is not a usable {what}.",
            hint="Use 1 to 64 ASCII letters, digits, hyphens or underscores.",
        )
    return name.lower()


def is_thread(name: str) -> bool:
    """Whether this may be the name of a thread."""
    return _THREAD.fullmatch(name) is not None


def check_thread(thread: str) -> str:
    """The name of a thread as it is used in paths, or an InputError that says what is allowed."""
    if not isinstance(thread, str) or not is_thread(thread):
        raise InputError(
            f"{thread!r} is not a usable thread.",
            hint="Use 1 to 128 ASCII letters, digits, hyphens, underscores, dots or colons; the first is no dot or colon.",
        )
    return thread
