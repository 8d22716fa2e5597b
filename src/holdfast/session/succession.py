"""States that follow from others without a run: a recovery point made current again, a session forked from another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from holdfast.session.state import Session


def restored(then: Session) -> Session:
    """A kept state as one to go on from: nobody runs it now, whatever it says."""
    return replace(then, status="ready") if then.status == "running" else then


def forked(origin: Session, new_id: str, checkpoint: str | None, at: str) -> Session:
    """A state as the first one of a new session, which knows where it comes from."""
    lineage: dict[str, Any] = {"from": origin.workflow_id, "checkpoint": checkpoint, "revision": origin.revision, "at": at}
    if origin.lineage is not None:
        lineage["earlier"] = dict(origin.lineage)
    return replace(restored(origin), workflow_id=new_id, lineage=lineage, created_at=at, updated_at=at, revision=0, mark=None)


def spare_name(taken: Iterable[str], stem: str = "before-restore") -> str:
    """A name for a recovery point that none has: `before-restore-001`.

    >>> spare_name(["before-restore-001"])
    'before-restore-002'
    """
    names = set(taken)
    number = 1
    while f"{stem}-{number:03d}" in names:
        number += 1
    return f"{stem}-{number:03d}"
