"""What was sent: every part of a request, where it came from, and how many tokens it took (O4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from holdfast.context.compaction import Outcome
from holdfast.context.view import marks_of, reminders_on, role_of, said_in, text_of
from holdfast.context.window import WindowLimits
from holdfast.tokens.counter import TokenCounter
from holdfast.tokens.messages import Message

_BEGINNING = 120


@dataclass(frozen=True)
class Part:
    """One part of a request. `origin` is where it came from: system, tools, summary, memory (a reminder of the user's facts), recall (what
    came back from the archive), reminder, conversation, reference, repair, or server (what that adds to every request)."""

    origin: str
    role: str
    tokens: int
    id: str | None = None
    beginning: str = ""


@dataclass(frozen=True)
class Manifest:
    """A request as it was sent, and what did not get into it."""

    window: int
    cap: int
    parts: tuple[Part, ...]
    left: tuple[str, ...] = ()
    """Ids of messages that left the window for this request."""
    cleared: tuple[str, ...] = ()
    """Ids of messages whose text stands in the archive, with a reference here."""
    how: str | None = None
    """How the summary was made, where one was made for this request."""

    @property
    def tokens(self) -> int:
        return sum(part.tokens for part in self.parts)

    def by_origin(self) -> dict[str, int]:
        """Tokens for each origin, in the order in which they were sent."""
        sums: dict[str, int] = {}
        for part in self.parts:
            sums[part.origin] = sums.get(part.origin, 0) + part.tokens
        return sums

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"schema": 1, **asdict(self), "tokens": self.tokens, "by_origin": self.by_origin()}


def manifest_of(
    messages: Sequence[Message],
    *,
    room: WindowLimits,
    counter: TokenCounter,
    system: Message | None = None,
    tools: Iterable[object] = (),
    outcome: Outcome | None = None,
) -> Manifest:
    """The manifest of one request."""
    parts = []
    if system is not None:
        parts.append(Part("system", "system", counter.count_message(system), None, text_of(system)[:_BEGINNING]))
    tools = list(tools)
    if tools:
        names = [str(getattr(tool, "name", None) or "tool") for tool in tools]
        parts.append(Part("tools", "tools", counter.count_tools(tools), None, ", ".join(names)[:_BEGINNING]))
    if room.added:
        parts.append(Part("server", "system", room.added))
    parts += [part for message in messages for part in _parts_of(message, counter)]
    parts = [replace(part, tokens=tokens) for part, tokens in zip(parts, room.each(part.tokens for part in parts), strict=True)]
    archived = tuple(str(message.id) for message in messages if "archived" in marks_of(message))
    made = outcome if outcome is not None and outcome.summary is not None else None
    return Manifest(room.window, room.cap, tuple(parts), made.covers if made else (), archived, made.how if made else None)


def _parts_of(message: Message, counter: TokenCounter) -> Iterator[Part]:
    """A message: what rides on it, each with its origin, and then the message itself."""
    tokens, role, id = counter.count_message(message), role_of(message), str(message.id)
    for origin, text in reminders_on(message):
        riding = min(counter.count_text(text), tokens)
        tokens -= riding
        yield Part(origin, role, riding, id, text[:_BEGINNING])
    yield Part(_origin(message), role, tokens, id, said_in(message)[:_BEGINNING])


def _origin(message: Message) -> str:
    marks = marks_of(message)
    for mark, origin in (("summary", "summary"), ("reminder", "reminder"), ("archived", "reference"), ("repaired", "repair")):
        if marks.get(mark):
            return origin
    return "conversation"
