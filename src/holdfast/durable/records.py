"""One record of a log as a line of text, and the finding of records among damaged bytes. No files here.

A line is a JSON object whose first member is `crc`, the CRC-32 of every byte after that member up to the line break:

    {"crc":"1c291ca3","schema":1,"event":"started"}

The bytes `{"crc":"` begin a record and occur nowhere else (in a nested object the key is written with an escape), so a reader
that lost its way finds the next record by looking for them, and text inside a record cannot pass itself off as one.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.durable import strict_json
from holdfast.errors import InputError

START = b'{"crc":"'
_HEAD = re.compile(rb'\{"crc":"([0-9a-f]{8})"([,}])')
_HEAD_SIZE = len(START) + 10  # eight digits, a quote, and the comma or brace after it


@dataclass(frozen=True, slots=True)
class Entry:
    """A record that checks out: where its line begins, the byte after its line, and its members without `crc`."""

    position: int
    end: int
    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are not a record. `tail` is true when nothing but this follows: an append that was cut short, most likely."""

    position: int
    length: int
    reason: str
    tail: bool = False


def line_of(record: Mapping[str, Any]) -> bytes:
    """The record as a line. InputError if JSON has no form for it, or if it has a member `crc` of its own."""
    if "crc" in record:
        raise InputError("a record may not have a member named `crc`: the log keeps its checksum there.", hint="Use another name.")
    body = strict_json.encode(dict(record), readable=False)[1:-1].replace(START, b'{"cr\\u0063":"')
    rest = (b"," if body != b"}" else b"") + body
    return b'%s%08x"%s\n' % (START, zlib.crc32(rest), rest)


def parse(line: bytes) -> dict[str, Any] | None:
    """The members of a line without its line break, or None if it does not check out."""
    head = _HEAD.match(line)
    if head is None:
        return None
    rest = line[_HEAD_SIZE - 1 :]
    if b"%08x" % zlib.crc32(rest) != head.group(1):
        return None
    try:
        record = json.loads("{" + rest.removeprefix(b",").decode())
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def find_end(segment: bytes) -> tuple[dict[str, Any], int] | None:
    """The record at the head of `segment`, and how many bytes it has without its line break.

    A segment runs from one START to the next. Usually it is one line. If the line break was hit, the record ends one byte
    before the segment does; if it was never written, with the segment; if other bytes follow, at the first line break.
    """
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
