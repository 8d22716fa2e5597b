"""M14: what is to be forgotten is found in every form in which it is stored, and only that goes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.errors import InputError
from holdfast.text.needle import FORGOTTEN, Needle, strings_of

STREET = Needle("Elm “Street” 5")


@pytest.mark.parametrize("text", ['ELM "street" 5', "at the elm  „street‟\n5!", 'e\u200blm "street" 5'])
def test_case_quotes_spacing_and_invisible_characters_do_not_hide_it(text: str) -> None:
    assert STREET.in_text(text)


def test_something_like_it_is_not_it() -> None:
    assert not STREET.in_text('Elm "Street" 6')
    assert not STREET.in_bytes(b'{"text": "Elm Road"}')


def test_an_empty_text_cannot_be_forgotten() -> None:
    for texts in ((), ("",), ("\u200b ",)):
        with pytest.raises(InputError):
            Needle(*texts)


def test_a_short_text_may_be_asked_for_as_a_whole_only() -> None:
    """A fact `tea` goes, and a sentence in which the word stands does not (M14)."""
    needle = Needle("tea", "a long enough text", whole_below=12)
    assert needle.in_text("Tea")
    assert not needle.in_text("I like tea")
    assert needle.in_text("this is a long enough text, I think")


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_it_is_found_behind_the_escapes_of_json_in_json(levels: int) -> None:
    data = 'Grüße, "Zoë" 🦢\nfrom Graz'
    for _ in range(levels):
        data = json.dumps({"text": data})
    assert Needle("grüße, 'zoë' 🦢 from graz".replace("'", '"')).in_bytes(data.encode())


def test_it_is_found_in_bytes_that_are_torn_or_in_another_encoding() -> None:
    torn = json.dumps({"a": "Zoë lives in Graz"}).encode()[3:-4] + b"\xff\0"
    assert Needle("Zoë lives").in_bytes(torn)
    assert Needle("Zoë lives").in_bytes("Zoë lives".encode("utf-16"))


def test_only_the_sentences_that_hold_it_go() -> None:
    text = "Ask Ada first. He lives at Elm Street 5. The dog barks."
    needle = Needle("elm street 5")
    assert needle.without(text) == f"Ask Ada first. {FORGOTTEN} The dog barks."
    assert needle.without(text, "") == "Ask Ada first. The dog barks."
    assert needle.without("Nothing here.") == "Nothing here."


def test_a_text_over_the_end_of_a_sentence_takes_all_of_it() -> None:
    assert Needle("first. He lives").without("Ask Ada first. He lives here.") == FORGOTTEN


def test_a_value_loses_it_everywhere_but_in_fixed_members() -> None:
    value = {"id": "elm-1", "elm": ["Elm.", {"note": "An elm. A dog."}], "n": 5}
    assert Needle("elm").out_of(value, fixed={"id"}) == (
        {"id": "elm-1", FORGOTTEN: [FORGOTTEN, {"note": f"{FORGOTTEN} A dog."}], "n": 5},
        3,
    )


def test_two_members_whose_names_hold_it_both_stay() -> None:
    rest, count = Needle("elm").out_of({"elm": 1, "Elm": 2})
    assert sorted(rest.values()) == [1, 2]
    assert count == 2
    assert not Needle("elm").in_value(rest)


def test_the_texts_of_a_value_are_its_keys_too() -> None:
    assert list(strings_of({"a": ["b", b"c", 1, None, {"d": "e"}]})) == ["a", "b", "c", "1", "d", "e"]


def test_what_our_files_are_made_of_is_nobodys_text() -> None:
    """M14: names of members, states, times and ids stay and take nothing with them."""
    fact = {
        "id": "fact_1a2b3c4d",
        "category": "context",
        "createdAt": "2026-04-19T08:15:30.120Z",
        "source": "manual",
        "content": "Has a cat.",
        "revision": 4711,
    }
    for word in ("category", "tego", "context", "2026", "manual", "1a2b3c4d", "4711", "content"):
        assert not Needle(word).in_value(fact), word
        assert not Needle(word).in_file(json.dumps(fact).encode()), word
        assert Needle(word).out_of(fact) == (fact, 0)
    assert Needle("cat").out_of(fact) == ({**fact, "content": FORGOTTEN}, 1)


@pytest.mark.parametrize(
    "told",
    [
        {"pin": 4711},
        {"value": 4711},
        {"answer": [4711]},
        {"codes": [1, 4711]},
        {"4711": "x"},
        {"text": "4711"},
        {"phone": "4711555666"},
        {"born": "4711-04-19"},
        {"content": "4711aabbccdd"},
        ["4711"],
    ],
)
def test_a_figure_that_somebody_told_is_found(told: Any) -> None:
    """M14: as a number, under a name that is not ours, as a name, and alone."""
    needle = Needle("4711")
    assert needle.in_value(told)
    rest, count = needle.out_of(told)
    assert count == 1 and not needle.in_value(rest)


def test_a_file_of_json_is_read_for_what_it_says() -> None:
    lines = b'{"kind": "fact"}\n{"text": "An elm."}\n'
    assert Needle("elm").in_file(lines) and not Needle("fact").in_file(lines)
    assert Needle("fact").in_file(b'{"kind": "fact"') and Needle("fact").in_file(b"a fact")
    assert Needle("elm").in_file(b'{"text": "elm", "text": "oak"}')


ODD = ("4915112345678", "1984-03-12", "deadbeefcafe99", "4915112345678-1984", "2026-04-19T08:15:30Z", "a1b2c3d4e5f60718")


@pytest.mark.parametrize("name", ["speaker", "tags", "tag", "source", "session", "url", "author", "user", "thread", "name", "topic_tag"])
@pytest.mark.parametrize("word", ODD)
def test_what_people_call_things_by_is_found_whatever_it_looks_like(name: str, word: str) -> None:
    """M14: a number of a telephone, a day and a word in hexadecimal are no ids of ours where a person put them."""
    value = {name: [word] if name == "tags" else word, "trust": "medium"}
    assert Needle(word).in_value(value)
    assert Needle(word).in_file(json.dumps(value).encode())
    rest, count = Needle(word).out_of(value)
    assert count == 1 and not Needle(word).in_value(rest)


@pytest.mark.parametrize(
    "id",
    ["thread-1kpjcy7a85dm8wyhf3x", "fact_1kpjcy7a85dm8wyhf3x", "subagent-1kpjcy7a85dm8wyhf3x", "k-" + "0a1b2c" * 5, "w-2026-04-19-001"],
)
def test_an_id_that_was_made_here_is_nobodys_text(id: str) -> None:
    """M14: it has a prefix of ours and, where it is numbered, the moment of its making."""
    for name in ("session", "source", "thread", "id"):
        assert not Needle(id).in_value({name: id}), name
        assert not Needle(id[-8:]).in_value({name: id}), name


@pytest.mark.parametrize("id", ["4915112345678", "1984-03-12", "deadbeefcafe99"])
def test_an_id_that_somebody_gave_is_his(id: str) -> None:
    assert Needle(id).in_value({"id": id})
