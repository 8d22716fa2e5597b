"""What is known about the user, over HTTP: every operation of `holdfast memory` (M14). `agent` says whose memory it is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response

from holdfast.errors import Damaged, InputError, NotThere
from holdfast.forgetting import forget_text
from holdfast.memory.document import fact_to_json
from holdfast.memory.history import held_to_json, to_record
from holdfast.redaction import without_paths
from holdfast.server.services import Services, services_of
from holdfast.server.wire import TOKEN, Agent, Body, Cursor, Flag, Id, Limit, Page, Share, Short, Text, VisibleText, page_of

router = APIRouter(prefix="/memory", tags=["memory"], dependencies=[TOKEN])
Use = Annotated[Services, Depends(services_of)]
Slot = Literal["workContext", "personalContext", "topOfMind", "recentMonths", "earlierContext", "longTermBackground"]


class NewFact(Body):
    """A fact to be remembered."""

    content: Text
    category: Short = "context"
    confidence: Share = 1.0


class FactChange(Body):
    """What is to be different about a fact."""

    content: Text | None = None
    category: Short | None = None
    confidence: Share | None = None


class Words(Body):
    """A text."""

    text: VisibleText


class SlotText(Body):
    """A text that may be empty."""

    text: str


class Undo(Body):
    """Which change is taken back; the newest that stands without one."""

    change: Short | None = None


class Imported(Body):
    """A memory document, in the form of an export."""

    memory: dict[str, Any]
    replace: Flag = False


@router.get("")
def memory_read(use: Use, agent: Agent = None) -> dict[str, Any]:
    """The whole document: summaries, facts, blocks."""
    return use.harness.memory.export(agent)


@router.get("/rendered")
def memory_rendered(use: Use, agent: Agent = None) -> dict[str, Any]:
    """The text exactly as a model sees it, and the facts that are in it."""
    made = use.harness.memory.rendering_for(agent)
    return {"text": made.text, "facts": list(made.facts)}


@router.get("/scopes")
def memory_scopes(use: Use) -> dict[str, Any]:
    """The agents that have a memory of their own; null is the global one."""
    return {"items": list(use.harness.memory.store.scopes())}


@router.get("/status")
def memory_status(use: Use) -> dict[str, Any]:
    """How memory is doing: what waits, what is held, what storage is used."""
    said = asdict(use.harness.memory.status())
    storage = said["storage"]
    return {**said, "storage": {"state": storage.get("state"), "set_aside": len(storage.get("set_aside") or ())}}


@router.get("/facts")
def facts_list(
    use: Use,
    q: Annotated[str | None, Query(min_length=1, max_length=2_000)] = None,
    agent: Agent = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page:
    """All facts, or those that fit some words, best first."""
    if q is not None:
        found = use.harness.memory.search(q, agent, limit)
        items = [{"score": round(one.score, 4), "words": list(one.words), "fact": fact_to_json(one.fact)} for one in found]
        return Page(items=items)
    return page_of(use.harness.memory.document(agent).facts, limit, cursor, fact_to_json)


@router.post("/facts", status_code=201)
def facts_add(use: Use, body: NewFact, agent: Agent = None) -> dict[str, Any]:
    """Remember something. Secrets in it are redacted."""
    return fact_to_json(use.harness.memory.add(body.content, agent, category=body.category, confidence=body.confidence))


@router.get("/facts/{id}")
def facts_read(use: Use, id: Id, agent: Agent = None) -> dict[str, Any]:
    """A fact with its origin and every change of it."""
    memory = use.harness.memory
    found, changes = memory.document(agent).fact(id), memory.history(agent, fact=id)
    if found is None and not changes:
        raise NotThere(f"there is no fact {id!r}.")
    return {"fact": fact_to_json(found) if found else None, "history": [to_record(change) for change in changes]}


@router.patch("/facts/{id}")
def facts_change(use: Use, id: Id, body: FactChange, agent: Agent = None) -> dict[str, Any]:
    """Change a fact. `undo` brings the old one back."""
    if body.content is None and body.category is None and body.confidence is None:
        raise InputError("there is nothing to change.", hint="Give content, category or confidence.")
    changed = use.harness.memory.edit(id, agent, content=body.content, category=body.category, confidence=body.confidence)
    return fact_to_json(changed)


@router.delete("/facts/{id}", status_code=204)
def facts_remove(use: Use, id: Id, agent: Agent = None) -> Response:
    """Take a fact out of memory. It stays in the history, and `undo` brings it back."""
    use.harness.memory.remove(id, agent)
    return Response(status_code=204)


@router.post("/facts/{id}/forget")
def facts_forget(use: Use, id: Id, agent: Agent = None) -> dict[str, Any]:
    """Forget a fact for good: memory, history, queue, quarantine."""
    done = use.harness.memory.forget(id, agent)
    return {"facts": list(done.facts), "touched": dict(done.touched)}


@router.post("/forget")
def memory_forget(use: Use, body: Words) -> dict[str, Any]:
    """Forget every place that holds these words: memory, archive, sessions, knowledge. Says what it touched and what it could not."""
    done = forget_text(use.harness, body.text)
    return {"facts": list(done.facts), "touched": dict(done.touched), "left": [without_paths(one) for one in done.left]}


@router.get("/history")
def memory_history(use: Use, fact: Annotated[str | None, Query(max_length=128)] = None, agent: Agent = None, limit: Limit = 100) -> Page:
    """Every change, the newest last: when, by whom, why, from where, and what was there before."""
    return Page(items=[to_record(change) for change in use.harness.memory.history(agent, fact=fact, last=limit)])


@router.post("/undo")
def memory_undo(use: Use, body: Undo, agent: Agent = None) -> dict[str, Any]:
    """Take back a change. Undoing can be undone, by its own id."""
    return to_record(use.harness.memory.undo(body.change, agent))


@router.get("/review")
def review_list(use: Use, agent: Agent = None) -> Page:
    """What the gate held back, with the reason."""
    return Page(items=[held_to_json(held) for held in use.harness.memory.review(agent)])


@router.post("/review/{id}/accept")
def review_accept(use: Use, id: Id, agent: Agent = None) -> dict[str, Any]:
    """Let it into memory."""
    return fact_to_json(use.harness.memory.accept(id, agent))


@router.post("/review/{id}/reject")
def review_reject(use: Use, id: Id, agent: Agent = None) -> dict[str, Any]:
    """Drop it."""
    return held_to_json(use.harness.memory.reject(id, agent))


@router.put("/slots/{slot}")
def slot_write(use: Use, slot: Slot, body: SlotText, agent: Agent = None) -> dict[str, Any]:
    """Write one of the six summaries."""
    use.harness.memory.write_slot(slot, body.text, agent)
    return {"slot": slot, "text": use.harness.memory.document(agent).slot(slot).text}


@router.get("/blocks")
def blocks_list(use: Use, agent: Agent = None) -> Page:
    """The texts that an agent edits itself."""
    return Page(items=[asdict(block) for block in use.harness.memory.blocks(agent)])


@router.put("/blocks/{name}")
def block_write(use: Use, name: Id, body: SlotText, agent: Agent = None) -> dict[str, Any]:
    """Write one of them."""
    return asdict(use.harness.memory.write_block(name, body.text, agent, by="user"))


@router.post("/import")
def memory_import(use: Use, body: Imported, agent: Agent = None) -> dict[str, Any]:
    """Take in an exported document, merged with what is there or in its place."""
    try:
        change = use.harness.memory.import_(body.memory, agent, mode="replace" if body.replace else "merge")
    except Damaged as error:  # of what was sent, not of what is kept
        raise InputError("that is no memory document.", hint="Send what `GET /api/v1/memory` gives.") from error
    return {"change": to_record(change) if change is not None else None}


@router.post("/flush")
def memory_flush(use: Use) -> dict[str, Any]:
    """Learn from everything that waits, for at most ten seconds."""
    return asdict(use.harness.memory.flush(10.0))
