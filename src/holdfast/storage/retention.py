"""Removing what is too old or too much, by keys: what goes is decided by pure functions, and carried out here (A8, O7).

    for pruned in prune(backend, "sessions", now=clock.now(), older_than=timedelta(days=90), lease=lambda name: f"sessions/{name}"):
        print(pruned.name, pruned.why_kept or "removed")

A thing below a folder of keys is all that has its name: `sessions/trip.json` and everything below `sessions/trip/` are the thing `trip`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from holdfast.errors import Locked
from holdfast.storage.backend import Backend, Delete, Item

_ENDINGS = (".json", ".jsonl", ".md")


@dataclass(frozen=True)
class Thing:
    """What belongs together under one name. `modified` is the newest of its keys, in seconds since the epoch."""

    name: str
    keys: tuple[str, ...]
    modified: float
    size: int


@dataclass(frozen=True)
class Pruned:
    """What became of a thing that should go: removed, or kept and why."""

    name: str
    size: int = 0
    why_kept: str = ""


def things(items: Iterable[Item], folder: str) -> list[Thing]:
    """The things below a folder, from a list of its keys; the newest first."""
    found: dict[str, list[Item]] = {}
    for item in items:
        first, deeper, _ = item.key.removeprefix(f"{folder}/").partition("/")
        if not deeper:
            first = next((first.removesuffix(ending) for ending in _ENDINGS if first.endswith(ending)), first)
        found.setdefault(first, []).append(item)
    every = [
        Thing(name, tuple(item.key for item in own), max(item.modified for item in own), sum(item.size for item in own))
        for name, own in found.items()
    ]
    return sorted(every, key=lambda thing: (-thing.modified, thing.name))


def outdated(newest_first: Iterable[Thing], *, now: datetime, older_than: timedelta | None = None, keep: int | None = None) -> list[Thing]:
    """Those that should go: older than a span of time, or beyond the newest so many. Without either, none."""
    limit = None if older_than is None else (now - older_than).timestamp()
    return [
        thing
        for place, thing in enumerate(newest_first)
        if (limit is not None and thing.modified < limit) or (keep is not None and place >= keep)
    ]


def prune(
    backend: Backend,
    folder: str,
    *,
    now: datetime,
    older_than: timedelta | None = None,
    keep: int | None = None,
    wanted: Callable[[Thing], str | None] = lambda thing: None,
    lease: Callable[[str], str] | None = None,
    dry_run: bool = False,
) -> Iterator[Pruned]:
    """Remove what is outdated below a folder, and say of each what became of it.

    `wanted` gives the reason why a thing must stay all the same (a session that has not ended). `lease` names the lease that must be free
    and is held meanwhile. With `dry_run` nothing is removed.
    """
    for thing in outdated(things(backend.list(f"{folder}/"), folder), now=now, older_than=older_than, keep=keep):
        reason = wanted(thing)
        if reason is None:
            try:
                if not dry_run:
                    with backend.lease(lease(thing.name), holder="prune") if lease is not None else nullcontext():
                        remove(backend, folder, thing)
            except Locked as error:
                reason = f"it is in use by {error.owner or 'somebody else'}"
        yield Pruned(thing.name, thing.size, reason or "")


def remove(backend: Backend, folder: str, thing: Thing) -> None:
    """Remove a thing: the keys that have its name first, so that nobody sees half of it, then what is below it."""
    below = f"{folder}/{thing.name}/"
    own = [key for key in thing.keys if not key.startswith(below)]
    if own:
        backend.write(*(Delete(key) for key in own))
    backend.remove(below)


def prune_log(backend: Backend, key: str, keep: Callable[[Mapping[str, Any]], bool]) -> int:
    """Rewrite a log with the records that are to be kept, and say how many went. RevisionConflict if somebody appended meanwhile."""
    reading = backend.read(key)
    kept = [record for record in reading.records if keep(record)]
    if len(kept) < len(reading.records):
        backend.rewrite(key, kept, expect=reading.mark)
    return len(reading.records) - len(kept)
