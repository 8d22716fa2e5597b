"""What a user says in their own words, sentence by sentence, and in what mood: plainly, as a question, as a mere thought.

What was pasted is not said: code, quoted mails, log lines, long quotations and the memory block itself are left out. The rules
extractor reads these sentences and the gate grounds facts in them, so both agree on what a user has stated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from holdfast.text.sentences import split_sentences

Mood = Literal["plain", "question", "thought", "reported"]
"""`thought` is hypothetical, wished or uncertain; `reported` is what somebody else says, likes or does."""

_QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_MEMORY_BLOCK = re.compile(r"<memory\b.*?(?:</memory\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_FENCE = re.compile(r"(`{3,}|~{3,}).*?(?:\1|\Z)", re.DOTALL)
_FORWARDED = re.compile(
    (
        r"^[ \t]*(?:-{2,}\s*(?:original|forwarded) message.*|begin forwarded message.*|on .{4,80} wrote:\s*|"
        r"from:.*\n(?:to|date|sent|subject):.*)$"
    ),
    re.IGNORECASE | re.MULTILINE,
)
_PASTE = re.compile(
    r"^(?=[^\n]*\b(?:this|these|the following|below|here(?:'s|’s| is| are)|pasted?|attached|text|e-?mail|mail|"
    r"page|article|log|output|error|file|transcript|"
    r"message|document|report|summar\w+|translate|proofread|rewrite|fix)\b)[^\n]{0,160}:[ \t]*\n",
    re.IGNORECASE | re.MULTILINE,
)
_ABOUT_ME = re.compile(r"\b(?:me|my|mine|i|i'm|i’m|we|our)\b", re.IGNORECASE)
_LONG_QUOTE = re.compile('“([^”]{1,2000})”|"([^"\\n]{1,2000})"|«([^»]{1,2000})»|„([^“”]{1,2000})[“”]|(?<!\\w)‘([^’]{1,2000})’(?!\\w)')
_QUOTE_WORDS = 4  # a longer quotation is somebody's sentence, a shorter one is a name or a word that is spoken of
_LOG_LINE = re.compile(
    r"^[ \t]*(?:\[?\d{4}-\d\d-\d\d[T ]\d\d:|\[?\d\d:\d\d:\d\d|\[?(?:DEBUG|INFO|WARN(?:ING)?|ERROR|FATAL|TRACE)\b|"
    r"Traceback \(|File \"|at \w[\w.$]*\(|"
    r"[$#] \w|>>> |\.\.\. |[+-]{3} |@@ |diff --git|(?:def|class|import|from|return|const|let|var|function|"
    r"public|private|SELECT|INSERT|UPDATE) .*[;:({=]|"
    r"[\w.\"'\[\]]+\s*(?:=|:=|\+=)\s*\S+|[{}();]+\s*$|\w+@[\w-]+:.*[$#] ).*$",
    re.MULTILINE,
)

_QUESTION_END = re.compile(r"[?？]\s*[\"'”’)]*\s*$")
_QUESTION_HEAD = re.compile(
    r"^(?:(?:and|but|so|ok|okay|hey|hi|then|also|well)[, ]+)*(?:who|what|when|where|why|how|which|whose|do|does|"
    r"did|is|are|am|was|were|can|could|should|would|"
    r"will|have|has|had|may|might|shall)\s+(?:i|we|you|he|she|it|they|my|our|your|the|a|an|this|that|these|"
    r"those|there|is|are|do|does|did|was|much|many)\b",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    r"(?:^|[,;:–—(-]\s*|\b(?:and|but|since|because|as|given that|that)\s+)(?:i|we)(?:['’](?:m|ve|re)\b|\s+(?:am|"
    r"are|have|use|work|live|run|need|want|prefer|like)\b)|"
    r"(?:^|[,;:–—(-]\s*)(?:my|our)\s+[\w' ]{1,30}\s+(?:is|are|has|uses|runs)\b",
    re.IGNORECASE,
)
_THOUGHT = re.compile(
    r"\b(?:if i (?:were|was|had|lived|could|worked|used)|if we (?:were|had|used|could)|i(?:'d| would) (?:be|"
    r"have been|live|work|use|move|become)\b(?!.*\bif\b.{0,3}$)|"
    r"(?:i|we) wish|suppose|supposing|imagine|pretend|let'?s (?:say|assume|suppose)|assume|assuming|say i|"
    r"hypothetically|in theory|what if|as if|as though|"
    r"(?:i|we) (?:might|may|could)|maybe|perhaps|possibly|probably|not sure|unsure|i'?m (?:considering|"
    r"wondering|thinking (?:of|about))|(?:i|we) (?:wonder|doubt)|"
    r"(?:i|we)(?:'re| are|'m| am)? (?:consider|considering|thinking (?:of|about))|for example|for instance|e\.g\.|"
    r"i'?m (?:kidding|joking)|just kidding|yeah right|"
    r"as a (?:joke|test)(?! \w)|role-?play|in (?:my|the) (?:dream|story|novel|game|book))\b",
    re.IGNORECASE,
)
_OTHERS = (
    r"(?:boss|manager|wife|husband|partner|friend|colleague|coworker|co-worker|mother|mom|mum|father|dad|"
    r"brother|sister|son|daughter|uncle|aunt|cousin|neighbou?r|"
    r"teacher|doctor|client|customer|roommate|flatmate|girlfriend|boyfriend|team ?mate|professor|supervisor|"
    r"landlord|grandm\w+|grandf\w+|kids?|child(?:ren)?|"
    r"parents?|lead|ceo|cto|assistant|intern|lawyer|therapist)"
)
_REPORTED = re.compile(
    rf"^(?:(?:and|but|so|well|also|however|anyway|because|by the way)[, ]+)*(?:(?:my|our|the|a|his|her|"
    rf"their)\s+(?:\w+\s+){{0,2}}?{_OTHERS}(?:\s+(?-i:[A-Z])\w+)?\s+(?!is\b|are\b|has\b|have\b|was\b|'s\b)"
    r"|(?:he|she|they|someone|somebody|everyone|everybody|people|some people|most people|others)\b|"
    r"(?-i:[A-Z])\w+ (?:says|said|told|thinks|claims|wrote|writes|asked|prefers|likes|loves|hates|wants|"
    r"uses)\b)|"
    r"\b(?:says|said|claims?|claimed|thinks?|thought|told (?:me|us|him|her)|according to|insists?|believes?|"
    r"writes?|wrote|asks|asked|keeps saying)\b(?=.{0,6}\b(?:that\s+)?(?:i|we|he|she|they|you)\b)",
    re.IGNORECASE,
)
_FIRST_SAYS = re.compile(
    r"\b(?:i|we)\s+(?:already\s+|just\s+)?(?:said|told|think|thought|believe|wrote|mean|meant|say|never said)\b", re.IGNORECASE
)


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
