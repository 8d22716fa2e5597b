"""Long-term records, and one search over everything that is kept (K1, S9)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import Field

from holdfast.errors import NotThere
from holdfast.knowledge.records import Record, to_json
from holdfast.knowledge.store import hit_to_json, stats_to_json
from holdfast.memory.document import fact_to_json
from holdfast.redaction import without_paths
from holdfast.server.services import Services, services_of
from holdfast.server.wire import TOKEN, Body, Cursor, Id, Limit, Page, Short, Text, VisibleText, Words, page_of

router = APIRouter(tags=["knowledge"], dependencies=[TOKEN])
Use = Annotated[Services, Depends(services_of)]


class Question(Body):
    """What to look for, and where."""

    query: Text
    top_k: Annotated[int, Query(ge=1, le=200)] = 10
    tags: list[Short] = Field(default_factory=list)
    session: Short | None = None
    after: datetime | None = None
    before: datetime | None = None


class NewRecord(Body):
    """Something to be kept."""

    text: VisibleText
    tags: list[Short] = Field(default_factory=list)
    session: Short | None = None
    source: Short | None = None
    speaker: Short | None = None
    kind: Short = "note"
    trust: Literal["high", "medium", "low"] = "high"
    time: datetime | None = None


def _zoned(moment: datetime | None) -> datetime | None:
    return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@router.post("/knowledge/search")
def knowledge_search(use: Use, body: Question) -> Page:
    """Records that answer a question, best first, each with why it was found."""
    hits = use.harness.knowledge.search(
        body.query, top_k=body.top_k, tags=body.tags, session=body.session, after=_zoned(body.after), before=_zoned(body.before)
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
    record = Record(tags=tuple(body.tags), time=_zoned(body.time), **values)
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
        for brief in use.harness.sessions.list()
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
            href = f"/api/v1/threads/{thread}/messages?around={hit.record.id}"
            found.append(
                {"thread": thread, "message": hit.record.id, "score": hit.score, "snippet": hit.snippet, "why": list(hit.why), "href": href}
            )
    return sorted(found, key=lambda one: -one["score"])[:limit]
