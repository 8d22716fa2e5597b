"""Which part of a user's message is his own words, and which was only put there (M10).

Nobody says that he pasted something; it shows. Some texts carry their own form: quoted lines, fences, logs, mails with their heads, talks
with their speakers, subtitles, quotations. All others are told by how they read (`wording.py`): first whether a message has something
pasted in it at all, then which lines of it, or sentences where it is one line. What is not surely his is left out: it can be said again,
and a person may let it in by review.
"""

from __future__ import annotations

import re
from functools import lru_cache

from holdfast.memory.word_lists import word_lists
from holdfast.memory.wording import pasted_parts, reads_pasted, speaks_of

_LISTS = word_lists("pasted")
_FLAGS = re.IGNORECASE | re.MULTILINE
_WHOLE = tuple(_LISTS.pattern(name, _FLAGS) for name in ("memory_block", "quoted_line", "log_line"))
_FENCE = re.compile(r"(`{3,}|~{3,}).*?(?:\1|\Z)", re.DOTALL)
_FILE_LINE, _HEAD_LINE, _PASSED_LINE = (
    _LISTS.pattern("file_line", re.MULTILINE),
    _LISTS.pattern("head_line", _FLAGS),
    _LISTS.pattern("passed_line", _FLAGS),
)
_SPEAKER_LINE, _SHORT_SPEAKER = _LISTS.pattern("speaker_line", re.MULTILINE), _LISTS.pattern("short_speaker", re.MULTILINE)
_QUOTATIONS = re.compile(
    '“([^”]{1,4000})”|"([^"\\n]{1,4000})"|« ?([^»]{1,4000})»|„([^“”]{1,4000})[“”]'
    "|(?<!\\w)‘([^’]{1,4000})’(?!\\w)|(?<!\\w)'([^\\n]{1,400}?)'(?!\\w)|「([^」]{1,4000})」|『([^』]{1,4000})』"
)
_ASKS_TRUTH = _LISTS.compiled(r"(?:(?<=[.!。！\n])|(?<=[.!] ))(?:{asks_truth})\s?[?？]+\s{0,9}$", re.IGNORECASE)
_ASKS_OPINION = _LISTS.compiled(r"(?<=\n\n)(?:{asks_opinion})\s?[?？]+\s{0,9}$", re.IGNORECASE)
_QUOTED_WORDS, _QUOTED_CHARACTERS = 4, 9  # a longer quotation is somebody's sentence, a shorter one is a name or a word that is spoken of
_CJK = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")
_ASKS = re.compile(r"[?？]|[:：][ \t]*$")
_PART = re.compile(r"[^.!?。！？…\n]+[.!?。！？…]*[\"'”’»」』)）]*\s*|[^\n]")
_MOST_PARTS = 60  # parts of a message that are looked at one by one; of a longer one with something pasted nothing is taken


@lru_cache(maxsize=512)
def own_words(text: str) -> str:
    """The text with everything that was only pasted or quoted blanked out, all places kept.

    >>> own_words('I said “never again, not in a hundred years” and left')
    'I said                                       and left'
    """
    own = _FENCE.sub(_blank, text)
    for pattern in _WHOLE:
        own = pattern.sub(_blank, own)
    own = _without_letters(own)
    own = _without_speakers(own)
    own = _without_doubted(own)
    own = _FILE_LINE.sub(_blank, own) if "\n" in text.strip() else own
    own = _QUOTATIONS.sub(lambda m: _blank(m) if _is_sentence(m.group()) else m.group(), own)
    if reads_pasted(text) <= 0:
        return own
    spans = message_parts(text)
    if not 0 < len(spans) <= _MOST_PARTS:
        return _blanks(own)
    first, last = pasted_parts([text[start:end] for start, end in spans])
    return _cut(own, spans[first][0], spans[last - 1][1])


def message_parts(text: str) -> list[tuple[int, int]]:
    """Where the parts of a message are that one hand wrote: its lines, or its sentences where it is one line."""
    lines = [match.span() for match in re.finditer(r"[^\n]+", text) if any(map(str.isalnum, match.group()))]
    if len(lines) > 1:
        return lines
    return [match.span() for match in _PART.finditer(text) if any(map(str.isalnum, match.group()))]


def _blank(match: re.Match[str]) -> str:
    return _blanks(match.group())


def _blanks(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _cut(text: str, start: int, end: int) -> str:
    return text[:start] + _blanks(text[start:end]) + text[end:]


def _is_sentence(quoted: str) -> bool:
    if quoted[-2:-1] in ".!?。！？":
        return True
    cjk = len(_CJK.findall(quoted))
    return cjk > _QUOTED_CHARACTERS if cjk * 2 > len(quoted) else len(quoted[1:-1].split()) > _QUOTED_WORDS


def _without_letters(text: str) -> str:
    """Without mails: from their head, or from where they are passed on, to the last line that may be the user's again."""
    heads = list(_HEAD_LINE.finditer(text))
    passed = _PASSED_LINE.search(text)
    starts = [heads[0].start()] if len(heads) > 1 else []
    starts += [passed.start()] if passed else []
    if not starts:
        return text
    last = text.rstrip().rfind("\n") + 1
    asks = last > min(starts) and _asks(text[last:])
    return _cut(text, min(starts), last if asks else len(text))


def _without_speakers(text: str) -> str:
    """Without the lines of a talk: two or more that begin with who speaks."""
    spoken = [match for match in _SPEAKER_LINE.finditer(text) if not _asks_of_itself(match.group())]
    for found in (spoken, list(_SHORT_SPEAKER.finditer(text))):
        if len(found) > 1:
            for match in found:
                text = _cut(text, *match.span())
            head = text[: found[0].start()]
            text = text if _asks(head) else _blanks(head) + text[found[0].start() :]
    return text


def _without_doubted(text: str) -> str:
    """Without what a question at the end asks about: whether it is true, or, behind an empty line, what to think of it."""
    asked = _ASKS_TRUTH.search(text) or _ASKS_OPINION.search(text)
    return _cut(text, 0, asked.start()) if asked else text


def _asks_of_itself(line: str) -> bool:
    """Whether what looks like a speaker is a request with a colon: "Shorten this please: ..."."""
    head = re.split("[:：]", line, maxsplit=1)[0]
    return len(head.split()) > 4 or speaks_of(head, "operation")


def _asks(line: str) -> bool:
    return _ASKS.search(line) is not None or speaks_of(line, "operation")
