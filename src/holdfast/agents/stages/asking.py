"""Asking a model for an answer in a schema: by its own mechanism where it has one, else in words (W12).

A local model is held to the schema token by token. What comes back from a model that has neither is text; the runner then validates it
and asks again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from holdfast.tokens.counter import open_counter
from holdfast.tokens.usage import Usage
from holdfast.tokens.windows import find_window

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from holdfast.tokens.counter import TokenCounter

_ANSWER_SHARE = 4  # a quarter of the window is left to the answer
_LARGEST_ANSWER = 8192
_QUIET = {"callbacks": [], "tags": ["nostream"]}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answered: the object when it kept to the schema, else its text; and what that used."""

    value: object
    usage: Usage | None


@dataclass
class Asker:
    """A chat model, asked for objects. `room` is what a prompt may have."""

    model: BaseChatModel
    name: str
    used: Usage | None = None
    _counter: TokenCounter | None = field(default=None, repr=False)

    @property
    def window(self) -> int:
        return find_window(self.model, name=self.name).tokens

    @property
    def room(self) -> int:
        """The tokens that all messages of a question may take together."""
        return self.window - min(_LARGEST_ANSWER, self.window // _ANSWER_SHARE)

    def count(self, text: str) -> int:
        """The tokens of a text, as this model counts them as far as is known."""
        if self._counter is None:
            self._counter = open_counter("exact", model=str(getattr(self.model, "model_name", None) or self.name))
        return self._counter.count_text(text)

    def ask(self, messages: Sequence[BaseMessage], schema: Mapping[str, Any], *, title: str) -> Answer:
        """The answer as an object that is meant to fit the schema. It is not validated here."""
        named = {"title": title, "description": "The answer.", **schema}
        settings: Any = {**_QUIET, "run_name": title}
        try:
            structured: Any = self.model.with_structured_output(named, include_raw=True)
        except NotImplementedError:
            return self._in_words(messages, schema, settings)
        found = structured.invoke(list(messages), settings)
        usage = self._charge(found["raw"])
        parsed, error = found.get("parsed"), found.get("parsing_error")
        if isinstance(parsed, Mapping):
            return Answer(dict(parsed), usage)
        if error is not None and not isinstance(error, OutputParserException | ValueError | TypeError):
            raise error
        return Answer(_text(found["raw"]), usage)

    def say(self, messages: Sequence[BaseMessage], *, title: str) -> Answer:
        """The answer as text."""
        settings: Any = {**_QUIET, "run_name": title}
        answer = self.model.invoke(list(messages), settings)
        return Answer(_text(answer), self._charge(answer))

    def _in_words(self, messages: Sequence[BaseMessage], schema: Mapping[str, Any], settings: Any) -> Answer:
        wanted = json.dumps(schema, ensure_ascii=False)
        form = HumanMessage(f"Answer with one JSON object that fits this JSON Schema, and nothing else:\n{wanted}")
        answer = self.model.invoke([*messages, form], settings)
        return Answer(_text(answer), self._charge(answer))

    def _charge(self, message: object) -> Usage | None:
        usage = Usage.read(message)
        if usage is not None:
            self.used = usage if self.used is None else self.used + usage
        return usage


def _text(message: object) -> str:
    if not isinstance(message, AIMessage):
        return str(getattr(message, "content", message))
    for call in message.tool_calls:  # the schema as a tool: what did not parse is in the call
        return json.dumps(call["args"], ensure_ascii=False)
    return str(message.text)
