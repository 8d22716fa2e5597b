"""Sessions and workflows over HTTP: start, watch, approve, reject, fix, resume, fork, cancel (W1-W19)."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from holdfast.errors import ConfigError, HoldfastError, InputError, NotThere, RevisionConflict
from holdfast.redaction import redact, redact_text, without_paths
from holdfast.server.event_stream import MEDIA_TYPE
from holdfast.server.services import Services, services_of
from holdfast.server.wire import (
    NAME,
    STREAM,
    TOKEN,
    Body,
    Cursor,
    Flag,
    Follow,
    Id,
    LastEventId,
    Limit,
    Page,
    PointName,
    Short,
    StageName,
    Text,
    page_of,
)
from holdfast.session.editor import differences
from holdfast.session.renderer import session_json
from holdfast.session.state import Session, spare_name, stage_folder
from holdfast.workers.session_queue import SessionQueue
from holdfast.workflow import control
from holdfast.workflow.agent import checked_agents
from holdfast.workflow.workflow_file import load_workflow, parse_workflow

router = APIRouter(tags=["sessions"], dependencies=[TOKEN])
Use = Annotated[Services, Depends(services_of)]


class NewSession(Body):
    """A workflow to run: the definition itself, or the name of a file in the configured folder."""

    workflow: dict[str, Any] | None = None
    name: Short | None = None
    task: Text | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    id: Annotated[str, Query(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")] | None = None
    start: Flag = True


class Definition(Body):
    """A workflow to be looked at."""

    workflow: dict[str, Any]


class GoOn(Body):
    """How a session goes on."""

    accept_changes: Flag = False
    as_started: Flag = False


class Stage(Body):
    """The stage that is meant; the only one that waits without it."""

    stage: Short | None = None
    resume: Flag = True


class Reason(Body):
    """Why an output is refused."""

    why: Text
    stage: Short | None = None


class ForkAt(Body):
    """Where the new session begins."""

    checkpoint: PointName | None = None
    id: Annotated[str, Query(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")] | None = None


class Point(Body):
    """A recovery point."""

    checkpoint: PointName


def shown(session: Session) -> dict[str, Any]:
    """A session as it goes out: without secrets and without the path of its file."""
    said: dict[str, Any] = redact(session_json(session))
    said.pop("workflow_file", None)
    return said


def definition_of(use: Services, body: NewSession) -> Any:
    """The workflow that is meant, as whoever runs it takes it."""
    if (body.workflow is None) == (body.name is None):
        raise InputError("give a workflow or the name of one.")
    return _plain(body.workflow) if body.workflow is not None else named_workflow(use, body.name or "")


def named_workflow(use: Services, name: str) -> str:
    """The file of this name in the configured folder. NotThere for another."""
    folder = use.harness.config.server.workflows
    found = use.harness.config.beside(folder) / f"{name}.yaml" if folder else None
    if found is None or name != FilePath(name).name or not found.is_file():
        raise NotThere(f"there is no workflow {name!r}.", hint="`GET /api/v1/workflows` lists them.")
    return str(found)


def _plain(workflow: dict[str, Any]) -> dict[str, Any]:
    """A definition that came over the network names no code of this machine: agents by path are for files."""
    stages = workflow.get("stages")
    for stage in stages if isinstance(stages, list) else ():
        check_agent_name(stage.get("agent_type") if isinstance(stage, dict) else None)
    return workflow


def check_agent_name(kind: object) -> None:
    """InputError for an agent that is named by the place of its code."""
    if isinstance(kind, str) and (":" in kind or "." in kind):
        raise InputError(
            "an agent of your own is named in a workflow file, not over the network.", hint="Put the file into server.workflows."
        )


@router.get("/workflows")
def workflows_list(use: Use) -> Page:
    """The files of the configured folder."""
    return Page(items=workflow_files(use))


def workflow_files(use: Services) -> list[dict[str, Any]]:
    """The workflows of the configured folder by name, each with its task and stages, or with what is wrong with it."""
    folder = use.harness.config.server.workflows
    place = use.harness.config.beside(folder) if folder else None
    items: list[dict[str, Any]] = []
    for path in sorted(place.glob("*.yaml")) if place is not None and place.is_dir() else ():
        try:
            found = load_workflow(path)
            items.append(
                {"name": path.stem, "id": found.id, "task": found.task, "stages": [one.name for one in found.stages], "problem": None}
            )
        except HoldfastError as error:
            items.append({"name": path.stem, "id": None, "task": None, "stages": [], "problem": _placed(error)})
    return items


def _placed(error: HoldfastError) -> str:
    """What is wrong with a file, with its line and without its path."""
    where = [f"line {error.line}" if error.line else "", error.key or ""] if isinstance(error, ConfigError) else []
    return ": ".join([*filter(None, where), error.public])


@router.post("/workflows/check")
def workflows_check(use: Use, body: Definition) -> dict[str, Any]:
    """Whether a definition could be run, and every problem with its place."""
    try:
        made = parse_workflow(_plain(body.workflow))
        checked_agents(made, use.harness.stage_agents())
    except ConfigError as error:
        found = [error, *error.others]
        return {
            "ok": False,
            "problems": [{"at": one.key, "message": without_paths(redact_text(one.message)), "hint": one.hint} for one in found],
        }
    return {"ok": True, "problems": []}


@router.get("/sessions")
def sessions_list(use: Use, limit: Limit = 100, cursor: Cursor = None) -> Page:
    """All sessions, newest first."""
    return page_of(use.harness.sessions.newest(), limit, cursor, lambda brief: _pathless(asdict(brief)))


def _pathless(value: dict[str, Any]) -> dict[str, Any]:
    return {key: without_paths(one) if key in ("error", "problem") and isinstance(one, str) else one for key, one in value.items()}


@router.post("/sessions", status_code=202)
def sessions_start(use: Use, body: NewSession, response: Response) -> dict[str, Any]:
    """Start a session; with `start: false` it only waits to be resumed."""
    made = use.sessions.create(definition_of(use, body), task=body.task, parameters=body.parameters, session_id=body.id)
    if body.start:
        use.sessions.start(made.workflow_id, as_started=True)
    response.headers["location"] = f"/api/v1/sessions/{made.workflow_id}"
    return {"id": made.workflow_id, "status": "running" if body.start else made.status}


@router.get("/sessions/{id}")
def sessions_read(use: Use, id: Id, response: Response) -> dict[str, Any]:
    """A session, whole."""
    session = use.harness.sessions.load(id)
    owner = use.harness.sessions.owner(id)
    response.headers["etag"] = f'"{session.revision}"'
    return {**shown(session), "owner": owner.name if owner is not None else None, "waiting": list(control.waiting_stages(session))}


@router.delete("/sessions/{id}", status_code=204)
def sessions_delete(use: Use, id: Id) -> Response:
    """Remove a session that nobody runs."""
    use.harness.sessions.load(id)
    with use.harness.sessions.hold(id, owner="delete"):
        pass
    use.harness.sessions.remove(id)
    return Response(status_code=204)


@router.get("/sessions/{id}/stages/{stage}")
def stages_read(use: Use, id: Id, stage: StageName) -> dict[str, Any]:
    """A stage: its record, what it was given and what it wrote."""
    session = use.harness.sessions.load(id)
    names = session.stage_names()
    if stage not in names:
        raise NotThere(f"the session has no stage {stage!r}.", hint=f"There are: {', '.join(names)}.")
    said = shown(session)
    return {
        "stage": stage,
        "record": (said.get("stages") or {}).get(stage),
        "output": (said.get("stage_outputs") or {}).get(stage),
        "texts": {name: redact_text(text) for name, text in stage_texts(use, session, stage).items()},
    }


def stage_texts(use: Services, session: Session, stage: str) -> dict[str, str]:
    """The Markdown of a stage by the names of its files: what it was given (`context.md`) and what it wrote."""
    folder = stage_folder(session.stage_names().index(stage) + 1, stage)
    views = use.harness.sessions.views
    found = views.texts(session.workflow_id) if views is not None else {}
    return {name.removeprefix(f"{folder}/"): text for name, text in found.items() if name.startswith(f"{folder}/")}


@router.put("/sessions/{id}/stages/{stage}/output")
def stages_fix(
    use: Use, id: Id, stage: StageName, body: dict[str, Any], if_match: Annotated[str | None, Header(max_length=40)] = None
) -> dict[str, Any]:
    """Put a corrected output in place of what a stage wrote. It is checked first."""
    if if_match is not None and if_match.strip('"') != str(use.harness.sessions.load(id).revision):
        raise RevisionConflict("the session has changed since.")
    done = control.fix(use.harness.sessions, id, stage, json.dumps(body), bus=use.harness.bus)
    if done.status == "ready":
        use.sessions.leave_to_workers(id)
    return {"id": id, "status": done.status, "revision": done.revision}


@router.get("/sessions/{id}/raw/{ref}")
def raw_read(use: Use, id: Id, ref: Annotated[str, Id]) -> Response:
    """Raw data of a session by its reference."""
    use.harness.sessions.load(id)
    found = use.harness.sessions.raw_get(id, ref)
    return Response(found.data, media_type="application/octet-stream", headers={"content-disposition": "attachment"})


@router.post("/sessions/{id}/resume", status_code=202)
def sessions_resume(use: Use, id: Id, body: GoOn) -> dict[str, Any]:
    """Go on from the last completed stage."""
    use.harness.sessions.load(id)
    use.sessions.start(id, accept_changes=body.accept_changes, as_started=body.as_started)
    return {"id": id, "status": "running"}


@router.post("/sessions/{id}/cancel")
def sessions_cancel(use: Use, id: Id) -> dict[str, Any]:
    """Stop it. It can be resumed."""
    use.harness.sessions.load(id)
    if (queue := SessionQueue.find(use.harness.sessions)) is not None:
        queue.withdraw(id)
    done = control.cancel(use.harness.sessions, id, bus=use.harness.bus)
    return {"id": id, "status": done.status}


@router.post("/sessions/{id}/approve")
def sessions_approve(use: Use, id: Id, body: Stage) -> dict[str, Any]:
    """Agree with what a stage wrote; the session goes on."""
    done = control.approve(use.harness.sessions, id, body.stage, bus=use.harness.bus)
    if body.resume and done.status == "ready":
        use.sessions.start(id, as_started=True)
        return {"id": id, "status": "running"}
    return {"id": id, "status": done.status}


@router.post("/sessions/{id}/reject")
def sessions_reject(use: Use, id: Id, body: Reason) -> dict[str, Any]:
    """Refuse what a stage wrote, and say why. It is told when it runs again."""
    done = control.reject(use.harness.sessions, id, body.stage, why=body.why, bus=use.harness.bus)
    return {"id": id, "status": done.status}


@router.post("/sessions/{id}/fork", status_code=201)
def sessions_fork(use: Use, id: Id, body: ForkAt) -> dict[str, Any]:
    """A new session from the state of another."""
    store = use.harness.sessions
    store.load(id) if body.checkpoint is None else store.load_checkpoint(id, body.checkpoint)
    new = body.id or spare_name((brief.workflow_id for brief in store.list()), f"{id[:90]}-fork")
    made = store.fork(id, new, checkpoint=body.checkpoint)
    if made.status != "completed" and (queue := SessionQueue.find(store)) is not None:
        queue.follow(id, new)
    return {"id": new, "status": made.status, "lineage": dict(made.lineage or {})}


@router.post("/sessions/{id}/restore")
def sessions_restore(use: Use, id: Id, body: Point) -> dict[str, Any]:
    """Go back to a recovery point. What is there now is kept as one."""
    done = use.harness.sessions.restore(id, body.checkpoint)
    return {"id": id, "status": done.status, "revision": done.revision}


@router.get("/sessions/{id}/checkpoints")
def checkpoints_list(use: Use, id: Id) -> Page:
    """The recovery points of a session."""
    use.harness.sessions.load(id)
    return Page(items=[asdict(one) for one in use.harness.sessions.checkpoints(id)])


@router.get("/sessions/{id}/diff")
def sessions_diff(use: Use, id: Id, before: Annotated[str, Query(pattern=NAME)]) -> Page:
    """What is different now from a recovery point."""
    store = use.harness.sessions
    found = differences(store.load_checkpoint(id, before), store.load(id))
    return Page(items=[redact(asdict(one)) for one in found])


def _there(use: Use, id: Id) -> str:
    use.harness.sessions.load(id)
    return id


@router.get("/sessions/{id}/events", response_class=StreamingResponse, responses=STREAM)
async def sessions_events(
    use: Use, id: Annotated[str, Depends(_there)], last_event_id: LastEventId = None, follow: Follow = True
) -> StreamingResponse:
    """What happens in a session, whoever runs it, from the event after `Last-Event-ID` on; also after a restart of this server."""

    async def frames() -> Any:
        with use.counted():
            async for data in use.sessions.follow(id, last_event_id, lambda: use.stopping, wait=follow):
                yield data

    return StreamingResponse(frames(), media_type=MEDIA_TYPE)


@router.get("/events", response_class=StreamingResponse, responses=STREAM)
async def events_all(use: Use, last_event_id: LastEventId = None, follow: Follow = True) -> StreamingResponse:
    """Everything that happens in this server."""

    async def frames() -> Any:
        with use.counted():
            async for data in use.everything.follow(last_event_id, wait=follow):
                yield data

    return StreamingResponse(frames(), media_type=MEDIA_TYPE)
