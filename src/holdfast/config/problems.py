"""What is wrong with a setting, in plain words, and what `config check` tells about a file that loads. Secrets are not repeated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.config.environment import EnvironmentReference
from holdfast.errors import ConfigError
from holdfast.redaction import redact_text

NoticeKind = Literal[
    "ignored", "missing-variable", "unknown-model", "without-effect", "upgraded", "class-path", "not-ready", "workflow", "not-trusted"
]


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something about the file that a person should know, though it loads. `kind` is stable, `message` is for people."""

    kind: NoticeKind
    message: str
    file: str | None = None
    line: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        return f"{where + ': ' if where else ''}{self.key + ': ' if self.key else ''}{self.message}"


def raise_all(errors: Iterable[ConfigError]) -> None:
    """Raise the first error of a file, if there is one, with the rest of them in its attribute `others`."""
    found = sorted(errors, key=lambda error: error.line or 0)
    if found:
        found[0].others = found[1:]
        raise found[0]


def all_errors(error: ConfigError) -> list[ConfigError]:
    """This error and the others that the same file has, in the order of their lines."""
    return [error, *error.others]


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
    "dataclass": "must be a mapping of keys to values",
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
