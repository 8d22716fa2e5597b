"""`holdfast threads`: one list of all conversations, with a model and without (A14, O1)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.app.output import Column, ConfigOption, JsonOption, listing, moment, open_harness, plain, prose, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from holdfast.talk import ThreadInfo

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog="Examples: holdfast threads | holdfast threads --last 5 | holdfast chat --thread ID | holdfast history ID")
def threads(
    last: Annotated[int | None, typer.Option("--last", min=1, metavar="N", help="Only the newest N. Default: all.")] = None,
    subagents: Annotated[bool, typer.Option("--subagents", help="Those of sub-agents too.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the conversations, the one that was used last first: with a model or without, in the window or in the archive.

    `holdfast chat --thread ID` goes on in one, `holdfast history ID` shows what was said.
    """
    with open_harness(config) as harness:
        found = harness.conversations(subagents=subagents, last=last)
        base = harness.base

    def draw(console: Console) -> None:
        if found:
            draw_threads(console, found)
        else:
            prose(console, f"No conversations are kept in {base}. `holdfast chat` begins one.")

    show({"threads": [asdict(info) for info in found]}, draw, as_json=as_json)


def draw_threads(console: Console, found: Sequence[ThreadInfo], *, current: str | None = None) -> None:
    """The conversations as a person looks for them: by id, time and title. `current` is marked."""
    columns = (
        Column(""),
        Column("thread", style="bold"),
        Column("last used", style="dim"),
        Column("messages", right=True, style="dim"),
        Column("agent", style="dim"),
        Column("title", text=True),
    )
    rows = []
    for info in found:
        title = plain(info.title) if info.title else plain("(no title)", "dim")
        rows.append(("*" if info.id == current else "", info.id, moment(info.updated), str(info.messages), info.agent or "", title))
    listing(console, columns, rows, text_first=False)
