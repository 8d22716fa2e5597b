"""Messages without LangChain, and the seam through which this room makes new ones.

The room reads any message that has the usual attributes. Where it must make one (a summary, a reference, a missing tool result)
it asks a `Forge`, so that a history of
LangChain messages stays one, and nothing is converted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from holdfast.context.view import MARK, marks_of
from holdfast.tokens.messages import Message


class Forge(Protocol):
    """Makes messages of the kind that the history consists of."""

    def summary(self, text: str, *, id: str, role: Literal["human", "system"], marks: Mapping[str, Any]) -> Message:
        """A message that stands for those that left."""

    def result(self, text: str, *, id: str, call: str, name: str) -> Message:
        """A tool result, marked as an error, for a call that has none."""

    def with_text(self, message: Message, text: str, *, marks: Mapping[str, Any]) -> Message:
        """The same message (same id, role and ties) with other text and these marks added."""

    def with_id(self, message: Message, id: str) -> Message:
        """The same message under an id, for one that came without."""


@dataclass(frozen=True)
class PlainMessage:
    """A message as plain values."""

    type: str
    content: str | list[Any]
    id: str | None = None
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    tool_call_id: str | None = None
    name: str | None = None
    additional_kwargs: dict[str, Any] = field(default_factory=dict)


class PlainForge:
    """Makes `PlainMessage`s."""

    def summary(self, text: str, *, id: str, role: Literal["human", "system"], marks: Mapping[str, Any]) -> PlainMessage:
        return PlainMessage(role, text, id, additional_kwargs={MARK: dict(marks)})

    def result(self, text: str, *, id: str, call: str, name: str) -> PlainMessage:
        return PlainMessage("tool", text, id, tool_call_id=call, name=name, additional_kwargs={MARK: {"repaired": True}})

    def with_text(self, message: Any, text: str, *, marks: Mapping[str, Any]) -> PlainMessage:
        extras = {**message.additional_kwargs, MARK: {**marks_of(message), **marks}}
        changed: PlainMessage = replace(message, content=text, additional_kwargs=extras)
        return changed

    def with_id(self, message: Any, id: str) -> PlainMessage:
        named: PlainMessage = replace(message, id=id)
        return named
