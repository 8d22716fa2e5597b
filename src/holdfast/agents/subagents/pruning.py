"""Old threads of sub-agents are removed after `subagents.retain_days` (A8)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.agents.threads import is_subagent
from holdfast.clock import stamp

if TYPE_CHECKING:
    from holdfast.agents.threads import Threads
    from holdfast.context.archive import FileArchive


def prune_subagents(threads: Threads, archive: FileArchive, *, retain_days: int, now: datetime) -> list[str]:
    """Remove those that were last used longer ago, with their checkpoints, archive and files. Says which."""
    limit = stamp(now - timedelta(days=retain_days))
    old = set(threads.older_than(limit))
    listed = {info.id for info in threads.all(subagents=True)}
    for name in archive.threads():  # of one that was never listed only the archive may be left
        if is_subagent(name) and name not in listed and (last := archive.stats(name).last) and last < limit:
            old.add(name)
    return threads.delete(sorted(old)) if old else []
