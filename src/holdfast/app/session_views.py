"""A session as people see it: while it runs (`Progress`), told on a terminal, and as one HTML file that needs nothing else (O1).

The page has no script and asks nothing of the network; every text of the session is escaped.
"""

from __future__ import annotations

import html
import json
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from string import Template
from types import TracebackType
from typing import TYPE_CHECKING, Self

from holdfast.app.output import console, echo, plain, prose, spans, to_paste
from holdfast.events import Bus, Event
from holdfast.redaction import visible
from holdfast.session.output import StageOutput
from holdfast.session.state import Session, SessionError
from holdfast.session.story import Chapter, Story, raw_text, stages
from holdfast.text.normalise import one_line
from holdfast.validation import counted
from holdfast.workflow import events
from holdfast.workflow.control import result_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from holdfast.workflow.definition import Workflow


_WIDE = 60  # columns for all that is told of a stage while it runs; in fewer its name stays whole and the rest goes
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
        with self._lock:
            rows = list(self._rows.items())
        wide = console().width >= _WIDE
        for heading in ("", "stage", "seconds", *(("tokens", "confidence") if wide else ()), ""):
            whole = max(len(name) for name, _ in rows) if heading == "stage" else len(heading)
            table.add_column(heading, justify="right" if heading in ("seconds", "tokens") else "left", no_wrap=True, min_width=whole)
        for name, row in rows:
            mark, style = _MARKS[row.status]
            seconds = f"{row.seconds:.1f}" if row.seconds is not None else ""
            tokens = f"{row.tokens:,}" if row.tokens else ""
            said = Text(" ".join(row.said.split())[:80], style="dim")
            table.add_row(Text(mark, style=style), Text(name), seconds, *((tokens, row.confidence) if wide else ()), said)
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
            return f"{event.stage}: {one_line(event.message, 200)}; again in {event.seconds:g} s"
        case events.OutputRejected():
            return f"{event.stage}: {one_line(event.problem, 200)}; asked again"
        case events.StageFailure() | events.StageSkipped():
            word = "failed" if isinstance(event, events.StageFailure) else "skipped"
            return f"{event.stage} {word}: {one_line(event.message, 200)}"
        case events.MemoriesRetrieved():
            return f"{counted(event.count, 'memory', 'memories')} found (tag {event.tag})"
        case events.StagesAdded():
            return f"{event.stage} added: {', '.join(event.added)}"
        case events.FindingsStored():
            new = ((event.findings, "finding", "findings"), (event.summaries, "summary", "summaries"))
            told = " and ".join(counted(*kind) for kind in new if kind[0])
            return f"{told or 'nothing new to be'} stored (tag {event.tag})"
        case _:
            return None


# When it is over


_COLOURS = {
    **{"completed": "green", "running": "cyan", "failed": "red", "halted": "red", "interrupted": "yellow", "rejected": "red"},
    **{"waiting": "yellow", "paused": "yellow", "skipped": "yellow", "cancelled": "yellow"},
}
_SIGNS = {"completed": "✓", "running": "▶", "failed": "✗", "skipped": "–", "waiting": "?", "rejected": "✗", "pending": "·"}
_RAW_LINES = 40
_FINDINGS = 8
"""Findings of a stage that are told; the report and the file have all of them."""


def draw_story(console: Console, story: Story) -> None:
    """Tell it on a terminal."""
    prose(console, spans(plain(story.session.workflow_id, "bold"), plain(f"  {story.headline}", _COLOURS.get(story.status, ""))))
    if story.session.task:
        prose(console, story.session.task, paragraph=True)
    for name, value in story.facts:
        prose(console, spans(plain(f"{name}: ", "dim"), plain(value)))
    told: set[str] = set()
    for chapter in story.chapters:
        console.print()
        head = f"{_SIGNS.get(chapter.status, '·')} {chapter.number}. {chapter.name}"
        aside = ", ".join([chapter.status if chapter.status != "completed" else "", *chapter.facts]).strip(", ")
        colour = f"bold {_COLOURS.get(chapter.status, '')}".strip()
        prose(console, spans(plain(head, colour), plain(f"  {aside}" if aside else "", "dim")))
        for mark, text in _chapter_lines(chapter, told):
            prose(console, text, mark=plain(f"   {mark}", "dim"))
    for text in story.notes:
        console.print()
        prose(console, text, style="yellow")
    if story.error is not None:
        console.print()
        stopped = plain(f"Stopped at {story.error.stage or 'the session'} ({story.error.kind}): ", "bold red")
        prose(console, spans(stopped, plain(story.error.message)))
        for text in _error_lines(story.error):
            prose(console, text, mark="   ")
    if story.checkpoints:
        console.print()
        names = ", ".join(f"{point.name} ({stages(point.completed)})" for point in story.checkpoints[-8:])
        prose(console, spans(plain("Recovery points: ", "dim"), plain(names)))
    for text in story.damage:
        prose(console, f"Damaged, and a recovery point may be lost by it: {text}", style="red")
    if story.next_steps:
        console.print()
        prose(console, "Next:", style="bold")
        for step in story.next_steps:
            to_paste(console, step)


def _chapter_lines(chapter: Chapter, told: set[str]) -> list[tuple[str, str]]:
    """What is said of a stage, line by line, each with its mark. What was `told` of an earlier stage is not told again."""
    lines: list[tuple[str, str]] = []
    output = chapter.output
    if output is not None:
        lines.append(("", output.summary))
        found = [finding for finding in output.key_findings if finding.fact not in told]
        for finding in found[:_FINDINGS]:
            doubt = {True: "", False: "  NOT FOUND IN ITS SOURCE", None: ""}[finding.grounded]
            lines.append(("• ", f"{' '.join(finding.fact.split())}  [{finding.source}]{doubt}"))
        advice = [text for text in output.next_stage_recommendations if text not in told]
        lines += [("→ ", text) for text in advice[:_FINDINGS]]
        told.update([*(finding.fact for finding in found), *advice])
        more = [
            (len(found) - _FINDINGS, "more finding", "more findings"),
            (len(advice) - _FINDINGS, "more recommendation", "more recommendations"),
            (len(output.raw_data_refs), "raw text", "raw texts"),
            (int(output.data is not None), "set of values", ""),
        ]
        kept = ", ".join(counted(number, one, many) for number, one, many in more if number > 0)
        lines += [("+ ", f"{kept}: --json and the files of the session have them")] if kept else []
    lines += [("wants ", text) for text in chapter.asks]
    lines += [("left out ", text) for text in chapter.evicted]
    lines += [("failed ", text) for text in chapter.failures]
    return lines


def _error_lines(error: SessionError) -> list[str]:
    lines = [f"- {problem}" for problem in error.problems]
    if error.raw_output is not None:
        raw = raw_text(error.raw_output).splitlines()
        shown = raw if len(raw) == _RAW_LINES + 1 else raw[:_RAW_LINES]
        lines += ["What it wrote:", *(f"| {text}" for text in shown)]
        lines += [f"| ... {counted(len(raw) - len(shown), 'more line')}"] if len(raw) > len(shown) else []
    return [*lines, *([error.hint] if error.hint else [])]


# As a page


def story_page(story: Story) -> str:
    """The page."""
    template = Template((files("holdfast.app") / "session_page.html").read_text("utf-8"))
    done, total = story.session.progress()
    texts = [str(one.get("text", json.dumps(dict(one), ensure_ascii=False, default=str))) for one in story.session.retrieved]
    steps = [f"<code>{_text(step)}</code>" for step in story.next_steps]
    return template.substitute(
        title=_text(story.session.workflow_id),
        status=_text(story.status),
        headline=_text(story.headline.partition(": ")[2]),
        percent=round(100 * done / total) if total else 0,
        task=_text(story.session.task),
        facts="".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in story.facts),
        trouble=_trouble(story),
        chapters="\n".join(_chapter(chapter) for chapter in story.chapters),
        retrieved=f"<section><h2>Retrieved memories</h2>{_list(map(_text, texts))}</section>" if texts else "",
        checkpoints=_checkpoints(story),
        next_steps=f"<section><h2>Next</h2>{_list(steps)}</section>" if steps else "",
    )


def _chapter(chapter: Chapter) -> str:
    head = (
        f"<header><h2>{chapter.number}. {_text(chapter.name)}</h2>"
        f'<span class="badge {_text(chapter.status)}">{_text(chapter.status)}</span>'
        f'<span class="facts">{_text(" · ".join(chapter.facts))}</span></header>'
    )
    body = _output(chapter.output) if chapter.output is not None else ""
    asks = f"<p>Waits for a person to approve this call:</p><pre>{_text(chr(10).join(chapter.asks))}</pre>" if chapter.asks else ""
    left_out, failed = _folded("Left out of its context", chapter.evicted), _folded("Tries that failed", chapter.failures)
    return f"<section>{head}{body}{asks}{left_out}{failed}</section>"


def _output(output: StageOutput) -> str:
    parts = [f'<p class="summary">{_text(output.summary)}</p>']
    if output.key_findings:
        doubt = '<span class="doubt"> not found in its source</span>'
        parts.append(
            _list(
                f'{_text(one.fact)} <span class="source">{_text(one.source)}</span>{doubt if one.grounded is False else ""}'
                for one in output.key_findings
            )
        )
    if output.next_stage_recommendations:
        parts.append("<p>Recommended next</p>" + _list(_text(text) for text in output.next_stage_recommendations))
    if output.data is not None:
        shown = json.dumps(output.data, ensure_ascii=False, indent=2, default=str)
        parts.append(f"<details><summary>Data</summary><pre>{_text(shown)}</pre></details>")
    if output.raw_data_refs:
        parts.append('<p class="source">Raw data: ' + ", ".join(f"<code>{_text(ref)}</code>" for ref in output.raw_data_refs) + "</p>")
    return "".join(parts)


def _trouble(story: Story) -> str:
    error = story.error
    if error is None:
        return ""
    raw = "" if error.raw_output is None else f"<p>What it wrote:</p><pre>{_text(raw_text(error.raw_output))}</pre>"
    problems = _list(_text(problem) for problem in error.problems) if error.problems else ""
    where = f"Stopped at {error.stage}" if error.stage else "Stopped"
    hint = f"<p>{_text(error.hint)}</p>" if error.hint else ""
    head = f"<h2>{_text(where)} ({_text(error.kind)})</h2><p>{_text(error.message)}</p>"
    return f'<section class="trouble">{head}{problems}{raw}{hint}</section>'


def _checkpoints(story: Story) -> str:
    damage = "".join(f"<p>Damaged, and a recovery point may be lost by it: {_text(text)}</p>" for text in story.damage)
    if not story.checkpoints:
        return f'<section class="trouble">{damage}</section>' if damage else ""
    rows = "".join(
        f"<tr><td>{_text(one.name)}</td><td>{_text(one.at[:16].replace('T', ' '))}</td><td>{one.completed}</td><td>{one.revision}</td></tr>"
        for one in story.checkpoints
    )
    head = "<tr><th>name</th><th>time</th><th>stages</th><th>revision</th></tr>"
    return f"<section><h2>Recovery points</h2><table>{head}{rows}</table>{damage}</section>"


def _folded(title: str, lines: Iterable[str]) -> str:
    items = [_text(line) for line in lines]
    return f"<details><summary>{title} ({len(items)})</summary>{_list(items)}</details>" if items else ""


def _list(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>"


def _text(value: str) -> str:
    return html.escape(visible(value))


def report_of(session: Session, folder: Path | None) -> tuple[str, Path | None]:
    """What a session came to, as Markdown: the report of its last stages, else their summaries; and the file of it, where there is one."""
    texts: list[str] = []
    for name, output in result_of(session).items():
        data = output.data if isinstance(output.data, Mapping) else {}
        report = data.get("report")
        texts.append(report.strip() if isinstance(report, str) and report.strip() else f"# {name}\n\n{output.summary.strip()}")
    written = sorted(folder.glob("*/report.md")) if folder is not None and folder.is_dir() else []
    return "\n\n".join(texts), written[-1] if written else None
