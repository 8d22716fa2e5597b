"""What the date parser is made of: the form of a rule, and a calendar of months, weeks, quarters, seasons and feasts with their names.

Rules do not care about overlaps: the earliest and longest match wins, then the earlier rule. A resolver may return None or
raise ValueError for something that only looks like a date. The calendar's functions return a first and a last day, or raise ValueError
or OverflowError for days that do not exist.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from typing import Literal

Precision = Literal["day", "weekend", "week", "month", "quarter", "season", "half", "year", "decade", "century", "range"]
Days = tuple[date, date]


def _numbered(names: str) -> dict[str, int]:
    """Names in groups of equal meaning: `a|b c` gives {a: 1, b: 1, c: 2}."""
    return {name: number for number, group in enumerate(names.split(), 1) for name in group.split("|")}


MONTHS: dict[str, int] = {
    **_numbered("janvier|janv février|févr mars avril|avr mai juin juillet|juil août|aout septembre octobre novembre décembre|déc"),
    **_numbered("enero|ene febrero marzo abril|abr mayo junio julio agosto|ago septiembre|setiembre octubre noviembre diciembre|dic"),
    **_numbered("januar|jänner februar märz|maerz|mär april mai juni juli august september oktober|okt november dezember|dez"),
    **_numbered("gennaio|gen febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre"),
    **_numbered("janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro"),
    **_numbered("januari februari maart|mrt april mei juni juli augustus september oktober november december"),
    **_numbered("january february march april may june july august september october november december"),
    **_numbered("jan feb mar apr may jun jul aug sep|sept oct nov dec"),
}  # fmt: skip
WEEKDAYS: dict[str, int] = {
    name: number - 1
    for name, number in _numbered(
        "monday|mon tuesday|tues|tue wednesday|wed thursday|thurs|thur|thu friday|fri saturday|sat sunday|sun"
    ).items()
}
NUMBERS: dict[str, int] = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16, "eighteen": 18, "twenty": 20, "thirty": 30,
    "forty": 40, "fifty": 50, "ninety": 90, "hundred": 100, "couple": 2, "few": 3, "several": 4, "dozen": 12, "half a dozen": 6,
    "first": 1, "second": 2, "third": 3, "fourth": 4, "1st": 1, "2nd": 2, "3rd": 3, "4th": 4,
    "ein": 1, "eine": 1, "einem": 1, "einer": 1, "zwei": 2, "drei": 3, "vier": 4, "fünf": 5, "sechs": 6, "sieben": 7, "acht": 8, "zehn": 10,
    "un": 1, "une": 1, "deux": 2, "trois": 3, "quatre": 4, "cinq": 5, "sept": 7, "huit": 8, "dix": 10,
    "una": 1, "dos": 2, "tres": 3, "cuatro": 4, "cinco": 5, "seis": 6, "siete": 7, "ocho": 8, "diez": 10,
    "一": 1, "二": 2, "两": 2, "兩": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9, "十": 10, "几": 3, "数": 3,
}  # fmt: skip
UNITS: dict[str, Literal["day", "week", "fortnight", "month", "quarter", "year", "decade", "century", "weekend"]] = {
    "day": "day", "week": "week", "fortnight": "fortnight", "month": "month", "quarter": "quarter", "year": "year", "decade": "decade",
    "century": "century", "weekend": "weekend",
    "tag": "day", "tage": "day", "tagen": "day", "woche": "week", "wochen": "week", "monat": "month", "monate": "month", "monaten": "month",
    "jahr": "year", "jahre": "year", "jahren": "year",
    "jour": "day", "jours": "day", "semaine": "week", "semaines": "week", "mois": "month", "an": "year", "ans": "year", "année": "year",
    "años": "year", "año": "year", "días": "day", "día": "day", "dia": "day", "dias": "day", "semana": "week", "semanas": "week",
    "mes": "month", "meses": "month", "années": "year",
    "天": "day", "日": "day", "周": "week", "週": "week", "星期": "week", "週間": "week", "礼拜": "week", "月": "month", "个月": "month",
    "個月": "month", "か月": "month", "ヶ月": "month", "カ月": "month", "ケ月": "month", "年": "year",
}  # fmt: skip
FEASTS = (
    "christmas eve", "christmas day", "christmas", "xmas", "boxing day", "new year's eve", "new years eve", "new year's day",
    "new years day", "new year's", "halloween", "valentine's day", "valentines day", "thanksgiving", "easter sunday", "easter monday",
    "easter", "good friday", "independence day", "st. patrick's day", "st patrick's day", "labor day", "labour day", "memorial day",
    "mother's day", "black friday",
)  # fmt: skip
_FIXED = {
    "christmas eve": (12, 24), "christmas day": (12, 25), "christmas": (12, 25), "xmas": (12, 25), "boxing day": (12, 26),
    "new years eve": (12, 31), "new years day": (1, 1), "new years": (1, 1), "halloween": (10, 31), "valentines day": (2, 14),
    "independence day": (7, 4), "st patricks day": (3, 17),
}  # fmt: skip


def day(when: date) -> Days:
    return when, when


def week(when: date) -> Days:
    """Monday to Sunday."""
    monday = when - timedelta(days=when.weekday())
    return monday, monday + timedelta(days=6)


def weekend(when: date) -> Days:
    """Saturday and Sunday of the week that the day is in."""
    saturday = when + timedelta(days=5 - when.weekday())
    return saturday, saturday + timedelta(days=1)


def month(in_year: int, number: int) -> Days:
    first = date(in_year, number, 1)
    return first, _before(add_months(first, 1)) if (in_year, number) != (9999, 12) else date(9999, 12, 31)


def quarter(in_year: int, number: int) -> Days:
    if not 1 <= number <= 4:
        raise ValueError(f"there is no quarter {number}")
    return month(in_year, number * 3 - 2)[0], month(in_year, number * 3)[1]


def year(number: int) -> Days:
    return date(number, 1, 1), date(number, 12, 31)


def season(in_year: int, name: str) -> Days:
    """Of the northern half of the earth; winter begins in December of the year before."""
    number = {"winter": 0, "spring": 1, "summer": 2, "autumn": 3, "fall": 3}[name]
    if number == 0:
        return date(in_year - 1, 12, 1), month(in_year, 2)[1]
    return month(in_year, number * 3)[0], month(in_year, number * 3 + 2)[1]


def add_months(when: date, months: int) -> date:
    """The same day so many months away, or the last day of a shorter month."""
    ahead, index = divmod(when.year * 12 + when.month - 1 + months, 12)
    for back in range(4):
        try:
            return date(ahead, index + 1, when.day - back)
        except ValueError:
            if back == 3:
                raise
    raise AssertionError("every month has 28 days")


def shift(when: date, unit: str, count: int) -> tuple[Days, Precision]:
    """The stretch that "count units away" means.

    A day is exact, a week give or take three days, a month give or take half of one, a year the whole calendar year.
    """
    if abs(count) > 20_000:
        raise OverflowError("too far away to be meant")
    if unit == "day":
        return day(when + timedelta(days=count)), "day"
    if unit in ("week", "fortnight"):
        middle = when + timedelta(days=count * (14 if unit == "fortnight" else 7))
        return (middle - timedelta(days=3), middle + timedelta(days=3)), "week"
    if unit == "weekend":
        return weekend(when + timedelta(days=7 * count)), "weekend"
    if unit in ("month", "quarter"):
        middle = add_months(when, count * (3 if unit == "quarter" else 1))
        return (middle - timedelta(days=15), middle + timedelta(days=15)), "month"
    years = count * {"year": 1, "decade": 10, "century": 100}[unit]
    return year(when.year + years), "year"


def part(days: Days, which: str) -> Days:
    """The early, middle or late third of a stretch."""
    first, last = days
    length = (last - first).days + 1
    if which in ("early", "beginning", "start"):
        return first, first + timedelta(days=max(length // 3 - 1, 0))
    if which in ("mid", "middle"):
        return first + timedelta(days=length // 3), last - timedelta(days=length // 3)
    return last - timedelta(days=max(length // 3 - 1, 0)), last


def feast(name: str, in_year: int) -> Days:
    plain = name.lower().replace("'", "").replace("’", "").replace(".", "")
    if plain in _FIXED:
        return day(date(in_year, *_FIXED[plain]))
    if plain.startswith("easter") or plain == "good friday":
        return day(_easter(in_year) + timedelta(days={"easter monday": 1, "good friday": -2}.get(plain, 0)))
    if plain in ("thanksgiving", "black friday"):
        return day(_nth(in_year, 11, 3, 4) + timedelta(days=int(plain == "black friday")))
    if plain in ("labor day", "labour day"):
        return day(_nth(in_year, 9, 0, 1))
    if plain == "mothers day":
        return day(_nth(in_year, 5, 6, 2))
    if plain == "memorial day":
        return day(_nth(in_year, 6, 0, 1) - timedelta(days=7))
    raise ValueError(f"{name!r} is no feast known here")


def _nth(in_year: int, number: int, weekday: int, nth: int) -> date:
    first = date(in_year, number, 1)
    return first + timedelta(days=(weekday - first.weekday()) % 7 + 7 * (nth - 1))


def _easter(in_year: int) -> date:
    """The Gregorian computus, in the form of Meeus, Jones and Butcher."""
    a, (b, c) = in_year % 19, divmod(in_year, 100)
    d, e = divmod(b, 4)
    g = (8 * b + 13) // 25
    h = (19 * a + b - d - g + 15) % 30
    i, k = divmod(c, 4)
    m = (32 + 2 * e + 2 * i - h - k) % 7
    n = (a + 11 * h + 22 * m) // 451
    number, rest = divmod(h + m - 7 * n + 114, 31)
    return date(in_year, number, rest + 1)


def _before(when: date) -> date:
    return when - timedelta(days=1)


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
