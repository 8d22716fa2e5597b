"""Really asking a model, once in each way that Holdfast uses: a plain answer, a streamed one, JSON in a schema, a tool call.

Each question is small and has an answer that can be checked. What a model is too weak for, by its profile, is not asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.models.abilities import Task
from holdfast.models.factory import abilities_of
from holdfast.models.failures import typed

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage

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
        ("plain answer", None, _plain),
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


def _plain(model: BaseChatModel) -> _Answer:
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
