"""`holdfast eval`: how well the parts work on the user's own data (K6)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.amounts import counted
from holdfast.app.output import ConfigOption, JsonOption, open_harness, plain, prose, show
from holdfast.app.progress import progress_of_questions
from holdfast.errors import InputError
from holdfast.knowledge.adapters import open_section
from holdfast.knowledge.evaluation import evaluate
from holdfast.knowledge.vector_store import COLLECTIONS

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.config.memory_sections import Knowledge
    from holdfast.knowledge.store import KnowledgeStore

app = typer.Typer(
    help="Measure on your own data.",
    epilog="Example: holdfast eval recall --data questions.jsonl",
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def root() -> None:
    """Measure on your own data."""


@app.command("recall", epilog="Example: holdfast eval recall --data questions.jsonl.xz --adapter markdown --json")
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
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how much of the known evidence a search finds, and how fast. No model is asked; the configured store is not touched.

    Each line of the file is {"id", "evidence_unit": "turn" or "session",
    "sessions": [{"id", "date", "turns": [{"id", "speaker", "text"}]}],
    "questions": [{"id", "text", "date", "type", "evidence": [ids]}]}.
    """
    with open_harness(config) as harness:
        section = harness.config.knowledge
        chosen = adapter or (section.adapter if dsn is None else "postgres")
        if chosen not in ("sqlite", "markdown", "postgres", "langchain"):
            hint = "Use --adapter sqlite, markdown, postgres or langchain."
            raise InputError(f"recall cannot be measured with the adapter {chosen!r}.", hint=hint)
        with _opener(section, chosen, dsn) as opener, progress_of_questions("recall") as progress:
            summary = evaluate(data.expanduser(), opener, unscoped=unscoped, typos=typos, ablate=ablate, progress=progress).summary()
    value = {**summary, "adapter": chosen, "unscoped": unscoped, "typos": typos}
    show(value, lambda console: _draw_figures(console, summary), as_json=as_json)


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
