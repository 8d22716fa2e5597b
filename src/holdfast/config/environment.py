"""What comes from the environment: the folder for all state, and `$NAME`, `${NAME}` and `${NAME:-otherwise}` inside any text of the file.

`$$` is a dollar sign. Values are read when the setting is used for the first time, not when the file is loaded, so a key that is never
needed may be missing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
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


BASE_VARIABLE = "HOLDFAST_HOME"
BASE_NAME = ".holdfast"


def base_directory(
    file: Path | None,
    environ: Mapping[str, str] | None = None,
    cwd: str | PathLike[str] | None = None,
    *,
    trusted: bool = True,
) -> tuple[Path, str]:
    """The folder for all state, and in words why it is that one (C6). It is not made here.

    `HOLDFAST_HOME`, else `.holdfast` beside the configuration; without one the user's data directory, so that what is known about a user
    does not depend on where he stands. A `.holdfast` that is in the working directory already is used before that. Where the folder is not
    `trusted`, what somebody put into it is not taken for what is known: the user's data directory then too.
    """
    environ = os.environ if environ is None else environ
    here = (Path(cwd) if cwd is not None else Path.cwd()).absolute()
    if home := environ.get(BASE_VARIABLE):
        return here / Path(home).expanduser(), f"environment {BASE_VARIABLE}"
    if file is not None and trusted:
        return file.absolute().parent / BASE_NAME, f"beside {file.name}"
    there = here / BASE_NAME
    if trusted and os.path.isdir(there):  # noqa: PTH112 - a folder that may not be looked into is none, and raises nothing
        return there, f"{BASE_NAME} of the working directory"
    data = _data_directory(environ)
    return (data / "holdfast", "the user's data directory") if data is not None else (there, "there is no home directory")


def _data_directory(environ: Mapping[str, str]) -> Path | None:
    """Where programs keep what belongs to the user: `XDG_DATA_HOME` if it is absolute, as the specification says, else `~/.local/share`."""
    said = Path(environ.get("XDG_DATA_HOME", ""))
    if said.is_absolute():
        return said
    try:
        home = Path(environ.get("HOME") or Path.home())
    except RuntimeError:  # a user without an entry in the list of users, in a container
        return None
    return home / ".local" / "share" if home.is_absolute() else None
