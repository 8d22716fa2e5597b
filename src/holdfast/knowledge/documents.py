"""Markdown and plain text cut into sections that can be found one by one. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.+?)[ \t]*#*[ \t]*")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_LONG = 4000  # characters from which on a text without headings is cut at its blank lines


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with what stands under it. `path` are the headings above it and itself; `line` is where it begins, from 1."""

    path: tuple[str, ...]
    text: str
    line: int


def sections(text: str) -> list[Section]:
    """The sections of a Markdown text, in order, each without those below it. What is in front of the first heading has an empty path.

    >>> [(one.path, one.text) for one in sections("# A\\nfirst\\n## B\\nsecond")]
    [(('A',), 'first'), (('A', 'B'), 'second')]
    """
    found: list[Section] = []
    for path, line, lines in _cut(text):
        body = "\n".join(lines).strip()
        if body:
            found.append(Section(path, body, line))
    return found


def _cut(text: str) -> Iterator[tuple[tuple[str, ...], int, list[str]]]:
    above: dict[int, str] = {}
    path: tuple[str, ...] = ()
    lines: list[str] = []
    start, fence = 1, ""
    for number, line in enumerate(text.splitlines(), 1):
        mark = _FENCE.match(line)
        if mark is not None and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        heading = None if fence else _HEADING.fullmatch(line)
        if heading is None:
            lines.append(line)
            continue
        yield path, start, lines
        level = len(heading[1])
        above = {depth: name for depth, name in above.items() if depth < level} | {level: heading[2].strip()}
        path, lines, start = _path(above), [], number
    yield path, start, lines


def _path(above: Mapping[int, str]) -> tuple[str, ...]:
    return tuple(above[level] for level in sorted(above))


def paragraphs(text: str) -> list[Section]:
    """A plain text as one section, or, when it is long, as several of about equal length that end at blank lines."""
    if len(text) <= _LONG:
        return [Section((), text.strip(), 1)] if text.strip() else []
    found: list[Section] = []
    held: list[str] = []
    size, start = 0, 1
    for number, line in enumerate(text.splitlines(), 1):
        if size >= _LONG // 2 and not line.strip():
            found.append(Section((), "\n".join(held).strip(), start))
            held, size, start = [], 0, number + 1
        held.append(line)
        size += len(line) + 1
    if "".join(held).strip():
        found.append(Section((), "\n".join(held).strip(), start))
    return found
