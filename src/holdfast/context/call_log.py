"""What was sent: every part of a request by origin and tokens; and every model call of a thread, one line each, with its usage (O4).

    threads/NAME/calls.ndjson

No text is in it. A part names the message that it is, and who wants to read it finds the words in the archive or in the window; the parts
of the system message are named by a digest of it and the place in it. So what is forgotten elsewhere is not kept here. It goes with its
thread, and of a long thread the oldest calls go first. The system part is told apart by what stands in it: what the agent is told, skills,
memory of the user, blocks, the date.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.context.compaction import Outcome
from holdfast.context.view import marks_of, reminders_on, role_of, said_in, text_of
from holdfast.context.window import WindowLimits
from holdfast.durable.disk import REAL, Disk
from holdfast.durable.line_log import LineLog
from holdfast.errors import NotThere, StorageError
from holdfast.events import current_scope
from holdfast.tokens.accounts import Usage
from holdfast.tokens.counter import TokenCounter
from holdfast.tokens.messages import Message
from holdfast.validation import thread_folder

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
        """All parts, in the model's own tokens as far as we know them."""
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


NAME = "calls.ndjson"
_SCHEMA = 1
_MOST_BYTES = 16_000_000
_THREADS = 256


@dataclass(frozen=True, kw_only=True)
class Call(Manifest):
    """One request as it was noted. `usage` is what the provider reported, empty where it said nothing; `answer` the id of the answer."""

    number: int
    at: str
    model: str
    run: str | None = None
    usage: Mapping[str, int] = field(default_factory=dict)
    system: str = ""
    answer: str | None = None

    @classmethod
    def read(cls, line: Mapping[str, Any]) -> Call:
        """From a line of the log."""
        parts = tuple(Part(origin, role, tokens, id, "", offset) for origin, role, tokens, id, offset in line["parts"])
        values: dict[str, Any] = {name: line[name] for name in ("number", "at", "model", "window", "cap")}
        values |= {name: line.get(name) for name in ("run", "answer", "how")}
        values |= {name: tuple(line.get(name) or ()) for name in ("left", "cleared")}
        return cls(parts=parts, usage=line.get("usage") or {}, system=line.get("system", ""), **values)


class CallLog:
    """The calls of all threads below a base directory. Safe for many threads; a thread has one turn at a time, by the turn's own lock."""

    def __init__(self, base: str | PathLike[str], *, disk: Disk = REAL, clock: Clock | None = None) -> None:
        self._base, self._disk, self._clock = Path(base), disk, clock or SystemClock()
        self._lock = threading.Lock()
        self._ends: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """By thread: how large its log was after the newest call, and the number of that one."""

    def note(
        self, thread: str, sent: Manifest, *, model: str, usage: Usage | None = None, system: str = "", answer: str | None = None
    ) -> None:
        """Add a call. What cannot be written is said in the log and otherwise let be: the conversation matters more."""
        line: dict[str, Any] = {
            "schema": _SCHEMA,
            "at": stamp(self._clock.now()),
            "run": current_scope().run,
            "model": model,
            "window": sent.window,
            "cap": sent.cap,
            "usage": {name: value for name, value in asdict(usage).items() if value} if usage is not None else {},
            "system": digest(system) if system else "",
            "answer": answer,
            "left": sent.left,
            "cleared": sent.cleared,
            "how": sent.how,
            "parts": [(part.origin, part.role, part.tokens, part.id, part.offset) for part in sent.parts],
        }
        log = self._log(thread)
        try:
            with self._lock:
                line["number"] = self._newest(thread, log) + 1
                self._ends[thread] = (log.append(line), line["number"])
                while len(self._ends) > _THREADS:
                    self._ends.popitem(last=False)
        except StorageError as error:
            logging.getLogger("holdfast.context").warning("a model call could not be noted: %s", error.public)

    def calls(self, thread: str) -> list[Call]:
        """All calls that are kept, the oldest first."""
        return [Call.read(line) for line in self._log(thread).read()[0] if line.get("schema") == _SCHEMA]

    def times(self, thread: str) -> dict[str, str]:
        """When the messages of a thread were said, by their ids: when a model was first sent each, or gave it."""
        found: dict[str, str] = {}
        for call in self.calls(thread):
            for id in (*(part.id for part in call.parts if part.id), *([call.answer] if call.answer else ())):
                found.setdefault(id, call.at)
        return found

    def call(self, thread: str, number: int) -> Call:
        """One of them. NotThere for a number that is not kept."""
        found = next((call for call in self.calls(thread) if call.number == number), None)
        if found is None:
            raise NotThere(f"there is no call {number} in this thread.")
        return found

    def _newest(self, thread: str, log: LineLog) -> int:
        known = self._ends.pop(thread, None)
        if known is not None and known[0] == log.size:
            return known[1]
        last = log.last()
        return int(last["number"]) if last is not None else 0

    def _log(self, thread: str) -> LineLog:
        return LineLog(self._base / "threads" / thread_folder(thread) / NAME, disk=self._disk, most_bytes=_MOST_BYTES)


def digest(text: str) -> str:
    """Tells one text of a system message from another."""
    return blake2b(text.encode("utf-8", "replace"), digest_size=12).hexdigest()
