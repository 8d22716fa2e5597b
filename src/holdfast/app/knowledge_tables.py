"""How knowledge looks on a terminal: what was found and why, what a store holds, what an import did, how recall was measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from holdfast.app.memory_tables import plain

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.knowledge.importing import ImportReport
    from holdfast.knowledge.records import Hit, Record
    from holdfast.knowledge.store import Progress, Stats

_LONG = 600
_EVERY = 1000


def draw_hits(console: Console, hits: Sequence[Hit], *, whole: bool = False) -> None:
    """Each hit: where it is from, its text, and why it was found."""
    if not hits:
        console.print("Nothing was found. Try other words, or fewer filters.")
    for place, hit in enumerate(hits, 1):
        console.print(Text.assemble((f"{place}. ", "bold"), _origin(hit.record)), soft_wrap=True)
        text = hit.text if whole or len(hit.text) <= _LONG else f"{hit.text[:_LONG].rstrip()} ..."
        shown = plain(text)
        shown.pad_left(3)
        console.print(shown, soft_wrap=True)
        console.print(Text.assemble("   ", plain(f"why: {hit.why}", "dim")), soft_wrap=True)


def draw_record(console: Console, record: Record) -> None:
    """One record with everything that is known about it."""
    console.print(_origin(record), soft_wrap=True)
    for name in ("session", "position", "role", "trust"):
        value = getattr(record, name)
        if value is not None:
            console.print(plain(f"{name}: {value}", "dim"), soft_wrap=True)
    if record.extra:
        console.print(plain(f"extra: {json.dumps(dict(record.extra), ensure_ascii=False)}", "dim"), soft_wrap=True)
    console.print(plain(record.text), soft_wrap=True)


def _origin(record: Record) -> Text:
    time = record.time.strftime("%Y-%m-%d %H:%M") if record.time else ""
    tags = " ".join(f"#{tag}" for tag in record.tags)
    parts = [part for part in (record.speaker, time, record.source or record.session, record.kind, tags) if part]
    return Text.assemble(plain("  ".join(parts), "cyan"), plain(f"  {record.id}", "dim"))


def draw_stats(console: Console, stats: Stats) -> None:
    """What a store holds."""
    console.print(plain(f"{stats.where} ({stats.adapter})", "dim"), soft_wrap=True)
    size = "" if stats.bytes is None else f", {stats.bytes:,} bytes"
    vectors = f", {stats.vectors:,} vectors" if stats.vectors else ""
    console.print(f"{stats.records:,} records in {stats.sessions:,} sessions{vectors}{size}")
    if stats.oldest and stats.newest:
        console.print(f"from {stats.oldest:%Y-%m-%d} to {stats.newest:%Y-%m-%d}")
    for name, counts in (("kinds", stats.kinds), ("tags", stats.tags)):
        if counts:
            shown = ", ".join(f"{key} {number}" for key, number in list(counts.items())[:20])
            console.print(plain(f"{name}: {shown}"), soft_wrap=True)
    for problem in stats.problems:
        console.print(plain(f"problem: {problem}", "red"), soft_wrap=True)


def draw_import(console: Console, report: ImportReport) -> None:
    """What an import did, and each thing that it could not take in."""
    for fault in report.faults:
        console.print(plain(f"not taken in: {fault}", "red"), soft_wrap=True)
    done = report.added
    console.print(
        f"{done.added} added, {done.updated} changed, {done.unchanged} there already, from {report.files} files"
        + (f"; {len(report.faults)} faults" if report.faults else "")
        + "."
    )


def draw_figures(console: Console, summary: Mapping[str, Any]) -> None:
    """Recall by type of question, the whole below, and what it cost."""
    overall = summary["overall"]
    names = [name for name in overall if name != "questions"]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("type", "questions", *names):
        table.add_column(column, justify="left" if column == "type" else "right")
    for kind, row in [*summary["by_type"].items(), ("all", overall)]:
        figures = ["" if name not in row else f"{row[name]:.{1 if name[0] in 'Rk' else 3}f}" for name in names]
        table.add_row(plain(kind, "bold" if kind == "all" else ""), str(row["questions"]), *figures)
    console.print(table)
    cost = summary["cost"]
    size = "" if cost["bytes"] is None else f", {cost['bytes']:,} bytes"
    console.print(f"a question takes {cost['query_ms_p50']} ms (median), {cost['query_ms_p95']} ms (95 %)")
    console.print(
        f"{cost['records']:,} records of {cost['conversations']} conversations taken in within {cost['ingestion_seconds']} s{size}"
    )
    if summary["skipped"]:
        console.print(f"{summary['skipped']} questions without evidence were skipped", style="yellow")
    for problem in summary["problems"]:
        console.print(plain(problem, "yellow"), soft_wrap=True)


@contextmanager
def progress_of_records(what: str) -> Iterator[Progress]:
    """A bar on a terminal; elsewhere a plain line on standard error now and then."""
    with _progress(what, "records") as told:
        yield lambda done, total: told(done, total)


@contextmanager
def progress_of_questions(what: str) -> Iterator[Callable[[int, str], None]]:
    """The same for questions, of which nobody knows how many there will be."""
    with _progress(what, "questions") as told:
        yield lambda done, _: told(done, None)


@contextmanager
def _progress(what: str, things: str) -> Iterator[Callable[[int, int | None], None]]:
    if not sys.stderr.isatty():
        last = 0

        def line(done: int, total: int | None) -> None:
            nonlocal last
            if done // _EVERY > last // _EVERY:
                sys.stderr.write(f"{what}: {done} {things}\n")
            last = done

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(things),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
