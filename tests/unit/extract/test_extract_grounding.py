"""Claims are checked by their quote (M10, W18)."""

from __future__ import annotations

import pytest

from holdfast.extract.selection import SourceText, ground

CHAT = SourceText(
    "chat",
    "I moved to Berlin in 2019. My server runs on port 8080,\nbehind  nginx. I don’t like meetings before 10 am."
    " We use “PostgreSQL” for everything.",
)


def test_a_word_for_word_quote_is_exact_with_its_place() -> None:
    found = ground("I moved to Berlin in 2019.", [SourceText("other", "Nothing."), CHAT])
    assert found.kind == "exact"
    assert found.passage is not None
    assert (found.passage.source, found.passage.text) == ("chat", "I moved to Berlin in 2019.")


@pytest.mark.parametrize(
    ("claim", "original"),
    [
        ("my server runs on PORT 8080, behind nginx", "My server runs on port 8080,\nbehind  nginx"),
        ("I don't like meetings", "I don’t like meetings"),
        ('We use "PostgreSQL" for everything', "We use “PostgreSQL” for everything"),
        ("…moved to Berlin…", "moved to Berlin"),
    ],
)
def test_a_quote_in_another_dress_leads_back_to_the_original(claim: str, original: str) -> None:
    found = ground(claim, [CHAT])
    assert found.kind == "normalised"
    assert found.passage is not None
    assert found.passage.text == original
    assert CHAT.text[found.passage.start : found.passage.end] == original


@pytest.mark.parametrize(
    "claim", ["The server runs behind nginx on port 8080", "In 2019 I moved to Berlin", "PostgreSQL is used for everything"]
)
def test_the_same_in_other_words_is_near_with_a_score(claim: str) -> None:
    found = ground(claim, [CHAT])
    assert found.kind == "near"
    assert 0.75 <= found.score < 1
    assert found.passage is not None
    assert found.passage.text in CHAT.text


@pytest.mark.parametrize(
    "claim",
    [
        "My server runs on port 80",
        "My server runs on port 9090, behind nginx",
        "I moved to Munich in 2019",
        "I moved to Berlin in 2020",
        "I like meetings before 10 am",
        "We use MySQL for everything",
        "The user owns a cat",
        "",
        "   ",
    ],
)
def test_another_number_name_or_polarity_is_absent(claim: str) -> None:
    found = ground(claim, [CHAT])
    assert not found
    assert found.passage is None
