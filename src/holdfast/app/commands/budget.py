"""`holdfast budget`: how a model's window is split, as a table and as a bar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.app.logs import open_config
from holdfast.app.output import ConfigOption, JsonOption, show
from holdfast.tokens.budget import Budget
from holdfast.tokens.windows import find_window

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_COLOURS = {
    "base": "blue",
    "memory": "bright_blue",
    "skills": "cyan",
    "instructions": "bright_cyan",
    "kept": "green",
    "buffer": "bright_green",
    "tool_definitions": "yellow",
    "response": "magenta",
}
_LETTERS = {
    "base": "b",
    "memory": "m",
    "skills": "s",
    "instructions": "i",
    "kept": "k",
    "buffer": ".",
    "tool_definitions": "t",
    "response": "r",
}


@app.command(epilog="Example: holdfast budget --window 8000")
def budget(
    window: Annotated[int | None, typer.Option("--window", "-w", min=1, metavar="TOKENS", help="A window instead of a model's.")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="A model of config.yaml. Default: the first one.")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how a window is split into system, history, tools and response."""
    loaded = open_config(config)
    settings = loaded.model(model) if model else next(iter(loaded.models), None)
    if window is None:
        found = find_window(settings, name=settings.name if settings else None)
        window, source = found.tokens, f"{found.source} of {settings.name}" if settings else "default: no model is configured"
    else:
        source = "given"
    split = Budget.split(window, loaded.memory.max_injection_tokens)
    value = {"window_source": source, **split.as_dict(), "system": split.system, "history": split.history}
    show(value, lambda console: _draw(console, split, source), as_json=as_json)


def _draw(console: Console, split: Budget, source: str) -> None:
    from rich.table import Table
    from rich.text import Text

    console.print(f"[bold]{split.window:,} tokens[/] [dim]({source})[/]")
    console.print(_bar(split, min(console.width, 100), plain=not console.is_terminal))
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 3, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right", style="dim")
    for depth, share in split.parts().walk():
        if depth == 0:
            continue
        mark = (
            Text("  " + (_LETTERS[share.name] if not console.is_terminal else "■") + " ", style=_COLOURS[share.name])
            if share.name in _COLOURS
            else Text("")
        )
        name = Text(share.name.replace("_", " "), style="" if depth > 1 else "bold")
        table.add_row(mark + name, f"{share.tokens:,}", f"{100 * share.tokens / split.window:.1f} %")
    console.print(table)


def _bar(split: Budget, width: int, *, plain: bool) -> object:
    """The window as a line of blocks, or of letters where there is no terminal to show colours."""
    from rich.text import Text

    bar, drawn, reached = Text(), 0, 0
    for name in _COLOURS:
        reached += getattr(split, name)
        cells = round(width * reached / split.window) - drawn
        drawn += cells
        bar.append((_LETTERS[name] if plain else "█") * cells, style=_COLOURS[name])
    return bar
