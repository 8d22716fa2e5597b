"""The queue, its workers, the rates and the limits of models as plain values, for `holdfast sessions`, the API and its pages (W17, O4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.models.call_limits import limit_of
from holdfast.workers.model_limits import slots
from holdfast.workers.session_queue import SessionQueue

if TYPE_CHECKING:
    from holdfast.config.sections import Config
    from holdfast.harness import Harness


def queue_overview(harness: Harness) -> dict[str, Any] | None:
    """All of it, or None where nothing was ever queued. Costs a handful of queries, whatever the number of sessions."""
    queue = SessionQueue.find(harness.sessions)
    return None if queue is None else overview(queue, harness.config)


def overview(queue: SessionQueue, config: Config) -> dict[str, Any]:
    """`waiting`, `running`, `oldest_waiting_seconds`, `retried`, rates, and lists of `workers`, `schedules` and `models` with limits."""
    return {**queue.overview(), "models": models_in_use(queue, config)}


def models_in_use(queue: SessionQueue, config: Config) -> list[dict[str, Any]]:
    """Of each model that has limits: how many calls run now, and how many of this minute's are left at once."""
    found = []
    for limit in filter(None, map(limit_of, config.models)):
        running = left = None
        if limit.concurrent is not None:
            row = queue.database.one(queue.sql["slots_held"], [slots(queue.database.schema, limit)])
            running = int(row[0]) if row else 0
        if limit.per_minute is not None:
            row = queue.database.one(queue.sql["calls_left"], {"model": limit.model, "burst": limit.burst, "rate": limit.rate})
            left = round(float(row[0]), 1) if row else limit.burst
        found.append(
            {
                "model": limit.model,
                "running": running,
                "max_concurrent": limit.concurrent,
                "calls_left": left,
                "requests_per_minute": limit.per_minute,
            }
        )
    return found
