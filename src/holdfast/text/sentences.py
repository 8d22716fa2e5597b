"""Sentences with exact places: `text[start:end]` is the sentence, byte for byte.

Own rules. The libraries looked at cut inside code, tables, lists or quotes, or lose the places, or read 0.04 MB a second.
A list item, a heading, a table row and a block of code are units of their own; code is never cut.

The structure of a text is found first: paragraphs, headings, list items, table rows and code, with exact places (`blocks`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

BlockKind = Literal["paragraph", "heading", "item", "row", "code"]

_FENCE = re.compile(r"[ \t]*(?:>[ \t]?)?(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}(?=[ \t])")
_RULE = re.compile(r" {0,3}(?:(?:-[ \t]*+){3,}|(?:\*[ \t]*+){3,}|(?:_[ \t]*+){3,}|={3,})\s*+")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-{2,})\s*")
_ITEM = re.compile(
    r"[ \t]*(?:>[ \t]?)?(?:[-*+•‣◦▪●○·–—][ \t]+(?:\[[ xX]\][ \t]+)?|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,5})[.)][ \t]+"
    r"|[（(]?[一二三四五六七八九十\d]{1,3}[）、)][ \t]*)(?=\S)"
)
_LETTER_ITEM = re.compile(r"[ \t]*[a-zA-Z]\.[ \t]")
_ROW = re.compile(r"[ \t]*\|.*\|[ \t]*$|[ \t]*\|.*\|.*\|")
_RULER = re.compile(r"[ \t]*+\|?[ \t]*+:?-+:?[ \t]*+(?:\|[ \t]*+:?-+:?[ \t]*+)+\|?[ \t]*+$|[ \t]*\+(?:[-=]+\+)+[ \t]*$")
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


UnitKind = Literal["sentence", "heading", "item", "row", "code"]

_LONG_ITEM = 600  # characters: an item that is a paragraph in disguise is split like one
_LONG_ASIDE = 300  # a bracket or quote that closes later than this is no aside, or was never closed

_CLOSERS = "\"'”’»›)\\]}）】」』》〉*_"
_END = re.compile(rf"(?:[.!?…‥]+|[。！？｡．]+)[{_CLOSERS}]*")
_OPEN = {"(": ")", "[": "]", "（": "）", "「": "」", "『": "』", "《": "》", "【": "】", "“": "”", "„": "“”", "«": "»"}
_BRACKETS = re.compile('[()\\[\\]（）「」『』《》【】“”„«»"]')
_LAST_TOKEN = re.compile(r"[^\s(\[{\"'“‘«（「]*$")
_NEXT = re.compile(r"[\s\"'“‘«(\[{*_—–-]*(\w+(?:['’]\w+)?)?")


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


# Never the end of a sentence: something always follows.
_LEADING = _words(
    """
    mr mrs ms dr prof rev hon st sr fr gen col lt sgt capt cmdr adm gov sen rep pres e.g i.e eg ie vs viz cf approx ca resp incl
    z.b d.h u.a bzw vgl ggf evtl bspw sog mme mlle sra srta dott ing dhr mevr p.ex m.a.w
    """
)
# Not the end when a number follows.
_BEFORE_NUMBER = _words(
    """
    no nr nos fig figs eq eqs sec secs ch chap vol vols p pp par art ref refs tab table app ver v ed eds ex def thm lem sect col
    ln n num núm nº jan feb mar apr jun jul aug sep sept oct nov dec mär okt dez ene abr ago dic abt kap abb s str tel ext box
    """
)
# The end only when what follows begins like a sentence does.
_EITHER = _words(
    """
    etc inc ltd co corp llc plc bros jr sr esq dept est ave blvd rd bldg a.m p.m am pm b.c a.d b.c.e c.e ph.d m.d b.a m.a b.sc
    m.sc u.s u.k u.n e.u u.s.a d.c usw u.s.w al max min avg misc tel ext hr hrs sec mo yr yrs mon tue tues wed thu thur thurs fri
    sat sun jan feb mar apr jun jul aug sep sept oct nov dec gmbh ag e.v ft lb lbs oz mio mrd tsd
    """
)
_STARTERS = _words(
    """
    the a an this that these those it its it's he he's she she's they they're we we're you you're i i'm i've i'll i'd his her
    their our my your there here then when while after before if in on at but and so or nor yet however although though because
    since for from with as to what who where why how which also even still now once another some many most all each every no not
    nothing only both either neither instead meanwhile finally later der die das ein eine es er sie wir ich und aber dann wenn le
    la les un une il elle nous je et mais el los las ella ellos y pero
    """
)
_BEFORE_ORDINAL = frozenset(
    ("am", "der", "den", "dem", "des", "die", "vom", "zum", "im", "bis", "seit", "ab", "das", "beim", "nach", "vor")
)
_SPEECH_GOES_ON = "とっなのにはがをもで、，,"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A unit of a text. `block` numbers the paragraph, item, row, heading or code block that it belongs to; `level` is a heading's."""

    text: str
    start: int
    end: int
    kind: UnitKind
    block: int
    level: int = 0


def split_sentences(text: str) -> list[Sentence]:
    """The sentences and other units of a text, in order, never overlapping; all letters of the text are in one of them.

    >>> [unit.text for unit in split_sentences("Dr. Gray paid 3.50 dollars. See Fig. 3 (p. 4)!")]
    ['Dr. Gray paid 3.50 dollars.', 'See Fig. 3 (p. 4)!']
    """
    units: list[Sentence] = []
    for number, block in enumerate(find_blocks(text)):
        if block.kind == "paragraph" or (block.kind == "item" and block.end - block.start > _LONG_ITEM):
            for start, end in _split(text, block):
                units.append(Sentence(text[start:end], start, end, "sentence", number))
        else:
            units.append(Sentence(text[block.start : block.end], block.start, block.end, _unit_kind(block), number, block.level))
    return units


def _unit_kind(block: Block) -> UnitKind:
    return "sentence" if block.kind == "paragraph" else block.kind


def _split(text: str, block: Block) -> Iterator[tuple[int, int]]:
    """The sentences of one paragraph."""
    body = text[block.start : block.end]
    start = 0
    for cut in _cuts(body):
        piece = body[start:cut]
        stripped = piece.strip()
        if stripped:
            at = block.start + start + len(piece) - len(piece.lstrip())
            yield at, at + len(stripped)
        start = cut


def _cuts(body: str) -> list[int]:
    asides = _asides(body)
    lower = _typed_in_lower_case(body)
    cuts = {len(body)}
    start = 0
    aside = 0
    for match in _END.finditer(body):
        while aside < len(asides) and asides[aside][1] < match.end():
            aside += 1
        inside = any(opened < match.start() and match.end() < closed for opened, closed in asides[aside : aside + 3])
        if not inside and _ends_sentence(body, start, match, lower=lower):
            cuts.add(match.end())
            start = match.end()
    cuts.update(_line_cuts(body))
    return sorted(cuts)


def _asides(body: str) -> list[tuple[int, int]]:
    """Outermost brackets and quotes that open and close within reach, as (opening, end), in order."""
    found: list[tuple[int, int]] = []
    stack: list[tuple[str, int]] = []
    for match in _BRACKETS.finditer(body):
        mark, at = match.group(), match.start()
        while stack and at - stack[0][1] > _LONG_ASIDE:  # never closed, or too far away: forgetting it keeps the search short
            del stack[0]
        opener = _opener(stack, mark)
        if opener is not None:
            opened = stack[opener][1]
            del stack[opener:]
            while found and found[-1][0] > opened:
                found.pop()
            found.append((opened, at + 1))
        elif mark in _OPEN or mark == '"':
            stack.append((mark, at))
    return found


def _opener(stack: list[tuple[str, int]], mark: str) -> int | None:
    """The innermost open mark that this one closes. A straight quote closes a straight quote."""
    for n in range(len(stack) - 1, max(-1, len(stack) - 8), -1):
        if mark in _OPEN.get(stack[n][0], stack[n][0]):
            return n
    return None


def _typed_in_lower_case(body: str) -> bool:
    """Chat is often typed without capitals: then a full stop before a small letter does end a sentence."""
    first = next((c for c in body if c.isalpha()), "A")
    return first.islower() and re.search(r"[.!?]\s+[A-Z]", body) is None


def _ends_sentence(body: str, start: int, match: re.Match[str], *, lower: bool) -> bool:
    mark, end = match.group(), match.end()
    closed = mark[-1] in "\"'”’»›)]}）】」』》〉"
    if mark[0] in "。！？｡．":
        return not (closed and body[end : end + 1] and body[end] in _SPEECH_GOES_ON)
    if end < len(body) and not body[end].isspace():
        return mark[0] in "!?…" and _wide(body[end])  # "何?そう" and "OK!好的" have no space
    following = _NEXT.match(body, end)
    word = (following.group(1) or "") if following else ""
    if not word:
        return True
    if word[0].islower():
        return _ends_before_small_letter(body, start, match, closed=closed, lower=lower)
    if mark[0] != "." or mark.startswith(".."):
        return True
    return _ends_after_token(body, start, match.start(), word, closed=closed)


def _wide(character: str) -> bool:
    return "\u3041" <= character <= "\u9fff" or "\uac00" <= character <= "\ud7ff"


def _ends_before_small_letter(body: str, start: int, match: re.Match[str], *, closed: bool, lower: bool) -> bool:
    mark = match.group()
    if closed or mark.startswith(("..", "…")):
        return False
    if mark[0] in "!?":
        return True
    token = _token_before(body, start, match.start()).lower()
    known = token in _LEADING or token in _BEFORE_NUMBER or token in _EITHER
    return lower and not known and len(token) > 1 and "." not in token and not token.isdigit()


def _token_before(body: str, start: int, end: int) -> str:
    found = _LAST_TOKEN.search(body, max(start, end - 40), end)
    return found.group().strip("*_") if found else ""


def _ends_after_token(body: str, start: int, dot: int, word: str, *, closed: bool) -> bool:
    """Whether a full stop after an ordinary or abbreviated word, before a capital or a figure, ends the sentence."""
    token = _token_before(body, start, dot)
    small = token.lower()
    if not token or closed:
        return True
    if small in _LEADING:
        return False
    if small in _BEFORE_NUMBER and word[0].isdigit():
        return False
    starts = word.lower() in _STARTERS
    if small in _EITHER or re.fullmatch(r"(?:[^\W\d_]\.)+[^\W\d_]", token):
        return starts
    if len(token) == 1 and token.isalpha():
        return starts and not _first_token(body, start, dot)
    if token.isdigit() and len(token) <= 2:
        return not _first_token(body, start, dot) and word.lower() not in _MONTHS and not _ordinal(body, start, dot, len(token))
    return True


_MONTHS = _words(
    "januar februar märz april mai juni juli august september oktober november dezember jänner januari februari mars maj augusti"
)
"""Months of languages that write the day with a full stop: "28. Februar"."""


def _first_token(body: str, start: int, dot: int) -> bool:
    """Whether the token before the dot is all that the sentence has so far: "1. First", "A. Miller"."""
    return len(body[start:dot].split(None, 1)) <= 1 if dot - start < 12 else False


def _ordinal(body: str, start: int, dot: int, width: int) -> bool:
    """German and Scandinavian ordinals: "am 3. Oktober", "im 19. Jahrhundert"."""
    end = dot - width
    while end > start and body[end - 1].isspace():
        end -= 1
    return _token_before(body, start, end).lower() in _BEFORE_ORDINAL


def _line_cuts(body: str) -> list[int]:
    """Where a line break ends a unit without a full stop: verses, addresses, logs, chat lines; not in wrapped prose."""
    breaks = [match.start() for match in re.finditer("\n", body)]
    if not breaks:
        return []
    lines = body.split("\n")
    width = max(len(line.rstrip()) for line in lines)
    hard = [_hard_break(lines[n], lines[n + 1], width) for n in range(len(breaks))]
    if sum(hard) * 2 < len(hard):
        return []
    return [at + 1 for n, at in enumerate(breaks) if hard[n] or not _goes_on(lines[n], lines[n + 1])]


def _hard_break(line: str, after: str, width: int) -> bool:
    """The next line's first word would have fitted on this line, so the writer broke it on purpose."""
    words = after.split(None, 1)
    first = len(words[0]) if words and not _wide(words[0][0]) else 1
    return len(line.rstrip()) + 1 + first < width * 0.85 and not _goes_on(line, after) if width >= 30 else not _goes_on(line, after)


def _goes_on(line: str, after: str) -> bool:
    begin = after.lstrip(" \t>*_\"'“(")[:1]
    return begin.islower() or line.rstrip()[-1:] in ",;、，"
