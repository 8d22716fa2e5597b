"""O1: how commands print: prose at words, listings that cut nothing, Markdown as it is meant."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from holdfast.app.output import Column, counted, listing, markdown, plain, prose, to_paste

COLUMNS = (Column("sure", right=True), Column("fact", text=True), Column("said", right=True), Column("id"))
FACT = "Prefers short answers with the figures first, and no polite padding at the end"
ID = "fact_1m7h87219a72043e53f"


def terminal(width: int = 80) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, highlight=False)


def shown(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_prose_is_wrapped_at_words_below_its_mark(width: int) -> None:
    console, text = terminal(width), "The grant ends in June, and three offers are in. " * 6
    prose(console, text, mark="  • ")
    lines = shown(console)
    assert max(len(line) for line in lines) <= width
    assert [line[:4] for line in lines] == ["  • "] + ["    "] * (len(lines) - 1)
    assert " ".join(line[4:] for line in lines) == text.strip()


def test_a_word_that_is_too_long_stays_whole_and_a_pipe_gets_whole_lines() -> None:
    path = "/home/ann/" + "deep/" * 20 + "report.md"
    console = terminal(60)
    prose(console, f"The report is in {path} now")
    assert shown(console) == ["The report is in", path, "now"]
    pipe = Console(file=io.StringIO(), width=60, force_terminal=False)
    prose(pipe, f"{FACT} {FACT}", mark="- ")
    to_paste(pipe, "holdfast " + "resume " * 30)
    assert shown(pipe) == [f"- {FACT} {FACT}", ("  holdfast " + "resume " * 30).rstrip()]


def test_a_mark_keeps_its_style_to_itself() -> None:
    out = io.StringIO()
    prose(Console(file=out, width=60, force_terminal=True, color_system="standard", highlight=False), "text", mark=plain("1. ", "bold"))
    assert out.getvalue() == "\x1b[1m1. \x1b[0mtext\n"


def test_scripts_without_spaces_are_broken_between_their_characters() -> None:
    console = terminal(40)
    prose(console, "持久的记忆不会因为窗口满了就消失" * 5)
    assert [len(line) for line in shown(console)] == [20] * 4


def test_no_text_commands_the_terminal() -> None:
    console = terminal()
    prose(console, "a\x1b[2Jb", mark="\x07 ")
    listing(console, COLUMNS, [("1", "[bold]x[/bold]\x1b[31m", "", ID)])
    assert "\x1b" not in "".join(shown(console)) and "[bold]x[/bold]" in "".join(shown(console))


def test_a_listing_is_a_table_where_there_is_room_and_paragraphs_where_there_is_none() -> None:
    rows = [("0.95", FACT, "", ID), ("1.00", "Uses PostgreSQL", "", "fact_2")]
    wide, narrow = terminal(80), terminal(50)
    listing(wide, COLUMNS, rows)
    listing(narrow, COLUMNS, rows)
    assert shown(wide)[0].split() == ["sure", "fact", "id"], "no column in which nothing stands"
    assert ID in shown(wide)[1]
    assert shown(narrow) == [FACT[:49], FACT[50:], f"  sure 0.95  {ID}", "Uses PostgreSQL", "  sure 1.00  fact_2"]


def test_a_row_that_is_looked_for_by_its_name_begins_with_it() -> None:
    console = terminal(40)
    listing(console, (Column("thread"), Column("messages", right=True), Column("title", text=True)), [(ID, "4", FACT)], text_first=False)
    assert shown(console)[0] == f"{ID}  messages 4"


def test_markdown_is_drawn_and_addresses_stay_visible() -> None:
    console = terminal(60)
    console.print(
        markdown("# Noise\n\nThe **Norvik** is *quiet* [so](https://x.example/a).\n\n1. night\n2. day\n\n| a | b |\n|---|---|\n| 1 | 2 |")
    )
    text = "\n".join(shown(console))
    assert "**" not in text and "#" not in text and "|" not in text
    assert "https://x.example/a" in text
    assert " 1. night" in text and " 2. day" in text


def test_things_are_counted_in_words() -> None:
    assert [counted(1, "memory", "memories"), counted(1200, "file")] == ["1 memory", "1,200 files"]
