"""W18: a document is dated by what it says about itself, never by a day that its text tells of."""

from __future__ import annotations

import pytest

from holdfast.text.dates import day_of_head


@pytest.mark.parametrize(
    ("line", "day"),
    [
        ('Published on 22 June 2023 in "Systems Weekly". It is no longer sold.', "2023-06-22"),
        ("Valid from 1 January 2026. All prices without tax.", "2026-01-01"),
        ("Asked on 19 April 2026 by petra_k", "2026-04-19"),
        ("Gültig ab 1. Mai 2026", "2026-05-01"),
        ("It was published on 3 May 2019 in Rome.", ""),
        ("The rule is valid from 3 May 2019 onwards.", ""),
        ("The pump was bought in March 2015.", ""),
    ],
)
def test_a_participle_without_a_subject_speaks_of_the_document(line: str, day: str) -> None:
    assert day_of_head([line]) == day


def test_a_line_without_an_end_is_looked_at_only_where_it_begins() -> None:
    """W18: each day in it would cost another look at the whole line, so that a file of one long line was read for minutes."""
    assert day_of_head(["Fenwick, 3 May 2026, " + "x" * 2000]) == "2026-05-03"
    assert day_of_head(["x" * 2000 + ", 3 May 2026"]) == ""
    assert day_of_head([("word " * 12 + "on 3 May 2021 and ") * 20_000]) == ""
