"""What the rules behind `dates.py` are made of: a pattern for each form, and what days it means.

Rules do not care about overlaps: the earliest and longest match wins, then the earlier rule. A resolver may return None or
raise ValueError for something that only looks like a date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from functools import cache

from holdfast.text.almanac import MONTHS, NUMBERS, UNITS, WEEKDAYS, Days, Precision


@dataclass(frozen=True, slots=True)
class Context:
    """What a rule may know: today, how 03/04 is read, and the date found before."""

    today: date
    day_first: bool
    anchor: date | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What an expression means."""

    days: Days
    precision: Precision
    relative: bool = False
    other: date | None = None


Resolver = Callable[[re.Match[str], Context], Found | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """A form of date.

    `needs` are sets of words, each of which must share one with the text for the pattern to be worth trying: looking words up is far
    cheaper than matching. `#` stands for any figure, `####` for one of four digits; letters of scripts without spaces are single.
    A group named `at` in the pattern marks the expression itself when the pattern also looks at what is around it.
    """

    expression: str
    needs: tuple[frozenset[str], ...]
    resolve: Resolver

    @property
    def pattern(self) -> re.Pattern[str]:
        """Compiled at first use: most programs meet few of the forms, and importing should cost nothing."""
        return _compiled(self.expression)


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.IGNORECASE)


def _alternatives(words: Iterable[str]) -> str:
    """A pattern for any of the words, the longest first, parted by first letter so that most words of a text fail at once."""
    by_letter: dict[str, list[str]] = {}
    for word in sorted(words, key=lambda word: (-len(word), word)):
        by_letter.setdefault(word[0], []).append(word[1:])
    return "(?:" + "|".join(f"{letter}(?:{'|'.join(rest)})" for letter, rest in sorted(by_letter.items())) + ")"


DAY = r"(?:0?[1-9]|[12]\d|3[01])"
YEAR = r"(?:1[0-9]|20|21)\d\d"
MONTH = _alternatives(MONTHS) + r"\b\.?"
_ENGLISH_MONTHS = (
    "january february march april may june july august september october november december jan feb mar apr jun jul aug sep sept oct nov dec"
)
ENGLISH_MONTH = _alternatives(_ENGLISH_MONTHS.split()) + r"\b\.?"
WEEKDAY = _alternatives(WEEKDAYS) + r"\b"
LONG_WEEKDAY = r"(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday)\b"
COUNT = (
    r"(?:\d{1,5}|(?:a\s+)?(?:couple|few|dozen)(?:\s+of)?|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen"
    r"|twenty|thirty|several)"
)
UNIT = r"(?:day|week(?:end)?|fortnight|month|quarter|year|decade)s?"

MONTH_WORDS = " ".join(MONTHS)
WEEKDAY_WORDS = " ".join(WEEKDAYS)
UNIT_WORDS = "day days week weeks weekend weekends fortnight fortnights month months quarter quarters year years decade decades"


class Rulebook:
    """Rules in order. `rule` is a decorator that adds one."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []

    def rule(self, pattern: str, *needs: str) -> Callable[[Resolver], Resolver]:
        def add(resolve: Resolver) -> Resolver:
            self.rules.append(Rule(pattern, tuple(frozenset(words.split()) for words in needs), resolve))
            return resolve

        return add


def number_of(word: str) -> int:
    words = word.lower().split()
    if words[0] in ("a", "an") and len(words) > 1 and words[1] in NUMBERS:
        words = words[1:]
    return int(words[0]) if words[0].isdecimal() else NUMBERS[words[0]]


def unit_of(word: str) -> str:
    small = word.lower()
    return UNITS.get(small) or UNITS[small.removesuffix("s")]


def month_number(name: str) -> int:
    return MONTHS[name.lower().rstrip(".")]


def full_year(number: int) -> int:
    return number + (2000 if number < 70 else 1900) if number < 100 else number


def latest(context: Context, make: Callable[[int], Days]) -> Days:
    """The latest such stretch of a year that has begun by today."""
    days = make(context.today.year)
    return days if days[0] <= context.today else make(context.today.year - 1)


def coming(context: Context, make: Callable[[int], Days]) -> Days:
    days = make(context.today.year)
    return days if days[0] > context.today else make(context.today.year + 1)


def of_lead(lead: str, context: Context, make: Callable[[int], Days]) -> Days:
    """The one that "last", "this" or "next" picks; without such a word the latest that has begun."""
    if lead == "next":
        return coming(context, make)
    if lead == "this":
        return make(context.today.year)
    if lead == "last":
        days = latest(context, make)
        return days if days[1] < context.today else make(days[1].year - 1)
    return latest(context, make)
