"""Long-term records, and one search over everything that is kept: over HTTP, and as pages (K1, S9)."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Form, Query, Request, Response
from markupsafe import Markup
from pydantic import Field, ValidationError

from holdfast.errors import HoldfastError, InputError, NotThere
from holdfast.knowledge.records import Hit, Record, reading_order, to_json
from holdfast.knowledge.store import NO_REASON, hit_to_json, snippet_and_why, stats_to_json
from holdfast.memory.document import fact_to_json
from holdfast.redaction import without_paths
from holdfast.server.routes.html_pages import Refused, marked, page, to, with_marks
from holdfast.server.routes.memory_routes import Written, source_of
from holdfast.server.services import Services, Use
from holdfast.server.wire import (
    DAY,
    TOKEN,
    Body,
    Cursor,
    Id,
    Limit,
    Moment,
    Page,
    Short,
    Text,
    VisibleText,
    Words,
    page_of,
    thread_address,
    unfit,
)
from holdfast.workers.session_states import seen

router = APIRouter(tags=["knowledge"], dependencies=[TOKEN])


class Question(Body):
    """What to look for, and where."""

    query: Text
    top_k: Annotated[int, Query(ge=1, le=200)] = 10
    tags: list[Short] = Field(default_factory=list)
    session: Short | None = None
    after: Moment | None = None
    before: Moment | None = None


class NewRecord(Body):
    """Something to be kept."""

    text: VisibleText
    tags: list[Short] = Field(default_factory=list)
    session: Short | None = None
    source: Short | None = None
    speaker: Short | None = None
    kind: Short = "note"
    trust: Literal["high", "medium", "low"] = "high"
    time: Moment | None = None


@router.post("/knowledge/search")
def knowledge_search(use: Use, body: Question) -> Page:
    """Records that answer a question, best first, each with why it was found."""
    hits = use.harness.knowledge.search(
        body.query, top_k=body.top_k, tags=body.tags, session=body.session, after=body.after, before=body.before
    )
    return Page(items=[hit_to_json(hit) for hit in hits])


@router.get("/knowledge/records")
def records_list(use: Use, tag: Annotated[list[str], Query()] = [], limit: Limit = 100, cursor: Cursor = None) -> Page:  # noqa: B006 - FastAPI copies it
    """All records, those of some tags if they are given."""
    found = sorted(use.harness.knowledge.records(tags=tag), key=lambda record: record.id)
    return page_of(found, limit, cursor, to_json)


@router.post("/knowledge/records", status_code=201)
def records_add(use: Use, body: NewRecord) -> dict[str, Any]:
    """Keep a record. The same words twice are kept once."""
    values = body.model_dump(exclude={"time", "tags"})
    record = Record(tags=tuple(body.tags), time=body.time, **values)
    store = use.harness.knowledge
    if record.time is None:  # the moment of adding is no part of what makes it this record
        there = store.get(record.id)
        record = replace(record, time=there.time if there is not None else use.harness.clock.now())
    report = store.add([record])
    return {"added": bool(report.added), "record": to_json(store.get(record.id) or record)}


@router.get("/knowledge/records/{id}")
def records_read(use: Use, id: Id) -> dict[str, Any]:
    """One record."""
    record = use.harness.knowledge.get(id)
    if record is None:
        raise NotThere(f"there is no record {id!r}.")
    return to_json(record)


@router.delete("/knowledge/records/{id}", status_code=204)
def records_forget(use: Use, id: Id) -> Response:
    """Forget a record for good."""
    if not use.harness.knowledge.forget([id]):
        raise NotThere(f"there is no record {id!r}.")
    return Response(status_code=204)


@router.get("/knowledge/stats")
def knowledge_stats(use: Use) -> dict[str, Any]:
    """How much is kept."""
    said = stats_to_json(use.harness.knowledge.stats())
    said.pop("where", None)
    return {**said, "problems": [without_paths(one) for one in said.get("problems", ())]}


@router.get("/search")
def search_everything(use: Use, q: Words, limit: Annotated[int, Query(ge=1, le=50)] = 5) -> dict[str, Any]:
    """Memory, knowledge, conversations and sessions at once, each hit with why and where it opens."""
    harness = use.harness
    facts = [
        {"fact": fact_to_json(one.fact), "why": list(one.words), "href": f"/api/v1/memory/facts/{one.fact.id}"}
        for one in harness.memory.search(q, None, limit)
    ]
    records = [
        {**hit_to_json(hit), "href": f"/api/v1/knowledge/records/{hit.record.id}"} for hit in harness.knowledge.search(q, top_k=limit)
    ]
    return {"memory": facts, "knowledge": records, "threads": in_threads(use, q, limit), "sessions": sessions_with(use, q, limit)}


def sessions_with(use: Services, words: str, limit: int) -> list[dict[str, Any]]:
    """Sessions whose task or name has these words as they stand."""
    needle = words.casefold()
    return [
        {"id": brief.workflow_id, "task": brief.task, "status": brief.status, "href": f"/api/v1/sessions/{brief.workflow_id}"}
        for brief in seen(use.harness.sessions, use.harness.sessions.list())
        if needle in brief.task.casefold() or needle in brief.workflow_id.casefold()
    ][:limit]


def in_threads(use: Services, words: str, limit: int) -> list[dict[str, Any]]:
    """Messages of all conversations that fit some words, best first."""
    found: list[dict[str, Any]] = []
    names = {name: None for name in use.harness.archive.threads()}
    if use.harness.has_checkpoints:
        names |= {info.id: None for info in use.harness.threads.all()}
    for thread in list(names)[:200]:
        for hit in use.harness.whole_thread(thread).search(thread, words, limit, meaning=False):
            if hit.snippet.startswith("<reminder"):  # what rode on a message: it was said elsewhere, and is found there
                continue
            href = f"/api/v1/threads/{thread_address(thread)}/messages?around={hit.record.id}"
            found.append(
                {"thread": thread, "message": hit.record.id, "score": hit.score, "snippet": hit.snippet, "why": list(hit.why), "href": href}
            )
    return sorted(found, key=lambda one: -one["score"])[:limit]


# Pages


pages = APIRouter(include_in_schema=False)
ShortQuery = Annotated[str, Query(max_length=200)]
Day = Annotated[str, Query(pattern=DAY)]
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


def href_of(record: Record) -> str:
    """The page of a record."""
    return f"/knowledge/{quote(record.id, safe='')}"


def shown_hit(hit: Hit) -> dict[str, Any]:
    """A record that was found: the part that answers best with its words marked, why it was found, and where it opens."""
    snippet, why = snippet_and_why(hit)
    far = why == NO_REASON
    return {"record": hit.record, "text": with_marks(snippet.text, snippet.marks), "why": why, "far": far, "href": href_of(hit.record)}


def _midnight(day: str, *, after: bool = False) -> datetime | None:
    """The beginning of a day, or of the one after it."""
    if not day:
        return None
    try:
        return datetime.combine(date.fromisoformat(day) + timedelta(days=after), time(), UTC)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{day} is no day of the calendar.", hint="Write it as 2026-04-19.") from error


@pages.get("/knowledge")
def knowledge_page(
    request: Request,
    use: Use,
    q: Annotated[str, Query(max_length=2_000)] = "",
    tag: ShortQuery = "",
    session: ShortQuery = "",
    since: Day = "",
    until: Day = "",
    last: Annotated[int, Query(ge=1, le=2_000)] = _LISTED,
    done: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    """Records that fit a question, each with why; without one the newest."""
    asked = {"q": q, "tag": tag, "session": session, "since": since, "until": until}
    return _knowledge_page(request, use, asked, last=last, notice=NOTICES.get(done, ""))


_NOTHING_ASKED = dict.fromkeys(("q", "tag", "session", "since", "until"), "")


def _knowledge_page(
    request: Request,
    use: Services,
    asked: Mapping[str, str] = _NOTHING_ASKED,
    *,
    last: int = _LISTED,
    notice: str = "",
    refused: Refused | None = None,
) -> Response:
    store, q, tag = use.harness.knowledge, asked["q"], asked["tag"]
    limits: dict[str, Any] = {"tags": [tag] if tag else [], "session": asked["session"] or None}
    limits |= {"after": _midnight(asked["since"]), "before": _midnight(asked["until"], after=True)}
    hits: list[dict[str, Any]] = []
    records: list[Record] = []
    if q.strip():
        hits = [shown_hit(hit) for hit in store.search(q, top_k=min(last + 1, 200), **limits)]
    else:
        records = heapq.nlargest(last + 1, store.records(**limits), key=lambda one: (one.time.timestamp() if one.time else 0.0, one.id))
    stats = store.stats()
    values: dict[str, Any] = {**asked, "stats": stats, "hits": hits[:last], "records": records[:last], "href": href_of, "notice": notice}
    values |= {"filtered": any(value for name, value in asked.items() if name != "q")}
    values |= {"more": last + _LISTED if max(len(hits), len(records)) > last else None, "refused": refused}
    return page(request, "knowledge.html", title="Knowledge", problems=[without_paths(one) for one in stats.problems], **values)


@pages.post("/knowledge")
def knowledge_add(
    request: Request,
    use: Use,
    text: Written = "",
    tags: Written = "",
    source: Written = "",
    kind: Written = "note",
    trust: Written = "high",
) -> Response:
    """Keep a record. What is refused comes back with the reason."""
    named = [tag.strip() for tag in tags.split(",") if tag.strip()]
    given = {"text": text, "tags": named, "source": source.strip() or None, "kind": kind.strip() or "note", "trust": trust}
    try:
        try:
            record = NewRecord.model_validate(given)
        except ValidationError as error:
            raise unfit(error) from error
        made = records_add(use, record)
    except HoldfastError as error:
        written = {"text": text, "tags": tags, "source": source, "trust": trust}
        return _knowledge_page(request, use, refused=Refused("add", error, written))
    return to(f"/knowledge/{quote(made['record']['id'], safe='')}?done={'added' if made['added'] else 'there'}")


@pages.post("/knowledge/forget")
def knowledge_forget(use: Use, id: Annotated[str, Form(min_length=1, max_length=200)]) -> Response:
    """Forget a record for good."""
    records_forget(use, id)
    return to("/knowledge?done=forgotten")


@pages.get("/knowledge/{id:path}")
def record_page(request: Request, use: Use, id: str, done: Annotated[str, Query(max_length=20)] = "") -> Response:
    """A record with what stands beside it, and what is like it."""
    store = use.harness.knowledge
    record = store.get(id)
    if record is None and id == "forget":  # the address of a form
        return to("/knowledge")
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


class Found(NamedTuple):
    """One thing that was found, of any kind."""

    href: str
    head: str
    text: Markup
    why: str = ""
    note: str = ""


@pages.get("/search")
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
            marked(one.fact.content, one.words),
            _words(one.words),
        )
        for one in found
    ]


def _records(use: Services, q: str) -> list[Found]:
    found = []
    for hit in use.harness.knowledge.search(q, top_k=_GROUP):
        shown = shown_hit(hit)
        found.append(Found(shown["href"], hit.record.source or hit.record.kind, shown["text"], shown["why"], ", ".join(hit.record.tags)))
    return found


def _messages(use: Services, q: str) -> list[Found]:
    found = []
    for one in in_threads(use, q, _GROUP):
        known = use.info(one["thread"])
        head = (known.title if known is not None else "") or one["thread"]
        href = f"/threads/{thread_address(one['thread'])}?at={quote(one['message'], safe='')}#asked"
        found.append(Found(href, head, marked(one["snippet"], one["why"]), _words(one["why"])))
    return found


def _sessions(use: Services, q: str) -> list[Found]:
    return [
        Found(f"/sessions/{quote(one['id'], safe='')}", one["id"], marked(one["task"], [q]), "", one["status"])
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
