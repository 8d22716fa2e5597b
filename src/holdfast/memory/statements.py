"""What a user says in their own words, sentence by sentence: in what mood, and whether a text is built like a statement at all.

What was pasted is not said: code, quoted mails, log lines, long quotations and the memory block itself are left out. The rules
extractor reads these sentences and the gate grounds facts in them, so both agree on what a user has stated. Orders have no end of
wordings, so nothing is learned because it looks like no known order: a fact has to have the build of a statement (`declares`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from holdfast.memory.word_lists import word_lists
from holdfast.text.normalise import normalise
from holdfast.text.sentences import split_sentences

Mood = Literal["plain", "question", "thought", "reported"]
"""`thought` is hypothetical, wished or uncertain; `reported` is what somebody else says, likes or does."""

_LISTS = word_lists("statements")
_CASELESS = re.IGNORECASE
_LEAD_IN = _LISTS.pattern("lead_in", _CASELESS)

_QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_MEMORY_BLOCK = re.compile(r"<memory\b.*?(?:</memory\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_FENCE = re.compile(r"(`{3,}|~{3,}).*?(?:\1|\Z)", re.DOTALL)
_FORWARDED = _LISTS.pattern("forwarded", re.IGNORECASE | re.MULTILINE)
_PASTE = _LISTS.pattern("paste", re.IGNORECASE | re.MULTILINE)
_ABOUT_ME = _LISTS.pattern("about_me", _CASELESS)
_LONG_QUOTE = re.compile('“([^”]{1,2000})”|"([^"\\n]{1,2000})"|«([^»]{1,2000})»|„([^“”]{1,2000})[“”]|(?<!\\w)‘([^’]{1,2000})’(?!\\w)')
_QUOTE_WORDS = 4  # a longer quotation is somebody's sentence, a shorter one is a name or a word that is spoken of
_LOG_LINE = _LISTS.pattern("log_line", re.MULTILINE)

_QUESTION_END = re.compile(r"[?？]\s*[\"'”’)]*\s*$")
_QUESTION_HEAD = _LISTS.pattern("question_head", _CASELESS)
_ASIDE = _LISTS.pattern("aside", _CASELESS)
_THOUGHT = _LISTS.pattern("thought", _CASELESS)
_REPORTED = _LISTS.pattern("reported", _CASELESS)
_FIRST_SAYS = _LISTS.pattern("first_says", _CASELESS)

_SUBJECTS, _ORDERING = frozenset(_LISTS.words("subjects")), frozenset(_LISTS.words("ordering"))
_NOT_PLURAL, _NOT_DOING = frozenset(_LISTS.words("not_plural")), frozenset(_LISTS.words("not_doing"))
_FINITE = _LISTS.pattern("finite")
_INTERJECTION = _LISTS.pattern("interjection")
_CLAUSE = _LISTS.pattern("clause")
_ONE_SELF = re.compile(
    "".join(rf"(?<!^{word} )" for word in _LISTS.words("self_not_right_after"))
    + r"\b(?:i|we|user|the user|they|my \w+|our \w+|user's \w+)\b(?:'\w+)?\s+\w"
)
_YOU, _HARMLESS_YOU, _FOREIGN_YOU = _LISTS.pattern("you"), _LISTS.pattern("harmless_you"), _LISTS.pattern("foreign_you")
_SUBJECT_FREE = _LISTS.pattern("subject_free")
_ORDER_SHAPE = _LISTS.pattern("order_shape")
_FOREIGN = tuple(_LISTS.pattern(name) for name in ("foreign_self", "foreign_own", "foreign_verb", "foreign_plain"))
_FOREIGN_FROM_NOW_ON = re.compile(r"(?:ab sofort|désormais|dorénavant|d'ora in poi|a partir d\w+|de ahora|с этого|in zukunft|künftig)\b")


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence that a user typed: its words, where it stands in the turn's text, and its mood."""

    text: str
    start: int
    end: int
    mood: Mood
    kind: str = "sentence"


def own_words(text: str) -> str:
    """The text with everything that was only pasted or quoted blanked out, all places kept.

    >>> own_words('I said “never again, not in a hundred years” and left')
    'I said                                       and left'
    """
    for pattern in (_MEMORY_BLOCK, _FENCE, _QUOTED_LINE, _LOG_LINE):
        text = pattern.sub(_blank, text)
    forwarded = _FORWARDED.search(text)
    if forwarded:
        text = text[: forwarded.start()] + _blanks(text[forwarded.start() :])
    for paste in _PASTE.finditer(text):
        if not _ABOUT_ME.search(paste.group()):
            text = text[: paste.end()] + _blanks(text[paste.end() :])
            break
    return _LONG_QUOTE.sub(lambda m: _blank(m) if len(m.group().split()) > _QUOTE_WORDS else m.group(), text)


def _blank(match: re.Match[str]) -> str:
    return _blanks(match.group())


def _blanks(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


@lru_cache(maxsize=512)
def statements(text: str) -> tuple[Statement, ...]:
    """The sentences of a user's text that are their own, with their moods. Code and table rows are never among them."""
    own = own_words(text)
    return tuple(
        Statement(text[unit.start : unit.end], unit.start, unit.end, mood_of(own[unit.start : unit.end]), unit.kind)
        for unit in split_sentences(own)
        if unit.kind not in ("code", "row") and any(c.isalnum() for c in unit.text)
    )


def mood_of(sentence: str) -> Mood:
    """The mood of one sentence.

    >>> mood_of("I live in Rome."), mood_of("Do I like tea?"), mood_of("If I lived in Rome, I'd walk."), mood_of("My boss likes golf.")
    ('plain', 'question', 'thought', 'reported')
    """
    plain = sentence.strip().replace("’", "'")
    asks = _QUESTION_END.search(plain) is not None or _QUESTION_HEAD.match(plain) is not None
    if asks and not _ASIDE.search(plain):
        return "question"
    if _THOUGHT.search(plain):
        return "thought"
    return "reported" if _REPORTED.search(plain) and not _FIRST_SAYS.search(plain) else "plain"


def strip_lead_in(text: str) -> str:
    """A statement without "Please remember that" and its like before it.

    >>> strip_lead_in("Remember that I'm vegan"), strip_lead_in("Remember Acme as a source")
    ("I'm vegan", 'Remember Acme as a source')
    """
    return _LEAD_IN.sub("", text, count=1)


def declares(text: str) -> bool:
    """Whether every sentence of the text is built like a statement.

    >>> declares("User likes tea"), declares("Lower the alerts"), declares("If it rains, close the roof"), declares("Uses PostgreSQL 16")
    (True, False, False, True)
    """
    sentences = [unit.text for unit in split_sentences(strip_lead_in(text.strip()))]
    parts = [part for sentence in sentences for part in sentence.split("; ") if any(c.isalnum() for c in part)]
    return bool(parts) and all(_declares(part) for part in parts)


def speaks_to_somebody(text: str) -> bool:
    """Whether the text addresses its reader. What is learned about a user says nothing to anybody."""
    plain = _HARMLESS_YOU.sub(" ", normalise(strip_lead_in(text.strip())))
    return _YOU.search(plain) is not None or (_FOREIGN_YOU.search(plain) is not None and _SUBJECT_FREE.search(plain) is not None)


def _declares(sentence: str) -> bool:
    plain = normalise(sentence).strip(" \"'()*-.!?…")
    bare = _INTERJECTION.sub("", plain)
    if not re.match(r"(?:i|we|they|user|the user)\b", bare) and any(
        _ORDER_SHAPE.match(tail) for tail in re.split(r"[,:]\s+|\s[–—-]\s", bare)[1:]
    ):
        return False  # "..., spread them": an order behind a statement
    if _CLAUSE.match(bare):
        _, comma, rest = bare.partition(", ")
        if comma:
            return _declares(rest) or (_has_head(rest) if rest else False)
        return _ONE_SELF.search(bare) is not None or _foreign(bare)
    return _has_head(bare) or _foreign(bare)


def _has_head(bare: str) -> bool:
    words = re.findall(r"[\w'&+#.-]+", bare)
    if not words:
        return False
    first = words[0]
    if (first in _SUBJECTS and words[:2] != ["a", "partir"]) or first.isdigit():
        return True
    if (
        first.endswith("s")
        and not first.endswith("ss")
        and first not in _NOT_PLURAL
        and first.isascii()
        and first.isalpha()
        and len(first) > 2
    ):
        return True  # "Uses PostgreSQL 16", "Deployments need an approval"
    if first.endswith("'s") or (first.endswith("ing") and first not in _NOT_DOING):
        return True  # "Ana's dog", "Running keeps me sane"
    if _ORDER_SHAPE.match(bare):
        return False
    return first not in _ORDERING and _FINITE.search(" ".join(words[1:6])) is not None


def _foreign(plain: str) -> bool:
    after = plain.split(", ", 1)[1] if _FOREIGN_FROM_NOW_ON.match(plain) and ", " in plain else plain
    return any(pattern.search(after) is not None for pattern in _FOREIGN)
