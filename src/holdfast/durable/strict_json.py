"""JSON as it is stored: written so that a person can read it, read so that nothing is guessed.

What other readers let pass is refused here with its position: a key that comes twice, NaN and infinities, nesting without end.
A byte order mark and Windows line ends, which editors add, are let pass.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring  # the one in C, where there is one
from typing import Any

from holdfast.errors import Damaged, InputError

MAX_DEPTH = 200
_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
_BOM = b"\xef\xbb\xbf"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|[\[\]{}:,]|-?Infinity|NaN|-?[0-9][0-9.eE+-]*', re.DOTALL)

_COMPACT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False)  # made once; see `_check`
_LEAVES = frozenset((str, int, float, bool, type(None)))
_TEXT = frozenset((str,))
_COLON = re.compile(r"\s*:")
_WIDE = 1000  # members of one level: from there on it is worth to look whether some are the same


def encode(value: Any, *, readable: bool = True) -> bytes:
    """The value as UTF-8, keys in their order, with a line break at the end; `readable` over many lines, else in one.

    InputError if JSON has no form for it.
    """
    try:
        if not readable:
            _check(value)
        return (_readable(value) if readable else _COMPACT.encode(value)).encode("utf-8") + b"\n"
    except (TypeError, ValueError) as error:  # UnicodeEncodeError, for half a surrogate pair, is a ValueError
        raise _no_form(value, error) from error


def encode_inside(value: Any, line: str) -> bytes:
    """As `encode`, for a value that stands inside another one, whose members begin with `line`: a line break and blanks."""
    try:
        return _readable(value, line).encode("utf-8")
    except (TypeError, ValueError) as error:
        raise _no_form(value, error) from error


def _no_form(value: Any, error: Exception) -> InputError:
    return InputError(
        f"this value has no form in JSON: {_why(value, error)}.", hint="Use text, finite numbers, lists, and objects with text keys."
    )


def _readable(value: Any, line: str = "\n") -> str:
    """The text that `json.dumps(value, indent=2, ensure_ascii=False)` gives, several times as fast: that is not written in C.

    Refuses what `_check` refuses, as it goes.
    """
    if isinstance(value, str):
        return encode_basestring(value)
    is_object = isinstance(value, dict)
    if not is_object and not isinstance(value, (list, tuple)):
        return _COMPACT.encode(value)
    if len(line) > 2 * MAX_DEPTH:
        raise ValueError(_TOO_DEEP)
    if not value:
        return "{}" if is_object else "[]"
    inner = f"{line}  "
    if is_object:
        members = [
            f"{encode_basestring(name)}: {encode_basestring(member) if type(member) is str else _readable(member, inner)}"
            for name, member in value.items()
        ]
        return f"{{{inner}{f',{inner}'.join(members)}{line}}}"
    texts = [encode_basestring(member) if type(member) is str else _readable(member, inner) for member in value]
    return f"[{inner}{f',{inner}'.join(texts)}{line}]"


def _check(value: Any) -> None:
    """What `json.dumps` would silently change: keys that are not text become text, and may then come twice.

    Goes down level by level: a call for each of the many small objects would cost more than writing them.
    """
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for one in level:
            kind = type(one)
            if kind is dict or (kind is not list and isinstance(one, Mapping)):
                if not _TEXT.issuperset(map(type, one)):
                    for key in one:
                        if not isinstance(key, str):
                            raise TypeError(f"the key {key!r} is not text")
                inner += one.values()
            elif kind is list or (isinstance(one, Sequence) and not isinstance(one, (str, bytes, bytearray))):
                inner += one
        level = [one for one in inner if type(one) not in _LEAVES]
        if len(level) > _WIDE:
            level = [*{id(one): one for one in level}.values()]  # each once: what holds itself twice would be twice as much at each level
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def _why(value: Any, error: Exception) -> str:
    """Why there is no form for a value, in the words of `_check` where it knows some."""
    try:
        _check(value)
    except (TypeError, ValueError) as known:
        return str(known)
    return str(error)


def decode(data: bytes, *, path: str | None = None) -> Any:
    """The value in `data`. Damaged, with the byte position, if it is not strict JSON."""
    offset = len(_BOM) if data.startswith(_BOM) else 0
    try:
        text = data[offset:].decode("utf-8")
    except UnicodeDecodeError as error:
        raise _damaged("is not UTF-8 text", path, offset + error.start) from error
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_finite)
    except RecursionError:
        raise _too_deep(text, path, offset) from None
    except json.JSONDecodeError as error:
        raise _damaged(f"is not valid JSON ({error.msg})", path, offset + _bytes(text, error.pos)) from error
    except _Refused as refused:
        raise _damaged(refused.why, path, offset + _bytes(text, _find(text, refused))) from refused
    except ValueError as error:  # an integer of more digits than Python converts
        raise _damaged(f"holds a number that cannot be read ({error})", path, offset) from error
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deep(value):  # most texts cannot be that deep, which is seen at once
        raise _too_deep(text, path, offset)
    return value


class _Refused(Exception):
    """What the parser's hooks refuse. They are not told where they are, so `_find` looks for it afterwards."""

    def __init__(self, why: str, token: str, *, key: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.token = token
        self.key = key


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Refused(f"has the key {key!r} twice in one object", key, key=True)
            seen.add(key)
    return members


def _constant(token: str) -> float:
    raise _Refused(f"holds {token}, which is not a number", token)


def _finite(token: str) -> float:
    number = float(token)
    if math.isinf(number):
        raise _Refused(f"holds {token}, which is too large for a number", token)
    return number


def _find(text: str, refused: _Refused) -> int:
    """Where the refused token is: for a key, its second place in the same object."""
    objects: list[set[str]] = []
    previous = ""
    for match in _TOKEN.finditer(text):
        piece = match.group()
        if piece in "{[":
            objects.append(set())
        elif piece in "]}" and objects:
            objects.pop()
        elif not refused.key and piece == refused.token:
            return match.start()
        elif refused.key and piece[0] == '"' and previous in ("{", ",") and objects and _COLON.match(text, match.end()):
            key = json.loads(piece)
            if key == refused.token and key in objects[-1]:
                return match.start()
            objects[-1].add(key)
        previous = piece
    return 0


def _is_deep(value: Any) -> bool:
    """Whether lists and objects lie in each other more than MAX_DEPTH times."""
    level = [value] if type(value) in (dict, list) else []
    for _ in range(MAX_DEPTH):
        level = [inner for one in level for inner in (one.values() if type(one) is dict else one) if type(inner) in (dict, list)]
        if not level:
            return False
    return True


def _too_deep(text: str, path: str | None, offset: int) -> Damaged:
    """That nesting passes the limit, and at which byte."""
    depth, where = 0, 0
    for match in _TOKEN.finditer(text):
        piece = match.group()
        if piece in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                where = match.start()
                break
        elif piece in "]}":
            depth -= 1
    return _damaged(f"is nested deeper than {MAX_DEPTH} levels", path, offset + _bytes(text, where))


def _bytes(text: str, characters: int) -> int:
    return len(text[:characters].encode("utf-8"))


def _damaged(what: str, path: str | None, position: int) -> Damaged:
    return Damaged(
        f"{path or 'the document'} {what}, at byte {position}.",
        path=path,
        position=position,
        hint="Mend it in an editor, or set it aside and start anew.",
    )
