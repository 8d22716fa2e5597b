"""`holdfast eval`: how well the parts work on the user's own data (K6)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.app.output import ConfigOption, JsonOption, show
from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.config.sections import Config
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
    adapter: Annotated[str | None, typer.Option("--adapter", help="sqlite, markdown or postgres. Default: the configured one.")] = None,
    dsn: Annotated[str | None, typer.Option("--dsn", metavar="DSN", help="The database, for postgres. Default: knowledge.dsn.")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how much of the known evidence a search finds, and how fast. No model is asked; the configured store is not touched.

    Each line of the file is {"id", "evidence_unit": "turn" or "session",
    "sessions": [{"id", "date", "turns": [{"id", "speaker", "text"}]}],
    "questions": [{"id", "text", "date", "type", "evidence": [ids]}]}.
    """
    from holdfast.app import knowledge_tables as tables
    from holdfast.app.logs import open_config
    from holdfast.knowledge.evaluation import evaluate

    loaded = open_config(config)
    chosen = adapter or (loaded.knowledge.adapter if dsn is None else "postgres")
    if chosen not in ("sqlite", "markdown", "postgres"):
        raise InputError(f"recall cannot be measured with the adapter {chosen!r}.", hint="Use --adapter sqlite, markdown or postgres.")
    with _opener(loaded, chosen, dsn) as opener, tables.progress_of_questions("recall") as progress:
        summary = evaluate(data.expanduser(), opener, progress=progress).summary()
    value = {**summary, "adapter": chosen}
    show(value, lambda console: tables.draw_figures(console, summary), as_json=as_json)


@contextmanager
def _opener(config: Config, adapter: str, dsn: str | None) -> Iterator[Callable[[str], Any]]:
    """Opens an empty store for each conversation, and clears it away when it is closed."""
    from holdfast.knowledge.opening import open_section

    with TemporaryDirectory(prefix="holdfast-eval-") as folder:
        numbers = iter(range(10**9))

        @contextmanager
        def opener(_: str) -> Iterator[KnowledgeStore]:
            number = next(numbers)
            path = str(Path(folder, f"{number}.db" if adapter == "sqlite" else str(number)))
            changed: dict[str, Any] = {"adapter": adapter, "path": path, "collection": f"eval_{secrets.token_hex(6)}"}
            if dsn is not None:
                changed["dsn"] = dsn
            with open_section(config.knowledge.model_copy(update=changed), Path(folder)) as store:
                try:
                    yield store
                finally:
                    if adapter == "postgres":
                        store.forget([record.id for record in store.records()])

        yield opener
