"""Removing what is older than it is wanted: ended sessions, recovery points, threads of sub-agents, changes of memory (A8, O7).

What is removed is asked of the stores themselves, so it is found wherever the configuration keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.clock import stamp
from holdfast.errors import Locked

if TYPE_CHECKING:
    from holdfast.harness import Harness

_ENDED = ("completed", "cancelled")


@dataclass(frozen=True)
class Pruned:
    """What was removed, or would be: ids of sessions and of sub-agents' threads, counts of memory by place. `kept` are sessions in use."""

    sessions: tuple[str, ...] = ()
    recovery_points: int = 0
    kept: tuple[str, ...] = ()
    subagents: tuple[str, ...] = ()
    memory: Mapping[str, int] = field(default_factory=dict)


def prune(
    harness: Harness,
    *,
    session_days: int | None = None,
    subagent_days: int | None = None,
    recovery_points: int | None = None,
    memory_days: int | None = None,
    dry_run: bool = False,
) -> Pruned:
    """Remove ended sessions and sub-agents that were last used longer ago, and give their space back. Conversations are never removed.

    The days are those of `session.retain_days` (None keeps all) and `subagents.retain_days` where they are not given. With
    `recovery_points` the newest so many of each session stay; with `memory_days` older changes of memory, which can then no longer be
    undone, and conversations that it gave up. Facts stay. A dry run changes nothing.
    """
    config = harness.config
    days = session_days if session_days is not None else config.session.retain_days
    gone, removed, kept = _sessions(harness, days, recovery_points, dry_run=dry_run)
    agents = _subagents(harness, subagent_days if subagent_days is not None else config.subagents.retain_days, dry_run=dry_run)
    before = None if memory_days is None else stamp(harness.clock.now() - timedelta(days=memory_days))
    memory = {} if before is None else harness.memory.prune(before, dry_run=dry_run)
    return Pruned(tuple(gone), removed, tuple(kept), tuple(agents), memory)


def _sessions(harness: Harness, days: int | None, points: int | None, *, dry_run: bool) -> tuple[list[str], int, list[str]]:
    store = harness.sessions
    limit = stamp(harness.clock.now() - timedelta(days=days)) if days is not None else ""
    gone: list[str] = []
    kept: list[str] = []
    removed = 0
    for brief in store.list():
        if brief.problem is None and brief.status in _ENDED and brief.updated_at and brief.updated_at < limit:
            try:
                if not dry_run:
                    store.remove(brief.workflow_id)
                gone.append(brief.workflow_id)
            except Locked:
                kept.append(brief.workflow_id)
        elif points is not None and brief.problem is None and not dry_run:
            removed += store.prune_checkpoints(brief.workflow_id, keep=points)
    return gone, removed, kept


def _subagents(harness: Harness, days: int, *, dry_run: bool) -> list[str]:
    if not harness.has_checkpoints:
        return []
    from holdfast.agents.threads import prune_subagents  # LangChain, for who has held conversations

    now = harness.clock.now()
    if dry_run:
        return sorted(harness.threads.older_than(stamp(now - timedelta(days=days))))
    gone = prune_subagents(harness.threads, harness.archive, retain_days=days, now=now)
    harness.checkpoints.shrink()
    return gone
