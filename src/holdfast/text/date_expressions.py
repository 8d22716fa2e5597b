"""The rules by which dates are found: those that say their year, those that leave it out, and those that count from today.

"3 May 2024", "in March", "Q2", "Easter"; "yesterday", "two weeks ago", "the weekend before last". English first; then relative days in
German, French and Spanish, and all forms of Chinese and Japanese.
"""

from __future__ import annotations

import re
from datetime import date, timedelta

from holdfast.text import date_rules
from holdfast.text.date_rules import (
    COUNT,
    DAY,
    ENGLISH_MONTH,
    FEASTS,
    LONG_WEEKDAY,
    MONTH,
    MONTH_WORDS,
    NUMBERS,
    UNIT,
    UNIT_WORDS,
    WEEKDAY,
    WEEKDAY_WORDS,
    WEEKDAYS,
    YEAR,
    Context,
    Found,
    Rulebook,
    full_year,
    latest,
    month_number,
    number_of,
    of_lead,
    unit_of,
)
from holdfast.text.language import guess_language

BOOK = Rulebook()


@BOOK.rule(rf"(?<![\d.-])({YEAR})[-/.]({DAY}|0[1-9]|1[0-2])[-/.]({DAY})(?:(?=[T ]\d\d:)|(?![\d-]))", "####")
def _iso(match: re.Match[str], context: Context) -> Found:
    return Found(date_rules.day(date(int(match[1]), int(match[2]), int(match[3]))), "day")


@BOOK.rule(rf"(?<![\d/.-])({YEAR})-(0[1-9]|1[0-2])(?![\d-])", "####")
def _iso_month(match: re.Match[str], context: Context) -> Found:
    return Found(date_rules.month(int(match[1]), int(match[2])), "month")


@BOOK.rule(r"(?<![\d-])(\d{4})-?W(\d{2})(?!\d)", "####", "w")
def _iso_week(match: re.Match[str], context: Context) -> Found:
    return Found(date_rules.week(date.fromisocalendar(int(match[1]), int(match[2]), 1)), "week")


@BOOK.rule(r"(?<![\d/.-])(\d{1,2})([/.-])(\d{1,2})\2(\d{4}|\d{2})(?![\d/-]|\.\d)", "#")
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
    rf"\b({ENGLISH_MONTH})\s+({DAY})(?:st|nd|rd|th)?\s*(?:-|–|to)\s*({DAY})(?:st|nd|rd|th)?(?![\d:])(?:,?\s*({YEAR}))?", "#", MONTH_WORDS
)
def _days_of_month(match: re.Match[str], context: Context) -> Found:
    number, first, last = month_number(match[1]), int(match[2]), int(match[3])
    if match[4]:
        return Found((date(int(match[4]), number, first), date(int(match[4]), number, last)), "range")
    return Found(latest(context, lambda y: (date(y, number, first), date(y, number, last))), "range", relative=True)


@BOOK.rule(rf"\b(?:(early|mid|late)[\s-]+)?({MONTH})(?:,?\s+(?:of\s+|de\s+|del\s+)?)({YEAR}|['’]\d\d)(?!\d)", "#", MONTH_WORDS)
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


@BOOK.rule(rf"\bQ([1-4])(?:\s+(?:of\s+)?|[-/\s]*)({YEAR}|['’]?\d\d(?!\d))\b|\b({YEAR})[-\s]?Q([1-4])\b|\bQ([1-4])\b", "q")
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


@BOOK.rule(r"\b(?:the\s+)?(?:(early|mid|late)[\s-]+)?((?:1[5-9]|20)\d0)['’]?s\b|\b(?:the\s+)['’]?([2-9]0)s\b", "#", "s")
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
    return Found(date_rules.day(context.today + timedelta(days=away)), "day", relative=True)


@BOOK.rule(rf"\b(?:about\s+|around\s+|over\s+|almost\s+|nearly\s+)?({COUNT})\s+({UNIT})\s+(?:ago|back)\b", "ago back", UNIT_WORDS)
def _ago(match: re.Match[str], context: Context) -> Found:
    days, precision = date_rules.shift(context.today, unit_of(match[2]), -number_of(match[1]))
    return Found(days, precision, relative=True)


@BOOK.rule(
    rf"\bin\s+(?:about\s+|around\s+)?({COUNT})\s+({UNIT})(?:['’]s?\s+time|\s+from\s+now|\s+from\s+today)?\b(?!\s+(?:ago|back|later|earlier))|\b({COUNT})\s+({UNIT})\s+from\s+(?:now|today)\b",
    "in from",
    UNIT_WORDS,
)
def _ahead(match: re.Match[str], context: Context) -> Found:
    days, precision = date_rules.shift(context.today, unit_of(match[2] or match[4]), number_of(match[1] or match[3]))
    return Found(days, precision, relative=True)


@BOOK.rule(
    rf"\b({COUNT})\s+({UNIT})\s+(later|afterwards?|earlier|before|beforehand|prior)\b",
    "later afterward afterwards earlier before beforehand prior",
    UNIT_WORDS,
)
def _later(match: re.Match[str], context: Context) -> Found:
    sign = 1 if match[3].lower() in ("later", "afterward", "afterwards") else -1
    days, precision = date_rules.shift(context.anchor or context.today, unit_of(match[2]), sign * number_of(match[1]))
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
        edge = date_rules.add_months(today, sign * count * {"month": 1, "quarter": 3, "year": 12, "decade": 120}[unit])
    else:
        edge = today + timedelta(days=sign * count * {"day": 1, "week": 7, "weekend": 7, "fortnight": 14}[unit])
    return Found((min(edge, today), max(edge, today)), "range", relative=True)


@BOOK.rule(
    r"\b(?:the\s+)?(week(?:end)?|month|year|quarter|" + LONG_WEEKDAY + r")\s+(before\s+last|after\s+next)\b", "last next", "before after"
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
    return Found(date_rules.part(found.days, which), "range", relative=True)


def _named(name: str, step: int, context: Context) -> Found:
    """The day or stretch `step` turns away from the current one; a weekday turns from today, not from this week."""
    today = context.today
    if name in WEEKDAYS:
        return Found(date_rules.day(_weekday(today, WEEKDAYS[name], step)), "day", relative=True)
    if name == "week":
        return Found(date_rules.week(today + timedelta(days=7 * step)), "week", relative=True)
    if name == "weekend":
        # On a Sunday "last weekend" is not the one that is ending.
        return Found(date_rules.weekend(today + timedelta(days=7 * step)), "weekend", relative=True)
    if name == "month":
        moved = date_rules.add_months(today.replace(day=1), step)
        return Found(date_rules.month(moved.year, moved.month), "month", relative=True)
    if name == "quarter":
        moved = date_rules.add_months(today.replace(day=1), 3 * step)
        return Found(date_rules.quarter(moved.year, (moved.month + 2) // 3), "quarter", relative=True)
    if name == "year":
        return Found(date_rules.year(today.year + step), "year", relative=True)
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
        return Found(date_rules.day(context.today), "day", relative=True)
    return Found(date_rules.day(_weekday(context.today, weekday, 1 if before in ("by", "until", "till") else -1)), "day", relative=True)


@BOOK.rule(
    r"\bon\s+the\s+(\d{1,2})(?:st|nd|rd|th)\b(?!\s+(?:of\s+)?[a-z]*\s*(?:floor|street|avenue|anniversary|page|line|century))", "#", "on"
)
def _day_of_this_month(match: re.Match[str], context: Context) -> Found:
    number, first = int(match[1]), context.today.replace(day=1)
    if number > context.today.day:
        first = date_rules.add_months(first, -1)
    return Found(date_rules.day(first.replace(day=number)), "day", relative=True)


_FOREIGN_NEAR = {
    "vorgestern": -2, "gestern": -1, "heute": 0, "übermorgen": 2, "avant-hier": -2, "hier": -1, "aujourd'hui": 0, "demain": 1,
    "après-demain": 2, "anteayer": -2, "antier": -2, "ayer": -1, "hoy": 0, "pasado mañana": 2, "前天": -2, "昨天": -1, "昨日": -1,
    "今天": 0, "今日": 0, "明天": 1, "明日": 1, "后天": 2, "後天": 2, "一昨日": -2, "おととい": -2, "昨夜": -1, "今朝": 0, "今晚": 0,
    "昨晚": -1, "明後日": 2,
}  # fmt: skip
_TURNED = {
    "letzte woche": ("week", -1), "vorige woche": ("week", -1), "diese woche": ("week", 0), "nächste woche": ("week", 1),
    "letzten monat": ("month", -1), "diesen monat": ("month", 0), "nächsten monat": ("month", 1), "letztes jahr": ("year", -1),
    "dieses jahr": ("year", 0), "nächstes jahr": ("year", 1), "la semaine dernière": ("week", -1), "cette semaine": ("week", 0),
    "la semaine prochaine": ("week", 1), "le mois dernier": ("month", -1), "ce mois-ci": ("month", 0), "le mois prochain": ("month", 1),
    "l'année dernière": ("year", -1), "l'an dernier": ("year", -1), "cette année": ("year", 0), "l'année prochaine": ("year", 1),
    "la semana pasada": ("week", -1), "esta semana": ("week", 0), "la próxima semana": ("week", 1), "el mes pasado": ("month", -1),
    "este mes": ("month", 0), "el próximo mes": ("month", 1), "el año pasado": ("year", -1), "este año": ("year", 0),
    "el próximo año": ("year", 1), "上周": ("week", -1), "上星期": ("week", -1), "上个星期": ("week", -1), "上週": ("week", -1),
    "本周": ("week", 0), "这周": ("week", 0), "本週": ("week", 0), "這週": ("week", 0), "下周": ("week", 1), "下星期": ("week", 1),
    "下週": ("week", 1), "上个月": ("month", -1), "上個月": ("month", -1), "上月": ("month", -1), "本月": ("month", 0),
    "这个月": ("month", 0), "這個月": ("month", 0), "下个月": ("month", 1), "下個月": ("month", 1), "先週": ("week", -1),
    "今週": ("week", 0), "来週": ("week", 1), "先月": ("month", -1), "今月": ("month", 0), "来月": ("month", 1), "前年": ("year", -2),
    "去年": ("year", -1), "昨年": ("year", -1), "今年": ("year", 0), "明年": ("year", 1), "来年": ("year", 1),
}  # fmt: skip
_ERAS = {"令和": 2018, "平成": 1988, "昭和": 1925, "大正": 1911, "明治": 1867, "民国": 1911, "民國": 1911}


def _names(words: dict[str, object]) -> str:
    ordered = sorted(words, key=lambda word: (-len(word), word))
    return "|".join(re.escape(word).replace("'", "['’]") if not word.isascii() or len(word) > 3 else rf"\b{word}\b" for word in ordered)


@BOOK.rule(
    rf"(?<![a-zäöüß])(?:{_names({**_FOREIGN_NEAR})})(?![a-zäöüß])",
    "vorgestern gestern heute übermorgen avant hier aujourd demain après anteayer antier ayer hoy pasado 前 昨 今 明 后 後 と",
)
def _foreign_near_day(match: re.Match[str], context: Context) -> Found | None:
    word = match[0].lower().replace("’", "'")
    if word == "hier" and guess_language(match.string) != "fr":  # "here" in German
        return None
    return Found(date_rules.day(context.today + timedelta(days=_FOREIGN_NEAR[word])), "day", relative=True)


@BOOK.rule(rf"(?<![a-zäöüß])(?:{_names({**_TURNED})})(?![a-zäöüß])", "woche monat jahr semaine mois année an semana mes año 周 週 星 月 年")
def _foreign_turned(match: re.Match[str], context: Context) -> Found:
    unit, step = _TURNED[match[0].lower().replace("’", "'")]
    today = context.today
    if unit == "week":
        return Found(date_rules.week(today + timedelta(days=7 * step)), "week", relative=True)
    if unit == "month":
        moved = date_rules.add_months(today.replace(day=1), step)
        return Found(date_rules.month(moved.year, moved.month), "month", relative=True)
    return Found(date_rules.year(today.year + step), "year", relative=True)


_UNIT_WORDS = (
    "tag tagen woche wochen monat monaten jahr jahren jour jours semaine semaines mois an ans année années"
    " día días dia dias semana semanas mes meses año años"
)
_COUNT = (
    r"(\d{1,4}|ein(?:em|er|e)?|zwei|drei|vier|fünf|sechs|sieben|acht|zehn|une?|deux|trois|quatre|cinq|sept|huit|dix"
    r"|una?|dos|tres|cuatro|cinco|seis|siete|ocho|diez)"
)


@BOOK.rule(
    rf"\bvor\s+{_COUNT}\s+(tag(?:en)?|wochen?|monat(?:en)?|jahr(?:en)?)\b|\bil\s+y\s+a\s+{_COUNT}\s+(jours?|semaines?|mois|ans?|années?)\b"
    rf"|\bhace\s+{_COUNT}\s+(d[ií]as?|semanas?|mes(?:es)?|años?)\b",
    "vor il hace",
    _UNIT_WORDS,
)
def _foreign_ago(match: re.Match[str], context: Context) -> Found:
    count, unit = next((match[n], match[n + 1]) for n in (1, 3, 5) if match[n])
    days, precision = date_rules.shift(context.today, unit_of(unit), -number_of(count))
    return Found(days, precision, relative=True)


@BOOK.rule(r"(\d{1,4}|[一二两兩三四五六七八九十几数])\s*(天|日|周|週間|週|个?星期|[个個かヶカケ]月|年)(?:以?前|之前)", "前")
def _eastern_ago(match: re.Match[str], context: Context) -> Found:
    unit = match[2].removeprefix("个") if match[2].endswith("星期") else match[2]
    days, precision = date_rules.shift(context.today, unit_of(unit), -number_of(match[1]))
    return Found(days, precision, relative=True)


@BOOK.rule(
    rf"(?<!\d)(?:({YEAR})|(令和|平成|昭和|大正|明治|民国|民國)(\d{{1,2}}|元))\s*年(?:\s*(\d{{1,2}})\s*月(?:\s*(\d{{1,2}})\s*[日号號])?|\s*第?([一二三四1-4])季度)?",
    "年",
)
def _eastern_date(match: re.Match[str], context: Context) -> Found:
    year = int(match[1]) if match[1] else _ERAS[match[2]] + (1 if match[3] == "元" else int(match[3]))
    if match[5]:
        return Found(date_rules.day(date(year, int(match[4]), int(match[5]))), "day")
    if match[4]:
        return Found(date_rules.month(year, int(match[4])), "month")
    if match[6]:
        return Found(date_rules.quarter(year, number_of(match[6])), "quarter")
    return Found(date_rules.year(year), "year")


@BOOK.rule(r"(?<![\d年])(\d{1,2})\s*月\s*(\d{1,2})\s*[日号號]", "月")
def _eastern_day(match: re.Match[str], context: Context) -> Found:
    number, day = int(match[1]), int(match[2])
    return Found(latest(context, lambda year: date_rules.day(date(year, number, day))), "day", relative=True)
