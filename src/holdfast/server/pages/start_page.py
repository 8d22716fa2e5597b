"""The start page: what waits for you, what runs, what ended, what the doctor warns of; and what this installation is (`/about`)."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse

from holdfast.config.checks import Setting, effective_settings
from holdfast.errors import HoldfastError
from holdfast.health import examine
from holdfast.models.choice import how_to_get_one, pick
from holdfast.models.inventory import entry_of
from holdfast.redaction import redact, redact_text, without_paths
from holdfast.server.pages.html_pages import page
from holdfast.server.services import Services, services_of
from holdfast.session.state import SessionBrief
from holdfast.talk import ThreadInfo
from holdfast.workers.queue_overview import queue_overview

router = APIRouter(include_in_schema=False)
Use = Annotated[Services, Depends(services_of)]
_MOST = 8
"""Rows of each list: the page of sessions has them all."""


@router.get("/")
def start(request: Request, use: Use) -> HTMLResponse:
    """What needs a person first, then what goes on."""
    sessions = use.harness.sessions.list()
    waiting = [one for one in sessions if _waits(one)]
    running = [one for one in sessions if one.status == "running"]
    ended = [one for one in sessions if not _waits(one) and one.status != "running"]
    threads = use.harness.conversations(last=5)
    checks = doctor(use, whole=False)
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


def _waits(brief: SessionBrief) -> bool:
    return brief.status in ("paused", "halted") or brief.problem is not None


def _asking(use: Services) -> list[ThreadInfo]:
    """Conversations in which a call waits for a yes."""
    if not use.harness.has_checkpoints:
        return []
    found = [use.harness.threads.find(name) for name in use.harness.checkpoints.waiting()]
    return [one for one in found if one is not None][:_MOST]


def _held(use: Services) -> list[dict[str, Any]]:
    """How many facts wait for a yes, by whose memory it is."""
    found: list[dict[str, Any]] = []
    try:
        scopes = list(dict.fromkeys([None, *use.harness.memory.store.scopes()]))
        found = [{"agent": agent, "count": len(use.harness.memory.review(agent))} for agent in scopes]
    except HoldfastError:  # the doctor's lines on the same page say what is wrong with memory
        return []
    return [one for one in found if one["count"]]


def doctor(use: Services, *, whole: bool = True) -> list[dict[str, Any]]:
    """What `holdfast doctor` finds, without paths; not `whole`, what it finds without looking at each session and each file."""
    return [{"about": one.about, "state": one.state, "text": _placed(use, one.text)} for one in examine(use.harness, whole=whole)]


def _placed(use: Services, text: str) -> str:
    """A text with our own places in words, and no other path."""
    config = use.harness.config
    if config.file is not None:
        text = text.replace(str(config.file), config.file.name)
    return _clean(text.replace(str(config.base), "the base directory"))


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


@router.get("/about")
def about(request: Request, use: Use, window: Annotated[int | None, Query(ge=1_000, le=100_000_000)] = None) -> HTMLResponse:
    """What the doctor finds, which model is used and why, every setting and where it is from, how a window is shared out."""
    config = use.harness.config
    choice = pick(config)
    every = effective_settings(config)
    return page(
        request,
        "about.html",
        title="About this installation",
        checks=doctor(use),
        why=_clean(choice.why),
        ways=[] if choice.name else how_to_get_one(),
        considered=[{"what": _clean(one.what), "usable": one.usable, "seen": _clean(str(one.seen))} for one in choice.considered],
        models=[{**redact(asdict(entry_of(one))), "used": one.name == choice.name} for one in config.models],
        settings=[_setting(use, one) for one in every if one.source.kind != "default"],
        defaults=[_setting(use, one) for one in every if one.source.kind == "default"],
        notices=[{"line": one.line, "key": one.key, "message": _clean(one.message)} for one in config.warnings],
        budget=_budget(use, window),
        asked=window,
        queue=queue_overview(use.harness),
        sessions_running=use.sessions.running,
        turns_running=len(use.turns.running),
        streams=use.streams,
    )


def _budget(use: Services, window: int | None) -> dict[str, Any]:
    try:
        made = use.harness.budget(window=window)
    except HoldfastError as error:
        return {"problem": error.public, "window": 0, "parts": []}
    parts = [{"name": name, "origin": origin, "words": words, "tokens": getattr(made, name)} for name, (origin, words) in _BUDGET.items()]
    return {"problem": None, "window": made.window, "parts": parts}


def _clean(text: str) -> str:
    return without_paths(redact_text(text))


def _setting(use: Services, one: Setting) -> dict[str, str]:
    value = redact(one.value, one.key.rpartition(".")[2])
    text = "none" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return {
        "key": one.key,
        "value": _placed(use, text if len(text) <= 200 else f"{text[:197]}..."),
        "source": _placed(use, str(one.source)),
    }
