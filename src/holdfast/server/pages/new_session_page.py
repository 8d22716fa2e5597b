"""A new session as a page: workflow files with their tasks, and a text area that says what is wrong, line by line."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse, Response

from holdfast.errors import ConfigError, HoldfastError
from holdfast.redaction import redact_text, without_paths
from holdfast.server.pages.html_pages import HERE, page, part, problem_values, to
from holdfast.server.problem_details import status_of
from holdfast.server.routes.sessions_api import check_agent_name, named_workflow, workflow_files
from holdfast.server.services import Services, services_of
from holdfast.storage.postgres import PostgresBackend
from holdfast.workers.session_queue import SessionQueue
from holdfast.workflow.agent import checked_agents
from holdfast.workflow.definition import Workflow
from holdfast.workflow.workflow_file import parse_workflow_text

router = APIRouter(include_in_schema=False, prefix="/sessions")
Use = Annotated[Services, Depends(services_of)]
Words = Annotated[str, Form(max_length=100_000)]
_EXAMPLE = HERE / "example" / "workflow.yaml"
EXAMPLE = _EXAMPLE.read_text("utf-8")
"""What stands in the text area at first."""
_EXAMPLE_ID = "harbour"


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
            "message": without_paths(redact_text(" ".join(filter(None, [one.message, one.hint])))),
        }
        for one in found
    ]
    said = "There is one mistake in it." if len(found) == 1 else f"There are {len(found)} mistakes in it."
    return {**problem_values(error), "detail": said, "errors": places, "hint": None}


def _read_workflow(use: Services, text: str) -> Workflow:
    made = parse_workflow_text(text)
    if made.id == _EXAMPLE_ID:  # its notes are beside it, and it may be changed
        made = replace(made, file=str(_EXAMPLE), home=_EXAMPLE.parent)
    for one in made.stages:
        check_agent_name(one.agent_type)
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
