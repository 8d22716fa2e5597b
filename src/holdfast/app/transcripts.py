"""How much was said in each conversation: what left the window, which is in the archive, and what is still in it (S9)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.context.archive import Stats

if TYPE_CHECKING:
    from holdfast.harness import Harness


def all_stats(harness: Harness) -> list[Stats]:
    """Every conversation, the one with the newest message first; messages in the window count as well."""
    archive = harness.archive
    found = {name: archive.stats(name) for name in archive.threads()}
    for info in harness.threads.all(subagents=True) if harness.has_checkpoints else ():
        stats = found.get(info.id) or archive.stats(info.id)
        inside = len(harness.threads.only_in_window(info.id))
        if stats.messages + inside:
            first, last = stats.first or info.created, max(stats.last, info.updated)
            found[info.id] = replace(stats, messages=stats.messages + inside, first=first, last=last)
    return sorted(found.values(), key=lambda stats: stats.last, reverse=True)
