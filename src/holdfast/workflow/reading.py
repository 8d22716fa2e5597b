"""Reading a workflow file: every mistake is told with its file, line and key, and the nearest key that would fit (W1).

The values are data: a prompt is never a template, and nothing is read from the environment but in the settings beside the stages.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from holdfast.config.known_keys import near_miss, nearest
from holdfast.config.problems import described, raise_all
from holdfast.config.reading import KeyPath, Reading, dotted, read_yaml
from holdfast.errors import ConfigError
from holdfast.session.schemas import check_schema
from holdfast.workflow.definition import Stage, Workflow
from holdfast.workflow.graph import ancestors, cycle, needs_of

SECTIONS = ("session", "memory", "knowledge", "limits")
"""Settings that may stand beside the stages, in the form of `config.yaml`."""

MAX_STAGES = 2_000
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}", re.ASCII)
_TOP = ("id", "task", "topic_tag", "memory_retrieval_top_k", "stages", "parameters", "max_added_stages", "max_parallel")
_PROSE = ("name", "description", "version")
"""Keys that people like to write at the top and that mean nothing here."""

Check = Callable[[Any], Any]


def load(path: str | PathLike[str]) -> Workflow:
    """The workflow of a YAML file."""
    file = Path(path).expanduser()
    try:
        source = file.read_bytes()
    except OSError as error:
        reason = "is a folder" if file.is_dir() else f"cannot be read: {error.strerror or error}"
        raise ConfigError(f"the workflow file {reason}.", file=file, hint="Give the path of a YAML file with `id` and `stages`.") from None
    return _Checker(read_yaml(source, file)).workflow()


def parse(value: Mapping[str, Any], *, file: str | PathLike[str] | None = None) -> Workflow:
    """The workflow that plain values say."""
    try:
        plain = json.loads(json.dumps(value, allow_nan=False)) if isinstance(value, Mapping) else value
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"the workflow holds something that JSON cannot say: {error}.",
            file=file,
            hint="Functions go into `agents={...}`, and the stage names one by its `agent_type`.",
        ) from None
    return _Checker(Reading(plain, file=fspath(file) if file is not None else None)).workflow()


def parse_stage(value: Mapping[str, Any], *, where: str) -> Stage:
    """One stage alone, as an agent adds it. `where` is said in errors in place of a file."""
    try:
        plain = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"an added stage holds something that JSON cannot say: {error}.", file=where) from None
    checker = _Checker(Reading(plain, file=where))
    stage = checker.stage(plain, ())
    raise_all(checker.errors)
    return stage


class _Misfit(ValueError):
    """What a value must be, in words; `why` says what is wrong with it where that is more than its kind."""

    def __init__(self, wanted: str, why: str | None = None) -> None:
        super().__init__(wanted)
        self.why = why


class _Checker:
    """Goes over one file and notes everything that is wrong with it."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.errors: list[ConfigError] = []

    def workflow(self) -> Workflow:
        values = self._reading.values
        if not isinstance(values, dict):
            found = "empty" if values is None else f"{described(values)}"
            raise ConfigError(
                f"a workflow file must be a mapping with `id` and `stages`; this one is {found}.", file=self._reading.file, line=1
            )
        self._check_top(values)
        stages = self._stages(values.get("stages"))
        workflow = Workflow(
            id=self._value(values, (), "id", _name, None) or "",
            stages=stages,
            task=self._value(values, (), "task", _text, None),
            topic_tag=self._value(values, (), "topic_tag", _label, "general"),
            memory_retrieval_top_k=self._value(values, (), "memory_retrieval_top_k", _count, None),
            parameters=self._value(values, (), "parameters", _mapping, {}),
            max_added_stages=self._value(values, (), "max_added_stages", _count, 0),
            max_parallel=self._value(values, (), "max_parallel", _positive, 4),
            file=self._reading.file,
            sections={name: values[name] for name in SECTIONS if values.get(name) is not None},
        )
        if not self.errors:
            self._check_graph(stages)
        raise_all(self.errors)
        return workflow

    def _check_top(self, values: Mapping[str, Any]) -> None:
        known = (*_TOP, *SECTIONS)
        for key in values:
            if key not in known and key not in _PROSE:
                near = nearest(key, known)
                hint = f"Did you mean `{near}`?" if near else f"Valid here: {', '.join(known)}."
                self._error("there is no key of this name in a workflow.", (key,), nearest=near, hint=hint, of_key=True)
        if values.get("id") is None and "id" not in self._misspelt():
            self._error("is missing.", ("id",), hint="Give the workflow a short name, such as `id: weekly-report`.")

    def _misspelt(self) -> set[str | None]:
        return {error.nearest for error in self.errors}

    def _stages(self, values: Any) -> tuple[Stage, ...]:
        if not isinstance(values, list) or not values:
            if "stages" not in self._misspelt():
                self._error("must be a list of at least one stage.", ("stages",), hint="Each has a `name` and an `agent_type`.")
            return ()
        if len(values) > MAX_STAGES:
            self._error(f"there are {len(values)} stages; at most {MAX_STAGES} are allowed.", ("stages",))
            return ()
        stages = [self.stage(value, ("stages", number)) for number, value in enumerate(values)]
        seen: dict[str, int] = {}
        for number, stage in enumerate(stages):
            first = seen.setdefault(stage.name.lower(), number)
            if stage.name and first != number:
                line = self._reading.line(("stages", first, "name"))
                where = f", on line {line}" if line else f": stage {first + 1}"
                self._error(
                    f"another stage has the name {stage.name!r} already{where}.", ("stages", number, "name"), hint="Give it another."
                )
        return tuple(stages)

    def stage(self, value: Any, path: KeyPath) -> Stage:
        """One stage, checked; what is wrong with it is in `errors`."""
        if not isinstance(value, dict):
            self._error(f"a stage must be a mapping with `name` and `agent_type`, not {described(value, container=True)}.", path)
            return Stage("")
        if value.get("name") is None:
            self._error("is missing.", (*path, "name"), hint="Every stage has a name of its own.")
        found: dict[str, Any] = {}
        settings: dict[str, Any] = {}
        for key, item in value.items():
            if key in _STAGE:
                if item is not None:
                    found[key] = self._value(value, path, key, _STAGE[key], None)
            elif (near := near_miss(key, _STAGE)) is not None:
                self._error(
                    "there is no key of this name in a stage.", (*path, key), nearest=near, hint=f"Did you mean `{near}`?", of_key=True
                )
            else:
                settings[key] = item
        given = {key: item for key, item in found.items() if item is not None}
        return Stage(**{"name": "", **given}, settings=settings, line=self._reading.line(path))

    def _value(self, values: Mapping[str, Any], path: KeyPath, key: str, check: Check, default: Any) -> Any:
        value = values.get(key)
        if value is None:
            return default
        try:
            return check(value)
        except _Misfit as misfit:
            found = f": {misfit.why}" if misfit.why else f", not {described(value, container='mapping' in str(misfit))}"
            self._error(f"{misfit}{found}.", (*path, key))
            return default

    def _check_graph(self, stages: tuple[Stage, ...]) -> None:
        names = [stage.name for stage in stages]
        for number, stage in enumerate(stages):
            for key in ("needs", "inputs"):
                self._check_names(getattr(stage, key) or (), ("stages", number, key), stage, names)
        if self.errors:
            return
        needs = needs_of(stages)
        if (circle := cycle(needs)) is not None:
            number = names.index(circle[0])
            self._error(
                f"these stages wait for each other: {' -> '.join(circle)}.", ("stages", number, "needs"), hint="Take one of them out."
            )
            return
        for number, stage in enumerate(stages):
            before = ancestors(stage.name, needs) if stage.inputs else set()
            for index, name in enumerate(stage.inputs or ()):
                if name not in before:
                    self._error(
                        f"the stage {name!r} is not done before {stage.name!r}.",
                        ("stages", number, "inputs", index),
                        hint="Move it up in the file, or add it to `needs`.",
                    )

    def _check_names(self, wanted: tuple[str, ...], path: KeyPath, stage: Stage, names: list[str]) -> None:
        for index, name in enumerate(wanted):
            if name == stage.name:
                self._error("a stage cannot wait for itself.", (*path, index))
            elif name not in names:
                near = nearest(name, names)
                hint = f"Did you mean `{near}`?" if near else f"There are: {', '.join(names[:20])}."
                self._error(f"there is no stage {name!r}.", (*path, index), nearest=near, hint=hint)

    def _error(self, message: str, path: KeyPath, *, nearest: str | None = None, hint: str | None = None, of_key: bool = False) -> None:
        line = self._reading.line(path, of_key=of_key)
        self.errors.append(ConfigError(message, file=self._reading.file, line=line, key=dotted(path) or None, nearest=nearest, hint=hint))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    raise _Misfit("must be text")


def _label(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise _Misfit("must be a word")
    return str(value).strip()


def _name(value: Any) -> str:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or _NAME.fullmatch(text) is None:
        raise _Misfit("must be 1 to 64 ASCII letters, digits, hyphens or underscores")
    return text


def _names(value: Any) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise _Misfit("must be a list of names")
    return tuple(dict.fromkeys(items))


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1_000_000:
        raise _Misfit("must be a whole number, 0 or more")
    return value


def _positive(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000:
        raise _Misfit("must be a whole number from 1 to 1000")
    return value


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise _Misfit("must be a number of seconds, more than 0")
    return float(value)


def _pause(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise _Misfit("must be a number of seconds, 0 or more")
    return float(value)


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _Misfit("must be true or false")


def _mapping(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise _Misfit("must be a mapping of keys to values")


def _one_of(*words: str) -> Check:
    def check(value: Any) -> str:
        if value in words and isinstance(value, str):
            return value
        raise _Misfit(f"must be one of {', '.join(words)}")

    return check


def _schema(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Misfit("must be a JSON Schema, which is a mapping")
    try:
        check_schema(value, stage="")
    except ConfigError as error:
        raise _Misfit("must be a JSON Schema", error.message.rstrip(".")) from None
    return value


_STAGE: dict[str, Check] = {
    "name": _name,
    "agent_type": _label,
    "system_prompt": _text,
    "inputs": _names,
    "needs": _names,
    "output_schema": _schema,
    "approve": _flag,
    "max_repairs": _count,
    "retries": _count,
    "retry_seconds": _pause,
    "timeout_seconds": _seconds,
    "on_error": _one_of("halt", "skip"),
    "on_low_confidence": _one_of("continue", "recheck", "halt"),
    "model": _label,
    "tools": _names,
}
