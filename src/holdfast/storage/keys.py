"""What a key may look like."""

from __future__ import annotations

import re

from holdfast.errors import InputError

_PART = re.compile(r"(?!\.{1,2}(?:/|$))[^/\x00-\x1f\x7f\\]{1,255}")


def check_key(key: str) -> str:
    """The key itself. InputError unless it is a relative path of plain parts: nothing empty, no `.` or `..`, no control characters."""
    if not key or len(key) > 1024 or not all(_PART.fullmatch(part) for part in key.split("/")):
        raise InputError(f"{key!r} cannot be a storage key.", hint="Use a relative path of plain names.")
    return key
