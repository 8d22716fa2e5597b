"""Providers of models: the table of those that a key in the environment stands for, and how a model reaches its own.

Class, address (`base_url:`) and key (`api_key:`, or the provider's variable) of a configured model are found here. LangChain is imported
when a class is loaded, not before: whether a package is there is asked of the import system only. Where a provider documents an
OpenAI-compatible address, `langchain-openai` is enough and its own package is not needed.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import ipaddress
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from holdfast.config.migration import is_reference_path
from holdfast.config.sections import ModelConfig
from holdfast.errors import ConfigError, MissingVariable, ModelUnavailable, NotImportable
from holdfast.validation import load_dotted, missing_extra

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

LLAMA_CPP = "llama.cpp"
"""What `use:` of a model says that is served in this process."""
TIMEOUT = 300.0
"""Seconds without a byte after which a call is given up, when the configuration says nothing. Slow local models need minutes."""
RETRIES = 2
_CLASS_PATH = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?P<mark>[:.])(?P<name>[A-Za-z_]\w*)")


@dataclass(frozen=True)
class Provider:
    """One provider: the name that `init_chat_model` knows, the variables that may hold its key, and what to use by default.

    `needs` are further variables without which a key is of no use. `base_url` is its OpenAI-compatible address, if it documents one.
    """

    name: str
    keys: tuple[str, ...]
    module: str
    class_name: str
    model: str
    window: int
    base_url: str | None = None
    needs: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        """What to `pip install`, by the naming that LangChain's packages keep."""
        return self.module.replace("_", "-")

    def key_in(self, environ: Mapping[str, str]) -> str | None:
        """The name of the variable that holds a key, if one does. Never the key."""
        return next((key for key in self.keys if environ.get(key, "").strip()), None)

    def missing_from(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(name for name in self.needs if not environ.get(name, "").strip())


PROVIDERS = (
    Provider("openai", ("OPENAI_API_KEY",), "langchain_openai", "ChatOpenAI", "gpt-5.4-mini", 400_000),
    Provider("anthropic", ("ANTHROPIC_API_KEY",), "langchain_anthropic", "ChatAnthropic", "claude-haiku-4-5", 200_000),
    Provider("google_genai", ("GOOGLE_API_KEY", "GEMINI_API_KEY"), "langchain_google_genai", "ChatGoogleGenerativeAI",
             "gemini-flash-lite-latest", 1_048_576, "https://generativelanguage.googleapis.com/v1beta/openai/"),
    Provider("mistralai", ("MISTRAL_API_KEY",), "langchain_mistralai", "ChatMistralAI", "mistral-small-latest", 256_000),
    Provider("groq", ("GROQ_API_KEY",), "langchain_groq", "ChatGroq",
             "openai/gpt-oss-20b", 131_072, "https://api.groq.com/openai/v1"),
    Provider("deepseek", ("DEEPSEEK_API_KEY",), "langchain_deepseek", "ChatDeepSeek",
             "deepseek-v4-flash", 1_000_000, "https://api.deepseek.com/v1"),
    Provider("xai", ("XAI_API_KEY",), "langchain_xai", "ChatXAI", "grok-4.3", 1_000_000, "https://api.x.ai/v1"),
    Provider("openrouter", ("OPENROUTER_API_KEY",), "langchain_openrouter", "ChatOpenRouter",
             "openai/gpt-5.4-mini", 400_000, "https://openrouter.ai/api/v1"),
    Provider("together", ("TOGETHER_API_KEY",), "langchain_together", "ChatTogether",
             "openai/gpt-oss-20b", 131_072, "https://api.together.xyz/v1"),
    Provider("fireworks", ("FIREWORKS_API_KEY",), "langchain_fireworks", "ChatFireworks",
             "accounts/fireworks/models/gpt-oss-120b", 131_072, "https://api.fireworks.ai/inference/v1"),
    Provider("cohere", ("COHERE_API_KEY",), "langchain_cohere", "ChatCohere", "command-r7b-12-2024", 128_000),
    Provider("azure_openai", ("AZURE_OPENAI_API_KEY",), "langchain_openai", "AzureChatOpenAI", "gpt-5.4-mini", 400_000,
             needs=("AZURE_OPENAI_ENDPOINT", "OPENAI_API_VERSION")),
)  # fmt: skip
"""In the order in which they are asked. The windows are those of the default models."""

_ALIASES = {"google": "google_genai", "gemini": "google_genai", "mistral": "mistralai", "azure": "azure_openai", "grok": "xai"}


def provider_named(name: str) -> Provider | None:
    """The provider of that name, also under its everyday name (`gemini`, `mistral`)."""
    wanted = _ALIASES.get(name.lower(), name.lower())
    return next((provider for provider in PROVIDERS if provider.name == wanted), None)


def split_model(text: str) -> tuple[str | None, str]:
    """`groq:llama-3.3` is the provider and the model; a text without a provider that is known (`qwen3:8b`) is the model alone.

    >>> split_model("mistral:mistral-large-latest")
    ('mistralai', 'mistral-large-latest')
    >>> split_model("qwen3:8b")
    (None, 'qwen3:8b')
    """
    head, colon, tail = text.partition(":")
    if not colon or not tail:
        return None, text
    if head.lower() in {"ollama", "llama.cpp"}:
        return head.lower(), tail
    provider = provider_named(head)
    return (provider.name, tail) if provider else (None, text)


_OTHER_MODULES = (
    "langchain_aws langchain_azure_ai langchain_google_vertexai langchain_huggingface langchain_ibm langchain_litellm"
    " langchain_nvidia_ai_endpoints langchain_ollama langchain_perplexity langchain_upstage"
)
_PACKAGES = {module: module.replace("_", "-") for module in (*(one.module for one in PROVIDERS), *_OTHER_MODULES.split())} | {
    "langchain": "langchain",
    "xllamacpp": "'holdfast[local]'",
}


def package_of(module: str) -> str | None:
    """What to `pip install` for a module: known packages alone, because one that merely has the right name may be anybody's.

    >>> package_of("langchain_groq.chat_models"), package_of("deerflow.models")
    ('langchain-groq', None)
    """
    return _PACKAGES.get(re.split("[.:]", module, maxsplit=1)[0])


def how_to_install(missing: str, use: str) -> str:
    """What to do when a module is missing that `use` needs: the extra that brings it, or a package that is known."""
    extra = missing_extra(ModuleNotFoundError(name=missing))
    if extra is not None and extra.hint:
        return extra.hint
    if package := package_of(missing):
        return f"Install it with `pip install {package}`."
    if is_reference_path(use):
        return "It is a class of the reference that has no counterpart here: use `langchain_openai:ChatOpenAI` with a `base_url`."
    return "Put the package that has it on the Python path, or correct `use:`."


def is_installed(module: str) -> bool:
    """Whether the top package of a module could be imported. Imports nothing."""
    try:
        return importlib.util.find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):  # a module in sys.modules without a spec, or a name that cannot be one
        return False


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its very text. No name but `localhost` is trusted to stay here."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def find_class(settings: ModelConfig, arguments: dict[str, Any]) -> tuple[type[BaseChatModel] | None, Callable[..., BaseChatModel]]:
    """The class, where it is known beforehand, and what makes the model; address and key go into `arguments`.

    `use:` is `module:Class` (or `module.Class`), or a provider that LangChain's `init_chat_model` knows. Without it, `base_url:` means the
    OpenAI protocol, and otherwise the model's name has to tell (`groq:llama-3.3`, `claude-...`).
    """
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
            missing = f"the package {package}" if package else f"the module {error.missing}"
            raise ModelUnavailable(
                f"{about} needs {missing}, which is not installed.", model=model, hint=how_to_install(error.missing, path)
            ) from error
        if error.__cause__ is not None:  # it is there, and fails when it is imported
            raise ModelUnavailable(error.message, model=model) from error
        raise
    if not (isinstance(cls, type) and issubclass(cls, BaseChatModel)):
        hint = "Name a class that is a subclass of BaseChatModel, as module:Class."
        raise ConfigError(f"{about}: {path} is not a chat model of LangChain.", key="models[].use", hint=hint)
    return cls


def _takes(cls: type[Any], argument: str) -> bool:
    return argument in cls.model_fields or any(field.alias == argument for field in cls.model_fields.values())


def _is_given(cls: type[Any], argument: str, arguments: Mapping[str, Any]) -> bool:
    """Whether an argument is there, also under the other name of its field (`request_timeout` for `timeout`)."""
    return argument in arguments or any(name in arguments for name, field in cls.model_fields.items() if field.alias == argument)


_DEFAULTS: dict[str, Any] = {"timeout": TIMEOUT, "max_retries": RETRIES}
if sys.version_info < (3, 12):  # where `asyncio.wait_for` swallows a cancellation that comes together with a piece: nobody could stop it
    _DEFAULTS["stream_chunk_timeout"] = None


def with_defaults(cls: type[Any], given: Mapping[str, Any], *, retries: bool) -> dict[str, Any]:
    """The arguments, with a time-out and retries where the class takes them, and what a server with its own address needs."""
    arguments = dict(given)
    if "api_base" in arguments and not _takes(cls, "api_base"):
        arguments.setdefault("base_url", arguments.pop("api_base"))
    for name in [name for name in arguments if name.endswith("_api_key") and not _takes(cls, name)]:
        arguments.setdefault("api_key", arguments.pop(name))  # another name for it, such as `gemini_api_key`
    if "api_key" in arguments and not _takes(cls, "api_key"):
        own = next((name for name in cls.model_fields if name.endswith("_api_key")), "api_key")
        arguments[own] = arguments.pop("api_key")
    for name, value in _DEFAULTS.items():
        if _takes(cls, name) and not _is_given(cls, name, arguments):
            arguments[name] = value
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
