"""What `holdfast models` shows: the facts about a configured model without making it, and how one answers when it is really asked.

`entry_of` never reads the value of a key. `trial` asks once in each way that Holdfast uses: a plain answer, a streamed one, JSON in a
schema, a tool call; what a model is too weak for, by its profile, is not asked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holdfast.config.environment import references
from holdfast.config.sections import ModelConfig
from holdfast.errors import ConfigError, HoldfastError
from holdfast.events import Bus
from holdfast.models.abilities import TASKS, Task, abilities_of
from holdfast.models.factory import build
from holdfast.models.failures import typed
from holdfast.models.providers import LLAMA_CPP, PROVIDERS, Provider, class_path_of, is_installed, is_loopback, package_of
from holdfast.tokens.windows import find_window

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage


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
    profile = None if any(said.values()) else _profile(settings, module, name)
    window = find_window(said, profile, name=settings.name, bus=Bus())  # a bus of its own: no warning
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


_QUESTION = "What is the capital of France? Answer with one word."
_SCHEMA = {
    "title": "city",
    "description": "A city and the country it lies in.",
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 40}, "country": {"type": "string", "maxLength": 40}},
    "required": ["city", "country"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Outcome:
    """How one question went. `ok` is None when it was not asked; `seconds_to_first` is for streams; tokens as the server reported them."""

    question: str
    ok: bool | None
    detail: str
    seconds: float = 0.0
    seconds_to_first: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class _Answer:
    detail: str
    message: AIMessage | None = None
    first: float | None = None
    ok: bool = True


def trial(model: BaseChatModel, name: str, secrets: tuple[str, ...] = ()) -> Iterator[Outcome]:
    """Ask the four questions, one after the other, and say how each went. After a failure that no other question can mend, stop."""
    questions: tuple[tuple[str, Task | None, Callable[[BaseChatModel], _Answer]], ...] = (
        ("plain answer", None, _plain_answer),
        ("streamed answer", None, _streamed),
        ("JSON in a schema", "json", _json),
        ("tool call", "tools", _tool_call),
    )
    able = abilities_of(model)
    for question, task, ask in questions:
        if task is not None and not able.can(task):
            yield Outcome(question, None, f"not asked: its profile says that it is too weak for {task}")
            continue
        outcome = _asked(question, ask, model, name, secrets)
        yield outcome
        if outcome.error in {"authentication", "permission", "not_found", "quota", "connection"}:
            return


def _asked(question: str, ask: Callable[[BaseChatModel], _Answer], model: BaseChatModel, name: str, secrets: tuple[str, ...]) -> Outcome:
    start = time.monotonic()
    try:
        answer = ask(model)
    except Exception as error:  # noqa: BLE001 - whatever a provider's client raises is the result here, in our words
        ours = typed(error, model=name, secrets=secrets)
        return Outcome(question, False, str(ours), time.monotonic() - start, error=getattr(ours, "kind", type(ours).__name__))
    usage = answer.message.usage_metadata if answer.message is not None else None
    return Outcome(
        question,
        answer.ok,
        answer.detail,
        time.monotonic() - start,
        answer.first,
        usage["input_tokens"] if usage else None,
        usage["output_tokens"] if usage else None,
        None if answer.ok else "answer",
    )


def _plain_answer(model: BaseChatModel) -> _Answer:
    message = model.invoke(_QUESTION)
    return _text_answer(message)


def _streamed(model: BaseChatModel) -> _Answer:
    start, first, whole = time.monotonic(), None, None
    for piece in model.stream(_QUESTION):
        if first is None and piece.text:
            first = time.monotonic() - start
        whole = piece if whole is None else whole + piece
    if whole is None:
        return _Answer("nothing came", ok=False)
    return _text_answer(whole, first)


def _text_answer(message: Any, first: float | None = None) -> _Answer:
    text = " ".join(message.text.split())
    return _Answer(_short(text) if text else "the answer is empty", message, first, bool(text))


def _json(model: BaseChatModel) -> _Answer:
    result: Any = model.with_structured_output(_SCHEMA, include_raw=True).invoke("Name the capital of France and its country, as JSON.")
    value, raw = result.get("parsed"), result.get("raw")
    good = isinstance(value, dict) and {"city", "country"} <= value.keys()
    return _Answer(_short(str(value)) if good else f"not in the schema: {_short(str(value or getattr(raw, 'text', '')))}", raw, ok=good)


def _tool_call(model: BaseChatModel) -> _Answer:
    from langchain_core.tools import tool

    @tool
    def weather(city: str) -> str:
        """The weather in a city now."""
        return f"sunny in {city}"

    message = model.bind_tools([weather]).invoke("What is the weather in Paris now? Use the tool.")
    calls = [call for call in message.tool_calls if call["name"] == "weather" and isinstance(call["args"].get("city"), str)]
    if calls:
        return _Answer(_short(f"weather({calls[0]['args']['city']!r})"), message)
    return _Answer(f"the tool was not called: {_short(' '.join(message.text.split()))}", message, ok=False)


def _short(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
