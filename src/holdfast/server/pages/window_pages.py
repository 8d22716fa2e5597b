"""The window of any call to scale, with the origin of each part and what changed; and what left it, beside what it became (O4, S7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from markupsafe import Markup

from holdfast.amounts import counted
from holdfast.context.call_log import Call, Part
from holdfast.context.records import MessageRecord, SummaryRecord
from holdfast.errors import NotThere
from holdfast.server.pages import drawing
from holdfast.server.pages.html_pages import page, to
from holdfast.server.pages.thread_pages import by_origin
from holdfast.server.routes.threads_api import part_text
from holdfast.server.services import Services, services_of
from holdfast.server.wire import ThreadId

router = APIRouter(include_in_schema=False)
Use = Annotated[Services, Depends(services_of)]
_SHOWN = 1_500
"""Characters of a part that stand on the page; the message itself is one step away."""
_ORIGINALS = 200
"""Messages that left that one page shows."""
_LISTED = 20
HOW = {
    "model": "written by a model",
    "extract": "made of sentences of the originals, without a model",
    "reference": "no summary: a reference to the archive",
}


@dataclass(frozen=True)
class ShownPart:
    """A part of a request as the page shows it. `text` is None where its words are no longer kept."""

    index: int
    part: Part
    text: str | None
    cut: bool = False
    number: int | None = None
    """Its place in the conversation, where it is a message of it."""
    new: bool = False
    """It was not in the call before."""


@dataclass(frozen=True)
class Step:
    """What is different from the call before: parts that came and that went, by origin, and the tokens."""

    number: int
    tokens: int
    came: tuple[tuple[str, int, int], ...]
    """(origin, how many, tokens)"""
    went: tuple[tuple[str, int, int], ...]
    grew: tuple[tuple[str, int], ...]
    """(origin, tokens) of what stayed and has another size."""


@router.get("/threads/{id}/calls")
def calls_page(request: Request, use: Use, id: ThreadId) -> Response:
    """The newest call; a page that says what to do where there is none."""
    use.agent_of(id)
    calls = use.calls.calls(id)
    if calls:
        return to(f"/threads/{quote(id, safe='')}/calls/{calls[-1].number}")
    return page(request, "no_calls.html", title="No calls yet", id=id, called=_name(use, id))


@router.get("/threads/{id}/calls/{number}")
def call_page(request: Request, use: Use, id: ThreadId, number: Annotated[int, Path(ge=1, le=1_000_000_000)]) -> Response:
    """What one call was sent."""
    agent = use.agent_of(id)
    calls = use.calls.calls(id)
    at = next((index for index, one in enumerate(calls) if one.number == number), None)
    if at is None:
        raise NotThere(f"there is no call {number} in this thread.", hint="The newest is at /threads/ID/calls.")
    call, before = calls[at], calls[at - 1] if at else None
    parts = _parts(use, id, agent, call, before)
    points = [drawing.Point(one.number, one.tokens, _href(id, one.number), _mark(one)) for one in calls]
    chart, top = drawing.step_chart(drawing.near(points, number), current=number, cap=call.cap, label="Tokens sent with each call")
    values: dict[str, Any] = {
        "id": id,
        "called": _name(use, id),
        "call": call,
        "parts": parts,
        "bar": _bar(call, parts),
        "origins": [(origin, drawing.ORIGINS.get(origin, origin), tokens) for origin, tokens in by_origin(call).items()],
        "step": _step(call, before) if before is not None else None,
        "chart": chart,
        "top": top,
        "calls": len(calls),
        "first": calls[0].number,
        "earlier": calls[at - 1].number if at else None,
        "later": calls[at + 1].number if at + 1 < len(calls) else None,
        "newest": calls[-1].number,
        "mark": _mark(call),
    }
    return page(request, "call.html", title=f"Window of call {number}", **values)


def _name(use: Services, id: str) -> str:
    info = use.harness.threads.find(id) if use.harness.has_checkpoints else None
    return (info.title if info is not None else "") or id


def _href(id: str, number: int) -> str:
    return f"/threads/{quote(id, safe='')}/calls/{number}"


def _mark(call: Call) -> str:
    if call.left:
        return f"{counted(len(call.left), 'message')} left the window"
    return "a summary was made" if call.how else ""


def _key(part: Part) -> tuple[str, str | None]:
    return part.origin, part.id


def _parts(use: Services, id: str, agent: str | None, call: Call, before: Call | None) -> list[ShownPart]:
    whole = use.harness.whole_thread(id)
    numbers = {record.id: place for place, record in enumerate(use.history(id), 1)}
    known = {_key(part) for part in before.parts} if before is not None else set()
    found = []
    for index, part in enumerate(call.parts):
        text = part_text(use, id, agent, call, index, whole)
        cut = text is not None and len(text) > _SHOWN
        shown = text[:_SHOWN] if text is not None else None
        number = numbers.get(part.id) if part.id is not None else None
        found.append(ShownPart(index, part, shown, cut, number, before is not None and _key(part) not in known))
    return found


def _bar(call: Call, parts: Sequence[ShownPart]) -> Markup:
    segments = [drawing.Segment(one.part.origin, one.part.tokens, _label(one), f"#p-{one.index}") for one in parts]
    said = f"{call.tokens:,} of {call.window:,} tokens in {counted(len(parts), 'part')}"
    return drawing.window_bar(segments, window=call.window, cap=call.cap, label=said)


def _label(one: ShownPart) -> str:
    place = f", message {one.number}" if one.number is not None else ""
    return f"{one.part.origin}: {drawing.ORIGINS.get(one.part.origin, one.part.origin)}{place}, {one.part.tokens:,} tokens"


def _step(call: Call, before: Call) -> Step:
    old, new = {_key(part): part for part in before.parts}, {_key(part): part for part in call.parts}
    grew: Counter[str] = Counter()
    for key in old.keys() & new.keys():
        grew[key[0]] += new[key].tokens - old[key].tokens
    return Step(
        before.number,
        call.tokens - before.tokens,
        _summed(part for key, part in new.items() if key not in old),
        _summed(part for key, part in old.items() if key not in new),
        tuple((origin, tokens) for origin, tokens in grew.items() if tokens),
    )


def _summed(parts: Any) -> tuple[tuple[str, int, int], ...]:
    sums: dict[str, tuple[int, int]] = {}
    for part in parts:
        count, tokens = sums.get(part.origin, (0, 0))
        sums[part.origin] = (count + 1, tokens + part.tokens)
    return tuple((origin, count, tokens) for origin, (count, tokens) in sums.items())


# compactions


@dataclass(frozen=True)
class Compaction:
    """One compaction: the summary, the originals that it stands for as far as they are kept, and the call that it was made for."""

    number: int
    summary: SummaryRecord
    originals: tuple[MessageRecord, ...]
    missing: int
    call: int | None
    drawn: Markup | None
    saved: int | None
    previous: int | None


@router.get("/threads/{id}/compactions")
def compactions_page(request: Request, use: Use, id: ThreadId, last: Annotated[int, Query(ge=1, le=1_000)] = _LISTED) -> Response:
    """Each compaction, the newest first: what left and what it became."""
    use.agent_of(id)
    summaries = use.harness.archive.summaries(id)
    numbered = list(enumerate(summaries, 1))
    place = {one.id: number for number, one in numbered}
    calls = {message: call.number for call in use.calls.calls(id) for message in call.left}
    shown = [_compaction(use, id, number, one, place, calls) for number, one in numbered[-last:]]
    return page(
        request,
        "compactions.html",
        title="Compactions",
        id=id,
        called=_name(use, id),
        compactions=shown[::-1],
        total=len(summaries),
        more=last + _LISTED if len(summaries) > last else None,
        how=HOW,
        numbers={record.id: number for number, record in enumerate(use.history(id), 1)} if summaries else {},
    )


def _compaction(use: Services, id: str, number: int, one: SummaryRecord, place: dict[str, int], calls: dict[str, int]) -> Compaction:
    held = use.harness.archive.originals(id, one.covers)
    kept = tuple(held[message] for message in one.covers if message in held)
    before, after = one.tokens_before, one.tokens_after
    both = before is not None and after is not None
    return Compaction(
        number,
        one,
        kept[:_ORIGINALS],
        len(one.covers) - min(len(kept), _ORIGINALS),
        next((calls[message] for message in one.covers if message in calls), None),
        drawing.shrunk(before or 0, after or 0) if both else None,
        (before or 0) - (after or 0) if both else None,
        place.get(one.previous or ""),
    )
