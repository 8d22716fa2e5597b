"""English expressions that count from today: "yesterday", "two weeks ago", "the weekend before last"."""

from __future__ import annotations

import re
from datetime import date, timedelta

from holdfast.text import almanac
from holdfast.text.almanac import WEEKDAYS
from holdfast.text.date_rules import (
    COUNT,
    LONG_WEEKDAY,
    UNIT,
    UNIT_WORDS,
    WEEKDAY,
    WEEKDAY_WORDS,
    Context,
    Found,
    Rulebook,
    number_of,
    unit_of,
)

BOOK = Rulebook()

_NEAR = {
    "the day before yesterday": -2, "day before yesterday": -2, "yesterday": -1, "last night": -1, "today": 0, "tonight": 0,
    "this morning": 0, "this afternoon": 0, "this evening": 0, "tomorrow": 1, "the day after tomorrow": 2, "day after tomorrow": 2,
}  # fmt: skip


@BOOK.rule(
    r"\b(?:the\s+day\s+before\s+yesterday|day\s+before\s+yesterday|yesterday|last\s+night|today|tonight|this\s+(?:morning|afternoon|evening)|tomorrow|(?:the\s+)?day\s+after\s+tomorrow)\b",
    "yesterday today tonight tomorrow night morning afternoon evening",
)
def _near_day(match: re.Match[str], context: Context) -> Found:
    away = _NEAR[" ".join(match[0].lower().split())]
    return Found(almanac.day(context.today + timedelta(days=away)), "day", relative=True)


@BOOK.rule(
    rf"\b(?:about\s+|around\s+|over\s+|almost\s+|nearly\s+)?({COUNT})\s+({UNIT})\s+(?:ago|back)\b",
    "ago back",
    UNIT_WORDS,
)
def _ago(match: re.Match[str], context: Context) -> Found:
    days, precision = almanac.shift(context.today, unit_of(match[2]), -number_of(match[1]))
    return Found(days, precision, relative=True)


@BOOK.rule(
    rf"\bin\s+(?:about\s+|around\s+)?({COUNT})\s+({UNIT})(?:['’]s?\s+time|\s+from\s+now|\s+from\s+today)?\b(?!\s+(?:ago|back|later|earlier))|\b({COUNT})\s+({UNIT})\s+from\s+(?:now|today)\b",
    "in from",
    UNIT_WORDS,
)
def _ahead(match: re.Match[str], context: Context) -> Found:
    days, precision = almanac.shift(context.today, unit_of(match[2] or match[4]), number_of(match[1] or match[3]))
    return Found(days, precision, relative=True)


@BOOK.rule(
    rf"\b({COUNT})\s+({UNIT})\s+(later|afterwards?|earlier|before|beforehand|prior)\b",
    "later afterward afterwards earlier before beforehand prior",
    UNIT_WORDS,
)
def _later(match: re.Match[str], context: Context) -> Found:
    sign = 1 if match[3].lower() in ("later", "afterward", "afterwards") else -1
    days, precision = almanac.shift(context.anchor or context.today, unit_of(match[2]), sign * number_of(match[1]))
    return Found(days, precision, relative=True)


@BOOK.rule(
    rf"\b(?:in\s+|over\s+|during\s+|within\s+|for\s+)?(?:the\s+)?(last|past|previous|next|coming|following)\s+({COUNT})\s+({UNIT})\b",
    "last past previous next coming following",
    UNIT_WORDS,
)
def _stretch(match: re.Match[str], context: Context) -> Found:
    count, unit, today = number_of(match[2]), unit_of(match[3]), context.today
    sign = 1 if match[1].lower() in ("next", "coming", "following") else -1
    if unit in ("month", "quarter", "year", "decade"):
        edge = almanac.add_months(today, sign * count * {"month": 1, "quarter": 3, "year": 12, "decade": 120}[unit])
    else:
        edge = today + timedelta(days=sign * count * {"day": 1, "week": 7, "weekend": 7, "fortnight": 14}[unit])
    return Found((min(edge, today), max(edge, today)), "range", relative=True)


@BOOK.rule(
    r"\b(?:the\s+)?(week(?:end)?|month|year|quarter|" + LONG_WEEKDAY + r")\s+(before\s+last|after\s+next)\b",
    "last next",
    "before after",
)
def _second_next(match: re.Match[str], context: Context) -> Found:
    return _named(match[1].lower(), -2 if match[2].lower().startswith("before") else 2, context)


@BOOK.rule(
    r"\b(?:(earlier|later|early|late|(?:the\s+)?(?:end|beginning|start|middle)\s+of|mid)\s+)?(?:the\s+)?(last|this|next|past|previous|coming|current|following)\s+"
    rf"(week(?:end)?|month|year|quarter|decade|century|{WEEKDAY})\b",
    "last this next past previous coming current following",
    UNIT_WORDS + " century " + WEEKDAY_WORDS,
)
def _turned(match: re.Match[str], context: Context) -> Found:
    step = {"last": -1, "past": -1, "previous": -1, "this": 0, "current": 0}.get(match[2].lower(), 1)
    found = _named(match[3].lower(), step, context)
    if not match[1] or found.precision == "day":
        return found
    which = match[1].lower().removeprefix("the ").split()[0]
    if which == "earlier":
        return Found((found.days[0], min(context.today, found.days[1])), "range", relative=True)
    if which == "later":
        return Found((max(context.today, found.days[0]), found.days[1]), "range", relative=True)
    return Found(almanac.part(found.days, which), "range", relative=True)


def _named(name: str, step: int, context: Context) -> Found:
    """The day or stretch `step` turns away from the current one; a weekday turns from today, not from this week."""
    today = context.today
    if name in WEEKDAYS:
        return Found(almanac.day(_weekday(today, WEEKDAYS[name], step)), "day", relative=True)
    if name == "week":
        return Found(almanac.week(today + timedelta(days=7 * step)), "week", relative=True)
    if name == "weekend":
        # On a Sunday "last weekend" is not the one that is ending.
        return Found(almanac.weekend(today + timedelta(days=7 * step)), "weekend", relative=True)
    if name == "month":
        moved = almanac.add_months(today.replace(day=1), step)
        return Found(almanac.month(moved.year, moved.month), "month", relative=True)
    if name == "quarter":
        moved = almanac.add_months(today.replace(day=1), 3 * step)
        return Found(almanac.quarter(moved.year, (moved.month + 2) // 3), "quarter", relative=True)
    if name == "year":
        return Found(almanac.year(today.year + step), "year", relative=True)
    length, precision = (10, "decade") if name == "decade" else (100, "century")
    first = today.year // length * length + step * length
    return Found((date(first, 1, 1), date(first + length - 1, 12, 31)), "decade" if precision == "decade" else "century", relative=True)


def _weekday(today: date, weekday: int, step: int) -> date:
    if step == 0:
        return today + timedelta(days=weekday - today.weekday())
    if step < 0:
        return today - timedelta(days=((today.weekday() - weekday - 1) % 7) + 1 + 7 * (-step - 1))
    return today + timedelta(days=((weekday - today.weekday() - 1) % 7) + 1 + 7 * (step - 1))


@BOOK.rule(
    rf"\b(?:(?P<before>on|since|until|till|by|from|before|after)\s+)?(?P<at>(?P<day>{LONG_WEEKDAY})(?:\s+(?:morning|afternoon|evening|night))?)",
    "monday tuesday wednesday thursday friday saturday sunday",
)
def _bare_weekday(match: re.Match[str], context: Context) -> Found | None:
    before, name = (match["before"] or "").lower(), match["day"]
    if not before and not name[0].isupper():
        return None
    weekday = WEEKDAYS[name.lower()]
    if weekday == context.today.weekday():
        return Found(almanac.day(context.today), "day", relative=True)
    return Found(almanac.day(_weekday(context.today, weekday, 1 if before in ("by", "until", "till") else -1)), "day", relative=True)


@BOOK.rule(
    r"\bon\s+the\s+(\d{1,2})(?:st|nd|rd|th)\b(?!\s+(?:of\s+)?[a-z]*\s*(?:floor|street|avenue|anniversary|page|line|century))",
    "#",
    "on",
)
def _day_of_this_month(match: re.Match[str], context: Context) -> Found:
    number, first = int(match[1]), context.today.replace(day=1)
    if number > context.today.day:
        first = almanac.add_months(first, -1)
    return Found(almanac.day(first.replace(day=number)), "day", relative=True)
