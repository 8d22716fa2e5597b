"""W18: what has the most or the earliest is read from a table's column, and a figure from the sentence after the one that was found."""

from __future__ import annotations

import pytest

from holdfast.offline.best_row import best_rows
from holdfast.offline.documents import Library, SourceDocument
from holdfast.offline.retrieval import Retrieval
from holdfast.text.file_formats import read_text

CSV = "Model,Noise (dB),Price,Released\nCalder 9,48,4100,2024-03-01\nNorvik H2,36,5200,2023-01-15\nBrisa 7,52,3900,2025-07-30\n"
MARKDOWN = "# Mills\n\n| Mill | Built | Height |\n|---|---|---|\n| Ost | 1841 | 12 m |\n| Nord | 1790 | 18 m |\n| Süd | 1902 | 18 m |\n"
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
        ("Which mill is the oldest?", MARKDOWN, ".md", "Nord"),
        ("Welcher Wagen hat den höchsten Preis?", GERMAN, ".csv", "Bussard"),
        ("Welcher Wagen hat den niedrigsten Preis?", GERMAN, ".csv", "Drossel"),
    ],
)
def test_a_superlative_is_answered_by_the_row_that_is_best(question: str, text: str, suffix: str, wanted: str) -> None:
    """W18"""
    assert wanted in answers(question, text, suffix)[0]


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
