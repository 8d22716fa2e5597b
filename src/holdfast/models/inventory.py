"""What `holdfast models list` shows: the facts about a configured model, without making it. `entry_of` never reads the value of a key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from holdfast.config.environment import references
from holdfast.config.sections import ModelConfig
from holdfast.errors import ConfigError, HoldfastError
from holdfast.events import Bus
from holdfast.models.abilities import TASKS, abilities_of
from holdfast.models.factory import build
from holdfast.models.providers import LLAMA_CPP, PROVIDERS, Provider, class_path_of, is_installed, is_loopback, package_of
from holdfast.models.trials import kept_trial, with_trial
from holdfast.tokens.windows import find_window


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
        address=_plain(settings, "base_url") or _plain(settings, "path"),
        window=window.tokens,
        window_source=window.source,
        can=tuple(task for task in TASKS if able.can(task)),
        price=_price(settings),
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
    provider = _provider_of(module)
    if provider is None:
        return "unknown", True
    variable = provider.key_in(environ)
    return (f"{variable} is set", True) if variable else (f"{provider.keys[0]} is missing", False)


def _provider_of(module: str | None) -> Provider | None:
    return next((provider for provider in PROVIDERS if module and provider.module == module.partition(".")[0]), None)


def _package(settings: ModelConfig, module: str | None) -> tuple[str, bool]:
    module = "xllamacpp" if settings.use == LLAMA_CPP else module
    if module is None:
        return "unknown", True
    package = package_of(module)
    if is_installed(module):
        return package or module.partition(".")[0], True
    return (f"a package is missing: pip install {package}" if package else f"the module {module} is not installed", False)


def _price(settings: ModelConfig) -> str | None:
    price = settings.pricing
    return None if price is None else f"{price.input:g} / {price.output:g} {price.currency}"
