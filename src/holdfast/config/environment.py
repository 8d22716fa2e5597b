"""Values that come from the environment: `$NAME`, `${NAME}` and `${NAME:-otherwise}` inside any text, `$$` for a dollar sign.

They are read when the setting is used for the first time, not when the file is loaded, so a key that is never needed may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.config.reading import KeyPath, Reading, dotted
from holdfast.errors import MissingVariable

_DOLLAR = re.compile(
    r"\$(?:(?P<escape>\$)|(?P<bare>[A-Za-z_][A-Za-z0-9_]*)|\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<otherwise>[^}]*))?\})"
)


@dataclass(frozen=True)
class EnvironmentReference:
    """A text of the file that names variables. Knows where it stands; what it stands for is read only by `value`."""

    template: str
    file: str | None = None
    line: int | None = None
    key: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The variables it names, each once, in the order of the text."""
        found = (match["bare"] or match["braced"] for match in _DOLLAR.finditer(self.template))
        return tuple(dict.fromkeys(name for name in found if name))

    def missing(self) -> tuple[str, ...]:
        """The variables that are not set now and have no `:-` value."""
        return tuple(dict.fromkeys(name for name, otherwise in self._parts() if otherwise is None and name not in self.environ))

    def value(self) -> str:
        """The text with the variables filled in. Raises MissingVariable for one that is not set."""
        missing = self.missing()
        if missing:
            raise MissingVariable(missing[0], file=self.file, line=self.line, key=self.key)
        return _DOLLAR.sub(self._filled, self.template)

    def _parts(self) -> Iterator[tuple[str, str | None]]:
        for match in _DOLLAR.finditer(self.template):
            if not match["escape"]:
                yield match["bare"] or match["braced"], match["otherwise"]

    def _filled(self, match: re.Match[str]) -> str:
        if match["escape"]:
            return "$"
        found = self.environ.get(match["bare"] or match["braced"])
        # as in a shell, `:-` also stands in for a variable that is empty
        return match["otherwise"] if match["otherwise"] is not None and not found else found or ""

    def __str__(self) -> str:
        return self.template


def mark(value: Any, path: KeyPath, reading: Reading, environ: Mapping[str, str]) -> Any:
    """The value with each text that names a variable replaced by a reference, and `$$` in the other texts by a dollar sign."""
    if isinstance(value, str) and "$" in value:
        found = [match["bare"] or match["braced"] for match in _DOLLAR.finditer(value)]
        if any(found):
            return EnvironmentReference(value, reading.file, reading.line(path), dotted(path), environ)
        return value.replace("$$", "$")
    if isinstance(value, dict):
        return {key: mark(item, (*path, key), reading, environ) for key, item in value.items()}
    if isinstance(value, list):
        return [mark(item, (*path, index), reading, environ) for index, item in enumerate(value)]
    return value


def references(value: Any) -> Iterator[EnvironmentReference]:
    """Every reference inside the value, in order."""
    if isinstance(value, EnvironmentReference):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from references(item)


def resolve(value: Any) -> Any:
    """The value with every reference filled in from the environment as it is now."""
    return _replaced(value, EnvironmentReference.value)


def shown(value: Any) -> Any:
    """The value with every reference as it was written, for showing."""
    return _replaced(value, str)


def _replaced(value: Any, how: Any) -> Any:
    if isinstance(value, EnvironmentReference):
        return how(value)
    if isinstance(value, Mapping):
        return {key: _replaced(item, how) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(item, how) for item in value]
    return value
