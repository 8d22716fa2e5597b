"""What was sent: every part of a request, where it came from, and how many tokens it took (O4).

The system part is told apart by what stands in it: what the agent is told, skills, memory of the user, blocks, the date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    """One part of a request. `origin` is where it came from: system, skills, memory (of the user: in the system part, or as a reminder),
    blocks, date, tools, summary, recall (what came back from the archive), reminder, conversation, reference, repair, or server (what that
    adds to every request). `offset` is where it begins in the text of its message."""

    origin: str
    role: str
    tokens: int
    id: str | None = None
    beginning: str = ""
    offset: int = 0


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
    count: Callable[[Message], int] | None = None,
) -> Manifest:
    """The manifest of one request. `count` knows the tokens of messages, where they were counted already."""
    count = count or counter.count_message
    parts = [*system_parts(system, counter, count)] if system is not None else []
    tools = list(tools)
    if tools:
        names = [str(getattr(tool, "name", None) or "tool") for tool in tools]
        parts.append(Part("tools", "tools", counter.count_tools(tools), None, ", ".join(names)[:_BEGINNING]))
    if room.added:
        parts.append(Part("server", "system", room.added))
    parts += [part for message in messages for part in _parts_of(message, counter, count)]
    parts = [replace(part, tokens=tokens) for part, tokens in zip(parts, room.each(part.tokens for part in parts), strict=True)]
    archived = tuple(str(message.id) for message in messages if "archived" in marks_of(message))
    made = outcome if outcome is not None and outcome.summary is not None else None
    return Manifest(room.window, room.cap, tuple(parts), made.covers if made else (), archived, made.how if made else None)


_SYSTEM_PARTS = re.compile(
    r"<(?P<origin>skills|memory|blocks)>\n.*?</(?P=origin)>|^Today is (?P<date>[A-Z]\w+, \d{4}-\d\d-\d\d)\.$", re.DOTALL | re.MULTILINE
)


def system_parts(system: Message, counter: TokenCounter, count: Callable[[Message], int]) -> Iterator[Part]:
    """The system message by what stands in it. The parts add up to its tokens: what is between two belongs to the agent's own words."""
    text, total = text_of(system), count(system)
    found = [(match["origin"] or "date", *match.span()) for match in _SYSTEM_PARTS.finditer(text)]
    sizes = [counter.count_text(text[start:end]) for _, start, end in found]
    own = max(0, total - sum(sizes))
    yield Part("system", "system", own, None, text[:_BEGINNING])
    left = total - own
    for (origin, start, end), size in zip(found, sizes, strict=True):
        yield Part(origin, "system", min(size, left), None, text[start:end][:_BEGINNING], start)
        left -= min(size, left)


def _parts_of(message: Message, counter: TokenCounter, count: Callable[[Message], int]) -> Iterator[Part]:
    """A message: what rides on it, each with its origin, and then the message itself."""
    tokens, role, id = count(message), role_of(message), str(message.id)
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
