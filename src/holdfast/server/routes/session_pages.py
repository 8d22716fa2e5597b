"""Sessions as pages: all of them, a new one from a file or a text, and one with its stages live and all that a person may do with it.

A stage has a page too: what it was given, what it wrote, the place to correct it, and the evidence behind a finding.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Form, Path, Query, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from holdfast.errors import ConfigError, HoldfastError, InputError, NotThere, RevisionConflict, WorkflowChanged
from holdfast.redaction import redact_text
from holdfast.server.routes import sessions_api
from holdfast.server.routes.html_pages import HERE, live_event, page, part, problem_values, render, to
from holdfast.server.routes.session_values import address_of, given_parts, marked, record_values, session_values, story_of, totals
from holdfast.server.routes.sessions_api import from_network, named_workflow, shown, stage_texts, workflow_files
from holdfast.server.services import Services, Use
from holdfast.server.wire import Id, LastEventId, StageName, clean, saved_as, status_of
from holdfast.session.editor import draft_of
from holdfast.session.edits import fixed
from holdfast.session.state import STATUSES, SessionBrief, StageRecord
from holdfast.session.story import story_markdown
from holdfast.storage.postgres_backend import PostgresBackend
from holdfast.workers.session_queue import SessionQueue, queue_overview
from holdfast.workers.session_states import seen
from holdfast.workflow import control
from holdfast.workflow.agent import checked_agents
from holdfast.workflow.definition import Workflow
from holdfast.workflow.events import SessionJournal
from holdfast.workflow.workflow_file import parse_workflow_text

router = APIRouter(include_in_schema=False, prefix="/sessions")
Words = Annotated[str, Form(max_length=100_000)]
_EXAMPLE = HERE / "example" / "workflow.yaml"
EXAMPLE = _EXAMPLE.read_text("utf-8")
"""What stands in the text area at first."""
_EXAMPLE_ID = "harbour"
_ROWS = 25
_COUNTED = 100
"""With more sessions than these the page does not count them: it costs the same however many there are."""
_TAGGED = 500
"""So many of the newest are looked through for a topic: only the sessions themselves know theirs."""
_CALM = 0.4
"""Seconds between two drawings of a page that follows a session: nobody reads faster."""
_LOOK = 4
"""Of so many looks at a quiet journal one is at the session itself."""
_TURN = 4.0
"""Seconds after which a page lets go of its connection and asks for another."""


@router.get("/new")
def new_session(request: Request, use: Use) -> HTMLResponse:
    """Workflow files with their tasks, and a text area that checks what is written."""
    return _new_page(request, use)


def _new_page(request: Request, use: Services, *, text: str = EXAMPLE, task: str = "", error: HoldfastError | None = None) -> HTMLResponse:
    return page(
        request,
        "new_session.html",
        title="New session",
        status=status_of(error) if error is not None else 200,
        files=workflow_files(use),
        folder=use.harness.config.server.workflows is not None,
        text=text,
        task=task,
        wrong=workflow_problem(error) if error is not None else None,
        model=use.harness.talks(),
        queues=isinstance(use.harness.sessions.backend, PostgresBackend),
    )


def workflow_problem(error: HoldfastError) -> dict[str, Any]:
    """What is wrong with a workflow, each mistake with its line."""
    if not isinstance(error, ConfigError):
        return problem_values(error)
    found = [error, *error.others]
    places = [
        {
            "at": " ".join(filter(None, [f"line {one.line}" if one.line else "", one.key or ""])),
            "message": clean(" ".join(filter(None, [one.message, one.hint]))),
        }
        for one in found
    ]
    said = "There is one mistake in it." if len(found) == 1 else f"There are {len(found)} mistakes in it."
    return {**problem_values(error), "detail": said, "errors": places, "hint": None}


def _read_workflow(use: Services, text: str) -> Workflow:
    made = parse_workflow_text(text)
    if made.id == _EXAMPLE_ID:  # its notes are beside it, and it may be changed
        made = replace(made, file=str(_EXAMPLE), home=_EXAMPLE.parent)
    made = from_network(use, made, _EXAMPLE.parent if made.home is not None else None)
    checked_agents(made, use.harness.stage_agents())
    return made


@router.post("/new/check")
def check_workflow(use: Use, text: Words = "", task: Words = "") -> HTMLResponse:
    """Whether a workflow could be started, while it is written."""
    try:
        made = _read_workflow(use, text)
    except HoldfastError as error:
        return part("checked.html", problem=workflow_problem(error), good=None)
    names = " → ".join(one.name for one in made.stages)
    lacks = "" if (task or made.task or "").strip() else " It has no task yet."
    return part("checked.html", problem=None, good=f"This can be started: {names}.{lacks}")


@router.post("/new")
def start_session(
    request: Request,
    use: Use,
    text: Words = "",
    name: Annotated[str, Form(max_length=200)] = "",
    task: Words = "",
    keep: Annotated[str, Form(max_length=20)] = "",
    queue: Annotated[str, Form(max_length=20)] = "",
) -> Response:
    """Start a session of a file or of a text; with `keep` it only waits to be resumed, with `queue` for the next free worker."""
    store = use.harness.sessions
    try:
        workflow = named_workflow(use, name) if name else _read_workflow(use, text)
        if queue:
            made = SessionQueue.open(store).create(use.harness.launcher(store=store), workflow, task=task.strip() or None)
        else:
            made = use.sessions.create(workflow, task=task.strip() or None)
        if not keep and not queue:
            use.sessions.start(made.workflow_id, as_started=True)
    except HoldfastError as error:
        return _new_page(request, use, text=EXAMPLE if name else text, task=task, error=error)
    return to(f"/sessions/{quote(made.workflow_id)}")


# All of them


@router.get("")
def sessions(
    request: Request,
    use: Use,
    q: Annotated[str, Query(max_length=200)] = "",
    status: Annotated[str, Query(max_length=20)] = "",
    tag: Annotated[str, Query(max_length=100)] = "",
    start: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> HTMLResponse:
    """The list, newest first, by state, by topic and by words of the task."""
    newest = seen(use.harness.sessions, use.harness.sessions.newest())
    near = list(islice(newest, _COUNTED + 1))
    whole = len(near) <= _COUNTED
    words = q.lower().split()
    found = (one for one in chain(near, newest) if not status or one.status == status)
    found = (one for one in found if all(word in f"{one.task} {one.workflow_id} {one.error or ''}".lower() for word in words))
    if tag:
        rows = [row for row in (_row(use, one) for one in islice(found, _TAGGED)) if row["topic"].lower() == tag.lower()]
        rows = rows[start : start + _ROWS + 1]
    else:
        rows = [_row(use, one) for one in islice(found, start, start + _ROWS + 1)]
    counts = {name: sum(one.status == name for one in near) for name in (*STATUSES, "interrupted", "queued")}
    return page(
        request,
        "sessions.html",
        title="Sessions",
        rows=rows[:_ROWS],
        more=len(rows) > _ROWS,
        there=bool(near),
        every=len(near) if whole else None,
        counts={name: number if whole else None for name, number in counts.items() if number or not whole},
        asked={"q": q, "status": status, "tag": tag},
        start=start,
        rows_most=_ROWS,
        queue=queue_overview(use.harness),
    )


def _row(use: Services, brief: SessionBrief) -> dict[str, Any]:
    """A line of the list, with what only the session itself knows."""
    row: dict[str, Any] = {"brief": brief, "topic": "", "tokens": 0, "cost": 0.0, "owner": None}
    if brief.problem is None:
        try:
            found, owner = use.harness.sessions.load(brief.workflow_id), use.harness.sessions.owner(brief.workflow_id)
        except HoldfastError as error:
            return {**row, "problem": error.public}
        used = totals(found)
        row |= {"topic": found.topic_tag, "tokens": used["tokens"], "cost": used["cost"], "owner": owner.name if owner else None}
    return row


# One, live


@router.get("/{id}")
def session(request: Request, use: Use, id: Id) -> HTMLResponse:
    """A session with its stages, what happened, and what can be done."""
    return _session_page(request, use, id)


def _session_page(request: Request, use: Services, id: str, error: HoldfastError | None = None) -> HTMLResponse:
    sessions_api.loaded(use, id)
    values = session_values(use.harness.sessions, id, SessionJournal(use.harness.sessions, id).read().events)
    wrong = problem_values(error) if error is not None else None
    return page(
        request,
        "session.html",
        title=values["title"],
        status=wrong["status"] if wrong else 200,
        s=values,
        wrong=wrong,
    )


@router.get("/{id}/live")
async def session_live(use: Use, id: Annotated[str, Depends(sessions_api.there)], last_event_id: LastEventId = None) -> StreamingResponse:
    """The part of the page that changes, drawn anew whenever something happened in the session, whoever runs it."""
    return use.streamed(_drawn(use, id, last_event_id))


async def _drawn(use: Services, id: str, last: str | None) -> AsyncIterator[bytes]:
    """Drawings of the session. What is drawn is always the whole state, so that a lost event leaves no wrong page.

    It ends after some seconds, and the page comes back with the id of what it has: a browser opens six connections at most, and eight
    tabs that each kept one would leave none for the next click.
    """
    watched = _Watched(use, id, last)
    until = asyncio.get_running_loop().time() + _TURN
    yield b": here\n\n"
    while not use.stopping and asyncio.get_running_loop().time() < until:
        html = await run_in_threadpool(watched.look)
        if html is not None:
            yield f"id: {watched.mark}\n".encode() + live_event(html)
        await asyncio.sleep(_CALM)


class _Watched:
    """A session that a page follows: by its journal, and now and then by its state, which a person may change without running it.

    `mark` tells one drawing from another.
    """

    def __init__(self, use: Services, id: str, mark: str | None) -> None:
        self._use, self._id, self.mark = use, id, mark
        self._journal = SessionJournal(use.harness.sessions, id)
        self._place: object = None
        self._events: list[Mapping[str, Any]] = []
        self._looks = 0

    def look(self) -> str | None:
        """The part of the page, if it is another one than before."""
        found = self._journal.read(self._place)
        self._place = found.place
        self._events.extend(found.events)
        self._looks += 1
        if not found.events and self._looks % _LOOK != 1:
            return None
        values = session_values(self._use.harness.sessions, self._id, self._events)
        mark = f"{values['status']}-{values['revision']}-{len(self._events)}-{int(values['owner'] is not None)}"
        if mark == self.mark:
            return None
        self.mark = mark
        return render("session_live.html", s=values)


# What a person does


Named = Annotated[str, Form(max_length=200)]


def _then(request: Request, use: Services, id: str, act: Callable[[], object], stage: str = "") -> Response:
    """Do it as the API does, then look at the session, or at the address that comes of it; what is in the way is said on its page."""
    try:
        done = act()
    except HoldfastError as error:
        return _session_page(request, use, id, error)
    return to(done if isinstance(done, str) else address_of(id, stage))


@router.post("/{id}/approve")
def approve(request: Request, use: Use, id: Id, stage: Named = "") -> Response:
    """Agree with what a stage wrote, or with the call that it wants to make; the session goes on."""
    return _then(request, use, id, lambda: sessions_api.sessions_approve(use, id, sessions_api.Stage(stage=stage or None)), stage)


@router.post("/{id}/reject")
def reject(request: Request, use: Use, id: Id, why: Words = "", stage: Named = "", again: Named = "") -> Response:
    """Refuse it, and say why; with `again` the stage runs again at once, and is told."""

    def act() -> None:
        done = control.reject(use.harness.sessions, id, stage or None, why=why, bus=use.harness.bus)
        if again and done.status in ("ready", "halted"):
            use.sessions.start(id, as_started=True)

    return _then(request, use, id, act, stage)


@router.post("/{id}/resume")
def resume(request: Request, use: Use, id: Id) -> Response:
    """Go on from the last completed stage, with the workflow that it was started with."""

    def act() -> None:
        try:
            use.sessions.start(id, as_started=True)
        except WorkflowChanged as error:
            raise sessions_api.in_words_of(error, f"holdfast resume {id} {{option}}") from None

    return _then(request, use, id, act)


@router.post("/{id}/cancel")
def cancel(request: Request, use: Use, id: Id) -> Response:
    """Stop it. It can be resumed."""
    return _then(request, use, id, lambda: sessions_api.sessions_cancel(use, id))


@router.post("/{id}/fork")
def fork(request: Request, use: Use, id: Id, checkpoint: Named = "") -> Response:
    """A new session from this one, or from one of its recovery points."""
    at = sessions_api.ForkAt(checkpoint=checkpoint or None)
    return _then(request, use, id, lambda: address_of(sessions_api.sessions_fork(use, id, at)["id"]))


@router.post("/{id}/restore")
def restore(request: Request, use: Use, id: Id, checkpoint: Named = "") -> Response:
    """Go back to a recovery point. What is there now is kept as one."""
    return _then(request, use, id, lambda: use.harness.sessions.restore(id, checkpoint))


@router.post("/{id}/stages/{stage}/again")
def run_again(request: Request, use: Use, id: Id, stage: StageName) -> Response:
    """Run a completed stage again, and those after it: back to the newest recovery point before it. What is there now is kept as one."""
    store = use.harness.sessions

    def act() -> None:
        points = (one.name for one in reversed(store.checkpoints(id)))
        before = next((name for name in points if stage not in store.load_checkpoint(id, name).completed_stages), None)
        if before is None:
            raise InputError(f"there is no recovery point before the stage {stage!r}.", hint="Start the workflow anew: New session.")
        store.restore(id, before)
        use.sessions.start(id, as_started=True)

    return _then(request, use, id, act, stage)


@router.get("/{id}/download/{form}")
def download(use: Use, id: Id, form: Annotated[str, Path(pattern="^[a-z]{1,10}$")]) -> Response:
    """The session as a file: `report` and `story` as Markdown, `json` as it is kept."""
    store = use.harness.sessions
    found = store.load(id)
    if form == "json":
        return _file(f"{id}.json", json.dumps(sessions_api.shown(found), ensure_ascii=False, indent=2), "application/json")
    if form == "story":
        return _file(f"{id}.md", redact_text(story_markdown(story_of(store, found))), "text/markdown")
    values = session_values(store, id, ())
    if form != "report" or not values["reports"]:
        raise NotThere("there is no such file of this session.", hint="There are: report, where a stage wrote one, story and json.")
    return _file(f"{id}-report.md", "\n\n".join(one["report"] for one in values["reports"]), "text/markdown")


def _file(name: str, text: str, media_type: str) -> Response:
    return Response(text, media_type=f"{media_type}; charset=utf-8", headers=saved_as(name))


_LONG = 200_000
"""Characters of raw data that a page shows."""


@router.get("/{id}/stages/{stage}")
def stage_page(request: Request, use: Use, id: Id, stage: StageName) -> HTMLResponse:
    """What a stage was given, what it wrote, and the place to correct it."""
    return _stage_page(request, use, id, stage)


def _stage_page(
    request: Request, use: Services, id: str, stage: str, *, draft: str | None = None, error: HoldfastError | None = None
) -> HTMLResponse:
    store = use.harness.sessions
    found = store.load(id)
    values = session_values(store, id, SessionJournal(store, id).read().events)
    one = next((each for each in values["stages"] if each["name"] == stage), None)
    if one is None:
        raise NotThere(f"the session has no stage {stage!r}.", hint=f"There are: {', '.join(found.stage_names())}.")
    texts = stage_texts(use, found, stage)
    parts = given_parts(texts["context.md"], use.harness.counter.count_text) if texts.get("context.md") else []
    notes = store.raw(id).notes()
    output = (shown(found).get("stage_outputs") or {}).get(stage)
    refs = [{"ref": ref, **notes.get(ref, {})} for ref in (output or {}).get("raw_data_refs", ())]
    wrong = problem_values(error) if error is not None else None
    written = draft_of(found, stage)
    return page(
        request,
        "stage.html",
        title=f"{stage} · {values['title']}",
        status=wrong["status"] if wrong else 200,
        s=values,
        one=one,
        output=output,
        parts=parts,
        given=sum(each["tokens"] for each in parts),
        texts={name: redact_text(text) for name, text in texts.items() if name not in ("context.md", "output.md")},
        refs=refs,
        record=record_values(found.stages.get(stage, StageRecord())),
        draft=draft if draft is not None else redact_text(written),
        hides=draft is None and redact_text(written) != written,
        revision=found.revision,
        wrong=wrong,
    )


@router.post("/{id}/stages/{stage}/check")
def check_output(use: Use, id: Id, stage: StageName, text: Annotated[str, Form(max_length=2_000_000)] = "") -> HTMLResponse:
    """Whether a corrected output would be taken, while it is written."""
    try:
        fixed(use.harness.sessions.load(id), stage, text, at="")
    except HoldfastError as error:
        return part("checked.html", problem=problem_values(error), good=None)
    return part("checked.html", problem=None, good="This output fits.")


@router.post("/{id}/stages/{stage}/output")
def fix(
    request: Request,
    use: Use,
    id: Id,
    stage: StageName,
    text: Annotated[str, Form(max_length=2_000_000)] = "",
    revision: Annotated[int, Form(ge=0)] = 0,
    go_on: str = Form(""),
) -> Response:
    """Put a corrected output in place of what a stage wrote. It is checked first; what does not fit comes back with what is wrong."""
    store = use.harness.sessions
    try:
        if revision and revision != store.load(id).revision:
            raise RevisionConflict("the session has changed since this page was opened; look at it, then send it again.")
        done = control.fix(store, id, stage, text, bus=use.harness.bus)
        if go_on and stage in control.waiting_stages(done):
            done = control.approve(store, id, stage, bus=use.harness.bus)
        if done.status == "ready":
            use.sessions.start(id, as_started=True) if go_on else use.sessions.leave_to_workers(id)
    except HoldfastError as error:
        return _stage_page(request, use, id, stage, draft=text, error=error)
    return to(address_of(id, stage))


# The evidence


@router.get("/{id}/raw/{ref}")
def raw(
    request: Request,
    use: Use,
    id: Id,
    ref: Annotated[str, Path(pattern="^[A-Za-z0-9:._-]{1,200}$")],
    mark: Annotated[str, Query(max_length=1_000)] = "",
) -> HTMLResponse:
    """Raw data of a session as text, with the words of a finding marked in it."""
    found = use.harness.sessions.raw_get(id, ref)
    is_text = b"\0" not in found.data[:4_096]
    text = redact_text(found.text()) if is_text else ""
    return page(
        request,
        "raw.html",
        title=found.source or found.ref[:24],
        id=id,
        raw=found,
        size=len(found.data),
        pieces=marked(text[:_LONG], mark) if is_text else [],
        is_text=is_text,
        cut=len(text) > _LONG,
        mark=mark,
        task=use.harness.sessions.load(id).task,
    )
