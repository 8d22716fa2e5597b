"""The structure of a text: paragraphs, headings, list items, table rows and code, with exact places.

Markdown and plain text alike, line by line and in one pass. `sentences.py` splits the paragraphs further.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

BlockKind = Literal["paragraph", "heading", "item", "row", "code"]

_FENCE = re.compile(r"[ \t]*(?:>[ \t]?)?(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}(?=[ \t])")
_RULE = re.compile(r" {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,}|={3,})\s*")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-{2,})\s*")
_ITEM = re.compile(
    r"[ \t]*(?:>[ \t]?)?(?:[-*+•‣◦▪●○·–—][ \t]+(?:\[[ xX]\][ \t]+)?|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,5})[.)][ \t]+"
    r"|[（(]?[一二三四五六七八九十\d]{1,3}[）、)][ \t]*)(?=\S)"
)
_LETTER_ITEM = re.compile(r"[ \t]*[a-zA-Z]\.[ \t]")
_ROW = re.compile(r"[ \t]*\|.*\|[ \t]*$|[ \t]*\|.*\|.*\|")
_RULER = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)+\|?[ \t]*$|[ \t]*\+(?:[-=]+\+)+[ \t]*$")
_INDENTED = re.compile(r"(?: {4}|\t)")


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch `text[start:end]` of one kind, without the whitespace around it."""

    start: int
    end: int
    kind: BlockKind
    level: int = 0  # of a heading: 1 to 6


@dataclass(slots=True)
class _Line:
    start: int
    end: int
    text: str
    row: bool = False

    @property
    def blank(self) -> bool:
        return not self.text or self.text.isspace()


def find_blocks(text: str) -> list[Block]:
    """All blocks in order, never overlapping. What lies between them is whitespace, rules and table rulers."""
    lines = list(_lines(text))
    _mark_rows(lines)
    blocks: list[Block] = []
    at = 0
    while at < len(lines):
        if lines[at].blank:
            at += 1
            continue
        block, at = _next_block(lines, at, after_blank=at == 0 or lines[at - 1].blank)
        if block is not None:
            blocks.append(_trimmed(text, block))
    return [block for block in blocks if block.end > block.start]


def _lines(text: str) -> Iterator[_Line]:
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield _Line(start, end, text[start:end])
        start = end + 1


def _trimmed(text: str, block: Block) -> Block:
    start, end = block.start, block.end
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return Block(start, end, block.kind, block.level)


def _next_block(lines: list[_Line], at: int, *, after_blank: bool) -> tuple[Block | None, int]:
    line = lines[at]
    fence = _FENCE.match(line.text)
    if fence:
        return _fenced(lines, at, fence.group(1))
    heading = _HEADING.match(line.text)
    if heading:
        return Block(line.start, line.end, "heading", heading.group().count("#")), at + 1
    if _RULE.fullmatch(line.text) or _RULER.match(line.text):
        return None, at + 1
    if lines[at].row:
        return Block(line.start, line.end, "row"), at + 1
    if _is_item(line.text):
        return _item(lines, at)
    if after_blank and _INDENTED.match(line.text):
        return _indented(lines, at)
    return _paragraph(lines, at)


def _fenced(lines: list[_Line], at: int, fence: str) -> tuple[Block, int]:
    """A fence that is never closed runs to the end of the text, as in CommonMark."""
    for last in range(at + 1, len(lines)):
        closing = _FENCE.match(lines[last].text)
        if closing and closing.group(1).startswith(fence) and not lines[last].text.strip(" \t>`~"):
            return Block(lines[at].start, lines[last].end, "code"), last + 1
    return Block(lines[at].start, lines[-1].end, "code"), len(lines)


def _indented(lines: list[_Line], at: int) -> tuple[Block, int]:
    end = at
    for next_ in range(at + 1, len(lines)):
        if not lines[next_].blank and not _INDENTED.match(lines[next_].text):
            break
        end = next_ if not lines[next_].blank else end
    return Block(lines[at].start, lines[end].end, "code"), end + 1


def _mark_rows(lines: list[_Line]) -> None:
    """A row has bars at both ends, or stands next to a ruler or below a ruled row."""
    in_table = False
    for at, line in enumerate(lines):
        if "|" not in line.text:
            in_table = False
        elif _RULER.match(line.text):
            in_table = True
            if at and "|" in lines[at - 1].text:
                lines[at - 1].row = True
        else:
            line.row = in_table or _ROW.match(line.text) is not None


def _is_item(text: str) -> bool:
    return _ITEM.match(text) is not None and not _initials(text)


def _initials(text: str) -> bool:
    """ "J. R. Smith said ..." and "A. Miller" begin like a lettered item and are none."""
    return bool(_LETTER_ITEM.match(text)) and re.match(r"[ \t]*[A-Z]\.[ \t]+(?:[A-Z]\.|[A-Z][a-z]+(?:[ ,.]|$))", text) is not None


def _item(lines: list[_Line], at: int) -> tuple[Block, int]:
    """An item and the lines that continue it."""
    end = at
    while end + 1 < len(lines) and not lines[end + 1].blank and not _starts_block(lines, end + 1):
        end += 1
    return Block(lines[at].start, lines[end].end, "item"), end + 1


def _paragraph(lines: list[_Line], at: int) -> tuple[Block, int]:
    end = at
    while end + 1 < len(lines) and not lines[end + 1].blank:
        if end == at and _UNDERLINE.fullmatch(lines[end + 1].text):
            level = 1 if "=" in lines[end + 1].text else 2
            return Block(lines[at].start, lines[at].end, "heading", level), end + 2
        if _starts_block(lines, end + 1):
            break
        end += 1
    return Block(lines[at].start, lines[end].end, "paragraph"), end + 1


def _starts_block(lines: list[_Line], at: int) -> bool:
    text = lines[at].text
    return bool(
        _FENCE.match(text) or _HEADING.match(text) or _RULE.fullmatch(text) or _RULER.match(text) or lines[at].row or _is_item(text)
    )
