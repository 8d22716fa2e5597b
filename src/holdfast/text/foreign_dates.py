"""Relative days in German, French and Spanish, and all forms of Chinese and Japanese."""

from __future__ import annotations

import re
from datetime import date, timedelta

from holdfast.text import almanac
from holdfast.text.date_rules import YEAR, Context, Found, Rulebook, latest, number_of, unit_of
from holdfast.text.language import guess_language

BOOK = Rulebook()

_NEAR = {
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
    rf"(?<![a-zäöüß])(?:{_names({**_NEAR})})(?![a-zäöüß])",
    "vorgestern gestern heute übermorgen avant hier aujourd demain après anteayer antier ayer hoy pasado 前 昨 今 明 后 後 と",
)
def _near_day(match: re.Match[str], context: Context) -> Found | None:
    word = match[0].lower().replace("’", "'")
    if word == "hier" and guess_language(match.string) != "fr":  # "here" in German
        return None
    return Found(almanac.day(context.today + timedelta(days=_NEAR[word])), "day", relative=True)


@BOOK.rule(
    rf"(?<![a-zäöüß])(?:{_names({**_TURNED})})(?![a-zäöüß])",
    "woche monat jahr semaine mois année an semana mes año 周 週 星 月 年",
)
def _turned(match: re.Match[str], context: Context) -> Found:
    unit, step = _TURNED[match[0].lower().replace("’", "'")]
    today = context.today
    if unit == "week":
        return Found(almanac.week(today + timedelta(days=7 * step)), "week", relative=True)
    if unit == "month":
        moved = almanac.add_months(today.replace(day=1), step)
        return Found(almanac.month(moved.year, moved.month), "month", relative=True)
    return Found(almanac.year(today.year + step), "year", relative=True)


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
def _ago(match: re.Match[str], context: Context) -> Found:
    count, unit = next((match[n], match[n + 1]) for n in (1, 3, 5) if match[n])
    days, precision = almanac.shift(context.today, unit_of(unit), -number_of(count))
    return Found(days, precision, relative=True)


@BOOK.rule(
    r"(\d{1,4}|[一二两兩三四五六七八九十几数])\s*(天|日|周|週間|週|个?星期|[个個かヶカケ]月|年)(?:以?前|之前)",
    "前",
)
def _eastern_ago(match: re.Match[str], context: Context) -> Found:
    unit = match[2].removeprefix("个") if match[2].endswith("星期") else match[2]
    days, precision = almanac.shift(context.today, unit_of(unit), -number_of(match[1]))
    return Found(days, precision, relative=True)


@BOOK.rule(
    rf"(?<!\d)(?:({YEAR})|(令和|平成|昭和|大正|明治|民国|民國)(\d{{1,2}}|元))\s*年(?:\s*(\d{{1,2}})\s*月(?:\s*(\d{{1,2}})\s*[日号號])?|\s*第?([一二三四1-4])季度)?",
    "年",
)
def _eastern_date(match: re.Match[str], context: Context) -> Found:
    year = int(match[1]) if match[1] else _ERAS[match[2]] + (1 if match[3] == "元" else int(match[3]))
    if match[5]:
        return Found(almanac.day(date(year, int(match[4]), int(match[5]))), "day")
    if match[4]:
        return Found(almanac.month(year, int(match[4])), "month")
    if match[6]:
        return Found(almanac.quarter(year, number_of(match[6])), "quarter")
    return Found(almanac.year(year), "year")


@BOOK.rule(
    r"(?<![\d年])(\d{1,2})\s*月\s*(\d{1,2})\s*[日号號]",
    "月",
)
def _eastern_day(match: re.Match[str], context: Context) -> Found:
    number, day = int(match[1]), int(match[2])
    return Found(latest(context, lambda year: almanac.day(date(year, number, day))), "day", relative=True)
