"""The start page: what waits for you, what runs, what ended, what the doctor warns of; and what this installation is (`/about`)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse

from holdfast.errors import HoldfastError
from holdfast.health import examine
from holdfast.redaction import redact_text, without_paths
from holdfast.server.pages.html_pages import page
from holdfast.server.services import Services, services_of
from holdfast.session.state import SessionBrief

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
    return page(
        request,
        "start.html",
        title="Start",
        waiting=waiting[:_MOST],
        running=running[:_MOST],
        ended=ended[:_MOST],
        held=_held(use),
        threads=threads,
        warnings=[one for one in doctor(use) if one["state"] != "good"],
        new=len(sessions) < 3,
        empty=not sessions and not threads,
    )


def _waits(brief: SessionBrief) -> bool:
    return brief.status in ("paused", "halted") or brief.problem is not None


def _held(use: Services) -> list[dict[str, Any]]:
    """How many facts wait for a yes, by whose memory it is."""
    found: list[dict[str, Any]] = []
    try:
        scopes = list(dict.fromkeys([None, *use.harness.memory.store.scopes()]))
        found = [{"agent": agent, "count": len(use.harness.memory.review(agent))} for agent in scopes]
    except HoldfastError:  # the doctor's lines on the same page say what is wrong with memory
        return []
    return [one for one in found if one["count"]]


def doctor(use: Services) -> list[dict[str, Any]]:
    """What `holdfast doctor` finds, without paths."""
    return [{"about": one.about, "state": one.state, "text": without_paths(redact_text(one.text))} for one in examine(use.harness)]
