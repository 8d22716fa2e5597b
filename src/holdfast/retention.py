"""Removing what is older than it is wanted: ended sessions, recovery points, threads of sub-agents, changes of memory (A8, O7).

What is removed is asked of the stores themselves, so it is found wherever the configuration keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.clock import stamp
from holdfast.durable.folder import remove_tree
from holdfast.durable.replace import is_temp
from holdfast.errors import Locked
from holdfast.leftovers import is_in_use, leftovers

if TYPE_CHECKING:
    from holdfast.harness import Harness

_ENDED = ("completed", "cancelled")
_LEFT_BEHIND = 3600.0  # seconds: what is written takes milliseconds, so what is older belongs to nobody


@dataclass(frozen=True)
class Pruned:
    """What was removed, or would be: ids of sessions and of sub-agents' threads, counts of memory by place. `kept` are sessions in use."""

    sessions: tuple[str, ...] = ()
    recovery_points: int = 0
    kept: tuple[str, ...] = ()
    subagents: tuple[str, ...] = ()
    memory: Mapping[str, int] = field(default_factory=dict)
    leftovers: tuple[str, ...] = ()
    """What killed writers and removals left behind: paths, and ids of sessions."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Places that could not be looked at, and why."""


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
    unread: dict[str, str] = {}
    left = [*_half_removed(harness, dry_run=dry_run), *_temporary(harness, unread, dry_run=dry_run)]
    return Pruned(tuple(gone), removed, tuple(kept), tuple(agents), memory, tuple(left), unread)


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
        elif points is not None and brief.problem is None:
            would = max(0, len(store.checkpoints(brief.workflow_id)) - points) if dry_run else 0
            removed += would if dry_run else store.prune_checkpoints(brief.workflow_id, keep=points)
    return gone, removed, kept


def _half_removed(harness: Harness, *, dry_run: bool) -> Iterator[str]:
    """Sessions whose removing was killed half-way: there is no session of that id, and nobody wrote to what is left for an hour.

    An id that was given out and has no session yet is none.
    """
    store, hour_ago = harness.sessions, harness.clock.now().timestamp() - _LEFT_BEHIND
    for workflow_id in store.ids():
        if not store.exists(workflow_id):
            items = [item for place in store.backends() for item in place.list(f"{store.prefix}/{workflow_id}/")]
            if items and max(item.modified for item in items) < hour_ago and store.owner(workflow_id) is None:
                if not dry_run:
                    store.remove_rest(workflow_id)
                yield workflow_id


def _temporary(harness: Harness, unread: dict[str, str], *, dry_run: bool) -> Iterator[str]:
    """Files and folders that were never put in their place, and that nobody wrote to for an hour."""
    hour_ago = harness.clock.now().timestamp() - _LEFT_BEHIND
    for path in leftovers(harness, unread):
        try:
            if is_temp(path.name) and path.stat().st_mtime < hour_ago and not (path.is_dir() and is_in_use(path)):
                if not dry_run:
                    remove_tree(path) if path.is_dir() else path.unlink()
                yield str(path)
        except FileNotFoundError:
            continue  # its writer came to its end after all
        except OSError as error:
            unread[str(path)] = error.strerror or str(error)


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
