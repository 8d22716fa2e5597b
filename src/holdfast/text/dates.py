"""Date expressions in a text, absolute and relative to a day, as stretches of days with their place.

English whole; the absolute forms and the commonest relative ones of German, French, Spanish, Italian, Portuguese, Dutch,
Chinese and Japanese. Rules are compiled once; a rule whose days do not exist ("31 February") finds nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime

from holdfast.text import absolute_dates, relative_dates
from holdfast.text.date_rules import Context, Found, Precision, Rule

_RULES: tuple[Rule, ...] = (*absolute_dates.BOOK.rules, *relative_dates.BOOK.rules)

_ANCHORS = frozenset(word for rule in _RULES for words in rule.needs for word in words)
_TOKEN = re.compile(r"\d+|[^\W\d_]+")
_REACH = 64  # characters around an anchor that an expression can take up

_JOINED = re.compile(r"\s*(?:-|–|—|to|through|thru|until|till|and|bis|au|al|a|hasta|至|到|から|〜|～)\s*(?:the\s+)?", re.IGNORECASE)
_BETWEEN = re.compile(r"(?:from|between|von|vom|zwischen|du|entre|del|desde|从|從)\s+(?:the\s+)?$|[从從]$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Span:
    """A date expression: the days it means, first and last, how exact it is, and where it stands.

    `relative` says that it was understood against the reference day. `ambiguous` is set for 03/04/2024, where day and month
    could be the other way round; `other` is then that reading's day.
    """

    start: date
    end: date
    precision: Precision
    text: str
    offset: int
    relative: bool = False
    ambiguous: bool = False
    other: date | None = None


def find_dates(text: str, reference: date | datetime, *, day_first: bool = True) -> list[Span]:
    """All date expressions of a text in order, never overlapping. `text[offset:offset + len(span.text)]` is the expression.

    A weekday or month without a year or "next" means the latest one that has come by `reference`. `day_first` decides how
    03/04/2024 is read. "3 days later" counts from the date before it in the text, else from `reference`.

    >>> [(str(s.start), str(s.end)) for s in find_dates("last Friday and in March 2024", date(2024, 5, 15))]
    [('2024-05-10', '2024-05-10'), ('2024-03-01', '2024-03-31')]
    """
    today = reference.date() if isinstance(reference, datetime) else reference
    spans: list[Span] = []
    context = Context(today, day_first)
    for match, rule in _matches(text):
        if spans:
            context = replace(context, anchor=spans[-1].start)
        found = _resolved(match, rule, context)
        if found is not None:
            spans.append(_span(match, found))
    return _join_ranges(text, spans)


def _matches(text: str) -> list[tuple[re.Match[str], Rule]]:
    """What every rule matched, the earliest and then the longest first, without overlaps."""
    candidates = []
    for start, end, present in _neighbourhoods(text):
        for number, rule in enumerate(_RULES):
            if all(not words.isdisjoint(present) for words in rule.needs):
                candidates += [(*_place(match), number, match) for match in rule.pattern.finditer(text, start, end)]
    candidates.sort(key=lambda candidate: (candidate[0], -candidate[1], candidate[2]))
    chosen = []
    reached = 0
    for start, end, number, match in candidates:
        if start >= reached:
            chosen.append((match, _RULES[number]))
            reached = end
    return chosen


def _neighbourhoods(text: str) -> Iterator[tuple[int, int, set[str]]]:
    """The stretches of the text in which a rule can match at all, and the words of each that rules look for."""
    start, end, present = 0, -1, set[str]()
    for match in _TOKEN.finditer(text):
        words = _anchors(match.group())
        if not words:
            continue
        if match.start() - _REACH > end:
            if present:
                yield start, end, present
            start, present = _word_start(text, max(match.start() - _REACH, 0)), set()
        present |= words
        end = min(match.end() + _REACH, len(text))
    if present:
        yield start, end, present


def _anchors(token: str) -> set[str]:
    if token[0].isdigit():
        return {"#", "####"} if len(token) == 4 else {"#"}
    lowered = token.lower()
    if lowered in _ANCHORS:
        return {lowered}
    return {character for character in lowered if character in _ANCHORS} if not lowered.isascii() else set()


def _word_start(text: str, at: int) -> int:
    """Not inside a word: a rule must not see half of one."""
    back = at
    while back > 0 and text[back - 1].isalnum() and at - back < _REACH:
        back -= 1
    return back


def _place(match: re.Match[str]) -> tuple[int, int]:
    """The expression's place: the group `at` where the rule has one."""
    return match.span("at") if "at" in match.re.groupindex else match.span()


def _resolved(match: re.Match[str], rule: Rule, context: Context) -> Found | None:
    try:
        return rule.resolve(match, context)
    except (ValueError, OverflowError):  # 31 February, the year 0, a million years ago
        return None


def _span(match: re.Match[str], found: Found) -> Span:
    (start, end), precision = found.days, found.precision
    first, last = _place(match)
    return Span(start, end, precision, match.string[first:last], first, found.relative, found.other is not None, found.other)


def _join_ranges(text: str, spans: list[Span]) -> list[Span]:
    """ "from 3 May to 10 May" is one stretch, not two days."""
    joined: list[Span] = []
    for span in spans:
        if joined and (both := _range(text, joined[-1], span)) is not None:
            joined[-1] = both
        else:
            joined.append(span)
    return joined


def _range(text: str, first: Span, second: Span) -> Span | None:
    gap = text[first.offset + len(first.text) : second.offset]
    if first.precision == "range" or first.start > second.end or not _JOINED.fullmatch(gap):
        return None
    begins = _BETWEEN.search(text, max(0, first.offset - 12), first.offset)
    if begins is None and gap.strip().lower() in ("and", "a", "al", "au"):
        return None
    expression = text[first.offset : second.offset + len(second.text)]
    return Span(first.start, second.end, "range", expression, first.offset, first.relative or second.relative)
