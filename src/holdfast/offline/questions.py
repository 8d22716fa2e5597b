"""The questions that a task comes down to, in the form in which a planner hands them on and a researcher takes them up.

A planner that is a model writes the same form: only `text` is needed, everything else is worked out or left empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, get_args

from holdfast.session.output import StageOutput
from holdfast.text.dates import find_dates
from holdfast.text.language import guess_language
from holdfast.text.words import keys, tokenise

Kind = Literal["aspect", "plain", "choice", "figure", "condition", "exception", "context", "topic"]
"""aspect: one side of one thing that is compared; choice: which of several; figure, condition, exception: what a choice hangs on;
context: what it is for; plain: a question as it was asked; topic: something that is only named."""
_KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class TaskQuestion:
    """One question that sources can answer.

    `topic` is what belongs together in a report, and `item` the one of several compared things that the question is about. `asks` are the
    words whose presence makes a sentence an answer; they are all from the task.
    """

    id: str
    text: str
    terms: tuple[str, ...]
    kind: Kind = "plain"
    topic: str = ""
    item: str = ""
    asks: str = ""


def question_terms(text: str) -> tuple[str, ...]:
    """The stems of a question, each once, in order."""
    language = guess_language(text)
    return tuple(dict.fromkeys(key for word in tokenise(text) for key in keys(word, language)))


def questions_json(questions: Iterable[TaskQuestion]) -> list[dict[str, Any]]:
    """The questions as a planner's `data` has them, what is empty left out."""
    listed = []
    for one in questions:
        value: dict[str, Any] = {"id": one.id, "text": one.text, "terms": list(one.terms), "kind": one.kind}
        value |= {name: getattr(one, name) for name in ("topic", "item", "asks") if getattr(one, name)}
        listed.append(value)
    return listed


def questions_given(outputs: Sequence[StageOutput]) -> list[TaskQuestion]:
    """The questions in the outputs that a stage was given: those of the last one that has any."""
    for output in reversed(outputs):
        data = output.data if isinstance(output.data, Mapping) else {}
        listed = data.get("questions")
        if isinstance(listed, (list, tuple)):
            found = [question for n, value in enumerate(listed, 1) if (question := _read(value, n)) is not None]
            if found:
                return found
    return []


def _read(value: object, number: int) -> TaskQuestion | None:
    """A question from JSON. A bare text is one too; what is no text at all is passed over: it cannot be asked."""
    if isinstance(value, str):
        value = {"text": value}
    if not isinstance(value, Mapping) or not isinstance(value.get("text"), str) or not value["text"].strip():
        return None
    text = value["text"].strip()
    kind = value.get("kind") if value.get("kind") in _KINDS else "plain"
    topic, item, asks = (given if isinstance(given := value.get(name), str) else "" for name in ("topic", "item", "asks"))
    return TaskQuestion(str(value.get("id") or f"q{number}"), text, question_terms(asks or text), kind, topic or text, item, asks or text)  # type: ignore[arg-type]


_NAME = re.compile(r"(?<![.!?:]\s)(?<!^)(?<!\n)\b(?:[A-Z][\w-]*\d[\w-]*|[A-Z]{2,}[\w-]*|[A-Z][a-z][\w-]*)(?:\s(?:[A-Z][\w-]*|\d+\b))*")


def names_asked_about(questions: Sequence[TaskQuestion], task: str = "") -> list[str]:
    """The things that questions compare; where they compare none, the names in them and in the task, each once."""
    items = list(dict.fromkeys(one.item for one in questions if one.item))
    if items:
        return items
    found = (match.group() for text in (task, *(one.text for one in questions)) for match in _NAME.finditer(text))
    return [name for name in dict.fromkeys(found) if not find_dates(name, date(2000, 6, 15))]
