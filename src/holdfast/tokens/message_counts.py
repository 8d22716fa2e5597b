"""Counts that are kept: one for each message and each tool, and running sums over a conversation.

Within a run messages are the same objects from call to call, so identity is asked first; after a reload they are new objects with the same
ids, so (id, mark of the content) is asked next; only what neither knows is counted. Changing a message object in place is not noticed: who
edits a message makes a new one.

A tool is counted as the JSON that is sent: a plain dict as it is; an object with `name`, `description` and a schema (LangChain's tools, met
by their shape), a pydantic model, or a function with annotations in the OpenAI form.
"""

from __future__ import annotations

import inspect
import json
import operator
import threading
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.tokens.messages import MESSAGE_OVERHEAD, Message, mark_of, plain_text
from holdfast.tokens.messages import field as part

if TYPE_CHECKING:
    from holdfast.tokens.counter import TokenCounter


@dataclass
class _Generation:
    """Counts by the identity of the message, by (id, mark), and the messages themselves.

    A message that is held cannot be freed, so no other can have its identity: a key that is there is the right one. That is why
    `messages` is let go only after `tokens`.
    """

    tokens: dict[int, int] = field(default_factory=dict)
    marks: dict[tuple[str | None, int], int] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)


class MessageCounts:
    """The count of every message seen, worked out once. Safe for many threads.

    Keeps between `most` and twice as many messages, those used lately: entries live in a young and an old generation, a hit in the old one
    moves to the young one, and a full young one replaces the old. So a hit costs one look-up and writes nothing.
    """

    def __init__(self, counter: TokenCounter, *, most: int = 10_000) -> None:
        self.counter = counter
        self._most = max(1, most)
        self._lock = threading.Lock()
        self._old = _Generation()
        self._young = _Generation()
        self._tokens = self._young.tokens
        self._bound_text: Callable[[str], int | None] = getattr(counter, "bound_text", lambda text: None)
        self.count_list: Callable[[Sequence[Message]], int] | None = getattr(counter, "count_list", None)
        """For a counter that counts histories: what it says of one need not be the sum over its messages."""

    def each(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of each message of a history, so that they add up to those of the history."""
        counts = [self.count(message) for message in messages]
        if self.count_list is None:
            return counts
        total, own = self.count_list(messages), max(1, sum(counts))
        so_far, shares = 0, []
        for count in counts:
            shares.append(total * (so_far + count) // own - total * so_far // own)
            so_far += count
        return shares

    def count(self, message: Message) -> int:
        """Tokens of the message. The second time for the same object it is one dictionary look-up."""
        try:
            return self._tokens[id(message)]
        except KeyError:
            return self._look_further(message)

    def bound(self, message: Message) -> int:
        """A number that the count is never above: the count itself where it is known or must be worked out, else a quick bound."""
        known = self._tokens.get(id(message))
        if known is not None:
            return known
        text = plain_text(message)
        bound = self._bound_text(text) if text is not None else None
        return self.count(message) if bound is None else MESSAGE_OVERHEAD + bound

    def _look_further(self, message: Message) -> int:
        key = None
        with self._lock:
            tokens = self._old.tokens.get(id(message))
        if tokens is None:
            key = (part(message, "id"), mark_of(message))
            tokens = self._young.marks.get(key)
            if tokens is None:
                tokens = self._old.marks.get(key)
            if tokens is None:
                tokens = self.counter.count_message(message)
        with self._lock:
            self._keep(message, key, tokens)
        return tokens

    def _keep(self, message: Message, key: tuple[str | None, int] | None, tokens: int) -> None:
        if len(self._young.messages) >= self._most:
            self._replace(self._young, _Generation())
        young = self._young
        if id(message) not in young.tokens:  # another thread may have been quicker
            young.messages.append(message)
            young.tokens[id(message)] = tokens
        if key is not None:
            young.marks[key] = tokens

    def _replace(self, old: _Generation, young: _Generation) -> None:
        self._tokens = young.tokens
        gone = self._old, self._young
        self._old, self._young = old, young
        del gone  # and with them, last of all, the messages that nobody looks up any more

    def __len__(self) -> int:
        with self._lock:
            return len(self._young.tokens.keys() | self._old.tokens.keys())


class Ledger:
    """The running sums of one conversation. `total` costs what is new, and a walk at C speed over what is not.

    Calls are serialised by a lock; two conversations need two ledgers (they may share one `MessageCounts`).
    """

    def __init__(self, counts: MessageCounts) -> None:
        self._counts = counts
        self._lock = threading.Lock()
        self._messages: list[Message] = []
        self._sums = [0]
        self._exact = 0
        """How many messages at the head have been counted; the sums behind them rest on bounds."""
        self._unchanged = 0

    def total(self, messages: Sequence[Message]) -> int:
        """Tokens of all these messages. Replaced, removed and reordered messages are noticed by identity."""
        with self._lock:
            same = self._unmoved(messages)
            self._extend(messages, min(same, self._exact), self._counts.count)
            self._unchanged, self._exact = same, len(self._messages)
            return self._sums[-1] if self._counts.count_list is None else self._counts.count_list(messages)

    def rough(self, messages: Sequence[Message]) -> int:
        """A number that the total is never above, in a fraction of its time: what was totalled before, and bounds for what is new."""
        with self._lock:
            same = self._unmoved(messages)
            self._extend(messages, same, self._counts.bound)
            self._unchanged, self._exact = same, min(self._exact, same)
            return self._sums[-1] if self._counts.count_list is None else self._counts.count_list(messages)

    def _extend(self, messages: Sequence[Message], start: int, size: Callable[[Message], int]) -> None:
        del self._messages[start:], self._sums[start + 1 :]
        running = self._sums[-1]
        for message in messages[start:]:
            running += size(message)
            self._messages.append(message)
            self._sums.append(running)

    def _unmoved(self, messages: Sequence[Message]) -> int:
        """How many messages at the head are the ones known.

        Comparing two lists asks for identity first and is several times quicker than a walk of our own; who is equal without being
        the same object counts the same. A history of new objects (the first call after a reload) would be compared field by field, so
        both ends are looked at before.
        """
        known = self._messages
        if known and len(messages) >= len(known) and messages[0] is known[0] and messages[len(known) - 1] is known[-1]:
            head = messages if len(messages) == len(known) else messages[: len(known)]
            if (head if isinstance(head, list) else list(head)) == known:
                return len(known)
        same = min(len(known), len(messages))
        walk = list(map(operator.is_, known, messages))
        return walk.index(False) if False in walk else same

    @property
    def unchanged(self) -> int:
        """How many messages at the head were the same as the time before."""
        return self._unchanged

    def __len__(self) -> int:
        return len(self._messages)

    def between(self, start: int, stop: int | None = None) -> int:
        """Tokens of the messages from `start` up to `stop`, indices as in a slice."""
        with self._lock:
            self._settle()
            start, stop, _ = slice(start, stop).indices(len(self._messages))
            return self._sums[max(start, stop)] - self._sums[start]

    def _settle(self) -> None:
        """Count what so far was only bounded."""
        if self._exact < len(self._messages):
            self._extend(list(self._messages), self._exact, self._counts.count)
            self._exact = len(self._messages)


_INJECTED = frozenset({"self", "cls", "runtime", "config", "callbacks", "run_manager"})
"""Parameters that are filled in by the program: the model never sees them."""


def tool_json(tool: object) -> str:
    """The text that a request carries for this tool. What cannot be written as JSON is written as its `str`."""
    return json.dumps(tool_schema(tool), ensure_ascii=False, default=str)


def tool_schema(tool: object) -> object:
    """The definition of a tool in the OpenAI form; a dict is returned as it is."""
    if isinstance(tool, Mapping):
        return tool
    name = _text(getattr(tool, "name", None)) or _text(getattr(tool, "__name__", None)) or type(tool).__name__
    parameters = _parameters(tool)
    description = _text(getattr(tool, "description", None)) or inspect.cleandoc(getattr(tool, "__doc__", None) or "")
    if isinstance(parameters, Mapping):
        inner = parameters.get("description")
        parameters = {key: value for key, value in parameters.items() if key != "description"}
        description = description or _text(inner)
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _parameters(tool: object) -> object:
    for attribute in ("tool_call_schema", "args_schema"):
        schema = getattr(tool, attribute, None)
        if schema is not None:
            return _without_titles(_schema_of(schema))
    if isinstance(getattr(tool, "args", None), Mapping):
        return _without_titles({"type": "object", "properties": tool.args})  # type: ignore[attr-defined]  # just looked at
    if inspect.isclass(tool):
        return _without_titles(_schema_of(tool))
    if callable(tool):
        return _signature_schema(tool)
    return {"type": "object", "properties": {}}


def _schema_of(schema: object) -> object:
    maker = getattr(schema, "model_json_schema", None) or getattr(schema, "schema", None)
    return maker() if callable(maker) else schema if isinstance(schema, Mapping) else {"type": "object", "properties": {}}


def _without_titles(schema: object, *, names: bool = False) -> object:
    """The titles that pydantic adds are not sent; a property that is called `title` stays."""
    if isinstance(schema, Mapping):
        return {
            key: _without_titles(value, names=key in ("properties", "$defs") and not names)
            for key, value in schema.items()
            if names or key != "title" or not isinstance(value, str)
        }
    if isinstance(schema, list | tuple):
        return [_without_titles(item) for item in schema]
    return schema


def _signature_schema(function: Callable[..., object]) -> dict[str, object]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions have none
        return {"type": "object", "properties": {}}
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError):  # an annotation that only a type checker can follow
        hints = {}
    properties: dict[str, object] = {}
    required = []
    for name, parameter in signature.parameters.items():
        if name in _INJECTED or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        prop = _type_schema(hints[name]) if name in hints else {}
        if parameter.default is parameter.empty:
            required.append(name)
        else:
            prop["default"] = parameter.default
        properties[name] = prop
    return {"type": "object", "properties": properties, "required": required}


def _type_schema(hint: Any) -> dict[str, object]:
    from pydantic import PydanticUserError, TypeAdapter  # when a bare function is a tool, which is rare

    try:
        return TypeAdapter(hint).json_schema()
    except (PydanticUserError, NameError, TypeError):  # a type that has no JSON form
        return {}


class ToolCounts:
    """Counts of tools, by identity and then by what a copy has in common. Safe for many threads; keeps at most `most` tools.

    A tool that is changed in place after it was counted keeps its old count.
    """

    def __init__(self, count: Callable[[str], int], *, most: int = 1000) -> None:
        self._count = count
        self._most = most
        self._by_object: dict[int, tuple[object, int]] = {}
        self._by_kind: dict[tuple[object, ...], tuple[object, int]] = {}
        self._lock = threading.Lock()

    def __call__(self, tool: object) -> int:
        entry = self._by_object.get(id(tool))
        if entry is not None and entry[0] is tool:  # the entry holds the tool, so its id cannot have been given to another
            return entry[1]
        kind = self._kind(tool)
        known = self._by_kind.get(kind) if kind else None
        tokens = known[1] if known else self._count(tool_json(tool))
        with self._lock:
            for table in (self._by_object, self._by_kind):
                if len(table) >= self._most:
                    table.clear()
            self._by_object[id(tool)] = (tool, tokens)
            if kind:
                self._by_kind[kind] = (tool, tokens)
        return tokens

    @staticmethod
    def _kind(tool: object) -> tuple[object, ...] | None:
        """What a copy of a tool shares with it: name, description and the very same schema object."""
        schema = None if isinstance(tool, Mapping) else getattr(tool, "args_schema", None)
        return None if schema is None else (type(tool), getattr(tool, "name", None), getattr(tool, "description", None), id(schema))
