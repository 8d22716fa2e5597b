"""Finding, reading and checking the configuration file. `load_config` is where everybody starts.

The keys of a file are gone over before their values are looked at: misspelt, unknown, spelt otherwise, or to be read later.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ValidationError

from holdfast.config import checks
from holdfast.config.migration import (
    CLASS_KEYS,
    CURRENT,
    IGNORED_SECTIONS,
    WORKFLOW_KEYS,
    Copy,
    Migrated,
    is_reference_path,
    mapped,
    migrate,
)
from holdfast.config.reading import BASE_NAME, BASE_VARIABLE, MAX_BYTES, KeyPath, Reading, base_directory, dotted, mark, read_yaml, value_at
from holdfast.config.section import MISSING, Misfit, Nested, Notice, NoticeKind, Section, nested, plain_words, raise_all
from holdfast.config.sections import Config, Raw
from holdfast.config.tool_sections import EXTENSIONS
from holdfast.config.trust import NAMED, NOT_THERE, Trust, Withheld, is_agreed, judge, plain_part
from holdfast.durable.folder import open_outside
from holdfast.errors import ConfigError, InputError, MissingVariable
from holdfast.events import Bus, Event
from holdfast.events import bus as process_bus
from holdfast.redaction import is_secret_key
from holdfast.validation import near_miss, nearest

LITERAL = frozenset({"summary_prompt", "system_prompt", "prompt", "description", "display_name", "text"})
"""Settings that are prose: a dollar sign in them is a dollar sign."""


class KeyCheck:
    """One pass over the values of a file. `errors` and `notices` hold what was found."""

    def __init__(self, reading: Reading, environ: Mapping[str, str]) -> None:
        self._reading = reading
        self._environ = environ
        self.errors: list[ConfigError] = []
        self.notices: list[Notice] = []

    def root(self, section: type[Section], values: Mapping[str, Any]) -> dict[str, Any]:
        """The top level: sections that are ours, cleaned. The others are noted as ignored, or as misspelt."""
        result: dict[str, Any] = {}
        known = set(section.model_fields) | IGNORED_SECTIONS
        if "stages" in values:
            self.notice(
                "workflow",
                "this file is a workflow: `holdfast run` runs it. As a configuration it only sets what stands beside the stages.",
                ("stages",),
            )
        for key, value in values.items():
            if key in section.model_fields:
                result[key] = self._value(section, key, value, (key,))
            elif "stages" in values and key in WORKFLOW_KEYS:
                continue
            elif key not in IGNORED_SECTIONS and (near := near_miss(key, known)) is not None:
                self._misspelt((key,), near)
            else:
                self.notice("ignored", "Holdfast does not use this section; it is kept and ignored.", (key,))
        return result

    def _section(self, section: type[Section], values: Any, path: KeyPath) -> Any:
        if isinstance(values, str) and section.shorthand is not None:
            return {section.shorthand: mark(values, path, self._reading, self._environ)}
        if not isinstance(values, dict):
            return mark(values, path, self._reading, self._environ)
        result: dict[str, Any] = {}
        for key, value in values.items():
            here = (*path, key)
            name = section.spellings.get(key, key)
            if name in section.model_fields:
                if name != key and name in values:
                    self.notice("ignored", f"`{name}` says the same and wins.", here)
                    continue
                if name != key:
                    self._reading.also_at(here, (*path, name))
                result[name] = self._value(section, name, value, here)
            elif self._is_accepted(section, here):
                result[key] = mark(value, here, self._reading, self._environ) if section.strange == "passed on" else value
        return result

    def _is_accepted(self, section: type[Section], path: KeyPath) -> bool:
        """Whether a key that is not a setting of ours stays. Notes the error or the notice that goes with it."""
        key = str(path[-1])
        if key not in section.tolerated:
            known = set(section.model_fields) | set(section.spellings) | section.tolerated
            if (near := near_miss(key, known)) is not None:
                self._misspelt(path, near)
                return False
            if section.strange == "refused":
                self._misspelt(path, nearest(key, section.model_fields), section.model_fields)
                return False
        if section.strange != "passed on":
            self.notice("ignored", "Holdfast does not use this key; it is kept and ignored.", path)
        return True

    def _misspelt(self, path: KeyPath, near: str | None, known: Mapping[str, Any] | None = None) -> None:
        hint = f"Did you mean `{near}`?" if near is not None else f"Valid here: {', '.join(known or ())}."
        line = self._reading.line(path, of_key=True)
        self.errors.append(
            ConfigError("there is no setting of this name.", file=self._reading.file, line=line, key=dotted(path), nearest=near, hint=hint)
        )

    def _value(self, section: type[Section], name: str, value: Any, path: KeyPath) -> Any:
        inner = nested(section, name)
        if inner is not None:
            return self._nested(inner, value, path)
        if name in LITERAL:
            return value
        if name in CLASS_KEYS and isinstance(value, str) and is_reference_path(value):
            return self._class_path(value, path)
        return mark(value, path, self._reading, self._environ)

    def _class_path(self, value: str, path: KeyPath) -> str:
        ours = mapped(value)
        if ours is None:
            self.notice("class-path", "this class path of the reference names nothing that exists here.", path)
        return ours or value

    def _nested(self, inner: Nested, value: Any, path: KeyPath) -> Any:
        if inner.kind == "one":
            return self._section(inner.section, value, path)
        if inner.kind == "list" and isinstance(value, list):
            return [self._section(inner.section, item, (*path, index)) for index, item in enumerate(value)]
        if inner.kind == "mapping" and isinstance(value, dict):
            return {key: self._section(inner.section, {} if item is None else item, (*path, key)) for key, item in value.items()}
        return mark(value, path, self._reading, self._environ)

    def notice(self, kind: NoticeKind, message: str, path: KeyPath) -> None:
        line = self._reading.line(path, of_key=True)
        self.notices.append(Notice(kind=kind, message=message, file=self._reading.file, line=line, key=dotted(path)))


FILE_NAME = "config.yaml"
CONFIG_VARIABLE = "HOLDFAST_CONFIG"


def find_config(
    explicit: str | PathLike[str] | None = None, environ: Mapping[str, str] | None = None, cwd: str | PathLike[str] | None = None
) -> Path | None:
    """The file to read: the one given, then `HOLDFAST_CONFIG`, then `config.yaml` in the working directory or a parent; or None.

    Raises ConfigError when a file was named and is not there.
    """
    return _located(explicit, environ, cwd)[0]


def _located(
    explicit: str | PathLike[str] | None, environ: Mapping[str, str] | None, cwd: str | PathLike[str] | None
) -> tuple[Path | None, bool]:
    """The file, and whether somebody named it."""
    if not isinstance(explicit, str | PathLike | None):
        raise InputError(f"a configuration is named by its path, and not by {type(explicit).__name__}.", hint="Give a str or a Path.")
    environ = os.environ if environ is None else environ
    here = Path(cwd) if cwd is not None else Path.cwd()
    for name, said_by in ((explicit, "given"), (environ.get(CONFIG_VARIABLE) or None, f"named by {CONFIG_VARIABLE}")):
        if name is None:
            continue
        path = here / Path(name).expanduser()
        if not _is_file(path):
            kind = "is a folder" if path.is_dir() else "is not a regular file" if path.exists() else "does not exist"
            raise ConfigError(f"the configuration file {said_by} {kind}.", file=path, hint="`holdfast config init` writes an example.")
        return path.absolute(), True
    for folder in (here.absolute(), *here.absolute().parents):
        if _is_file(folder / FILE_NAME):
            return folder / FILE_NAME, False
    return None, False


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a folder that may not be looked into, or a name that cannot be one
        return False


def load_config(
    path: str | PathLike[str] | None = None, *, environ: Mapping[str, str] | None = None, cwd: str | PathLike[str] | None = None
) -> Config:
    """The configuration, from the file that `find_config` finds, or all defaults without one. Nothing is written.

    An older schema is said once, as a warning in the log (C4). Raises ConfigError for the first thing that is wrong; `all_errors` of it
    gives all of them.
    """
    config = read_file(path, environ=environ, cwd=cwd)
    announce(config)
    return config


@dataclass(frozen=True, kw_only=True)
class ConfigUpgraded(Event):
    """The configuration has an older schema and was read as the current one."""

    component: ClassVar[str] = "Config"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "{file} has an older schema and is read as schema {schema}. `holdfast config upgrade` rewrites it."
    file: str
    schema: int = CURRENT


@dataclass(frozen=True, kw_only=True)
class ConfigWithheld(Event):
    """A configuration was found that nobody has agreed to, and it asks for more than plain settings."""

    component: ClassVar[str] = "Config"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "{told}"
    told: str


_SAID: set[tuple[str, str]] = set()


@dataclass(frozen=True, kw_only=True)
class PolicyIdle(Event):
    """Something that limits agents in the reference is switched on, and is not carried out here as it is there."""

    component: ClassVar[str] = "Config"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "{told}"
    told: str


def announce(config: Config, bus: Bus = process_bus, *, withheld: bool = True, policies: bool = True) -> None:
    """Say that a file has an older schema, does not count whole, or has policies that do not hold here, once for each file and text."""
    for policy in policies_of(config) if policies else ():
        _say_once(str(policy), config, PolicyIdle(told=str(policy)), bus)
    if config.file is not None and any(notice.kind == "upgraded" for notice in config.warnings):
        _say_once(str(config.file), config, ConfigUpgraded(file=str(config.file)), bus)
    if withheld and (told := config.trust.told(config.file)) is not None:
        _say_once(told, config, ConfigWithheld(told=told), bus)


def policies_of(config: Config) -> tuple[Notice, ...]:
    """What the file says of the reference's policies and is not carried out here."""
    return tuple(one for one in config.warnings if one.kind == "policy")


def _say_once(what: str, config: Config, event: Event, bus: Bus) -> None:
    mark = (what, config.reading.text)
    if mark not in _SAID:
        _SAID.add(mark)
        bus.emit(event)


def read_file(
    path: str | PathLike[str] | None = None, *, environ: Mapping[str, str] | None = None, cwd: str | PathLike[str] | None = None
) -> Config:
    """As `load_config`, and nothing is said."""
    file, named = _located(path, environ, cwd)
    if file is None:
        return config_from_values({}, environ=environ, cwd=cwd)
    source = read_source(file)
    return _build(read_yaml(source, file), environ, cwd, _named if named else lambda config: _of_found(config, source, environ))


def read_source(file: Path) -> bytes:
    """What a file with settings holds, or the beginning of one that is too large. ConfigError if it cannot be read."""
    try:
        with open_outside(file) as opened:
            return opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {error.strerror or error}.", file=file) from None


def read_config(
    source: str | bytes,
    *,
    file: str | PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: str | PathLike[str] | None = None,
) -> Config:
    """The configuration that a YAML text says, whole. `file` is where it came from, for messages and the base directory."""
    return _build(read_yaml(source, file), environ, cwd, _named if file is not None else lambda _: _of_folder(environ, cwd))


def config_from_values(
    values: Mapping[str, Any], *, environ: Mapping[str, str] | None = None, cwd: str | PathLike[str] | None = None
) -> Config:
    """The configuration from plain values, checked like a file."""
    return _build(Reading(dict(values)), environ, cwd, lambda _: _of_folder(environ, cwd))


def _named(config: Config) -> Trust:
    return NAMED


def _of_found(config: Config, source: bytes, environ: Mapping[str, str] | None) -> Trust:
    """How far a file counts that was merely found."""
    return judge(config.file or Path(FILE_NAME), source, servers_file(config), skills_folder(config), environ)


def _of_folder(environ: Mapping[str, str] | None, cwd: str | PathLike[str] | None) -> Trust:
    """Whether what lies in the working directory counts where there is no file: if its user agreed to the folder."""
    here = (Path(cwd) if cwd is not None else Path.cwd()).absolute()
    found = judge(here / FILE_NAME, None, here / EXTENSIONS, here / "skills", environ)
    return found if found.state == "trusted" else replace(NOT_THERE, agreed=found.agreed)


def asked_for(file: Path, source: bytes | None = None) -> tuple[Config, tuple[Withheld, ...]]:
    """What a file says, whole, and what of it, or beside it, somebody must agree to before it counts where it is merely found.

    `source` is what it held when it was read; without it that is read now.
    """
    if source is None:
        source = read_source(file) if file.exists() else b""
    plain = _build(read_yaml(source, file), None, file.parent, lambda _: Trust("unknown", "is not trusted"))
    return read_config(source, file=file), plain.trust.withheld


def beside(folder: Path) -> tuple[Withheld, ...]:
    """What would count in this folder from the moment on that a configuration in it is trusted."""
    plain = _build(Reading(None, file=str(folder / FILE_NAME)), None, folder, lambda _: Trust("unknown", "is not trusted"))
    return plain.trust.withheld


def servers_file(config: Config) -> Path | None:
    """The file with MCP servers that belongs to a configuration, whether it is there or not. None where none can be read."""
    try:
        return config.beside(config.mcp.extensions) if config.mcp.extensions else None
    except MissingVariable:
        return None


def skills_folder(config: Config) -> Path | None:
    """The folder of skills that belongs to a configuration, whether it is there or not. None where its place cannot be read."""
    try:
        return config.beside(config.skills.path or "skills")
    except MissingVariable:
        return None


def default_base(environ: Mapping[str, str] | None = None, cwd: str | PathLike[str] | None = None) -> Path:
    """The base directory that `load_config` would give, without reading the file."""
    file, named = _located(None, environ, cwd)
    here = (Path(cwd) if cwd is not None else Path.cwd()).absolute()
    return base_directory(file, environ, cwd, trusted=named or is_agreed(file or here / FILE_NAME, environ))[0]


def _build(
    reading: Reading, environ: Mapping[str, str] | None, cwd: str | PathLike[str] | None, judged: Callable[[Config], Trust]
) -> Config:
    environ = os.environ if environ is None else environ
    if reading.values is not None and not isinstance(reading.values, dict):
        raise ConfigError(
            "the file must be a mapping of sections, such as `models:` and `memory:`.", file=reading.file, line=reading.line(()) or 1
        )
    file, raw = Path(reading.file) if reading.file is not None else None, Raw(reading.values or {})
    if not reading.values:  # all defaults: there is nothing to upgrade, to check or to warn about
        made = _come_from(_defaults().model_copy(), file, raw, replace(reading, values={}), NAMED, environ, cwd)
        return _trusted(made, {}, judged(made), environ, cwd)
    migrated = migrate(reading)
    check = KeyCheck(migrated.reading, environ)
    values = check.root(Config, migrated.reading.values)
    config, found = _validated(values, migrated.reading)
    errors = [*check.errors, *(error for error in found if not is_explained(error, check.errors))]
    sound = config if not errors else _validated(_without_sections_of(errors, values), migrated.reading)[0]
    if sound is not None:
        errors += checks.contradictions(_come_from(sound, file, raw, migrated.reading, NAMED, environ, cwd))
    raise_all(errors)
    assert config is not None  # noqa: S101 - without a config there was an error, which has been raised
    config._warnings = tuple(sorted(_notices(config, check, values, migrated, environ), key=lambda notice: notice.line or 0))
    return _trusted(config, values, judged(config), environ, cwd)


@cache
def _defaults() -> Config:
    """The configuration that says nothing. Its sections never change, so every configuration made of it shares them."""
    return Config()


def _trusted(config: Config, values: dict[str, Any], trust: Trust, environ: Mapping[str, str], cwd: str | PathLike[str] | None) -> Config:
    """The configuration as far as it counts: whole, or its plain settings alone. What does not count is named in its warnings."""
    kept, paths = (values, []) if trust.whole else plain_part(config, values)
    withheld = [Withheld(dotted(path), config.reading.line(path, of_key=True)) for path in paths]
    withheld += [Withheld(name) for name in _beside(config, trust, environ, cwd)]
    counts = Config.model_validate(kept) if paths else config
    counts._warnings = (
        *config._warnings,
        *(
            Notice(kind="not-trusted", message=f"does not count: it {trust.reason}.", file=config.reading.file, line=one.line, key=one.key)
            for one in withheld
        ),
    )
    return _come_from(counts, config.file, config.raw, config.reading, replace(trust, withheld=tuple(withheld)), environ, cwd)


def _beside(config: Config, trust: Trust, environ: Mapping[str, str], cwd: str | PathLike[str] | None) -> list[str]:
    """What lies in the folder and does not count: its state, its MCP servers, its skills."""
    folder = config.file.parent if config.file is not None else Path(cwd) if cwd is not None else Path.cwd()
    names = [] if trust.holds_state or environ.get(BASE_VARIABLE) else [BASE_NAME]
    if not trust.beside:
        servers = servers_file(config)
        names += [servers.name] if servers is not None and servers.parent == folder else []
        names += ["skills"] if config.file is not None else []  # a folder of that name alone is nothing to speak of
    return [f"{name}/" if (folder / name).is_dir() else name for name in names if os.path.lexists(folder / name)]


def _come_from(
    config: Config,
    file: Path | None,
    raw: Raw,
    reading: Reading,
    trust: Trust,
    environ: Mapping[str, str],
    cwd: str | PathLike[str] | None,
) -> Config:
    """The configuration, with what it came from and where its state is."""
    base, source = base_directory(file, environ, cwd, trusted=trust.holds_state)
    return config._come_from(file=file, base=base, base_source=source, raw=raw, reading=reading, trust=trust)


def _validated(values: dict[str, Any], reading: Reading) -> tuple[Config | None, list[ConfigError]]:
    try:
        return Config.model_validate(values), []
    except ValidationError as error:
        return None, errors_of(error, values, reading)


def _without_sections_of(errors: Iterable[ConfigError], values: dict[str, Any]) -> dict[str, Any]:
    """The sections in which nothing is wrong by itself: what contradicts in them is told with the rest."""
    broken = {re.split(r"[.\[]", error.key or "")[0] for error in errors}
    return {name: value for name, value in values.items() if name not in broken}


def errors_of(error: ValidationError, values: Any, reading: Reading) -> list[ConfigError]:
    """What pydantic found in the values of a file: each with file, line, key and what would fit."""
    return [_error(detail, values, reading) for detail in error.errors(include_url=False, include_input=False)]


def _error(detail: Any, values: Any, reading: Reading) -> ConfigError:
    misfit = detail.get("ctx", {}).get("error")
    path: KeyPath = (*detail["loc"], *(misfit.at if isinstance(misfit, Misfit) else ()))
    value = MISSING if any(is_secret_key(part) for part in path) else value_at(values, path, MISSING)
    expected = detail.get("ctx", {}).get("expected", "")
    near = (
        nearest(value, [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")])
        if expected and isinstance(value, str)
        else None
    )
    return ConfigError(
        f"{plain_words(detail, value)}.",
        file=reading.file,
        line=reading.line(path),
        key=dotted(path),
        nearest=near,
        hint=f"Did you mean `{near}`?" if near else None,
    )


def is_explained(error: ConfigError, misspelt: list[ConfigError]) -> bool:
    """Whether a key is missing only because it is misspelt, which has been said already."""
    above, _, name = (error.key or "").rpartition(".")
    return error.message == "is missing." and any(
        near.nearest == name and (near.key or "").rpartition(".")[0] == above for near in misspelt
    )


def _notices(config: Config, check: KeyCheck, values: dict[str, Any], migrated: Migrated, environ: Mapping[str, str]) -> list[Notice]:
    for name, key, line in checks.missing_variables(values):
        check.notices.append(
            Notice(
                kind="missing-variable",
                message=f"the environment variable {name} is not set.",
                file=migrated.reading.file,
                line=line,
                key=key,
            )
        )
    policies = [*checks.idle_policies(migrated.reading.values)]
    named = {dotted(path[:1]) for _, _, path in policies}
    check.notices[:] = [one for one in check.notices if one.kind != "ignored" or one.key not in named]
    found = (
        *policies,
        *checks.unknown_models(config),
        *checks.without_effect(config),
        *checks.unready_tools(config, environ),
        *checks.subagent_names(config),
        *checks.missing_mounts(config, migrated.reading.file),
        *checks.missing_modules(config),
        *checks.wrong_values(config),
    )
    for kind, message, path in found:
        check.notice(kind, message, path)
    _said_once(check, migrated)
    if migrated.is_older and "stages" not in config.raw:
        moved = "".join(f"; {change}" for change in migrated.changes)
        message = f"the file has schema {migrated.version} and is read as schema {CURRENT}{moved}. `holdfast config upgrade` rewrites it."
        check.notices.append(Notice(kind="upgraded", message=message, file=migrated.reading.file))
    return check.notices


def _said_once(check: KeyCheck, migrated: Migrated) -> None:
    """Of a key that is ignored, some of whose settings were moved, only the others are named."""
    moved = {change.source for change in migrated.changes if isinstance(change, Copy)}
    for holder in {source[:-1] for source in moved}:
        if any(notice.kind == "ignored" and notice.key == dotted(holder) for notice in check.notices):
            check.notices[:] = [notice for notice in check.notices if notice.kind != "ignored" or notice.key != dotted(holder)]
            for key in value_at(migrated.reading.values, holder):
                if (*holder, key) not in moved:
                    check.notice("ignored", "Holdfast does not use this key; it is kept and ignored.", (*holder, key))


def example_text() -> str:
    """A complete, valid `config.yaml` with comments. It says nothing but defaults, so it changes nothing until it is edited."""
    return files("holdfast.config").joinpath("example.yaml").read_text(encoding="utf-8")
