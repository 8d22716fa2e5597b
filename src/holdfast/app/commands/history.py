"""`holdfast threads`: all conversations (A14, O1); `holdfast history`: what was said in one, also what the window no longer holds (S9)."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.amounts import counted
from holdfast.app.output import Column, ConfigOption, JsonOption, listing, moment, open_harness, plain, prose, show
from holdfast.context.archive import Archive, Hit, Passage, Stats, filtered, kinds_for, moment_text
from holdfast.context.records import MessageRecord, SummaryRecord, written
from holdfast.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from holdfast.harness import Harness
    from holdfast.talk import ThreadInfo


app = typer.Typer(help="Read and search conversations, word for word.", rich_markup_mode=None, add_completion=False)

_WHO = {"human": "user", "ai": "assistant", "tool": "tool", "system": "system"}
_COLOURS = {"human": "green", "ai": "cyan", "tool": "yellow", "system": "magenta"}
_ACTIONS = ("list", "search", "show")
_EPILOG = (
    "Examples: holdfast history | holdfast history trip-7 | holdfast history trip-7 search which hotel | "
    "holdfast history trip-7 show m-12 --around 2 | holdfast history trip-7 show '#12'"
)


@app.command(epilog=_EPILOG)
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
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what was said in a thread: the transcript, a search through it, or one message word for word."""
    with open_harness(config) as harness:
        if thread is None:
            _list_threads(harness, as_json=as_json)
            return
        if action not in _ACTIONS:
            raise InputError(f"{action!r} is not something that history can do.", hint="Use list, search or show after the thread.")
        said = " ".join(words or ()).strip()
        archive = harness.whole_thread(thread)
        stats = _stats(harness, archive, thread)
        if action == "list":
            if said:
                raise InputError(f"list takes no further words, but there is {said!r}.", hint="Use search to look for words.")
            _list_messages(archive, stats, role, after, before, last, as_json=as_json)
        elif not said:
            hint = "Give the words to look for." if action == "search" else "Give the id of a message: list and search show them."
            raise InputError(f"{action} needs more.", hint=hint)
        elif action == "search":
            _search(archive, stats, said, top, role, after, before, as_json=as_json)
        else:
            _show_message(archive, stats, said, around, as_json=as_json)


def _stats(harness: Harness, archive: Archive, thread: str) -> Stats:
    stats = archive.stats(thread)
    if not (stats.messages or stats.summaries or stats.damage):
        names = [one.thread for one in harness.thread_stats()]
        near = f" There are: {', '.join(names[:8])}{' ...' if len(names) > 8 else ''}." if names else " There are none yet."
        raise InputError(
            f"nothing of a thread {thread!r} is kept in {harness.base}.",
            hint=f"Of an agent of your own a message is kept here when it leaves the window.{near}",
        )
    return stats


def _list_threads(harness: Harness, *, as_json: bool) -> None:
    found = harness.thread_stats()

    def draw(console: Console) -> None:
        if not found:
            prose(console, f"No conversations are kept in {harness.base}.")
            return
        draw_threads(console, harness.conversations(subagents=True))
        for stats in found:
            _print_damage(console, stats)

    show({"threads": found}, draw, as_json=as_json)


def _list_messages(
    archive: Archive, stats: Stats, role: str | None, after: str | None, before: str | None, last: int | None, *, as_json: bool
) -> None:
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
    show(value, draw, as_json=as_json)


def _search(
    archive: Archive, stats: Stats, query: str, top: int, role: str | None, after: str | None, before: str | None, *, as_json: bool
) -> None:
    hits = archive.search(stats.thread, query, top, role=role, after=after, before=before)

    def draw(console: Console) -> None:
        if not hits:
            prose(console, f"None of the {counted(stats.messages, 'message')} fits. Try other words.")
        for hit in hits:
            prose(console, _headline(hit.record))
            prose(console, _highlighted(hit), mark="  ")
            if hit.why:
                prose(console, f"because of {', '.join(hit.why[:6])}", mark="  ", style="dim")
        _print_damage(console, stats)

    value = {"thread": stats.thread, "query": query, "hits": [_hit_value(hit) for hit in hits]}
    show(value, draw, as_json=as_json)


def _show_message(archive: Archive, stats: Stats, id: str, around: int, *, as_json: bool) -> None:
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

    show(_passage_value(found), draw, as_json=as_json)


def _message_value(record: MessageRecord) -> dict[str, Any]:
    return written(record) | {"text": record.text}


def _hit_value(hit: Hit) -> dict[str, Any]:
    return {"score": round(hit.score, 4), "snippet": hit.snippet, "why": hit.why, "message": _message_value(hit.record)}


def _passage_value(passage: Passage) -> dict[str, Any]:
    return {
        "message": _message_value(passage.record),
        "before": [_message_value(record) for record in passage.before],
        "after": [_message_value(record) for record in passage.after],
        "older": [_message_value(record) for record in passage.older],
    }


def _headline(record: MessageRecord, *, chosen: bool = False) -> Any:
    from rich.text import Text

    line = Text.assemble((f"#{record.seq} ", "dim"), (plain(record.id).plain, "bold"), f"  {moment(record.time)}  ")
    line.append(_who(record).plain, _COLOURS[record.role])
    return line.append(" <", "dim") if chosen else line


def _highlighted(hit: Hit) -> Any:
    shown = plain(hit.snippet)
    for start, end in hit.marks:
        shown.stylize("bold yellow", start, end)
    return shown


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
