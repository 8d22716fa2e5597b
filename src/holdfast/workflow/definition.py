"""A workflow as a value: its stages in order, what each may see and waits for, and a hash of its meaning (W1, W6).

The annotations say what a file may hold, and pydantic checks them where one is read (`workflow_file.py`); inside, these are plain frozen
dataclasses. What waits for what is at the end: a stage for those it `needs`, or without that for all that stand before it (W13).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Strict, StrictBool, StringConstraints

from holdfast.config.section import Misfit
from holdfast.errors import ConfigError
from holdfast.session.document import clean_definition
from holdfast.session.output import check_schema
from holdfast.validation import counted

MAX_STAGES = 2_000
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}", re.ASCII)


def _name(value: object) -> str:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or _NAME.fullmatch(text) is None:
        raise Misfit("must be 1 to 64 ASCII letters, digits, hyphens or underscores", found=value)
    return text


def _word(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise Misfit("must be a word", found=value)
    return str(value).strip()


def _names(value: object) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise Misfit("must be a list of names", found=value)
    return tuple(dict.fromkeys(items))


def _schema(value: object) -> object:
    if not isinstance(value, dict):
        raise Misfit("must be a JSON Schema, which is a mapping", found=value)
    try:
        check_schema(value, stage="")
    except ConfigError as error:
        raise Misfit(f"must be a JSON Schema: {error.message.rstrip('.')}") from None
    return value


def _listed(value: object) -> object:
    if not isinstance(value, list | tuple) or not value:
        raise Misfit("must be a list of at least one stage")
    if len(value) > MAX_STAGES:
        raise Misfit(f"has {counted(len(value), 'stage')}; at most {MAX_STAGES} are allowed")
    return value


Name = Annotated[str, BeforeValidator(_name)]
Word = Annotated[str, BeforeValidator(_word)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
Text = Annotated[str, Strict(), StringConstraints(strip_whitespace=True)]
Count = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
Seconds = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Pause = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
OnError = Literal["halt", "skip"]
OnLowConfidence = Literal["continue", "recheck", "halt"]


READ_BY_NOBODY = {
    **dict.fromkeys(("timeout", "timeouts"), "timeout_seconds"),
    **dict.fromkeys(("retry", "retrys", "max_retries"), "retries"),
    "depends_on": "needs",
}
"""What other programs call our keys of a stage. As a setting it would be read by nobody, unless the agent says that it has one so named."""


USUAL_REPAIRS = 2
"""How often an agent that asks a model is asked again for an output that does not fit, where the stage does not say (W4)."""


@dataclass(frozen=True)
class Stage:
    """One stage. `settings` holds every other key of the file, for the agent."""

    name: Name
    agent_type: Word = "llm"
    system_prompt: Text = ""
    inputs: Names | None = None
    """The stages whose outputs it is given; None means all that it waits for, directly or not."""
    needs: Names | None = None
    """The stages it waits for; None means all that stand before it."""
    output_schema: Annotated[dict[str, Any], BeforeValidator(_schema)] | None = None
    approve: StrictBool = False
    max_repairs: Count | None = None
    """None means what is usual for its agent: `USUAL_REPAIRS`, and none for a plain function (`retry_policy.Tries.of`)."""
    retries: Count = 2
    retry_seconds: Pause = 1.0
    """The first pause before a retry; each one after it is twice as long."""
    timeout_seconds: Seconds | None = None
    on_error: OnError = "halt"
    on_low_confidence: OnLowConfidence = "continue"
    model: Word | None = None
    tools: Names | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    line: int | None = field(default=None, compare=False)
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    """The line of each key in it, by its dotted path, such as `sources.folder`."""

    def line_of(self, key: str) -> int | None:
        """The line of a key in it; of one that the file does not have, that of what is around it."""
        while key and key not in self.lines:
            key = key.rpartition(".")[0]
        return self.lines.get(key, self.line)

    def document(self) -> dict[str, Any]:
        """What differs from the defaults, as plain JSON values in the form of the file."""
        said = {name: value for name, usual in _SAID if (value := getattr(self, name)) != usual}
        return {**{name: list(value) if isinstance(value, tuple) else value for name, value in said.items()}, **self.settings}


_SAID = tuple(
    (part.name, part.default if part.default is not MISSING else None)
    for part in fields(Stage)
    if part.name not in ("settings", "line", "lines")
)
_USUAL = {"task": None, "topic_tag": None, "memory_retrieval_top_k": None, "max_added_stages": 0, "max_parallel": 4}


@dataclass(frozen=True)
class Workflow:
    """A workflow file, checked."""

    id: Name
    stages: Annotated[tuple[Stage, ...], BeforeValidator(_listed)]
    task: Text | None = None
    topic_tag: Word = "general"
    memory_retrieval_top_k: Count | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    max_added_stages: Count = 0
    """How many stages the agents may add to it, all together (W13)."""
    max_parallel: Annotated[int, Field(strict=True, ge=1, le=1_000)] = 4
    """How many stages may run at once, where `needs` allows it."""
    file: str | None = field(default=None, compare=False)
    home: Path | None = field(default=None, compare=False)
    """The folder of its file, where modules of agents and paths in it are looked for; None when it came as values."""
    sections: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """`session`, `memory`, `knowledge` and `limits`, as the file says them: settings, not part of what the workflow means."""
    added_by: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Of the stages that were added while it ran, which stage added them."""

    @cached_property
    def hash(self) -> str:
        """A hash of what the workflow means: comments, spacing, the order of keys and defaults written out do not count.

        The task and the parameters do not count either: they belong to the session, which keeps its own.
        """
        meaning = {key: value for key, value in self.document().items() if key not in ("task", "parameters", "max_parallel")}
        meaning["stages"] = [_clean(stage) for stage in meaning["stages"]]
        for stage in meaning["stages"]:
            if stage.get("max_repairs") == USUAL_REPAIRS:
                del stage["max_repairs"]
        text = json.dumps(meaning, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return "sha256-" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def document(self) -> dict[str, Any]:
        """The definition as plain JSON values, in the form of the file, as it is kept in the session."""
        said: dict[str, Any] = {"id": self.id}
        for name, usual in _USUAL.items():
            if getattr(self, name) != usual:
                said[name] = getattr(self, name)
        if self.parameters:
            said["parameters"] = dict(self.parameters)
        said["stages"] = [stage.document() for stage in self.stages if stage.name not in self.added_by]
        return said

    @cached_property
    def by_name(self) -> Mapping[str, Stage]:
        return {stage.name: stage for stage in self.stages}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the stages, in their order."""
        return tuple(stage.name for stage in self.stages)

    @cached_property
    def order(self) -> Mapping[str, int]:
        """The place of each stage, from 0."""
        return {stage.name: number for number, stage in enumerate(self.stages)}

    @cached_property
    def is_sequence(self) -> bool:
        """Whether each stage waits for all that stand before it."""
        return all(stage.needs is None for stage in self.stages)

    @cached_property
    def needs(self) -> Mapping[str, tuple[str, ...]]:
        """What each stage waits for."""
        return needs_of(self.stages, self.added_by)

    @cached_property
    def _before(self) -> dict[str, frozenset[str]]:
        return {}

    def before(self, name: str) -> frozenset[str]:
        """All stages that are done before this one can start."""
        known = self._before.get(name)
        if known is None:
            found: set[str] = set()
            for one in reversed(self.needs[name]):
                if one not in found:  # else what is before it is found already: most stages need all that stand before them
                    found |= self.before(one) if one in self._before else ancestors(one, self.needs)
            known = self._before[name] = frozenset(found.union(self.needs[name]))
        return known

    def with_added(self, stages: Sequence[Stage], added_by: str) -> Workflow:
        """The workflow with these stages after the one that adds them, and after what that one added before."""
        place = self.order[added_by] + 1
        while place < len(self.stages) and self._descends(self.stages[place].name, added_by):
            place += 1
        parents = {**self.added_by, **{stage.name: added_by for stage in stages}}
        return replace(self, stages=(*self.stages[:place], *stages, *self.stages[place:]), added_by=parents)

    def _descends(self, name: str, ancestor: str) -> bool:
        parent: str | None = name
        while parent is not None and parent != ancestor:
            parent = self.added_by.get(parent)
        return parent == ancestor and name != ancestor


def _clean(stage: Mapping[str, Any]) -> dict[str, Any]:
    """A stage as the session keeps it: a definition that held a secret is still the same one. Names cannot hold one."""
    return {key: value if key in _NAMES else clean_definition({key: value})[key] for key, value in stage.items()}


_NAMES = ("name", "agent_type", "inputs", "needs")


Needs = Mapping[str, tuple[str, ...]]


def needs_of(stages: Sequence[Stage], added_by: Mapping[str, str] | None = None) -> dict[str, tuple[str, ...]]:
    """For each stage the stages it waits for, in the order of the workflow.

    Who needs a stage needs what that stage added as well: a plan is done when the work that it planned is.
    """
    order = {stage.name: number for number, stage in enumerate(stages)}
    offspring: dict[str, list[str]] = {}
    for name, parent in (added_by or {}).items():
        offspring.setdefault(parent, []).append(name)
    needs: dict[str, tuple[str, ...]] = {}
    open_ends: list[str] = []  # those before it that nobody before it waits for: to wait for them is to wait for all before it
    for stage in stages:
        wanted = open_ends if stage.needs is None else _with_offspring(stage, offspring)
        needs[stage.name] = found = tuple(sorted(dict.fromkeys(wanted), key=lambda name: order.get(name, len(order))))
        open_ends = [name for name in open_ends if name not in found] + [stage.name]
    return needs


def _with_offspring(stage: Stage, offspring: Mapping[str, list[str]]) -> list[str]:
    found: list[str] = []
    waiting = list(stage.needs or ())
    while waiting:
        name = waiting.pop(0)
        found.append(name)
        added = offspring.get(name, [])
        if stage.name not in added:  # what was added with it is its sibling, not what it waits for
            waiting.extend(child for child in added if child not in found)
    return found


def ancestors(name: str, needs: Needs) -> set[str]:
    """All stages that are done before this one can start."""
    found: set[str] = set()
    waiting = list(needs.get(name, ()))
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting.extend(needs.get(one, ()))
    return found


def cycle(needs: Needs) -> list[str] | None:
    """A circle of stages that wait for each other, first name repeated at the end, or None."""
    done: set[str] = set()
    for start in needs:
        path: list[str] = []
        trail = [(start, iter(needs[start]))] if start not in done else []
        path.extend(name for name, _ in trail)
        while trail:
            name, rest = trail[-1]
            child = next((one for one in rest if one not in done), None)
            if child is None:
                done.add(name)
                trail.pop()
                path.pop()
            elif child in path:
                return [*path[path.index(child) :], child]
            else:
                trail.append((child, iter(needs.get(child, ()))))
                path.append(child)
    return None


def final_stages(needs: Needs) -> tuple[str, ...]:
    """The stages that nobody depends on: their outputs are the session's result (W2)."""
    needed = {name for names in needs.values() for name in names}
    return tuple(name for name in needs if name not in needed)
