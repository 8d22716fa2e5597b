"""Opening what a session's settings ask for: the store that keeps it, and the long-term memory beside it (W1, W9, W16)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.clock import Clock
from holdfast.config.sections import Config
from holdfast.durable.disk import Disk
from holdfast.events import Bus
from holdfast.session.opening import store_of
from holdfast.session.store import SessionStore
from holdfast.workflow.run_settings import RunSettings

if TYPE_CHECKING:
    from holdfast.knowledge.store import KnowledgeStore


def open_store(settings: RunSettings, config: Config, *, disk: Disk, clock: Clock) -> SessionStore:
    """The store that keeps the session: files, or PostgreSQL with the file as an export when a path is given."""
    folder = config.base / (settings.folder or "sessions")
    template = str(config.base / settings.path) if settings.path is not None else None
    return store_of(
        settings.backend,
        folder=folder,
        path=template,
        connection=settings.connection,
        export=settings.persist,
        disk=disk,
        clock=clock,
    )


def session_file(store: SessionStore, session_id: str) -> Path | None:
    """The file in which a person can read a session; None when it is in a database alone."""
    layout = getattr(store, "layout", None) or getattr(getattr(store, "export", None), "layout", None)
    return Path(layout.file(session_id)) if layout is not None else None


def open_memories(settings: RunSettings, configs: Sequence[Config | None], *, usual: bool, clock: Clock, bus: Bus) -> KnowledgeStore | None:
    """The knowledge store that the settings name: `session.vector_store`, else the section `knowledge`.

    Where they name none it is None, or with `usual` the one in the base directory.
    """
    from holdfast.knowledge.opening import of_vector_store, open_section

    said = [config for config in configs if config is not None]
    chosen = next((config for config in reversed(said) if config.session.vector_store is not None), None)
    if chosen is not None:
        section = of_vector_store(chosen).knowledge
    else:
        chosen = next((config for config in reversed(said) if "knowledge" in config.model_fields_set), None)
        if chosen is None and not usual:
            return None
        section = (chosen or said[0]).knowledge
    if settings.rerank:
        section = section.model_copy(update={"rerank": True, "rerank_model": settings.rerank_model or section.rerank_model})
    return open_section(section, said[0].base, clock=clock, bus=bus)
