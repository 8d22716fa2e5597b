"""A conversation as its page shows it: who said what, calls with their results, sub-agents as cards, and what a model still sees.

Everything here is made from records of the archive and the messages of the window; nothing is read.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from holdfast.context.records import MessageRecord, SummaryRecord, restored
from holdfast.context.view import marks_of
from holdfast.server.runs import Progress, ToolUse
from holdfast.tokens.messages import Message

State = Literal["window", "reference", "left", "unknown"]
"""Whether a model still sees a message: whole, as a reference to the archive, or not at all; unknown where there is no window."""
_UPLOADS = re.compile(r"\A<uploaded_files>\n(?P<lines>.*?)\n</uploaded_files>\n*", re.DOTALL)
_UPLOAD = re.compile(r"- /mnt/user-data/uploads/(?P<name>[^\n]+?) \([\d,]+ bytes\)")
_AFTER_ITEM = re.compile(r"(?<=\S)\n(?=[^-\s])")
"""The break before a line of an answer that was looked up which is no item: Markdown would take the line as a part of the item before."""
_TASK = "task"
PAGE = 80
"""Messages on one page."""


@dataclass(frozen=True)
class TaskCard:
    """A sub-agent: what it was to do, how far it is or how it ended, and the thread that has its own conversation."""

    description: str
    kind: str = ""
    status: str = "running"
    thread: str = ""
    turns: int = 0
    max_turns: int = 0
    tokens: int = 0
    seconds: float | None = None
    output: str = ""


@dataclass(frozen=True)
class Call:
    """A call of a tool with what came of it. `status` is running, success, error, waits (for a person), or none: it has no result."""

    id: str
    name: str
    args: Any
    status: str = "none"
    text: str = ""
    state: State = "unknown"
    task: TaskCard | None = None


@dataclass(frozen=True)
class Entry:
    """One message. `number` is its place in the conversation; `files` are the names of uploads that came with it."""

    number: int
    id: str
    role: str
    text: str
    time: str = ""
    state: State = "unknown"
    files: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    name: str = ""
    half: bool = False
    """It was stopped while it was being said."""


@dataclass(frozen=True)
class Fold:
    """Messages that left the window, one after another; the summary that stands for them, if it stands here."""

    entries: tuple[Entry, ...]
    summary: SummaryRecord | None = None

    @property
    def messages(self) -> int:
        """How many there are, results of tools included."""
        return sum(1 + sum(call.status not in ("none", "waits") for call in entry.calls) for entry in self.entries)


@dataclass(frozen=True)
class ChatView:
    """A part of a conversation: entries and folds in their order, and what comes before and after it."""

    blocks: tuple[Entry | Fold, ...]
    total: int
    first: int = 0
    last: int = 0
    earlier: int | None = None
    """The number before which the part before this one ends."""
    later: bool = False
    windowed: bool = False
    asked: str = ""
    states: Mapping[str, int] = field(default_factory=dict)


def entries_of(records: Sequence[MessageRecord], window: Sequence[Message], waiting: Collection[str] = ()) -> list[Entry]:
    """All messages, each result of a tool within the call that it answers; `waiting` are the calls that wait for a person."""
    inside = {str(message.id): "archived" in marks_of(message) for message in window}
    results: defaultdict[str, deque[MessageRecord]] = defaultdict(deque)
    for record in records:
        if record.role == "tool" and record.tool_call_id is not None:
            results[record.tool_call_id].append(record)
    taken: set[str] = set()
    found: list[Entry] = []
    for number, record in enumerate(records, 1):
        if record.id in taken:
            continue
        state = _state(record.id, inside)
        found_calls = _calls(record, results, taken, inside) if record.role == "ai" else ()
        calls = tuple(replace(call, status="waits") if call.id in waiting and call.status == "none" else call for call in found_calls)
        found.append(_entry(number, record, state, calls))
    return found


def _state(id: str, inside: Mapping[str, bool]) -> State:
    return "unknown" if not inside else "left" if id not in inside else "reference" if inside[id] else "window"


def _entry(number: int, record: MessageRecord, state: State, calls: tuple[Call, ...]) -> Entry:
    text, files = record.said, tuple[str, ...]()
    notice = _UPLOADS.match(text) if record.role == "human" else None
    if notice is not None:
        text, files = text[notice.end() :], tuple(found["name"] for found in _UPLOAD.finditer(notice["lines"]))
    if record.marks.get("extracted"):
        text = _AFTER_ITEM.sub("\n\n", text)
    half = record.marks.get("ended") == "cancelled"
    return Entry(number, record.id, record.role, text, record.time, state, files, calls, record.name or "", half)


def _calls(
    record: MessageRecord, results: Mapping[str, deque[MessageRecord]], taken: set[str], inside: Mapping[str, bool]
) -> Iterable[Call]:
    for call, (name, args) in zip(record.tool_calls, record.calls, strict=True):
        id = str(call.get("id") or "")
        waiting = results.get(id)
        answer = waiting.popleft() if waiting else None
        if answer is None:
            yield Call(id, name, args, task=_card(args, None) if name == _TASK else None)
            continue
        taken.add(answer.id)
        status = "error" if answer.extras.get("status") == "error" else "success"
        yield Call(id, name, args, status, answer.said, _state(answer.id, inside), _card(args, answer) if name == _TASK else None)


def _card(args: Any, answer: MessageRecord | None) -> TaskCard:
    given = args if isinstance(args, Mapping) else {}
    description = str(given.get("description") or "A task")
    kind = str(given.get("subagent_type") or "")
    artifact = restored(answer.extras.get("artifact")) if answer is not None else None
    if not isinstance(artifact, Mapping):
        status = "waits" if answer is None else "failed" if answer.extras.get("status") == "error" else "completed"
        return TaskCard(description, kind, status, output=answer.said if answer is not None else "")
    return _ended_card(description, kind, artifact)


def _ended_card(description: str, kind: str, result: Mapping[str, Any]) -> TaskCard:
    seconds = result.get("seconds")
    return TaskCard(
        description,
        kind,
        str(result.get("status") or "completed"),
        str(result.get("thread") or ""),
        _whole(result.get("turns")),
        0,
        _whole(result.get("tokens")),
        float(seconds) if isinstance(seconds, int | float) else None,
        str(result.get("output") or result.get("reason") or ""),
    )


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def chat_view(
    entries: Sequence[Entry],
    summaries: Sequence[SummaryRecord],
    *,
    at: str | None = None,
    before: int | None = None,
    until: int | None = None,
) -> ChatView:
    """The part of a conversation to show: its end, or what is around a message (`at`, an id), or before a number.

    `until` leaves out what a running turn has said: its page shows that as it comes.
    """
    known = [entry for entry in entries if until is None or entry.number <= until]
    start, stop = max(0, len(known) - PAGE), len(known)
    place = next((index for index, entry in enumerate(known) if at is not None and at in (entry.id, f"#{entry.number}")), None)
    if place is not None:
        start = max(0, min(place - PAGE // 2, len(known) - PAGE))
        stop = min(len(known), start + PAGE)
    elif before is not None:
        stop = next((index for index, entry in enumerate(known) if entry.number >= before), len(known))
        start = max(0, stop - PAGE)
    part = known[start:stop]
    asked = known[place].id if place is not None else ""
    states: dict[str, int] = defaultdict(int)
    for entry in known:
        states[entry.state] += 1
    return ChatView(
        tuple(_folded(part, summaries, asked, more=stop < len(known))),
        len(known),
        part[0].number if part else 0,
        part[-1].number if part else 0,
        part[0].number if start else None,
        stop < len(known),
        any(entry.state in ("window", "reference") for entry in known),
        asked,
        dict(states),
    )


def _folded(part: Sequence[Entry], summaries: Sequence[SummaryRecord], asked: str, *, more: bool) -> Iterable[Entry | Fold]:
    """What left stands folded, with the newest summary in its place; where nothing else is shown it stands open."""
    if not any(entry.state in ("window", "reference") for entry in part):
        yield from part
        return
    last = max((index for index, entry in enumerate(part) if entry.state == "left"), default=-1)
    held: list[Entry] = []
    for index, entry in enumerate(part):
        if entry.state == "left" and entry.id != asked:
            held.append(entry)
        if held and (index == last or entry.state != "left" or entry.id == asked):
            newest = summaries[-1] if summaries and index == last and not more else None
            yield Fold(tuple(held), newest)
            held = []
        if entry.state != "left" or entry.id == asked:
            yield entry


def live_entries(progress: Progress) -> list[Entry]:
    """What a running turn has said and done so far."""
    found = [Entry(0, "", "human", progress.said)] if progress.said else []
    for step in progress.steps:
        if isinstance(step, str):
            found.append(Entry(0, "", "ai", step))
        else:
            call = Call(step.id, step.name, dict(step.args), step.status, step.text, task=_live_card(step) if step.name == _TASK else None)
            found.append(Entry(0, "", "ai", "", calls=(call,)))
    return found


def _live_card(use: ToolUse) -> TaskCard:
    event = use.task or {}
    description = str(event.get("description") or use.args.get("description") or "A task")
    kind = str(event.get("subagent_type") or use.args.get("subagent_type") or "")
    result = event.get("result")
    if isinstance(result, Mapping):
        return _ended_card(description, kind, result)
    status = "running" if event else "waits"
    text = str(event.get("text") or "")
    return TaskCard(
        description, kind, status, str(event.get("thread") or ""), _whole(event.get("turn")), _whole(event.get("max_turns")), output=text
    )
