"""Chat models by name: `create_chat_model("gpt-4o-mini")` makes the one that `models:` in config.yaml describes.

Without a name it is the first configured one, or what `pick` finds on this machine. Beside it: which model does the side work
(`summary_model`, `memory_model`), and how an agent goes on when one fails (`model_middlewares`). `providers` finds class, address and key.
LangChain is imported when a model is made, not before.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.config.loading import load_config
from holdfast.config.sections import Config, ModelConfig
from holdfast.errors import ConfigError, HoldfastError, MissingVariable, ModelNotConfigured, ModelTooWeak, ModelUnavailable
from holdfast.models.abilities import CAN, Task, require
from holdfast.models.call_limits import limited
from holdfast.models.choice import how_to_get_one, pick
from holdfast.models.failures import without_secrets
from holdfast.models.providers import LLAMA_CPP, RETRIES, find_class, how_to_install, with_defaults
from holdfast.models.trials import with_trial
from holdfast.models.weights import KNOWN_WEIGHTS
from holdfast.redaction import is_secret_key

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
    which says how to get a model when there is none, and NotTrusted where those of the file do not count."""
    return with_trial(_settings_of(name, config, environ), config.base)


def _settings_of(name: str | None, config: Config, environ: Mapping[str, str] | None) -> ModelConfig:
    if name is not None and (brought := _brought(name, config)) is not None:
        return brought
    if name is not None and config.models:
        return config.model(name)
    config.need("models")
    choice = pick(config, environ)
    if choice.config is None:
        why = choice.why if name is None else f"there is no model named {name!r}: none is configured or found."
        raise ModelNotConfigured(why, model=name, hint=" ".join(how_to_get_one()))
    if name not in {None, choice.name}:
        raise ModelNotConfigured(
            f"there is no model named {name!r}: none is configured.", model=name, hint=f"Without a name, {choice.name} is used."
        )
    return choice.config


def _brought(name: str, config: Config) -> ModelConfig | None:
    """Weights that are called so (`smollm2`), where the configuration has no model of that name."""
    if name not in KNOWN_WEIGHTS or any(model.name == name for model in config.models):
        return None
    return ModelConfig(name=name, use=LLAMA_CPP, model=name)


def _built(settings: ModelConfig, config: Config, *, thinking: bool = False, retries: bool = True) -> BaseChatModel:
    try:
        return build(settings, thinking=thinking, retries=retries, beside=config.beside, cache=config.base)
    except ConfigError as error:
        index = next((number for number, one in enumerate(config.models) if one.name == settings.name), None)
        if index is not None and error.file is None and error.key and not isinstance(error, MissingVariable):
            part = error.key.rpartition(".")[2] if "." in error.key else None
            error.file = str(config.file) if config.file is not None else None
            error.line = config.reading.line(("models", index, part) if part else ("models", index)) or config.reading.line(
                ("models", index)
            )
            error.key = f"models[{index}]{f'.{part}' if part else ''}"
        raise


def summary_model(config: Config, *, environ: Mapping[str, str] | None = None) -> BaseChatModel | None:
    """The model that writes summaries, or None when there is none or it is too weak: extraction does it then (S14, A15).

    Named by `summarization.model_name`, else the one marked `lightweight`, else the cheapest, else the first; never thinking.
    """
    return _side_model(config, "summarization.model_name", config.summarization.model_name, "summary", environ)


def memory_model(config: Config, *, environ: Mapping[str, str] | None = None) -> BaseChatModel | None:
    """The model that extracts facts for memory, or None when there is none or it is too weak: the rules do it then (S14, M13)."""
    return _side_model(config, "memory.model_name", config.memory.model_name, "extraction", environ)


def _side_model(config: Config, setting: str, name: str | None, task: Task, environ: Mapping[str, str] | None) -> BaseChatModel | None:
    settings = config.model(name, setting=setting) if name else config.lightweight_model() or pick(config, environ).config
    if settings is None:
        return None
    settings = with_trial(settings, config.base)
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


def build(
    settings: ModelConfig,
    *,
    thinking: bool = False,
    retries: bool = True,
    beside: Callable[[str], Path] = Path,
    cache: Path | None = None,
) -> BaseChatModel:
    """The chat model for these settings. Raises ConfigError, MissingVariable or ModelUnavailable, none of which shows a secret.

    `retries=False` leaves asking again to whoever calls (a middleware of the agent), so that it does not happen twice. `beside`
    says what a relative `path:` is relative to; `cache` is a folder for remembered hashes of weights.
    """
    arguments = _arguments(settings, thinking)
    cls, make = _local(settings, arguments, beside, cache) if settings.use == LLAMA_CPP else find_class(settings, arguments)
    try:
        first = make(**arguments) if cls is None else None  # which class it is, only LangChain or the weights can tell
        whole = arguments if settings.use == LLAMA_CPP else with_defaults(cls or type(first), arguments, retries=retries)
        model = first if first is not None and whole == arguments else make(**whole)
    except HoldfastError:
        raise
    except Exception as error:  # noqa: BLE001 - a class may raise anything from its constructor, and its text may hold the key
        raise _not_made(settings, error) from None
    _complete_profile(model, settings)
    return limited(model, settings)


def secrets_of(settings: ModelConfig) -> tuple[str, ...]:
    """The values that no error may repeat: the key under each of its names, as far as it can be read now."""
    try:
        named = {"api_key": settings.api_key, **{name: value for name, value in settings.extras().items() if is_secret_key(name)}}
    except ConfigError:
        return ()
    return tuple(value for value in named.values() if isinstance(value, str) and value)


def _arguments(settings: ModelConfig, thinking: bool) -> dict[str, Any]:
    """What the class is called with. Asking a model to think that cannot is a warning, and it does not."""
    if not settings.supports_thinking:
        if thinking:
            _LOG.warning("model %s: thinking was asked for, but supports_thinking is not set; it is off.", settings.name)
        return settings.arguments()
    arguments = settings.arguments(thinking=thinking)
    if not thinking and settings.when_thinking_disabled is None:
        _switch_off(arguments, settings.when_thinking_enabled or {})
    return arguments


def _switch_off(arguments: dict[str, Any], enabled: Mapping[str, Any]) -> None:
    """Where thinking is switched on by `thinking: {type: ...}`, models of that family think by default and have to be told not to."""
    body = enabled.get("extra_body")
    if isinstance(body, Mapping) and isinstance(body.get("thinking"), Mapping):
        arguments["extra_body"] = {**(arguments.get("extra_body") or {}), "thinking": {"type": "disabled"}}
    template = body.get("chat_template_kwargs") if isinstance(body, Mapping) else None
    if switches := [name for name in ("enable_thinking", "thinking") if isinstance(template, Mapping) and name in template]:
        base = arguments.get("extra_body") or {}
        off = {**(base.get("chat_template_kwargs") or {}), **dict.fromkeys(switches, False)}
        arguments["extra_body"] = {**base, "chat_template_kwargs": off}
    if isinstance(enabled.get("thinking"), Mapping):
        arguments["thinking"] = {"type": "disabled"}


def _local(
    settings: ModelConfig, arguments: dict[str, Any], beside: Callable[[str], Path], cache: Path | None
) -> tuple[None, Callable[..., BaseChatModel]]:
    """A GGUF file, or known weights by name, behind the same client as any server."""
    from holdfast.models.local_model import local_chat_model

    source: str | Path | None = beside(settings.path) if settings.path else settings.model
    if source is None:
        hint = "Add `path:` with a GGUF file, or `model: smollm2`."
        raise ConfigError(f"model {settings.name!r} does not say which weights to use.", key="models[].path", hint=hint)
    for name in ("model", "base_url", "api_key"):  # the server in this process has its own
        arguments.pop(name, None)
    if settings.window:
        arguments["window"] = settings.window
    return None, functools.partial(local_chat_model, source, cache=cache)


def _complete_profile(model: BaseChatModel, settings: ModelConfig) -> None:
    """Write what the configuration knows into the model's profile, over what LangChain knows."""
    known: dict[str, Any] = dict(getattr(model, "profile", None) or {})
    if settings.can:
        known[CAN] = dict(settings.can)
    if settings.window:
        known["max_input_tokens"] = settings.window
    if settings.supports_vision:
        known["image_inputs"] = True
    if settings.supports_thinking:
        known["reasoning_output"] = True
    if known and "profile" in type(model).model_fields:
        model.profile = known  # type: ignore[assignment]  # a TypedDict that may hold any of these


def _not_made(settings: ModelConfig, error: Exception) -> HoldfastError:
    """Why the class refused, without the values it was given: pydantic repeats them all, the key among them."""
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        wrong = "; ".join(
            f"{'.'.join(str(part) for part in one['loc']) or 'settings'}: {one['msg']}"
            for one in error.errors(include_input=False, include_url=False, include_context=False)
        )
        return ConfigError(
            f"model {settings.name!r} does not accept its settings: {_scrubbed(wrong, settings)}.",
            key="models[]",
            hint="Keys that are not ours are passed to the class as they are.",
        )
    if isinstance(error, ImportError):
        return ModelUnavailable(
            f"model {settings.name!r} needs a package that is not installed: {_scrubbed(str(error), settings)}",
            model=settings.name,
            hint=how_to_install(getattr(error, "name", None) or "langchain", settings.use or ""),
        )
    return ModelUnavailable(
        f"model {settings.name!r} cannot be made: {_scrubbed(str(error), settings)}",
        model=settings.name,
        hint="Check `use:`, `model:` and `api_key:` of the model.",
    )


def _scrubbed(text: str, settings: ModelConfig) -> str:
    return " ".join(without_secrets(text, secrets_of(settings)).split())[:400]
