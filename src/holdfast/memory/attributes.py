"""What a fact is about and what it says of it: "User lives in Graz" is about where the user lives, and says Graz.

Only attributes that have one value at a time are told here; two facts with the same attribute and other values contradict each other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.text.normalise import normalise


@dataclass(frozen=True, slots=True)
class Attribute:
    """The attribute's name, its value in compared form, and whether the fact denies it."""

    name: str
    value: str
    denied: bool = False


_SUBJECT = r"(?:the )?(?:user|i|we)(?:'s|'m|'re)?\s+(?:(?:is|am|are|now|currently|also|still|has been|have been|really|usually)\s+)*"
_END = (
    r"(?:\s+(?:now|currently|at the moment|these days|since\b.*|for (?:\d+|a|two|three|many|several)\b.*|"
    r"as of\b.*|, not\b.*|and not\b.*|instead\b.*|any ?more|not\b.*))?"
)
_V = r"(?P<v>.+?)"


def _form(name: str, pattern: str) -> tuple[str, re.Pattern[str]]:
    return name, re.compile(pattern + _END)


_FORMS = (
    _form("name", rf"(?:the )?(?:user's|my) (?:(?:full|first|given|real) )?name is {_V}"),
    _form("name", rf"{_SUBJECT}(?:named|called) {_V}"),
    _form("called", rf"(?:the )?user wants to be called {_V}"),
    _form("home", rf"{_SUBJECT}(?:lives?|living|resides?|based|located|moved|relocated|moving) (?:in|to|near|at) {_V}"),
    _form("employer", rf"{_SUBJECT}(?:works?|working|employed) (?:at|for|by) {_V}(?: as .*)?"),
    _form("employer", rf"{_SUBJECT}(?:started|joined|starting)(?: a new job| working)? (?:at )?{_V}"),
    _form("job", rf"{_SUBJECT}(?:works?|working|employed) as (?:an? |the )?{_V}(?: (?:at|for|in) .*)?"),
    _form("age", rf"{_SUBJECT}{_V}(?: years old)"),
    _form("answers in", rf"{_SUBJECT}(?:wants?|prefers?|likes?) (?:answers|replies|responses)(?: to be)?(?: written)? in {_V}"),
    _form(
        "answer length",
        (
            rf"{_SUBJECT}(?:wants?|prefers?|likes?) (?:answers (?:kept |that are )?)?(?P<v>(?:very |more )?(?:short|"
            rf"brief|concise|long|detailed|terse|thorough))(?: answers| replies| responses)?"
        ),
    ),
    _form("time zone", rf"{_SUBJECT}in (?:the )?{_V} time ?zone"),
)
_OF_USER = re.compile(
    rf"(?:the )?(?:user's|my|our) (?P<n>[\w '/-]{{2,40}}?) (?:is|are|was|is now|are now|changed to|is called|"
    rf"is named|runs on|uses){_END.replace('(?:', '(?:', 1)}\s+{_V}{_END}"
)
_USED_FOR = re.compile(
    rf"{_SUBJECT}uses? (?P<v>[\w .+#-]{{1,40}}?) (?:for|as) (?:their |his |her |my |the |an? )?(?P<n>[\w ]{{2,40}}){_END}"
)
_OF_THING = re.compile(
    rf"(?:the|our) (?P<n>[\w '/-]{{2,40}}?) (?:is|are|runs on|listens on|is called|uses|ends on|starts on|is on|is at){_END}\s+{_V}{_END}"
)
_MANY = re.compile(
    r"^(?:hobby|hobbies|language|languages|skill|skills|friend|friends|pet|pets|child|children|kid|kids|sibling|"
    r"siblings|interest|interests|project|projects|goal|goals|allerg\w+|favou?rites?)$"
)
_DENIAL = re.compile(
    r"\b(?:does not|doesn't|do not|don't|did not|is not|isn't|am not|are not|aren't|no longer|never|not|stopped|quit|anymore|any more)\b\s*"
)
_ARTICLE = re.compile(r"^(?:an?|the|on|at|in|now|called|named)\s+")


def attribute_of(content: str) -> Attribute | None:
    """The attribute that a fact is about, or None when it has none of those with one value.

    >>> attribute_of("User lives in Graz."), attribute_of("User likes tea")
    (Attribute(name='home', value='graz', denied=False), None)
    """
    plain = normalise(content).rstrip(" .!")
    denied = _DENIAL.search(re.sub(r",? (?:and )?not .*$", "", plain)) is not None
    bare = re.sub(r"\s+", " ", _DENIAL.sub("", re.sub(r",? (?:and )?not .*$", "", plain))).strip()
    bare = re.sub(r"\b(live|work|use|reside)\b(?!s)", r"\1s", bare) if denied else bare
    for name, pattern in _FORMS:
        match = pattern.fullmatch(bare)
        if match:
            return _made(name, match["v"], denied=denied)
    match = _USED_FOR.fullmatch(bare)
    if match:
        return _made(f"used for {match['n'].strip()}", match["v"], denied=denied)
    match = _OF_USER.fullmatch(bare) or _OF_THING.fullmatch(bare)
    if match and not _MANY.match(match["n"]) and len(match["v"].split()) <= 6:
        return _made(match["n"].strip(), match["v"], denied=denied)
    return None


def _made(name: str, value: str, *, denied: bool) -> Attribute | None:
    stripped = _ARTICLE.sub("", value.strip(" .,!"))
    return Attribute(name, stripped, denied) if stripped else None
