"""A history as the planner sees it: one small value per message, no content.

Marks that Holdfast leaves on a message live in `additional_kwargs["holdfast"]`, a plain mapping, so they survive every store and every
provider ignores them: `summary` (how it was made), `reminder` (its kind), `pin`, `repaired` (a made-up tool result), and `archived` (what
stands here is a reference; the original is in the archive).

Where a message must be made (a summary, a reference, a missing tool result) a `Forge` is asked, so that a history of LangChain messages
stays one, and nothing is converted. `PlainMessage` is a message without LangChain.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, cast

from holdfast.tokens.messages import Message

MARK = "holdfast"

Role = Literal["human", "ai", "tool", "system"]

_TEXT_BLOCKS = ("text", "input_text", "output_text")

_ROLES: dict[str, Role] = {
    "human": "human",
    "user": "human",
    "ai": "ai",
    "assistant": "ai",
    "AIMessageChunk": "ai",
    "HumanMessageChunk": "human",
    "tool": "tool",
    "function": "tool",
    "system": "system",
    "developer": "system",
    "SystemMessageChunk": "system",
    "ToolMessageChunk": "tool",
}


@dataclass(frozen=True, slots=True)
class Item:
    """One message: where it is, who speaks, what it costs, what it is tied to."""

    index: int
    id: str
    role: Role
    tokens: int
    calls: tuple[str, ...] = ()
    answers: str | None = None
    pinned: bool = False
    reminder: str | None = None
    summary: str | None = None
    archived: bool = False
    reasoning: bool = False


def view_of(messages: Sequence[Message], tokens: Iterable[int]) -> tuple[Item, ...]:
    """The whole history as items. Called when there is something to plan, not on every model call."""
    return tuple(_item(index, message, count) for index, (message, count) in enumerate(zip(messages, tokens, strict=True)))


def role_of(message: Message) -> Role:
    """Who speaks. An unknown kind is treated as the user's: it is the one that is never lost."""
    return _ROLES.get(message.type, "human")


def marks_of(message: Message) -> Mapping[str, Any]:
    """The marks that Holdfast left on a message."""
    extras = getattr(message, "additional_kwargs", None)
    marks = extras.get(MARK) if isinstance(extras, Mapping) else None
    if isinstance(marks, Mapping):
        return marks
    if (
        isinstance(extras, Mapping) and extras.get("lc_source") == "summarization"
    ):  # a thread that LangChain's own middleware has summarized
        return {"summary": str(message.id)}
    return {}


def calls_of(message: Message) -> Iterator[tuple[str, str]]:
    """(id, name) of every tool call that the message asks for, the ones that could not be parsed included: a provider wants their
    results too. An empty id is one: there are servers that give no other, and calls with the same id are told apart by their order."""
    for attribute in ("tool_calls", "invalid_tool_calls"):
        for call in getattr(message, attribute, None) or ():
            if call.get("id") is not None:
                yield str(call["id"]), str(call.get("name") or "")


def is_sound(message: Message) -> bool:
    """Whether any provider takes the calls of this message: each has a name, and arguments that are an object."""
    if not all(call.get("name") for call in getattr(message, "tool_calls", None) or ()):
        return False
    return all(call.get("name") and _is_object(call.get("args")) for call in getattr(message, "invalid_tool_calls", None) or ())


def sound_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """The call with a name, and with empty arguments where they are no object."""
    args = call.get("args")
    mended = args if isinstance(args, Mapping) or _is_object(args) else "{}"
    return {**call, "name": call.get("name") or "unknown_tool", "args": mended}


def _is_object(arguments: object) -> bool:
    try:
        return isinstance(json.loads(arguments), dict) if isinstance(arguments, str) else False
    except ValueError:
        return False


def text_of(message: Message) -> str:
    """All the text of a message: its string, or its text and reasoning blocks joined; other blocks are named."""
    content = message.content
    if isinstance(content, str):
        return content
    return "\n".join(part for part in map(_block_text, cast("list[Any]", content)) if part)


_FRAMES = {"memory": "<reminder>", "recall": '<reminder from="archive">'}


def as_reminder(text: str, origin: str = "memory") -> str:
    """A text of Holdfast's own in the frame in which it rides on a message. What is quoted in it must be `escaped`."""
    return f"{_FRAMES[origin]}\n{text}\n</reminder>"


def said_in(message: Message) -> str:
    """All the text of a message but the reminders that ride on it: what somebody really said."""
    content = message.content
    if isinstance(content, str):
        return content
    return "\n".join(part for part in map(_block_text, cast("list[Any]", content)) if part and not _frame_of(part))


def reminders_on(message: Message) -> list[tuple[str, str]]:
    """(origin, text) of the reminders that ride on a message."""
    content = message.content
    parts = [] if isinstance(content, str) else map(_block_text, cast("list[Any]", content))
    return [(origin, part) for part in parts if (origin := _frame_of(part))]


def _frame_of(text: str) -> str:
    closed = text.endswith("\n</reminder>")
    return next((origin for origin, frame in _FRAMES.items() if closed and text.startswith(f"{frame}\n")), "")


def said_of(message: Message) -> str:
    """What was said to somebody: `said_in` without reasoning, and without names of what is no text."""
    content = message.content
    if isinstance(content, str):
        return content
    blocks = (block if isinstance(block, str) else _plain_block(block) for block in cast("list[Any]", content))
    return "\n".join(part for part in blocks if part and not _frame_of(part))


def _plain_block(block: Any) -> str:
    text = block.get("text") if isinstance(block, Mapping) and block.get("type", "text") in _TEXT_BLOCKS else None
    return text if isinstance(text, str) else ""


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return block
    if not isinstance(block, Mapping):
        return str(block)
    for key in ("text", "thinking", "reasoning", "content"):
        if isinstance(block.get(key), str):
            return str(block[key])
    url = block.get("image_url", block.get("url"))
    address = url.get("url") if isinstance(url, Mapping) else url
    where = f" {address}" if isinstance(address, str) and address.startswith(("https://", "http://")) else ""
    return f"[{block.get('type', 'block')}{where}]"


def _item(index: int, message: Message, tokens: int) -> Item:
    marks, role = marks_of(message), role_of(message)
    return Item(
        index=index,
        id=str(message.id),
        role=role,
        tokens=tokens,
        calls=tuple(call for call, _ in calls_of(message)) if role == "ai" else (),
        answers=str(getattr(message, "tool_call_id", "") or "") if role == "tool" else None,
        pinned=bool(marks.get("pin")),
        reminder=marks.get("reminder"),
        summary=marks.get("summary"),
        archived="archived" in marks,
        reasoning=role == "ai" and _reasons(message),
    )


def _reasons(message: Message) -> bool:
    content = message.content
    return isinstance(content, list) and any(
        isinstance(block, Mapping) and block.get("type") in ("thinking", "redacted_thinking", "reasoning") for block in content
    )


class Forge(Protocol):
    """Makes messages of the kind that the history consists of."""

    def summary(self, text: str, *, id: str, role: Literal["human", "system"], marks: Mapping[str, Any]) -> Message:
        """A message that stands for those that left."""

    def result(self, text: str, *, id: str, call: str, name: str) -> Message:
        """A tool result, marked as an error, for a call that has none."""

    def with_text(self, message: Message, text: str, *, marks: Mapping[str, Any]) -> Message:
        """A copy of the message (id, role and ties kept) with other text and these marks added."""

    def with_id(self, message: Message, id: str) -> Message:
        """A copy of the message with an id, for one that came without."""

    def with_sound_calls(self, message: Message) -> Message:
        """A copy of an assistant message whose calls any provider takes (`sound_call`)."""


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

    def with_sound_calls(self, message: Any) -> PlainMessage:
        mended: PlainMessage = replace(message, tool_calls=[sound_call(call) for call in message.tool_calls])
        return mended
