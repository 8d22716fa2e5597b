"""Any value as JSON, and back. What JSON has no form for is wrapped in an object whose one key says what it was."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any

_DEEPEST = 100  # levels; the log refuses more than twice as many
_WRAPPERS = frozenset({"$bytes", "$text", "$number", "$pairs", "$repr"})


def plain(value: Any) -> tuple[Any, bool]:
    """The value as JSON, and whether `restored` gives it back as it was (tuples come back as lists).

    >>> plain({"image": b"abc", "size": (1, 2)})
    ({'image': {'$bytes': 'YWJj'}, 'size': [1, 2]}, True)
    """
    lost: list[bool] = []
    return _plain(value, 0, lost), not lost


def restored(value: Any) -> Any:
    """The value that `plain` was given. A `$repr` stays what it is."""
    if isinstance(value, list):
        return [restored(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if len(value) == 1:
        ((key, inner),) = value.items()
        if key in _WRAPPERS:
            return _unwrapped(key, inner)
    return {key: restored(item) for key, item in value.items()}


def _plain(value: Any, depth: int, lost: list[bool]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _plain_text(str(value))
    if isinstance(value, int | float):
        return _plain_number(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$bytes": base64.b64encode(bytes(value)).decode("ascii")}
    if depth < _DEEPEST and isinstance(value, Mapping):
        return _plain_mapping(value, depth, lost)
    if depth < _DEEPEST and isinstance(value, list | tuple):
        return [_plain(item, depth + 1, lost) for item in value]
    lost.append(True)
    return {"$repr": _plain_text(_repr(value))}


def _plain_text(text: str) -> Any:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half a surrogate pair: no UTF-8 can hold it
        return {"$text": base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")}
    return text


def _plain_number(value: int | float) -> Any:
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$number": repr(float(value))}
    return int(value) if abs(value) < 1 << 1024 else {"$number": hex(value)}  # longer ones cannot be written in decimal everywhere


def _plain_mapping(value: Mapping[Any, Any], depth: int, lost: list[bool]) -> Any:
    keys_are_text = all(isinstance(key, str) and isinstance(_plain_text(key), str) for key in value)
    if not keys_are_text or (len(value) == 1 and next(iter(value)) in _WRAPPERS):
        return {"$pairs": [[_plain(key, depth + 1, lost), _plain(item, depth + 1, lost)] for key, item in value.items()]}
    return {str(key): _plain(item, depth + 1, lost) for key, item in value.items()}


def _unwrapped(key: str, inner: Any) -> Any:
    try:
        if key == "$bytes":
            return base64.b64decode(inner, validate=True)
        if key == "$text":
            return base64.b64decode(inner, validate=True).decode("utf-8", "surrogatepass")
        if key == "$number":
            return int(inner, 16) if "0x" in inner else float(inner)
        if key == "$pairs":
            return {_hashable(restored(name)): restored(item) for name, item in inner}
    except (TypeError, ValueError, binascii.Error):
        pass  # somebody else's object that only looks like ours: as it stands is as it was
    return {key: restored(inner)}


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001  # a foreign __repr__ may raise anything, and must not keep the rest from being kept
        return f"<{type(value).__name__} whose repr failed: {type(error).__name__}>"
