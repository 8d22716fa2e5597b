"""W18: what has the most or the earliest is read from a table's column; what is told in several sentences is answered by a passage."""

from __future__ import annotations

import pytest

from holdfast.extract import sentence_index
from holdfast.offline.documents import Library, SourceDocument
from holdfast.offline.researcher import Retrieval, best_rows
from holdfast.text.file_formats import read_text

CSV = "Model,Noise (dB),Price,Released\nCalder 9,48,4100,2024-03-01\nNorvik H2,36,5200,2023-01-15\nBrisa 7,52,3900,2025-07-30\n"
MARKDOWN = "# Mills\n\n| Mill | Built | Height |\n|---|---|---|\n| Ost | 1841 | 12 m |\n| Nord | 1790 | 18 m |\n| Süd | 1902 | 18 m |\n"
BOATS = "Boat,Class,Length m,Berth\nKingfisher,dinghy,4.2,A3\nOld Tom,trawler,14.5,D2\nPipit,kayak,3.1,A9\n"
GERMAN = "Wagen;Preis\nAmsel;4100 €\nBussard;12500 €\nDrossel;980 €\n"


def answers(question: str, text: str, suffix: str) -> list[str]:
    library = Library([SourceDocument(f"t{suffix}", read_text(text, suffix).text)])
    return [one.fact for one in Retrieval(library).answers(question, 3)]


@pytest.mark.parametrize(
    ("question", "text", "suffix", "wanted"),
    [
        ("Which model has the lowest noise?", CSV, ".csv", "Norvik H2"),
        ("Which model has the most noise?", CSV, ".csv", "Brisa 7"),
        ("Which model has the highest price?", CSV, ".csv", "Norvik H2"),
        ("Which model was released the earliest?", CSV, ".csv", "Norvik H2"),
        ("Which model is the latest?", CSV, ".csv", "Brisa 7"),
        ("Which boat is the longest?", BOATS, ".csv", "Old Tom"),
        ("Which boat is the shortest?", BOATS, ".csv", "Pipit"),
        ("Which mill is the oldest?", MARKDOWN, ".md", "Nord"),
        ("Welcher Wagen hat den höchsten Preis?", GERMAN, ".csv", "Bussard"),
        ("Welcher Wagen hat den niedrigsten Preis?", GERMAN, ".csv", "Drossel"),
    ],
)
def test_a_superlative_is_answered_by_the_row_that_is_best(question: str, text: str, suffix: str, wanted: str) -> None:
    """W18"""
    assert wanted in answers(question, text, suffix)[0]


DEPOTS = "{},{},{}\nArvik,1034,2019-03-03\nBorle,998,2021-01-12\nCask,2500,2018-07-07\nDunmor,12,2022-05-01\n"
ENGLISH_DEPOTS, GERMAN_DEPOTS, FRENCH_DEPOTS = (
    DEPOTS.format(*heads) for heads in (("Depot", "Stock", "Founded"), ("Lager", "Bestand", "Gegründet"), ("Dépôt", "Stock", "Fondé"))
)


@pytest.mark.parametrize(
    ("question", "text", "wanted"),
    [
        ("Which depot was founded first?", ENGLISH_DEPOTS, "Cask"),
        ("Which was the first depot to be founded?", ENGLISH_DEPOTS, "Cask"),
        ("Which depot was founded last?", ENGLISH_DEPOTS, "Dunmor"),
        ("Which depot was founded most recently?", ENGLISH_DEPOTS, "Dunmor"),
        ("Which depot was founded longest ago?", ENGLISH_DEPOTS, "Cask"),
        ("Welches Lager wurde zuerst gegründet?", GERMAN_DEPOTS, "Cask"),
        ("Welches Lager wurde als letztes gegründet?", GERMAN_DEPOTS, "Dunmor"),
        ("Quel dépôt a été fondé en premier ?", FRENCH_DEPOTS, "Cask"),
        ("Quel dépôt a été fondé en dernier ?", FRENCH_DEPOTS, "Dunmor"),
        ("Which bus leaves last?", "Bus,Leaves,Seats\nA,7:45,40\nB,10:15,30\nC,6:30,20\nD,9:00,11\n", "Bus: B"),
    ],
)
def test_first_and_last_mean_the_ends_of_the_column_of_days_that_is_named(question: str, text: str, wanted: str) -> None:
    """W18"""
    assert wanted in answers(question, text, ".csv")[0]


def test_a_first_floor_and_a_column_that_is_not_named_are_no_order_of_days() -> None:
    """W18"""
    document = SourceDocument("t.csv", read_text(ENGLISH_DEPOTS, ".csv").text)
    for question in (
        "Which depot on the first floor was founded by Olsen?",
        "Which depot has the first stock?",
        "Which depot failed last week?",
    ):
        assert best_rows(question, [document]) == []


ORDERS = (
    "order_no,item,quantity,unit_price_eur\nA-17,Lens cleaning kit,3,141.50\nA-18,Laser tube,1,1690\nA-19,Mirror set,2,320\n"
    "A-20,Cable,10,4.20\n"
)
TOTALS = "order_no,unit_price,total\nA-17,141.50,424.50\nA-18,390,390\nA-19,4.20,420\n"


@pytest.mark.parametrize(
    ("question", "text", "wanted"),
    [
        ("Which order was the most expensive?", ORDERS, "A-18"),
        ("Which order was the cheapest?", ORDERS, "A-20"),
        ("Which order was the least expensive?", ORDERS, "A-20"),
        ("Which order was the most expensive?", TOTALS, "A-17"),
        ("Welcher Wagen ist am teuersten?", GERMAN, "Bussard"),
        ("Which order cost the most?", ORDERS, "A-18"),
        ("Which order costs the least?", ORDERS, "A-20"),
        ("Welcher Wagen kostet am wenigsten?", GERMAN, "Drossel"),
    ],
)
def test_a_superlative_means_a_column_by_another_word_than_its_head(question: str, text: str, wanted: str) -> None:
    """W18: what is expensive is so by its price, and by what a row comes to before the price of a piece."""
    assert wanted in answers(question, text, ".csv")[0]


def test_the_cheapest_is_known_in_other_languages() -> None:
    document = SourceDocument("t.csv", read_text(GERMAN, ".csv").text)
    for question in ("Welcher Wagen ist der günstigste?", "Welcher Wagen ist am billigsten?"):
        assert [document.units[number].passage.text for _, number in best_rows(question, [document])] == ["- Wagen: Drossel; Preis: 980 €"]


def test_a_name_alone_is_no_answer() -> None:
    """W18: a question whose only trace in the sources is a signature was not answered."""
    text = "# Rota\n\nThe laser is cleaned on Mondays by the team.\n\nTom\n"
    assert "Tom" not in answers("What is the salary of Tom Haag?", text, ".md")


def test_what_a_run_kept_of_a_file_is_not_told_beside_the_file() -> None:
    """W18: neither the row that is best nor a part of a sentence; a sentence of another file that has it stays."""
    rows = ["Model: CB-40; Price: 489", "Model: CB-50; Price: 612", "Model: CB-60; Price: 390"]
    kept = [SourceDocument(f"k-{n}", row, name="p.csv") for n, row in enumerate(rows)]
    found = Retrieval(Library([SourceDocument("k-9", "".join(f"- {row}\n" for row in rows), name="p.csv"), *kept]))
    for question in ("Which model has the highest price?", "Which model has the lowest price?"):
        told = [one.fact for one in found.answers(question, 5)]
        assert len(told) == len(set(told)) == 3
    whole = SourceDocument("k-1", "Stop! Ring twice. Then call Moser now.\n", name="s.html#Em")
    part = SourceDocument("k-2", "Then call Moser now.", name="S.html#em")
    assert len(Retrieval(Library([whole, part])).answers("Whom do I call?", 5)) == 1


def test_nothing_is_compared_where_no_one_row_is_best_or_no_column_is_meant() -> None:
    """W18: the ranking stands as it is."""
    plain = answers("Which mill has height?", MARKDOWN, ".md")
    assert sorted(answers("Which mill has the most height?", MARKDOWN, ".md")) == sorted(plain), "two are as high"
    mixed = "Wagen;Preis\nAmsel;4100 €\nBussard;12.500 €\nDrossel;980 €\n"
    assert best_rows("Welcher Wagen hat den niedrigsten Preis?", [SourceDocument("t.csv", read_text(mixed, ".csv").text)]) == []
    assert "Norvik" in answers("What is the noise of the Norvik H2 at most?", CSV, ".csv")[0]


def test_a_figure_that_is_asked_for_comes_with_the_sentence_before_it() -> None:
    """W18"""
    text = "The drug is given in the evening. It is 40 mg for adults. The box is blue.\n"
    assert answers("How much of the drug is given?", text, ".txt")[:2] == ["The drug is given in the evening.", "It is 40 mg for adults."]
    assert answers("When is the drug given?", text, ".txt")[:1] == ["The drug is given in the evening."]


def test_the_best_row_is_found_where_no_word_of_it_is_in_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """W18: by words alone, as without the extra `vectors`, "the cheapest" shares none with its row."""
    monkeypatch.setattr(sentence_index, "shared_vectors", lambda: None)
    table = SourceDocument("beans.csv", read_text("Lot,Origin,Price (EUR)\nL1,Kenya,9.80\nL2,Peru,7.10\nL3,Java,12.40\n", ".csv").text)
    other = SourceDocument("notes.md", "The roaster is swept each Monday. The shop opens at nine.")
    found = Retrieval(Library([table, other])).answers("Which lot is the cheapest?", 3)
    assert "L2" in found[0].fact
    assert Retrieval(Library([table, other])).answers("Which harbour is the deepest?", 3) == []


PLAN = (
    "# Plan\n\n## Lock\n\nThe lock can be turned off. Set QUILL_NOLOCK to 1 for that. Do it only where the lock call hangs.\n\n"
    "The lock was first made in spring.\n\n## Money\n\nThe trust pays for the lock.\n"
)


def test_an_answer_is_a_passage_of_one_paragraph_word_for_word_and_no_two_meet() -> None:
    """W18: a question with two parts is answered by sentences that stand together."""
    document = SourceDocument("plan.md", PLAN)
    retrieval = Retrieval(Library([document]))
    (whole,) = retrieval.answers("To what is QUILL_NOLOCK set so that the lock is turned off?", 4)
    assert whole.fact == "The lock can be turned off. Set QUILL_NOLOCK to 1 for that." and whole.fact in PLAN
    (apart,) = retrieval.answers("Only where does the lock call hang, and was the lock first made in spring?", 4)
    assert apart.fact == "The lock was first made in spring."
    several = retrieval.answers("Where does the call of the lock hang, and who pays for the lock?", 4)
    assert len(several) > 1 and not any(one.meets(other) for n, one in enumerate(several) for other in several[:n])


def test_a_passage_is_short_whatever_its_sentences_are() -> None:
    """W18: long sentences are not joined, and a sentence that was passed over is in no passage."""
    long = "The lock of the harbour " + "is old and heavy and " * 10 + "made of iron."
    other = "The lock of the canal " + "has gates of green oak and " * 8 + "no bridge."
    document = SourceDocument("a.md", f"{long} {other} Is the lock old? The lock is wide.")
    found = Retrieval(Library([document])).answers("Is the lock old and heavy and made of iron, or has it gates of green oak?", 9)
    asked = Retrieval(Library([document])).answers("Is the lock wide?", 9)
    assert {one.fact for one in (*found, *asked)} == {long, other, "The lock is wide."}
