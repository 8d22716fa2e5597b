"""Figures with their units: "185,000 messages per second", "6 GB", "ten years", brought to one scale so that they can be compared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from holdfast.text.dates import Span, find_dates
from holdfast.text.word_lists import read_lists
from holdfast.text.words import is_stop_word, stem

_REFERENCE = date(2000, 6, 15)
_LISTS = read_lists("holdfast.offline", "quantities")
_WORDS: dict[str, int] = _LISTS["numbers"]
_SCALES: dict[str, float] = _LISTS["scales"]


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
_CLOSE = 0.05  # of the larger value: closer than this is rounding, or another run of the same measurement


@dataclass(frozen=True, slots=True)
class Quantity:
    """A figure in a text: what it counts or measures (`sort`), its value on that sort's scale, and the words themselves."""

    value: float
    sort: str
    text: str
    start: int
    end: int


def full_dates(text: str) -> list[Span]:
    """The dates of a text that stand for themselves: with a year, or at least with a month and a day."""
    return [span for span in find_dates(text, _REFERENCE) if re.search(r"\d", span.text) and (span.end - span.start).days <= 366]


def periods(text: str) -> list[Span]:
    """All times that a text speaks of, also those that count from a day that it does not name: "in January", "last year"."""
    return [span for span in find_dates(text, _REFERENCE) if (span.end - span.start).days <= 366]


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
    dates = _places(find_dates(text, _REFERENCE), text)
    outside = [match for match in matches if not any(start < match.end("figure") and match.start("figure") < end for start, end in dates)]
    return tuple(_quantity(match, text) for match in outside)


def _places(spans: Sequence[Span], text: str) -> list[tuple[int, int]]:
    """Where dates stand. A length of time ("three weeks") is a quantity, although dates are reckoned with it."""
    places, at = [], 0
    for span in spans:
        start = text.find(span.text, at)
        if start < 0:
            continue
        at = start + len(span.text)
        if re.search(
            r"\b\d{4}\b|\d[./-]\d|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mär|mai|okt|dez|janv|fév|avr|juin|juil|août|ene|abr|ago|dic)",
            span.text,
            re.IGNORECASE,
        ):
            places.append((start, at))
    return places


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
    elif unit and not is_stop_word(unit):
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
