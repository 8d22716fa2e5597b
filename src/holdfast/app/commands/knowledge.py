"""`holdfast knowledge`: the records of long-term memory, searched, added, taken in, written out, forgotten (K1-K4, M14)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.app.output import ConfigOption, JsonOption, show
from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.knowledge.store import KnowledgeStore

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
def _store(config: Path | None, store: str | None) -> Iterator[KnowledgeStore]:
    from holdfast.app.logs import open_config
    from holdfast.knowledge.opening import open_knowledge

    loaded = open_config(config)
    with open_knowledge(store if store is not None else loaded) as opened:
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
    from dataclasses import replace

    from holdfast.clock import SystemClock
    from holdfast.knowledge.records import Record, to_json

    text = sys.stdin.read().strip() if words == ["-"] else " ".join(words)
    given: dict[str, Any] = {"session": session, "source": source, "speaker": speaker, "kind": kind, "trust": trust}
    record = Record(text, tags=tuple(tag or ()), time=_moment(time, "--time"), **given)
    with _store(config, store) as opened:
        if record.time is None:  # the moment of adding is not part of what makes it this record, else adding twice would add twice
            there = opened.get(record.id)
            record = replace(record, time=there.time if there is not None else SystemClock().now())
        report = opened.add([record])
        kept = opened.get(record.id) or record
    did = "Kept" if report.added else "Changed" if report.updated else "It was there already"
    _say({"added": bool(report.added), "record": to_json(kept)}, f"{did} as {kept.id}: {kept.text}", as_json=as_json)


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
    whole: Annotated[bool, typer.Option("--whole", help="Show long texts to their end.")] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find records by a question or by words, and say why each was found. "last week" and "in May" are understood."""
    from holdfast.app import knowledge_tables as tables
    from holdfast.app.logs import open_config
    from holdfast.knowledge.wire import hit_to_json

    most = top if top is not None else open_config(config).knowledge.top_k
    chosen: dict[str, Any] = {"tags": tag or (), "after": _moment(after, "--after"), "before": _moment(before, "--before")}
    with _store(config, store) as opened:
        hits = opened.search(" ".join(words), top_k=most, session=session, budget=budget, **chosen)
    value = {"query": " ".join(words), "hits": [hit_to_json(hit) for hit in hits]}
    show(value, lambda console: tables.draw_hits(console, hits, whole=whole), as_json=as_json)


@app.command("show", epilog="Example: holdfast knowledge show k-78fa0a9d77476a58")
def show_record(
    id: Annotated[str, typer.Argument(help="The id of the record; search shows it.")],
    store: StoreOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one record with everything that is known about it."""
    from holdfast.app import knowledge_tables as tables
    from holdfast.knowledge.records import to_json

    with _store(config, store) as opened:
        record = opened.get(id)
    if record is None:
        raise InputError(f"there is no record {id!r}.", hint="`holdfast knowledge search` shows the ids.")
    show(to_json(record), lambda console: tables.draw_record(console, record), as_json=as_json)


@app.command("import", epilog="Examples: holdfast knowledge import notes/ --tag wiki | holdfast knowledge import chat.jsonl --session team")
def import_(
    path: Annotated[Path, typer.Argument(help="A folder, or a file: Markdown, text, JSON lines of records, a chat log; also .xz and .gz.")],
    tag: TagOption = None,
    session: Annotated[str | None, typer.Option("--session", metavar="NAME", help="Put above the names of the conversations.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first thing that cannot be read.")] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take in documents, records and conversations. What is there already is not doubled; what cannot be read is named."""
    from holdfast.app import knowledge_tables as tables
    from holdfast.knowledge.importing import import_path
    from holdfast.knowledge.wire import report_to_json

    with _store(config, store) as opened, tables.progress_of_records("import") as progress:
        report = import_path(opened, path.expanduser(), tags=tag or (), session=session, strict=strict, progress=progress)
    counts = {name: value for name, value in report_to_json(report.added).items() if name != "ids"}
    value = {
        **counts,
        "files": report.files,
        "faults": [{"file": one.file, "line": one.line, "problem": one.problem} for one in report.faults],
    }
    show(value, lambda console: tables.draw_import(console, report), as_json=as_json)
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
    from holdfast.knowledge import exporting

    chosen = form or ("jsonl" if target is None or target.suffix else "markdown")
    if chosen not in ("jsonl", "markdown"):
        raise InputError(f"{chosen!r} is not a format.", hint="Use jsonl or markdown.")
    if chosen == "markdown" and target is None:
        raise InputError("Markdown files need a folder.", hint="Name a new one.")
    with _store(config, store) as opened:
        if target is None:
            for line in exporting.json_lines(opened, tags=tag or (), session=session):
                typer.echo(line)
            return
        write = exporting.export_lines if chosen == "jsonl" else exporting.export_markdown
        number = write(opened, target.expanduser(), tags=tag or (), session=session)
    _say({"path": str(target), "format": chosen, "records": number}, f"{number} records written to {target}.", as_json=as_json)


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
    what = f"everything that holds {text!r}" if text else ", ".join(ids or ())
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Forget {what}? This cannot be undone.", abort=True, err=True)
    with _store(config, store) as opened:
        gone = opened.forget_text(text) if text else [id for id in dict.fromkeys(ids or ()) if opened.forget([id])]
    lines = [f"Forgotten: {len(gone)} records.", *(f"  {id}" for id in gone)] if gone else [f"Nothing holds {what}."]
    _say({"ids": gone}, "\n".join(lines), as_json=as_json)


@app.command("stats", epilog="Example: holdfast knowledge stats --json")
def stats(store: StoreOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Say what the store holds, where it is, and what is wrong with it."""
    from holdfast.app import knowledge_tables as tables
    from holdfast.knowledge.wire import stats_to_json

    with _store(config, store) as opened:
        found = opened.stats()
    show(stats_to_json(found), lambda console: tables.draw_stats(console, found), as_json=as_json)


def _moment(written: str | None, option: str) -> datetime | None:
    from holdfast.knowledge.periods import read_moment

    if written is None:
        return None
    moment = read_moment(written)
    if moment is None:
        raise InputError(f"{option}: {written!r} is not a date.", hint="Write it like 2026-05-08 or 2026-05-08T13:56:00Z.")
    return moment


def _say(value: Any, line: str, *, as_json: bool) -> None:
    from holdfast.app.memory_tables import plain

    show(value, lambda console: console.print(plain(line), soft_wrap=True), as_json=as_json)
