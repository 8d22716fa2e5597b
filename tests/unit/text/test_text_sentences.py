"""Sentences survive abbreviations, figures, quotes, lists, tables and code (S10, W18)."""

from __future__ import annotations

import pytest

from holdfast.text.sentences import split_sentences


def split(text: str) -> list[str]:
    units = split_sentences(text)
    assert all(text[unit.start : unit.end] == unit.text for unit in units)
    return [unit.text for unit in units]


# Each list is the sentences of the text that they make when joined by a space.
PROSE = [
    ["Dr. Smith went to Washington.", "He met Mr. Jones and Mrs. Gray."],
    ["Use e.g. this one, i.e. that.", "It is approx. 5 km away."],
    ["The U.S. economy grew.", "It works in the U.S.", "He left."],
    ["See Fig. 3 and No. 5 for details.", "Eq. 7 shows it.", "No.", "That is wrong."],
    ["On Jan. 5 we met.", "In Sept. 2019 we parted."],
    ["It costs 3.14 dollars.", "Python 3.11.7 is out.", "See v2.0.1 now."],
    ["Well... maybe not.", "I wonder…", "Then he came."],
    ["J. R. R. Tolkien wrote it.", "A. B. Miller read it."],
    ["So do I.", "He left.", "Plan B.", "Then the end."],
    ["Open https://example.com/a.b?c=d.", "Edit main.py.", "Then run it."],
    ['"Is it true?" he asked.', "(Yes, it is.)", 'She said "Stop."', "Then she left."],
    ['He said: "I came. I saw. I won."', "Then he left."],
    ["The cat (see p. 5. It is big.) slept.", "The dog did not."],
    ["He works at Apple Inc.", "The company is big.", "Acme Corp. bought it."],
    ["At 5 p.m. Monday we met.", "It ended at 6 p.m.", "The rain had stopped."],
    ["It rose by 5%.", "It fell by $4.50!", "Why?", "Nobody knows."],
    ["It was founded in 1999.", "Today it has 40 rooms.", "Then 3.", "It grew."],
    ["Am 3. Oktober war es kalt.", "Im 19. Jahrhundert z. B. auch.", "Dann nicht."],
    ["He earned a Ph.D. in Bonn.", "She has an M.D. too.", "They met there."],
    ["“Really?” she asked.", "«Oui.»", "Then silence."],
    ["The method is by Jones et al. and works.", "Smith et al. 2019 agree."],
    ["Use the `a.b` call.", "Then *stop.*", "Good."],
    ["i like tea.", "i hate coffee.", "use e.g. mint"],
    ["Wait!", "what?", "yes."],
]  # fmt: skip


@pytest.mark.parametrize("sentences", PROSE, ids=[sentences[0][:30] for sentences in PROSE])
def test_prose_is_split_where_a_reader_would(sentences: list[str]) -> None:
    assert split(" ".join(sentences)) == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["今天天气很好。", "我们去公园吧！", "你来吗？", "好"],
        ["これはペンです。", "「はい。」と言った。", "次へ"],
        ["他说：“你好。”", "然后走了。"],
        ["彼は（1999年。東京で）生まれた。", "今も元気だ。"],
        ["版本3.5发布了。", "下载地址是example.com。", "OK!", "好的"],
    ],
)
def test_languages_without_spaces_are_split_at_their_own_marks(sentences: list[str]) -> None:
    assert split("".join(sentences)) == sentences


def test_list_items_are_units_with_the_lines_that_continue_them() -> None:
    text = "Buy:\n- milk. Two litres.\n- bread\n  from the baker\n\n1. Wash\n2) Dry\n   slowly\n* [x] done\n• dot\na) letter\n"
    assert split(text) == [
        "Buy:",
        "- milk. Two litres.",
        "- bread\n  from the baker",
        "1. Wash",
        "2) Dry\n   slowly",
        "* [x] done",
        "• dot",
        "a) letter",
    ]


def test_an_item_that_is_a_paragraph_in_disguise_is_split_like_one() -> None:
    text = "- " + " ".join(f"This is sentence number {n} of a long item." for n in range(30))
    assert len(split(text)) == 30


def test_headings_and_table_rows_are_units_and_rulers_are_nothing() -> None:
    text = "# Title of it\n\nText. More.\n\nSetext\n======\n\n"
    text += "| a. b | c |\n|---|:-:|\n| 1. | Dr. No. Yes |\n\nx | y\n--|--\n1 | 2\n\n---\nEnd."
    units = split_sentences(text)
    assert [(unit.kind, unit.text) for unit in units] == [
        ("heading", "# Title of it"),
        ("sentence", "Text."),
        ("sentence", "More."),
        ("heading", "Setext"),
        ("row", "| a. b | c |"),
        ("row", "| 1. | Dr. No. Yes |"),
        ("row", "x | y"),
        ("row", "1 | 2"),
        ("sentence", "End."),
    ]


@pytest.mark.parametrize(
    "code",
    [
        "```python\nx = 1.\n\ny = 'A. B'\n- not an item\n# no heading\n```",
        "~~~\na. B. C.\n```\nstill code\n~~~",
        "````\n```\ninner. Code\n```\n````",
        "```\nnever closed. Really.\n\n# not",
    ],
)
def test_fenced_code_is_one_unit_and_never_cut(code: str) -> None:
    text = f"Before it. Look:\n\n{code}"
    units = split_sentences(text)
    assert units[-1].kind == "code"
    assert units[-1].text == code
    assert [unit.text for unit in units[:-1]] == ["Before it.", "Look:"]


def test_indented_code_after_a_blank_line_is_one_unit() -> None:
    assert split("Run this:\n\n    make. It. All\n\n    make test\n\nDone.") == ["Run this:", "make. It. All\n\n    make test", "Done."]


def test_wrapped_prose_goes_on_over_the_line_end() -> None:
    text = "This paragraph was wrapped by its writer at\nsome width, so that Every line is about the\nsame length. It ends. And\ngoes on."
    assert split(text) == [
        "This paragraph was wrapped by its writer at\nsome width, so that Every line is about the\nsame length.",
        "It ends.",
        "And\ngoes on.",
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ["Roses are red", "Violets are blue", "Sugar is sweet"],
        ["Ann: how are you", "Bob: fine", "Ann: good to hear that you are"],
        ["12:01 server started", "12:02 connection lost to host a", "12:03 ok"],
    ],
)
def test_lines_that_were_broken_on_purpose_are_units(lines: list[str]) -> None:
    assert split("\n".join(lines)) == lines


def test_units_know_their_block() -> None:
    units = split_sentences("One. Two.\n\nThree.\n- four")
    assert [unit.block for unit in units] == [0, 0, 1, 2]


@pytest.mark.parametrize("text", ["", " \n\t\n", "---\n***\n"])
def test_a_text_without_letters_has_no_units(text: str) -> None:
    assert split(text) == []


@pytest.mark.parametrize("bad", ["(", '"', ".", "a. ", "| ", "- ", "“(“(", "a|b\n", "\n", "1. ", "```\n", "> ", "Dr. "])
def test_a_long_run_of_anything_is_read_in_linear_steps(bad: str) -> None:
    """With quadratic steps this would take minutes and run into the time limit of the suite."""
    split_sentences(bad * 40_000)
