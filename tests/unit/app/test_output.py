"""O1: how commands print: prose at words, listings that cut nothing, Markdown as it is meant."""

from __future__ import annotations

import ast
import io
import re
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

import holdfast
from holdfast.app.commands.memory import draw_changes
from holdfast.app.output import Column, as_typed, listing, markdown, plain, progress_of, prose, to_paste, typed_error
from holdfast.memory.history import Change, Difference
from holdfast.validation import counted, some

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


_PLURAL = re.compile(r" (?:[a-z]+ )?[a-z]{3,}s\b")


def test_nothing_that_a_person_reads_counts_by_hand() -> None:
    """O1: `1 sources` comes of a length before a plural; `counted` knows better."""
    found = []
    for file in sorted(Path(holdfast.__file__).parent.rglob("*.py")):
        if not {"app", "offline", "pages", "session", "workflow", "memory"} & set(file.parts):
            continue
        tree = ast.parse(file.read_text("utf-8"))
        chosen = {id(node) for choice in ast.walk(tree) if isinstance(choice, ast.IfExp) for node in ast.walk(choice)}
        for text in (node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) and id(node) not in chosen):
            for value, after in pairwise(text.values):
                length = isinstance(value, ast.FormattedValue) and ast.unparse(value.value).startswith(("len(", "sum("))
                if length and isinstance(after, ast.Constant) and _PLURAL.match(str(after.value)):
                    found.append(f"{file.name}:{text.lineno}: {ast.unparse(text)}")
    assert found == []


def test_one_more_is_shown_and_not_counted() -> None:
    """O1: a fold that would hide one thing saves nothing."""
    assert [some(["a", "b", "c"][:n], 1) for n in (1, 2, 3)] == ["a", "a, b", "a and 2 more"]
    assert some(["a", "b", "c"], 1, "; ") == "a; and 2 more"
    both = tuple(Difference("fact", f"f{n}", None, {"content": f"fact {n}"}) for n in (1, 2))
    change = Change("c1", "2026-04-19T08:00:00Z", 1, "user", "", both)
    assert "fact 2" in drawn(change) and "more" not in drawn(change)
    three = replace(change, differences=(*change.differences, Difference("fact", "f3", None, {"content": "fact 3"})))
    assert "fact 2" not in drawn(three) and "and 2 more" in drawn(three)


def drawn(change: Change) -> str:
    console = terminal()
    draw_changes(console, [change], [])
    return "\n".join(shown(console))


def test_things_are_counted_in_words() -> None:
    assert [counted(1, "memory", "memories"), counted(1200, "file")] == ["1 memory", "1,200 files"]


def test_an_output_that_takes_nothing_is_told_as_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """O1, C3: `> /dev/full` is no fault of the session's files."""
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        monkeypatch.setattr(sys, "stdout", full)
        full.write("a line")
        with pytest.raises(OSError) as caught:
            full.flush()
        assert "the output could not be written: No space left on device" in str(typed_error(caught.value))
        monkeypatch.undo()
    assert "the output" not in str(typed_error(OSError(28, "No space left on device")))


def test_a_few_hundred_records_are_told_on_a_pipe_too(capsys: pytest.CaptureFixture[str]) -> None:
    """O1: an import of a few megabytes is no silence of a minute."""
    with progress_of("import", "records") as progress:
        for done in (50, 120, 180, 260):
            progress(done, None)
    assert capsys.readouterr().err == "import: 120 records\nimport: 260 records\n"


def test_the_keywords_of_an_error_are_shown_as_the_options_that_are_typed() -> None:
    """O1, P1: an error speaks to the program that called; the command line says the same for who types."""
    assert as_typed("`accept_changes=True` or `task=...`; `agents={...}` stays.") == "`--accept-changes` or `--task`; `agents={...}` stays."
