"""Identifiers as a parameter, and the names that people may give.

Ids are made by an `IdSource` so that tests get the same ones in every run. Names from outside (agents, threads, sessions)
become parts of paths, so `check_name` and `thread_folder` are the only gates through which they come in.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from hashlib import blake2b
from typing import Protocol

from holdfast.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_PLAIN_THREAD = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.:-]{0,127}", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+", re.ASCII)
_LONGEST_THREAD = 4096
THREAD_NOTE = "thread.json"
"""The file in a thread's folder that says its id, where the folder's name does not."""
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


def check_thread(thread: str) -> str:
    """The id of a thread: any text that LangGraph takes for one. InputError for what is none."""
    if not isinstance(thread, str) or not 0 < len(thread) <= _LONGEST_THREAD:
        shown = repr(thread) if len(repr(thread)) < 100 else f"{repr(thread)[:100]}..."
        raise InputError(f"{shown} is not a usable thread.", hint=f"Use a text of 1 to {_LONGEST_THREAD} characters.")
    return thread


def thread_folder(thread: str) -> str:
    """The name of the folder in which a thread's files are: its id, or for an id that is no safe name a readable part of it and a hash.

    No two ids have the same folder: a plain id never begins with `~`.

    >>> thread_folder("trip-7")
    'trip-7'
    >>> thread_folder("anna@example.com")
    '~anna-example.com~91dc638a967264470c7cc094427eee7a'
    """
    if _PLAIN_THREAD.fullmatch(check_thread(thread)):
        return thread
    readable = _UNSAFE.sub("-", thread)[:40].strip("-.")
    return f"~{readable}~{blake2b(thread.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


def thread_note(thread: str) -> bytes | None:
    """What `THREAD_NOTE` holds for a thread; None where the folder's name is the id."""
    return None if thread_folder(thread) == thread else json.dumps({"thread": thread}).encode()


def thread_in(folder: str, note: bytes | None) -> str | None:
    """The id of the thread whose folder this is, by its name or by its note; None if it is no thread's."""
    if _PLAIN_THREAD.fullmatch(folder):
        return folder
    try:
        thread = json.loads(note or b"null")["thread"]
        return str(thread) if thread_folder(thread) == folder else None
    except (ValueError, TypeError, KeyError, InputError):
        return None  # no note of ours
