"""The session store for commands that change a session without running it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.app.logs import open_config

if TYPE_CHECKING:
    from holdfast.session.store import SessionStore


@contextmanager
def sessions(config: Path | None, session_config: Path | None = None) -> Iterator[SessionStore]:
    """The store that config.yaml, or the session configuration, describes. It is closed at the end."""
    from holdfast.clock import SystemClock
    from holdfast.config.loading import load_config
    from holdfast.durable.disk import REAL
    from holdfast.workflow.run_settings import open_session_store, settings_of

    loaded = open_config(config)
    own = load_config(session_config) if session_config is not None else None
    store = open_session_store(settings_of([loaded, own]), loaded, disk=REAL, clock=SystemClock())
    try:
        yield store
    finally:
        if hasattr(store, "close"):
            store.close()
