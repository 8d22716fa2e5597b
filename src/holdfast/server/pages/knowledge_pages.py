"""Long-term records as pages, and one search over everything that is kept (K1, S9)."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Form, Query, Request, Response
from markupsafe import Markup
from pydantic import ValidationError

from holdfast.errors import HoldfastError, InputError, NotThere
from holdfast.knowledge.records import Hit, Record, Trust, not_fitting, reading_order
from holdfast.knowledge.store import snippet_and_why
from holdfast.redaction import without_paths
from holdfast.server.pages import drawing
from holdfast.server.pages.html_pages import page, to
from holdfast.server.pages.memory_pages import source_of
from holdfast.server.routes.knowledge_api import NewRecord, in_threads, records_add, sessions_with
from holdfast.server.services import Services, services_of

router = APIRouter(include_in_schema=False)
Use = Annotated[Services, Depends(services_of)]
Short = Annotated[str, Query(max_length=200)]
Day = Annotated[str, Query(pattern=r"^(\d{4}-\d{2}-\d{2})?$")]
_LISTED = 30
_BESIDE = 3
"""Records before and after one that its page shows."""
_LIKE = 5
_NEAR = " (in context)"
"""How the archive marks a word that only stands near to what was found."""
_GROUP = 8
NOTICES = {
    "added": "The record is kept.",
    "there": "That record was there already.",
    "forgotten": "The record is forgotten, out of every file and index.",
}


@dataclass(frozen=True)
class ShownHit:
    """A record that was found: the part that answers best with its words marked, why it was found, and where it opens."""

    record: Record
    text: Markup
    why: str
    href: str


def href_of(record: Record) -> str:
    """The page of a record."""
    return f"/knowledge/{quote(record.id, safe='')}"


def shown_hit(hit: Hit) -> ShownHit:
    """The hit for a page."""
    snippet, why = snippet_and_why(hit)
    pieces, end = [], 0
    for start, stop in sorted(snippet.marks):
        if start >= end:
            pieces += [Markup("{}").format(snippet.text[end:start]), Markup("<mark>{}</mark>").format(snippet.text[start:stop])]
            end = stop
    return ShownHit(hit.record, Markup().join([*pieces, snippet.text[end:]]), why, href_of(hit.record))


def _midnight(day: str, *, after: bool = False) -> datetime | None:
    """The beginning of a day, or of the one after it."""
    if not day:
        return None
    try:
        return datetime.combine(date.fromisoformat(day) + timedelta(days=after), time(), UTC)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{day} is no day of the calendar.", hint="Write it as 2026-04-19.") from error


@router.get("/knowledge")
def knowledge_page(
    request: Request,
    use: Use,
    q: Annotated[str, Query(max_length=2_000)] = "",
    tag: Short = "",
    session: Short = "",
    since: Day = "",
    until: Day = "",
    last: Annotated[int, Query(ge=1, le=2_000)] = _LISTED,
    done: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    """Records that fit a question, each with why; without one the newest."""
    store = use.harness.knowledge
    limits: dict[str, Any] = {"tags": [tag] if tag else [], "session": session or None}
    limits |= {"after": _midnight(since), "before": _midnight(until, after=True)}
    hits: list[ShownHit] = []
    records: list[Record] = []
    if q.strip():
        hits = [shown_hit(hit) for hit in store.search(q, top_k=min(last + 1, 200), **limits)]
    else:
        records = _newest(store.records(**limits), last + 1)
    stats = store.stats()
    values: dict[str, Any] = {"q": q, "tag": tag, "session": session, "since": since, "until": until, "stats": stats}
    values |= {"hits": hits[:last], "records": records[:last], "filtered": any((tag, session, since, until)), "href": href_of}
    values |= {"more": last + _LISTED if max(len(hits), len(records)) > last else None, "notice": NOTICES.get(done, "")}
    return page(request, "knowledge.html", title="Knowledge", problems=[without_paths(one) for one in stats.problems], **values)


def _newest(records: Iterable[Record], most: int) -> list[Record]:
    """The last ones, by their time; those without one come last."""
    return heapq.nlargest(most, records, key=lambda record: (record.time.timestamp() if record.time else 0.0, record.id))


@router.post("/knowledge")
def knowledge_add(
    use: Use,
    text: Annotated[str, Form(min_length=1, max_length=100_000)],
    tags: Annotated[str, Form(max_length=1_000)] = "",
    source: Annotated[str, Form(max_length=200)] = "",
    kind: Annotated[str, Form(max_length=200)] = "note",
    trust: Annotated[Trust, Form()] = "high",
) -> Response:
    """Keep a record."""
    named = [tag.strip() for tag in tags.split(",") if tag.strip()]
    try:
        record = NewRecord(text=text, tags=named, source=source.strip() or None, kind=kind.strip() or "note", trust=trust)
    except ValidationError as error:
        raise not_fitting("a record", error) from error
    made = records_add(use, record)
    return to(f"/knowledge/{quote(made['record']['id'], safe='')}?done={'added' if made['added'] else 'there'}")


@router.post("/knowledge/forget")
def knowledge_forget(use: Use, id: Annotated[str, Form(min_length=1, max_length=200)]) -> Response:
    """Forget a record for good."""
    if not use.harness.knowledge.forget([id]):
        raise NotThere(f"there is no record {id!r}.")
    return to("/knowledge?done=forgotten")


@router.get("/knowledge/{id:path}")
def record_page(request: Request, use: Use, id: str, done: Annotated[str, Query(max_length=20)] = "") -> Response:
    """A record with what stands beside it, and what is like it."""
    store = use.harness.knowledge
    record = store.get(id)
    if record is None:
        raise NotThere(f"there is no record {id[:80]!r}.", hint="It may have been forgotten. Search for it.")
    before, after = _beside(store.records(session=record.session), record) if record.session else ([], [])
    near = {one.id for one in (*before, record, *after)}
    like = [shown_hit(hit) for hit in store.search(record.text[:2_000], top_k=_LIKE + len(near)) if hit.record.id not in near][:_LIKE]
    values: dict[str, Any] = {"record": record, "before": before, "after": after, "like": like, "href": href_of}
    return page(request, "record.html", title="Record", notice=NOTICES.get(done, ""), **values)


def _beside(records: Iterable[Record], record: Record) -> tuple[list[Record], list[Record]]:
    ordered = sorted((one for one in records if one.session == record.session), key=reading_order)
    at = next((index for index, one in enumerate(ordered) if one.id == record.id), 0)
    return ordered[max(0, at - _BESIDE) : at], ordered[at + 1 : at + 1 + _BESIDE]


# everything


@dataclass(frozen=True)
class Found:
    """One thing that was found, of any kind."""

    href: str
    head: str
    text: Markup
    why: str = ""
    note: str = ""


@router.get("/search")
def search_page(request: Request, use: Use, q: Annotated[str, Query(max_length=2_000)] = "") -> Response:
    """Memory, knowledge, conversations and sessions at once."""
    groups: list[tuple[str, str, list[Found]]] = []
    failed: list[str] = []
    for name, more, look in _PLACES if q.strip() else ():
        try:
            groups.append((name, f"{more}{quote(q)}" if more else "", look(use, q)))
        except HoldfastError as error:  # a store that cannot be read is no reason to show nothing of the others
            failed.append(f"{name}: {error.public}")
    return page(request, "search.html", title=f"Search: {q}" if q.strip() else "Search", q=q, groups=groups, failed=failed)


def _facts(use: Services, q: str) -> list[Found]:
    found = use.harness.memory.search(q, None, _GROUP)
    return [
        Found(
            source_of(one.fact) or "/memory?q=" + quote(q),
            one.fact.category,
            drawing.marked(one.fact.content, one.words),
            _words(one.words),
        )
        for one in found
    ]


def _records(use: Services, q: str) -> list[Found]:
    hits = map(shown_hit, use.harness.knowledge.search(q, top_k=_GROUP))
    return [Found(hit.href, hit.record.source or hit.record.kind, hit.text, hit.why, ", ".join(hit.record.tags)) for hit in hits]


def _messages(use: Services, q: str) -> list[Found]:
    found = []
    for one in in_threads(use, q, _GROUP):
        known = use.harness.threads.find(one["thread"]) if use.harness.has_checkpoints else None
        head = (known.title if known is not None else "") or one["thread"]
        href = f"/threads/{quote(one['thread'], safe='')}?at={quote(one['message'], safe='')}#asked"
        found.append(Found(href, head, drawing.marked(one["snippet"], one["why"]), _words(one["why"])))
    return found


def _sessions(use: Services, q: str) -> list[Found]:
    return [
        Found(f"/sessions/{quote(one['id'], safe='')}", one["id"], drawing.marked(one["task"], [q]), "", one["status"])
        for one in sessions_with(use, q, _GROUP)
    ]


def _words(words: Sequence[str]) -> str:
    """Why it was found, in words: what it says itself, and what is only said around it."""
    near = [word.removesuffix(_NEAR) for word in words if word.endswith(_NEAR)]
    said = [word for word in words if not word.endswith(_NEAR)]
    reasons = [
        f"{how} {', '.join(f'“{word}”' for word in found[:6])}" for how, found in (("it says", said), ("its context has", near)) if found
    ]
    return "; ".join(reasons)


_PLACES = (
    ("Memory", "/memory?q=", _facts),
    ("Knowledge", "/knowledge?q=", _records),
    ("Conversations", "", _messages),
    ("Sessions", "", _sessions),
)
