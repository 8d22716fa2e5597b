"""Time in questions and logs, and which records are found as one (K3)."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from holdfast.knowledge.base import asked_periods, rank_records
from holdfast.knowledge.records import Record, read_moment
from holdfast.search.plain_ranking import nearness


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        ("2024-05-08", "2024-05-08T00:00:00+00:00"),
        ("2024-05-08T10:00:00Z", "2024-05-08T10:00:00+00:00"),
        ("2024-05-08T10:00:00+02:00", "2024-05-08T10:00:00+02:00"),
        ("1:56 pm on 8 May, 2023", "2023-05-08T13:56:00+00:00"),
        ("2023/05/20 (Sat) 06:37", "2023-05-20T06:37:00+00:00"),
        ("March-05-2024", "2024-03-05T00:00:00+00:00"),
        ("May 8, 2023 12:10 am", "2023-05-08T00:10:00+00:00"),
        ("8.5.2023 10:20", "2023-05-08T10:20:00+00:00"),
        ("[2024-05-08 10:22:11]", "2024-05-08T10:22:11+00:00"),
        ("2023/05/20 29:99", "2023-05-20T00:00:00+00:00"),
    ],
)
def test_dates_of_many_forms_are_read(written: str, moment: str) -> None:
    found = read_moment(written)
    assert found is not None
    assert found.isoformat() == moment


@pytest.mark.parametrize("written", ["", "nonsense", "last week", "May 2023", "12:30", "hello 5"])
def test_what_is_no_day_is_no_moment(written: str) -> None:
    assert read_moment(written) is None


NOW = datetime(2023, 5, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("question", "day", "near"),
    [
        ("what did I do last week", "2023-05-24", 1.0),
        ("what did I do last week", "2023-05-01", 0.0),
        ("yesterday", "2023-05-29", 1.0),
        ("on 7 May 2023", "2023-05-07", 1.0),
        ("on 7 May 2023", "2023-06-07", 0.0),
        ("in March", "2023-03-20", 1.0),
        ("no date at all", "2023-05-29", 0.0),
    ],
)
def test_a_record_is_near_to_what_a_question_names(question: str, day: str, near: float) -> None:
    assert nearness(since_1970(date.fromisoformat(day)), asked_periods(question, NOW)) == near
    assert nearness(-1, asked_periods(question, NOW)) == 0.0


def test_nearness_falls_with_the_days_between() -> None:
    periods = asked_periods("two weeks ago", NOW)
    values = [nearness(since_1970(date(2023, 5, day)), periods) for day in range(16, 31)]
    assert values == sorted(values, reverse=True)
    assert values[0] == 1.0
    assert values[-1] == 0.0
    assert any(0 < value < 1 for value in values)


def since_1970(day: date) -> int:
    return (day - date(1970, 1, 1)).days


def turn(place: int | None, role: str | None, session: str | None = "s") -> Record:
    return Record(f"turn {place} {role}", session=session, position=place, role=role)  # type: ignore[arg-type]  # the roles come from the tests


def found_together(turns: list[Record]) -> list[list[int | None]]:
    """The positions of the records of every unit, in reading order."""
    hits = rank_records(turns, "turn", NOW, 100)
    return sorted(
        ([record.position for record in hit.records] for hit in hits), key=lambda places: [-1 if at is None else at for at in places]
    )


def test_a_round_is_a_persons_turn_with_the_answers_after_it() -> None:
    roles = ["assistant", "person", "assistant", "assistant", "person", "person", "assistant"]
    assert found_together([turn(place, role) for place, role in enumerate(roles)]) == [[0], [1, 2, 3], [4], [5, 6]]


def test_between_people_every_turn_is_a_unit_and_sessions_stay_apart() -> None:
    turns = [turn(1, None), turn(0, None), turn(0, None, "t"), turn(None, None), turn(0, None, None)]
    assert found_together(turns) == [[None], [0], [0], [0], [1]]
