"""M14: what is to be forgotten is found in every form in which it is stored, and only that goes."""

from __future__ import annotations

import json

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
    assert list(strings_of({"a": ["b", b"c", 1, None, {"d": "e"}]})) == ["a", "b", "c", "d", "e"]
