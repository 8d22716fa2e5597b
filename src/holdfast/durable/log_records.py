"""One record of a log as a line of text, and the finding of records among damaged bytes. No files here.

A line is a JSON object whose first member is `crc`, the CRC-32 of every byte after that member up to the line break:

    {"crc":"1c291ca3","schema":1,"event":"started"}

Records that were appended as one say which of how many they are (`{"crc":"1c291ca3 2/3",...`), so that a reader sees when a crash kept
only some of them. The bytes `{"crc":"` begin a record and occur nowhere else (in a nested object the key is written with an escape), so a
reader that lost its way finds the next record by looking for them, and text inside a record cannot pass itself off as one.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.durable import strict_json
from holdfast.errors import InputError

START = b'{"crc":"'
BLANK = b" "
"""What fills the room behind the last record of a log that is growing."""
_decoded = json.JSONDecoder().raw_decode
_HEAD = re.compile(rb'\{"crc":"([0-9a-f]{8})((?: ([0-9]{1,9})/([0-9]{1,9}))?)"[,}]')


class Entry(NamedTuple):
    """A record that checks out: where its line begins, the byte after its line, and its members without `crc`.

    `number` of `together` says which it is of the records that were appended with it.
    """

    position: int
    end: int
    record: dict[str, Any]
    number: int = 1
    together: int = 1


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are not a record. `tail` is true when nothing but this follows: an append that was cut short, most likely."""

    position: int
    length: int
    reason: str
    tail: bool = False


def lines_of(records: Iterable[Mapping[str, Any]], *, as_one: bool = False) -> list[bytes]:
    """Records as lines. `as_one`: of which a reader shall see all or none."""
    held = list(records)
    numbered = as_one and len(held) > 1
    return [line_of(record, f" {number}/{len(held)}" if numbered else "") for number, record in enumerate(held, 1)]


def line_of(record: Mapping[str, Any], place: str = "") -> bytes:
    """The record as a line. InputError if JSON has no form for it, or if it has a member `crc` of its own."""
    if "crc" in record:
        raise InputError("a record may not have a member named `crc`: the log keeps its checksum there.", hint="Use another name.")
    body = strict_json.encode(record if type(record) is dict else dict(record), readable=False)[1:-1].replace(START, b'{"cr\\u0063":"')
    rest = b",%s" % body if body != b"}" else body
    which = place.encode("ascii")
    return b'%s%08x%s"%s\n' % (START, zlib.crc32(which + rest), which, rest)


def place_of(line: bytes) -> tuple[int, int]:
    """Which of how many records appended together a line is."""
    if line[16:17] != b" ":  # after the eight digits of the checksum
        return (1, 1)
    head = _HEAD.match(line)
    return (int(head[3]), int(head[4])) if head is not None and head[3] else (1, 1)


def parse(line: bytes) -> dict[str, Any] | None:
    """The members of a line without its line break, or None if it does not check out."""
    if line[16:17] == b'"' and line.startswith(START):  # the ordinary case: one record alone
        rest = line[17:]
        if b"%08x" % zlib.crc32(rest) != line[8:16] or rest[:1] not in (b",", b"}"):
            return None
    else:
        head = _HEAD.match(line)
        if head is None:
            return None
        rest = line[head.end() - 1 :]
        if b"%08x" % zlib.crc32(head[2] + rest) != head[1]:
            return None
    try:
        text = "{" + (rest[1:] if rest[:1] == b"," else rest).decode()
        record, end = _decoded(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and end == len(text) else None


def find_end(segment: bytes) -> tuple[dict[str, Any], int] | None:
    """The record at the head of `segment`, and how many bytes it has without its line break.

    A segment runs from one START to the next. Usually it is one line. If the line break was hit, the record ends one byte
    before the segment does; if it was never written, with the segment; if other bytes follow, at the first line break.
    Blanks at its end are room that was not used yet.
    """
    segment = segment.rstrip(BLANK)
    first = segment.find(b"\n")
    for end in (first, len(segment) - 1) if first >= 0 else (len(segment) - 1, len(segment)):
        record = parse(segment[:end])
        if record is not None:
            return record, end
    return None


def segments(chunks: Iterable[bytes], position: int = 0) -> Iterator[tuple[int, bytes]]:
    """Cuts a stream before each START; gives the position of every piece and its bytes. Holds one piece in memory at a time."""
    buffer = b""
    for chunk in chunks:
        searched = max(len(buffer) - len(START) + 1, 1)
        buffer += chunk
        begin = 0
        while (found := buffer.find(START, max(begin + 1, searched))) >= 0:
            yield position + begin, buffer[begin:found]
            begin, searched = found, 0
        position, buffer = position + begin, buffer[begin:]
    if buffer:
        yield position, buffer


def whole_appends(items: Iterable[Entry | Damage], start: int = 0) -> Iterator[Entry | Damage]:
    """The same without the last append if not all of its records are there: a crash cut it short, and it is damage as a whole.

    Earlier ones were whole when the next was written, so what can be read of them counts. At a `start` in the middle of an append its first
    records were read before.
    """
    held: list[Entry | Damage] = []  # what there is of an append that is not whole yet
    last: Entry | None = None
    for item in items:
        if isinstance(item, Entry):
            if item.together == 1 and not held:
                last = item
                yield item
                continue
            if last is None or not (item.together == last.together > 1 and item.number > last.number):
                yield from held
                held = []
            held.append(item)
            last = item
            if _is_whole(held, start):
                yield from held
                held = []
        elif held:
            held.append(item)
        else:
            yield item
    if any(isinstance(item, Entry) for item in held):
        begin, final = held[0].position, held[-1]
        end = final.end if isinstance(final, Entry) else final.position + final.length
        yield Damage(begin, end - begin, "an append of which not all records are there", tail=True)
    else:
        yield from held


def _is_whole(items: Sequence[Entry | Damage], start: int) -> bool:
    """Whether these are all records of one append, or all from `start` on, without anything in between."""
    first, last = items[0], items[-1]
    if not (isinstance(first, Entry) and isinstance(last, Entry) and all(isinstance(item, Entry) for item in items)):
        return False
    before = first.number - 1 if first.position == start > 0 else 0
    return last.number == last.together == before + len(items)


def last_append(data: bytes) -> tuple[int, bool] | None:
    """The end of the last whole append in a piece of a log, and whether its line break is missing: looked for from the back."""
    stop, at = len(data), data.rfind(START)
    ending: tuple[int, bool] | None = None  # of the last append, while its earlier records are still to be seen
    group: tuple[int, int, int] | None = None  # of the record after this one: number, how many together, where its line begins
    while at >= 0:
        found = find_end(data[at:stop])
        if found is not None:
            number, together = place_of(data[at:stop])
            line_end = at + found[1]
            broken = data[line_end : line_end + 1] != b"\n"
            here = (line_end, True) if broken else (line_end + 1, False)
            if group is None:
                ending = here if number == together else None
            elif not (together == group[1] and number < group[0]):
                return here  # of an earlier append: the last one is not whole
            elif number != group[0] - 1 or here != (group[2], False):
                ending = None
            if ending is not None and number == 1:
                return ending
            group = (number, together, at)
        stop, at = at, data.rfind(START, 0, at)
    return None


def joined(bad: Damage | None, position: int, piece: bytes) -> Damage:
    """Neighbouring bad pieces are one damage: what tore them apart may itself be damage."""
    if bad is not None:
        return Damage(bad.position, bad.length + len(piece), bad.reason)
    if not piece.strip(b"\0"):
        reason = "NUL bytes: space that was given to the file, but never written"
    elif piece.startswith(START):
        reason = "the checksum does not match, or the record is not whole"
    else:
        reason = "not the beginning of a record"
    return Damage(position, len(piece), reason)
