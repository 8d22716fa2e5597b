"""`holdfast threads`: all conversations (A14, O1); `holdfast history`: what was said in one, also what the window no longer holds (S9).

`holdfast budget` shows how a model's window is split, and `holdfast compact` shortens a conversation so that it fits (T4, S17).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.app.output import Column, command, listing, moment, open_harness, plain, prose, show
from holdfast.context.archive import Archive, Stats, filtered, kinds_for, moment_text
from holdfast.context.records import MessageRecord, SummaryRecord, written
from holdfast.errors import InputError, NotThere
from holdfast.validation import counted, some

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from holdfast.harness import Harness
    from holdfast.talk import ThreadInfo
    from holdfast.tokens.budget import Budget


app = typer.Typer(help="Read and search conversations, word for word.", rich_markup_mode=None, add_completion=False)

_WHO = {"human": "user", "ai": "assistant", "tool": "tool", "system": "system"}
_COLOURS = {"human": "green", "ai": "cyan", "tool": "yellow", "system": "magenta"}
_ACTIONS = ("list", "search", "show")
_EPILOG = (
    "Examples: holdfast history | holdfast history trip-7 | holdfast history trip-7 search which hotel | "
    "holdfast history trip-7 show m-12 --around 2 | holdfast history trip-7 show '#12'"
)


@command(app, epilog=_EPILOG)
def history(
    thread: Annotated[str | None, typer.Argument(help="The thread. Without one, all threads are listed.")] = None,
    action: Annotated[str, typer.Argument(help="list, search or show.")] = "list",
    words: Annotated[list[str] | None, typer.Argument(help="What to search for, or the id (or #number) of the message to show.")] = None,
    around: Annotated[int, typer.Option("--around", min=0, max=200, help="show: how many messages before and after it.")] = 0,
    top: Annotated[int, typer.Option("--top", min=1, max=200, help="search: how many hits.")] = 5,
    last: Annotated[int | None, typer.Option("--last", min=1, help="list: only this many of the newest messages.")] = None,
    role: Annotated[str | None, typer.Option("--role", help="list and search: only user, assistant, tool or system.")] = None,
    after: Annotated[str | None, typer.Option("--after", metavar="DATE", help="list and search: archived from this date on.")] = None,
    before: Annotated[str | None, typer.Option("--before", metavar="DATE", help="list and search: archived before this date.")] = None,
) -> None:
    """Show what was said in a thread: the transcript, a search through it, or one message word for word."""
    with open_harness() as harness:
        if thread is None:
            _list_threads(harness)
            return
        if action.isdigit() and int(action) and not words and last is None:  # as /history N in a chat
            action, last = "list", int(action)
        if action not in _ACTIONS:
            raise InputError(f"{action!r} is not something that history can do.", hint="Use list, search or show after the thread.")
        said = " ".join(words or ()).strip()
        archive = harness.whole_thread(thread)
        stats = _stats(harness, archive, thread)
        if action == "list":
            if said:
                raise InputError(f"list takes no further words, but there is {said!r}.", hint="Use search to look for words.")
            _list_messages(archive, stats, role, after, before, last)
        elif not said:
            hint = "Give the words to look for." if action == "search" else "Give the id of a message: list and search show them."
            raise InputError(f"{action} needs more.", hint=hint)
        elif action == "search":
            _search(archive, stats, said, top, role, after, before)
        else:
            _show_message(archive, stats, said, around)


def _stats(harness: Harness, archive: Archive, thread: str) -> Stats:
    stats = archive.stats(thread)
    if not (stats.messages or stats.summaries or stats.damage):
        raise _no_conversation(thread, [one.thread for one in harness.thread_stats()], harness.base)
    return stats


def _no_conversation(thread: str, names: Sequence[str], base: Path) -> NotThere:
    hint = f"There are: {some(names, 8)}. `holdfast threads` lists them." if names else "`holdfast threads` lists them; there are none yet."
    return NotThere(f"there is no conversation {thread!r} in {base}.", hint=hint)


def _list_threads(harness: Harness) -> None:
    found = harness.thread_stats()

    def draw(console: Console) -> None:
        if not found:
            prose(console, f"No conversations are kept in {harness.base}.")
            return
        draw_threads(console, harness.conversations(subagents=True))
        for stats in found:
            _print_damage(console, stats)

    show({"threads": found}, draw)


def _list_messages(archive: Archive, stats: Stats, role: str | None, after: str | None, before: str | None, last: int | None) -> None:
    messages = archive.messages(stats.thread)
    if role or after or before:
        kinds = kinds_for(role) if role else frozenset({"human", "ai", "tool", "system", "summary", "reminder", "recall"})
        messages = list(filtered(messages, kinds, moment_text(after), moment_text(before)))
    messages = messages[-last:] if last else messages
    summaries = archive.summaries(stats.thread)

    def draw(console: Console) -> None:
        columns = (
            Column("#", right=True, style="dim"),
            Column("when", style="dim"),
            Column("who"),
            Column("what", text=True),
            Column("id", style="dim"),
        )
        rows = [(str(one.seq), moment(one.time), _who(one), _first_line(one), one.id) for one in messages]
        listing(console, columns, rows, text_first=False)
        _print_summaries(console, summaries)
        _print_damage(console, stats)

    value = {"thread": stats, "messages": [_message_value(record) for record in messages], "summaries": summaries}
    show(value, draw)


def _search(archive: Archive, stats: Stats, query: str, top: int, role: str | None, after: str | None, before: str | None) -> None:
    hits = archive.search(stats.thread, query, top, role=role, after=after, before=before)

    def draw(console: Console) -> None:
        if not hits:
            prose(console, f"None of the {counted(stats.messages, 'message')} fits. Try other words.")
        for hit in hits:
            prose(console, _headline(hit.record))
            shown = plain(hit.snippet)
            for start, end in hit.marks:
                shown.stylize("bold yellow", start, end)
            prose(console, shown, mark="  ")
            if hit.why:
                prose(console, f"because of {', '.join(hit.why[:6])}", mark="  ", style="dim")
        _print_damage(console, stats)

    found = [{"score": round(hit.score, 4), "snippet": hit.snippet, "why": hit.why, "message": _message_value(hit.record)} for hit in hits]
    show({"thread": stats.thread, "query": query, "hits": found}, draw)


def _show_message(archive: Archive, stats: Stats, id: str, around: int) -> None:
    passage = archive.read(stats.thread, id, around)
    if passage is None:
        raise InputError(
            f"the thread {stats.thread!r} has no message {id!r}.",
            hint=f"`holdfast history {stats.thread}` lists the ids; numbers are written as '#12'.",
        )
    found = passage

    def draw(console: Console) -> None:
        for record in found.all:
            prose(console, _headline(record, chosen=record is found.record))
            prose(console, plain(record.text))
            for name, arguments in record.calls:
                prose(console, f"-> {name} {_json(arguments)}")
            console.print()
        if found.older:
            numbers = ", ".join(f"#{older.seq}" for older in found.older)
            prose(console, f"This message was edited. Earlier versions: {numbers}")

    values = {name: [_message_value(record) for record in getattr(found, name)] for name in ("before", "after", "older")}
    show({"message": _message_value(found.record), **values}, draw)


def _message_value(record: MessageRecord) -> dict[str, Any]:
    return written(record) | {"text": record.text}


def _headline(record: MessageRecord, *, chosen: bool = False) -> Any:
    from rich.text import Text

    line = Text.assemble((f"#{record.seq} ", "dim"), (plain(record.id).plain, "bold"), f"  {moment(record.time)}  ")
    line.append(_who(record).plain, _COLOURS[record.role])
    return line.append(" <", "dim") if chosen else line


def _who(record: MessageRecord) -> Any:
    for mark in ("summary", "reminder"):
        if mark in record.marks:
            return plain(mark)
    return plain(f"{_WHO[record.role]} {record.name or ''}".strip())


def _first_line(record: MessageRecord) -> str:
    line = next((line.strip() for line in record.text.splitlines() if line.strip()), "")
    calls = " ".join(f"-> {name}({_json(arguments)})" for name, arguments in record.calls)
    return f"{line} {calls}".strip()[:400]


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _print_summaries(console: Console, summaries: list[SummaryRecord]) -> None:
    for summary in summaries:
        tokens = f", {summary.tokens_before} -> {summary.tokens_after} tokens" if summary.tokens_after is not None else ""
        by = f" by {summary.model}" if summary.model else ""
        line = f"{moment(summary.time)} summary {summary.id} ({summary.how}{by}) of {counted(len(summary.covers), 'message')}{tokens}"
        prose(console, plain(line))


def _print_damage(console: Console, stats: Stats) -> None:
    for line in stats.damage:
        prose(console, f"Damaged: {line}. Everything else can be read.", style="red")


@command(app, epilog="Examples: holdfast threads | holdfast threads --last 5 | holdfast chat --thread ID | holdfast history ID")
def threads(
    last: Annotated[int | None, typer.Option("--last", min=1, metavar="N", help="Only the newest N. Default: all.")] = None,
    subagents: Annotated[bool, typer.Option("--subagents", help="Those of sub-agents too.")] = False,
) -> None:
    """List the conversations, the one that was used last first: with a model or without, in the window or in the archive.

    `holdfast chat --thread ID` goes on in one, `holdfast history ID` shows what was said.
    """
    with open_harness() as harness:
        found = harness.conversations(subagents=subagents, last=last)
        base = harness.base

    def draw(console: Console) -> None:
        if found:
            draw_threads(console, found)
        else:
            prose(console, f"No conversations are kept in {base}. `holdfast chat` begins one.")

    show({"threads": [asdict(info) for info in found]}, draw)


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


# The window


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


@command(app, epilog="Example: holdfast budget --window 8000")
def budget(
    window: Annotated[int | None, typer.Option("--window", "-w", min=1, metavar="TOKENS", help="A window instead of a model's.")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="A model of config.yaml. Default: the first one.")] = None,
) -> None:
    """Show how a window is split into system, history, tools and response."""
    with open_harness() as harness:
        settings = harness.config.model(model) if model else next(iter(harness.config.models), None)
        source = "given"
        if window is None:
            found = harness.find_window(model)
            window, source = found.tokens, f"{found.source} of {settings.name}" if settings else "default: no model is configured"
        split = harness.budget(window=window)
    value = {"window_source": source, **split.as_dict(), "system": split.system, "history": split.history}
    show(value, lambda console: _draw_budget(console, split, source))


_LEAST_WINDOW = 2000  # tokens: with a quarter of the default split the tools and a short answer still fit


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
    if split.window < _LEAST_WINDOW:
        prose(console, f"No conversation fits into so little: the defaults are made for {_LEAST_WINDOW:,} tokens and more.", style="yellow")


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


@command(app, epilog="Example: holdfast compact thread-01 --keep 10")
def compact(
    thread: Annotated[str, typer.Argument(help="The conversation, as `holdfast history` or /threads list it.")],
    keep: Annotated[int | None, typer.Option("--keep", min=1, metavar="N", help="Keep the newest N messages word for word.")] = None,
    force: Annotated[bool, typer.Option("--force/--if-needed", help="Now, or only if the configured trigger is met.")] = True,
    agent: Annotated[str | None, typer.Option("--agent", "-a", metavar="NAME", help="The agent that the conversation is with.")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="A model of config.yaml. Default: the first one.")] = None,
) -> None:
    """Shorten a conversation: what leaves the window stays in the archive, word for word, and can be searched. Needs a model."""
    import holdfast.agents.lead  # noqa: F401 - without the extra there is nothing to shorten: that is said first

    with open_harness("models") as harness:
        names = [info.id for info in harness.conversations(subagents=True)]
        if thread not in names:
            raise _no_conversation(thread, names, harness.base)
        if model is None and not harness.talks():
            hint = "`holdfast models list` says how to get one."
            raise InputError("a conversation is shortened for a model's window, and there is no model here.", hint=hint)
        with harness.lead_agent(agent, model=model) as made:
            known = [info.id for info in harness.threads.all(subagents=True)]
            if thread not in known:
                raise InputError(f"{thread!r} was held without a model: it has no window to shorten.", hint="Go on in it with a model.")
            done = made.conversation(thread).compact(force=force, keep=("messages", keep) if keep else None)
    plan = done.outcome.plan if done.outcome is not None else None
    value: dict[str, Any] = {"thread": thread, "compacted": plan is not None, "messages": len(done.messages)}
    if plan is not None:
        value |= {"tokens_before": plan.before, "tokens_after": plan.after, "left": len(plan.leave), "cleared": len(plan.clear)}
    show(value, lambda console: _draw_compacted(console, value))


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
