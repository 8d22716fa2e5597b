"""A sound copy of all state while everything goes on running, and what such a copy cannot reach (O7)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.durable.copying import Copy, copy_live
from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.config.sections import Config
    from holdfast.harness import Harness


@dataclass(frozen=True)
class Backup:
    """The copy, and what the configuration keeps outside the base directory: no copy of ours reaches that."""

    copy: Copy
    elsewhere: tuple[str, ...] = ()


def back_up(harness: Harness, to: Path) -> Backup:
    """Copy the base directory, as it is at one moment, into a new folder below `to` that is named by the time."""
    if not harness.base.is_dir():
        raise InputError(f"there is no base directory {harness.base} yet, so there is nothing to copy.")
    copied = copy_live(harness.base, to / f"holdfast-{harness.clock.now():%Y%m%dT%H%M%S}")
    return Backup(copied, tuple(_elsewhere(harness.config)))


def _elsewhere(config: Config) -> list[str]:
    found = []
    if config.memory.dsn:
        found.append("memory is in PostgreSQL")
    if config.session.storage_backend == "postgresql":
        found.append("sessions are in PostgreSQL")
    if config.knowledge.adapter in ("postgres", "mcp"):
        found.append("knowledge is in PostgreSQL" if config.knowledge.adapter == "postgres" else "knowledge is kept by an MCP server")
    kept = (
        ("memory is in", config.memory.storage_path),
        ("sessions are in", config.session.path),
        ("session files are in", config.memory.session_memory.path),
        ("knowledge is in", config.knowledge.path),
    )
    for what, path in kept:
        place = (config.base / Path(path).expanduser()).absolute() if path else config.base.absolute()
        if not place.resolve().is_relative_to(config.base.resolve()):
            found.append(f"{what} {place}")
    return found
