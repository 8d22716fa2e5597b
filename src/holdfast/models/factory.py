"""Chat models by name: `create_chat_model("gpt-4o-mini")` makes the one that `models:` in config.yaml describes.

Without a name it is the first configured one, or what `pick` finds on this machine. Beside it: what a model may be asked
(`abilities_of`, `require`), which one does the side work (`summary_model`, `memory_model`), and how an agent goes on when one
fails (`model_middlewares`). LangChain is imported when a model is made, not before.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.config.loading import load_config
from holdfast.config.sections import Config, ModelConfig
from holdfast.errors import ConfigError, MissingVariable, ModelNotConfigured, ModelTooWeak, ModelUnavailable
from holdfast.models import abilities as known_abilities
from holdfast.models.abilities import ABLE, Abilities, Task
from holdfast.models.choice import how_to_get_one, pick
from holdfast.models.construction import CAN, LLAMA_CPP, RETRIES, build, secrets_of

if TYPE_CHECKING:
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.language_models import BaseChatModel

_LOG = logging.getLogger("holdfast.models")


def create_chat_model(
    name: str | None = None,
    thinking_enabled: bool = False,
    *,
    config: Config | None = None,
    environ: Mapping[str, str] | None = None,
    retries: bool = True,
) -> BaseChatModel:
    """The chat model of this name, ready to be asked. `None` is the first configured one, or what `pick` finds.

    `retries=False` is for a model in an agent that has `model_middlewares`, which ask again themselves. Raises
    ModelNotConfigured (naming those that exist), ConfigError or MissingVariable for wrong settings, ModelUnavailable when
    a package or file is missing.
    """
    config = load_config() if config is None else config
    settings = settings_of(name, config=config, environ=environ)
    return _built(settings, config, thinking=thinking_enabled, retries=retries)


def settings_of(name: str | None = None, *, config: Config, environ: Mapping[str, str] | None = None) -> ModelConfig:
    """The settings behind a name: of the configuration, or of weights that a package brings. Raises ModelNotConfigured otherwise,
    which says how to get a model when there is none."""
    if name is not None and (brought := _brought(name, config)) is not None:
        return brought
    if name is not None and config.models:
        return config.model(name)
    choice = pick(config, environ)
    if choice.config is None:
        raise ModelNotConfigured(choice.why, model=name, hint=" ".join(how_to_get_one()))
    if name not in {None, choice.name}:
        raise ModelNotConfigured(
            f"there is no model named {name!r}: none is configured.", model=name, hint=f"Without a name, {choice.name} is used."
        )
    return choice.config


def _brought(name: str, config: Config) -> ModelConfig | None:
    """Weights that are called so (`smollm2`), where the configuration has no model of that name."""
    from holdfast.models.weights import KNOWN_WEIGHTS

    if name not in KNOWN_WEIGHTS or any(model.name == name for model in config.models):
        return None
    return ModelConfig(name=name, use=LLAMA_CPP, model=name)


def _built(settings: ModelConfig, config: Config, *, thinking: bool = False, retries: bool = True) -> BaseChatModel:
    try:
        return build(settings, thinking=thinking, retries=retries, beside=config.beside, cache=config.base)
    except ConfigError as error:
        if settings in config.models and error.file is None and error.key and not isinstance(error, MissingVariable):
            index = config.models.index(settings)
            part = error.key.rpartition(".")[2] if "." in error.key else None
            error.file = str(config.file) if config.file is not None else None
            error.line = config.reading.line(("models", index, part) if part else ("models", index)) or config.reading.line(
                ("models", index)
            )
            error.key = f"models[{index}]{f'.{part}' if part else ''}"
        raise


def abilities_of(model: BaseChatModel | ModelConfig) -> Abilities:
    """What this model may be asked: what `can:` says, over what its profile or its weights say."""
    if isinstance(model, ModelConfig):
        return _with(_abilities_by_settings(model), model.can)
    profile = getattr(model, "profile", None)
    said = profile.get(CAN) if isinstance(profile, Mapping) else None
    return _with(known_abilities.abilities_of(model), said if isinstance(said, Mapping) else None)


def _abilities_by_settings(settings: ModelConfig) -> Abilities:
    """What is known without making the model: the size of local weights, by name or from the head of their file."""
    if settings.use == LLAMA_CPP:
        from holdfast.models.weights import KNOWN_WEIGHTS

        known = KNOWN_WEIGHTS.get(settings.model or "")
        if known is not None and not settings.path:
            return known_abilities.abilities_by_size(known.parameters)
        size = _parameters_in(settings.path) if settings.path else None
        if size is not None:
            return known_abilities.abilities_by_size(size)
        return known_abilities.abilities({"name": settings.path or settings.model or "", "open_weights": True})
    return ABLE


def _parameters_in(path: str) -> int | None:
    """How many parameters a GGUF file says it has; None when it cannot be read, which the model tells when it is made."""
    from holdfast.models.gguf import read_head

    try:
        return read_head(Path(path).expanduser()).parameters or None
    except (ModelUnavailable, OSError):
        return None


def _with(able: Abilities, said: Mapping[str, Any] | None) -> Abilities:
    changes: dict[str, Any] = {}
    for task, yes in (said or {}).items():
        if task == "tools":
            changes[task] = "none" if not yes else able.tools if able.tools != "none" else "native"
        elif task in {"summary", "extraction", "json"}:
            changes[task] = bool(yes)
    return dataclasses.replace(able, **changes) if changes else able


def require(model: BaseChatModel | ModelConfig, task: Task) -> None:
    """Raise ModelTooWeak when this must not be asked of the model."""
    name = model.name if isinstance(model, ModelConfig) else getattr(model, "model_name", None) or getattr(model, "model", None)
    known_abilities.require(abilities_of(model), task, model=name if isinstance(name, str) else None)


def summary_model(config: Config, *, environ: Mapping[str, str] | None = None) -> BaseChatModel | None:
    """The model that writes summaries, or None when there is none or it is too weak: extraction does it then (S14, A15).

    Named by `summarization.model_name`, else the one marked `lightweight`, else the cheapest, else the first; never thinking.
    """
    return _side_model(config, config.summarization.model_name, "summary", environ)


def memory_model(config: Config, *, environ: Mapping[str, str] | None = None) -> BaseChatModel | None:
    """The model that extracts facts for memory, or None when there is none or it is too weak: the rules do it then (S14, M13)."""
    return _side_model(config, config.memory.model_name, "extraction", environ)


def _side_model(config: Config, name: str | None, task: Task, environ: Mapping[str, str] | None) -> BaseChatModel | None:
    settings = config.model(name) if name else config.lightweight_model() or pick(config, environ).config
    if settings is None:
        return None
    try:
        require(settings, task)
        model = _built(settings, config)
        require(model, task)
    except ModelTooWeak as error:
        _LOG.warning("%s", error.message)
        return None
    return model


def model_middlewares(
    config: Config,
    name: str | None = None,
    *,
    thinking_enabled: bool = False,
    environ: Mapping[str, str] | None = None,
    first_delay: float = 1.0,
) -> list[AgentMiddleware[Any, Any, Any]]:
    """What makes an agent go on when its model fails: ask again, then the models under `fallbacks:`, then a typed error.

    Make the agent's own model with `create_chat_model(name, retries=False)`, so that asking again happens in one place.
    """
    from holdfast.models.retries import middlewares

    settings = settings_of(name, config=config, environ=environ)
    others = [config.model(other) for other in dict.fromkeys(settings.fallbacks) if other != settings.name]
    models: dict[str, BaseChatModel] = {}
    for other in others:
        try:
            models[other.name] = _built(other, config, thinking=thinking_enabled and other.supports_thinking, retries=False)
        except (ModelUnavailable, MissingVariable) as error:  # the agent's own model may well work without it
            _LOG.warning("the fallback %s of model %s is left out: %s", other.name, settings.name, error)
    return middlewares(
        [settings.name, *models],
        fallbacks=list(models.values()),
        retries=RETRIES if settings.max_retries is None else settings.max_retries,
        first_delay=first_delay,
        secrets=[secret for one in (settings, *others) for secret in secrets_of(one)],
    )
