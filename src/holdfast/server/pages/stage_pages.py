"""A stage as a page: what it was given, what it wrote, the place to correct it; and the evidence behind a finding."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Form, Path, Query, Request
from fastapi.responses import HTMLResponse, Response

from holdfast.errors import HoldfastError, NotThere, RevisionConflict
from holdfast.redaction import redact_text
from holdfast.server.pages.html_pages import page, part, problem_values, to
from holdfast.server.pages.session_values import address_of, given_parts, marked, record_values, session_values
from holdfast.server.routes.sessions_api import shown, stage_texts
from holdfast.server.services import Services, services_of
from holdfast.server.wire import Id, StageName
from holdfast.session.editor import draft_of
from holdfast.session.edits import fixed
from holdfast.session.state import StageRecord
from holdfast.workflow import control
from holdfast.workflow.journal import SessionJournal

router = APIRouter(include_in_schema=False, prefix="/sessions")
Use = Annotated[Services, Depends(services_of)]
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
        title=f"{stage} · {values['task'] or id}",
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
