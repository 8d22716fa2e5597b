"""The queue over HTTP: what waits, who works, how fast it goes; put in and taken out (W17)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from holdfast.errors import NotThere
from holdfast.redaction import without_paths
from holdfast.server.routes.sessions_api import NewSession, definition_of
from holdfast.server.services import Services, services_of
from holdfast.server.wire import TOKEN, Body, Id, Priority
from holdfast.workers.queue_overview import queue_overview
from holdfast.workers.session_queue import SessionQueue

router = APIRouter(tags=["queue"], dependencies=[TOKEN])
Use = Annotated[Services, Depends(services_of)]


class QueuedSession(NewSession):
    """A workflow for workers to run."""

    priority: Priority = 0


class InQueue(Body):
    """Where a session is put."""

    priority: Priority | None = None


@router.get("/queue")
def queue_read(use: Use) -> dict[str, Any]:
    """What waits and runs, the workers with their sessions, rates, schedules, and models with limits. `there` is false without a queue."""
    found = queue_overview(use.harness)
    if found is None:
        return {"there": False, "waiting": 0, "running": 0, "workers": [], "schedules": [], "models": []}
    schedules = [{**one, "file": None, "problem": one["problem"] and without_paths(one["problem"])} for one in found["schedules"]]
    return {"there": True, **found, "schedules": schedules}


@router.post("/queue", status_code=202)
def queue_start(use: Use, body: QueuedSession, response: Response) -> dict[str, Any]:
    """A new session for the next free worker."""
    queue = SessionQueue.open(use.harness.sessions)
    launcher = use.harness.launcher(store=use.harness.sessions)
    given: dict[str, Any] = {"task": body.task, "parameters": body.parameters, "session_id": body.id}
    made = queue.create(launcher, definition_of(use, body), priority=body.priority, **given)
    response.headers["location"] = f"/api/v1/sessions/{made.workflow_id}"
    return {"id": made.workflow_id, "status": made.status, "queued": True}


@router.get("/queue/{id}")
def queue_place(use: Use, id: Id) -> dict[str, Any]:
    """Where a session is in the queue: whether it waits or runs, at which worker, and what keeps it."""
    queue = SessionQueue.find(use.harness.sessions)
    place = queue.places([id]).get(id) if queue is not None else None
    if place is None:
        raise NotThere(f"the session {id} is not in the queue.")
    return {"id": id, **place, "problem": place["problem"] and without_paths(place["problem"])}


@router.put("/queue/{id}")
def queue_put(use: Use, id: Id, body: InQueue) -> dict[str, Any]:
    """Let workers go on with a session that is there."""
    use.harness.sessions.load(id)
    SessionQueue.open(use.harness.sessions).put(id, priority=body.priority)
    return {"id": id, "queued": True}


@router.delete("/queue/{id}")
def queue_withdraw(use: Use, id: Id) -> dict[str, Any]:
    """Take a session out. One that runs goes on to its end; `POST /sessions/{id}/cancel` stops it."""
    use.harness.sessions.load(id)
    queue = SessionQueue.find(use.harness.sessions)
    return {"id": id, "withdrawn": queue is not None and queue.withdraw(id)}
