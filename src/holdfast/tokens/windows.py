"""How many tokens a model can read.

The order is: `max_input_tokens` in the configuration, `context_window` there, `max_input_tokens` of the model's profile, and 8192 with one
warning for each model. A value that cannot be a window (text, negative, not a number) is passed over, and nothing here ever raises.

Also here: which vocabulary a model has, who provides it, and how many tokens a provider's vocabulary makes of a text that is one o200k
token. Those factors are where counting starts; reported usage corrects them. Those marked *measured* are the mean over English, Markdown,
Python, HTML, JSON and log lines with the vocabulary that the provider publishes, rounded to 0.05.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from holdfast.events import Bus, Event
from holdfast.events import bus as process_bus

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


def start_of(model: str | None, provider: str | None = None) -> tuple[float, float]:
    """Where o200k counts start for a model: what they are multiplied with, and which part of its window is left free on top of that.

    A model of which nothing is known is counted as it is, and has a tenth less room; so has one whose vocabulary is known and another one.
    """
    factor = factor_of(model, provider) if maker_of(model, provider) else 1.0
    return factor, 1.0 if factor > 1 or vocabulary_of(model) == "o200k" else UNKNOWN_FACTOR


class Notices:
    """Remembers what was said. Safe for many threads; keeps at most `most` keys and then starts over, so that it cannot grow for ever."""

    def __init__(self, most: int = 1000) -> None:
        self._said: set[str] = set()
        self._most = most
        self._lock = threading.Lock()

    def first(self, key: str) -> bool:
        """True the first time that this key is asked for."""
        with self._lock:
            if key in self._said:
                return False
            if len(self._said) >= self._most:
                self._said.clear()
            self._said.add(key)
            return True


DEFAULT_WINDOW = 8192


@dataclass(frozen=True, kw_only=True)
class WindowUnknown(Event):
    """Neither the configuration nor a profile says how much a model can read."""

    component: ClassVar[str] = "Models"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = (
        "The window of model {model} is not known: using {window} tokens. Set `max_input_tokens` for it in `models` of config.yaml, "
        "or in the `profile` of the model object."
    )

    model: str
    window: int


@dataclass(frozen=True)
class Window:
    """A window and where it came from: `max_input_tokens`, `context_window`, `profile` or `default`."""

    tokens: int
    source: str


_notices = Notices()
_NUMBER = re.compile(r"\s*(\d[\d_,]*(?:\.\d+)?)\s*([km]?)\s*", re.IGNORECASE | re.ASCII)
_LARGEST = 10**12


def find_window(config: object, profile: object = None, *, name: str | None = None, bus: Bus | None = None) -> Window:
    """The window in tokens, at least 1, and where it came from.

    `config` and `profile` are mappings or objects with attributes, or None. A profile that hangs on the config itself (`model.profile`) is
    looked at as well.
    """
    for key in ("max_input_tokens", "context_window"):
        tokens = _window(_read(config, key))
        if tokens:
            return Window(tokens, key)
    for source in (profile, _read(config, "profile"), _read(profile, "profile")):
        tokens = _window(_read(source, "max_input_tokens"))
        if tokens:
            return Window(tokens, "profile")
    model = name or _text(_read(config, "name")) or _text(_read(config, "model")) or _text(_read(config, "model_name")) or "without a name"
    if _notices.first(model):
        (bus or process_bus).emit(WindowUnknown(model=model, window=DEFAULT_WINDOW))
    return Window(DEFAULT_WINDOW, "default")


def _read(source: object, key: str) -> object:
    try:
        return source.get(key) if isinstance(source, Mapping) else getattr(source, key, None)
    except Exception:  # noqa: BLE001 - a model object's property may run any code; a window that cannot be read is a window not given
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _window(value: object) -> int | None:
    """A whole number of tokens, or None. `"128k"` and `"200_000"` are understood."""
    if isinstance(value, str):
        match = _NUMBER.fullmatch(value[:40])
        if match is None:
            return None
        value = float(match[1].replace("_", "").replace(",", "")) * {"": 1, "k": 1000, "m": 1_000_000}[match[2].lower()]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 1 <= value <= _LARGEST else None  # neither holds for what is not a number
