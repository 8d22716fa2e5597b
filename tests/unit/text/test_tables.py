"""W18, K1: tables as rows with the heads of their columns, also where the table does not mark which row is its head."""

from __future__ import annotations

import pytest

from holdfast.text.file_formats import read_text
from holdfast.text.tables import with_heads

EMPTY = "|  |  |\n| --- | --- |\n"
"""How a converter writes the head of a Word table that marks none."""


def items(table: str) -> list[str]:
    return [line for line in with_heads(table).split("\n") if line]


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ("| Utility | Paid by |\n| Water | harbour trust |\n| Power | tenant |", "- Utility: Water; Paid by: harbour trust"),
        ("| Item | Price |\n| Net | 12 |\n| Rope | 4 |", "- Item: Net; Price: 12"),
        ("| Room | Area |\n| Hall | 18 m² |\n| Loft | 42 m² |", "- Room: Hall; Area: 18 m²"),
        ("| **Role** | **Name** |\n| Owner | Harbour Trust |\n| Tenant | Jago Penrose |", "- Role: Owner; Name: Harbour Trust"),
        ("| Boat | Berth | Owner |\n| Pipit | A9 | Jago |", "- Boat: Pipit; Berth: A9; Owner: Jago"),
        ("| Species | 2019 | 2020 |\n| Kelp | 12 | 14 |\n| Eel | 3 | 1 |", "- Species: Kelp; 2019: 12; 2020: 14"),
        ("|  | Monday | Tuesday |\n| Early | Jago | Piran |", "- Early; Monday: Jago; Tuesday: Piran"),
        ("| Prices of 2026 |  |\n| Item | Price |\n| Net | 12 |\n| Rope | 4 |", "###### Prices of 2026"),
    ],
)
def test_the_first_row_is_the_head_where_it_reads_like_one(rows: str, wanted: str) -> None:
    """W18"""
    assert items(EMPTY + rows)[0] == wanted


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        (
            "| Landlord | Harbour Trust |\n| Tenant | Jago Penrose |\n| Rent | 410 euros |",
            ["- Landlord: Harbour Trust", "- Tenant: Jago Penrose", "- Rent: 410 euros"],
        ),
        ("| Rent | 410 euros |\n| Term | 3 years |", ["- Rent: 410 euros", "- Term: 3 years"]),
        (
            "| Term | until further notice |\n| Rent | 410 euros |\n| Notice | 3 months |",
            ["- Term: until further notice", "- Rent: 410 euros", "- Notice: 3 months"],
        ),
        ("| Net | 12 | loft |\n| Rope | 4 | shed |", ["- Net; 12; loft", "- Rope; 4; shed"]),
        (
            "| The tide turns. | It is high. | So says the log. |\n| a | b | c |",
            ["- The tide turns.; It is high.; So says the log.", "- a; b; c"],
        ),
        ("| **Tenant** | Jago |\n| **Keys** | at the office |", ["- Tenant: Jago", "- Keys: at the office"]),
    ],
)
def test_rows_without_a_head_stand_as_they_are_and_pairs_as_a_word_and_what_it_says(rows: str, wanted: list[str]) -> None:
    """W18: of what is no head nothing is put before other cells."""
    assert items(EMPTY + rows) == wanted


def test_a_head_that_is_marked_is_the_head_whatever_it_reads_like() -> None:
    """W18"""
    assert items("| 12 | it ends. |\n|---|---|\n| a | b |") == ["- 12: a; it ends.: b"]
    assert items("| Item |  |\n|---|---|\n| Net | 12 |") == ["- Item: Net; 12"]


def test_a_title_above_the_columns_of_a_sheet_is_their_heading_and_empty_cells_stay_empty() -> None:
    """W18: the converter writes `Unnamed: 1` and `NaN` into empty cells."""
    sheet = (
        "## Sheet\n| Price list | Unnamed: 1 |\n| --- | --- |\n| NaN | NaN |\n| Item | Price |\n| Net | 12 |\n| Rope | 4 |\n| Oar | NaN |"
    )
    assert [line for line in read_text(sheet, ".xlsx").text.split("\n") if line] == [
        "## Sheet",
        "###### Price list",
        "- Item: Net; Price: 12",
        "- Item: Rope; Price: 4",
        "- Item: Oar",
    ]


def test_the_title_of_a_pdf_is_a_heading_and_no_sentence() -> None:
    """W18: whether the file states it, or it is the first line like one."""
    body = "Kelp growth in Morven Bay\nKelp grew fastest at the north wall.\nIt was slow in the bay.\n"
    for text in (body, f"---\ntitle: Kelp growth in Morven Bay\n---\n{body}"):
        assert read_text(text, ".pdf").text.strip().startswith("# Kelp growth in Morven Bay\n\nKelp grew")
