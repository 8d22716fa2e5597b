"""New messages of LangChain's kinds, for `context/`, which reads them but does not import them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, ToolMessage

from holdfast.context.view import MARK, marks_of, sound_call


class LangChainMessages:
    """Makes LangChain messages. What it changes is a copy: message objects are never edited in place."""

    def summary(self, text: str, *, id: str, role: Literal["human", "system"], marks: Mapping[str, Any]) -> BaseMessage:
        kind = HumanMessage if role == "human" else SystemMessage
        return kind(content=text, id=id, additional_kwargs={MARK: dict(marks), "lc_source": "summarization"})

    def result(self, text: str, *, id: str, call: str, name: str) -> BaseMessage:
        return ToolMessage(
            content=text, id=id, tool_call_id=call, name=name or None, status="error", additional_kwargs={MARK: {"repaired": True}}
        )

    def with_text(self, message: Any, text: str, *, marks: Mapping[str, Any]) -> BaseMessage:
        extras = {**message.additional_kwargs, MARK: {**marks_of(message), **marks}}
        changed: BaseMessage = message.model_copy(update={"content": _content(message.content, text), "additional_kwargs": extras})
        return changed

    def with_id(self, message: Any, id: str) -> BaseMessage:
        copied: BaseMessage = message.model_copy(update={"id": id})
        return copied

    def with_sound_calls(self, message: Any) -> BaseMessage:
        calls = {name: [sound_call(call) for call in getattr(message, name)] for name in ("tool_calls", "invalid_tool_calls")}
        mended: BaseMessage = message.model_copy(update=calls)
        return mended


def _content(content: Any, text: str) -> Any:
    """The content with its text replaced. Reasoning and tool-call blocks of an assistant stay: a provider refuses a call without them."""
    if isinstance(content, str):
        return text
    kept = [
        block
        for block in content
        if isinstance(block, Mapping) and block.get("type") in ("thinking", "redacted_thinking", "reasoning", "tool_use")
    ]
    return [*kept, {"type": "text", "text": text}] if kept else text


def with_reminder(message: BaseMessage, reminder: str, marks: Mapping[str, Any]) -> BaseMessage:
    """A copy with a text of Holdfast's own (`as_reminder`) and these marks: before what a user says, after what a tool gave (S19)."""
    content: Any = message.content
    if isinstance(message, ToolMessage):
        content = f"{content}\n\n{reminder}" if isinstance(content, str) else [*content, {"type": "text", "text": reminder}]
    else:
        said = [{"type": "text", "text": content}] if isinstance(content, str) else content
        content = [{"type": "text", "text": reminder}, *said]
    extras = {**message.additional_kwargs, MARK: {**marks_of(message), **marks}}
    return message.model_copy(update={"content": content, "additional_kwargs": extras})
