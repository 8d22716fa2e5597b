"""The providers that a key in the environment stands for: package, class, a small default model and its window.

A table and a few questions to it. Nothing here imports LangChain: whether a package is there is asked of the import system only.
Where a provider documents an OpenAI-compatible address, `langchain-openai` is enough and its own package is not needed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass


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
        """What to `pip install`."""
        return package_of(self.module)

    def key_in(self, environ: Mapping[str, str]) -> str | None:
        """The name of the variable that holds a key, if one does. Never the key."""
        return next((key for key in self.keys if environ.get(key, "").strip()), None)

    def missing_from(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(name for name in self.needs if not environ.get(name, "").strip())


PROVIDERS = (
    Provider("openai", ("OPENAI_API_KEY",), "langchain_openai", "ChatOpenAI", "gpt-5.4-mini", 400_000),
    Provider("anthropic", ("ANTHROPIC_API_KEY",), "langchain_anthropic", "ChatAnthropic", "claude-haiku-4-5", 200_000),
    Provider(
        "google_genai",
        ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        "langchain_google_genai",
        "ChatGoogleGenerativeAI",
        "gemini-flash-lite-latest",
        1_048_576,
        "https://generativelanguage.googleapis.com/v1beta/openai/",
    ),
    Provider("mistralai", ("MISTRAL_API_KEY",), "langchain_mistralai", "ChatMistralAI", "mistral-small-latest", 256_000),
    Provider("groq", ("GROQ_API_KEY",), "langchain_groq", "ChatGroq", "openai/gpt-oss-20b", 131_072, "https://api.groq.com/openai/v1"),
    Provider(
        "deepseek",
        ("DEEPSEEK_API_KEY",),
        "langchain_deepseek",
        "ChatDeepSeek",
        "deepseek-v4-flash",
        1_000_000,
        "https://api.deepseek.com/v1",
    ),
    Provider("xai", ("XAI_API_KEY",), "langchain_xai", "ChatXAI", "grok-4.3", 1_000_000, "https://api.x.ai/v1"),
    Provider(
        "openrouter",
        ("OPENROUTER_API_KEY",),
        "langchain_openrouter",
        "ChatOpenRouter",
        "openai/gpt-5.4-mini",
        400_000,
        "https://openrouter.ai/api/v1",
    ),
    Provider(
        "together",
        ("TOGETHER_API_KEY",),
        "langchain_together",
        "ChatTogether",
        "openai/gpt-oss-20b",
        131_072,
        "https://api.together.xyz/v1",
    ),
    Provider(
        "fireworks",
        ("FIREWORKS_API_KEY",),
        "langchain_fireworks",
        "ChatFireworks",
        "accounts/fireworks/models/gpt-oss-120b",
        131_072,
        "https://api.fireworks.ai/inference/v1",
    ),
    Provider("cohere", ("COHERE_API_KEY",), "langchain_cohere", "ChatCohere", "command-r7b-12-2024", 128_000),
    Provider(
        "azure_openai",
        ("AZURE_OPENAI_API_KEY",),
        "langchain_openai",
        "AzureChatOpenAI",
        "gpt-5.4-mini",
        400_000,
        needs=("AZURE_OPENAI_ENDPOINT", "OPENAI_API_VERSION"),
    ),
)
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


def package_of(module: str) -> str:
    """The package to install for a module, by the naming that LangChain's packages keep."""
    return module.partition(".")[0].replace("_", "-")


def is_installed(module: str) -> bool:
    """Whether the top package of a module could be imported. Imports nothing."""
    try:
        return importlib.util.find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):  # a module in sys.modules without a spec, or a name that cannot be one
        return False
