"""Near duplicates are found; a number, a name, a negation or another word keeps texts apart (M10)."""

from __future__ import annotations

import pytest

from holdfast.text.likeness import NEAR, compare, likeness

SAME = [
    ("The user prefers dark mode.", "User really prefers the dark mode"),
    ("User works with PostgreSQL databases", "User works with PostgresSQL database"),
    ("In 2020 he moved to Berlin", "He moved to Berlin in 2020"),
    ("I have 2 kids", "I have two kids"),
    ("用户喜欢喝绿茶", "用户喜欢喝绿茶。"),
    ("Prefers short answers in bullet points", "prefers SHORT answers, in bullet points!"),
    ("The deploy script lives in tools/deploy.sh", "Deploy script is living in tools/deploy.sh"),
    ("User ist Lehrer in Hamburg", "Der User ist ein Lehrer in Hamburg"),
]
OTHER = [
    ("The server runs on port 8080", "The server runs on port 9090"),
    ("Anna likes tea", "Anna does not like tea"),
    ("Anna likes tea", "Anna dislikes tea"),
    ("Alice manages Bob", "Bob manages Alice"),
    ("User lives in Berlin", "User lives in Munich"),
    ("User prefers tea in the morning before work", "User prefers coffee in the morning before work"),
    ("The meeting is on Friday", "The meeting is on Monday"),
    ("Prefers tabs over spaces", "Prefers spaces over tabs"),
    ("用户喜欢喝绿茶", "用户不喜欢喝绿茶"),
    ("ユーザーは紅茶が好きです", "ユーザーは紅茶が好きではない"),
    ("Uses Python", "Uses Python 3.11"),
    ("has two children", "has three children"),
    ("Caching is enabled for all routes", "Caching is disabled for all routes"),
    ("Never deploy on Fridays", "Deploy on Fridays"),
    ("Nutzer mag Tee", "Nutzer mag keinen Tee"),
    ("The release is on 2024-03-15", "The release is on 2024-03-16"),
    ("Works at Acme", "Works at Globex"),
    (
        "The user drinks tea with a little milk every morning right before leaving home for work by train or bus",
        "The user drinks coffee with a little milk every morning right before leaving home for work by train or bus",
    ),
    ("", "something"),
    ("...", "!!!"),
]


@pytest.mark.parametrize(("first", "second"), SAME)
def test_texts_that_say_the_same_are_near_duplicates(first: str, second: str) -> None:
    assert likeness(first, second) >= NEAR
    assert likeness(first, second) == pytest.approx(likeness(second, first), abs=0.12)


@pytest.mark.parametrize(("first", "second"), OTHER)
def test_a_telling_difference_keeps_texts_apart(first: str, second: str) -> None:
    assert likeness(first, second) < NEAR
    assert likeness(second, first) < NEAR


def test_equal_texts_are_wholly_alike() -> None:
    assert likeness("Same  text", "same text") == 1.0
    assert likeness("", "") == 1.0


def test_another_number_weighs_more_than_an_added_one() -> None:
    assert likeness("The server runs on port 8080", "The server runs on port 9090") <= 0.5
    assert 0.5 < likeness("The server runs on a port", "The server runs on port 9090") < NEAR


def test_what_differs_is_named() -> None:
    found = compare("The server runs on port 8080 in Berlin", "The server does not run on port 9090 in Berlin")
    assert found.numbers == (frozenset({"8080"}), frozenset({"9090"}))
    assert found.negation
    assert found.shared == 1.0
    assert compare("Ann leads the team", "The team is led by Bob").names[1] == {"bob"}


@pytest.mark.parametrize(
    ("one", "other"), [("Ines", "Mia"), ("Otto", "Mia"), ("Tom", "Ben"), ("Anna", "Will"), ("Lena", "Per"), ("Ravi", "Du")]
)
@pytest.mark.parametrize("form", ["I know somebody called {}.", "User's best friend is {}", "The dog of the user's sister is named {}"])
def test_a_name_that_is_a_small_word_of_some_language_keeps_facts_apart(form: str, one: str, other: str) -> None:
    """M10: whichever came first."""
    for first, second in ((one, other), (other, one)):
        differs = compare(form.format(first), form.format(second))
        assert differs.score < NEAR
        assert differs.names[0]
