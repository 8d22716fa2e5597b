"""Which vocabulary a model has, who provides it, and how its counts differ from o200k where its vocabulary is not at hand.

The factors say how many tokens a provider's vocabulary makes of a text that is one o200k token. They are where counting starts; reported
usage corrects them. Those marked *measured* are the mean over English, Markdown, Python, HTML, JSON and log lines (the texts of the test
suite) with the vocabulary that the provider publishes, rounded to 0.05; single texts differ by up to 0.35 from it.
"""

from __future__ import annotations

import re

FACTORS: dict[str, float] = {
    "openai": 1.0,
    "anthropic": 1.4,  # no vocabulary published since Claude 2; LangChain reckons 3.3 characters a token, o200k has 4.4 to 4.75 in English
    "google": 1.15,  # no vocabulary at hand; Google's documentation says a token is about 4 characters, see above
    "mistral": 1.15,  # measured: Tekken of September 2024 (1.0 to 1.5, digits count one by one)
    "qwen": 1.15,  # measured: qwen.tiktoken (1.0 to 1.5, digits count one by one)
    "deepseek": 1.05,  # measured: DeepSeek V3 (0.98 to 1.1)
    "meta": 1.0,  # measured: Llama 3 and 4 (0.97 to 1.02)
}
UNKNOWN_FACTOR = 1.1
"""For a model of which nothing is known: in the middle of those that could be measured."""

_PROVIDER_NAMES = {
    "openai": "openai",
    "azure": "openai",
    "azure_openai": "openai",
    "anthropic": "anthropic",
    "bedrock_anthropic": "anthropic",
    "google": "google",
    "google_genai": "google",
    "google_vertexai": "google",
    "mistral": "mistral",
    "mistralai": "mistral",
    "deepseek": "deepseek",
    "qwen": "qwen",
    "dashscope": "qwen",
    "tongyi": "qwen",
    "meta": "meta",
    "meta-llama": "meta",
    "llama": "meta",
}
_FAMILIES = (
    ("openai", re.compile(r"(chatgpt|gpt|o\d|codex|davinci|text-embedding)(?![a-z])")),
    ("anthropic", re.compile(r"claude")),
    ("google", re.compile(r"(gemini|gemma)")),
    ("mistral", re.compile(r"(open-)?(mistral|mixtral|codestral|ministral|magistral|devstral|pixtral)")),
    ("deepseek", re.compile(r"deepseek")),
    ("qwen", re.compile(r"(qwen|qwq)")),
    ("meta", re.compile(r"(meta-)?llama")),
)
_VOCABULARIES = (
    ("o200k", re.compile(r"chatgpt-4o|gpt-4o|gpt-4\.[1-9]|gpt-[5-9]|gpt-oss|o[1-9](?![a-z0-9])|codex")),
    ("cl100k", re.compile(r"gpt-4(?![0-9])|gpt-3\.5|gpt-35|text-embedding-(3|ada)|davinci-002|babbage-002")),
)


def _bare(model: str) -> tuple[str, str]:
    """`anthropic:claude-x`, `openai/gpt-4o`, `ft:gpt-4o:me`, `anthropic.claude-x-v1:0` -> what stands before, and the model's own name."""
    name = model.strip().lower()
    name = name.removeprefix("ft:")
    before, separator, after = name.partition(":")
    lead = ""
    if separator and before in _PROVIDER_NAMES:
        lead, name = before, after
    if "/" in name:
        *path, name = name.split("/")
        lead = next((part for part in reversed(path) if part in _PROVIDER_NAMES), lead)
    for before in name.split(".")[:-1]:
        if before in _PROVIDER_NAMES:
            return before, name.split(f"{before}.", 1)[1]
    return lead, name


def provider_of(model: str | None) -> str | None:
    """Who made the model, as far as its name says; None when it does not. The family's name counts more than who serves it."""
    if not model:
        return None
    lead, name = _bare(model)
    family = next((family for family, pattern in _FAMILIES if pattern.match(name)), None)
    return family or _PROVIDER_NAMES.get(lead)


def vocabulary_of(model: str | None) -> str | None:
    """`o200k` or `cl100k` when the model is known to use it, else None."""
    if not model:
        return None
    _, name = _bare(model)
    return next((vocabulary for vocabulary, pattern in _VOCABULARIES if pattern.match(name)), None)


def maker_of(model: str | None, provider: str | None = None) -> str | None:
    """Who made the model: by its name, else by the provider given (`azure` and `google_genai` are understood), else None."""
    return provider_of(model) or _PROVIDER_NAMES.get((provider or "").strip().lower())


def factor_of(model: str | None, provider: str | None = None) -> float:
    """What an o200k count is multiplied with for this model. 1 when neither model nor provider is given."""
    if vocabulary_of(model):
        return 1.0
    maker = maker_of(model, provider)
    if maker is None:
        return UNKNOWN_FACTOR if model or provider else 1.0
    return FACTORS[maker]
