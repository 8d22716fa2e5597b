"""Claims are checked by their quote, and disagreement between sources is noticed (M10, W18)."""

from __future__ import annotations

import pytest

from holdfast.extract.disagreement import find_disagreements
from holdfast.extract.grounding import ground
from holdfast.extract.passages import Source

CHAT = Source(
    "chat",
    "I moved to Berlin in 2019. My server runs on port 8080,\nbehind  nginx. I don’t like meetings before 10 am."
    " We use “PostgreSQL” for everything.",
)


def test_a_word_for_word_quote_is_exact_with_its_place() -> None:
    found = ground("I moved to Berlin in 2019.", [Source("other", "Nothing."), CHAT])
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


def _kinds(first: str, second: str) -> list[tuple[str, str, str]]:
    found = find_disagreements([Source("a", first), Source("b", second)])
    return [(pair.kind, pair.first_value, pair.second_value) for pair in found]


@pytest.mark.parametrize(
    ("first", "second", "kind", "values"),
    [
        ("The bridge was closed for 19 weeks.", "For 12 weeks the bridge was closed.", "number", ("19", "12")),
        ("The team has eight members.", "The team has 12 members.", "number", ("8", "12")),
        ("The museum opened in May 1998.", "The museum opened in June 1999.", "date", ("May 1998", "June 1999")),
        ("The contract ends on 2024-03-15.", "The contract ends on 2024-04-15.", "date", ("2024-03-15", "2024-04-15")),
        ("The new valve is safe.", "The new valve is not safe.", "negation", ("", "")),
        ("The committee approved the plan.", "The committee rejected the plan.", "negation", ("", "")),
        ("桥长一百二十米，建于1998年。", "桥长一百二十米，建于2003年。", "date", ("1998年", "2003年")),
        ("这种药对儿童安全。", "这种药对儿童不安全。", "negation", ("", "")),
    ],
)
def test_sentences_about_the_same_thing_that_differ_are_noticed(first: str, second: str, kind: str, values: tuple[str, str]) -> None:
    assert _kinds(first, second) == [(kind, *values)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The bridge was closed for 19 weeks.", "The bridge was closed for nineteen weeks."),
        ("In 2019 the company earned 5 million.", "In 2020 the company earned 7 million."),
        ("Anna has 3 cats.", "Boris has 4 dogs."),
        ("The museum in Bonn opened in 1998.", "The museum in Kiel opened in 1999."),
        ("The museum opened in May 1998.", "The museum opened in 1998."),
        ("The valve is safe.", "Lunch was not good."),
        ("The valve is safe.", "The valve is safe."),
    ],
)
def test_what_does_not_contradict_is_no_disagreement(first: str, second: str) -> None:
    assert _kinds(first, second) == []


def test_a_disagreement_names_both_passages_word_for_word() -> None:
    sources = [Source("a", "Intro here. The bridge was closed for 19 weeks."), Source("b", "The bridge was closed for 12 weeks. End.")]
    (pair,) = find_disagreements(sources)
    assert (pair.first.source, pair.second.source) == ("a", "b")
    assert sources[0].text[pair.first.start : pair.first.end] == pair.first.text
    assert sources[1].text[pair.second.start : pair.second.end] == pair.second.text


def test_one_source_can_be_left_to_disagree_with_itself() -> None:
    source = Source("a", "The bridge was closed for 19 weeks. Later we read that the bridge was closed for 12 weeks.")
    assert len(find_disagreements([source])) == 1
    assert find_disagreements([source], within=False) == []
