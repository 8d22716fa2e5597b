"""A text that says the same over and over is noticed, and ordinary texts are not (A15)."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.text.likeness import repetition

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("I help people, and I help them. " * 30, "I help people, and I help them."),
        ("Hello. " + "What is your name? My name is Max. " * 8, "Hello. What is your name? My name is Max."),
        ("ok " * 60, "ok"),
        ("The list:\n" + "".join(f"{n}. Osprey is the better choice.\n" for n in range(20)), "The list:\n0. Osprey is the better choice."),
        ("Wer fragt, führt. " * 12, "Wer fragt, führt."),
    ],
)
def test_what_is_said_over_and_over_is_kept_once(text: str, kept: str) -> None:
    """A15"""
    end = repetition(text)
    assert end is not None
    assert text[:end] == kept or text[:end].startswith(kept[: len(kept) // 2]), text[:end]
    assert len(text[:end]) <= 2 * len(kept)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Row, row, row your boat, gently down the stream. Merrily, merrily, merrily, merrily, life is but a dream.",
        "| a | b | c |\n|---|---|---|\n| 0 | 0 | 0 |\n| 0 | 0 | 0 |\n| 0 | 0 | 0 |\n| 0 | 0 | 0 |\n",
        "-" * 120,
        "def f():\n    pass\n\n\ndef g():\n    pass\n",
        "No. No. No. That is not what I meant.",
    ],
)
def test_ordinary_texts_do_not_repeat_themselves(text: str) -> None:
    """A15"""
    assert repetition(text) is None


def test_no_page_of_ours_repeats_itself_wherever_it_is_cut() -> None:
    """A15: whole pages with tables, code and lists, and each of their beginnings."""
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "examples" / "research").rglob("*.md")]
    assert len(pages) > 10
    for page in pages:
        text = page.read_text("utf-8")
        assert [cut for cut in range(200, len(text), 997) if repetition(text[:cut]) is not None] == [], page
