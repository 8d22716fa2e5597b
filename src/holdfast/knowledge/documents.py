"""Markdown and plain text cut into sections that can be found one by one. Pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.text.sentences import find_blocks

_MARKS = re.compile(r"^#{1,6}[ \t]+|[ \t]+#*[ \t]*$")  # around the name of a heading
_UNDERLINE = re.compile(r"[ \t]*\n {0,3}(?:=+|-{2,})[ \t]*(?=\n|$)")
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
    above: dict[int, str] = {}
    start, line = 0, 1
    headings = [block for block in find_blocks(text) if block.kind == "heading"]
    for heading in (*headings, None):
        end = len(text) if heading is None else heading.start
        body = text[start:end].strip()
        if body:
            found.append(Section(tuple(above[level] for level in sorted(above)), body, line))
        if heading is not None:
            name = _MARKS.sub("", text[heading.start : heading.end]).strip()
            above = {level: other for level, other in above.items() if level < heading.level} | {heading.level: name}
            under = None if text[heading.start] == "#" else _UNDERLINE.match(text, heading.end)
            start, line = under.end() if under else heading.end, text.count("\n", 0, heading.start) + 1
    return found


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
