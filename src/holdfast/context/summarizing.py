"""A summary of any length of history by a model with a small window: in chunks, each folding the notes so far in (S7, S10, S13).

The work is a generator that yields each prompt and is sent the answer, so one source serves sync and async callers. Every message
is read: one that is longer than a
chunk is read in several. An answer that cannot be a summary raises SummaryError, and the caller decides what happens then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from holdfast.errors import SummaryError

SLOT = "{messages}"
_TAGS = re.compile(r"<(?=/?(?:earlier_notes|conversation|message)\b)")
_REFUSAL = re.compile(
    r"(?:i(?:['’]m| am) (?:sorry|unable|not able)|i (?:can(?:no|')t|cannot|won['’]t)|sorry, (?:but )?i|as an ai)\b.{0,200}\Z",
    re.IGNORECASE | re.DOTALL,
)
_LEAST_CHUNK = 128


@dataclass(frozen=True)
class Ask:
    """A prompt for the summarizer; send its answer back, or throw what went wrong."""

    prompt: str


@dataclass(frozen=True)
class Entry:
    """A message as the summarizer reads it."""

    id: str
    head: str
    text: str


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
    entries: Sequence[Entry], *, previous: str, limit: int, count: Callable[[str], int], prompt: str | None = None
) -> Generator[Ask, str, Notes]:
    """Fold all entries, and the notes from before, into one text. No single prompt is over `limit` tokens."""
    template = prompt or default_prompt()
    notes = Notes(previous)
    waiting = list(reversed(entries))
    while waiting:
        room = limit - count(_fill(template, notes.text, ""))
        if room < _LEAST_CHUNK:
            raise SummaryError(f"A summarizer call of {limit} tokens has no room for messages beside the prompt and the notes so far.")
        chunk = _take(waiting, room, count)
        answer = yield Ask(_fill(template, notes.text, "\n".join(_shown(entry) for entry in chunk)))
        given = count(notes.text) + sum(count(_shown(entry)) for entry in chunk)
        notes.text = check_answer(answer, given=given, count=count)
        notes.calls += 1
        notes.read.update(entry.id for entry in chunk)
    return notes


def check_answer(answer: str, *, given: int, count: Callable[[str], int]) -> str:
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


def _take(waiting: list[Entry], room: int, count: Callable[[str], int]) -> list[Entry]:
    """The next entries that fit, taken off the end of the list; one that alone is too long is cut and the rest put back."""
    chunk: list[Entry] = []
    while waiting:
        entry = waiting[-1]
        cost = count(_shown(entry)) + 1
        if cost <= room:
            chunk.append(waiting.pop())
            room -= cost
            continue
        if not chunk:
            first, rest = _cut(waiting.pop(), room, count)
            chunk.append(first)
            waiting.append(rest)
        break
    return chunk


def _cut(entry: Entry, room: int, count: Callable[[str], int]) -> tuple[Entry, Entry]:
    low, high = 1, len(entry.text)
    while low < high:
        size = (low + high + 1) // 2
        if count(_shown(Entry(entry.id, entry.head, entry.text[:size]))) < room:
            low = size
        else:
            high = size - 1
    head = entry.head if entry.head.endswith("(continued)") else f"{entry.head} (continued)"
    return Entry(entry.id, entry.head, entry.text[:low]), Entry(entry.id, head, entry.text[low:])


def _fill(template: str, notes: str, messages: str) -> str:
    """Put the material into the one slot. Other braces are literal, and the material cannot close its own frame."""
    parts: Iterable[str] = (
        *((f"<earlier_notes>\n{_tame(notes)}\n</earlier_notes>\n",) if notes else ()),
        f"<conversation>\n{messages}\n</conversation>",
    )
    block = "".join(parts)
    before, slot, after = template.partition(SLOT)
    return f"{before}{block}{after}" if slot else f"{template}\n\n{block}"


def _shown(entry: Entry) -> str:
    return f"<message from={entry.head!r}>\n{_tame(entry.text)}\n</message>"


def _tame(text: str) -> str:
    return _TAGS.sub("&lt;", text)
