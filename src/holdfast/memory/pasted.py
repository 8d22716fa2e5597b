"""Which part of a user's message is his own words, and which was only put there (M10).

Nobody says that he pasted something; it shows. Some texts carry their own form: quoted lines, fences, logs, mails with their heads, talks
with their speakers, subtitles, quotations. Others are known by what stands beside them: a line that asks to shorten, answer or explain
"this" is the user's, and the rest of the message is what it is about. Where no line parts them, nothing of such a message is taken for
the user's own. What is not surely his is left out: it can be said again, and a person may let it in by review.
"""

from __future__ import annotations

import re
from functools import lru_cache

from holdfast.memory.word_lists import word_lists
from holdfast.text.language import guess_language
from holdfast.text.words import terms

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
_QUOTED_WORDS, _QUOTED_CHARACTERS = 4, 9  # a longer quotation is somebody's sentence, a shorter one is a name or a word that is spoken of
_OPENING, _CLOSING, _CARRIER = (_LISTS.pattern(name, _FLAGS) for name in ("opening", "closing", "carrier"))
_OPERATION, _POINTS, _HE_OR_SHE = (_LISTS.pattern(name, _FLAGS) for name in ("operation", "points", "he_or_she"))
_SHOWN, _THAT = _LISTS.pattern("shown", _FLAGS), _LISTS.pattern("that", _FLAGS)
_ENDS_OPEN, _NUMBERED = _LISTS.pattern("ends_open"), _LISTS.pattern("numbered_clause", re.MULTILINE)
_LABEL, _OWN_LABEL = _LISTS.pattern("label"), _LISTS.pattern("own_label", _FLAGS)
_STYLE_BREAK = _LISTS.pattern("style_break")
_SENTENCE = re.compile(r"(?:^|(?<=[.!?…])\s+)[¿¡]?([^\W\d_])")
_SELF, _OWN_SUBJECT, _TEXT, _GREETING = (
    _LISTS.pattern(name, _FLAGS) for name in ("speaks_of_self", "is_own_subject", "is_text", "is_greeting")
)
_QUESTION = re.compile(r"[?？]")
_COLON = re.compile(r"(?::\s+|：\s*)(?=\S)")
_OF_HIMSELF = re.compile(r"\b(?:me|myself|mich|mir|moi|mí)\s*$", re.IGNORECASE)
_CJK = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")
_FEW_PAIRS = 4  # terms of a question in a writing without spaces that still says nothing of its own
_MUCH = 20  # characters that were known to be pasted by their form: what is left beside them is the user's


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
    own = _FILE_LINE.sub(_blank, own) if "\n" in text.strip() else own
    own = _QUOTATIONS.sub(lambda m: _blank(m) if _is_sentence(m.group()) else m.group(), own)
    known = len(own.split()) < len(text.split()) or len(re.sub(r"\s", "", text)) - len(re.sub(r"\s", "", own)) >= _MUCH
    lines = [(m.start(), m.end()) for m in re.finditer(r"[^\n]+", text) if m.group().strip()]
    if len(lines) > 1:
        return _by_lines(own, text, lines, known=known)
    return own if known else _by_sentence(own)


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


def _asks_of_itself(line: str) -> bool:
    """Whether what looks like a speaker is a request with a colon: "Shorten this please: ..."."""
    head = re.split("[:：]", line, maxsplit=1)[0]
    return _OPERATION.search(head) is not None or _CARRIER.search(head) is not None or len(head.split()) > 4


def _asks(line: str) -> bool:
    return bool(_QUESTION.search(line) or _OPERATION.search(line) or _CARRIER.search(line) or _ENDS_OPEN.search(line))


def _refers(line: str) -> bool:
    """Whether a line speaks of a text or a person that stands beside it."""
    told = any(pattern.search(line) for pattern in (_OPERATION, _CARRIER, _POINTS, _SHOWN, _HE_OR_SHE, _ENDS_OPEN))
    return told or _asks_nothing_else(line)


def _asks_nothing_else(sentence: str) -> bool:
    """Whether a question says nothing of its own, so that it can only be about what stands beside it.

    >>> _asks_nothing_else("What do you think?"), _asks_nothing_else("What can I cook?"), _asks_nothing_else("Any recipes without eggs?")
    (True, False, False)
    """
    plain = sentence.strip()
    if not _QUESTION.search(plain[-3:]) or _OWN_SUBJECT.search(plain) or _SELF.search(plain):
        return False
    return len(terms(plain, guess_language(plain))) < (_FEW_PAIRS if _CJK.search(plain) else 2)


def _by_lines(own: str, text: str, lines: list[tuple[int, int]], *, known: bool) -> str:
    """The first and the last line may be the user's; what they ask about lies between."""
    first, last = lines[0], lines[-1]
    edges = [edge for edge in (first, last) if _asks(own[edge[0] : edge[1]])]
    about = any(_refers(own[start:end]) for start, end in edges)
    letter = any(pattern.search(text) for pattern in (_OPENING, _CLOSING)) or len(_NUMBERED.findall(text)) > 1
    if not edges and letter:
        return _blanks(own)
    if not edges or not (about or known or letter):
        head, below = own[: first[1]], own[first[1] :]
        asked = last not in edges and not _OWN_SUBJECT.search(head) and not _GREETING.search(head)
        return head + _blanks(below) if asked and _SELF.search(below) else own  # a wish, then somebody's words on a line of their own
    for start, end in lines:
        if (start, end) not in edges:
            own = _cut(own, start, end)
    before = text[: last[0]].rstrip()
    return _cut(own, *last) if before.endswith((",", ";", "，", "、")) else own  # a line that goes on with the text


def _by_sentence(text: str) -> str:
    """A message in one line, of which no form tells what is pasted."""
    label = _LABEL.match(text)
    if label and not _OWN_LABEL.match(label["label"].strip()) and _is_name(label["label"]):
        return _blanks(text)
    if _OPENING.search(text):
        return _blanks(text)
    colon = _COLON.search(text)
    if colon and len(text) - colon.end() > _MUCH // 2:
        head = text[: colon.start()]
        own_head = _OWN_SUBJECT.search(head) or _OWN_LABEL.match(head.strip()) or _OF_HIMSELF.search(head)
        told = _SELF.search(text[colon.end() :]) and not own_head
        if _OPERATION.search(head) or _CARRIER.search(head) or told:
            return _cut(text, colon.end(), len(text))
    operation = _OPERATION.search(text)
    pasted = (
        _CARRIER.search(text)
        or _SHOWN.search(text)
        or (_SELF.search(text) and _THAT.search(last := _last_sentence(text)) and _asks_nothing_else(last))
        or len(_NUMBERED.findall(text)) > 1
        or (operation and (_POINTS.search(text) or _CJK.search(operation.group())))
        or (
            operation
            and operation.start() < _MUCH
            and _SELF.search(text[operation.end() :])
            and not _OWN_SUBJECT.search(text[: operation.end()])
        )
        or _two_styles(text)
        or (_asks(text) and _STYLE_BREAK.search(text))
        or (_TEXT.search(text) and _SELF.search(text) and len(re.findall(r"[.!?。！？]", text)) > 1)
    )
    return _blanks(text) if pasted else text


def _last_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?。！？…])\s*|\s[-–—]\s", text.rstrip(" .!?。！？"))[-1] + text.rstrip()[-1:]


def _two_styles(text: str) -> bool:
    """Whether some sentences begin with a capital and others not: two hands wrote it.

    >>> _two_styles("I live here. I like it. who wrote that?"), _two_styles("i live here. who is it?")
    (True, False)
    """
    heads = [match[1] for match in _SENTENCE.finditer(text) if match[1].isupper() != match[1].islower()]
    return len(heads) > 2 and any(head.isupper() for head in heads) and any(head.islower() for head in heads)


def _is_name(label: str) -> bool:
    return bool(_CJK.search(label)) or (label[:1].isupper() and label[1:].islower() and " " not in label.strip())
