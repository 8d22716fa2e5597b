"""Session files of older versions, brought to the current one in memory, one step for each version (O7).

Version 0 is the reference's file, which does not say a version. A file is rewritten in the current form at its next commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Document = dict[str, Any]


def _from_0(document: Document) -> Document:
    """The reference's file: it has no status, and its `current_stage` is the one that is to run."""
    completed = document.get("completed_stages") or []
    current = document.get("current_stage")
    waiting = current if isinstance(completed, list) and current not in completed else None
    stages = {name: {"status": "completed"} for name in completed if isinstance(name, str)} if isinstance(completed, list) else {}
    return {**document, "status": document.get("status", "ready"), "next_stage": document.get("next_stage", waiting)} | (
        {} if "stages" in document else {"stages": stages}
    )


STEPS: tuple[Callable[[Document], Document], ...] = (_from_0,)
"""`STEPS[n]` makes version n + 1 of version n. None of them raises, whatever a file holds: the reader names what does not fit."""


def upgraded(document: Mapping[str, Any], version: int) -> Document:
    """The document as the current version has it."""
    found = dict(document)
    for step in STEPS[version:]:
        found = step(found)
    return found
