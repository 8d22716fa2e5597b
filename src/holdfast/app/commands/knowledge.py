"""`holdfast knowledge`: the records of long-term memory, searched, added, taken in, written out, forgotten (K1-K4, M14)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from holdfast.amounts import counted
from holdfast.app.output import (
    KNOWLEDGE,
    ConfigOption,
    JsonOption,
    check_place,
    confirm,
    echo,
    open_harness,
    plain,
    prose,
    say,
    show,
)
from holdfast.app.progress import progress_of_records
from holdfast.errors import InputError, NotThere
from holdfast.knowledge import import_export
from holdfast.knowledge.base import BaseStore
from holdfast.knowledge.import_export import ImportReport, import_path
from holdfast.knowledge.periods import read_moment
from holdfast.knowledge.records import Hit, Record, to_json
from holdfast.knowledge.store import NO_REASON, KnowledgeStore, Stats, hit_to_json, report_to_json, snippet_and_why, stats_to_json
from holdfast.redaction import visible_json
from holdfast.sandbox.uploads import MarkItDown
from holdfast.text.needle import Needle
from holdfast.text.normalise import one_line, reveal
from holdfast.workflow.long_term_memory import agree, why_held

if TYPE_CHECKING:
    from rich.console import Console


_NAMED = 20

app = typer.Typer(
    help="Search and keep records: notes, findings, documents, conversations.",
    epilog="Example: holdfast knowledge search which database did we choose",
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
)

Words = Annotated[list[str], typer.Argument(help="The words; quotes are not needed.")]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", "-s", metavar="PATH", help="Another store than the configured one: a file, a Markdown folder, an address."),
]
TagOption = Annotated[list[str] | None, typer.Option("--tag", "-t", metavar="TAG", help="A tag; may be given several times.")]
SessionOption = Annotated[str | None, typer.Option("--session", metavar="NAME", help="A conversation, and what is below it.")]


@contextmanager
def _store(config: Path | None, store: str | None, *, make: bool = False) -> Iterator[KnowledgeStore]:
    """The store to work with. Only with `make` one is made at a path where there is none."""
    if not make:
        check_place(store)
    with open_harness(config, *(() if store is not None else KNOWLEDGE)) as harness, harness.open_knowledge(store) as opened:
        yield opened


@app.command("add", epilog='Example: holdfast knowledge add "The staging server is called heron" --tag infra')
def add(
    words: Words,
    tag: TagOption = None,
    session: Annotated[str | None, typer.Option("--session", metavar="NAME", help="The conversation it belongs to.")] = None,
    source: Annotated[str | None, typer.Option("--source", help="Where it comes from.")] = None,
    speaker: Annotated[str | None, typer.Option("--speaker", metavar="NAME", help="Who said it.")] = None,
    time: Annotated[str | None, typer.Option("--time", metavar="DATE", help="When it was said or happened. Default: now.")] = None,
    kind: Annotated[str, typer.Option("--kind", help="note, finding, document, fact, or a word of your own.")] = "note",
    trust: Annotated[str, typer.Option("--trust", help="high, medium or low.")] = "high",
    store: StoreOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep a record. The same words twice are kept once. A single - reads the text from standard input."""
    text = sys.stdin.read().strip() if words == ["-"] else " ".join(words)
    given: dict[str, Any] = {"session": session, "source": source, "speaker": speaker, "kind": kind, "trust": trust}
    record = Record(text, tags=tuple(tag or ()), time=_moment(time, "--time"), **given)
    with open_harness(config, *(() if store is not None else KNOWLEDGE)) as harness, harness.open_knowledge(store) as opened:
        if record.time is None:  # the moment of adding is not part of what makes it this record, else adding twice would add twice
            there = opened.get(record.id)
            record = replace(record, time=there.time if there is not None else harness.clock.now())
        report = opened.add([record])
        kept = opened.get(record.id) or record
    did = "Kept" if report.added else "Changed" if report.updated else "It was there already"
    say({"added": bool(report.added), "record": to_json(kept)}, f"{did} as {kept.id}: {kept.text}", as_json=as_json)


@app.command(
    "search", epilog="Examples: holdfast knowledge search staging server | holdfast knowledge search payments --tag finance --top 3"
)
def search(
    words: Words,
    top: Annotated[int | None, typer.Option("--top", min=1, max=1000, help="How many. Default: knowledge.top_k.")] = None,
    tag: TagOption = None,
    after: Annotated[str | None, typer.Option("--after", metavar="DATE", help="Only from this date on.")] = None,
    before: Annotated[str | None, typer.Option("--before", metavar="DATE", help="Only before this date.")] = None,
    session: SessionOption = None,
    budget: Annotated[
        int | None, typer.Option("--budget", min=0, metavar="TOKENS", help="At most so many tokens of text altogether.")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Show all records, and whole texts, not only the part that fits best.")] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find records by a question or by words, and say why each was found. "last week" and "in May" are understood."""
    chosen: dict[str, Any] = {"tags": tag or (), "after": _moment(after, "--after"), "before": _moment(before, "--before")}
    check_place(store)
    with open_harness(config, *(() if store is not None else KNOWLEDGE)) as harness, harness.open_knowledge(store) as opened:
        most = top if top is not None else harness.config.knowledge.top_k
        hits = opened.search(" ".join(words), top_k=most, session=session, budget=budget, **chosen)
    value = {"query": " ".join(words), "hits": [hit_to_json(hit) for hit in hits]}
    show(value, lambda console: _draw_hits(console, hits, whole=whole), as_json=as_json)


@app.command("show", epilog="Example: holdfast knowledge show k-78fa0a9d77476a58")
def show_record(
    id: Annotated[str, typer.Argument(help="The id of the record; search shows it.")],
    store: StoreOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one record with everything that is known about it."""
    with _store(config, store) as opened:
        record = opened.get(id)
    if record is None:
        raise NotThere(f"there is no record {id!r}.", hint="`holdfast knowledge search` shows the ids.")
    show(to_json(record), lambda console: _draw_record(console, record), as_json=as_json)


@app.command("import", epilog="Examples: holdfast knowledge import notes/ --tag wiki | holdfast knowledge import chat.jsonl --session team")
def import_(
    path: Annotated[Path, typer.Argument(help="A folder, or a file: documents, mails, tables, records, chat logs; also .xz and .gz.")],
    tag: TagOption = None,
    session: Annotated[str | None, typer.Option("--session", metavar="NAME", help="Put above the names of the conversations.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first thing that cannot be read.")] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take in documents, records and conversations. What is there already is not doubled; what cannot be read is named."""
    with _store(config, store, make=True) as opened, progress_of_records("import") as progress:
        report = import_path(
            opened,
            path.expanduser(),
            tags=tag or (),
            session=session,
            strict=strict,
            progress=progress,
            convert=MarkItDown().convert,
        )
    counts = {name: value for name, value in report_to_json(report.added).items() if name != "ids"}
    value = {
        **counts,
        "files": report.files,
        "faults": [{"file": one.file, "line": one.line, "problem": one.problem} for one in report.faults],
        "skipped": list(report.skipped),
    }
    show(value, lambda console: _draw_import(console, report), as_json=as_json)
    if report.faults:
        raise typer.Exit(1)


@app.command("export", epilog="Examples: holdfast knowledge export backup.jsonl | holdfast knowledge export notes/ --format markdown")
def export(
    target: Annotated[
        Path | None, typer.Argument(help="A file for JSON lines or a new folder for Markdown. Default: standard output.")
    ] = None,
    form: Annotated[str | None, typer.Option("--format", help="jsonl or markdown. Default: by the name of the target.")] = None,
    tag: TagOption = None,
    session: SessionOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write out all records. `import` takes them in again, with everything that is known about them."""
    chosen = form or ("jsonl" if target is None or target.suffix else "markdown")
    if chosen not in ("jsonl", "markdown"):
        raise InputError(f"{chosen!r} is not a format.", hint="Use jsonl or markdown.")
    if chosen == "markdown" and target is None:
        raise InputError("Markdown files need a folder.", hint="Name a new one.")
    with _store(config, store) as opened:
        if target is None:
            for line in import_export.json_lines(opened, tags=tag or (), session=session):
                echo(visible_json(line))
            return
        write = import_export.export_lines if chosen == "jsonl" else import_export.export_markdown
        number = write(opened, target.expanduser(), tags=tag or (), session=session)
    say({"path": str(target), "format": chosen, "records": number}, f"{counted(number, 'record')} written to {target}.", as_json=as_json)


@app.command("forget", epilog='Examples: holdfast knowledge forget k-78fa0a9d77476a58 | holdfast knowledge forget --text "Elm Street 5"')
def forget(
    ids: Annotated[list[str] | None, typer.Argument(help="The ids of records.")] = None,
    text: Annotated[str | None, typer.Option("--text", metavar="WORDS", help="Every record that holds these words.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget records for good, out of every file and index."""
    if bool(ids) == bool(text):
        raise InputError("say what to forget.", hint="Give the ids of records, or --text with some words.")
    what = f"anything that holds {text!r}" if text else ", ".join(ids or ())
    with _store(config, store) as opened:
        needle = Needle(text) if text else None
        found = [one.id for one in opened.records() if needle.in_text(one.text)] if needle else list(dict.fromkeys(ids or ()))
        if found:
            holds = f" that hold {text!r}" if text else ""
            confirm(f"Forget {counted(len(found), 'record')}{holds}? This cannot be undone.", yes=yes)
        gone = opened.forget_text(text) if text else [id for id in found if opened.forget([id])]
    nothing = f"No record holds {text!r}." if text else f"There is no record {what}."
    lines = [f"Forgotten: {counted(len(gone), 'record')}.", *(f"  {id}" for id in gone)] if gone else [nothing]
    say({"ids": gone}, "\n".join(lines), as_json=as_json)


@app.command("review", epilog="Example: holdfast knowledge review")
def review(store: StoreOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """What stays out of prompts until you agree to it: records of low trust, and those that read as orders or hide something."""
    with _store(config, store) as opened:
        waiting = [(record, why) for record in opened.records() if (why := why_held(record))]
    value = [{"record": to_json(record), "why": why} for record, why in waiting]
    lines = [f"{record.id}  {reveal(one_line(record.text, 200))}  ({why}; {record.source or 'no source'})" for record, why in waiting]
    say(value, "\n".join(lines) or "Nothing waits.", as_json=as_json)


@app.command("agree", epilog="Example: holdfast knowledge agree k-78fa0a9d77476a58")
def agree_to(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Records that may stand in prompts from now on.")],
    store: StoreOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let records stand in prompts: you have read them, and they count as your own word."""
    with open_harness(config, *(() if store is not None else KNOWLEDGE)) as harness, harness.open_knowledge(store) as opened:
        chosen = agree(opened, ids, now=harness.clock.now())
    say([to_json(record) for record in chosen], "\n".join(f"Agreed to {record.id}: {record.text}" for record in chosen), as_json=as_json)


@app.command("reembed", epilog="Example: holdfast knowledge reembed")
def reembed(store: StoreOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Make the vectors of all records anew, by the embedder that the settings name. Vectors of two embedders are never mixed."""
    with _store(config, store) as opened, progress_of_records("reembed") as progress:
        if not isinstance(opened, BaseStore):
            raise InputError("this store makes its vectors by itself.", hint="`reembed` is for the adapters of Holdfast.")
        number = opened.reembed(progress=progress)
        problems = opened.stats().problems
    text = "\n".join([f"{counted(number, 'text')} embedded.", *(f"problem: {problem}" for problem in problems)])
    say({"embedded": number, "problems": list(problems)}, text, as_json=as_json)


@app.command("stats", epilog="Example: holdfast knowledge stats --json")
def stats(store: StoreOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Say what the store holds, where it is, and what is wrong with it."""
    with _store(config, store) as opened:
        found = opened.stats()
    show(stats_to_json(found), lambda console: _draw_stats(console, found), as_json=as_json)


def _moment(written: str | None, option: str) -> datetime | None:
    if written is None:
        return None
    moment = read_moment(written)
    if moment is None:
        raise InputError(f"{option}: {written!r} is not a date.", hint="Write it like 2026-05-08 or 2026-05-08T13:56:00Z.")
    return moment


def _draw_hits(console: Console, hits: Sequence[Hit], *, whole: bool = False) -> None:
    """Each hit: where it is from, the part that answers best (with `whole` all of it), and why it was found."""
    told = [(hit, *snippet_and_why(hit)) for hit in hits]
    shown_hits = [one for one in told if whole or one[2] != NO_REASON]
    if not shown_hits:
        prose(console, "Nothing was found. Try other words, or fewer filters.")
    for place, (hit, found, why) in enumerate(shown_hits, 1):
        prose(console, _origin(hit.record), mark=plain(f"{place}. ", "bold"))
        shown = plain(hit.text if whole else found.text)
        for start, end in found.marks if not whole else ():
            shown.stylize("bold yellow", start, end)
        prose(console, shown, mark="   ")
        prose(console, why, mark="   ", style="dim")
    if len(shown_hits) < len(told):
        prose(
            console,
            f"{counted(len(told) - len(shown_hits), 'record')} with nothing of the question in sight left out: --whole shows all.",
            style="dim",
        )


def _draw_record(console: Console, record: Record) -> None:
    """One record with everything that is known about it."""
    prose(console, _origin(record))
    for name in ("session", "position", "role", "trust"):
        value = getattr(record, name)
        if value is not None:
            prose(console, plain(f"{name}: {value}", "dim"))
    if record.extra:
        prose(console, plain(f"extra: {json.dumps(dict(record.extra), ensure_ascii=False)}", "dim"))
    prose(console, plain(record.text))


def _origin(record: Record) -> Text:
    time = record.time.strftime("%Y-%m-%d %H:%M").removesuffix(" 00:00") if record.time else ""  # a document has a day
    tags = " ".join(f"#{tag}" for tag in record.tags)
    parts = [part for part in (record.speaker, time, record.source or record.session, record.kind, tags) if part]
    return Text.assemble(plain("  ".join(parts), "cyan"), plain(f"  {record.id}", "dim"))


def _draw_stats(console: Console, stats: Stats) -> None:
    """What a store holds."""
    prose(console, plain(f"{stats.where} ({stats.adapter})", "dim"))
    size = "" if stats.bytes is None else f", {stats.bytes:,} bytes"
    vectors = f", {counted(stats.vectors, 'vector')}" if stats.vectors else ""
    prose(console, f"{counted(stats.records, 'record')} in {counted(stats.sessions, 'session')}{vectors}{size}")
    if stats.oldest and stats.newest:
        prose(console, f"from {stats.oldest:%Y-%m-%d} to {stats.newest:%Y-%m-%d}")
    for name, counts in (("kinds", stats.kinds), ("tags", stats.tags)):
        if counts:
            shown = ", ".join(f"{key} {number}" for key, number in list(counts.items())[:20])
            prose(console, plain(f"{name}: {shown}"))
    for problem in stats.problems:
        prose(console, plain(f"problem: {problem}", "red"))


def _draw_import(console: Console, report: ImportReport) -> None:
    """What an import did, and each thing that it could not take in."""
    for fault in report.faults:
        prose(console, plain(f"not taken in: {fault}", "red"))
    if report.skipped:
        named = ", ".join(report.skipped[:_NAMED]) + (", ..." if len(report.skipped) > _NAMED else "")
        prose(console, plain(f"of a kind that is not read: {counted(len(report.skipped), 'file')} ({named})", "yellow"))
    done = report.added
    faults = f"; {counted(len(report.faults), 'fault')}" if report.faults else ""
    prose(
        console,
        f"{done.added} added, {done.updated} changed, {done.unchanged} there already, from {counted(report.files, 'file')}{faults}.",
    )
