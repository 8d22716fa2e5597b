"""`holdfast budget` and `holdfast compact`: how a model's window is split, and shortening a conversation so that it fits (T4, S17)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.amounts import counted
from holdfast.app.output import ConfigOption, JsonOption, open_harness, prose, show
from holdfast.errors import NotThere

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.tokens.budget import Budget

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_LOOKS = {
    "base": ("b", "blue"),
    "memory": ("m", "bright_blue"),
    "skills": ("s", "cyan"),
    "instructions": ("i", "bright_cyan"),
    "kept": ("k", "green"),
    "buffer": (".", "bright_green"),
    "tool_definitions": ("t", "yellow"),
    "response": ("r", "magenta"),
}
"""The letter and the colour of each share."""


@app.command(epilog="Example: holdfast budget --window 8000")
def budget(
    window: Annotated[int | None, typer.Option("--window", "-w", min=1, metavar="TOKENS", help="A window instead of a model's.")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="A model of config.yaml. Default: the first one.")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how a window is split into system, history, tools and response."""
    with open_harness(config) as harness:
        settings = harness.config.model(model) if model else next(iter(harness.config.models), None)
        source = "given"
        if window is None:
            found = harness.find_window(model)
            window, source = found.tokens, f"{found.source} of {settings.name}" if settings else "default: no model is configured"
        split = harness.budget(window=window)
    value = {"window_source": source, **split.as_dict(), "system": split.system, "history": split.history}
    show(value, lambda console: _draw_budget(console, split, source), as_json=as_json)


def _draw_budget(console: Console, split: Budget, source: str) -> None:
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
        mark = Text("")
        if share.name in _LOOKS:
            letter, colour = _LOOKS[share.name]
            mark = Text(f"  {letter if not console.is_terminal else '■'} ", style=colour)
        name = Text(share.name.replace("_", " "), style="" if depth > 1 else "bold")
        table.add_row(mark + name, f"{share.tokens:,}", f"{100 * share.tokens / split.window:.1f} %")
    console.print(table)


def _bar(split: Budget, width: int, *, plain: bool) -> object:
    """The window as a line of blocks, or of letters where there is no terminal to show colours."""
    from rich.text import Text

    bar, drawn, reached = Text(), 0, 0
    for name, (letter, colour) in _LOOKS.items():
        reached += getattr(split, name)
        cells = round(width * reached / split.window) - drawn
        drawn += cells
        bar.append((letter if plain else "█") * cells, style=colour)
    return bar


@app.command(epilog="Example: holdfast compact thread-01 --keep 10")
def compact(
    thread: Annotated[str, typer.Argument(help="The conversation, as `holdfast history` or /threads list it.")],
    keep: Annotated[int | None, typer.Option("--keep", min=1, metavar="N", help="Keep the newest N messages word for word.")] = None,
    force: Annotated[bool, typer.Option("--force/--if-needed", help="Now, or only if the configured trigger is met.")] = True,
    agent: Annotated[str | None, typer.Option("--agent", "-a", metavar="NAME", help="The agent that the conversation is with.")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="A model of config.yaml. Default: the first one.")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Shorten a conversation: what leaves the window stays in the archive, word for word, and can be searched."""
    with open_harness(config) as harness, harness.lead_agent(agent, model=model) as made:
        known = [info.id for info in harness.threads.all(subagents=True)]
        if thread not in known:
            raise NotThere(f"there is no conversation {thread!r}.", hint=f"There are: {', '.join(known[:10]) or 'none yet'}.")
        done = made.conversation(thread).compact(force=force, keep=("messages", keep) if keep else None)
    plan = done.outcome.plan if done.outcome is not None else None
    value: dict[str, Any] = {"thread": thread, "compacted": plan is not None, "messages": len(done.messages)}
    if plan is not None:
        value |= {"tokens_before": plan.before, "tokens_after": plan.after, "left": len(plan.leave), "cleared": len(plan.clear)}
    show(value, lambda console: _draw_compacted(console, value), as_json=as_json)


def _draw_compacted(console: Console, value: dict[str, Any]) -> None:
    if not value["compacted"]:
        console.print("There is nothing to shorten.")
        return
    prose(
        console,
        f"{value['tokens_before']:,} tokens became {value['tokens_after']:,}: {counted(value['left'], 'message')} left the window, "
        f"{counted(value['cleared'], 'tool result was', 'tool results were')} cleared. "
        f"All of it is in `holdfast history {value['thread']}`.",
    )
