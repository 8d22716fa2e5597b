"""What pydantic found wrong with a value from outside, in our words: the place, what is wrong, and the line.

Every model that reads bytes from outside (sessions, workflows, memory, records) reports through `problems_of`, so the same mistake is
said in the same way everywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

Loc = Sequence[str | int]
"""The way to a value inside a document: names of members and indexes of lists."""

_SHOWN = 60
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL)
_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "mapping_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dataclass_type": "an object",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where, what, and in which line of the file, if that is known."""

    place: str
    what: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.what}" + (f" (line {self.line})" if self.line is not None else "")


def problems_of(error: ValidationError, *, line_of: Callable[[Loc], int | None] | None = None) -> list[Problem]:
    """Everything that is wrong, in the order of the document. `line_of` says the line of a place, such as `json_line` does."""
    found = []
    for one in error.errors(include_url=False):
        line = line_of(one["loc"]) if line_of is not None else None
        found.append(Problem(place_of(one["loc"]), _what(one), line))
    return found


def place_of(loc: Loc) -> str:
    """The way to a value as a person writes it.

    >>> place_of(["stage_outputs", "plan", "key_findings", 2, "source"])
    'stage_outputs.plan.key_findings[2].source'
    """
    shown = ""
    for part in loc:
        shown += f"[{part}]" if isinstance(part, int) else f".{part}" if shown else part
    return shown


def kind_of(value: object) -> str:
    """What a value is, in a word, for "must be text, not a list"."""
    kinds = {dict: "an object", list: "a list", tuple: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return kinds.get(type(value)) or f"{type(value).__name__} {shown(value)}"


def shown(value: object) -> str:
    """A value in one short piece of text."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def json_line(text: str, loc: Loc) -> int | None:
    """The line of the value at `loc` in a JSON text, or of the nearest thing around it; None if the text has nothing of it."""
    wanted, best, depth = list(loc), None, -1
    path: list[str | int] = []
    opened: list[str] = []
    is_value, key = True, ""
    for match in _TOKEN.finditer(text):
        piece = match.group()
        if piece in "}]":
            if not opened:
                break
            opened.pop()
            path.pop()
        elif piece == ",":
            is_value = bool(opened) and opened[-1] == "["
            if is_value and isinstance(path[-1], int):
                path[-1] += 1
        elif piece == ":":
            path[-1], is_value = key, True
        elif not is_value:
            key = _text(piece)
        else:
            if depth < len(path) <= len(wanted) and path == wanted[: len(path)]:
                best, depth = text.count("\n", 0, match.start()) + 1, len(path)
            is_value = piece == "["
            if piece in "{[":
                opened.append(piece)
                path.append(0 if piece == "[" else "")
    return best


def _text(piece: str) -> str:
    try:
        return str(json.loads(piece))
    except ValueError:
        return piece


def _what(error: ErrorDetails) -> str:
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "missing" or (given is None and kind in _WANTED):
        return "is missing"
    if kind in _WANTED:
        return f"must be {_WANTED[kind]}, not {kind_of(given)}"
    if kind == "literal_error":
        expected: Any = context.get("expected", "")
        return f"must be {str(expected).replace(chr(39), '')}, not {shown(given) if isinstance(given, str) else kind_of(given)}"
    if kind == "string_too_short":
        return "is empty"
    if kind in ("greater_than_equal", "less_than_equal"):
        limit = context.get("ge", context.get("le"))
        return f"must be {limit} or {'more' if kind == 'greater_than_equal' else 'less'}, not {kind_of(given)}"
    if kind == "extra_forbidden":
        return "is not known"
    if kind in ("value_error", "assertion_error") and "error" in context:
        return str(context["error"])
    return f"{error['msg'][:1].lower()}{error['msg'][1:]}"
