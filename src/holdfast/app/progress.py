"""Progress on a terminal, plain lines elsewhere (O1): of a session, by the events of its runner, and of an import or an evaluation."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from holdfast.amounts import counted
from holdfast.app.output import clean_console, console, echo
from holdfast.events import Bus, Event
from holdfast.workflow import events

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from holdfast.session.state import Session
    from holdfast.workflow.definition import Workflow

_EVERY = 1000
_MARKS = {
    "pending": ("·", "dim"),
    "running": ("▸", "cyan"),
    "completed": ("✓", "green"),
    "waiting": ("?", "yellow"),
    "skipped": ("-", "yellow"),
    "failed": ("✗", "red"),
    "rejected": ("✗", "red"),
}


@dataclass(frozen=True)
class _Row:
    status: str = "pending"
    seconds: float | None = None
    tokens: int | None = None
    confidence: str = ""
    said: str = ""


class Progress:
    """Shows what happens while it is open. With `quiet` it shows nothing."""

    def __init__(self, bus: Bus, *, quiet: bool = False) -> None:
        self._bus = bus
        self._quiet = quiet
        self._is_live = not quiet and sys.stdout.isatty()
        self._lock = threading.Lock()
        self._rows: dict[str, _Row] = {}
        self._live: Live | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        if not self._quiet:
            self._unsubscribe = self._bus.subscribe(self._told)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._unsubscribe()
        if self._live is not None:
            self._live.stop()

    def begin(self, session: Session, workflow: Workflow) -> None:
        """The stages that there are, and how far they are."""
        for stage in workflow.stages:
            record = session.stages.get(stage.name)
            output = session.stage_outputs.get(stage.name)
            done = stage.name in session.completed_stages
            self._rows[stage.name] = _Row(
                "completed" if done else record.status if record else "pending",
                record.seconds if record else None,
                record.tokens if record else None,
                output.confidence if output is not None and done else "",
            )
        if self._is_live:
            from rich.live import Live

            self._live = Live(console=console(), get_renderable=self._table, refresh_per_second=8, transient=False)
            self._live.start()

    def _told(self, event: Event) -> None:
        if not isinstance(event, events.WorkflowEvent):
            return
        with self._lock:
            self._note(event)
        if not self._is_live and (line := _line(event)):
            with suppress(BrokenPipeError):  # nobody reads any more: the run is worth more than its display
                echo(line)

    def _note(self, event: events.WorkflowEvent) -> None:
        name = getattr(event, "stage", None)
        if isinstance(event, events.StagesAdded):
            at = [*self._rows].index(event.stage) + 1 if event.stage in self._rows else len(self._rows)
            items = [*self._rows.items()]
            self._rows = dict([*items[:at], *((one, _Row()) for one in event.added), *items[at:]])
        if not isinstance(name, str):
            return
        row = self._rows.get(name, _Row())
        match event:
            case events.StageStarted():
                row = _Row("running", said=event.agent)
            case events.StageCompleted():
                row = _Row("completed", event.seconds, event.tokens, event.confidence)
            case events.StageSaid():
                row = replace(row, said=event.line)
            case events.StageRetried() | events.StageFailure() | events.StageSkipped():
                failed = {events.StageFailure: "failed", events.StageSkipped: "skipped"}.get(type(event), row.status)
                row = replace(row, status=failed, said=event.message)
            case events.OutputRejected():
                row = replace(row, said=event.problem)
            case events.StageWaiting():
                row = replace(row, status="waiting", said="waits for approval")
            case _:
                pass
        self._rows[name] = row

    def _table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, show_edge=False)
        for heading, justify in (
            ("", "left"),
            ("stage", "left"),
            ("seconds", "right"),
            ("tokens", "right"),
            ("confidence", "left"),
            ("", "left"),
        ):
            table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]  # the words are those that rich takes
        with self._lock:
            rows = list(self._rows.items())
        for name, row in rows:
            mark, style = _MARKS[row.status]
            seconds = f"{row.seconds:.1f}" if row.seconds is not None else ""
            tokens = f"{row.tokens:,}" if row.tokens else ""
            said = Text(" ".join(row.said.split())[:80], style="dim")
            table.add_row(Text(mark, style=style), Text(name), seconds, tokens, row.confidence, said)
        return table


def _line(event: events.WorkflowEvent) -> str | None:
    """One plain line for what a person wants to know."""
    match event:
        case events.StageStarted():
            return f"[{event.number}/{event.stages}] {event.stage} ..."
        case events.StageCompleted():
            tokens = f", {event.tokens:,} tokens" if event.tokens else ""
            return f"[{event.number}/{event.stages}] {event.stage} completed: {event.seconds:.1f} s{tokens}, confidence {event.confidence}"
        case events.StageRetried():
            return f"{event.stage}: {_short(event.message)}; again in {event.seconds:g} s"
        case events.OutputRejected():
            return f"{event.stage}: {_short(event.problem)}; asked again"
        case events.StageFailure() | events.StageSkipped():
            word = "failed" if isinstance(event, events.StageFailure) else "skipped"
            return f"{event.stage} {word}: {_short(event.message)}"
        case events.MemoriesRetrieved():
            return f"{counted(event.count, 'memory', 'memories')} found (tag {event.tag})"
        case events.StagesAdded():
            return f"{event.stage} added: {', '.join(event.added)}"
        case events.FindingsStored():
            return f"{counted(event.added, 'finding')} stored (tag {event.tag})"
        case _:
            return None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else line[:197] + "..."


# Long commands that are not sessions


@contextmanager
def progress_of_records(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on a terminal; elsewhere a plain line on standard error now and then."""
    with _progress(what, "records") as told:
        yield lambda done, total: told(done, total)


@contextmanager
def progress_of_questions(what: str) -> Iterator[Callable[[int, str], None]]:
    """As `progress_of_records`, for questions, of which nobody knows how many there will be."""
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
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(things),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=clean_console()(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
