"""What a page shows of a session, as plain values: stages with findings whose sources open, what happened when, what can be done now.

Everything goes through `redact`: a secret that a stage wrote is not shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from holdfast.events import Event
from holdfast.redaction import redact, redact_text, without_paths
from holdfast.server.wire import clean
from holdfast.session.document import session_json
from holdfast.session.state import EARLIER, Session, StageRecord
from holdfast.session.store import SessionStore
from holdfast.session.story import Chapter, Story, tell
from holdfast.workers.session_states import state_of
from holdfast.workflow import events as told

Notes = Mapping[str, Mapping[str, Any]]
"""What is known of the raw data of a session, by reference."""
_TIMELINE = 80
_HEADLINE = 90
"""Characters of a task that stand over its page: two lines at most, and on a phone four."""
_ADDRESS = re.compile(r"https?://[^\s<>\"]+")
_CAN: dict[str, tuple[str, ...]] = {
    "ready": ("resume", "cancel", "fork"),
    "interrupted": ("resume", "cancel", "fork"),
    "queued": ("cancel", "fork"),
    "cancelled": ("resume", "fork"),
    "running": ("cancel",),
    "paused": ("cancel", "fork"),
    "halted": ("resume", "cancel", "fork"),
    "completed": ("fork",),
}
"""What a person may do with the whole session, by its state."""


def session_values(store: SessionStore, id: str, events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All that the page of a session shows. `events` is its journal."""
    session = store.load(id)
    owner = store.owner(id)
    story = tell(session, owner=owner, checkpoints=store.checkpoints(id))
    status = state_of(store, id, story.status)
    notes = store.raw(id).notes()
    shown = redact(session_json(session))
    stages = [_stage(session, shown, chapter, notes, events) for chapter in story.chapters]
    done, total = session.progress()
    return {
        "id": id,
        "task": shown.get("task") or "",
        "title": headline(shown.get("task") or "") or id,
        "topic": shown.get("topic_tag"),
        "status": status,
        "stages": stages,
        "done": done,
        "total": total,
        **totals(session),
        "owner": owner.name if owner is not None else None,
        "created": session.created_at,
        "updated": session.updated_at,
        "revision": session.revision,
        "lineage": shown.get("lineage"),
        "error": _error(shown.get("error")),
        "retrieved": [_retrieved(one) for one in shown.get("retrieved") or ()],
        "checkpoints": list(reversed(story.checkpoints)),
        "timeline": timeline(events),
        "can": _CAN.get(status, ()),
        "reports": [one for one in stages if one["report"]],
    }


def headline(text: str) -> str:
    """A text short enough to stand over a page: as it is, else its first words.

    >>> headline("Which pump is the loudest?"), headline("loud " * 40)[-11:]
    ('Which pump is the loudest?', 'loud loud …')
    """
    line = " ".join(text.split())
    if len(line) <= _HEADLINE:
        return line
    start = line[:_HEADLINE]
    return (start.rpartition(" ")[0] if " " in start else start).rstrip(" ,;:") + " …"


def totals(session: Session) -> dict[str, Any]:
    """What a session used: tokens, cost, seconds."""
    records = session.stages.values()
    return {
        "tokens": session.usage.get("tokens") or sum(record.tokens or 0 for record in records),
        "cost": session.usage.get("cost") or sum(record.cost or 0 for record in records),
        "seconds": sum(record.seconds or 0 for record in records),
    }


def _stage(
    session: Session,
    shown: Mapping[str, Any],
    chapter: Chapter,
    notes: Notes,
    events: Iterable[Mapping[str, Any]],
) -> dict[str, Any]:
    output = (shown.get("stage_outputs") or {}).get(chapter.name) or {}
    findings, data = output.get("key_findings") or [], output.get("data")
    report = data.get("report") if isinstance(data, Mapping) else None
    said = [
        str(event["data"].get("line", ""))
        for event in events
        if event.get("kind") == "stage_said" and event["data"].get("stage") == chapter.name
    ]
    return {
        "number": chapter.number,
        "name": chapter.name,
        "agent": _agent_of(session, chapter.name),
        "status": chapter.status,
        "summary": without_paths(str(output.get("summary") or "")),
        "confidence": None if output.get("legacy") else output.get("confidence"),
        "facts": [
            *(fact for fact in chapter.facts if not fact.startswith("confidence ")),
            *(["not a stage of this workflow"] if chapter.name in session.strange_stages() else ()),
        ],
        "findings": [finding(session, one, notes) for one in findings],
        "next": output.get("next_stage_recommendations") or [],
        "evicted": chapter.evicted,
        "failures": [clean(one) for one in chapter.failures],
        "asks": [redact_text(line) for line in chapter.asks],
        "said": said[-1] if said and chapter.status == "running" else "",
        "report": report if isinstance(report, str) and report.strip() else None,
        "address": f"/sessions/{quote(session.workflow_id)}/stages/{quote(chapter.name, safe='')}",
    }


def _agent_of(session: Session, stage: str) -> str:
    defined = session.workflow.get("stages")
    found = (one for one in defined if isinstance(one, Mapping)) if isinstance(defined, (list, tuple)) else ()
    return next((str(one.get("agent_type", "")) for one in found if one.get("name") == stage), "")


def finding(session: Session, one: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    """A finding, and the address that its source opens at: raw data of the session with the place marked, another stage, or a web page."""
    fact, source = str(one.get("fact", "")), str(one.get("source", ""))
    return {"fact": fact, "source": source, "grounded": one.get("grounded"), **_opens(session, one, fact, source, notes)}


def _opens(session: Session, one: Mapping[str, Any], fact: str, source: str, notes: Notes) -> dict[str, str | bool | None]:
    place = source.partition("#")[0].strip()
    ref = next((ref for ref in (one.get("raw"), source) if isinstance(ref, str) and ref in notes), None)
    ref = ref or next((ref for ref, note in notes.items() if note.get("source") and note["source"] in (source, place)), None)
    base = f"/sessions/{quote(session.workflow_id)}"
    if ref is not None:
        return {"address": f"{base}/raw/{quote(ref)}?{urlencode({'mark': fact[:600]})}#found", "away": False}
    if place in session.stage_names():
        return {"address": f"{base}/stages/{quote(place, safe='')}", "away": False}
    if _ADDRESS.fullmatch(source):
        return {"address": source, "away": True}
    return {"address": None, "away": False}


def _error(error: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not error:
        return None
    return {
        "stage": error.get("stage"),
        "kind": str(error.get("kind", "")).replace("_", " "),
        "message": without_paths(str(error.get("message", ""))),
        "problems": [without_paths(str(one)) for one in error.get("problems") or ()],
        "hint": without_paths(str(error.get("hint") or "")) or None,
        "raw": error.get("raw_output"),
        "at": error.get("at"),
    }


def _retrieved(one: Mapping[str, Any]) -> dict[str, Any]:
    id = one.get("id") or one.get("record")
    text = next((str(one[name]) for name in ("content", "text", "fact", "summary") if one.get(name)), "")
    return {"id": str(id) if id else None, "text": text, "tag": one.get("topic_tag") or one.get("tag"), "score": one.get("score")}


def address_of(id: str, stage: str = "") -> str:
    """The page of a session, at one of its stages."""
    return f"/sessions/{quote(id)}" + (f"#stage-{quote(stage, safe='')}" if stage else "")


# What happened


def _kinds(event: type[Event]) -> dict[str, type[Event]]:
    found = {event.kind(): event}
    for below in event.__subclasses__():
        found |= _kinds(below)
    return found


_KINDS = _kinds(told.WorkflowEvent)
_QUIET = frozenset({"stage_said", "stage_raised", "checkpoint_written"})
_MOOD = {
    "stage_completed": "completed",
    "stage_waiting": "waiting",
    "stage_failure": "failed",
    "output_rejected": "waiting",
    "stage_retried": "waiting",
    "stage_started": "running",
    "stage_approved": "completed",
    "stage_rejected": "failed",
    "output_fixed": "completed",
}


_ENDED = {"completed": "completed", "paused": "waiting", "halted": "failed"}


class _Data(dict[str, str]):
    """The fields of an event as a line shows them; one that is not there is a question mark."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__()
        for name, value in data.items():
            shown = f"{value:g}" if isinstance(value, float) else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            self[name] = clean(shown)

    def __missing__(self, key: str) -> str:
        return "?"


def timeline(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What happened, newest first, in the words of the log."""
    lines = []
    for event in events:
        kind = str(event.get("kind", ""))
        if kind in _QUIET:
            continue
        known = _KINDS.get(kind)
        text = known.text.format_map(_Data(event.get("data") or {})) if known is not None else kind.replace("_", " ")
        if kind == "session_resumed" and (event.get("data") or {}).get("taken_over"):
            text += "; whoever ran it before ended without a word"
        ended = str((event.get("data") or {}).get("status", "")) if kind == "session_ended" else ""
        lines.append({"at": event.get("at"), "text": text, "mood": _ENDED.get(ended, _MOOD.get(kind, ""))})
    return lines[: -_TIMELINE - 1 : -1]


# What a stage was given


_ORIGINS = {"system prompt": "system", "task": "conversation", EARLIER.lstrip("# ").lower(): "summary", "tools": "tools"}


def given_parts(text: str, count: Any) -> list[dict[str, Any]]:
    """What a stage was given, part by part, with the tokens of each: the sections of its `context.md`."""
    pieces = re.split(r"^# (.+)$", re.sub(r"\A<!--.*?-->\s*", "", text, flags=re.DOTALL), flags=re.MULTILINE)
    found = [("Before", pieces[0])] if pieces[0].strip() else []
    found += list(zip(pieces[1::2], pieces[2::2], strict=True))
    parts = []
    for title, body in found:
        if title == EARLIER.lstrip("# "):
            blocks = re.split(r"^## ", body, flags=re.MULTILINE)
            parts += [(f"From {head(one)}", one, "summary") for one in blocks[1:]] or [(title, body, "summary")]
        else:
            origin = _ORIGINS.get(title.lower(), "retrieved" if "memor" in title.lower() or "know" in title.lower() else "tools")
            parts.append((title, body, origin))
    return [{"title": title, "text": redact_text(body.strip()), "origin": origin, "tokens": count(body)} for title, body, origin in parts]


def head(block: str) -> str:
    """The name at the head of an earlier stage's output."""
    return block.partition("\n")[0].partition(" (")[0].strip()


def marked(text: str, wanted: str) -> list[tuple[str, bool]]:
    """A text in pieces, with those that are the wanted words marked, whatever stands between them."""
    words = re.findall(r"\w+", wanted)
    if not words:
        return [(text, False)]
    for least in (len(words), max(4, len(words) // 2)):  # all of it, else its first half: a finding may be two sentences put together
        pattern = r"\W+".join(map(re.escape, words[:least]))
        found = re.search(rf"\b{pattern}\b[^\w\s]?", text, re.IGNORECASE) if least <= len(words) else None
        if found is not None:
            start, end = found.span()
            return [(text[:start], False), (text[start:end], True), (text[end:], False)]
    return [(text, False)]


def story_of(store: SessionStore, session: Session) -> Story:
    """The session as a story, for a document."""
    return tell(session, owner=store.owner(session.workflow_id), checkpoints=store.checkpoints(session.workflow_id))


def record_values(record: StageRecord) -> list[tuple[str, str]]:
    """What is known of the run of a stage, as rows."""
    rows = [
        ("Started", record.started_at or ""),
        ("Ended", record.ended_at or ""),
        ("Attempts", str(record.attempts) if record.attempts else ""),
        ("Repairs", str(record.repairs) if record.repairs else ""),
        ("Model", record.model or ""),
        ("Tokens", f"{record.tokens:,}" if record.tokens is not None else ""),
        ("Cost", f"${record.cost:.4f}" if record.cost else ""),
    ]
    return [(name, value) for name, value in rows if value]
