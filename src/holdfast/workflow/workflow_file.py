"""Reading workflows from outside: a YAML file, plain values, or stages that an agent adds while it runs (W1, W13).

Every mistake is told with its file, line and key, and the nearest key that would fit. The values are data: a prompt is never a template,
and nothing is read from the environment but in the settings beside the stages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from holdfast.config.loading import errors_of, is_explained
from holdfast.config.reading import MAX_BYTES, KeyPath, Reading, dotted, read_yaml
from holdfast.config.section import all_errors, described, raise_all
from holdfast.durable.folder import open_outside
from holdfast.errors import ConfigError, OutputInvalid
from holdfast.session.output import form_problems
from holdfast.validation import counted, kind_of, near_miss, nearest
from holdfast.workflow.agent import OFFLINE_AGENTS, StageAgent, unread_settings
from holdfast.workflow.definition import READ_BY_NOBODY, Stage, Workflow, ancestors, cycle, needs_of

SECTIONS = ("session", "memory", "knowledge", "limits")
"""Settings that may stand beside the stages, in the form of `config.yaml`."""
_PROSE = ("name", "description", "version")
"""Keys that people like to write at the top and that mean nothing here."""
_STAGE_KEYS = tuple(part.name for part in fields(Stage) if part.name not in ("settings", "line", "lines"))
_TOP_KEYS = tuple(part.name for part in fields(Workflow) if part.name not in ("file", "home", "sections", "added_by"))
_OTHER_NAMES = {
    **dict.fromkeys(("requires_approval", "require_approval", "needs_approval", "human_approval", "approval"), "approve"),
    **READ_BY_NOBODY,
    "time_limit": "timeout_seconds",
    **dict.fromkeys(("requires", "after"), "needs"),
    **dict.fromkeys(("prompt", "instructions"), "system_prompt"),
    **dict.fromkeys(("agent", "type"), "agent_type"),
}
"""What other programs call our keys of a stage: left as settings of our agents they would be read by nobody."""
_HINTS = {
    "id": "Give the workflow a short name, such as `id: weekly-report`.",
    "name": "Every stage has a name of its own.",
    "stages": "Each stage has a `name` and an `agent_type`.",
}
_T = TypeVar("_T")
_STAGE = TypeAdapter(Stage)
_WORKFLOW = TypeAdapter(Workflow)


Further = Callable[[Workflow], Iterable[ConfigError]]
"""Looks at the stages of a workflow that were read, where others of its file are wrong, for what else is wrong with it."""


def load_workflow(path: str | PathLike[str], *, further: Further | None = None) -> Workflow:
    """The workflow of a YAML file. Raises ConfigError with file, line, key and what would fit; `all_errors` of it gives all of them.

    `further` is asked for more mistakes where there is one: all of them are told at once.
    """
    if not isinstance(path, str | PathLike):
        raise ConfigError(f"a workflow is a file or a mapping, not {kind_of(path)}.", hint="Give the path of a YAML file, or its values.")
    file = Path(path).expanduser()
    try:
        with open_outside(file) as opened:
            source = opened.read(MAX_BYTES + 1)
    except OSError as error:
        reason = "is a folder" if file.is_dir() else f"cannot be read: {error.strerror or error}"
        raise ConfigError(f"the workflow file {reason}.", file=file, hint="Give the path of a YAML file with `id` and `stages`.") from None
    return _Reader(read_yaml(source, file)).workflow(home=file.parent, further=further)


def parse_workflow(
    value: Mapping[str, Any], *, file: str | PathLike[str] | None = None, further: Further | None = None, kept: bool = False
) -> Workflow:
    """The workflow that plain values say, checked like a file. One that a session has `kept` was accepted: its stages' settings stay so."""
    reading = Reading(_plain(value, "the workflow", file), file=fspath(file) if file is not None else None)
    return _Reader(reading, kept=kept).workflow(further=further)


def parse_workflow_text(text: str) -> Workflow:
    """The workflow that a YAML text says, checked like a file: every mistake with its line."""
    return _Reader(read_yaml(text)).workflow()


def parse_stage(value: Mapping[str, Any], *, where: str) -> Stage:
    """One stage alone, as an agent adds it. `where` is said in errors in place of a file."""
    reader = _Reader(Reading(_plain(value, "an added stage", where), file=where))
    stage = reader.validated(_STAGE, reader.stage_values(reader.reading.values, ()))
    raise_all(reader.errors)
    assert stage is not None  # noqa: S101 - else there was an error
    return stage


def _plain(value: object, what: str, file: str | PathLike[str] | None) -> Any:
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{what} holds something that JSON cannot say: {error}.",
            file=file,
            hint="Functions go into `agents={...}`, and the stage names one by its `agent_type`.",
        ) from None


class _Reader:
    """Goes over one file and notes everything that is wrong with it in `errors`."""

    def __init__(self, reading: Reading, *, kept: bool = False) -> None:
        self.reading = reading
        self._kept = kept
        self.errors: list[ConfigError] = []
        self._lines: dict[KeyPath, dict[str, int]] = {}
        for path, place in reading.keys.items():
            if len(path) > 2:  # a key of a stage, or in one
                self._lines.setdefault(path[:2], {})[dotted(path[2:])] = place.line

    def workflow(self, *, home: Path | None = None, further: Further | None = None) -> Workflow:
        values = self.reading.values
        if not isinstance(values, dict):
            found = "empty" if values is None else described(values)
            message = f"a workflow file must be a mapping with `id` and `stages`; this one is {found}."
            raise ConfigError(message, file=self.reading.file, line=1)
        known = (*_TOP_KEYS, *SECTIONS)
        for key in values:
            if key not in known and key not in _PROSE:
                near = nearest(key, known)
                hint = f"Did you mean `{near}`?" if near else f"Valid here: {', '.join(known)}."
                self._error("there is no key of this name in a workflow.", (key,), nearest=near, hint=hint, of_key=True)
        given = {key: values[key] for key in _TOP_KEYS if values.get(key) is not None}
        if isinstance(stages := given.get("stages"), list):
            given["stages"] = [self.stage_values(stage, ("stages", number)) for number, stage in enumerate(stages)]
        given["sections"] = {name: values[name] for name in SECTIONS if values.get(name) is not None}
        workflow = self.validated(_WORKFLOW, {**given, "file": self.reading.file, "home": home})
        stages = dict(enumerate(workflow.stages)) if workflow is not None else self._sound(given.get("stages"))
        self._check_repeated(stages)
        self._check_names(stages, given.get("stages"))
        if workflow is not None and not self.errors:
            self._check_graph(workflow.stages)
        if self.errors and stages and further is not None:
            self.errors += further(Workflow("unread", tuple(stages.values()), file=self.reading.file, home=home))
        raise_all(self.errors)
        assert workflow is not None  # noqa: S101 - else there was an error
        return workflow

    @staticmethod
    def _sound(values: object) -> dict[int, Stage]:
        """Of the stages of a file that is wrong somewhere those that are right, by their place."""
        found: dict[int, Stage] = {}
        for number, value in enumerate(values if isinstance(values, list) else ()):
            with suppress(ValidationError):  # it has been told
                found[number] = _STAGE.validate_python(value)
        return found

    def stage_values(self, value: object, path: KeyPath) -> object:
        """The values of one stage as `Stage` has them: keys that are not ours are settings of its agent, unless they are near misses."""
        if not isinstance(value, dict):
            return value
        settings: dict[str, Any] = {}
        for key in value:
            if key in _STAGE_KEYS:
                continue
            if not self._kept and (near := _meant(key, value.get("agent_type"))) is not None:
                hint = f"Did you mean `{near}`?"
                self._error("there is no key of this name in a stage.", (*path, key), nearest=near, hint=hint, of_key=True)
            else:
                settings[key] = value[key]
        given = {key: value[key] for key in _STAGE_KEYS if value.get(key) is not None}
        return {**given, "settings": settings, "line": self.reading.line(path), "lines": self._lines.get(path, {})}

    def validated(self, form: TypeAdapter[_T], values: object) -> _T | None:
        try:
            return form.validate_python(values)
        except ValidationError as error:
            found = errors_of(error, values, self.reading)
            self.errors += [_with_hint(one) for one in found if not is_explained(one, self.errors)]
            return None

    def _check_repeated(self, stages: Mapping[int, Stage]) -> None:
        seen: dict[str, int] = {}
        for number, stage in stages.items():
            first = seen.setdefault(stage.name.lower(), number)
            if first != number:
                line = self.reading.line(("stages", first, "name"))
                where = f", on line {line}" if line else f": stage {first + 1}"
                message = f"another stage has the name {stage.name!r} already{where}."
                self._error(message, ("stages", number, "name"), hint="Give it another.")

    def _check_graph(self, stages: tuple[Stage, ...]) -> None:
        names = [stage.name for stage in stages]
        needs = needs_of(stages)
        if (circle := cycle(needs)) is not None:
            path = ("stages", names.index(circle[0]), "needs")
            self._error(f"these stages wait for each other: {' -> '.join(circle)}.", path, hint="Take one of them out.")
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

    def _check_names(self, stages: Mapping[int, Stage], values: object) -> None:
        """What the stages that were read wait for must be there, read or not."""
        listed = [value for value in values if isinstance(value, Mapping)] if isinstance(values, list) else []
        names = [str(value["name"]) for value in listed if "name" in value]
        for number, stage in stages.items():
            for key in ("needs", "inputs"):
                for index, name in enumerate(getattr(stage, key) or ()):
                    self._check_name(name, stage, names, ("stages", number, key, index))

    def _check_name(self, name: str, stage: Stage, names: list[str], path: KeyPath) -> None:
        if name == stage.name:
            self._error("a stage cannot wait for itself.", path)
        elif name not in names:
            near = nearest(name, names)
            hint = f"Did you mean `{near}`?" if near else f"There are: {', '.join(names[:20])}."
            self._error(f"there is no stage {name!r}.", path, nearest=near, hint=hint)

    def _error(self, message: str, path: KeyPath, *, nearest: str | None = None, hint: str | None = None, of_key: bool = False) -> None:
        line = self.reading.line(path, of_key=of_key)
        self.errors.append(ConfigError(message, file=self.reading.file, line=line, key=dotted(path) or None, nearest=nearest, hint=hint))


def _meant(key: str, agent: object) -> str | None:
    """The key of a stage that this one is a misspelling of, or another name for.

    An agent of the user's own may read a setting of such a name, and says so where it is known (`agent.find_agents`); but nobody may
    believe in vain that a person will be asked.
    """
    own = agent is not None and agent not in OFFLINE_AGENTS
    others = {name: meant for name, meant in _OTHER_NAMES.items() if not own or meant == "approve"}
    return near_miss(key, _STAGE_KEYS) or others.get(near_miss(key, others) or "")


def _with_hint(error: ConfigError) -> ConfigError:
    hint = _HINTS.get((error.key or "").rpartition(".")[2])
    return error if hint is None else ConfigError(error.message, file=error.file, line=error.line, key=error.key, hint=hint)


def with_stages_added(
    workflow: Workflow, by: str, wanted: Sequence[Mapping[str, Any]], check_agent: Callable[[Stage], object]
) -> tuple[Workflow, tuple[Stage, ...]]:
    """The workflow with the stages that the agent of `by` adds, and those stages, checked like those of a file.

    `check_agent` raises ConfigError for a stage whose agent cannot be had. Raises OutputInvalid, as for any output that does not fit.
    """
    if not wanted:
        return workflow, ()
    listed = isinstance(wanted, list | tuple) and all(isinstance(one, Mapping) for one in wanted)
    problems = [str(one) for one in form_problems({"add_stages": wanted})] if listed else ["add_stages: must be a list of objects"]
    if problems:
        raise _unfit(by, problems, wanted)
    left = workflow.max_added_stages - len(workflow.added_by)
    if len(wanted) > left:
        problems.append(
            f"add_stages: {counted(len(wanted), 'stage is', 'stages are')} added, and {left} more are allowed (max_added_stages)"
        )
    stages: list[Stage] = []
    for number, value in enumerate(wanted):
        try:
            stages.append(parse_stage(value, where=f"add_stages[{number}]"))
            agent = check_agent(stages[-1])
            raise_all(unread_settings(agent, stages[-1], None) if isinstance(agent, StageAgent) else [])
        except ConfigError as error:
            problems += [f"add_stages[{number}].{one.key or ''}: {one.message}" for one in all_errors(error)]
    names = [stage.name.lower() for stage in stages]
    taken = {name.lower() for name in workflow.by_name}
    problems += [f"add_stages: there is a stage {name!r} already" for name in names if name in taken or names.count(name) > 1]
    if not problems:
        bigger = workflow.with_added(stages, by)
        problems += _added_graph_problems(bigger, stages)
        if not problems:
            return bigger, tuple(stages)
    raise _unfit(by, problems, [dict(one) for one in wanted])


def _unfit(by: str, problems: list[str], raw: object) -> OutputInvalid:
    return OutputInvalid(f"the stages that {by!r} adds do not fit: {'; '.join(problems[:3])}.", problems=problems, raw=raw, stage=by)


def _added_graph_problems(workflow: Workflow, added: Sequence[Stage]) -> list[str]:
    problems = []
    for stage in added:
        unknown = [name for name in (*(stage.needs or ()), *(stage.inputs or ())) if name not in workflow.by_name]
        problems += [f"add_stages.{stage.name}: there is no stage {name!r}" for name in dict.fromkeys(unknown)]
    if problems:
        return problems
    if (circle := cycle(workflow.needs)) is not None:
        return [f"add_stages: these stages wait for each other: {' -> '.join(circle)}"]
    for stage in added:
        before = ancestors(stage.name, workflow.needs) if stage.inputs else set()
        problems += [f"add_stages.{stage.name}.inputs: {name!r} is not done before it" for name in stage.inputs or () if name not in before]
    return problems
