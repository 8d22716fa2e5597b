"""What the archive keeps, as values: a message word for word, and a summary with what it stands for.

A record holds JSON values only, so that the log can be read by a person and by any program. What JSON has no form for is wrapped in an
object with one key that says what it was (`$bytes`, `$text`, `$number`, `$pairs`), and comes back as it was; anything else is kept
as its `repr` (`$repr`), and the record says that it is not `exact`.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal

from holdfast.context.view import MARK, PlainMessage, Role, marks_of, role_of, said_in, text_of
from holdfast.errors import InputError

_DEEPEST = 100  # levels; the log refuses more than twice as many
_WRAPPERS = frozenset({"$bytes", "$text", "$number", "$pairs", "$repr"})


def plain(value: Any) -> tuple[Any, bool]:
    """The value as JSON, and whether `restored` gives it back as it was (tuples come back as lists).

    >>> plain({"image": b"abc", "size": (1, 2)})
    ({'image': {'$bytes': 'YWJj'}, 'size': [1, 2]}, True)
    """
    lost: list[bool] = []
    return _plain(value, 0, lost), not lost


def restored(value: Any) -> Any:
    """The value that `plain` was given. A `$repr` stays what it is."""
    if isinstance(value, list):
        return [restored(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if len(value) == 1:
        ((key, inner),) = value.items()
        if key in _WRAPPERS:
            return _unwrapped(key, inner)
    return {key: restored(item) for key, item in value.items()}


def _plain(value: Any, depth: int, lost: list[bool]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _plain_text(str(value))
    if isinstance(value, int | float):
        return _plain_number(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$bytes": base64.b64encode(bytes(value)).decode("ascii")}
    if depth < _DEEPEST and isinstance(value, Mapping):
        return _plain_mapping(value, depth, lost)
    if depth < _DEEPEST and isinstance(value, list | tuple):
        return [_plain(item, depth + 1, lost) for item in value]
    lost.append(True)
    return {"$repr": _plain_text(_repr(value))}


def _plain_text(text: str) -> Any:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half a surrogate pair: no UTF-8 can hold it
        return {"$text": base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")}
    return text


def _plain_number(value: int | float) -> Any:
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$number": repr(float(value))}
    return int(value) if abs(value) < 1 << 1024 else {"$number": hex(value)}  # longer ones cannot be written in decimal everywhere


def _plain_mapping(value: Mapping[Any, Any], depth: int, lost: list[bool]) -> Any:
    keys_are_text = all(isinstance(key, str) and isinstance(_plain_text(key), str) for key in value)
    if not keys_are_text or (len(value) == 1 and next(iter(value)) in _WRAPPERS):
        return {"$pairs": [[_plain(key, depth + 1, lost), _plain(item, depth + 1, lost)] for key, item in value.items()]}
    return {str(key): _plain(item, depth + 1, lost) for key, item in value.items()}


def _unwrapped(key: str, inner: Any) -> Any:
    try:
        if key == "$bytes":
            return base64.b64decode(inner, validate=True)
        if key == "$text":
            return base64.b64decode(inner, validate=True).decode("utf-8", "surrogatepass")
        if key == "$number":
            return int(inner, 16) if "0x" in inner else float(inner)
        if key == "$pairs":
            return {_hashable(restored(name)): restored(item) for name, item in inner}
    except (TypeError, ValueError, binascii.Error):
        pass  # somebody else's object that only looks like ours: as it stands is as it was
    return {key: restored(inner)}


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001  # a foreign __repr__ may raise anything, and must not keep the rest from being kept
        return f"<{type(value).__name__} whose repr failed: {type(error).__name__}>"


SCHEMA = 1
How = Literal["model", "extract", "reference"]

_EXTRAS = ("additional_kwargs", "response_metadata", "usage_metadata", "invalid_tool_calls", "status", "artifact")
_ROLES: dict[str, Role] = {"human": "human", "ai": "ai", "tool": "tool", "system": "system"}


@dataclass(frozen=True)
class MessageRecord:
    """A message as it was said. `seq` is its number in the thread's archive, given when it is added; `mark` stands for what it says.

    `after` is the id of the message before it in the conversation, where that is known: messages may be archived out of turn.
    """

    id: str
    role: Role
    content: Any
    type: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    time: str = ""
    tokens: int | None = None
    after: str | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = True
    seq: int = 0
    mark: str = ""

    def __post_init__(self) -> None:
        if not self.mark:
            said = [self.role, self.content, list(self.tool_calls), self.tool_call_id, self.name]
            object.__setattr__(self, "mark", _digest(said))

    @cached_property
    def text(self) -> str:
        """All the text of the message, without the tool calls."""
        return text_of(self._message)

    @cached_property
    def said(self) -> str:
        """Its text without the reminders that rode on it."""
        return said_in(self._message)

    @property
    def _message(self) -> PlainMessage:
        content = restored(self.content)
        return PlainMessage(self.role, content if isinstance(content, str | list) else [] if content is None else [content])

    @property
    def marks(self) -> Mapping[str, Any]:
        """The marks that Holdfast left on the message."""
        kwargs = self.extras.get("additional_kwargs")
        marks = kwargs.get(MARK) if isinstance(kwargs, Mapping) else None
        return marks if isinstance(marks, Mapping) else {}

    @property
    def calls(self) -> tuple[tuple[str, Any], ...]:
        """(name, arguments) of every tool call, in LangChain's form or OpenAI's."""
        found = []
        for call in self.tool_calls:
            function = call.get("function")
            inner = function if isinstance(function, Mapping) else call
            found.append((str(inner.get("name") or ""), inner.get("args", inner.get("arguments"))))
        return tuple(found)


@dataclass(frozen=True)
class SummaryRecord:
    """A summary, what it stands for, and how it was made. `previous` is the id of the summary that was folded into it."""

    id: str
    text: str
    covers: tuple[str, ...] = ()
    tokens_before: int | None = None
    tokens_after: int | None = None
    model: str | None = None
    how: How = "model"
    previous: str | None = None
    time: str = ""
    seq: int = 0
    mark: str = ""

    def __post_init__(self) -> None:
        if not self.mark:
            object.__setattr__(self, "mark", _digest([self.text, list(self.covers)]))


Record = MessageRecord | SummaryRecord


def record_of(message: Any) -> MessageRecord:
    """The record of one message: LangChain's, ours, or a dict with `role` and `content`. Nothing of it is lost.

    A message without an id gets one made from what it says; `records_of` tells equal messages apart.
    """
    given = _structural(message)
    content, exact = plain(given.content)
    calls, exact_calls = plain(list(getattr(given, "tool_calls", None) or ()))
    extras, exact_extras = plain({name: value for name in _EXTRAS if (value := getattr(given, name, None))})
    record = MessageRecord(
        id=str(given.id or ""),
        role=role_of(given),
        content=content,
        type=str(given.type),
        tool_calls=tuple(call if isinstance(call, Mapping) else {"name": "", "args": call} for call in calls),
        tool_call_id=_text(getattr(given, "tool_call_id", None)),
        name=_text(getattr(given, "name", None)),
        extras=extras,
        exact=exact and exact_calls and exact_extras,
    )
    return record if record.id else dataclasses.replace(record, id=f"anon-{record.mark}")


def records_of(messages: Iterable[Any], *, history: Sequence[Any] = (), tokens: Mapping[str, int] | None = None) -> list[MessageRecord]:
    """The records of messages that leave together. With `history`, the conversation they are part of, each knows the one before it.

    Messages without ids are told apart by what they say, what was said before them, and how often: the same part of a
    conversation, archived again, gives the same ids.
    """
    before = _predecessors(history)
    nameless: Counter[str] = Counter()
    found: list[MessageRecord] = []
    previous = ""
    for message in messages:
        record = record_of(message)
        if not _structural(message).id:
            key = _digest([previous, record.mark])
            nameless[key] += 1
            record = dataclasses.replace(record, id=f"anon-{key}" + (f"-{nameless[key]}" if nameless[key] > 1 else ""))
        count = (tokens or {}).get(record.id)
        found.append(dataclasses.replace(record, after=before.get(record.id), tokens=count))
        previous = record.mark
    return found


def message_of(record: MessageRecord) -> dict[str, Any]:
    """The message as a plain dict with the usual keys, its content as it was. What was only kept as a `repr` stays one."""
    message: dict[str, Any] = {"type": record.type or record.role, "content": restored(record.content), "id": record.id}
    if record.tool_calls:
        message["tool_calls"] = [restored(call) for call in record.tool_calls]
    for key in ("tool_call_id", "name"):
        if getattr(record, key) is not None:
            message[key] = getattr(record, key)
    return message | {key: restored(value) for key, value in record.extras.items()}


def written(record: Record) -> dict[str, Any]:
    """The record as it stands in the log. Empty parts are left out."""
    kind = "message" if isinstance(record, MessageRecord) else "summary"
    values: dict[str, Any] = {"schema": SCHEMA, "kind": kind, "seq": record.seq, "id": record.id, "time": record.time}
    for part in dataclasses.fields(record):
        value = getattr(record, part.name)
        if part.name not in values and value not in (None, (), {}, ""):
            values[part.name] = list(value) if isinstance(value, tuple) else value
    if kind == "message":
        values.setdefault("content", record.content if isinstance(record, MessageRecord) else "")
        if values.get("exact") is True:
            del values["exact"]
        if values.get("type") == values.get("role"):
            del values["type"]
    return values


def record_from(values: Mapping[str, Any]) -> Record | None:
    """The record that was written, or None for a kind that this version does not know."""
    if "id" not in values:
        return None
    if values.get("kind") == "message":
        role = _ROLES.get(str(values.get("role")), "human")
        return MessageRecord(**{"content": "", **_known(MessageRecord, values), "role": role})
    if values.get("kind") == "summary":
        return SummaryRecord(**{"text": "", **_known(SummaryRecord, values)})
    return None


def _known(kind: type[Record], values: Mapping[str, Any]) -> dict[str, Any]:
    """The members that this version knows: a later one may have added some."""
    names = _MEMBERS[kind]
    return {key: tuple(value) if key in ("tool_calls", "covers") else value for key, value in values.items() if key in names}


_MEMBERS: dict[type[Record], frozenset[str]] = {
    kind: frozenset(part.name for part in dataclasses.fields(kind)) for kind in (MessageRecord, SummaryRecord)
}


def _structural(message: Any) -> Any:
    """A dict as a message with attributes; anything else must have them."""
    if isinstance(message, Mapping):
        kind = str(message.get("type") or message.get("role") or "human")
        kwargs = message.get("additional_kwargs")
        return PlainMessage(
            kind,
            message.get("content", ""),
            message.get("id"),
            tool_calls=list(message.get("tool_calls") or ()),
            tool_call_id=message.get("tool_call_id"),
            name=message.get("name"),
            additional_kwargs=dict(kwargs) if isinstance(kwargs, Mapping) else {},
        )
    if not hasattr(message, "type") or not hasattr(message, "content"):
        raise InputError(f"a {type(message).__name__} is not a message.", hint="It needs `type`, `content` and `id`.")
    return message


def _predecessors(history: Sequence[Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    previous: str | None = None
    for message in history:
        given = _structural(message)
        if "reminder" in marks_of(given) or role_of(given) == "system":
            continue  # put in from outside, and moved about: they are no part of what was said in turn
        name = str(given.id or "")
        if name and previous and previous != name:
            found.setdefault(name, previous)
        previous = name or previous
    return found


def _text(value: Any) -> str | None:
    if value is None:
        return None
    made, _ = plain(str(value))
    return made if isinstance(made, str) else repr(value)


def _digest(value: Any) -> str:
    data = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"), default=str)
    return blake2b(data.encode(), digest_size=10).hexdigest()
