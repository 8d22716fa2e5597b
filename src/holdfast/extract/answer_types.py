"""What a question asks for: a date, a number, a person, a place, a reason; and whether a sentence has such a thing.

Rules over words (`lists/answer_types.toml`), in the larger European languages and in Chinese and Japanese. A question of no known kind
wants nothing special, and a sentence is then judged by its words alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache, lru_cache
from typing import Literal

from holdfast.text.dates import find_dates
from holdfast.text.language import guess_language
from holdfast.text.word_lists import alternatives, read_lists
from holdfast.text.words import keys, tokenise

Wanted = Literal["date", "time", "number", "money", "duration", "measure", "share", "person", "place", "reason", "means"]

_SLOT = re.compile(r"\{([a-z_]+)\}")
_SETTING = re.compile(r"\b(?:of|in|at|on|for|from|with|by|during|after|before|to|into|under)\b", re.IGNORECASE)
_REFERENCE = date(2000, 6, 15)  # only whether there is a date counts here, not which


@cache
def _pattern(pattern: str) -> str:
    """A pattern of the lists, with the words that its `{names}` stand for."""
    words: dict[str, str] = read_lists("holdfast.extract", "answer_types")["words"]
    return _SLOT.sub(lambda slot: f"(?:{alternatives(words[slot[1]])})", pattern)


@cache
def _asking() -> tuple[tuple[Wanted, re.Pattern[str]], ...]:
    """What questions of each kind look like. Compiled at first use: importing should cost nothing."""
    listed = read_lists("holdfast.extract", "answer_types")["questions"]["asking"]
    return tuple((kind, re.compile(_pattern(form), re.IGNORECASE)) for kind, form in listed)


@cache
def _offering(wanted: Wanted) -> re.Pattern[str]:
    """What a sentence looks like that holds such a thing. Names of people are told by their capitals."""
    form: str | list[str] = read_lists("holdfast.extract", "answer_types")["offers"][wanted]
    joined = alternatives(form) if isinstance(form, str) else "|".join(form)
    return re.compile(_pattern(joined), re.NOFLAG if wanted == "person" else re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question's text, its terms with their weights, and the kinds of thing that an answer should hold."""

    text: str
    language: str
    terms: Mapping[str, float]
    wanted: frozenset[Wanted]


def understand(text: str, language: str | None = None) -> AskedQuestion:
    """What a question asks for.

    >>> sorted(understand("How much did the bridge cost, and when was it opened?").wanted)
    ['date', 'money']
    """
    chosen = language or guess_language(text)
    wanted: set[Wanted] = set()
    rest = text
    for kind, pattern in _asking():
        match = pattern.search(rest)
        if match:
            wanted.add(kind)
            rest = rest[: match.start()] + " " + rest[match.end() :]  # "how many days" wants a duration, not also a number
    if wanted & {"money", "share", "measure", "duration", "time"}:
        wanted.discard("number")
    return AskedQuestion(text, chosen, _weighed_terms(rest, chosen) or _weighed_terms(text, chosen), frozenset(wanted))


def _weighed_terms(text: str, language: str) -> dict[str, float]:
    """The terms of a question and how much each counts: what follows a preposition is the setting, a name names the subject."""
    weighed: dict[str, float] = {}
    for n, piece in enumerate(_SETTING.split(text)):
        for word in tokenise(piece):
            named = word.text[:1].isupper() and word.text != word.text.upper()
            for key in keys(word, language):
                weighed.setdefault(key, (1.0 if n == 0 else 0.8) * (0.7 if named else 1.0))
    return weighed


@lru_cache(maxsize=16384)
def offers(text: str, wanted: Wanted) -> bool:
    """Whether a sentence holds a thing of the wanted kind."""
    if wanted == "date":
        return bool(find_dates(text, _REFERENCE))
    return _offering(wanted).search(text) is not None
