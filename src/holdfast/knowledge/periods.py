"""Dates in questions and logs: which days a question means (always a bonus, never a filter), and the moment that a line of a log names."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from holdfast.search.questions import MONTH_NAMES
from holdfast.text.dates import Span, find_dates

# Days by which people miss when they say it: "three weeks ago" is seldom 21 days.
_SLACK = {"day": 1, "weekend": 1, "week": 2, "month": 8, "quarter": 8, "season": 15, "half": 15, "year": 60}
_EPOCH = date(1970, 1, 1).toordinal()
_CLOCK = re.compile(r"\b(\d{1,2}):(\d{2})(?::(\d{2}))?\s*([ap])?\.?m?\b", re.IGNORECASE)


def asked_periods(question: str, now: datetime) -> list[tuple[int, int, int]]:
    """The periods that a question names, counted from `now`: first and last day since 1970, and over how many days around them nearness
    falls to nothing. A whole decade or century says nothing about a day and is left out."""
    return [_period(span) for span in find_dates(question, now) if span.precision in _SLACK or span.precision == "range"]


def _period(span: Span) -> tuple[int, int, int]:
    slack = _SLACK.get(span.precision, 1)
    fade = 2 * slack + 1 if span.relative else 7 if span.precision == "day" else 1
    return span.start.toordinal() - _EPOCH, span.end.toordinal() - _EPOCH, fade


def date_words(time: datetime) -> str:
    """A day as people write it, so that a question that names it finds what was said then.

    >>> date_words(datetime(2023, 5, 8, tzinfo=UTC))
    '8 May 2023'
    """
    return f"{time.day} {MONTH_NAMES[time.month - 1]} {time.year}"


def read_moment(text: str) -> datetime | None:
    """A date as logs and people write it, with its time of day where it has one; UTC unless it says otherwise. None if it is none.

    >>> read_moment("1:56 pm on 8 May, 2023").isoformat(), read_moment("2023/05/20 (Sat) 06:37").isoformat()
    ('2023-05-08T13:56:00+00:00', '2023-05-20T06:37:00+00:00')
    """
    text = text.strip()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        pass
    else:
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    spans = [span for span in find_dates(_DASHED.sub(" ", text), datetime(1900, 1, 1, tzinfo=UTC)) if not span.relative]
    if not spans or spans[0].start != spans[0].end:
        return None
    midnight = datetime.combine(spans[0].start, datetime.min.time(), UTC)
    return midnight + _time_of_day(text)


_DASHED = re.compile(r"(?<=[A-Za-z])-(?=\d)|(?<=\d)-(?=[A-Za-z])|(?<=[A-Za-z]-\d\d)-(?=\d{4})|(?<=[A-Za-z]-\d)-(?=\d{4})")


def _time_of_day(text: str) -> timedelta:
    match = _CLOCK.search(text)
    if match is None:
        return timedelta()
    hours, minutes, seconds = int(match[1]), int(match[2]), int(match[3] or 0)
    if match[4] and hours <= 12:
        hours = hours % 12 + (12 if match[4].lower() == "p" else 0)
    return timedelta(hours=hours, minutes=minutes, seconds=seconds) if hours < 24 and minutes < 60 and seconds < 60 else timedelta()
