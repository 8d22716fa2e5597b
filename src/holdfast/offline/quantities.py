"""Figures with their units: "185,000 messages per second", "6 GB", "ten years", brought to one scale so that they can be compared."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import accumulate

from holdfast.text.dates import Span, find_dates
from holdfast.text.language import read_lists
from holdfast.text.words import is_stop_word, stem

_REFERENCE = date(2000, 6, 15)
_LISTS = read_lists("holdfast.offline", "quantities")
_WORDS: dict[str, int] = _LISTS["numbers"]
_SCALES: dict[str, float] = _LISTS["scales"]
_NO_UNITS = frozenset(_LISTS["no_units"].split())


def _units() -> dict[str, tuple[str, float]]:
    """Each way of writing a unit, with what it measures and its size."""
    found: dict[str, tuple[str, float]] = {}
    for line in _LISTS["units"].strip().splitlines():
        sort, size, *words = line.split()
        found.update(dict.fromkeys(words, (sort, float(size))))
    return found


_UNITS = _units()
MEASURES = frozenset(sort for sort, _ in _UNITS.values())
"""What units measure. Other sorts are things that are counted."""
_FIGURE = r"[-−]?\d{1,3}(?:[,  ’']\d{3})+(?:\.\d+)?(?!\d)|[-−]?\d+(?:[.,]\d+)?"
_QUANTITY = re.compile(
    rf"(?<![\w.,:/#–-])(?P<coin>[$€£¥])?\s?(?P<figure>{_FIGURE}|\b(?:{'|'.join(_WORDS)})\b)(?![\d:/]|\.\d|(?:st|nd|rd|th)\b|[-–]\d)"
    rf"(?:[\s-]?(?P<scale>(?:{'|'.join(sorted(_SCALES, key=len, reverse=True))})(?![^\W\d_])))?"
    r"(?P<unit>[\s-]?(?:%|per cent\b|°\s?[CF]\b|[€$£¥]|[^\W\d_]+))?"
    r"(?P<per>\s?(?:/|\bper\b|\ba\b|\bpro\b|\bpar\b|\bpor\b)\s?(?:(?:square|cubic)\s)?(?:[^\W\d_]+))?",
    re.IGNORECASE,
)
_CALENDAR = re.compile(
    r"\b\d{4}\b|\d[./-]\d|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mär|mai|okt|dez|janv|fév|avr|juin|juil|août|ene|abr|ago|dic)",
    re.IGNORECASE,
)
_TIME_OF_DAY = re.compile(r"(?<![\d:.])([01]?\d|2[0-3])[:h]([0-5]\d)\b(?!\.\d)")
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_NAMED = re.compile(r"\b[A-Z][\w-]*[^\W\d_] $")  # before a figure that is part of a name: "Calder 9"
_LONGEST_NAME = 200  # characters
_WRITTEN = re.compile(r"[$€£¥]?\s?[-−]?[\d.,  ’']{0,60}\d|[^\W\d_]+")
_ROUNDED = 0.02
_TIMES = 5
DATE, CLOCK = "date", "clock"
_CLOSE = 0.05  # of the larger value: closer than this is rounding, or another run of the same measurement


@dataclass(frozen=True, slots=True)
class Quantity:
    """A figure in a text: what it counts or measures (`sort`), its value on that sort's scale, and the words themselves."""

    value: float
    sort: str
    text: str
    start: int
    end: int


def find_quantities(text: str) -> list[Quantity]:
    """The quantities of a text in order. Dates, versions, ordinals, times of day and numbers of tickets are none.

    >>> [(one.value, one.sort) for one in find_quantities("On 3 May 2026 it took 1.5 GB and two hours, v3.2.1, at the 99th percentile.")]
    [(1500000000.0, 'data'), (7200.0, 'time')]
    """
    return list(_found(text))


@lru_cache(maxsize=1 << 14)
def _found(text: str) -> tuple[Quantity, ...]:
    """Cached, because the same sentence is looked at for every question. Dates are looked for only where there is a figure."""
    matches = list(_QUANTITY.finditer(text))
    if not matches:
        return ()
    return tuple(_quantity(match, text) for match in _outside(matches, _places(find_dates(text, _REFERENCE))))


def _outside(matches: Sequence[re.Match[str]], dates: Sequence[tuple[int, int]]) -> Iterator[re.Match[str]]:
    """The figures, which come in order, that stand in none of these places. In one pass: a list may have as many dates as figures."""
    dates = sorted(dates)
    at = reached = 0
    for match in matches:
        while at < len(dates) and dates[at][0] < match.end("figure"):
            reached = max(reached, dates[at][1])
            at += 1
        if reached <= match.start("figure"):
            yield match


def _places(spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Where dates stand. A length of time ("three weeks") is a quantity, although dates are reckoned with it."""
    return [(span.offset, span.offset + len(span.text.rstrip("."))) for span in spans if _CALENDAR.search(span.text)]


def _quantity(match: re.Match[str], text: str) -> Quantity:
    figure = match.group("figure").lower().replace("−", "-")
    value = float(_WORDS[figure]) if figure in _WORDS else _number(figure)
    value *= _SCALES.get((match.group("scale") or "").lower(), 1.0)
    unit, per = (match.group("unit") or "").strip(" -\n\t").lower(), (match.group("per") or "").strip()
    end = match.end("scale") if match.group("scale") else match.end("figure")
    sort = ""
    if match.group("coin"):
        sort, size = _UNITS[match.group("coin")]
    elif re.sub(r"\s", "", unit) in _UNITS:
        sort, size = _UNITS[re.sub(r"\s", "", unit)]
        value, end = value * size, match.end("unit")
    elif unit and not is_stop_word(unit) and unit not in _NO_UNITS:
        sort, end = stem(unit), match.end("unit")
    if per and sort and end == match.end("unit"):
        other = re.sub(r"^(?:/|per|a|pro|par|por)\s?", "", per, flags=re.IGNORECASE).lower()
        if not is_stop_word(other) and (per.startswith("/") or per.lower().startswith(("per", "pro", "par", "por")) or other in _UNITS):
            sort, end = f"{sort}/{stem(other)}", match.end("per")
    return Quantity(value, sort, text[match.start() : end].strip(), match.start(), end)


def _number(figure: str) -> float:
    plain = re.sub(r"[   ’']", "", figure)
    if re.fullmatch(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?", plain):
        return float(plain.replace(",", ""))
    return float(plain.replace(",", "."))


def differ(first: float, second: float, *, close: float = _CLOSE) -> bool:
    """Whether two values are apart by more than rounding explains."""
    return abs(first - second) > close * max(abs(first), abs(second))


@dataclass(frozen=True, slots=True)
class Value:
    """A figure, a date or a time of day: its kind (for a figure what it counts or measures, empty if it does not say), and where it stands.

    The place is that of the figure alone: the word for what is counted is none of the value.
    """

    kind: str
    amount: float
    text: str
    start: int
    end: int
    day: Span | None = None

    def same(self, other: Value) -> bool:
        """Whether two values can be the same: a date without a year fits every year, a figure without a unit every unit."""
        if self.day is not None and other.day is not None:
            return _meets(self.day, other.day)
        if self.kind != other.kind:
            return self.amount == other.amount and "" in (self.kind, other.kind)
        exact = self.kind == CLOCK or (_YEAR.match(self.text) is not None and _YEAR.match(other.text) is not None)
        return self.amount == other.amount if exact else not differ(self.amount, other.amount, close=_ROUNDED)

    def comparable(self, other: Value) -> bool:
        """Whether two values can be about one thing: what is many times as much measures something else, a day is no year."""
        if self.day is not None and other.day is not None:
            return self.day.precision == other.day.precision
        small, large = sorted((abs(self.amount), abs(other.amount)))
        return self.kind == CLOCK or (large <= _TIMES * small and self.amount * other.amount >= 0)


def find_values(text: str) -> list[Value]:
    """All values of a text in order.

    >>> [(one.kind, one.text) for one in find_values("On 3 May 2026 at 14:30 four boxes of 12 kg came.")]
    [('date', '3 May 2026'), ('clock', '14:30'), ('box', 'four boxes'), ('mass', '12 kg')]
    """
    spans = [span for span in find_dates(text, _REFERENCE) if _CALENDAR.search(span.text) and (span.end - span.start).days <= 366]
    found = [Value(DATE, 0.0, span.text, *place, span) for span, place in zip(spans, _places(spans), strict=True)]
    found += [Value(CLOCK, 60.0 * int(one[1]) + int(one[2]), one[0], *one.span()) for one in _TIME_OF_DAY.finditer(text)]
    for one in find_quantities(text):
        if not one.sort and _YEAR.fullmatch(one.text):  # a year that no rule for dates knows
            days = date(int(one.text), 1, 1), date(int(one.text), 12, 31)
            found.append(Value(DATE, 0.0, one.text, one.start, one.end, Span(*days, "year", one.text, one.start)))
            continue
        if one.sort not in MEASURES and one.text[0].isdigit() and _NAMED.search(text, max(0, one.start - _LONGEST_NAME), one.start):
            continue
        figure = _WRITTEN.match(text, one.start)
        found.append(Value(one.sort, one.value, one.text, one.start, figure.end() if figure else one.start + len(one.text)))
    found.sort(key=lambda one: (one.start, one.end))
    reached = accumulate((one.end for one in found), max, initial=0)
    return [one for one, taken in zip(found, reached, strict=False) if one.start >= taken]


def _meets(first: Span, second: Span) -> bool:
    if _YEAR.search(first.text) and _YEAR.search(second.text):
        return first.start <= second.end and second.start <= first.end
    exact = re.search(r"\d", first.text) and re.search(r"\d", second.text)
    return first.start.month == second.start.month and (not exact or first.start.day == second.start.day)
