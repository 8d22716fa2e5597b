"""What a model may be asked: a summary, an extraction, tool calls, JSON.

A model that is too weak for a task is not asked; extraction without a model takes its place (A15). What is known of local
weights goes by their size; models of the big providers are taken to be able to do everything. No LangChain here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.errors import ModelTooWeak

ToolWay = Literal["native", "schema", "none"]
"""How a model calls tools: by itself, by choosing within a JSON schema that holds it to the tools, or not at all."""

Task = Literal["summary", "extraction", "tools", "json"]


@dataclass(frozen=True)
class Abilities:
    """What can be asked of a model. `parameters` is its size where that is known."""

    summary: bool = True
    extraction: bool = True
    tools: ToolWay = "native"
    json: bool = True
    parameters: int | None = None

    def can(self, task: Task) -> bool:
        return self.tools != "none" if task == "tools" else bool(getattr(self, task))


ABLE = Abilities()
"""A model of one of the big providers, and any model of which nothing else is known."""

# Read by eye on a ten-turn dialogue: 135M loops on an invented exchange and repeats one fact; 0.5B copies sentences, loses a
# third of the facts and takes two from the assistant; 1.5B writes a fluent summary with nine of twelve facts and takes
# facts only from the user. None of them calls tools in a form that the server understands.
_BY_SIZE: tuple[tuple[int, Abilities], ...] = (
    (1_000_000_000, Abilities(summary=False, extraction=False, tools="schema")),
    (7_000_000_000, Abilities(tools="schema")),
)
_SIZE = re.compile(r"(?<![\w.])(\d{1,4}(?:\.\d{1,3})?)\s?([mb])(?![a-z0-9])", re.IGNORECASE | re.ASCII)


def abilities_by_size(parameters: int, *, takes_tools: bool = True) -> Abilities:
    """What local weights of this size can do. Without a place for tools in its template a model gets the schema way."""
    for limit, able in _BY_SIZE:
        if parameters < limit:
            return Abilities(able.summary, able.extraction, able.tools, able.json, parameters)
    return Abilities(tools="native" if takes_tools else "schema", parameters=parameters)


def abilities(profile: Mapping[str, Any] | None) -> Abilities:
    """What a LangChain profile says of a model. A size in its name (`SmolLM2-135M`) decides for open weights.

    >>> abilities({"name": "SmolLM2-135M-Instruct", "open_weights": True}).summary
    False
    """
    if not profile:
        return ABLE
    size = _size_in(str(profile.get("name", ""))) if profile.get("open_weights") else None
    able = abilities_by_size(size) if size is not None else ABLE
    tools: ToolWay = able.tools
    if profile.get("tool_calling") is False:
        tools = "schema" if profile.get("structured_output") else "none"
    return Abilities(able.summary, able.extraction, tools, able.json, able.parameters)


def abilities_of(model: object) -> Abilities:
    """What a chat model can do: what it says of itself, else what its profile says."""
    own = getattr(model, "abilities", None)
    if isinstance(own, Abilities):
        return own
    profile = getattr(model, "profile", None)
    return abilities(profile if isinstance(profile, Mapping) else None)


def require(able: Abilities, task: Task, *, model: str | None = None) -> None:
    """Raise ModelTooWeak when the model cannot be asked for this."""
    if able.can(task):
        return
    size = f" ({able.parameters / 1e6:.0f} million parameters)" if able.parameters else ""
    raise ModelTooWeak(
        f"the model {model or ''}{size} is too weak for {task}.".replace("  ", " "),
        model=model,
        hint="Configure a larger model for it, or leave it to the extraction that needs no model.",
    )


def _size_in(name: str) -> int | None:
    found = _SIZE.search(name.replace("-", " ").replace("_", " "))
    if found is None:
        return None
    return round(float(found[1]) * (1e9 if found[2].lower() == "b" else 1e6))
