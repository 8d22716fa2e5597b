"""Sessions and workflows over HTTP: start, watch, approve, reject, fix, resume, fork, cancel; and the queue of workers (W1-W19)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from holdfast.config.section import all_errors
from holdfast.errors import ConfigError, Damaged, HoldfastError, InputError, NotThere, RevisionConflict, WorkflowChanged, WorkflowError
from holdfast.redaction import redact, redact_text, without_paths
from holdfast.server.services import Services, Use
from holdfast.server.wire import (
    NAME,
    NEW_NAME,
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
    Priority,
    Short,
    StageName,
    Text,
    clean,
    page_of,
    saved_as,
)
from holdfast.session.document import session_json
from holdfast.session.editor import differences
from holdfast.session.state import Session, SessionBrief, stage_folder
from holdfast.workers.session_queue import SessionQueue, queue_overview
from holdfast.workers.session_states import seen, state_of
from holdfast.workflow import control
from holdfast.workflow.agent import checked_agents
from holdfast.workflow.definition import Stage as WorkflowStage
from holdfast.workflow.definition import Workflow
from holdfast.workflow.workflow_file import load_workflow, parse_workflow

router = APIRouter(tags=["sessions"], dependencies=[TOKEN])


class NewSession(Body):
    """A workflow to run: the definition itself, or the name of a file in the configured folder."""

    workflow: dict[str, Any] | None = None
    name: Short | None = None
    task: Text | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    id: Annotated[str, Query(pattern=NEW_NAME)] | None = None
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
    id: Annotated[str, Query(pattern=NEW_NAME)] | None = None


class Point(Body):
    """A recovery point."""

    checkpoint: PointName


def shown(session: Session) -> dict[str, Any]:
    """A session as it goes out: without secrets and without the path of its file."""
    said: dict[str, Any] = redact(session_json(session))
    said.pop("workflow_file", None)
    return said


def _named(id: str) -> dict[str, str]:
    """A session by its id, under both of the names that answers have for it."""
    return {"id": id, "workflow_id": id}


def loaded(use: Services, id: str) -> Session:
    """A session that is there. WorkflowError, with the reason, for one whose file a person left in a form that does not fit."""
    try:
        return use.harness.sessions.load(id)
    except Damaged as error:
        if not (error.path or "").endswith(f"{id}.json"):  # what only we write
            raise
        raise WorkflowError(error.message, session=id, hint=error.hint) from error


def definition_of(use: Services, body: NewSession) -> Any:
    """The workflow that is meant, as whoever runs it takes it."""
    if (body.workflow is None) == (body.name is None):
        raise InputError("give a workflow or the name of one.")
    return from_network(use, parse_workflow(body.workflow)) if body.workflow is not None else named_workflow(use, body.name or "")


def named_workflow(use: Services, name: str) -> str:
    """The file of this name in the configured folder. NotThere for another."""
    folder, name = use.harness.config.server.workflows, name.removesuffix(".yaml")
    found = use.harness.config.beside(folder) / f"{name}.yaml" if folder else None
    if found is None or name != FilePath(name).name or not found.is_file():
        raise NotThere(f"there is no workflow {name!r}.", hint="`GET /api/v1/workflows` lists them.")
    return str(found)


_FROM_NETWORK = (
    *("limits", "session.id", "session.checkpoint_interval", "session.short", "session.long", "session.limits", "memory.working_memory"),
    *(f"memory.long_term_memory.{name}" for name in ("retrieval_top_k", "min_trust", "rerank")),
)
"""Settings that a workflow may bring over the network: figures. Where things are kept and what is started for it is for files."""
_IN_A_FILE = "Put the workflow as a file into server.workflows: there it may."


def from_network(use: Services, made: Workflow, folder: FilePath | None = None) -> Workflow:
    """A definition that came over the network, checked to name no code and no data of this machine beyond the folder of workflows (O3).

    Folders and scripts in it are relative to that folder (or to `folder`), wherever links lead. InputError or ConfigError for the rest.
    """
    for key, value in _leaves(made.sections):
        if not any(key == one or key.startswith(f"{one}.") for one in _FROM_NETWORK) or "$" in str(value):
            raise InputError(f"`{key}` may not be set by a workflow that comes over the network.", hint=_IN_A_FILE)
    root = use.harness.config.server.workflows
    place = folder or (use.harness.config.beside(root) if root else None)
    return replace(made, stages=tuple(_confined(stage, place, kept=folder is not None) for stage in made.stages))


def _leaves(value: object, key: str = "") -> Iterator[tuple[str, object]]:
    """Every value of nested settings with its dotted key."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, f"{key}.{name}" if key else str(name))
    else:
        yield key, value


def _confined(stage: WorkflowStage, place: FilePath | None, *, kept: bool) -> WorkflowStage:
    """The stage with each place of the disk that it names as it is below the folder; as it was written where the runner looks there."""
    if ":" in stage.agent_type or "." in stage.agent_type:
        raise InputError(
            "an agent of your own is named in a workflow file, not over the network.", hint="Put the file into server.workflows."
        )
    settings = dict(stage.settings)
    sources = settings.get("sources")
    globs = sources.get("globs") if isinstance(sources, Mapping) else None
    if any(_leads_out(str(one)) for one in (globs if isinstance(globs, list | tuple) else [globs or ""])):
        raise ConfigError("leads out of the folder.", key=f"stages.{stage.name}.sources.globs", hint="Write it like `**/*.md`.")
    if isinstance(sources, Mapping) and "folder" in sources:
        settings["sources"] = {**sources, "folder": _below(place, sources["folder"], f"stages.{stage.name}.sources.folder")}
    if "script" in settings:
        settings["script"] = _below(place, settings["script"], f"stages.{stage.name}.script")
    return stage if kept else replace(stage, settings=settings)


def _placeless(stage: WorkflowStage) -> WorkflowStage:
    """The stage without the places on the disk that it names."""
    sources = stage.settings.get("sources")
    kept = {key: value for key, value in stage.settings.items() if key != "script"}
    if isinstance(sources, Mapping):
        kept["sources"] = {key: value for key, value in sources.items() if key not in ("folder", "globs")}
    return replace(stage, settings=kept)


def _leads_out(named: str) -> bool:
    return "\0" in named or named.startswith(("/", "~")) or ".." in FilePath(named).parts


def _below(place: FilePath | None, named: object, key: str) -> Any:
    """A path, or a list of them, below a folder. ConfigError for one that is not, or is not there."""
    if isinstance(named, list | tuple):
        return [_below(place, one, key) for one in named]
    if not isinstance(named, str):
        return named  # whoever reads the definition says what is wrong with it
    if place is None:
        why = "without `server.workflows` a workflow that comes over the network names no files of this machine."
        raise ConfigError(why, key=key, hint=_IN_A_FILE)
    root = place.resolve()
    found = root if _leads_out(named) else (root / named).resolve()
    if _leads_out(named) or not found.is_relative_to(root):
        hint = "Over the network it is relative to `server.workflows`, and lies in it."
        raise ConfigError("leads out of the folder of workflows.", key=key, hint=hint)
    if not found.exists():
        raise ConfigError(f"there is no {named[:200]!r} in the folder of workflows.", key=key, hint="It is relative to `server.workflows`.")
    return str(found)


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
            where = [f"line {error.line}" if error.line else "", error.key or ""] if isinstance(error, ConfigError) else []
            problem = ": ".join([*filter(None, where), error.public])  # with its line and without its path
            items.append({"name": path.stem, "id": None, "task": None, "stages": [], "problem": problem})
    return items


@router.post("/workflows/check")
def workflows_check(use: Use, body: Definition) -> dict[str, Any]:
    """Whether a definition could be run, and every problem with its place."""
    found: list[ConfigError] = []
    try:
        made = parse_workflow(body.workflow)
        try:
            made = from_network(use, made)
        except ConfigError as error:  # of places on the disk: nothing is looked for there, and the rest is checked all the same
            found, made = all_errors(error), replace(made, stages=tuple(_placeless(stage) for stage in made.stages))
        checked_agents(made, use.harness.stage_agents())
    except ConfigError as error:
        found = [*all_errors(error), *found]
    if found:
        return {
            "ok": False,
            "problems": [{"at": one.key, "message": clean(one.message), "hint": one.hint} for one in found],
        }
    return {"ok": True, "problems": []}


@router.get("/sessions")
def sessions_list(use: Use, limit: Limit = 100, cursor: Cursor = None) -> Page:
    """All sessions, newest first. Besides the states of its file a session is `interrupted` (nobody runs it any more) or `queued`."""
    hidden = ("error", "problem")

    def pathless(brief: SessionBrief) -> dict[str, Any]:
        known = {key: without_paths(one) if key in hidden and isinstance(one, str) else one for key, one in asdict(brief).items()}
        return {**known, **_named(brief.workflow_id)}

    return page_of(seen(use.harness.sessions, use.harness.sessions.newest()), limit, cursor, pathless)


@router.post("/sessions", status_code=202)
def sessions_start(use: Use, response: Response, body: NewSession = NewSession()) -> dict[str, Any]:
    """Start a session; with `start: false` it only waits to be resumed."""
    made = use.sessions.create(definition_of(use, body), task=body.task, parameters=body.parameters, session_id=body.id)
    if body.start:
        use.sessions.start(made.workflow_id, as_started=True)
    response.headers["location"] = f"/api/v1/sessions/{made.workflow_id}"
    return {**_named(made.workflow_id), "status": "running" if body.start else made.status}


@router.get("/sessions/{id}")
def sessions_read(use: Use, id: Id, response: Response) -> dict[str, Any]:
    """A session, whole."""
    session = loaded(use, id)
    owner = use.harness.sessions.owner(id)
    response.headers["etag"] = f'"{session.revision}"'
    status = state_of(use.harness.sessions, id, session.status)
    who = owner.name if owner is not None else None
    return {**shown(session), **_named(id), "status": status, "owner": who, "waiting": list(control.waiting_stages(session))}


@router.delete("/sessions/{id}", status_code=204)
def sessions_delete(use: Use, id: Id) -> Response:
    """Remove a session that nobody runs."""
    loaded(use, id)
    with use.harness.sessions.lease(id, owner="delete"):
        pass
    use.harness.sessions.remove(id)
    return Response(status_code=204)


@router.get("/sessions/{id}/stages/{stage}")
def stages_read(use: Use, id: Id, stage: StageName) -> dict[str, Any]:
    """A stage: its record, what it was given and what it wrote."""
    session = loaded(use, id)
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
    if if_match is not None and if_match.strip('"') != str(loaded(use, id).revision):
        raise RevisionConflict("the session has changed since.")
    done = control.fix(use.harness.sessions, id, stage, json.dumps(body), bus=use.harness.bus)
    if done.status == "ready":
        use.sessions.leave_to_workers(id)
    return {**_named(id), "status": done.status, "revision": done.revision}


@router.get("/sessions/{id}/raw/{ref}")
def raw_read(use: Use, id: Id, ref: Annotated[str, Id]) -> Response:
    """Raw data of a session by its reference."""
    loaded(use, id)
    found = use.harness.sessions.raw_get(id, ref)
    return Response(found.data, media_type="application/octet-stream", headers=saved_as(ref))


@router.post("/sessions/{id}/resume", status_code=202)
def sessions_resume(use: Use, id: Id, body: GoOn = GoOn()) -> dict[str, Any]:
    """Go on from the last completed stage."""
    loaded(use, id)
    try:
        use.sessions.start(id, accept_changes=body.accept_changes, as_started=body.as_started)
    except WorkflowChanged as error:
        raise in_words_of(error, "{name}: true") from None
    queued = state_of(use.harness.sessions, id, "ready") == "queued"  # one that workers have is left to them
    return {**_named(id), "status": "queued" if queued else "running"}


def in_words_of(error: WorkflowChanged, form: str) -> WorkflowChanged:
    """The error with the keywords that its hint names as they are given elsewhere than in Python: `{option}` or `{name}` in `form`."""
    hint = error.hint or ""
    for name in ("accept_changes", "as_started"):
        hint = hint.replace(f"`{name}=True`", f"`{form.format(option='--' + name.replace('_', '-'), name=name)}`")
    error.hint = hint or None
    return error


@router.post("/sessions/{id}/cancel")
def sessions_cancel(use: Use, id: Id) -> dict[str, Any]:
    """Stop it. It can be resumed."""
    loaded(use, id)
    if (queue := SessionQueue.find(use.harness.sessions)) is not None:
        queue.withdraw(id)
    done = control.cancel(use.harness.sessions, id, bus=use.harness.bus)
    return {**_named(id), "status": done.status}


@router.post("/sessions/{id}/approve")
def sessions_approve(use: Use, id: Id, body: Stage = Stage()) -> dict[str, Any]:
    """Agree with what a stage wrote; the session goes on."""
    done = control.approve(use.harness.sessions, id, body.stage, bus=use.harness.bus)
    if body.resume and done.status == "ready":
        use.sessions.start(id, as_started=True)
        return {**_named(id), "status": "running"}
    return {**_named(id), "status": done.status}


@router.post("/sessions/{id}/reject")
def sessions_reject(use: Use, id: Id, body: Reason) -> dict[str, Any]:
    """Refuse what a stage wrote, and say why. It is told when it runs again."""
    done = control.reject(use.harness.sessions, id, body.stage, why=body.why, bus=use.harness.bus)
    return {**_named(id), "status": done.status}


@router.post("/sessions/{id}/fork", status_code=201)
def sessions_fork(use: Use, id: Id, body: ForkAt = ForkAt()) -> dict[str, Any]:
    """A new session from the state of another."""
    store = use.harness.sessions
    made = control.fork(store, id, body.id, checkpoint=body.checkpoint)
    new = made.workflow_id
    if made.status != "completed" and (queue := SessionQueue.find(store)) is not None:
        queue.follow(id, new)
    return {**_named(new), "status": made.status, "lineage": dict(made.lineage or {})}


@router.post("/sessions/{id}/restore")
def sessions_restore(use: Use, id: Id, body: Point) -> dict[str, Any]:
    """Go back to a recovery point. What is there now is kept as one."""
    done = use.harness.sessions.restore(id, body.checkpoint)
    return {**_named(id), "status": done.status, "revision": done.revision}


@router.get("/sessions/{id}/checkpoints")
def checkpoints_list(use: Use, id: Id) -> Page:
    """The recovery points of a session."""
    loaded(use, id)
    return Page(items=[asdict(one) for one in use.harness.sessions.checkpoints(id)])


@router.get("/sessions/{id}/diff")
def sessions_diff(use: Use, id: Id, before: Annotated[str, Query(pattern=NAME)]) -> Page:
    """What is different now from a recovery point."""
    store = use.harness.sessions
    found = differences(store.load_checkpoint(id, before), store.load(id))
    return Page(items=[redact(asdict(one)) for one in found])


def there(use: Use, id: Id) -> str:
    """The id of a session that is there. NotThere for another."""
    loaded(use, id)
    return id


@router.get("/sessions/{id}/events", response_class=StreamingResponse, responses=STREAM)
async def sessions_events(
    use: Use, id: Annotated[str, Depends(there)], last_event_id: LastEventId = None, follow: Follow = True
) -> StreamingResponse:
    """What happens in a session, whoever runs it, from the event after `Last-Event-ID` on; also after a restart of this server."""
    return use.streamed(use.sessions.follow(id, last_event_id, lambda: use.stopping, wait=follow))


@router.get("/events", response_class=StreamingResponse, responses=STREAM)
async def events_all(use: Use, last_event_id: LastEventId = None, follow: Follow = True) -> StreamingResponse:
    """Everything that happens in this server."""
    return use.streamed(use.everything.follow(last_event_id, wait=follow))


queue_router = APIRouter(tags=["queue"], dependencies=[TOKEN])


class QueuedSession(NewSession):
    """A workflow for workers to run."""

    priority: Priority = 0


class InQueue(Body):
    """Where a session is put."""

    priority: Priority | None = None


@queue_router.get("/queue")
def queue_read(use: Use) -> dict[str, Any]:
    """What waits and runs, the workers with their sessions, rates, schedules, and models with limits. `there` is false without a queue."""
    found = queue_overview(use.harness)
    if found is None:
        return {"there": False, "waiting": 0, "running": 0, "workers": [], "schedules": [], "models": []}
    schedules = [{**one, "file": None, "problem": one["problem"] and without_paths(one["problem"])} for one in found["schedules"]]
    return {"there": True, **found, "schedules": schedules}


@queue_router.post("/queue", status_code=202)
def queue_start(use: Use, response: Response, body: QueuedSession = QueuedSession()) -> dict[str, Any]:
    """A new session for the next free worker."""
    queue = SessionQueue.open(use.harness.sessions)
    launcher = use.harness.launcher(store=use.harness.sessions)
    given: dict[str, Any] = {"task": body.task, "parameters": body.parameters, "session_id": body.id}
    made = queue.create(launcher, definition_of(use, body), priority=body.priority, **given)
    response.headers["location"] = f"/api/v1/sessions/{made.workflow_id}"
    return {**_named(made.workflow_id), "status": "queued" if made.status == "ready" else made.status, "queued": True}


@queue_router.get("/queue/{id}")
def queue_place(use: Use, id: Id) -> dict[str, Any]:
    """Where a session is in the queue: whether it waits or runs, at which worker, and what keeps it."""
    queue = SessionQueue.find(use.harness.sessions)
    place = queue.places([id]).get(id) if queue is not None else None
    if place is None:
        raise NotThere(f"the session {id} is not in the queue.")
    return {**_named(id), **place, "problem": place["problem"] and without_paths(place["problem"])}


@queue_router.put("/queue/{id}")
def queue_put(use: Use, id: Id, body: InQueue = InQueue()) -> dict[str, Any]:
    """Let workers go on with a session that is there."""
    loaded(use, id)
    SessionQueue.open(use.harness.sessions).put(id, priority=body.priority)
    return {**_named(id), "queued": True}


@queue_router.delete("/queue/{id}")
def queue_withdraw(use: Use, id: Id) -> dict[str, Any]:
    """Take a session out. One that runs goes on to its end; `POST /sessions/{id}/cancel` stops it."""
    loaded(use, id)
    queue = SessionQueue.find(use.harness.sessions)
    return {**_named(id), "withdrawn": queue is not None and queue.withdraw(id)}
