"""Health, readiness, figures; what this installation is: settings, models, skills, how a window is split."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Query, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from holdfast import __version__
from holdfast.health import examine
from holdfast.models.choice import pick
from holdfast.models.inventory import entry_of
from holdfast.redaction import redact, redact_text, without_paths
from holdfast.server.pages.html_pages import as_page
from holdfast.server.problem_details import problem
from holdfast.server.services import Services, ready, services_of
from holdfast.server.wire import TOKEN, Body, Flag, Id, Page

_OURS = re.compile(r"/(?:[A-Za-z0-9._~%-][A-Za-z0-9._~%/-]*)?")
"""A path of this server, and never the beginning of another's address."""
open_router = APIRouter(tags=["health"])
router = APIRouter(tags=["about"], dependencies=[TOKEN])
Use = Annotated[Services, Depends(services_of)]


class Switch(Body):
    """Whether a skill is on."""

    enabled: Flag


@open_router.get("/healthz")
def health() -> dict[str, str]:
    """The server is alive."""
    return {"status": "ok"}


@open_router.get("/readyz", responses={503: {"description": "Not ready", "content": {"application/json": {"schema": {"type": "object"}}}}})
def readiness(use: Use) -> Response:
    """Whether it can do its work."""
    said = ready(use)
    return JSONResponse({"ready": said["ready"]}, 200 if said["ready"] else 503)


@open_router.get("/login", include_in_schema=False)
def login(request: Request, use: Use, token: Annotated[str, Query(max_length=500)] = "") -> Response:
    """Let a browser in: the token leaves the address bar, a cookie takes its place."""
    return _let_in(request, use, token, "/")


@open_router.post("/login", include_in_schema=False)
def login_form(
    request: Request, use: Use, token: Annotated[str, Form(max_length=500)] = "", next: Annotated[str, Form(max_length=500)] = "/"
) -> Response:
    """As above, from the form of a page that nobody was let in to."""
    return _let_in(request, use, token, next)


def _let_in(request: Request, use: Services, token: str, address: str) -> Response:
    if not use.keys.opens(token.strip().encode()):
        return as_page(request, problem(401, "no-token", "That token is not the one of this server.", {"www-authenticate": "Bearer"}))
    answer = RedirectResponse(address if _OURS.fullmatch(address) and address != "/login" else "/", 303)
    answer.set_cookie(use.keys.cookie, use.keys.let_in(), httponly=True, samesite="strict")
    return answer


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}})
def metrics(use: Use) -> Response:
    """Figures in the form of Prometheus."""
    return Response(use.metrics.text(), media_type="text/plain; version=0.0.4")


@router.get("/about")
def about(use: Use) -> dict[str, Any]:
    """What runs here: version, settings without secrets, what is ready."""
    config = use.harness.config
    settings = redact(config.model_dump(mode="json", include={"summarization", "memory", "subagents", "session", "knowledge", "title"}))
    return {"version": __version__, "ready": ready(use), "settings": _pathless(settings)}


def _pathless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _pathless(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_pathless(one) for one in value]
    return without_paths(value) if isinstance(value, str) else value


@router.get("/doctor")
def doctor(use: Use) -> Page:
    """What `holdfast doctor` finds, without paths."""
    found = examine(use.harness)
    return Page(items=[{"about": one.about, "state": one.state, "text": without_paths(redact_text(one.text))} for one in found])


@router.get("/budget")
def budget(
    use: Use,
    model: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    window: Annotated[int | None, Query(ge=1_000, le=100_000_000)] = None,
) -> dict[str, Any]:
    """How the window of a model, or one of a given size, is split."""
    return asdict(use.harness.budget(model, window=window))


@router.get("/models")
def models(use: Use) -> Page:
    """The configured models, and which one is used."""
    used = pick(use.harness.config).name
    entries = [asdict(entry_of(model)) for model in use.harness.config.models]
    return Page(items=[{**_pathless(redact(entry)), "used": entry["name"] == used} for entry in entries])


@router.get("/skills")
def skills(use: Use) -> Page:
    """The skills, and which are switched on."""
    found = use.harness.skills.all()
    on = {skill.name for skill in found.enabled}
    items = [{"name": one.name, "description": one.description, "enabled": one.name in on} for one in found.skills]
    return Page(items=items)


@router.patch("/skills/{name}")
def skills_switch(use: Use, name: Id, body: Switch) -> dict[str, Any]:
    """Switch a skill on or off."""
    skill = use.harness.skills.switch(name, enabled=body.enabled)
    return {"name": skill.name, "description": skill.description, "enabled": body.enabled}
