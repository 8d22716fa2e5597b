"""Forgetting in the rooms that memory does not know: knowledge, sessions with their raw data, and checkpoints (M14)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.config.memory_sections import Knowledge
    from holdfast.config.sections import Config


def forget_in_knowledge(config: Config, text: str) -> dict[str, int]:
    """Forget every record that holds the text, in the configured store and in that of the session; counts by place.

    A store that was never made is not made for this. One that cannot be reached is an error: what it holds is not forgotten.
    """
    from holdfast.knowledge.opening import of_vector_store, open_section

    touched: dict[str, int] = {}
    sections = [config.knowledge, of_vector_store(config).knowledge]
    for section in sections if sections[0] != sections[1] else sections[:1]:
        if _exists(section, config.base):
            with open_section(section, config.base) as store:
                gone = len(store.forget_text(text))
            if gone:
                place = f"knowledge ({section.adapter}): records"
                touched[place] = touched.get(place, 0) + gone
    return touched


def _exists(section: Knowledge, base: Path) -> bool:
    from holdfast.knowledge.opening import path_of

    if section.adapter in ("sqlite", "markdown"):
        return path_of(section, base).exists()
    return bool(section.dsn) if section.adapter == "postgres" else section.server is not None


def forget_in_sessions(config: Config, text: str) -> tuple[dict[str, int], list[str]]:
    """Take a text out of sessions, their recovery points, raw data and stage files: counts by place, and what could not be done."""
    from holdfast.session.opening import open_sessions

    if config.session.storage_backend == "file" and not (config.base / "sessions").exists():
        return {}, []
    touched: dict[str, int] = {}
    left: list[str] = []
    store = open_sessions(config)
    try:
        for one in store.forget_text(text):
            if one.done:
                place = f"sessions: {one.kind}"
                touched[place] = touched.get(place, 0) + one.count
            else:
                left.append(f"{one.place}: {one.why}")
    finally:
        close = getattr(store, "close", None)
        if close is not None:
            close()
    return touched, left


def forget_in_checkpoints(config: Config, text: str) -> dict[str, int]:
    """Take a text out of the checkpoints of conversations; how many threads held it."""
    if not (config.base / "checkpoints.db").exists():
        return {}
    from holdfast.agents.checkpoints import open_checkpoints

    kept = open_checkpoints(config.base)
    try:
        threads = kept.forget_text(text)
    finally:
        kept.close()
    return {"checkpoints: threads": len(threads)} if threads else {}
