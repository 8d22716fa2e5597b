"""Facts without a model: what plain English statements teach, and what near misses do not (M13)."""

from __future__ import annotations

import pytest

from holdfast.memory.facts import Fact, SlotUpdate, Turn
from holdfast.memory.rules import RulesExtractor, third_person


def learned(text: str) -> list[tuple[str, str]]:
    return [(c.category, c.content) for c in RulesExtractor().extract([Turn("u", "user", text)], ()).candidates]


@pytest.mark.parametrize(
    ("said", "category", "content"),
    [
        ("My name is Priya Raman.", "identity", "User's name is Priya Raman"),
        ("I work at Siemens as a test engineer.", "identity", "User works at Siemens as a test engineer"),
        ("I live in Graz.", "identity", "User lives in Graz"),
        ("My sister Ana lives in Porto.", "identity", "User's sister Ana lives in Porto"),
        ("I have two cats.", "identity", "User has two cats"),
        ("I prefer tabs over spaces.", "preference", "User prefers tabs over spaces"),
        ("I don't like horror films.", "preference", "User doesn't like horror films"),
        ("We use PostgreSQL 16.2 in production.", "knowledge", "User uses PostgreSQL 16.2 in production"),
        ("I want to learn Rust this year.", "goal", "User wants to learn Rust this year"),
        ("We decided to use FastAPI.", "decision", "User decided to use FastAPI"),
        ("Please answer in German.", "preference", "User wants answers in German"),
        ("I'm a nurse in Leeds, which pension scheme applies to me?", "identity", "User is a nurse in Leeds"),
    ],
)
def test_plain_statements_are_found_with_their_category(said: str, category: str, content: str) -> None:
    assert learned(said) == [(category, content)]


@pytest.mark.parametrize(
    "said",
    [
        "My boss says he likes Scala.",
        "What if I lived in Paris?",
        "Do I work at Siemens?",
        "I might move to Berlin.",
        "If I had a dog, I'd call it Rex.",
        "Translate the following text:\n\nI love my wife Maria and we live in Rome.",
        "```\n# I prefer pandas\n```",
        "> I prefer Java\nI disagree with this.",
        "2024-05-01 10:00:01 INFO I use port 8080",
        "My manager prefers email over chat.",
        "I love that!",
        "I want to know how this works.",
        "No, I don't think so.",
        "Delete the file old.txt.",
        "The user prefers dark mode.",
        "Yeah right, I just love it when the build breaks.",
    ],
)
def test_near_misses_teach_nothing(said: str) -> None:
    assert learned(said) == []


def test_corrections_name_what_was_wrong_and_the_fact_that_says_it() -> None:
    known = Fact("f1", "User lives in Linz")
    proposal = RulesExtractor().extract(
        [Turn("u", "user", "Actually, I live in Graz, not in Linz.")], (known, Fact("f2", "User likes tea"))
    )
    (candidate,) = proposal.candidates
    assert (candidate.category, candidate.content, candidate.error, candidate.replaces) == (
        "correction",
        "User lives in Graz",
        "Linz",
        ("f1",),
    )


def test_every_quote_is_word_for_word_and_only_user_turns_are_read() -> None:
    text = "Hello there!  I live in Graz; I use Vim 9.1.\n\nMy dog is called Bo."
    turns = [Turn("a", "assistant", "I live in the cloud."), Turn("u", "user", text), Turn("w", "web", "My name is Eve.")]
    candidates = RulesExtractor().extract(turns, ()).candidates
    assert [c.content for c in candidates] == ["User lives in Graz", "User uses Vim 9.1", "User's dog is called Bo"]
    assert all(c.quote and c.quote in text for c in candidates)


def test_where_the_user_works_is_proposed_as_work_context() -> None:
    assert RulesExtractor().extract([Turn("u", "user", "I work at Siemens.")], ()).slots == (
        SlotUpdate("workContext", "User works at Siemens"),
    )
    assert RulesExtractor().extract([Turn("u", "user", "I like tea.")], ()).slots == ()


@pytest.mark.parametrize(
    ("said", "rewritten"),
    [
        ("I've got 2 dogs", "User has got 2 dogs"),
        ("We're moving to O'Fallon, IL on 3/4.", "User is moving to O'Fallon, IL on 3/4"),
        ("I carry my own iPhone 15", "User carries their own iPhone 15"),
        ("I never go out", "User never goes out"),
        ("My code and I live in Rome", "User's code and they live in Rome"),
    ],
)
def test_the_third_person_keeps_names_and_numbers(said: str, rewritten: str) -> None:
    assert third_person(said) == rewritten
