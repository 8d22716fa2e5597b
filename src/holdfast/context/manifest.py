"""What was sent: every part of a request, where it came from, and how many tokens it took (O4).

Made from what a model call was given, when somebody asks; the call itself pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.context.compaction import Outcome
from holdfast.context.view import marks_of, role_of, text_of
from holdfast.context.window import WindowLimits
from holdfast.tokens.counter import TokenCounter
from holdfast.tokens.messages import Message

_BEGINNING = 120


@dataclass(frozen=True)
class Part:
    """One part of a request. `origin` is where it came from: system, tools, summary, reminder, conversation, reference or repair."""

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
    parts += [Part(_origin(m), role_of(m), counter.count_message(m), str(m.id), text_of(m)[:_BEGINNING]) for m in messages]
    archived = tuple(str(message.id) for message in messages if "archived" in marks_of(message))
    made = outcome if outcome is not None and outcome.summary is not None else None
    return Manifest(room.window, room.cap, tuple(parts), made.covers if made else (), archived, made.how if made else None)


def _origin(message: Message) -> str:
    marks = marks_of(message)
    for mark, origin in (("summary", "summary"), ("reminder", "reminder"), ("archived", "reference"), ("repaired", "repair")):
        if marks.get(mark):
            return origin
    return "conversation"
