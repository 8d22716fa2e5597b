"""Every setting as it holds now, with where it came from: a default, a line of the file, or the environment (C5). Secrets are hidden."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.config.environment import references
from holdfast.config.reading import KeyPath, dotted
from holdfast.config.section import Section, presentable
from holdfast.config.sections import Config
from holdfast.errors import ConfigError


@dataclass(frozen=True)
class Source:
    """Where a setting comes from. `variables` are the environment variables it names, `missing` those that are not set."""

    kind: Literal["default", "file", "environment"]
    file: str | None = None
    line: int | None = None
    variables: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        if self.kind == "default":
            return "default"
        if self.kind == "file":
            return where or "given"
        names = ", ".join(f"{name} (not set)" if name in self.missing else name for name in self.variables)
        return f"environment {names}" + (f", {where}" if where else "")


@dataclass(frozen=True)
class Setting:
    """One setting: its key as it is written in errors, its value as it may be shown, and its source."""

    key: str
    value: Any
    source: Source


def effective_settings(config: Config) -> list[Setting]:
    """All settings of all sections, in the order of the sections, after the base directory."""
    file = str(config.file) if config.file is not None else None
    where = config.base_source
    variable = where.removeprefix("environment ") if where.startswith("environment ") else None
    source = Source("environment", variables=(variable,)) if variable else Source("file", file) if file else Source("default")
    return [Setting("base", str(config.base), source), *_settings(config, config, ())]


def _settings(config: Config, section: Section, path: KeyPath) -> Iterator[Setting]:
    for name, value in section.fields():
        if name not in type(section).model_fields and section.strange != "passed on":
            continue  # kept, but it has no effect; the warnings name it
        yield from _of_value(config, section, value, (*path, name))


def _of_value(config: Config, section: Section, value: Any, path: KeyPath) -> Iterator[Setting]:
    if isinstance(value, Section):
        yield from _settings(config, value, path)
    elif isinstance(value, list | tuple) and any(isinstance(item, Section) for item in value):
        for index, item in enumerate(value):
            yield from _of_value(config, section, item, (*path, index))
    elif isinstance(value, Mapping) and any(isinstance(item, Section) for item in value.values()):
        for key, item in value.items():
            yield from _of_value(config, section, item, (*path, key))
    else:
        yield Setting(dotted(path), _shown(section, value, path), _source(config, value, path))


def _shown(section: Section, value: Any, path: KeyPath) -> Any:
    """The value for people. One from the environment is shown only where it cannot be a secret: a number, or true or false."""
    name = str(path[-1])
    if any(references(value)) and name in type(section).model_fields:
        try:
            now = getattr(section, name)
        except ConfigError:  # not set, or it does not fit: the source and the warnings say so
            now = None
        if isinstance(now, bool | int | float):
            return presentable(now, name)
    return presentable(value, name)


def _source(config: Config, value: Any, path: KeyPath) -> Source:
    reading = config.reading
    written = _written(reading.values, path)
    is_given = path in reading.keys if reading.keys else written is not _ABSENT
    if not is_given or (written is None and value is not None):  # `key:` with nothing after it means the default
        return Source("default")
    line = reading.line(path)
    found = list(references(value))
    if not found:
        return Source("file", reading.file, line)
    names = tuple(dict.fromkeys(name for reference in found for name in reference.names))
    missing = tuple(dict.fromkeys(name for reference in found for name in reference.missing()))
    return Source("environment", reading.file, line, names, missing)


_ABSENT = object()


def _written(values: Any, path: KeyPath) -> Any:
    for part in path:
        try:
            values = values[part]
        except (KeyError, IndexError, TypeError):
            return _ABSENT
    return values
