"""A workflow as a value: its stages in order, what each may see and waits for, and a hash of its meaning (W1, W6).

`load_workflow` reads one from a file, `parse_workflow` from plain values; how that is checked is in `reading.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from os import PathLike
from typing import Any, Literal

from holdfast.session.secrecy import clean_definition
from holdfast.workflow.graph import ancestors, needs_of

OnError = Literal["halt", "skip"]
OnLowConfidence = Literal["continue", "recheck", "halt"]


@dataclass(frozen=True)
class Stage:
    """One stage. `settings` holds every other key of the file, for the agent."""

    name: str
    agent_type: str = "llm"
    system_prompt: str = ""
    inputs: tuple[str, ...] | None = None
    """The stages whose outputs it is given; None means all that it waits for, directly or not."""
    needs: tuple[str, ...] | None = None
    """The stages it waits for; None means all that stand before it."""
    output_schema: Mapping[str, Any] | None = None
    approve: bool = False
    max_repairs: int = 2
    retries: int = 2
    retry_seconds: float = 1.0
    """The first pause before a retry; each one after it is twice as long."""
    timeout_seconds: float | None = None
    on_error: OnError = "halt"
    on_low_confidence: OnLowConfidence = "continue"
    model: str | None = None
    tools: tuple[str, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    line: int | None = field(default=None, compare=False)

    def document(self) -> dict[str, Any]:
        """What differs from the defaults, as plain JSON values in the form of the file."""
        said = {part.name: getattr(self, part.name) for part in fields(self) if part.name not in ("settings", "line")}
        written = {name: list(value) if isinstance(value, tuple) else value for name, value in said.items() if value != _DEFAULTS.get(name)}
        return {**written, **self.settings}


_DEFAULTS = {part.name: part.default for part in fields(Stage) if part.default is not MISSING}


_USUAL = {"task": None, "topic_tag": None, "memory_retrieval_top_k": None, "max_added_stages": 0, "max_parallel": 4}


@dataclass(frozen=True)
class Workflow:
    """A workflow file, checked."""

    id: str
    stages: tuple[Stage, ...]
    task: str | None = None
    topic_tag: str = "general"
    memory_retrieval_top_k: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    max_added_stages: int = 0
    """How many stages the agents may add to it, all together (W13)."""
    max_parallel: int = 4
    """How many stages may run at once, where `needs` allows it."""
    file: str | None = field(default=None, compare=False)
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
    def order(self) -> Mapping[str, int]:
        """The place of each stage, from 0."""
        return {stage.name: number for number, stage in enumerate(self.stages)}

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
            needs = self.needs[name]
            known = frozenset(needs).union(*(self.before(one) if one in self._before else ancestors(one, self.needs) for one in needs))
            self._before[name] = known
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


def load_workflow(path: str | PathLike[str]) -> Workflow:
    """The workflow of a YAML file. Raises ConfigError with file, line, key and what would fit; `all_errors` of it gives all of them."""
    from holdfast.workflow.reading import load

    return load(path)


def parse_workflow(value: Mapping[str, Any], *, file: str | PathLike[str] | None = None) -> Workflow:
    """The workflow that plain values say, checked like a file."""
    from holdfast.workflow.reading import parse

    return parse(value, file=file)
