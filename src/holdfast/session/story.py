"""A session told as a story: the task, how far it came, every stage with what it found, and what to do next (O1).

`tell` makes a value out of the session, `story_markdown` a document of that; a terminal or a page may show it in other ways.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.redaction import visible
from holdfast.session.edits import EDITED
from holdfast.session.output import StageOutput
from holdfast.session.state import ASKS, CheckpointBrief, Session, SessionError, StageRecord
from holdfast.storage.backend import Holder
from holdfast.text.normalise import call_lines, one_line
from holdfast.validation import counted

_LONGEST_DATA = 4_000
"""Characters of a stage's own values up to which they are part of a document for people."""


@dataclass(frozen=True)
class Chapter:
    """One stage: its place, its state, what it cost, and its output where there is one."""

    number: int
    name: str
    status: str
    facts: tuple[str, ...]
    output: StageOutput | None
    record: StageRecord

    @property
    def evicted(self) -> tuple[str, ...]:
        """What was left out of its context, each with its size."""
        return tuple(f"{one.get('name', '?')} ({_number(one.get('tokens'))} tokens)" for one in self.record.evicted)

    @property
    def asks(self) -> tuple[str, ...]:
        """The call that it waits for a person to approve: whole, line by line, with what cannot be seen written out."""
        call = self.record.extra.get(ASKS) if self.status == "waiting" else None
        if not isinstance(call, Mapping):
            return ()
        args = call.get("args")
        return tuple(call_lines(str(call.get("tool")), args if isinstance(args, Mapping) else {}))

    @property
    def failures(self) -> tuple[str, ...]:
        """The tries that failed, each in a line."""
        return tuple(
            f"{_moment(str(one.get('at', '')))} {one.get('kind', 'error')}: {one.get('message', '')}" for one in self.record.errors
        )


@dataclass(frozen=True)
class Story:
    """Everything that is told of a session."""

    session: Session
    status: str
    headline: str
    facts: tuple[tuple[str, str], ...]
    chapters: tuple[Chapter, ...]
    error: SessionError | None
    next_steps: tuple[str, ...]
    checkpoints: tuple[CheckpointBrief, ...] = ()
    damage: tuple[str, ...] = ()
    """What of its log cannot be read, in words: recovery points may be lost by it."""
    notes: tuple[str, ...] = ()
    """What to know of it, in words: stages that read an output before it was edited."""


def tell(
    session: Session,
    *,
    owner: Holder | None = None,
    checkpoints: Sequence[CheckpointBrief] = (),
    damage: Sequence[str] = (),
    notes: Sequence[str] = (),
    place: str | None = None,
) -> Story:
    """The story of a session. `owner` is who runs it now, `place` where it is kept."""
    status = "interrupted" if session.status == "running" and owner is None else session.status
    names = session.stage_names()
    removed = {*session.removed_stages()} - {*session.strange_stages()}
    chapters = tuple(_chapter(session, number, name, is_removed=name in removed) for number, name in enumerate(names, 1))
    done, total = session.progress()
    progress = f"{done} of {counted(total, 'stage')}" if session.workflow.get("stages") else f"{stages(done)} completed"
    headline = f"{status}: {progress}" + (f", now at {session.current_stage}" if session.current_stage and done < total else "")
    facts = [
        ("Topic", session.topic_tag),
        ("Started", _moment(session.created_at)),
        ("Last change", _moment(session.updated_at)),
        ("Used", _usage(session)),
        ("Run by", str(owner) if owner is not None else ""),
        ("Comes from", _lineage(session.lineage)),
        ("Retrieved memories", str(len(session.retrieved) or "")),
        ("Revision", str(session.revision)),
        ("File", place or ""),
    ]
    told = tuple((name, value) for name, value in facts if value)
    steps = tuple(_next_steps(session, status))
    return Story(session, status, headline, told, chapters, session.error, steps, tuple(checkpoints), tuple(damage), tuple(notes))


def _chapter(session: Session, number: int, name: str, *, is_removed: bool) -> Chapter:
    record = session.stages.get(name, StageRecord())
    output = session.stage_outputs.get(name)
    status = "removed" if is_removed else "completed" if name in session.completed_stages else record.status
    facts = [
        f"confidence {output.confidence}" if output is not None and not output.legacy else "",
        "kept from an older file" if output is not None and output.legacy else "",
        "provisional" if record.provisional else "",
        f"{record.seconds:.1f} s" if record.seconds is not None else "",
        f"{_number(record.tokens)} tokens" if record.tokens is not None else "",
        f"cost {record.cost:.4f}" if record.cost else "",
        record.model or "",
        f"{counted(record.attempts, 'attempt')}" if record.attempts > 1 else "",
        f"{counted(record.repairs, 'repair')}" if record.repairs else "",
        f"added by {record.added_by}" if record.added_by else "",
        "fixed by hand" if "fixed_at" in record.extra else "edited by hand" if EDITED in record.extra else "",
    ]
    return Chapter(number, name, status, tuple(fact for fact in facts if fact), output, record)


def _next_steps(session: Session, status: str) -> list[str]:
    """What a person can do now."""
    name = session.workflow_id
    stage = (session.error.stage if session.error is not None else None) or session.current_stage or "STAGE"
    steps: dict[str, list[str]] = {
        "ready": [f"holdfast resume {name}"],
        "interrupted": [f"holdfast resume {name}"],
        "cancelled": [f"holdfast resume {name}"],
        "running": [f"holdfast cancel {name}"],
        "paused": [f"holdfast approve {name}", f'holdfast reject {name} --why "..."'],
        "completed": [f"holdfast session report {name}"],
        "halted": [f"holdfast resume {name}", f"holdfast session edit {name}"],
    }
    if status == "halted" and session.error is not None and session.error.kind == "malformed_output":
        return [f"holdfast session fix {name} {stage}", f"holdfast resume {name}"]
    return steps.get(status, [])


def _usage(session: Session) -> str:
    tokens = session.usage.get("tokens") or sum(record.tokens or 0 for record in session.stages.values())
    seconds = sum(record.seconds or 0 for record in session.stages.values())
    cost = session.usage.get("cost") or sum(record.cost or 0 for record in session.stages.values())
    parts = [f"{seconds:.1f} s" if seconds else "", f"{_number(tokens)} tokens" if tokens else "", f"cost {cost:.4f}" if cost else ""]
    return ", ".join(part for part in parts if part)


def _lineage(lineage: Mapping[str, Any] | None) -> str:
    if lineage is None:
        return ""
    point = lineage.get("checkpoint")
    return f"{lineage.get('from', '?')}" + (f", recovery point {point}" if point else f", revision {lineage.get('revision', '?')}")


def raw_text(value: Any) -> str:
    """The raw output of a stage as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)


def story_markdown(story: Story) -> str:
    """The same as a Markdown document."""
    session = story.session
    parts = [
        f"# {session.workflow_id}",
        session.task,
        f"**{story.headline}**",
        "\n".join(f"- {name}: {value}" for name, value in story.facts),
    ]
    for chapter in story.chapters:
        aside = ", ".join([chapter.status, *chapter.facts])
        parts.append(f"## {chapter.number}. {chapter.name}\n\n*{aside}*")
        if chapter.output is not None:
            parts += _output_markdown(chapter.output)
        if chapter.asks:
            parts.append("Waits for a person to approve this call:\n\n" + _fenced("\n".join(chapter.asks)))
        if chapter.evicted:
            parts.append("Left out of its context:\n\n" + "\n".join(f"- {text}" for text in chapter.evicted))
        if chapter.failures:
            parts.append("Tries that failed:\n\n" + "\n".join(f"- {text}" for text in chapter.failures))
    parts += [f"*{note}*" for note in story.notes]
    if story.error is not None:
        parts.append(f"## Stopped: {story.error.kind}\n\n{story.error.message}")
        parts.append("\n".join(f"- {problem}" for problem in story.error.problems))
        if story.error.raw_output is not None:
            parts.append(_fenced(raw_text(story.error.raw_output)))
    return visible("\n\n".join(part for part in parts if part)) + "\n"


def _output_markdown(output: StageOutput) -> list[str]:
    parts = ["\n".join(f"\\{text}" if text.startswith("#") else text for text in output.summary.splitlines())]
    if output.key_findings:
        parts.append("\n".join(f"- {one_line(finding.fact)} [{one_line(finding.source)}]" for finding in output.key_findings))
    if output.next_stage_recommendations:
        parts.append("Recommended next:\n\n" + "\n".join(f"- {one_line(text)}" for text in output.next_stage_recommendations))
    report = output.data.get("report") if isinstance(output.data, Mapping) else None
    if isinstance(report, str) and report.strip():
        parts.append(report.strip())
    elif output.data is not None:
        data = json.dumps(output.data, ensure_ascii=False, indent=2, default=str)
        told = f"Data: {counted(len(data), 'character')} of JSON, which the session's own file has."
        parts.append(_fenced(data, "json") if len(data) <= _LONGEST_DATA else told)
    if output.raw_data_refs:
        parts.append("Raw data: " + ", ".join(f"`{ref}`" for ref in output.raw_data_refs))
    return parts


def _fenced(text: str, language: str = "") -> str:
    fence = "```"
    while fence in text:  # what is inside cannot end the block
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def stages(count: int) -> str:
    """So many stages, in words."""
    return counted(count, "stage")


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value if value is not None else "?")


def _moment(time: str) -> str:
    return time[:16].replace("T", " ")
