"""What is known about the user, as pages: facts with their origin, what a prompt shows of them, what waits for review, every change (M14).

Forms name a fact in a field, never in the address: an imported fact may have any id.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Form, Query, Request, Response

from holdfast.errors import InputError
from holdfast.forgetting import forget_text
from holdfast.memory.facts import CATEGORIES, SLOTS, Fact
from holdfast.memory.history import Change, Difference
from holdfast.memory.rendering import is_shown
from holdfast.redaction import without_paths
from holdfast.server.pages import drawing
from holdfast.server.pages.html_pages import page, to
from holdfast.server.services import Services, services_of
from holdfast.server.wire import Agent

router = APIRouter(include_in_schema=False)
Use = Annotated[Services, Depends(services_of)]
Words = Annotated[str, Form(max_length=100_000)]
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


@dataclass(frozen=True)
class ShownFact:
    """A fact with what the page says about it: whether the prompt has it, where it comes from, which words were asked for."""

    fact: Fact
    in_prompt: bool
    source: str = ""
    words: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()

    @property
    def why_not(self) -> str:
        """Why it is not in the prompt."""
        return "waits for a person" if self.fact.status != "active" else "did not fit"


def _at(path: str, agent: str | None, done: str = "") -> Response:
    given = {name: value for name, value in (("agent", agent), ("done", done)) if value}
    return to(f"{path}?{urlencode(given)}" if given else path)


def source_of(fact: Fact) -> str:
    """The address of the message that a fact comes from; empty for one that came from elsewhere."""
    origin = fact.origin
    if not origin.thread:
        return ""
    place = f"/threads/{quote(origin.thread, safe='')}"
    return f"{place}?at={quote(origin.messages[0], safe='')}#asked" if origin.messages else place


def _scopes(use: Services, agent: str | None) -> list[tuple[str | None, str]]:
    known = list(use.harness.memory.store.scopes())
    return [(one, one or "all agents") for one in dict.fromkeys([None, *known, *([agent] if agent else [])])]


@router.get("/memory")
def memory_page(
    request: Request,
    use: Use,
    agent: Agent = None,
    q: Annotated[str, Query(max_length=2_000)] = "",
    last: Last = _LISTED,
    done: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    """Facts, summaries, and the text exactly as a model sees it."""
    memory = use.harness.memory
    document, made = memory.document(agent), memory.rendering_for(agent)
    inside = set(made.facts)
    if q.strip():
        matches = [(one.fact, one.words) for one in memory.search(q, agent, last + 1)]
    else:
        newest = sorted(document.facts, key=lambda fact: fact.confirmed or fact.created, reverse=True)
        matches = [(fact, ()) for fact in newest[: last + 1]]
    status = memory.status()
    facts = [ShownFact(fact, fact.id in inside, source_of(fact), words) for fact, words in matches[:last]]
    values: dict[str, Any] = {
        "agent": agent,
        "scopes": _scopes(use, agent),
        "q": q,
        "facts": facts,
        "total": len(document.facts),
        "more": last + _LISTED if len(matches) > last else None,
        "made": made,
        "budget": memory.settings.max_injection_tokens,
        "gauge": drawing.share(made.tokens / max(1, memory.settings.max_injection_tokens)),
        "left_out": [fact for fact in document.facts if fact.id not in inside and is_shown(fact)],
        "injected": status.enabled and status.injection,
        "slots": [(name, LABELS[name], document.slot(name)) for name in SLOTS],
        "blocks": memory.blocks(agent),
        "held": len(memory.review(agent)),
        "learning": status,
        "share": drawing.share,
        "categories": CATEGORIES,
        "notice": NOTICES.get(done, ""),
    }
    return page(request, "memory.html", title="Memory", **values)


@router.post("/memory/add")
def memory_add(
    use: Use,
    content: Words,
    agent: Agent = None,
    category: Annotated[str, Form(max_length=200)] = "context",
    confidence: Annotated[float, Form(ge=0, le=1)] = 1.0,
) -> Response:
    """Remember something."""
    use.harness.memory.add(content, agent, category=category.strip() or "context", confidence=confidence)
    return _at("/memory", agent, "added")


@router.post("/memory/edit")
def memory_edit(
    use: Use,
    fact: Name,
    content: Words,
    category: Annotated[str, Form(max_length=200)],
    confidence: Annotated[float, Form(ge=0, le=1)],
    agent: Agent = None,
) -> Response:
    """Change a fact."""
    use.harness.memory.edit(fact, agent, content=content, category=category.strip() or None, confidence=confidence)
    return _at("/memory", agent, "changed")


@router.post("/memory/remove")
def memory_remove(use: Use, fact: Name, agent: Agent = None) -> Response:
    """Take a fact out; it can be brought back."""
    use.harness.memory.remove(fact, agent)
    return _at("/memory", agent, "removed")


@router.post("/memory/forget")
def memory_forget(
    request: Request, use: Use, fact: Annotated[str, Form(max_length=500)] = "", text: Words = "", agent: Agent = None
) -> Response:
    """Forget a fact, or a text wherever it stands, for good; says what was touched."""
    if fact:
        gone = use.harness.memory.forget(fact, agent)
        touched, left = dict(gone.touched), []
    elif text.strip():
        done = forget_text(use.harness, text)
        touched, left = dict(done.touched), [without_paths(one) for one in done.left]
    else:
        raise InputError("there is nothing to forget.", hint="Name a fact or give a text.")
    return page(request, "forgotten.html", title="Forgotten", touched=touched, left=left, agent=agent, back="/memory")


@router.post("/memory/slot")
def memory_slot(use: Use, slot: Name, text: Words = "", agent: Agent = None) -> Response:
    """Write one of the six summaries; no text clears it."""
    use.harness.memory.write_slot(slot, text, agent)
    return _at("/memory", agent, "changed")


@router.post("/memory/block")
def memory_block(use: Use, name: Name, text: Words = "", agent: Agent = None) -> Response:
    """Write one of the texts that an agent edits itself."""
    use.harness.memory.write_block(name, text, agent, by="user")
    return _at("/memory", agent, "changed")


@router.post("/memory/undo")
def memory_undo(use: Use, change: Annotated[str, Form(max_length=200)] = "", agent: Agent = None) -> Response:
    """Take back a change: this one, or the newest that stands."""
    use.harness.memory.undo(change or None, agent)
    return _at("/memory/history", agent, "undone")


# review


@router.get("/memory/review")
def review_page(request: Request, use: Use, agent: Agent = None, done: Annotated[str, Query(max_length=20)] = "") -> Response:
    """What the gate held back, with its reason."""
    memory = use.harness.memory
    document = memory.document(agent)
    held = memory.review(agent)
    replaced = {one.id: [known.content for id in one.fact.replaces if (known := document.fact(id)) is not None] for one in held}
    waiting = {name: len(memory.review(name)) for name, _ in _scopes(use, agent)}
    values: dict[str, Any] = {"agent": agent, "scopes": _scopes(use, agent), "held": held, "waiting": waiting, "replaced": replaced}
    values |= {"sources": {one.id: source_of(one.fact) for one in held}, "labels": LABELS, "notice": NOTICES.get(done, "")}
    return page(request, "review.html", title="Held for review", share=drawing.share, **values)


@router.post("/memory/accept")
def review_accept(use: Use, held: Name, agent: Agent = None) -> Response:
    """Let it into memory."""
    use.harness.memory.accept(held, agent)
    return _at("/memory/review", agent, "accepted")


@router.post("/memory/reject")
def review_reject(use: Use, held: Name, agent: Agent = None) -> Response:
    """Drop it."""
    use.harness.memory.reject(held, agent)
    return _at("/memory/review", agent, "rejected")


# history

Pieces = tuple[tuple[str, bool], ...]
"""A text in pieces, each with whether it is different on the other side."""


@dataclass(frozen=True)
class ShownDifference:
    """One thing that is different, side by side: the words of both sides, and other fields as (name, before, after)."""

    kind: str
    id: str
    what: str
    before: Pieces | None
    after: Pieces | None
    fields: tuple[tuple[str, str, str], ...] = ()
    why: str = ""


@dataclass(frozen=True)
class ShownChange:
    """A change, what is different by it, and whether it still stands."""

    change: Change
    differences: tuple[ShownDifference, ...]
    undone_by: str = ""

    @property
    def can_be_undone(self) -> bool:
        """Whether there is something to take back."""
        return bool(self.differences) and not self.undone_by and self.change.by != "forget"


@router.get("/memory/history")
def history_page(
    request: Request,
    use: Use,
    agent: Agent = None,
    fact: Annotated[str, Query(max_length=500)] = "",
    last: Last = _LISTED,
    done: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    """Every change, the newest first, with what was there before and after."""
    changes = use.harness.memory.history(agent)
    undone = {one.undoes: one.id for one in changes if one.undoes}
    wanted = [one for one in changes if not fact or any(part.id == fact for part in one.differences)]
    shown = [
        ShownChange(one, tuple(map(_shown, one.differences)), by if (by := undone.get(one.id, "")) and by not in undone else "")
        for one in reversed(wanted[-last:])
    ]
    values: dict[str, Any] = {"agent": agent, "scopes": _scopes(use, agent), "changes": shown, "fact": fact, "labels": LABELS}
    values |= {"more": last + _LISTED if len(wanted) > last else None, "total": len(wanted), "notice": NOTICES.get(done, "")}
    return page(request, "memory_history.html", title="History of memory", **values)


_FIELDS = {
    "category": ("category", ""),
    "confidence": ("confidence", ""),
    "status": ("status", "active"),
    "confirmationCount": ("confirmations", "1"),
}
"""Members of a fact beside its words: what they are called here, and what is meant where they are not written."""


def _shown(one: Difference) -> ShownDifference:
    before, after = _said(one.kind, one.before), _said(one.kind, one.after)
    left, right = compared(before or "", after or "") if before is not None and after is not None else (_all(before), _all(after))
    fields = []
    for name, (label, default) in _FIELDS.items():
        old, new = (str(side.get(name, default)) if isinstance(side, Mapping) else "" for side in (one.before, one.after))
        if old != new and one.before is not None and one.after is not None:
            fields.append((label, old, new))
    return ShownDifference(one.kind, one.id, one.what, left, right, tuple(fields), one.why)


def _all(text: str | None) -> Pieces | None:
    return None if text is None else ((text, False),)


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
