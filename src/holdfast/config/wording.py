"""What is wrong with a value, in plain words: what would fit, and what is there instead. Secrets are not repeated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.config.environment import EnvironmentReference
from holdfast.config.redaction import redact_text

MISSING = object()
"""Stands for a value that must not be shown."""

_WANTED = {
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
    "string": "must be text",
    "list": "must be a list",
    "tuple": "must be a list",
    "dict": "must be a mapping of keys to values",
    "model": "must be a mapping of keys to values",
    "finite": "must be a finite number",
}
_BOUNDS = {
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be {le} or less",
    "literal_error": "must be one of {expected}",
    "string_too_short": "must not be empty",
}


class Misfit(ValueError):
    """A value does not fit, said by a rule of ours: `wanted` says what would. `at` is the path from the field to the part that is wrong."""

    def __init__(self, wanted: str, *at: str | int, found: Any = MISSING) -> None:
        super().__init__(wanted)
        self.wanted = wanted
        self.at = at
        self.found = found


def plain_words(error: Mapping[str, Any], value: Any = MISSING) -> str:
    """One clause for an error that pydantic found: `must be a whole number, not the text 'many'`; the rest only with the value."""
    kind, context = str(error["type"]), error.get("ctx", {})
    if kind == "missing":
        return "is missing"
    if isinstance(misfit := context.get("error"), Misfit):
        words, value = misfit.wanted, misfit.found if value is not MISSING else MISSING
        return words if value is MISSING else f"{words}, not {described(value, container=_is_container(words))}"
    if kind in _BOUNDS:
        words = _BOUNDS[kind]
        for name, bound in context.items():
            words = words.replace(
                "{" + name + "}",
                str(bound).replace(" or ", ", ") if name == "expected" else f"{bound:g}" if isinstance(bound, float) else str(bound),
            )
    else:
        words = _WANTED.get(kind.split("_", 1)[0], "does not fit")
    return words if value is MISSING else f"{words}, not {described(value, container=_is_container(words))}"


def _is_container(words: str) -> bool:
    return words.endswith(("list", "values", "}", "such"))


def described(value: Any, *, container: bool = False) -> str:
    """What a value is, in words. With `container` a text is not repeated: where a mapping should be, it may hold a secret.

    >>> described("many"), described(True), described([1])
    ("the text 'many'", 'true', 'a list')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}" if len(str(value)) < 40 else "that number"
    if isinstance(value, EnvironmentReference):
        return "a value from the environment"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = str(value)
    return "text" if container or len(text) > 40 or redact_text(text) != text else f"the text {text!r}"
