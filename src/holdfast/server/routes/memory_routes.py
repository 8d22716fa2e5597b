"""What is known about the user: every operation of `holdfast memory` over HTTP, and as pages (M14). `agent` says whose memory it is.

Forms of pages name a fact in a field, never in the address: an imported fact may have any id.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Form, Query, Request, Response
from pydantic import StringConstraints

from holdfast.errors import Damaged, HoldfastError, InputError, NotThere
from holdfast.forgetting import forget_text
from holdfast.memory.document import fact_to_json, is_summary_name, summary_label
from holdfast.memory.facts import CATEGORIES, SLOTS, Fact
from holdfast.memory.history import Difference, held_to_json, to_record
from holdfast.memory.rendering import is_shown
from holdfast.redaction import without_paths
from holdfast.server.routes.html_pages import Refused, page, share, to
from holdfast.server.services import Services, Use
from holdfast.server.wire import TOKEN, Agent, Body, Cursor, Flag, Id, Limit, Page, Share, Short, VisibleText, page_of, thread_address

router = APIRouter(prefix="/memory", tags=["memory"], dependencies=[TOKEN])
Slot = Literal["workContext", "personalContext", "topOfMind", "recentMonths", "earlierContext", "longTermBackground"]


class NewFact(Body):
    """A fact to be remembered."""

    content: Annotated[str, StringConstraints(min_length=1, max_length=2_000)]
    category: Short = "context"
    confidence: Share = 1.0


class FactChange(Body):
    """What is to be different about a fact."""

    content: Annotated[str, StringConstraints(min_length=1, max_length=2_000)] | None = None
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
    """Remember something. What tells a secret is refused, and nothing of it is kept."""
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
def facts_change(use: Use, id: Id, body: FactChange = FactChange(), agent: Agent = None) -> dict[str, Any]:
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
    return {"facts": list(done.facts), "touched": dict(done.touched), "left": _left(use, done.left)}


def _left(use: Use, told: Sequence[str]) -> list[str]:
    """What still holds a text, with files by their place in the base directory."""
    return [without_paths(one.replace(f"{use.harness.base}/", "")) for one in told]


@router.get("/history")
def memory_history(use: Use, fact: Annotated[str | None, Query(max_length=128)] = None, agent: Agent = None, limit: Limit = 100) -> Page:
    """Every change, the newest last: when, by whom, why, from where, and what was there before."""
    return Page(items=[to_record(change) for change in use.harness.memory.history(agent, fact=fact, last=limit)])


@router.post("/undo")
def memory_undo(use: Use, body: Undo = Undo(), agent: Agent = None) -> dict[str, Any]:
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


# Pages


pages = APIRouter(include_in_schema=False)
Written = Annotated[str, Form()]
"""A field whose text comes back if it is refused, however long it is."""
Name = Annotated[str, Form(min_length=1, max_length=500)]
Last = Annotated[int, Query(ge=1, le=10_000)]
_LISTED = 50
_LONGEST = 4_000
"""Pieces of a text up to which it is compared word by word."""
LABELS = {
    "workContext": "Work",
    "personalContext": "Personal",
    "topOfMind": "Top of mind",
    "recentMonths": "Recent months",
    "earlierContext": "Earlier",
    "longTermBackground": "Long-term background",
}
NOTICES = {
    "added": "It is remembered.",
    "changed": "It is changed. The history has what was there before.",
    "removed": "It is removed. The history can bring it back.",
    "undone": "The change is undone. Undoing can be undone too.",
    "accepted": "It is remembered from now on.",
    "rejected": "It is thrown away.",
}


def _at(path: str, agent: str | None, done: str = "") -> Response:
    given = {name: value for name, value in (("agent", agent), ("done", done)) if value}
    return to(f"{path}?{urlencode(given)}" if given else path)


def source_of(fact: Fact) -> str:
    """The address of the message that a fact comes from; empty for one that came from elsewhere."""
    origin = fact.origin
    if not origin.thread:
        return ""
    place = f"/threads/{thread_address(origin.thread)}"
    return f"{place}?at={quote(origin.messages[0], safe='')}#asked" if origin.messages else place


def _scopes(use: Services, agent: str | None) -> list[tuple[str | None, str]]:
    known = list(use.harness.memory.store.scopes())
    return [(one, one or "all agents") for one in dict.fromkeys([None, *known, *([agent] if agent else [])])]


@pages.get("/memory")
def memory_page(
    request: Request,
    use: Use,
    agent: Agent = None,
    q: Annotated[str, Query(max_length=2_000)] = "",
    last: Last = _LISTED,
    done: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    """Facts, summaries, and the text exactly as a model sees it."""
    return _memory_page(request, use, agent, q=q, last=last, notice=NOTICES.get(done, ""))


def _memory_page(
    request: Request,
    use: Services,
    agent: str | None,
    *,
    q: str = "",
    last: int = _LISTED,
    notice: str = "",
    refused: Refused | None = None,
) -> Response:
    memory = use.harness.memory
    document, made = memory.document(agent), memory.rendering_for(agent)
    inside = set(made.facts)
    if q.strip():
        matches = [(one.fact, one.words) for one in memory.search(q, agent, last + 1)]
    else:
        newest = sorted(document.facts, key=lambda fact: fact.confirmed or fact.created, reverse=True)
        if refused is not None and refused.form == "edit":  # on this page, however old it is
            newest.sort(key=lambda fact: fact.id != refused.which)
        matches = [(fact, ()) for fact in newest[: last + 1]]
    status = memory.status()
    facts = [_shown_fact(fact, words, inside) for fact, words in matches[:last]]
    values: dict[str, Any] = {
        "agent": agent,
        "scopes": _scopes(use, agent),
        "q": q,
        "facts": facts,
        "total": len(document.facts),
        "more": last + _LISTED if len(matches) > last else None,
        "made": made,
        "budget": memory.settings.max_injection_tokens,
        "gauge": share(made.tokens / max(1, memory.settings.max_injection_tokens)),
        "left_out": [fact for fact in document.facts if fact.id not in inside and is_shown(fact)],
        "injected": status.enabled and status.injection,
        "slots": [
            (name, LABELS.get(name) or summary_label(name), document.slot(name)) for name in dict.fromkeys((*SLOTS, *document.summaries()))
        ],
        "blocks": memory.blocks(agent),
        "held": len(memory.review(agent)),
        "learning": status,
        "share": share,
        "categories": CATEGORIES,
        "notice": notice,
    }
    return page(request, "memory.html", title="Memory", refused=refused, **values)


def _shown_fact(fact: Fact, words: Sequence[str], inside: Collection[str]) -> dict[str, Any]:
    """A fact with what the page says about it: whether the prompt has it, where it comes from, which words were asked for."""
    why_not = "waits for a person" if fact.status != "active" else "did not fit"
    return {"fact": fact, "in_prompt": fact.id in inside, "why_not": why_not, "source": source_of(fact), "words": words}


def _share(written: str) -> float:
    try:
        return float(written)
    except ValueError:
        raise InputError(f"{written[:40]!r} is not a confidence.", hint="Give a number from 0 to 1.") from None


@pages.post("/memory/add")
def memory_add(
    request: Request, use: Use, content: Written = "", agent: Agent = None, category: Written = "context", confidence: Written = "1"
) -> Response:
    """Remember something. What is refused comes back with the reason."""
    try:
        use.harness.memory.add(content, agent, category=category.strip() or "context", confidence=_share(confidence))
    except HoldfastError as error:
        return _memory_page(request, use, agent, refused=Refused("add", error, {"content": content, "category": category}))
    return _at("/memory", agent, "added")


@pages.post("/memory/edit")
def memory_edit(
    request: Request,
    use: Use,
    fact: Name,
    content: Written = "",
    category: Written = "",
    confidence: Written = "1",
    agent: Agent = None,
) -> Response:
    """Change a fact. What is refused comes back with the reason; of a fact that is gone, as one to be added."""
    try:
        use.harness.memory.edit(fact, agent, content=content, category=category.strip() or None, confidence=_share(confidence))
    except HoldfastError as error:
        there = use.harness.memory.document(agent).fact(fact) is not None
        written = {"content": content, "category": category, "confidence": confidence}
        return _memory_page(request, use, agent, refused=Refused("edit" if there else "add", error, written, fact))
    return _at("/memory", agent, "changed")


@pages.post("/memory/remove")
def memory_remove(request: Request, use: Use, fact: Name, agent: Agent = None) -> Response:
    """Take a fact out; it can be brought back."""
    try:
        use.harness.memory.remove(fact, agent)
    except HoldfastError as error:
        return _memory_page(request, use, agent, refused=Refused("", error))
    return _at("/memory", agent, "removed")


@pages.post("/memory/forget")
def forget_form(
    request: Request, use: Use, fact: Annotated[str, Form(max_length=500)] = "", text: Written = "", agent: Agent = None
) -> Response:
    """Forget a fact, or a text wherever it stands, for good; says what was touched."""
    try:
        if fact:
            gone = use.harness.memory.forget(fact, agent)
            touched, left = dict(gone.touched), []
        elif text.strip():
            done = forget_text(use.harness, text)
            touched, left = dict(done.touched), _left(use, done.left)
        else:
            raise InputError("there is nothing to forget.", hint="Name a fact or give a text.")
    except HoldfastError as error:
        return _memory_page(request, use, agent, refused=Refused("" if fact else "forget", error, {"text": text}))
    return page(request, "forgotten.html", title="Forgotten", touched=touched, left=left, agent=agent, back="/memory")


@pages.post("/memory/slot")
def memory_slot(request: Request, use: Use, slot: Name, text: Written = "", agent: Agent = None) -> Response:
    """Write one of the six summaries; no text clears it."""
    try:
        use.harness.memory.write_slot(slot, text, agent)
    except HoldfastError as error:
        return _memory_page(request, use, agent, refused=Refused("slot" if is_summary_name(slot) else "", error, {"text": text}, slot))
    return _at("/memory", agent, "changed")


@pages.post("/memory/block")
def memory_block(request: Request, use: Use, name: Name, text: Written = "", agent: Agent = None) -> Response:
    """Write one of the texts that an agent edits itself."""
    try:
        use.harness.memory.write_block(name, text, agent, by="user")
    except HoldfastError as error:
        there = any(block.name == name for block in use.harness.memory.blocks(agent))
        return _memory_page(request, use, agent, refused=Refused("block" if there else "", error, {"text": text}, name))
    return _at("/memory", agent, "changed")


@pages.post("/memory/undo")
def undo_form(request: Request, use: Use, change: Annotated[str, Form(max_length=200)] = "", agent: Agent = None) -> Response:
    """Take back a change: this one, or the newest that stands."""
    try:
        use.harness.memory.undo(change or None, agent)
    except HoldfastError as error:
        return _history_page(request, use, agent, refused=Refused("", error))
    return _at("/memory/history", agent, "undone")


# review


@pages.get("/memory/review")
def review_page(request: Request, use: Use, agent: Agent = None, done: Annotated[str, Query(max_length=20)] = "") -> Response:
    """What the gate held back, with its reason."""
    return _review_page(request, use, agent, notice=NOTICES.get(done, ""))


def _review_page(request: Request, use: Services, agent: str | None, *, notice: str = "", refused: Refused | None = None) -> Response:
    memory = use.harness.memory
    document = memory.document(agent)
    held = memory.review(agent)
    replaced = {one.id: [known.content for id in one.fact.replaces if (known := document.fact(id)) is not None] for one in held}
    waiting = {name: len(memory.review(name)) for name, _ in _scopes(use, agent)}
    values: dict[str, Any] = {"agent": agent, "scopes": _scopes(use, agent), "held": held, "waiting": waiting, "replaced": replaced}
    values |= {"sources": {one.id: source_of(one.fact) for one in held}, "labels": LABELS, "notice": notice}
    return page(request, "review.html", title="Held for review", share=share, refused=refused, **values)


@pages.post("/memory/accept")
def accept_form(request: Request, use: Use, held: Name, agent: Agent = None) -> Response:
    """Let it into memory."""
    try:
        use.harness.memory.accept(held, agent)
    except HoldfastError as error:
        return _review_page(request, use, agent, refused=Refused("", error))
    return _at("/memory/review", agent, "accepted")


@pages.post("/memory/reject")
def reject_form(request: Request, use: Use, held: Name, agent: Agent = None) -> Response:
    """Drop it."""
    try:
        use.harness.memory.reject(held, agent)
    except HoldfastError as error:
        return _review_page(request, use, agent, refused=Refused("", error))
    return _at("/memory/review", agent, "rejected")


# history

Pieces = tuple[tuple[str, bool], ...]
"""A text in pieces, each with whether it is different on the other side."""


@pages.get("/memory/history")
def history_page(
    request: Request,
    use: Use,
    agent: Agent = None,
    fact: Annotated[str, Query(max_length=500)] = "",
    last: Last = _LISTED,
    done: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    """Every change, the newest first, with what was there before and after."""
    return _history_page(request, use, agent, fact=fact, last=last, notice=NOTICES.get(done, ""))


def _history_page(
    request: Request,
    use: Services,
    agent: str | None,
    *,
    fact: str = "",
    last: int = _LISTED,
    notice: str = "",
    refused: Refused | None = None,
) -> Response:
    changes = use.harness.memory.history(agent)
    undone = {one.undoes: one.id for one in changes if one.undoes}
    wanted = [one for one in changes if not fact or any(part.id == fact for part in one.differences)]
    shown = []
    for one in reversed(wanted[-last:]):
        by = undone.get(one.id, "")
        undone_by = by if by not in undone else ""
        stands = bool(one.differences) and not undone_by and one.by != "forget"
        shown.append({"change": one, "differences": [*map(_shown, one.differences)], "undone_by": undone_by, "can_be_undone": stands})
    values: dict[str, Any] = {"agent": agent, "scopes": _scopes(use, agent), "changes": shown, "fact": fact, "labels": LABELS}
    values |= {"more": last + _LISTED if len(wanted) > last else None, "total": len(wanted), "notice": notice}
    return page(request, "memory_history.html", title="History of memory", refused=refused, **values)


_FIELDS = {
    "category": ("category", ""),
    "confidence": ("confidence", ""),
    "status": ("status", "active"),
    "confirmationCount": ("confirmations", "1"),
}
"""Members of a fact beside its words: what they are called here, and what is meant where they are not written."""


def _shown(one: Difference) -> dict[str, Any]:
    """One thing that is different, side by side: the words of both sides, and other fields as (name, before, after)."""
    before, after = _said(one.kind, one.before), _said(one.kind, one.after)
    both = compared(before, after) if before is not None and after is not None else None
    left, right = both or (None if text is None else ((text, False),) for text in (before, after))
    fields = []
    for name, (label, default) in _FIELDS.items() if one.before is not None and one.after is not None else ():
        old, new = (str(side.get(name, default)) if isinstance(side, Mapping) else "" for side in (one.before, one.after))
        if old != new:
            fields.append((label, old, new))
    return {"kind": one.kind, "id": one.id, "what": one.what, "before": left, "after": right, "fields": fields, "why": one.why}


def _said(kind: str, value: Any) -> str | None:
    """The words of one side; None where it was not there."""
    if value is None:
        return None
    member = {"fact": "content", "slot": "summary", "block": "text"}.get(kind)
    said = value.get(member) if isinstance(value, Mapping) and member else value
    return said if isinstance(said, str) else str(said)


_WORDS = re.compile(r"\s+|\w+|[^\w\s]")


def compared(before: str, after: str) -> tuple[Pieces, Pieces]:
    """Two texts word by word.

    >>> compared("lives in Bern", "lives in Basel")
    ((('lives in ', False), ('Bern', True)), (('lives in ', False), ('Basel', True)))
    """
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    if len(old) + len(new) > _LONGEST:
        return ((before, before != after),), ((after, before != after),)
    left: list[tuple[str, bool]] = []
    right: list[tuple[str, bool]] = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if b > a:
            left.append(("".join(old[a:b]), kind != "equal"))
        if d > c:
            right.append(("".join(new[c:d]), kind != "equal"))
    return tuple(left), tuple(right)
