"""Texts cut into the pieces that are embedded (K3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.search.pieces import cut_for_meaning


def test_a_short_sentence_joins_the_next() -> None:
    pieces = cut_for_meaning("Yes! I moved to the coast in the spring of last year. It rains more than I thought it would do there.")
    assert pieces == ["Yes! I moved to the coast in the spring of last year.", "It rains more than I thought it would do there."]


def test_lines_are_ends_too() -> None:
    lines = "first line has more than eight words in it really\nsecond line has more than eight words in it too"
    assert len(cut_for_meaning(lines)) == 2


def test_a_long_text_gives_larger_pieces_not_more_of_them() -> None:
    text = "The ledger of that year says what was sold and to whom. " * 100
    assert len(cut_for_meaning(text)) <= 25
    assert sum(len(piece.split()) for piece in cut_for_meaning(text)) == len(text.split())


def test_a_script_without_spaces_is_cut_at_its_own_marks() -> None:
    assert len(cut_for_meaning("会議は金曜日の午後三時に始まります。場所は本社の三階にある大きな会議室です。")) == 2


@pytest.mark.parametrize("text", ["", "   ", "\n\n"])
def test_nothing_gives_nothing(text: str) -> None:
    assert cut_for_meaning(text) == []


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=2000))
def test_no_visible_character_is_lost_and_no_piece_is_longer_than_can_be_read(text: str) -> None:
    pieces = cut_for_meaning(text)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(0 < len(piece) <= 1800 for piece in pieces)
