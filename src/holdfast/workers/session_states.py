"""How a session stands, for every list and page alike: what its file says, and whether somebody is really at it (W6, O3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, cast

from holdfast.session.state import SessionBrief, Status
from holdfast.session.store import SessionStore
from holdfast.workers.session_queue import SessionQueue

_AT_ONCE = 100


def seen(store: SessionStore, briefs: Iterable[SessionBrief]) -> Iterator[SessionBrief]:
    """The lines of a list, each with the state that it really has: besides those of its file `interrupted` and `queued`."""
    queue, rest = SessionQueue.find(store), iter(briefs)
    while part := list(islice(rest, _AT_ONCE)):
        places = queue.places(one.workflow_id for one in part) if queue is not None else {}
        for one in part:
            found = one.status and _state(store, one.workflow_id, one.status, places.get(one.workflow_id))
            yield one if found == one.status else replace(one, status=cast("Status", found))


def state_of(store: SessionStore, session: str, status: str) -> str:
    """The same for one session whose file says `status`."""
    queue = SessionQueue.find(store) if status in ("ready", "running", "interrupted") else None
    return _state(store, session, status, queue.places([session]).get(session) if queue is not None else None)


def _state(store: SessionStore, session: str, status: str, place: Mapping[str, Any] | None) -> str:
    if status == "running" and store.owner(session) is None:
        status = "interrupted"  # it says that it runs, and nobody runs it: its process was killed
    if place is not None and place["state"] == "waiting" and status in ("ready", "interrupted"):
        return "queued"
    return status
