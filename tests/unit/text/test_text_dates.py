"""Date expressions, absolute and relative to a day (K3, M13)."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from holdfast.text.dates import find_dates

TODAY = date(2024, 5, 15)  # a Wednesday

CASES = [
    ("2024-03-15", "2024-03-15", "2024-03-15", "day"),
    ("2024/3/5", "2024-03-05", "2024-03-05", "day"),
    ("15/03/2024", "2024-03-15", "2024-03-15", "day"),
    ("3/15/2024", "2024-03-15", "2024-03-15", "day"),
    ("10.12.2023", "2023-12-10", "2023-12-10", "day"),
    ("March 15, 2024", "2024-03-15", "2024-03-15", "day"),
    ("15 March 2024", "2024-03-15", "2024-03-15", "day"),
    ("the 4th of July 1999", "1999-07-04", "1999-07-04", "day"),
    ("Sunday, May 12, 2024", "2024-05-12", "2024-05-12", "day"),
    ("May the 4th", "2024-05-04", "2024-05-04", "day"),
    ("Jan. 5", "2024-01-05", "2024-01-05", "day"),
    ("December 24", "2023-12-24", "2023-12-24", "day"),
    ("29 February", "2024-02-29", "2024-02-29", "day"),
    ("March 2024", "2024-03-01", "2024-03-31", "month"),
    ("2024-03", "2024-03-01", "2024-03-31", "month"),
    ("in March", "2024-03-01", "2024-03-31", "month"),
    ("last March", "2024-03-01", "2024-03-31", "month"),
    ("next March", "2025-03-01", "2025-03-31", "month"),
    ("early March 2024", "2024-03-01", "2024-03-10", "range"),
    ("late 2023", "2023-09-02", "2023-12-31", "range"),
    ("Q3 2025", "2025-07-01", "2025-09-30", "quarter"),
    ("third quarter of 2025", "2025-07-01", "2025-09-30", "quarter"),
    ("H1 2024", "2024-01-01", "2024-06-30", "half"),
    ("2024-W05", "2024-01-29", "2024-02-04", "week"),
    ("in 2019", "2019-01-01", "2019-12-31", "year"),
    ("the 1990s", "1990-01-01", "1999-12-31", "decade"),
    ("summer of 2022", "2022-06-01", "2022-08-31", "season"),
    ("last summer", "2023-06-01", "2023-08-31", "season"),
    ("Christmas 2023", "2023-12-25", "2023-12-25", "day"),
    ("Easter 2024", "2024-03-31", "2024-03-31", "day"),
    ("Thanksgiving", "2023-11-23", "2023-11-23", "day"),
    ("March 3-10, 2024", "2024-03-03", "2024-03-10", "range"),
    ("yesterday", "2024-05-14", "2024-05-14", "day"),
    ("today", "2024-05-15", "2024-05-15", "day"),
    ("tomorrow", "2024-05-16", "2024-05-16", "day"),
    ("last night", "2024-05-14", "2024-05-14", "day"),
    ("the day before yesterday", "2024-05-13", "2024-05-13", "day"),
    ("the day after tomorrow", "2024-05-17", "2024-05-17", "day"),
    ("last Friday", "2024-05-10", "2024-05-10", "day"),
    ("last Wednesday", "2024-05-08", "2024-05-08", "day"),
    ("next Friday", "2024-05-17", "2024-05-17", "day"),
    ("this Friday", "2024-05-17", "2024-05-17", "day"),
    ("Monday", "2024-05-13", "2024-05-13", "day"),
    ("two weeks ago", "2024-04-28", "2024-05-04", "week"),
    ("3 days ago", "2024-05-12", "2024-05-12", "day"),
    ("a couple of weeks ago", "2024-04-28", "2024-05-04", "week"),
    ("a month ago", "2024-03-31", "2024-04-30", "month"),
    ("two years ago", "2022-01-01", "2022-12-31", "year"),
    ("in 3 days", "2024-05-18", "2024-05-18", "day"),
    ("last week", "2024-05-06", "2024-05-12", "week"),
    ("this month", "2024-05-01", "2024-05-31", "month"),
    ("next month", "2024-06-01", "2024-06-30", "month"),
    ("last year", "2023-01-01", "2023-12-31", "year"),
    ("last quarter", "2024-01-01", "2024-03-31", "quarter"),
    ("last weekend", "2024-05-11", "2024-05-12", "weekend"),
    ("this weekend", "2024-05-18", "2024-05-19", "weekend"),
    ("the weekend before last", "2024-05-04", "2024-05-05", "weekend"),
    ("the week before last", "2024-04-29", "2024-05-05", "week"),
    ("the week after next", "2024-05-27", "2024-06-02", "week"),
    ("the past two weeks", "2024-05-01", "2024-05-15", "range"),
    ("the last 3 months", "2024-02-15", "2024-05-15", "range"),
    ("earlier this week", "2024-05-13", "2024-05-15", "range"),
    ("the end of last month", "2024-04-21", "2024-04-30", "range"),
    ("15. März 2024", "2024-03-15", "2024-03-15", "day"),
    ("vor 3 Tagen", "2024-05-12", "2024-05-12", "day"),
    ("letzte Woche", "2024-05-06", "2024-05-12", "week"),
    ("15 mars 2024", "2024-03-15", "2024-03-15", "day"),
    ("il y a deux semaines", "2024-04-28", "2024-05-04", "week"),
    ("15 de marzo de 2024", "2024-03-15", "2024-03-15", "day"),
    ("hace 3 días", "2024-05-12", "2024-05-12", "day"),
    ("2024年3月15日", "2024-03-15", "2024-03-15", "day"),
    ("3月15日", "2024-03-15", "2024-03-15", "day"),
    ("2024年3月", "2024-03-01", "2024-03-31", "month"),
    ("上个月", "2024-04-01", "2024-04-30", "month"),
    ("三天前", "2024-05-12", "2024-05-12", "day"),
    ("昨日", "2024-05-14", "2024-05-14", "day"),
    ("先週", "2024-05-06", "2024-05-12", "week"),
    ("令和6年5月1日", "2024-05-01", "2024-05-01", "day"),
]


@pytest.mark.parametrize(("expression", "start", "end", "precision"), CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize("around", ["%s", "It was %s, they said.", "They met (%s) again"])
def test_an_expression_is_found_with_its_days_and_place(around: str, expression: str, start: str, end: str, precision: str) -> None:
    text = around.replace("%s", expression)
    found = find_dates(text, TODAY)
    assert len(found) == 1, found
    span = found[0]
    assert (str(span.start), str(span.end), span.precision) == (start, end, precision)
    assert text[span.offset : span.offset + len(span.text)] == span.text
    assert span.text in (expression, expression.removeprefix("in "))


def test_a_range_of_two_dates_is_one_span() -> None:
    for text in ("from March 3 to March 10, 2024", "between 3 March 2024 and 10 March 2024", "2024-03-03 – 2024-03-10"):
        (span,) = find_dates(text, TODAY)
        assert (str(span.start), str(span.end), span.precision) == ("2024-03-03", "2024-03-10", "range")
    assert len(find_dates("3 March 2024 and 10 March 2024", TODAY)) == 2


def test_later_counts_from_the_date_before_it() -> None:
    found = find_dates("It broke on 3 May 2024. 3 days later it was mended. Two days earlier nobody knew.", TODAY)
    assert [str(span.start) for span in found] == ["2024-05-03", "2024-05-06", "2024-05-04"]
    assert str(find_dates("3 days later it was mended", TODAY)[0].start) == "2024-05-18"


def test_an_ambiguous_date_says_so_and_names_the_other_reading() -> None:
    (day_first,) = find_dates("03/04/2024", TODAY)
    assert (str(day_first.start), day_first.ambiguous, str(day_first.other)) == ("2024-04-03", True, "2024-03-04")
    (month_first,) = find_dates("03/04/2024", TODAY, day_first=False)
    assert (str(month_first.start), month_first.ambiguous, str(month_first.other)) == ("2024-03-04", True, "2024-04-03")
    assert not find_dates("13/04/2024", TODAY)[0].ambiguous
    assert not find_dates("04/04/2024", TODAY)[0].ambiguous


def test_relative_expressions_say_that_they_are() -> None:
    assert find_dates("yesterday", TODAY)[0].relative
    assert find_dates("in March", TODAY)[0].relative
    assert not find_dates("March 2024", TODAY)[0].relative


def test_a_moment_serves_as_reference_too() -> None:
    assert str(find_dates("yesterday", datetime(2024, 5, 15, 23, tzinfo=UTC))[0].start) == "2024-05-14"


@pytest.mark.parametrize(
    "text",
    [
        "You may march in may.",
        "port 2024 and 2048 tokens",
        "31 February 2024",
        "30/02/2024",
        "version 1.2.3 and 10.0.0.1",
        "99999 years ago",
        "on the 3rd floor",
        "from 10 to 20 items",
        "Hier liegt der Hund begraben",
        "in 2048 tokens",
        "the second attempt",
        "",
    ],
)
def test_what_only_looks_like_a_date_is_none(text: str) -> None:
    assert find_dates(text, TODAY) == []


def test_dates_far_apart_in_a_long_text_are_all_found() -> None:
    filler = "The quick brown fox jumps over the lazy dog. " * 30
    text = f"{filler}We met on 3 May 2024.{filler}It ended last Friday.{filler}"
    assert [span.text for span in find_dates(text, TODAY)] == ["3 May 2024", "last Friday"]
