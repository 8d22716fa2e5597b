"""`holdfast knowledge`: the records of long-term memory, searched, added, taken in, written out, forgotten (K1-K4, M14).

`holdfast eval` measures how well they are found, on the user's own data (K6).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from holdfast.app.output import (
    KNOWLEDGE,
    check_place,
    command,
    confirm,
    echo,
    group,
    open_harness,
    piped_text,
    plain,
    progress_of,
    prose,
    say,
    show,
)
from holdfast.errors import InputError, NotThere
from holdfast.knowledge import import_export
from holdfast.knowledge.adapters import open_section
from holdfast.knowledge.base import BaseStore
from holdfast.knowledge.evaluation import evaluate
from holdfast.knowledge.import_export import ImportReport, import_path
from holdfast.knowledge.records import Hit, Record, files_of, read_moment, to_json
from holdfast.knowledge.store import NO_REASON, KnowledgeStore, Stats, hit_to_json, holds, report_to_json, snippet_and_why, stats_to_json
from holdfast.knowledge.vector_store import COLLECTIONS
from holdfast.redaction import visible_json
from holdfast.sandbox.uploads import MarkItDown
from holdfast.text.needle import Needle
from holdfast.text.normalise import one_line, reveal
from holdfast.validation import counted
from holdfast.workflow.long_term_memory import agree, why_held

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.config.memory_sections import Knowledge
    from holdfast.harness import Harness
    from holdfast.knowledge.store import KnowledgeStore


_NAMED = 20

app = group(
    "Search and keep records: notes, findings, documents, conversations.",
    epilog="Example: holdfast knowledge search which database did we choose",
)

Words = Annotated[list[str], typer.Argument(help="The words; quotes are not needed.")]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", "-s", metavar="PATH", help="Another store than the configured one: a file, a Markdown folder, an address."),
]
TagOption = Annotated[list[str] | None, typer.Option("--tag", "-t", metavar="TAG", help="A tag; may be given several times.")]
SessionOption = Annotated[str | None, typer.Option("--session", metavar="NAME", help="A conversation, and what is below it.")]


@contextmanager
def _opened(store: str | None, *, make: bool = False) -> Iterator[tuple[KnowledgeStore, Harness]]:
    """The store to work with, and the harness. Only with `make` one is made at a path where there is none."""
    if not make:
        check_place(store)
    with open_harness(*(() if store is not None else KNOWLEDGE)) as harness, harness.open_knowledge(store) as opened:
        yield opened, harness


@command(app, "add", epilog='Example: holdfast knowledge add "The staging server is called heron" --tag infra')
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
) -> None:
    """Keep a record. The same words twice are kept once. A single - reads the text from standard input."""
    text = piped_text().strip() if words == ["-"] else " ".join(words)
    given: dict[str, Any] = {"session": session, "source": source, "speaker": speaker, "kind": kind, "trust": trust}
    record = Record(text, tags=tuple(tag or ()), time=_moment(time, "--time"), **given)
    with _opened(store, make=True) as (opened, harness):
        if record.time is None:  # the moment of adding is not part of what makes it this record, else adding twice would add twice
            there = opened.get(record.id)
            record = replace(record, time=there.time if there is not None else harness.clock.now())
        report = opened.add([record])
        kept = opened.get(record.id) or record
    did = "Kept" if report.added else "Changed" if report.updated else "It was there already"
    say({"added": bool(report.added), "record": to_json(kept)}, f"{did} as {kept.id}: {kept.text}")


@command(
    app, "search", epilog="Examples: holdfast knowledge search staging server | holdfast knowledge search payments --tag finance --top 3"
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
) -> None:
    """Find records by a question or by words, and say why each was found. "last week" and "in May" are understood."""
    chosen: dict[str, Any] = {"tags": tag or (), "after": _moment(after, "--after"), "before": _moment(before, "--before")}
    with _opened(store) as (opened, harness):
        most = top if top is not None else harness.config.knowledge.top_k
        hits = opened.search(" ".join(words), top_k=most, session=session, budget=budget, **chosen)
    value = {"query": " ".join(words), "hits": [hit_to_json(hit) for hit in hits]}
    show(value, lambda console: _draw_hits(console, hits, whole=whole))


@command(app, "show", epilog="Example: holdfast knowledge show k-78fa0a9d77476a58")
def show_record(
    id: Annotated[str, typer.Argument(help="The id of the record; search shows it.")],
    store: StoreOption = None,
) -> None:
    """Show one record with everything that is known about it."""
    with _opened(store) as (opened, _):
        record = _record(opened, id)
    show(to_json(record), lambda console: _draw_record(console, record))


def _record(opened: KnowledgeStore, id: str) -> Record:
    record = opened.get(id)
    if record is None:
        raise NotThere(f"there is no record {id!r}.", hint="`holdfast knowledge search` shows the ids.")
    return record


@command(
    app, "import", epilog="Examples: holdfast knowledge import notes/ --tag wiki | holdfast knowledge import chat.jsonl --session team"
)
def import_(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Folders or files: documents, mails, tables, records, chat logs; also .xz and .gz."),
    ],
    tag: TagOption = None,
    session: Annotated[str | None, typer.Option("--session", metavar="NAME", help="Put above the names of the conversations.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first thing that cannot be read.")] = False,
    store: StoreOption = None,
) -> None:
    """Take in documents, records and conversations. What is there already is not doubled; what cannot be read is named."""
    with _opened(store, make=True) as (opened, _), progress_of("import", "records") as progress:
        report = import_path(
            opened,
            *(path.expanduser() for path in paths),
            tags=tag or (),
            session=session,
            strict=strict,
            progress=progress,
            convert=MarkItDown().convert,
        )
        taken = (record for id in report.added.ids if (record := opened.get(id)) is not None)
        waiting = sum(1 for record in taken if why_held(record))
    counts = {name: value for name, value in report_to_json(report.added).items() if name != "ids"}
    value = {
        **counts,
        "files": report.files,
        "faults": [{"file": one.file, "line": one.line, "problem": one.problem} for one in report.faults],
        "skipped": list(report.skipped),
        "hidden": list(report.hidden),
        "gone": report.gone,
        "waiting": waiting,
    }
    show(value, lambda console: _draw_import(console, report, waiting))
    if report.faults:
        raise typer.Exit(1)


@command(app, "export", epilog="Examples: holdfast knowledge export backup.jsonl | holdfast knowledge export notes/ --format markdown")
def export(
    target: Annotated[
        Path | None, typer.Argument(help="A file for JSON lines or a new folder for Markdown; - and the default are standard output.")
    ] = None,
    form: Annotated[str | None, typer.Option("--format", help="jsonl or markdown. Default: by the name of the target.")] = None,
    tag: TagOption = None,
    session: SessionOption = None,
    store: StoreOption = None,
) -> None:
    """Write out all records. `import` takes them in again, with everything that is known about them."""
    target = None if str(target) == "-" else target
    chosen = form or ("jsonl" if target is None or target.suffix else "markdown")
    if chosen not in ("jsonl", "markdown"):
        raise InputError(f"{chosen!r} is not a format.", hint="Use jsonl or markdown.")
    if chosen == "markdown" and target is None:
        raise InputError("Markdown files need a folder.", hint="Name a new one.")
    with _opened(store) as (opened, _):
        if target is None:
            for line in import_export.json_lines(opened, tags=tag or (), session=session):
                echo(visible_json(line))
            return
        write = import_export.export_lines if chosen == "jsonl" else import_export.export_markdown
        number = write(opened, target.expanduser(), tags=tag or (), session=session)
    say({"path": str(target), "format": chosen, "records": number}, f"{counted(number, 'record')} written to {target}.")


@command(app, "forget", epilog="Examples: holdfast knowledge forget k-78fa0a9d77476a58 | holdfast knowledge forget --source notes.md")
def forget(
    ids: Annotated[list[str] | None, typer.Argument(help="The ids of records.")] = None,
    text: Annotated[str | None, typer.Option("--text", metavar="WORDS", help="Every record that holds these words.")] = None,
    source: Annotated[
        str | None, typer.Option("--source", metavar="NAME", help="Every record of this document or folder, as search names it.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", "-t", metavar="TAG", help="Every record with this tag.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: StoreOption = None,
) -> None:
    """Forget records for good, out of every file and index."""
    if sum(map(bool, (ids, text, source, tag))) != 1:
        raise InputError("say what to forget.", hint="Give the ids of records, or one of --text, --source and --tag.")
    if source or tag:
        _forget_all(store, source, tag, yes=yes)
        return
    with _opened(store) as (opened, _):
        if text:
            needle = Needle.asked(text)
            found = [one.id for one in opened.records() if holds(needle, one)]
        else:
            found = list(dict.fromkeys(ids or ()))
            for id in found:
                _record(opened, id)
        if found:
            those = f" that {'holds' if len(found) == 1 else 'hold'} {text!r}" if text else ""
            confirm(f"Forget {counted(len(found), 'record')}{those}? This cannot be undone.", yes=yes)
        gone = opened.forget_text(text) if text else [id for id in found if opened.forget([id])]
    lines = [f"Forgotten: {counted(len(gone), 'record')}.", *(f"  {id}" for id in gone)] if gone or ids else [f"No record holds {text!r}."]
    say({"ids": gone}, "\n".join(lines))


def _forget_all(store: str | None, source: str | None, tag: str | None, *, yes: bool) -> None:
    """Forget what is from a source, or has a tag."""
    what = f"from {source!r}" if source else f"with the tag {tag!r}"
    with _opened(store) as (opened, _):
        found = [one.id for one in opened.records(tags=(tag,) if tag else ()) if not source or _is_from(one, source)]
        if found:
            confirm(f"Forget {counted(len(found), 'record')} {what}? This cannot be undone.", yes=yes)
            opened.forget(found)
    say({"ids": found}, f"Forgotten: {counted(len(found), 'record')} {what}." if found else f"There is no record {what}.")


def _is_from(record: Record, source: str) -> bool:
    """Whether a record is from a document, one of its sections, or a document below a folder."""
    name = source.rstrip("/")
    return any(known == name or known.startswith((f"{name}#", f"{name}/")) for known in (record.source or "", *files_of(record)))


@command(app, "review", epilog="Example: holdfast knowledge review")
def review(store: StoreOption = None) -> None:
    """What stays out of prompts until you agree to it: records of low trust, and those that read as orders or hide something."""
    with _opened(store) as (opened, _):
        waiting = [(record, why) for record in opened.records() if (why := why_held(record))]
    value = [{"record": to_json(record), "why": why} for record, why in waiting]
    lines = [f"{record.id}  {reveal(one_line(record.text, 200))}  ({why}; {record.source or 'no source'})" for record, why in waiting]
    say(value, "\n".join(lines) or "Nothing waits.")


@command(app, "agree", epilog="Example: holdfast knowledge agree k-78fa0a9d77476a58")
def agree_to(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Records that may stand in prompts from now on.")],
    store: StoreOption = None,
) -> None:
    """Let records stand in prompts: you have read them, and they count as your own word."""
    with _opened(store, make=True) as (opened, harness):
        chosen = agree(opened, ids, now=harness.clock.now())
    say([to_json(record) for record in chosen], "\n".join(f"Agreed to {record.id}: {record.text}" for record in chosen))


@command(app, "reembed", epilog="Example: holdfast knowledge reembed")
def reembed(store: StoreOption = None) -> None:
    """Make the vectors of all records anew, by the embedder that the settings name. Vectors of two embedders are never mixed."""
    with _opened(store) as (opened, _), progress_of("reembed", "records") as progress:
        if not isinstance(opened, BaseStore):
            raise InputError("this store makes its vectors by itself.", hint="`reembed` is for the adapters of Holdfast.")
        number = opened.reembed(progress=progress)
        problems = opened.stats().problems
    text = "\n".join([f"{counted(number, 'text')} embedded.", *(f"problem: {problem}" for problem in problems)])
    say({"embedded": number, "problems": list(problems)}, text)


@command(app, "stats", epilog="Example: holdfast knowledge stats --json")
def stats(store: StoreOption = None) -> None:
    """Say what the store holds, where it is, and what is wrong with it."""
    with _opened(store) as (opened, _):
        found = opened.stats()
    show(stats_to_json(found), lambda console: _draw_stats(console, found))


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


def _draw_import(console: Console, report: ImportReport, waiting: int) -> None:
    """What an import did, and each thing that it could not take in."""
    for fault in report.faults:
        prose(console, plain(f"not taken in: {fault}", "red"))
    for what, things, names in (
        ("of a kind that is not read", "file", report.skipped),
        ("hidden, and passed over", "file or folder", report.hidden),
    ):
        if names:
            named = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
            many = counted(len(names), things, things.replace("file", "files").replace("folder", "folders"))
            prose(console, plain(f"{what}: {many} ({named})", "yellow"))
    done = report.added
    faults = f"; {counted(len(report.faults), 'fault')}" if report.faults else ""
    prose(
        console,
        f"{done.added} added, {done.updated} changed,{f' {report.gone} gone,' if report.gone else ''} {done.unchanged} there already, "
        f"from {counted(report.files, 'file')}{faults}.",
    )
    if waiting:
        many = f"{waiting} of {counted(len(report.added.ids), 'record')}"
        prose(console, f"{many} may give orders to an assistant and wait in `holdfast knowledge review`.", style="yellow")


# Measuring


eval_app = group("Measure on your own data.", epilog="Example: holdfast eval recall --data questions.jsonl")


@eval_app.callback()
def measure() -> None:
    """Measure on your own data."""


@command(eval_app, "recall", epilog="Example: holdfast eval recall --data questions.jsonl.xz --adapter markdown --json")
def recall(
    data: Annotated[
        Path, typer.Option("--data", metavar="FILE", help="Conversations with questions, one a line as JSON; also .xz and .gz.")
    ],
    adapter: Annotated[
        str | None, typer.Option("--adapter", help="sqlite, markdown, postgres or langchain. Default: the configured one.")
    ] = None,
    dsn: Annotated[str | None, typer.Option("--dsn", metavar="DSN", help="The database, for postgres. Default: knowledge.dsn.")] = None,
    unscoped: Annotated[bool, typer.Option("--unscoped", help="All conversations in one store, and every question asked of it.")] = False,
    typos: Annotated[int | None, typer.Option("--typos", metavar="SEED", help="Typing errors in every question, by this seed.")] = None,
    ablate: Annotated[bool, typer.Option("--ablate", help="Also without each ingredient of the ranking.")] = False,
) -> None:
    """Measure how much of the known evidence a search finds, and how fast. No model is asked; the configured store is not touched.

    Each line of the file is {"id", "evidence_unit": "turn" or "session",
    "sessions": [{"id", "date", "turns": [{"id", "speaker", "text"}]}],
    "questions": [{"id", "text", "date", "type", "evidence": [ids]}]}.
    """
    with open_harness() as harness:
        section = harness.config.knowledge
        chosen = adapter or (section.adapter if dsn is None else "postgres")
        if chosen not in ("sqlite", "markdown", "postgres", "langchain"):
            hint = "Use --adapter sqlite, markdown, postgres or langchain."
            raise InputError(f"recall cannot be measured with the adapter {chosen!r}.", hint=hint)
        with _opener(section, chosen, dsn) as opener, progress_of("recall", "questions") as progress:
            summary = evaluate(data.expanduser(), opener, unscoped=unscoped, typos=typos, ablate=ablate, progress=progress).summary()
    value = {**summary, "adapter": chosen, "unscoped": unscoped, "typos": typos}
    show(value, lambda console: _draw_figures(console, summary))


@contextmanager
def _opener(section: Knowledge, adapter: str, dsn: str | None) -> Iterator[Callable[[str], Any]]:
    """Opens an empty store for each conversation, and clears it away when it is closed."""
    with TemporaryDirectory(prefix="holdfast-eval-") as folder:
        numbers = iter(range(10**9))

        @contextmanager
        def opener(_: str) -> Iterator[KnowledgeStore]:
            number = next(numbers)
            path = str(Path(folder, f"{number}.db" if adapter in ("sqlite", "langchain") else str(number)))
            changed: dict[str, Any] = {"adapter": adapter, "path": path, "collection": f"eval_{secrets.token_hex(6)}"}
            if adapter == "langchain":  # a collection of its own, and in a folder of its own where the store is one
                changed |= {
                    "use": section.use or "chroma",
                    "dsn": section.dsn if "://" in (section.dsn or "") else str(Path(folder, "vectors")),
                }
                changed["arguments"] = {name: value for name, value in section.arguments.items() if name not in COLLECTIONS}
            if dsn is not None:
                changed["dsn"] = dsn
            with open_section(section.model_copy(update=changed), Path(folder)) as store:
                try:
                    yield store
                finally:
                    if adapter in ("postgres", "langchain"):
                        store.forget([record.id for record in store.records()])

        yield opener


def _draw_figures(console: Console, summary: Mapping[str, Any]) -> None:
    """Recall by type of question, the whole below, and what it cost."""
    overall = summary["overall"]
    names = [name for name in overall if name != "questions"]
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("type", "questions", *names):
        table.add_column(column, justify="left" if column == "type" else "right")
    without = {f"without {name}": row for name, row in summary.get("without", {}).items()}
    for kind, row in [*summary["by_type"].items(), ("all", overall), *without.items()]:
        figures = ["" if name not in row else f"{row[name]:.{1 if name[0] in 'Rk' else 3}f}" for name in names]
        table.add_row(plain(kind, "bold" if kind == "all" else ""), str(row["questions"]), *figures)
    console.print(table)
    cost = summary["cost"]
    size = "" if cost["bytes"] is None else f", {cost['bytes']:,} bytes"
    prose(console, f"a question takes {cost['query_ms_p50']} ms (median), {cost['query_ms_p95']} ms (95 %)")
    prose(
        console,
        f"{counted(cost['records'], 'record')} of {counted(cost['conversations'], 'conversation')} taken in within "
        f"{cost['ingestion_seconds']} s{size}",
    )
    if summary["skipped"]:
        prose(console, f"Skipped: {counted(summary['skipped'], 'question')} without evidence", style="yellow")
    for problem in summary["problems"]:
        prose(console, plain(problem, "yellow"))
