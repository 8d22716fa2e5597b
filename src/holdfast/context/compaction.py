"""Carrying out a plan: archive first, then summarize, then replace (S7-S12).

A generator that says what it wants done and is sent the result: `Store` and `Record` (durable before it goes on), `Recall` (originals of
messages that are references by now), `Ask` (a summarizer call). The shells around it are sync or async; errors are thrown into it. It
changes nothing in place: the outcome holds the new history.

A summary of any length is made by a model with a small window: in chunks, each folding the notes so far in (S7, S10, S13). Every message is
read: one that is longer than a chunk is read in several. An answer that cannot be a summary raises SummaryError, and the caller decides
what happens then.

Oversize text moves to a file in the thread's outputs, `{base}/threads/{thread}/user-data/outputs/moved/`, which an agent sees as
`/mnt/user-data/outputs/moved/`; a reference stands in its place (S10, S12, A11).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from hashlib import blake2b
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Protocol

from holdfast.context.planner import Plan
from holdfast.context.records import SummaryRecord
from holdfast.context.view import MessageFactory, calls_of, marks_of, role_of, said_in, said_of, text_of
from holdfast.durable.disk import REAL, make_folders
from holdfast.durable.folder import Folder
from holdfast.errors import SummaryError
from holdfast.extract.selection import SourceText, select
from holdfast.text.normalise import framed
from holdfast.tokens.budget import take_fitting
from holdfast.tokens.messages import Message
from holdfast.validation import thread_folder

_SAFE = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)
_FOLDER = "moved"
_SHOWN = f"/mnt/user-data/outputs/{_FOLDER}"


class Outputs(Protocol):
    """Keeps texts that are too long for the window where an agent can read them."""

    def keep(self, thread: str, id: str, text: str) -> str:
        """Write durably, then return the path by which the agent finds it. The same id again gives the same path."""


class FileOutputs:
    """Outputs below the base directory. No thread and no id leads out of the thread's folder."""

    def __init__(self, base: str | PathLike[str]) -> None:
        self._base = Path(base)

    def folder(self, thread: str) -> Path:
        """The folder on this machine."""
        return self._base / "threads" / thread_folder(thread) / "user-data" / "outputs"

    def keep(self, thread: str, id: str, text: str) -> str:
        name = f"{id if _SAFE.fullmatch(id) else blake2b(id.encode('utf-8', 'surrogatepass'), digest_size=12).hexdigest()}.txt"
        folder = self.folder(thread)
        make_folders(REAL, str(folder.absolute()))
        with Folder(folder) as outputs:
            outputs.write(f"{_FOLDER}/{name}", text.encode("utf-8", "replace"))
        return f"{_SHOWN}/{name}"


Count = Callable[[str], int]
"""Says the tokens of a text."""


def cleared(id: str, tokens: int, *, tools: bool = True) -> str:
    """The reference that a cleared tool result leaves behind. Without `tools` the model has none to read it with."""
    return f"[This result of {tokens} tokens was cleared to save room.{_where(id, None, tools=tools)}]"


def left(count: int, *, tools: bool = True) -> str:
    """The reference that stands for the oldest messages when no summary is made of them."""
    where = " Use search_history to find them and read_history to read them." if tools else ""
    return f"[The {count} oldest messages of this conversation are in its archive.{where}]"


def clipped(text: str, allowed: int, *, id: str, count: Count, place: str | None = None, tools: bool = True) -> str:
    """Head, tail and reference within `allowed` tokens; only the reference when there is no room for more. Text that fits stays
    as it is."""
    total = count(text)
    if total <= allowed:
        return text
    middle = _moved_out(id, total, place, tools=tools)

    def ends(size: int) -> str:
        head = size * 2 // 3
        return text[:head] + middle + text[len(text) - size + head :]

    most = bisect_right(range(len(text) + 1), allowed, key=lambda size: count(ends(size))) - 1  # counts grow with length
    return ends(most) if most >= 40 else middle.strip()


def _moved_out(id: str, tokens: int, place: str | None, *, tools: bool) -> str:
    return f"\n[... about {tokens} tokens in all; the middle was moved out.{_where(id, place, tools=tools)} ...]\n"


def _where(id: str, place: str | None, *, tools: bool) -> str:
    file = f" It is in the file {place}." if place else ""
    return f' Read it with read_history("{id}").{file}' if tools else file


SLOT = "{messages}"
_REFUSAL = re.compile(
    r"(?:i(?:['’]m| am) (?:sorry|unable|not able)|i (?:can(?:no|')t|cannot|won['’]t)|sorry, (?:but )?i|as an ai)\b.{0,200}\Z",
    re.IGNORECASE | re.DOTALL,
)
_LEAST_CHUNK = 128


@dataclass(frozen=True)
class Ask:
    """A prompt for the summarizer; send its answer back, or throw what went wrong.

    `entries` and `notes` are what the prompt holds, for a summarizer that takes messages instead.
    """

    prompt: str
    entries: tuple[Entry, ...] = ()
    notes: str = ""


@dataclass(frozen=True)
class Entry:
    """A message as the summarizer reads it."""

    id: str
    head: str
    text: str
    said: str = ""
    """The part of the text that was said to somebody: no reasoning, no names of blocks. An extract is made of this."""
    message: Message | None = None
    """The message itself, where the entry is all of it."""


@dataclass
class Notes:
    """What came of it: the text, the ids that were read, and how many calls it took."""

    text: str
    read: set[str] = field(default_factory=set)
    calls: int = 0


@cache
def default_prompt() -> str:
    """The prompt of the project."""
    return resources.files("holdfast.context").joinpath("prompts/summary.txt").read_text("utf-8")


def summarize(
    entries: Sequence[Entry], *, previous: str, limit: int, count: Count, prompt: str | None = None
) -> Generator[Ask, str, Notes]:
    """Fold all entries, and the notes from before, into one text. No single prompt is over `limit` tokens."""
    template = prompt or default_prompt()
    notes = Notes(previous)
    waiting = list(reversed(entries))
    while waiting:
        room = limit - count(_fill(template, notes.text, ""))
        if room < _LEAST_CHUNK:
            raise SummaryError(f"A summarizer call of {limit} tokens has no room for messages beside the prompt and the notes so far.")
        chunk = take_fitting(waiting, room, lambda entry: count(_shown(entry)), partial(_cut, count))
        ask = Ask(_fill(template, notes.text, "\n".join(_shown(entry) for entry in chunk)), tuple(chunk), notes.text)
        try:
            answer = yield ask
        except SummaryError as error:
            if not error.words:
                raise
            answer = yield replace(ask, prompt=f"{ask.prompt}\n\nUse at most {max(30, error.words * 2 // 3)} words.")
        given = count(notes.text) + sum(count(_shown(entry)) for entry in chunk)
        notes.text = check_answer(answer, given=given, count=count)
        notes.calls += 1
        notes.read.update(entry.id for entry in chunk)
    return notes


def check_answer(answer: str, *, given: int, count: Count) -> str:
    """The answer without white space around it, or a SummaryError that says why it is none."""
    text = answer.strip()
    if not text:
        raise SummaryError("The summarizer answered nothing.")
    if _REFUSAL.match(text):
        raise SummaryError("The summarizer refused.")
    tokens = count(text)
    if tokens > given:
        raise SummaryError(f"The summarizer answered {tokens} tokens to {given}: that is no summary.")
    return text


def _cut(count: Count, entry: Entry, room: int) -> tuple[Entry, Entry]:
    sizes = range(2, len(entry.text) + 1)
    most = 1 + bisect_left(sizes, room, key=lambda size: count(_shown(Entry(entry.id, entry.head, entry.text[:size]))))
    head = entry.head if entry.head.endswith("(continued)") else f"{entry.head} (continued)"
    return Entry(entry.id, entry.head, entry.text[:most]), Entry(entry.id, head, entry.text[most:])


def _fill(template: str, notes: str, messages: str) -> str:
    """Put the material into the one slot. Other braces are literal, and the material cannot close its own frame."""
    earlier = f"{framed('earlier_notes', notes)}\n" if notes else ""
    block = f"{earlier}<conversation>\n{messages}\n</conversation>"
    before, slot, after = template.partition(SLOT)
    return f"{before}{block}{after}" if slot else f"{template}\n\n{block}"


def _shown(entry: Entry) -> str:
    return framed("message", entry.text, from_=entry.head)


_MESSAGE = 8
"""What a message costs besides its text and its calls, at most."""
_LEAST_EXTRACT = 16
"""Room that an extract has in any case: a sentence."""

LEAD = "Here is a summary of the conversation to date:"
_EXTRACT_NOTE = "(Made without a model: sentences of the conversation, word for word.)"

How = Literal["model", "extract", "reference"]
_Written = tuple[str, How, str | None, frozenset[str], int]
"""The text, how it was made, why no model made it, the ids that the model read, and its calls."""


@dataclass(frozen=True)
class Store:
    """Put these messages into the archive, durably, then go on."""

    messages: tuple[Message, ...]
    history: Sequence[Message] = ()
    """The conversation they are part of."""


@dataclass(frozen=True)
class Record:
    """Put this summary into the archive, durably, then go on."""

    summary: SummaryRecord


@dataclass(frozen=True)
class Move:
    """Put the whole text of these messages where the agent's tools can read it; send the places back, by id, or an empty mapping."""

    messages: tuple[Message, ...]


@dataclass(frozen=True)
class Recall:
    """Send the original text of these ids, as a mapping; an id that the archive does not have is left out."""

    ids: tuple[str, ...]


@dataclass(frozen=True)
class Leave:
    """Tell `hook` that these messages are about to leave; it may write to disk (S18)."""

    hook: Callable[[str, tuple[Message, ...]], None]
    thread: str
    messages: tuple[Message, ...]

    def tell(self) -> None:
        self.hook(self.thread, self.messages)


Want = Store | Record | Move | Recall | Ask | Leave


@dataclass(frozen=True)
class Settings:
    """How a compaction is carried out."""

    count: Count
    factory: MessageFactory
    new_id: Callable[[str], str]
    """Makes an id with a prefix."""
    enabled: bool = True
    """False: no summarizer is called and no summary made; a reference stands for what left."""
    ask: bool = True
    """False: there is no model that could be asked; the summary is an extract."""
    model: str | None = None
    """The name of the model that is asked, for the record."""
    limit: Callable[[], int] = lambda: 4_000
    """The most tokens of one summarizer call, as it is known now."""
    prompt: str | None = None
    role: Literal["human", "system"] = "human"
    tools: bool = True
    """False: the agent has no `read_history`, and no reference speaks of it."""


@dataclass(frozen=True)
class Outcome:
    """A history after a compaction, and what was done to it."""

    messages: tuple[Message, ...]
    plan: Plan
    covers: tuple[str, ...] = ()
    summary: Message | None = None
    text: str = ""
    how: How = "model"
    why_not_model: str | None = None
    read: frozenset[str] = frozenset()
    calls: int = 0


def summary_floor(settings: Settings) -> int:
    """The tokens of the smallest summary message that a compaction makes."""
    if not settings.enabled:
        return settings.count(left(99_999, tools=settings.tools)) + _MESSAGE
    return settings.count(LEAD) + settings.count(_EXTRACT_NOTE) + _MESSAGE + _LEAST_EXTRACT


def reference_floor(message: Message, tokens: int, settings: Settings) -> int:
    """The tokens of this message, which has so many now, when only a reference is left of its text. Its calls stay."""
    id, tools = str(message.id), settings.tools
    place = None if "archived" in marks_of(message) else f"{_SHOWN}/{id}.txt"  # as long as a place usually is
    moved = settings.count(_moved_out(id, tokens, place, tools=tools).strip())
    return max(moved, settings.count(cleared(id, tokens, tools=tools))) + _around(message, settings)


def compact(plan: Plan, messages: Sequence[Message], settings: Settings) -> Generator[Want, Any, Outcome]:
    """Carry the plan out. Raises SummaryError, with nothing changed, when the summarizer fails and the window does not force an
    extract."""
    touched = sorted({*plan.leave, *plan.previous, *plan.clear, *(index for index, _ in plan.clip)})
    yield Store(tuple(messages[index] for index in touched if "archived" not in marks_of(messages[index])), messages)
    leaving = [messages[index] for index in plan.leave]
    covers = tuple(str(message.id) for message in leaving)
    oversize = tuple(messages[index] for index, _ in plan.clip if "archived" not in marks_of(messages[index]))
    places: Mapping[str, str] = (yield Move(oversize)) if oversize else {}
    shown = _replaced(plan, messages, settings, places)
    if not (plan.leave or plan.previous):
        return Outcome(tuple(shown), plan)
    previous = "\n\n".join(text_of(messages[index]).removeprefix(LEAD).strip() for index in plan.previous)
    if not settings.enabled:
        written: _Written = left(len(leaving), tools=settings.tools), "reference", None, frozenset(), 0
    else:
        entries = yield from _entries(leaving, settings.factory)
        written = yield from _written(plan, entries, previous, settings)
    text, how, why, read, calls = written
    body = text if how == "reference" else f"{LEAD}\n\n{text}"
    marks = {"summary": how, "covers": len(covers), "until": str(shown[-1].id) if shown else None}
    summary = settings.factory.summary(body, id=settings.new_id("summary"), role=settings.role, marks=marks)
    yield Record(
        SummaryRecord(
            id=str(summary.id),
            text=text,
            covers=covers,
            tokens_before=plan.before,
            tokens_after=plan.after,
            model=settings.model if how == "model" else None,
            how=how,
            previous=str(messages[plan.previous[-1]].id) if plan.previous else None,
        )
    )
    lead = next((number for number, message in enumerate(shown) if role_of(message) != "system"), len(shown))
    history = (*shown[:lead], summary, *shown[lead:])  # system messages that lead stay first: some providers accept them nowhere else
    return Outcome(history, plan, covers, summary, text, how, why, read, calls)


def _written(plan: Plan, entries: Sequence[Entry], previous: str, settings: Settings) -> Generator[Want, Any, _Written]:
    why: str | None = None
    if settings.ask:
        try:
            notes = yield from summarize(entries, previous=previous, limit=settings.limit(), count=settings.count, prompt=settings.prompt)
            text = notes.text
            room = plan.summary_room - settings.count(LEAD) - _MESSAGE
            if plan.pressure == "cap" and settings.count(text) > room:
                text = _extract([Entry("notes", "", text, text)], "", room, settings)
            return text, "model", None, frozenset(notes.read), notes.calls
        except SummaryError as error:
            if plan.pressure != "cap":
                raise
            why = error.message
    room = plan.summary_room - settings.count(LEAD) - settings.count(_EXTRACT_NOTE) - _MESSAGE
    text = _extract(entries, previous, room, settings)
    return f"{_EXTRACT_NOTE}\n{text}", "extract", why, frozenset(), 0


def _extract(entries: Sequence[Entry], previous: str, room: int, settings: Settings) -> str:
    """True sentences within the room: the notes from before first, then the new part."""
    sources = [SourceText(entry.id, entry.said) for entry in entries if entry.said.strip()]
    if previous:
        sources.insert(0, SourceText("notes", previous.replace(_EXTRACT_NOTE, "").strip()))
    chosen = select(sources, budget=max(_LEAST_EXTRACT, room), count=settings.count)
    return "\n".join(passage.text.strip() for passage in chosen.passages)


def _entries(messages: Sequence[Message], factory: MessageFactory) -> Generator[Want, Any, list[Entry]]:
    """The messages as the summarizer reads them; references are read as what they stand for."""
    moved = tuple(str(message.id) for message in messages if "archived" in marks_of(message))
    originals: Mapping[str, str] = (yield Recall(moved)) if moved else {}
    return [_entry(message, originals.get(str(message.id)), factory) for message in messages]


def _entry(message: Message, original: str | None, factory: MessageFactory) -> Entry:
    said = original if original is not None else said_of(message)
    whole = message if original is None else factory.with_text(message, original, marks={})
    lines = [original if original is not None else said_in(message)]
    lines += [f"[calls {call.get('name')} with {call.get('args')}]" for call in getattr(message, "tool_calls", None) or ()]
    name = getattr(message, "name", None)
    role = {"human": "user", "ai": "assistant"}.get(role_of(message), role_of(message))
    return Entry(str(message.id), f"{role} {name}" if name else role, "\n".join(line for line in lines if line), said, whole)


def _replaced(plan: Plan, messages: Sequence[Message], settings: Settings, places: Mapping[str, str]) -> list[Message]:
    """What is kept, with references where the plan wants them. A message that is tied to calls keeps them; only its text moves."""
    clear, clip = set(plan.clear), dict(plan.clip)
    shown: list[Message] = []
    for index in plan.keep:
        message = messages[index]
        id = str(message.id)
        if index in clear:
            text = cleared(id, settings.count(text_of(message)), tools=settings.tools)
        elif index in clip:
            room = max(0, clip[index] - _around(message, settings))
            text = clipped(text_of(message), room, id=id, count=settings.count, place=places.get(id), tools=settings.tools)
        else:
            shown.append(message)
            continue
        shown.append(settings.factory.with_text(message, text, marks={"archived": "cleared" if index in clear else "clipped"}))
    return shown


def _around(message: Message, settings: Settings) -> int:
    """What a message costs besides its text: its tool calls and the tokens around it."""
    calls = sum(settings.count(f"{name}{call}") for call, name in calls_of(message))
    arguments = sum(settings.count(str(call.get("args"))) for call in getattr(message, "tool_calls", None) or ())
    return calls + arguments + _MESSAGE
