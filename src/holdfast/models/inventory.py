"""What is known about the configured models without making one: window, price, key, package, what they may be asked.

For `holdfast models list` and `holdfast doctor`. Imports no LangChain and never reads the value of a key.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from holdfast.config.environment import references
from holdfast.config.sections import ModelConfig
from holdfast.errors import ConfigError
from holdfast.events import Bus
from holdfast.models.choice import TASKS
from holdfast.models.construction import LLAMA_CPP, class_path_of
from holdfast.models.factory import abilities_of
from holdfast.models.loopback import is_loopback
from holdfast.models.profiles import profile_of
from holdfast.models.providers import PROVIDERS, Provider, is_installed, package_of
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
    lightweight: bool = False
    thinking: bool = False
    fallbacks: tuple[str, ...] = ()


def entry_of(settings: ModelConfig, environ: Mapping[str, str] | None = None) -> Entry:
    """The facts about one model. Never raises for a variable that is missing: it says so."""
    environ = os.environ if environ is None else environ
    module, _ = class_path_of(settings)
    key, key_ready = _key(settings, module, environ)
    package, package_ready = _package(settings, module)
    name = _plain(settings, "model")
    said = {field: _plain(settings, field) for field in ("max_input_tokens", "context_window")}
    window = find_window(said, _profile(module, name), name=settings.name, bus=Bus())  # a bus of its own: no warning
    able = abilities_of(settings)
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
        lightweight=settings.lightweight,
        thinking=settings.supports_thinking,
        fallbacks=tuple(settings.fallbacks),
    )


def _profile(module: str | None, model: str | None) -> Mapping[str, Any] | None:
    """What the package says of the model; where it is not installed, what we know of the provider's default model."""
    if module is None or model is None:
        return None
    known = next((provider for provider in PROVIDERS if (provider.module, provider.model) == (module, model)), None)
    return profile_of(module, model) or ({"max_input_tokens": known.window} if known else None)


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
    return (package, True) if is_installed(module) else (f"a package is missing: pip install {package}", False)


def _price(settings: ModelConfig) -> str | None:
    price = settings.pricing
    return None if price is None else f"{price.input:g} / {price.output:g} {price.currency}"
