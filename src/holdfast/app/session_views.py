"""A session as people see it: told on a terminal, and as one HTML file that needs nothing else (O1).

The page has no script and asks nothing of the network; every text of the session is escaped.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from holdfast.amounts import counted
from holdfast.app.output import plain, prose, spans, to_paste
from holdfast.redaction import visible
from holdfast.session.output import StageOutput
from holdfast.session.state import Session, SessionError
from holdfast.session.story import Chapter, Story, raw_text, stages
from holdfast.workflow.control import result_of

if TYPE_CHECKING:
    from rich.console import Console

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
        prose(console, story.session.task)
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
    total = len(story.chapters)
    return template.substitute(
        title=_text(story.session.workflow_id),
        status=_text(story.status),
        headline=_text(story.headline.partition(": ")[2]),
        percent=round(100 * len(story.session.completed_stages) / total) if total else 0,
        task=_text(story.session.task),
        facts="".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in story.facts),
        trouble=_trouble(story),
        chapters="\n".join(_chapter(chapter) for chapter in story.chapters),
        retrieved=_retrieved(story),
        checkpoints=_checkpoints(story),
        next_steps=_next_steps(story),
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


def _retrieved(story: Story) -> str:
    texts = [str(one.get("text", json.dumps(dict(one), ensure_ascii=False, default=str))) for one in story.session.retrieved]
    return f"<section><h2>Retrieved memories</h2>{_list(_text(text) for text in texts)}</section>" if texts else ""


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


def _next_steps(story: Story) -> str:
    steps = [f"<code>{_text(step)}</code>" for step in story.next_steps]
    return f"<section><h2>Next</h2>{_list(steps)}</section>" if steps else ""


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
