"""What the agent's tools `search_history` and `read_history` answer: text that a model can use, and never an exception (S9)."""

from __future__ import annotations

import json

from holdfast.context.archive import Archive, Hit
from holdfast.context.records import MessageRecord

_MOST_HITS = 20
_MOST_AROUND = 20
_SHOWN = 400  # characters of a hit
_WHOLE = 24_000  # characters of one answer of read_history: a tool result that fills the window helps nobody
_WHO = {"human": "user", "ai": "assistant", "tool": "tool", "system": "system"}


def search_history(archive: Archive, thread: str, query: str, top_k: int = 5) -> str:
    """The messages of this conversation that fit the query best, shortened, with the ids by which `read_history` gives them whole."""
    if not query.strip():
        return "The query is empty. Give some words of what you look for: names, numbers and rare words find best."
    hits = archive.search(thread, query, min(max(top_k, 1), _MOST_HITS))
    if not hits:
        held = archive.stats(thread).messages
        if not held:
            return "Nothing of this conversation is in the archive yet: all of it is in front of you."
        return f"None of the {held} archived messages fits. Try other words: names, numbers, file names, or what else was discussed then."
    lines = [_hit_lines(number, hit) for number, hit in enumerate(hits, 1)]
    return "\n\n".join([*lines, "Read one whole, with what was said around it: read_history(id, around=2)."])


def read_history(archive: Archive, thread: str, id: str, around: int = 0, start: int = 0) -> str:
    """A message of this conversation word for word, with up to `around` messages before and after it.

    What is too long for one answer says how to read on: `start` is the character to begin with.
    """
    wanted = id.strip().strip("\"'[]")
    passage = archive.read(thread, wanted, min(max(around, 0), _MOST_AROUND)) if wanted else None
    if passage is None:
        return f"There is no message {wanted!r} in the archive of this conversation. search_history finds messages and says their ids."
    parts = []
    for record in passage.all:
        if record.id == passage.record.id and record.mark == passage.record.mark:
            parts.append(_whole(record, max(start, 0)))
        else:
            parts.append(f"{_head(record)}\n{_shortened(record, _WHOLE // (4 * _MOST_AROUND))}")
    if passage.older:
        parts.append(f"(The message was edited. Earlier versions: {', '.join(f'#{older.seq}' for older in passage.older)}.)")
    return "\n\n".join(parts)


def _hit_lines(number: int, hit: Hit) -> str:
    why = f"\n   (matches: {', '.join(hit.why[:8])})" if hit.why else ""
    shown = _one_line(hit.record.text)
    text = shown if len(shown) <= _SHOWN else hit.snippet
    return f"{number}. {_head(hit.record)}\n   {text}{_calls(hit.record, _SHOWN)}{why}"


def _head(record: MessageRecord) -> str:
    name = f" {record.name}" if record.name else ""
    return f"[{record.id}] {record.time[:16].replace('T', ' ')} {_WHO[record.role]}{name}:"


def _whole(record: MessageRecord, start: int) -> str:
    text = record.text + _calls(record, None)
    part = text[start : start + _WHOLE]
    rest = len(text) - start - len(part)
    more = f'\n[{rest} more characters. Read on with read_history("{record.id}", start={start + len(part)}).]' if rest > 0 else ""
    begin = f"\n[from character {start}]" if start else ""
    note = "" if record.exact else "\n[Parts of this message were no text and are shown as a description.]"
    return f"{_head(record)}{begin}\n{part}{more}{note}"


def _calls(record: MessageRecord, limit: int | None) -> str:
    written = []
    for name, given in record.calls:
        arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)
        written.append(f"\n   [calls {name} with {arguments if limit is None else _cut(arguments, limit)}]")
    return "".join(written)


def _shortened(record: MessageRecord, length: int) -> str:
    return _cut(record.text.strip(), length) + _calls(record, length)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length].rstrip()} … [{len(text) - length} more characters]"
