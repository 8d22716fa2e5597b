"""Messages without LangChain, made and changed for the tests of working memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from holdfast.context.view import MARK, PlainMessage, marks_of, sound_call


class PlainMessages:
    """Makes `PlainMessage`s: what `LangChainMessages` is for LangChain's."""

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

    def with_sound_calls(self, message: Any) -> PlainMessage:
        mended: PlainMessage = replace(message, tool_calls=[sound_call(call) for call in message.tool_calls])
        return mended
