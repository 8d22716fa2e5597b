"""Stopping a session from outside: whoever runs it is asked, and where nobody does it is marked (W19)."""

from __future__ import annotations

from dataclasses import replace

from holdfast.clock import Clock, SystemClock
from holdfast.errors import InputError
from holdfast.session.state import Session
from holdfast.session.store import SessionStore

_LOOK = 0.05


def cancel(store: SessionStore, session_id: str, *, wait: float = 10.0, clock: Clock | None = None) -> Session:
    """Stop a session, and return it as it is then. One that is completed or cancelled already is an InputError.

    A process that runs it notices within a tenth of a second; after `wait` seconds the answer is the session as it still is.
    """
    clock = clock or SystemClock()
    session = store.load(session_id)
    if store.owner(session_id) is None:
        if session.status in ("completed", "cancelled"):
            raise InputError(f"the session {session_id} is {session.status}: there is nothing to stop.")
        with store.hold(session_id, owner="cancel"):
            session = store.load(session_id)
            return store.commit(replace(session, status="cancelled"), expect=session.revision)
    store.request_cancel(session_id)
    until = clock.monotonic() + wait
    while store.owner(session_id) is not None and clock.monotonic() < until:
        clock.sleep(_LOOK)
    return store.load(session_id)
