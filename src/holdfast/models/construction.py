"""How settings become a chat model: find the class, put its arguments together, make it, and say clearly when that fails.

The class comes from `use`: `module:Class` (or `module.Class`), or the name of a provider that LangChain's `init_chat_model` knows.
Without `use`, an address means the OpenAI protocol, and otherwise the model's name has to tell (`groq:llama-3.3`, `claude-...`).
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from holdfast.config.sections import ModelConfig
from holdfast.errors import ConfigError, HoldfastError, MissingVariable, ModelUnavailable, NotImportable
from holdfast.imports import load_dotted
from holdfast.models.failures import without_secrets
from holdfast.models.loopback import is_loopback
from holdfast.models.providers import Provider, is_installed, package_of, provider_named, split_model

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

_LOG = logging.getLogger("holdfast.models")
_CLASS_PATH = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?P<mark>[:.])(?P<name>[A-Za-z_]\w*)")

TIMEOUT = 300.0
"""Seconds without a byte after which a call is given up, when the configuration says nothing. Slow local models need minutes."""
RETRIES = 2
LLAMA_CPP = "llama.cpp"
CAN = "holdfast_can"
"""The key in a model's profile that holds what the configuration says under `can:`."""


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
    cls, make = _local(settings, arguments, beside, cache) if settings.use == LLAMA_CPP else _maker(settings, arguments)
    try:
        first = make(**arguments) if cls is None else None  # which class it is, only LangChain or the weights can tell
        whole = arguments if settings.use == LLAMA_CPP else _with_defaults(cls or type(first), arguments, retries=retries)
        model = first if first is not None and whole == arguments else make(**whole)
    except HoldfastError:
        raise
    except Exception as error:  # noqa: BLE001 - a class may raise anything from its constructor, and its text may hold the key
        raise _not_made(settings, error) from None
    _complete_profile(model, settings)
    return model


def secrets_of(settings: ModelConfig) -> tuple[str, ...]:
    """The values that no error may repeat: the key, as far as it can be read now."""
    try:
        return (settings.api_key,) if settings.api_key else ()
    except ConfigError:
        return ()


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
    if isinstance(enabled.get("thinking"), Mapping):
        arguments["thinking"] = {"type": "disabled"}


def _maker(settings: ModelConfig, arguments: dict[str, Any]) -> tuple[type[BaseChatModel] | None, Callable[..., BaseChatModel]]:
    """The class where it is known beforehand, and what makes the model."""
    use = (settings.use or "").strip()
    match = _CLASS_PATH.fullmatch(use)
    if match:
        cls = _class(settings, f"{match['module']}:{match['name']}")
        return cls, cls
    provider = use or None
    if provider is None and settings.base_url:
        provider = "openai"
    if provider is None:
        provider, arguments["model"] = split_model(settings.model or "")
        if provider is None and arguments["model"].startswith("gemini"):
            provider = "google_genai"  # LangChain would take the cloud platform, which wants no key but an account
    return _by_provider(settings, provider, arguments)


def _local(
    settings: ModelConfig, arguments: dict[str, Any], beside: Callable[[str], Path], cache: Path | None
) -> tuple[None, Callable[..., BaseChatModel]]:
    """A GGUF file, or known weights by name, behind the same client as any server."""
    from holdfast.models.local import local_chat_model

    source: str | Path | None = beside(settings.path) if settings.path else settings.model
    if source is None:
        hint = "Add `path:` with a GGUF file, or `model: smollm2`."
        raise ConfigError(f"model {settings.name!r} does not say which weights to use.", key="models[].path", hint=hint)
    for name in ("model", "base_url", "api_key"):  # the server in this process has its own
        arguments.pop(name, None)
    if settings.window:
        arguments["window"] = settings.window
    return None, functools.partial(local_chat_model, source, cache=cache)


def class_path_of(settings: ModelConfig) -> tuple[str | None, str | None]:
    """Module and class that `build` will use, as far as that is known without importing anything."""
    use = (settings.use or "").strip()
    if use == LLAMA_CPP:
        return None, None
    match = _CLASS_PATH.fullmatch(use)
    if match:
        return match["module"], match["name"]
    known = provider_named(use or ("openai" if settings.written("base_url") else None) or split_model(settings.model or "")[0] or "")
    if known is not None and not is_installed(known.module) and known.base_url:
        known = provider_named("openai")
    return (known.module, known.class_name) if known else (None, None)


def _by_provider(
    settings: ModelConfig, provider: str | None, arguments: dict[str, Any]
) -> tuple[type[BaseChatModel] | None, Callable[..., BaseChatModel]]:
    if not arguments.get("model"):
        raise ConfigError(f"model {settings.name!r} does not say which model it is.", key="models[].model", hint="Add `model:`.")
    known = provider_named(provider) if provider else None
    if known is not None and not is_installed(known.module) and known.base_url and is_installed("langchain_openai"):
        arguments.setdefault("base_url", known.base_url)  # its own package is not needed where it speaks the OpenAI protocol
        if "api_key" not in arguments:  # the class would look for OPENAI_API_KEY, and send that to another provider
            arguments["api_key"] = _key_of(known, settings)
        known = provider_named("openai")
    cls = _class(settings, f"{known.module}:{known.class_name}") if known else None
    from langchain.chat_models import init_chat_model

    def make(*, model: str, **rest: Any) -> BaseChatModel:
        made: BaseChatModel = init_chat_model(model, model_provider=known.name if known else provider, **rest)
        return made

    return cls, make


def _key_of(provider: Provider, settings: ModelConfig) -> str:
    variable = provider.key_in(os.environ)
    if variable is None:
        raise MissingVariable(provider.keys[0], key=f"models[{settings.name}].api_key")
    return os.environ[variable].strip()


def _class(settings: ModelConfig, path: str) -> type[BaseChatModel]:
    from langchain_core.language_models import BaseChatModel

    about, model = f"model {settings.name!r}", settings.name
    try:
        cls = load_dotted(path, f"{about}: the class", key="models[].use")
    except NotImportable as error:
        if error.missing is not None:
            package = package_of(error.missing)
            problem = f"{about} needs the package {package}, which is not installed."
            raise ModelUnavailable(problem, model=model, hint=f"Install it with `pip install {package}`.") from error
        if error.__cause__ is not None:  # it is there, and fails when it is imported
            raise ModelUnavailable(error.message, model=model) from error
        raise
    if not (isinstance(cls, type) and issubclass(cls, BaseChatModel)):
        hint = "Name a class that is a subclass of BaseChatModel, as module:Class."
        raise ConfigError(f"{about}: {path} is not a chat model of LangChain.", key="models[].use", hint=hint)
    return cls


def _takes(cls: type[Any], argument: str) -> bool:
    return argument in cls.model_fields or any(field.alias == argument for field in cls.model_fields.values())


def _with_defaults(cls: type[Any], given: Mapping[str, Any], *, retries: bool) -> dict[str, Any]:
    """The arguments, with a time-out and retries where the class takes them, and what a server with its own address needs."""
    arguments = dict(given)
    if "api_key" in arguments and not _takes(cls, "api_key"):
        own = next((name for name in cls.model_fields if name.endswith("_api_key")), "api_key")
        arguments[own] = arguments.pop("api_key")
    for name, value in (("timeout", TIMEOUT), ("max_retries", RETRIES)):
        if _takes(cls, name):
            arguments.setdefault(name, value)
    if not retries and _takes(cls, "max_retries"):
        arguments["max_retries"] = 0
    if cls.__module__.startswith("langchain_openrouter") and isinstance(arguments.get("timeout"), int | float):
        arguments["timeout"] = round(1000 * arguments["timeout"])  # the one class that counts in milliseconds; our setting is in seconds
    address = arguments.get("base_url")
    if not isinstance(address, str) or not _takes(cls, "openai_api_base"):
        return arguments
    arguments.setdefault("stream_usage", True)  # off by default for other servers, and then nobody can account for a streamed answer
    host = urlsplit(address).hostname or ""
    if is_loopback(host):
        if "api_key" not in arguments:
            arguments["api_key"] = "none"  # else the key of another provider would be taken from the environment
        if getproxies() and not {"http_client", "http_async_client", "openai_proxy"} & arguments.keys():
            arguments["http_client"], arguments["http_async_client"] = _direct_clients(address)
    return arguments


@functools.cache
def _direct_clients(address: str) -> tuple[Any, Any]:
    """Clients that ignore proxies in the environment: a proxy cannot reach a server on this machine."""
    import openai

    client = openai.DefaultHttpxClient(base_url=address, trust_env=False)
    atexit.register(client.close)
    return client, openai.DefaultAsyncHttpxClient(base_url=address, trust_env=False)


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
        package = package_of(getattr(error, "name", None) or (settings.use or "langchain"))
        return ModelUnavailable(
            f"model {settings.name!r} needs a package that is not installed: {_scrubbed(str(error), settings)}",
            model=settings.name,
            hint=f"Try `pip install {package}`.",
        )
    return ModelUnavailable(
        f"model {settings.name!r} cannot be made: {_scrubbed(str(error), settings)}",
        model=settings.name,
        hint="Check `use:`, `model:` and `api_key:` of the model.",
    )


def _scrubbed(text: str, settings: ModelConfig) -> str:
    return " ".join(without_secrets(text, secrets_of(settings)).split())[:400]
