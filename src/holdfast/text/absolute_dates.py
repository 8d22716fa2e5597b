"""Dates that say their year, and months, days, quarters and feasts that leave it out."""

from __future__ import annotations

import re
from datetime import date

from holdfast.text import date_rules
from holdfast.text.date_rules import (
    DAY,
    ENGLISH_MONTH,
    FEASTS,
    MONTH,
    MONTH_WORDS,
    NUMBERS,
    WEEKDAY,
    YEAR,
    Context,
    Found,
    Rulebook,
    full_year,
    latest,
    month_number,
    of_lead,
)

BOOK = Rulebook()


@BOOK.rule(
    rf"(?<![\d.-])({YEAR})[-/.]({DAY}|0[1-9]|1[0-2])[-/.]({DAY})(?:(?=[T ]\d\d:)|(?![\d-]))",
    "####",
)
def _iso(match: re.Match[str], context: Context) -> Found:
    return Found(date_rules.day(date(int(match[1]), int(match[2]), int(match[3]))), "day")


@BOOK.rule(
    rf"(?<![\d/.-])({YEAR})-(0[1-9]|1[0-2])(?![\d-])",
    "####",
)
def _iso_month(match: re.Match[str], context: Context) -> Found:
    return Found(date_rules.month(int(match[1]), int(match[2])), "month")


@BOOK.rule(
    r"(?<![\d-])(\d{4})-?W(\d{2})(?!\d)",
    "####",
    "w",
)
def _iso_week(match: re.Match[str], context: Context) -> Found:
    return Found(date_rules.week(date.fromisocalendar(int(match[1]), int(match[2]), 1)), "week")


@BOOK.rule(
    r"(?<![\d/.-])(\d{1,2})([/.-])(\d{1,2})\2(\d{4}|\d{2})(?![\d/-]|\.\d)",
    "#",
)
def _slashed(match: re.Match[str], context: Context) -> Found | None:
    first, second, year = int(match[1]), int(match[3]), int(match[4])
    if len(match[4]) == 2 and match[2] != "/":  # 1.2.34 is a version, 10-12-14 is anything
        return None
    year = full_year(year)
    dotted = match[2] == "."  # written with dots, the day always comes first
    if second > 12 or (first <= 12 and not context.day_first and not dotted):
        first, second = second, first
    days = date_rules.day(date(year, second, first))
    turned = date(year, first, second) if first <= 12 and first != second and not dotted else None
    return Found(days, "day", other=turned)


@BOOK.rule(
    rf"(?:\b{WEEKDAY},?\s+)?\b(?:the\s+|le\s+|el\s+|il\s+)?({DAY})(?:st|nd|rd|th|\.|er|º|°)?\s+(?:of\s+|de\s+|d['’])?({MONTH})"
    rf"(?:,?\s*(?:de\s+|del\s+)?({YEAR}|['’]\d\d)(?!\d))?",
    "#",
    MONTH_WORDS,
)
def _day_month(match: re.Match[str], context: Context) -> Found:
    return _month_day(context, match[2], match[1], match[3])


@BOOK.rule(
    rf"(?:\b{WEEKDAY},?\s+)?\b({ENGLISH_MONTH})\s+(?:the\s+)?({DAY})(?:st|nd|rd|th)?(?![\d:])(?!\s*(?:-|–|to)\s*{DAY}(?:st|nd|rd|th)?\b(?!:|\s*{ENGLISH_MONTH}))"
    rf"(?:,?\s*({YEAR}|['’]\d\d)(?!\d))?",
    "#",
    MONTH_WORDS,
)
def _english_month_day(match: re.Match[str], context: Context) -> Found:
    return _month_day(context, match[1], match[2], match[3])


def _month_day(context: Context, name: str, number: str, year: str | None) -> Found:
    if year is not None:
        in_year = full_year(int(year.lstrip("'’")))
        return Found(date_rules.day(date(in_year, month_number(name), int(number))), "day")
    return Found(latest(context, lambda y: date_rules.day(_real_day(y, month_number(name), int(number)))), "day", relative=True)


def _real_day(year: int, month: int, number: int) -> date:
    """29 February without a year: the leap year before."""
    while (month, number) == (2, 29) and not (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)):
        year -= 1
    return date(year, month, number)


@BOOK.rule(
    rf"\b({ENGLISH_MONTH})\s+({DAY})(?:st|nd|rd|th)?\s*(?:-|–|to)\s*({DAY})(?:st|nd|rd|th)?(?![\d:])(?:,?\s*({YEAR}))?",
    "#",
    MONTH_WORDS,
)
def _days_of_month(match: re.Match[str], context: Context) -> Found:
    number, first, last = month_number(match[1]), int(match[2]), int(match[3])
    if match[4]:
        return Found((date(int(match[4]), number, first), date(int(match[4]), number, last)), "range")
    return Found(latest(context, lambda y: (date(y, number, first), date(y, number, last))), "range", relative=True)


@BOOK.rule(
    rf"\b(?:(early|mid|late)[\s-]+)?({MONTH})(?:,?\s+(?:of\s+|de\s+|del\s+)?)({YEAR}|['’]\d\d)(?!\d)",
    "#",
    MONTH_WORDS,
)
def _month_year(match: re.Match[str], context: Context) -> Found:
    days = date_rules.month(full_year(int(match[3].lstrip("'’"))), month_number(match[2]))
    return Found(date_rules.part(days, match[1].lower()), "range") if match[1] else Found(days, "month")


@BOOK.rule(
    r"\b(?:(?P<before>in|since|by|during|until|till|before|after|from|of|im|en|für|seit|ab|dès|to|between|and|through)\s+)?"
    rf"(?P<at>(?:(?P<lead>last|next|this)\s+)?(?:(?P<part>early|mid|late)[\s-]+)?(?P<month>{MONTH}))(?!\s*\d)",
    MONTH_WORDS,
)
def _bare_month(match: re.Match[str], context: Context) -> Found | None:
    name, lead, part = match["month"], (match["lead"] or "").lower(), match["part"]
    plain = name.lower().rstrip(".")
    if not name[0].isupper() and (len(plain) <= 3 or plain in ("march", "mars")):
        return None  # "may" and "march" are verbs, "ago" and "dic" are no months in English
    if not (match["before"] or lead or part) and (not name[0].isupper() or plain in ("may", "mar", "march", "gen", "ago", "mai", "sep")):
        return None
    number = month_number(name)
    days = of_lead(lead, context, lambda year: date_rules.month(year, number))
    return Found(date_rules.part(days, part.lower()), "range", relative=True) if part else Found(days, "month", relative=True)


@BOOK.rule(
    rf"\bQ([1-4])(?:\s+(?:of\s+)?|[-/\s]*)({YEAR}|['’]?\d\d(?!\d))\b|\b({YEAR})[-\s]?Q([1-4])\b|\bQ([1-4])\b",
    "q",
)
def _quarter(match: re.Match[str], context: Context) -> Found:
    number = int(match[1] or match[4] or match[5])
    year = match[2] or match[3]
    if year is None:
        return Found(latest(context, lambda y: date_rules.quarter(y, number)), "quarter", relative=True)
    return Found(date_rules.quarter(full_year(int(year.lstrip("'’"))), number), "quarter")


@BOOK.rule(
    rf"\b(first|second|third|fourth|last|1st|2nd|3rd|4th)\s+(quarter|half)\s+(?:of\s+)?({YEAR})\b|\bH([12])[\s-]*({YEAR})\b",
    "####",
    "quarter half h",
)
def _part_of_year(match: re.Match[str], context: Context) -> Found:
    year = int(match[3] or match[5])
    if match[2] and match[2].lower() == "quarter":
        return Found(date_rules.quarter(year, 4 if match[1].lower() == "last" else NUMBERS[match[1].lower()]), "quarter")
    half = int(match[4]) if match[4] else 2 if match[1].lower() == "last" else NUMBERS[match[1].lower()]
    if half > 2:
        return Found(date_rules.year(year), "year")
    return Found((date_rules.quarter(year, half * 2 - 1)[0], date_rules.quarter(year, half * 2)[1]), "half")


@BOOK.rule(
    rf"\b(?:(last|this|next|in(?:\s+the)?|the)\s+)?(spring|summer|autumn|fall|winter)(?:\s+(?:of\s+)?({YEAR})\b)?",
    "spring summer autumn fall winter",
)
def _season(match: re.Match[str], context: Context) -> Found | None:
    lead, name, year = (match[1] or "").lower(), match[2].lower(), match[3]
    if year:
        return Found(date_rules.season(int(year), name), "season")
    if lead not in ("last", "this", "next") or (name in ("fall", "spring") and not lead):
        return None
    return Found(of_lead(lead, context, lambda y: date_rules.season(y, name)), "season", relative=True)


@BOOK.rule(
    r"(?:\b(?:in|since|by|during|of|until|till|from|before|after|around|circa|c\.|year|between|and|to|im Jahr|en|dans|seit|von|bis"
    r"|anno|nel|em|desde)\s+|(?<=\()|(?=\b(?:early|mid|late)[\s-]))"
    rf"(?P<at>(?:(?P<part>early|mid|late)[\s-]+)?(?P<year>{YEAR}))(?![\d%°]|[.,:/-]\d"
    r"|\s*(?:tokens|bytes|[mkg]b|px|users|people|km|kg|ms|rows|lines|files|items|words|dollars|euros|€)\b)",
    "####",
)
def _bare_year(match: re.Match[str], context: Context) -> Found:
    days = date_rules.year(int(match["year"]))
    return Found(date_rules.part(days, match["part"].lower()), "range") if match["part"] else Found(days, "year")


@BOOK.rule(
    r"\b(?:the\s+)?(?:(early|mid|late)[\s-]+)?((?:1[5-9]|20)\d0)['’]?s\b|\b(?:the\s+)['’]?([2-9]0)s\b",
    "#",
    "s",
)
def _decade(match: re.Match[str], context: Context) -> Found:
    first = int(match[2]) if match[2] else 1900 + int(match[3])
    days = (date(first, 1, 1), date(first + 9, 12, 31))
    return Found(date_rules.part(days, match[1].lower()), "range") if match[1] else Found(days, "decade")


@BOOK.rule(
    r"\b(?:last\s+|this\s+|next\s+)?(?:"
    + "|".join(name.replace("'", "['’]").replace(".", r"\.") for name in FEASTS)
    + rf")\b(?:,?\s+({YEAR}))?",
    "christmas xmas boxing new halloween valentine valentines thanksgiving easter friday independence patrick labor labour memorial mother",
)
def _feast(match: re.Match[str], context: Context) -> Found:
    words = re.sub(r",?\s+\d{4}$", "", match[0])
    lead = re.match(r"(last|this|next)\s+", words, re.IGNORECASE)
    name = words[lead.end() :] if lead else words
    if match[1]:
        return Found(date_rules.feast(name, int(match[1])), "day")
    return Found(of_lead(lead[1].lower() if lead else "", context, lambda y: date_rules.feast(name, y)), "day", relative=True)
