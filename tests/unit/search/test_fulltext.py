"""The full-text index that the archive, memory and knowledge share (S9, K2)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.search.fulltext import Document, FullTextIndex, Shape
from holdfast.search.pieces import cut_pieces, snippet_of
from holdfast.search.questions import lookalikes

PLAIN = Shape({"text": 1.0, "title": 2.0})


def index_of(*texts: str, shape: Shape = PLAIN) -> FullTextIndex:
    index = FullTextIndex(":memory:", shape)
    index.add(Document(f"d{n}", {"text": text}) for n, text in enumerate(texts))
    return index


def found(index: FullTextIndex, question: str, top_k: int = 10) -> list[str]:
    return [one.id for one in index.search(question, top_k)]


def test_stems_and_identifiers_meet_in_any_form() -> None:
    index = index_of("The connections were refused.", "call getUserName() in parse_url.py", "version 3.11.7 is out", "用户喜欢数据库迁移")
    assert found(index, "connect") == ["d0"]
    assert found(index, "user name") == ["d1"]
    assert found(index, "parse url") == ["d1"]
    assert found(index, "3.11") == ["d2"]
    assert found(index, "数据库") == ["d3"]


def test_a_rare_shared_word_wins_over_many_common_ones() -> None:
    common = ["we should deploy the server and check the report today"] * 30
    index = index_of(*common, "heron moved")
    assert found(index, "should we check today where the heron server report is?", 1) == ["d30"]


def test_questions_are_understood_in_the_languages_of_the_index() -> None:
    german = ["Die Häuser wurden gestern verkauft, und wir haben uns gefreut."] * 3
    index = index_of(*german, "The tenants were informed about the plan.")
    assert found(index, "Haus")[0].startswith("d")
    assert set(found(index, "Haus")) == {"d0", "d1", "d2"}


def test_a_field_of_more_weight_ranks_higher() -> None:
    index = FullTextIndex(":memory:", PLAIN)
    index.add([Document("body", {"text": "kite and more", "title": "bird"}), Document("head", {"text": "bird and more", "title": "kite"})])
    assert found(index, "kite") == ["head", "body"]


def test_neighbours_lend_their_words_at_a_lower_weight_and_not_across_scopes() -> None:
    shape = Shape({"text": 1.0}, window=(0.5, 0.25))
    index = FullTextIndex(":memory:", shape)
    talk = ["nothing here", "where did you buy the telescope?", "in Porto, last spring", "nice", "other things", "more of them"]
    index.add(Document(f"a{n}", {"text": text}, scope="a") for n, text in enumerate(talk))
    index.add(Document(f"b{n}", {"text": text}, scope="b") for n, text in enumerate(["in Porto, last spring"]))
    best = index.search("telescope Porto", 2)
    assert {one.id for one in best} == {"a1", "a2"}, "the other Porto has no telescope beside it"
    assert "a0" in found(index, "telescope")
    assert "a5" not in found(index, "telescope")


def test_words_are_not_lent_over_something_of_another_scope() -> None:
    """S9: what stands behind an answer is no neighbour."""
    said = [Document("asked", {"text": "heron"}), Document("answered", {"text": "fine"}, scope="2"), Document("next", {"text": "thanks"})]
    with FullTextIndex(":memory:", Shape({"text": 1.0}, window=(0.5, 0.25))) as index:
        index.add(said)
        assert [hit.id for hit in index.search("heron")] == ["asked"]


def test_a_fact_in_a_long_text_is_found_by_its_piece() -> None:
    filler = "The weather was mild and nothing of note took place in the harbour. "
    long = filler * 200 + "The vault opens with 9917. " + filler * 200
    index = index_of(*["vault doors and vault keys and vault walls in general " + filler * 3] * 5, long)
    (best, *_) = index.search("vault opens 9917")
    assert best.id == "d5"
    start, stop = best.piece
    assert "The vault opens with 9917." in long[start:stop]
    assert snippet_of(long, best.matched, within=best.piece).text == "The vault opens with 9917."


def test_filters_apply_before_ranking() -> None:
    index = FullTextIndex(":memory:", PLAIN)
    index.add(Document(f"n{n}", {"text": "kite " * (n % 5 + 1)}, kind="noise", time="2026-01-01") for n in range(300))
    index.add([Document("x", {"text": "one kite in a long sentence of other words"}, kind="signal", time="2026-02-02")])
    assert [one.id for one in index.search("kite", 3, kinds={"signal"})] == ["x"]
    assert [one.id for one in index.search("kite", 3, after="2026-02")] == ["x"]
    assert [one.id for one in index.search("kite", 3, before="2026-02", among=["n7", "x"])] == ["n7"]
    assert index.search("kite", 3, kinds=()) == []


def test_adding_replaces_and_clearing_takes_everything_out() -> None:
    index = index_of("a red kite", "a blue kite")
    index.add([Document("d0", {"text": "a green frog"})])
    assert found(index, "red") == []
    assert found(index, "kite") == ["d1"]
    assert len(index) == 2
    assert index.ids() == {"d0", "d1"}
    index.clear()
    assert (len(index), found(index, "frog")) == (0, [])


def test_an_index_survives_its_process_and_empties_itself_when_its_form_changes(tmp_path: Path) -> None:
    with FullTextIndex(tmp_path / "i.sqlite", PLAIN) as index:
        assert index.fresh
        index.add([Document("a", {"text": "kite"})], notes={"seen": "17"})
    with FullTextIndex(tmp_path / "i.sqlite", PLAIN) as index:
        assert not index.fresh
        assert index.note("seen") == "17"
        assert found(index, "kites") == ["a"]
    with FullTextIndex(tmp_path / "i.sqlite", Shape({"body": 1.0})) as index:
        assert index.fresh
        assert index.note("seen") is None
        assert len(index) == 0


def test_unknown_words_stand_for_those_written_much_like_them() -> None:
    index = index_of("authenticate before the deployment", "the colour of the kestrel", "nothing to see")
    assert found(index, "auth") == ["d0"]
    assert found(index, "kestral") == ["d1"]
    assert found(index, "zzzz") == []
    assert lookalikes("a1b2", lambda head: ["a1b3"]) == {}


def test_equal_matches_put_the_newer_first() -> None:
    assert found(index_of("a red kite", "a red kite"), "kite") == ["d1", "d0"]


def test_a_shape_has_one_to_four_fields() -> None:
    for fields in ({}, dict.fromkeys("abcde", 1.0)):
        with pytest.raises(InputError):
            Shape(fields)


@given(st.text(max_size=200), st.text(max_size=200))
@settings(max_examples=60, deadline=None)
def test_any_text_can_be_indexed_and_any_text_is_a_question(text: str, question: str) -> None:
    with index_of(text, "kite") as index:
        index.search(question)
        for one in index.search(text[:60], 5):
            snippet = snippet_of(text if one.id == "d0" else "kite", one.matched, within=one.piece)
            assert all(0 <= start < end <= len(snippet.text) for start, end in snippet.marks)


@given(st.text(alphabet="ab .\n。é", max_size=9000))
@settings(max_examples=60, deadline=None)
def test_pieces_cover_a_text_without_gap_or_overlap(text: str) -> None:
    pieces = list(cut_pieces(text))
    assert "".join(text[start:stop] for start, stop in pieces) == text
    assert all(start < stop or not text for start, stop in pieces)


def test_a_snippet_is_the_sentence_with_the_code_that_was_asked_for() -> None:
    """K2, K6: a code is one thing, and a word that every line has says nothing about which line is meant."""
    rows = [f"Model: CB-{number}; Price: {number * 12 + 9}" for number in (10, 20, 40, 50)]
    text = "\n\n".join(rows)
    for number, row in zip((10, 20, 40, 50), rows, strict=True):
        snippet = snippet_of(text, {"cb": 1.0, "price": 0.5, str(number): 1 / 3, f"cb{number}": 0.25})
        assert snippet.text == row
        assert snippet.said["cb"] == f"CB-{number}"
    wordy = "Price, price and again price of tea.\n\nThe kettle."
    assert snippet_of(wordy, {"price": 0.9, "kettl": 1.0}).text == "The kettle."
    wide = f"Price: 9; {'x' * 20} " + "Colour: a shade of grey; " * 30 + "Model: CB-50"
    assert "CB-50" in snippet_of(wide, {"price": 0.5, "cb": 0.5, "50": 0.3, "cb50": 0.6}).text


def test_a_snippet_is_the_matching_sentence_with_its_words_marked() -> None:
    text = "First things first.\nThe heron\nstands in Frankfurt. The end."
    snippet = snippet_of(text, {"heron": 2.0, "frankfurt": 2.0, "end": 1.0})
    assert snippet.text == "The heron stands in Frankfurt."
    assert [snippet.text[start:end] for start, end in snippet.marks] == ["heron", "Frankfurt"]
    long = "word " * 300 + "heron " + "word " * 300
    short = snippet_of(long, {"heron": 1.0})
    assert "heron" in short.text
    assert len(short.text) < 260
    assert snippet_of(text, {}).text.startswith("First things first. The heron")


def test_vectors_of_pieces_are_kept_beside_them_and_go_with_them(tmp_path: Path) -> None:
    """S9, K3: made by one maker at a time, found again by another process, gone with a document that is replaced."""
    first, *_ = rows = [1, 2, 3]
    with FullTextIndex(tmp_path / "i.sqlite", PLAIN) as index:
        index.add(Document(f"d{n}", {"text": text}) for n, text in enumerate(("one heron", "two herons", "three herons")))
        assert index.without_meaning(10) == [3, 2, 1]
        index.keep_meanings({row: (b"v%d" % row, b"t%d" % row) for row in rows}, by="maker")
    with FullTextIndex(tmp_path / "i.sqlite", PLAIN) as index:
        assert index.meanings(rows) == {row: (b"v%d" % row, b"t%d" % row) for row in rows}
        index.add([Document("d0", {"text": "another heron"})])
        assert first not in index.meanings(rows)
        assert index.without_meaning(10) == [4]
        index.add([Document("d9", {"text": "a fourth heron"}, kind="tool")])
        assert index.without_meaning(10) == [5, 4]
        assert index.without_meaning(10, but="tool") == [4]
        index.keep_meanings({4: (b"", b"")}, by="other")
        assert index.meanings([1, 2, 3, 4]) == {4: (b"", b"")}
        assert index.note("meanings") == "other"
        index.clear()
        assert index.meanings([4]) == {}


def test_an_index_of_the_version_before_is_opened_and_goes_on(tmp_path: Path) -> None:
    """O7: it has no table for vectors yet."""
    path = tmp_path / "i.sqlite"
    with FullTextIndex(path, PLAIN) as index:
        index.add([Document("d0", {"text": "the heron at the lake"})])
    with closing(sqlite3.connect(path)) as database:
        database.executescript("DROP TABLE meanings; PRAGMA user_version = 1;")
    with FullTextIndex(path, PLAIN) as index:
        assert found(index, "heron") == ["d0"]
        index.keep_meanings({1: (b"v", b"t")}, by="maker")
        assert index.meanings([1]) == {1: (b"v", b"t")}
