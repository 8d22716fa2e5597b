"""A history as the planner sees it (one small value per message, no content), and which histories are legal (S5, S6).

Marks that Holdfast leaves on a message live in `additional_kwargs["holdfast"]`, a plain mapping, so they survive every store and every
provider ignores them: `summary` (how it was made), `reminder` (its kind), `pin`, `repaired` (a made-up tool result), and `archived` (what
stands here is a reference; the original is in the archive).

A rule says which messages may not leave (`stays`) and which ones stay or leave together (`ties`). `groups` folds all rules into the units
that the planner moves. `repair` makes a history in which each call is followed by its results and nothing else: late results move up,
missing ones are made up and say so, results that nobody asked for are taken out, calls without a name or with arguments that are none are
mended (the caller archives what changes first).

Where a message must be made (a summary, a reference, a missing tool result) a `MessageFactory` is asked, so that a history of LangChain
messages stays one, and nothing is converted. `PlainMessage` is a message without LangChain.
"""

from __future__ import annotations

import builtins
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, repeat
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
    foreign = isinstance(extras, Mapping) and extras.get("lc_source") == "summarization"  # summarized by LangChain's own middleware
    return {"summary": str(message.id)} if foreign else {}


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
        reasoning=role == "ai" and isinstance(message.content, list) and any(map(_is_reasoning, message.content)),
    )


def _is_reasoning(block: object) -> bool:
    return isinstance(block, Mapping) and block.get("type") in ("thinking", "redacted_thinking", "reasoning")


class MessageFactory(Protocol):
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


View = Sequence[Item]


class Rule(Protocol):
    """An invariant of the history. Looks at roles and ties, never at text."""

    def stays(self, view: View) -> Iterable[int]:
        """Messages that may not leave."""
        return ()

    def ties(self, view: View) -> Iterable[Sequence[int]]:
        """Messages that stay or leave together."""
        return ()


class WholePairs(Rule):
    """A call and its results, over all ids, in both directions, wherever the results are; parallel calls are one batch."""

    def ties(self, view: View) -> Iterator[list[int]]:
        for asked, results in _batches(view).items():
            yield [asked, *results]


class PendingCalls(Rule):
    """Calls of the newest assistant message that have no result yet: they run, or wait for a person's approval."""

    def stays(self, view: View) -> Iterator[int]:
        newest = next((item for item in reversed(view) if item.role == "ai"), None)
        if newest is not None and newest.calls:
            answered = sum(1 for asked in pairing(view).values() if asked == newest.index)
            if answered < len(newest.calls):
                yield newest.index


class UnreadResults(Rule):
    """The newest calls until a model has answered to their results: who has never seen what came back would call again.

    Given up only where the request would not fit otherwise, because the calls alone are too large.
    """

    def stays(self, view: View) -> Iterator[int]:
        newest = next((item for item in reversed(view) if item.role == "ai"), None)
        if newest is not None and newest.calls:
            yield newest.index


class PinnedMessages(Rule):
    """The first goal, the newest user message, system messages, what was pinned, and the newest reminder of each kind."""

    def stays(self, view: View) -> Iterator[int]:
        people = [item for item in view if item.role == "human" and item.summary is None and item.reminder is None]
        yield from {item.index for item in (*people[:1], *people[-1:])}
        newest: dict[str, int] = {}
        for item in view:
            if item.pinned or (item.role == "system" and item.summary is None):
                yield item.index
            if item.reminder is not None:
                newest[item.reminder] = item.index
        yield from newest.values()


class Reasoning(Rule):
    """Reasoning that stands in a message of its own belongs to the assistant message after it: providers refuse a call whose
    reasoning is gone."""

    def ties(self, view: View) -> Iterator[list[int]]:
        for item, following in pairwise(view):
            if item.reasoning and not item.calls and following.role == "ai":
                yield [item.index, following.index]


def pairing(view: View) -> dict[int, int]:
    """Which assistant message each tool result answers, by index; results that nobody asked for are left out.

    Some servers give every call the same id, so a result belongs to the nearest message before it whose call of that id is still open,
    else to the first one after it. A second result for a call that is answered belongs to nobody.
    """
    open_calls, early = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    pairs: dict[int, int] = {}
    for item in view:
        for call in item.calls:
            if early[call]:
                pairs[early[call].pop(0)] = item.index
            else:
                open_calls[call].append(item.index)
        if item.answers is not None:
            if open_calls[item.answers]:
                pairs[item.index] = open_calls[item.answers].pop()
            else:
                early[item.answers].append(item.index)
    return pairs


def _batches(view: View) -> defaultdict[int, list[int]]:
    """The results of each assistant message, by index."""
    batches = defaultdict[int, list[int]](list)
    for result, asked in pairing(view).items():
        batches[asked].append(result)
    return batches


RULES: tuple[Rule, ...] = (WholePairs(), PendingCalls(), UnreadResults(), PinnedMessages(), Reasoning())


@dataclass(frozen=True)
class Group:
    """Messages that stay or leave together, in order. `stays` when a rule holds one of them."""

    indexes: tuple[int, ...]
    tokens: int
    stays: bool

    @property
    def newest(self) -> int:
        return self.indexes[-1]


def groups(view: View, rules: Sequence[Rule] = RULES) -> tuple[Group, ...]:
    """The units that a plan may move, ordered by their newest message."""
    parent = list(range(len(view)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    for rule in rules:
        for tie in rule.ties(view):
            for other in tie[1:]:
                parent[root(other)] = root(tie[0])
    held = {root(index) for rule in rules for index in rule.stays(view)}
    members = defaultdict[int, list[int]](list)
    for index in range(len(view)):
        members[root(index)].append(index)
    made = [Group(tuple(indexes), sum(view[i].tokens for i in indexes), head in held) for head, indexes in members.items()]
    return tuple(sorted(made, key=lambda group: group.newest))


MISSING = "No result: the run stopped before this call finished. It may have taken effect."


@dataclass(frozen=True)
class Repaired:
    """The history as it should be. `messages` is the very list that was given when nothing had to be done."""

    messages: Sequence[Message]
    dropped: tuple[Message, ...] = ()
    made: tuple[Message, ...] = ()
    changed: bool = False


def repair(messages: Sequence[Message], factory: MessageFactory, *, answer_newest: bool = True) -> Repaired:
    """Put calls and results together.

    With `answer_newest=False` the unanswered calls of the newest assistant message are left alone: they are pending. Before a model call
    they have to be answered, because a provider refuses a request in which they are open.
    """
    stand_ins = {str(message.id): message for message in messages if marks_of(message).get("repaired")}
    real = [message for message in messages if str(message.id) not in stand_ins] if stand_ins else messages
    view = view_of(real, repeat(0, len(real)))
    results = _batches(view)
    newest = next((item.index for item in reversed(view) if item.role == "ai"), None)
    ordered: list[Message] = []
    made: list[Message] = []
    for item in view:
        if item.role == "tool":
            continue
        asking = real[item.index]
        ordered.append(asking if item.role != "ai" or is_sound(asking) else factory.with_sound_calls(asking))
        answers = defaultdict[str | None, list[Message]](list)
        for index in sorted(results[item.index]):
            answers[view[index].answers].append(real[index])
        for number, (call, name) in enumerate(calls_of(real[item.index]) if item.role == "ai" else ()):
            if answers[call]:
                ordered.append(answers[call].pop(0))
            elif answer_newest or item.index != newest:
                id = f"repair-{item.id}-{number}"
                found = stand_ins.get(id)
                if found is None:
                    found = factory.result(MISSING, id=id, call=call, name=name)
                    made.append(found)
                ordered.append(found)
    if len(ordered) == len(messages) and all(a is b for a, b in zip(ordered, messages, strict=True)):
        return Repaired(messages)
    kept = set(map(builtins.id, ordered))
    dropped = tuple(message for message in messages if builtins.id(message) not in kept and str(message.id) not in stand_ins)
    return Repaired(ordered, dropped, tuple(made), changed=True)
