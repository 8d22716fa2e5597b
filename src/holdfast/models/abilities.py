"""What a model may be asked: a summary, an extraction, tool calls, JSON.

A model that is too weak for a task is not asked; extraction without a model takes its place (A15). What `can:` in the configuration says
counts first, then what a trial of the model found (`trials.py`). Until there was one, local weights are guessed at by their size, and
models of the big providers are taken to be able to do everything. No LangChain here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlsplit

from holdfast.config.sections import ModelConfig
from holdfast.errors import ModelTooWeak, ModelUnavailable
from holdfast.models.providers import LLAMA_CPP, is_loopback
from holdfast.models.weights import KNOWN_WEIGHTS, read_head

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

Task = Literal["summary", "extraction", "tools", "json"]
TASKS: tuple[Task, ...] = get_args(Task)
CAN = "holdfast_can"
"""The key in a model's profile that holds what the configuration says under `can:`."""


@dataclass(frozen=True)
class Abilities:
    """What can be asked of a model. `parameters` is its size where that is known."""

    summary: bool = True
    extraction: bool = True
    tools: bool = True
    json: bool = True
    parameters: int | None = None

    def can(self, task: Task) -> bool:
        return bool(getattr(self, task))


ABLE = Abilities()
"""A model of one of the big providers, and any model of which nothing else is known."""

# Read by eye on a ten-turn dialogue: 135M loops on an invented exchange and repeats one fact; 0.5B copies sentences, loses a
# third of the facts and takes two from the assistant; 1.5B writes a fluent summary with nine of twelve facts and takes
# facts only from the user. Below a billion, tools are called at random.
_WEAK = 1_000_000_000
_SIZE = re.compile(r"(?<![\w.])(\d{1,4}(?:\.\d{1,3})?)\s?([mb])(?![a-z0-9])", re.IGNORECASE | re.ASCII)


def abilities_of(model: BaseChatModel | ModelConfig | object) -> Abilities:
    """What this model may be asked: what `can:` says, over what the model says of itself, its profile or its weights say."""
    if isinstance(model, ModelConfig):
        return _with(_abilities_by_settings(model), model.can)
    own, profile = getattr(model, "abilities", None), getattr(model, "profile", None)
    known = profile if isinstance(profile, Mapping) else {}
    said = known.get(CAN)
    return _with(own if isinstance(own, Abilities) else abilities_by_profile(known), said if isinstance(said, Mapping) else None)


def abilities_by_size(parameters: int, *, takes_tools: bool = True) -> Abilities:
    """What local weights of this size can do. Without a place for tools in its template a model is offered none."""
    able = parameters >= _WEAK
    return Abilities(summary=able, extraction=able, tools=able and takes_tools, parameters=parameters)


def abilities_by_profile(profile: Mapping[str, Any] | None) -> Abilities:
    """What a LangChain profile says of a model. A size in its name (`SmolLM2-135M`) decides for open weights.

    >>> abilities_by_profile({"name": "SmolLM2-135M-Instruct", "open_weights": True}).summary
    False
    """
    if not profile:
        return ABLE
    size = _size_in(str(profile.get("name", ""))) if profile.get("open_weights") else None
    able = abilities_by_size(size) if size is not None else ABLE
    return replace(able, tools=False) if profile.get("tool_calling") is False else able


def require(model: BaseChatModel | ModelConfig, task: Task) -> None:
    """Raise ModelTooWeak when this must not be asked of the model."""
    name = model.name if isinstance(model, ModelConfig) else model_name_of(model)
    require_ability(abilities_of(model), task, model=name)


def require_ability(able: Abilities, task: Task, *, model: str | None = None) -> None:
    """Raise ModelTooWeak, under this name of the model, when `able` does not allow the task."""
    if able.can(task):
        return
    size = f" ({able.parameters / 1e6:.0f} million parameters)" if able.parameters else ""
    raise ModelTooWeak(
        f"the model {model or ''}{size} is too weak for {task}.".replace("  ", " "),
        model=model,
        hint="Configure a larger model for it, or leave it to the extraction that needs no model.",
    )


def is_on_this_machine(model: object) -> bool:
    """Whether the model runs here: weights in this process, or a server at a loopback address."""
    if abilities_of(model).parameters is not None:
        return True
    address = getattr(model, "openai_api_base", None) or getattr(model, "base_url", None)
    return isinstance(address, str) and is_loopback(urlsplit(address).hostname or "")


def model_name_of(model: object) -> str:
    """What a chat model is called by its provider, under whichever name its class has for that; else the name of the class."""
    for field in ("model_name", "model", "model_id", "name"):
        name = getattr(model, field, None)
        if isinstance(name, str) and name:
            return name
    return type(model).__name__


def _abilities_by_settings(settings: ModelConfig) -> Abilities:
    """What is known without making the model: the size of local weights, by name or from the head of their file."""
    if settings.use != LLAMA_CPP:
        return ABLE
    known = KNOWN_WEIGHTS.get(settings.model or "")
    if known is not None and not settings.path:
        return abilities_by_size(known.parameters)
    try:
        head = read_head(Path(settings.path).expanduser()) if settings.path else None
    except (ModelUnavailable, OSError):  # told when the model is made
        head = None
    if head is not None and head.parameters:
        return abilities_by_size(head.parameters, takes_tools=head.takes_tools)
    return abilities_by_profile({"name": settings.path or settings.model or "", "open_weights": True})


def _with(able: Abilities, said: Mapping[str, Any] | None) -> Abilities:
    return replace(able, **{task: bool(yes) for task, yes in (said or {}).items() if task in TASKS})


def _size_in(name: str) -> int | None:
    found = _SIZE.search(name.replace("-", " ").replace("_", " "))
    if found is None:
        return None
    return round(float(found[1]) * (1e9 if found[2].lower() == "b" else 1e6))
