"""Sessions as pages: all of them, and one with its stages live and everything that a person may do with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Path, Query, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from holdfast.errors import HoldfastError, InputError, NotThere
from holdfast.redaction import redact_text
from holdfast.server.event_stream import MEDIA_TYPE
from holdfast.server.pages.html_pages import live_event, page, problem_values, render, to
from holdfast.server.pages.session_values import address_of, session_values, story_of
from holdfast.server.routes.sessions_api import shown
from holdfast.server.services import Services, services_of
from holdfast.server.wire import Id, StageName
from holdfast.session.state import STATUSES, spare_name
from holdfast.session.story import story_markdown
from holdfast.workflow import control
from holdfast.workflow.journal import SessionJournal

router = APIRouter(include_in_schema=False, prefix="/sessions")
Use = Annotated[Services, Depends(services_of)]
Words = Annotated[str, Form(max_length=100_000)]
_ROWS = 50
_CALM = 0.4
"""Seconds between two drawings of a page that follows a session: nobody reads faster."""
_LOOK = 4
"""So many looks at a quiet journal, then one at the session itself."""
_SIGN = 30
"""So many looks without anything new, then a comment, so that nothing on the way thinks the stream dead."""


# All of them


@router.get("")
def sessions(
    request: Request,
    use: Use,
    q: Annotated[str, Query(max_length=200)] = "",
    status: Annotated[str, Query(max_length=20)] = "",
    start: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> HTMLResponse:
    """The list, newest first, by state and by words of the task."""
    every = use.harness.sessions.list()
    words = q.lower().split()
    found = [
        one
        for one in every
        if (not status or one.status == status) and all(word in f"{one.task} {one.workflow_id} {one.error or ''}".lower() for word in words)
    ]
    counts = {name: sum(one.status == name for one in every) for name in STATUSES}
    return page(
        request,
        "sessions.html",
        title="Sessions",
        rows=found[start : start + _ROWS],
        total=len(found),
        every=len(every),
        counts={name: number for name, number in counts.items() if number},
        q=q,
        state=status,
        start=start,
        rows_most=_ROWS,
        owners={id: "this server" for id in use.sessions.running},
    )


# One, live


@router.get("/{id}")
def session(request: Request, use: Use, id: Id) -> HTMLResponse:
    """A session with its stages, what happened, and what can be done."""
    return _session_page(request, use, id)


def _session_page(request: Request, use: Services, id: str, error: HoldfastError | None = None) -> HTMLResponse:
    values = session_values(use.harness.sessions, id, SessionJournal(use.harness.sessions, id).read().events)
    wrong = problem_values(error) if error is not None else None
    return page(
        request,
        "session.html",
        title=values["task"] or id,
        status=wrong["status"] if wrong else 200,
        s=values,
        wrong=wrong,
    )


def _there(use: Use, id: Id) -> str:
    use.harness.sessions.load(id)
    return id


@router.get("/{id}/live")
async def session_live(use: Use, id: Annotated[str, Depends(_there)]) -> StreamingResponse:
    """The part of the page that changes, drawn anew whenever something happened in the session, whoever runs it."""
    return StreamingResponse(_drawn(use, id), media_type=MEDIA_TYPE)


async def _drawn(use: Services, id: str) -> AsyncIterator[bytes]:
    """Drawings of the session. What is drawn is always the whole state, so that a lost event leaves no wrong page."""
    with use.counted():
        watched = _Watched(use, id)
        while not use.stopping:
            html = await run_in_threadpool(watched.look)
            if html is not None:
                yield live_event(html)
            elif watched.quiet:
                yield b": ping\n\n"
            await asyncio.sleep(_CALM)


class _Watched:
    """A session that a page follows: by its journal, and now and then by its state, which a person may change without running it."""

    def __init__(self, use: Services, id: str) -> None:
        self._use, self._id = use, id
        self._journal = SessionJournal(use.harness.sessions, id)
        self._place: object = None
        self._events: list[Mapping[str, Any]] = []
        self._seen: tuple[Any, ...] = ()
        self._looks = 0

    @property
    def quiet(self) -> bool:
        """Whether it is time for a sign of life."""
        return self._looks % _SIGN == 0

    def look(self) -> str | None:
        """The part of the page, if it is another one than before."""
        found = self._journal.read(self._place)
        self._place = found.place
        self._events.extend(found.events)
        self._looks += 1
        if not found.events and self._seen and self._looks % _LOOK:
            return None
        values = session_values(self._use.harness.sessions, self._id, self._events)
        seen = tuple(values[name] for name in ("status", "revision", "owner"))
        changed, self._seen = bool(found.events) or seen != self._seen, seen
        return render("session_live.html", s=values) if changed else None


# What a person does


@router.post("/{id}/approve")
def approve(request: Request, use: Use, id: Id, stage: Annotated[str, Form(max_length=200)] = "") -> Response:
    """Agree with what a stage wrote, or with the call that it wants to make; the session goes on."""
    try:
        done = control.approve(use.harness.sessions, id, stage or None)
        if done.status == "ready":
            use.sessions.start(id, as_started=True)
    except HoldfastError as error:
        return _session_page(request, use, id, error)
    return to(address_of(id, stage))


@router.post("/{id}/reject")
def reject(
    request: Request, use: Use, id: Id, why: Words = "", stage: Annotated[str, Form(max_length=200)] = "", again: str = Form("")
) -> Response:
    """Refuse it, and say why; with `again` the stage runs again at once, and is told."""
    try:
        done = control.reject(use.harness.sessions, id, stage or None, why=why)
        if again and done.status in ("ready", "halted"):
            use.sessions.start(id, as_started=True)
    except HoldfastError as error:
        return _session_page(request, use, id, error)
    return to(address_of(id, stage))


@router.post("/{id}/resume")
def resume(request: Request, use: Use, id: Id, accept_changes: str = Form("")) -> Response:
    """Go on from the last completed stage."""
    try:
        use.harness.sessions.load(id)
        use.sessions.start(id, accept_changes=bool(accept_changes), as_started=not accept_changes)
    except HoldfastError as error:
        return _session_page(request, use, id, error)
    return to(address_of(id))


@router.post("/{id}/cancel")
def cancel(request: Request, use: Use, id: Id) -> Response:
    """Stop it. It can be resumed."""
    try:
        control.cancel(use.harness.sessions, id)
    except HoldfastError as error:
        return _session_page(request, use, id, error)
    return to(address_of(id))


@router.post("/{id}/fork")
def fork(request: Request, use: Use, id: Id, checkpoint: Annotated[str, Form(max_length=200)] = "") -> Response:
    """A new session from this one, or from one of its recovery points."""
    store = use.harness.sessions
    new = spare_name((brief.workflow_id for brief in store.list()), f"{id[:90]}-fork")
    try:
        store.fork(id, new, checkpoint=checkpoint or None)
    except HoldfastError as error:
        return _session_page(request, use, id, error)
    return to(address_of(new))


@router.post("/{id}/restore")
def restore(request: Request, use: Use, id: Id, checkpoint: Annotated[str, Form(max_length=200)] = "") -> Response:
    """Go back to a recovery point. What is there now is kept as one."""
    try:
        use.harness.sessions.restore(id, checkpoint)
    except HoldfastError as error:
        return _session_page(request, use, id, error)
    return to(address_of(id))


@router.post("/{id}/stages/{stage}/again")
def run_again(request: Request, use: Use, id: Id, stage: StageName) -> Response:
    """Run a completed stage again, and those after it: back to the newest recovery point before it. What is there now is kept as one."""
    store = use.harness.sessions
    try:
        points = [one.name for one in reversed(store.checkpoints(id)) if stage not in store.load_checkpoint(id, one.name).completed_stages]
        if not points:
            raise InputError(f"there is no recovery point before the stage {stage!r}.", hint="Start the workflow anew: New session.")
        store.restore(id, points[0])
        use.sessions.start(id, as_started=True)
    except HoldfastError as error:
        return _session_page(request, use, id, error)
    return to(address_of(id, stage))


@router.get("/{id}/download/{form}")
def download(use: Use, id: Id, form: Annotated[str, Path(pattern="^[a-z]{1,10}$")]) -> Response:
    """The session as a file: `report` and `story` as Markdown, `json` as it is kept."""
    store = use.harness.sessions
    found = store.load(id)
    if form == "json":
        return _file(f"{id}.json", json.dumps(shown(found), ensure_ascii=False, indent=2), "application/json")
    if form == "story":
        return _file(f"{id}.md", redact_text(story_markdown(story_of(store, found))), "text/markdown")
    values = session_values(store, id, ())
    if form != "report" or not values["reports"]:
        raise NotThere("there is no such file of this session.", hint="There are: report, where a stage wrote one, story and json.")
    return _file(f"{id}-report.md", "\n\n".join(one["report"] for one in values["reports"]), "text/markdown")


def _file(name: str, text: str, media_type: str) -> Response:
    return Response(text, media_type=f"{media_type}; charset=utf-8", headers={"content-disposition": f'attachment; filename="{name}"'})
