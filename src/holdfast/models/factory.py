"""Chat models by name: `create_chat_model("gpt-4o-mini")` makes the one that `models:` in config.yaml describes.

Without a name it is the first configured one, or what `pick` finds on this machine. Beside it: which model does the side work
(`summary_model`, `memory_model`), and what `holdfast models list` shows (`entry_of`). `providers` finds class, address and key.
LangChain is imported when a model is made, not before.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from holdfast.config.loading import load_config
from holdfast.config.reading import references
from holdfast.config.sections import Config, ModelConfig
from holdfast.errors import ConfigError, HoldfastError, MissingVariable, ModelNotConfigured, ModelTooWeak, ModelUnavailable
from holdfast.events import Bus
from holdfast.models.abilities import CAN, TASKS, Task, abilities_of, kept_trial, require, with_trial
from holdfast.models.call_limits import limited
from holdfast.models.choice import how_to_get_one, pick
from holdfast.models.failures import without_secrets
from holdfast.models.providers import (
    LLAMA_CPP,
    PROVIDERS,
    class_path_of,
    find_class,
    how_to_install,
    is_installed,
    is_loopback,
    package_of,
    with_defaults,
)
from holdfast.models.weights import KNOWN_WEIGHTS
from holdfast.redaction import is_secret_key, shown_address
from holdfast.tokens.windows import find_window

if TYPE_CHECKING:
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

    `retries=False` is for a model in an agent, whose middlewares ask again themselves. Raises
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
    if (
        name is not None and name in KNOWN_WEIGHTS and all(model.name != name for model in config.models)
    ):  # weights that are called so (`smollm2`)
        return ModelConfig(name=name, use=LLAMA_CPP, model=name)
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


def _built(settings: ModelConfig, config: Config, *, thinking: bool = False, retries: bool = True) -> BaseChatModel:
    try:
        return build(settings, thinking=thinking, retries=retries, beside=config.beside, cache=config.base)
    except ConfigError as error:
        index = next((number for number, one in enumerate(config.models) if one.name == settings.name), None)
        if index is not None and error.file is None and error.key and not isinstance(error, MissingVariable):
            part = error.key.rpartition(".")[2] if "." in error.key else None
            error.file = str(config.file) if config.file is not None else None
            lines = (config.reading.line(("models", index, part)) if part else None, config.reading.line(("models", index)))
            error.line = lines[0] or lines[1]
            error.key = f"models[{index}]{f'.{part}' if part else ''}"
        raise


def summary_model(config: Config, *, environ: Mapping[str, str] | None = None) -> BaseChatModel | None:
    """The model that writes summaries, or None when there is none or it is too weak: extraction does it then (S14, A15).

    Named by `summarization.model_name`, else what `side_choice` says; never thinking.
    """
    return _side_model(config, "summarization.model_name", config.summarization.model_name, "summary", environ)


def memory_model(config: Config, *, environ: Mapping[str, str] | None = None) -> BaseChatModel | None:
    """The model that extracts facts for memory, or None when there is none or it is too weak: the rules do it then (S14, M13)."""
    return _side_model(config, "memory.model_name", config.memory.model_name, "extraction", environ)


@dataclass(frozen=True)
class SideChoice:
    """Which model does the side work, and in words why not one that would come before it; empty if there is none."""

    config: ModelConfig | None
    passed_over: str = ""


def side_choice(config: Config, environ: Mapping[str, str] | None = None) -> SideChoice:
    """The model for side work where none is named: the best that can be made now, which the key and the package decide (S14)."""
    environ = os.environ if environ is None else environ
    used = pick(config, environ).config
    over: list[str] = []
    for settings in config.side_models(used):
        module, _ = class_path_of(settings)
        found = (_key(settings, module, environ), _package(settings, module))
        if all(ready for _, ready in found):
            told = f"{' and '.join(over)}, so {settings.name} writes summaries and learns" if over else ""
            return SideChoice(settings, told)
        over.append(f"{settings.name} cannot be used now ({next(words for words, ready in found if not ready)})")
    return SideChoice(used)


_TOLD: set[str] = set()
"""What was said once in this process about models that were passed over."""


def _side_model(config: Config, setting: str, name: str | None, task: Task, environ: Mapping[str, str] | None) -> BaseChatModel | None:
    choice = None if name else side_choice(config, environ)
    settings = config.model(name, setting=setting) if name else choice.config if choice is not None else None
    if choice is not None and (told := choice.passed_over) and told not in _TOLD:
        _TOLD.add(told)
        _LOG.warning("%s", told)
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


def build(
    settings: ModelConfig, *, thinking: bool = False, retries: bool = True, beside: Callable[[str], Path] = Path, cache: Path | None = None
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
    about = f"model {settings.name!r}"
    if isinstance(error, ValidationError):
        found = error.errors(include_input=False, include_url=False, include_context=False)
        wrong = _scrubbed("; ".join(f"{'.'.join(map(str, one['loc'])) or 'settings'}: {one['msg']}" for one in found), settings)
        hint = "Keys that are not ours are passed to the class as they are."
        return ConfigError(f"{about} does not accept its settings: {wrong}.", key="models[]", hint=hint)
    said = _scrubbed(str(error), settings)
    if isinstance(error, ImportError):
        hint = how_to_install(getattr(error, "name", None) or "langchain", settings.use or "")
        return ModelUnavailable(f"{about} needs a package that is not installed: {said}", model=settings.name, hint=hint)
    hint = "Check `use:`, `model:` and `api_key:` of the model."
    return ModelUnavailable(f"{about} cannot be made: {said}", model=settings.name, hint=hint)


def _scrubbed(text: str, settings: ModelConfig) -> str:
    return " ".join(without_secrets(text, secrets_of(settings)).split())[:400]


@dataclass(frozen=True)
class Entry:
    """One configured model as it may be shown. `ready` is whether key and package are there; `key` and `package` say it in words."""

    name: str
    model: str | None
    use: str | None
    address: str | None
    window: int
    window_source: str
    can: tuple[str, ...]
    price: str | None
    key: str
    package: str
    ready: bool
    tried: bool = False
    """Whether what it may be asked is known from a trial."""
    lightweight: bool = False
    thinking: bool = False
    fallbacks: tuple[str, ...] = ()


def entry_of(settings: ModelConfig, environ: Mapping[str, str] | None = None, *, base: Path | None = None) -> Entry:
    """The facts about one model, with what its trial found if that is kept in `base`. Never raises for a missing variable: it says so."""
    environ = os.environ if environ is None else environ
    module, _ = class_path_of(settings)
    key, key_ready = _key(settings, module, environ)
    package, package_ready = _package(settings, module)
    name = _plain(settings, "model")
    said = {field: _plain(settings, field) for field in ("max_input_tokens", "context_window")}
    profile = None if any(said.values()) else _profile(settings, module, name)
    window = find_window(said, profile, name=settings.name, bus=Bus())  # a bus of its own: no warning
    trial = kept_trial(settings, base) if base is not None else None
    able = abilities_of(with_trial(settings, base) if base is not None else settings)
    return Entry(
        name=settings.name,
        model=name,
        use=_plain(settings, "use"),
        address=shown_address(address) if (address := _plain(settings, "base_url")) else _plain(settings, "path"),
        window=window.tokens,
        window_source=window.source,
        can=tuple(task for task in TASKS if able.can(task)),
        price=f"{price.input:g} / {price.output:g} {price.currency}" if (price := settings.pricing) is not None else None,
        key=key,
        package=package,
        ready=key_ready and package_ready,
        tried=trial is not None,
        lightweight=settings.lightweight,
        thinking=settings.supports_thinking,
        fallbacks=tuple(settings.fallbacks),
    )


def _profile(settings: ModelConfig, module: str | None, model: str | None) -> Mapping[str, Any] | None:
    """What the made model says of itself in LangChain's `profile`; for the default model of a provider what our own table says."""
    if settings.use == LLAMA_CPP or module is None or model is None:
        return None
    known = next((provider for provider in PROVIDERS if (provider.module, provider.model) == (module, model)), None)
    if known is not None or not is_installed(module):
        return {"max_input_tokens": known.window} if known else None
    try:
        made = build(settings.model_copy(update={"api_key": "none"}), retries=False)  # it is not asked, so it needs no key
    except HoldfastError:  # told when the model is asked
        return None
    profile = getattr(made, "profile", None)
    return profile if isinstance(profile, Mapping) else None


def _plain(settings: ModelConfig, field: str) -> Any:
    """The value of a setting, or how it is written when the variable that it names is missing."""
    try:
        return getattr(settings, field)
    except ConfigError:
        return str(settings.written(field))


def _key(settings: ModelConfig, module: str | None, environ: Mapping[str, str]) -> tuple[str, bool]:
    """Where the key comes from and whether it is there. Never the key."""
    written = settings.written("api_key")
    if named := [reference for reference in references(written)]:
        missing = [name for reference in named for name in reference.missing()]
        return (f"{missing[0]} is missing", False) if missing else (f"{named[0].names[0]} is set", True)
    if written:
        return "given", True
    if settings.use == LLAMA_CPP or is_loopback(urlsplit(str(_plain(settings, "base_url") or "")).hostname or ""):
        return "not needed", True
    provider = next((one for one in PROVIDERS if module and one.module == module.partition(".")[0]), None)
    if provider is None:
        return "unknown", True
    variable = provider.key_in(environ)
    return (f"{variable} is set", True) if variable else (f"{provider.keys[0]} is missing", False)


def _package(settings: ModelConfig, module: str | None) -> tuple[str, bool]:
    module = "xllamacpp" if settings.use == LLAMA_CPP else module
    if module is None:
        return "unknown", True
    package = package_of(module)
    if is_installed(module):
        return package or module.partition(".")[0], True
    return (f"a package is missing: pip install {package}" if package else f"the module {module} is not installed", False)
