"""Date expressions in a text, absolute and relative to a day, as stretches of days with their place; and the day of a document.

English whole; the absolute forms and the commonest relative ones of German, French, Spanish, Italian, Portuguese, Dutch,
Chinese and Japanese. Rules are compiled once; a rule whose days do not exist ("31 February") finds nothing.

The day on which a document was written is in its title, in a line at its head, or in the name of its file (`day_of_head`, `day_of_name`).
A day that is only told of ("The pump was bought in March 2015.") says nothing about the document, even in its first sentence. In a line at
the head the day stands alone between marks ("Ridgeway, 9 July 2026"), or behind a word for it ("Date:", "last edit"), and hardly anything
else stands there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import PurePosixPath

from holdfast.text.date_expressions import BOOK
from holdfast.text.date_rules import Context, Found, Precision, Rule
from holdfast.text.language import alternatives, read_lists

_RULES: tuple[Rule, ...] = tuple(BOOK.rules)

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


_REFERENCE = date(2000, 6, 15)
_YEAR = re.compile(r"\b\d{4}\b|\d{4}-\d\d")
_LISTS = {name: alternatives(entry) for name, entry in read_lists("holdfast.text", "document_dates").items()}
_WEEKDAY = rf"(?:(?:{_LISTS['weekday']})[,.]?\s+)?"
_LABELLED = re.compile(
    rf"(?P<label>(?:{_LISTS['label']})\s*:?\s+)?(?P<behind>(?:{_LISTS['behind']})\s+)?{_WEEKDAY}(?:\d\d?\s?[-–]\s?)?", re.IGNORECASE
)
_ARTICLE = re.compile(rf"(?:{_LISTS['behind']})\s+", re.IGNORECASE)  # that the expression of a date has in it: "le 6 octobre 2028"
_PARTS = re.compile(r"\s{3,}|\t|\s[-–—·|/]+\s|[,;()\[\]|·*_#>]+|:(?=\s*$)|(?<=[.!?:])\s+")
_SENTENCE_END = re.compile(r"(?<=[^\W\d]{2}[.!?])\s+|(?<=\d{4}[.!?])\s+|\s{3,}")
_TIME = re.compile(r"[T ]?\d{1,2}[:.h]\d\d\S*(?:\s+\w{1,4})?|[\s.,;:!?)*_-]*")
_AROUND = 10  # words before or after the day: with more of them it is a sentence that tells of it
_LONGEST = 600  # characters of a line that are looked at: what is longer is no line of a head, and each day in it costs another look at it
_NAMED = re.compile(r"(?<!\d)((?:19|20)\d\d)(?:([-_.]?)(0[1-9]|1[0-2])(?:\2(0[1-9]|[12]\d|3[01]))?)?(?!\d)")


def day_of(text: str) -> str:
    """The day that a text names, as it can be sorted: `2026-02-10`, `2026-02` or `2026`; empty if it names none."""
    return next((_shown(span) for span in _spans(text)), "")


def _spans(text: str) -> list[Span]:
    return [span for span in find_dates(text, _REFERENCE) if _YEAR.search(span.text)]


def _shown(span: Span) -> str:
    days = (span.end - span.start).days
    return span.end.isoformat()[: 10 if days <= 7 else 7 if days <= 31 else 4]


def day_of_head(lines: Iterable[str]) -> str:
    """The day that the first lines of a document give as its own: the title (the first line with a `#`) may name it anywhere.

    >>> day_of_head(["# Minutes of 3 May 2026"]), day_of_head(["Fenwick, February 2026."]), day_of_head(["It was bought in March 2015."])
    ('2026-05-03', '2026-02', '')
    """
    titled = False
    for line in (line[:_LONGEST] for line in lines):
        title = line.startswith("#") and not titled
        titled |= title
        found = day_of(line) if title else next((day for part in _SENTENCE_END.split(line) if (day := _own_day(part))), "")
        if found:
            return found
    return ""


def _own_day(sentence: str) -> str:
    """The day of a sentence or a line in which it stands alone between marks and hardly anything stands around it."""
    for span in _spans(sentence):
        start = span.offset + (article.end() if (article := _ARTICLE.match(span.text)) else 0)
        before, after = sentence[:start], sentence[span.offset + len(span.text) :]
        if max(len(before.split()), len(after.split())) > _AROUND:
            continue
        cut = [0, *(match.end() for match in _PARTS.finditer(before))][-1]
        in_brackets = before.rstrip().endswith(("(", "[")) and sentence.rstrip().endswith((".", "!", "?"))
        label = _LABELLED.fullmatch(before[cut:].lstrip())
        stands = re.search(r"\w", before[:cut]) is not None
        if label is None or in_brackets or (label["behind"] and not label["label"] and not stands):
            continue
        rest = _PARTS.split(after, maxsplit=1)[0]
        says_itself = bool(label["label"]) and not stands  # "Published on 22 June 2023 in ...": nobody else is there to be told of
        if says_itself or _TIME.fullmatch(rest):
            return _shown(span)
    return ""


def day_of_name(name: str) -> str:
    """The day in the name of a file; a year alone is too often something else.

    >>> day_of_name("notes/2026-05-03 minutes.md"), day_of_name("report_20260503.txt"), day_of_name("list-2026.csv")
    ('2026-05-03', '2026-05-03', '')
    """
    for year, _, month, day in _NAMED.findall(PurePosixPath(name.partition("#")[0]).stem):
        if month and (day or "-" in name):
            return "-".join(part for part in (year, month, day) if part)
    return ""
