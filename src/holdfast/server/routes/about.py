"""What this installation is: health, figures, settings, models, skills, how a window is split; the start page, the login."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse

from holdfast import __version__
from holdfast.config.checks import Setting, effective_settings
from holdfast.config.sections import Config
from holdfast.config.tool_sections import McpConnection, all_servers
from holdfast.errors import HoldfastError
from holdfast.health import Check, examine
from holdfast.models.choice import how_to_get_one, pick
from holdfast.models.factory import entry_of
from holdfast.redaction import redact, without_paths
from holdfast.server.routes.html_pages import as_page, page
from holdfast.server.services import Services, Use, ready
from holdfast.server.wire import TOKEN, Body, Flag, Id, Page, clean, problem
from holdfast.talk import ThreadInfo
from holdfast.workers.session_queue import queue_overview
from holdfast.workers.session_states import seen

_OURS = re.compile(r"/(?:[A-Za-z0-9._~%-][A-Za-z0-9._~%/-]*)?")
"""A path of this server, and never the beginning of another's address."""
open_router = APIRouter(tags=["health"])
router = APIRouter(tags=["about"], dependencies=[TOKEN])


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
        kind, said = ("wrong-token", "That token is not the one of this server.") if token.strip() else ("no-token", "The token is needed.")
        hint = "`holdfast serve --show-token` prints it; the address that the server printed when it started has it too."
        return as_page(request, problem(401, kind, said, {"www-authenticate": "Bearer"}, hint=hint))
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
    return Page(items=[{"about": one.about, "state": one.state, "text": clean(_called(use.harness.config, one))} for one in found])


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
    """The configured models, which one is used, and how much of its window where one was seen to take less than was said."""
    return Page(items=[_pathless(entry) for entry in _models(use, pick(use.harness.config).name)])


def _models(use: Services, used: str | None) -> list[dict[str, Any]]:
    entries = [redact(asdict(entry_of(model))) for model in use.harness.config.models]
    return [{**one, "used": one["name"] == used, "learned_window": use.learned_window(one["name"])} for one in entries]


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


# Pages


pages = APIRouter(include_in_schema=False)
_MOST = 8
"""Rows of each list: the page of sessions has them all."""
_NEED_SOMEBODY = ("paused", "halted", "interrupted")


@pages.get("/")
def start(request: Request, use: Use) -> HTMLResponse:
    """What needs a person first, then what goes on."""
    sessions = list(seen(use.harness.sessions, use.harness.sessions.list()))
    waiting = [one for one in sessions if one.status in _NEED_SOMEBODY or one.problem is not None]
    running = [one for one in sessions if one.status in ("running", "queued")]
    ended = [one for one in sessions if one.status not in (*_NEED_SOMEBODY, "running", "queued") and one.problem is None]
    threads = use.harness.conversations(last=5)
    checks = found_by_doctor(use, whole=False)
    return page(
        request,
        "start.html",
        title="Start",
        waiting=waiting[:_MOST],
        running=running[:_MOST],
        ended=ended[:_MOST],
        held=_held(use),
        threads=threads,
        asking=_asking(use),
        bad=[one for one in checks if one["state"] == "bad"],
        notes=[one for one in checks if one["state"] == "note"],
        new=len(sessions) < 3,
        empty=not sessions and not threads,
    )


def _asking(use: Services) -> list[ThreadInfo]:
    """Conversations in which a call waits for a yes."""
    names = use.harness.checkpoints.waiting() if use.harness.has_checkpoints else ()
    return [one for name in names if (one := use.info(name)) is not None][:_MOST]


def _held(use: Services) -> list[dict[str, Any]]:
    """How many facts wait for a yes, by whose memory it is."""
    memory = use.harness.memory
    try:
        counts = {agent: len(memory.review(agent)) for agent in (None, *memory.store.scopes())}
    except HoldfastError:  # the doctor's lines on the same page say what is wrong with memory
        return []
    return [{"agent": agent, "count": count} for agent, count in counts.items() if count]


def found_by_doctor(use: Services, *, whole: bool = True) -> list[dict[str, Any]]:
    """What `holdfast doctor` finds, without paths; not `whole`, what it finds without looking at each session and each file."""
    return [
        {"about": one.about, "state": one.state, "text": _placed(use, _called(use.harness.config, one))}
        for one in examine(use.harness, whole=whole)
    ]


def _placed(use: Services, text: str) -> str:
    """A text with our own places in words, and no other path."""
    config = use.harness.config
    if config.file is not None:
        text = text.replace(str(config.file), config.file.name)
    return clean(text.replace(str(config.base), "the base directory"))


def _called(config: Config, found: Check) -> str:
    """What the doctor found, with the programs of MCP servers under their names, without folders: else nobody knows which is meant."""
    text = found.text
    if found.about in ("mcp", "knowledge"):
        servers: list[McpConnection] = [*all_servers(config).enabled.values(), *filter(None, [config.knowledge.server])]
        for part in {part for server in servers for part in (server.command or "", *server.args[:1]) if part.startswith("/")}:
            text = text.replace(part, PurePath(part).name or part)
    return text


# What this installation is


_BUDGET = {
    "base": ("system", "the agent's own prompt"),
    "memory": ("memory", "what is known about you"),
    "skills": ("tools", "skills"),
    "instructions": ("system", "instructions of this conversation"),
    "kept": ("conversation", "messages, word for word"),
    "buffer": ("summary", "the summary, and what the next turns bring"),
    "tool_definitions": ("tools", "definitions of tools"),
    "response": ("retrieved", "the answer"),
}


@pages.get("/about")
def about_page(request: Request, use: Use, window: Annotated[int | None, Query(ge=1_000, le=100_000_000)] = None) -> HTMLResponse:
    """What the doctor finds, which model is used and why, every setting and where it is from, how a window is shared out."""
    config = use.harness.config
    choice = pick(config)
    every = effective_settings(config)
    return page(
        request,
        "about.html",
        title="About this installation",
        checks=found_by_doctor(use),
        places=_places(config, every),
        why=clean(choice.why),
        ways=[] if choice.name else how_to_get_one(),
        considered=[{"what": clean(one.what), "usable": one.usable, "seen": clean(str(one.seen))} for one in choice.considered],
        models=_models(use, choice.name),
        settings=[_setting(use, one) for one in every if one.source.kind != "default"],
        defaults=[_setting(use, one) for one in every if one.source.kind == "default"],
        notices=[{"line": one.line, "key": one.key, "message": clean(one.message)} for one in config.warnings],
        budget=_budget(use, window),
        asked=window,
        queue=queue_overview(use.harness),
        sessions_running=use.sessions.running,
        turns_running=len(use.turns.running),
        streams=use.streams,
    )


_KEPT = {
    "sessions": ("sessions", ("session.storage_backend", "session.path", "memory.session_memory.path")),
    "memory": ("memory.json", ("memory.dsn", "memory.storage_class", "memory.storage_path")),
    "knowledge": ("knowledge.db", ("knowledge.dsn", "knowledge.use", "knowledge.path", "knowledge.server", "session.vector_store")),
    "conversations": ("threads", ()),
}
"""What is kept: its name in the base directory, and the settings that put it elsewhere."""


def _places(config: Config, every: Sequence[Setting]) -> list[dict[str, str]]:
    """Where everything is, and why there (C6). Whoever has the token may know; errors and the API name no paths."""
    file = "none: every setting has its default" if config.file is None else str(config.file)
    found = [
        {"what": "base directory", "where": str(config.base), "why": config.base_source},
        {"what": "configuration", "where": file, "why": f"it {config.trust.reason}" if config.file is not None else ""},
    ]
    for what, (name, keys) in _KEPT.items():
        said = [one for one in every if one.key in keys and not one.is_default]
        where = "; ".join(str(redact(one.value, one.key.rpartition(".")[2])) for one in said) or str(config.base / name)
        why = "; ".join(f"{one.key} ({one.source})" for one in said) or "in the base directory"
        found.append({"what": what, "where": where, "why": why})
    log = f"logging.format is {config.logging.format}, logging.level {config.logging.level}"
    return [*found, {"what": "log", "where": "standard error of `holdfast serve`", "why": log}]


def _budget(use: Services, window: int | None) -> dict[str, Any]:
    try:
        made = use.harness.budget(window=window)
    except HoldfastError as error:
        return {"problem": error.public, "window": 0, "parts": []}
    parts = [{"name": name, "origin": origin, "words": words, "tokens": getattr(made, name)} for name, (origin, words) in _BUDGET.items()]
    return {"problem": None, "window": made.window, "parts": parts}


def _setting(use: Services, one: Setting) -> dict[str, str]:
    value = redact(one.value, one.key.rpartition(".")[2])
    text = "none" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return {
        "key": one.key,
        "value": _placed(use, text if len(text) <= 200 else f"{text[:197]}..."),
        "source": _placed(use, str(one.source)),
    }
