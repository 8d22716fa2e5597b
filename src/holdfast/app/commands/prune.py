"""`holdfast prune`: remove what is older than the configuration wants it kept (A8, O7)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.app.logs import open_config
from holdfast.app.output import ConfigOption, JsonOption, show
from holdfast.clock import SystemClock, stamp
from holdfast.errors import Locked

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.config.sections import Config

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog="Example: holdfast prune --dry-run --sessions 90")
def prune(
    sessions: Annotated[
        int | None, typer.Option("--sessions", min=0, metavar="DAYS", help="Ended sessions. Default: session.retain_days; else all stay.")
    ] = None,
    subagents: Annotated[
        int | None, typer.Option("--subagents", min=0, metavar="DAYS", help="Threads of sub-agents. Default: subagents.retain_days.")
    ] = None,
    checkpoints: Annotated[
        int | None, typer.Option("--recovery-points", min=1, metavar="N", help="Keep the newest N recovery points of each session.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove ended sessions and sub-agents that are too old, and give their space back. Conversations of yours are never removed."""
    loaded = open_config(config)
    days = sessions if sessions is not None else loaded.session.retain_days
    value: dict[str, Any] = {"dry_run": dry_run, **_sessions(loaded, days, checkpoints, dry_run=dry_run)}
    value["subagents"] = _subagents(loaded, subagents if subagents is not None else loaded.subagents.retain_days, dry_run=dry_run)
    show(value, lambda console: _draw(console, value), as_json=as_json)


def _sessions(config: Config, days: int | None, points: int | None, *, dry_run: bool) -> dict[str, Any]:
    if config.session.storage_backend == "file" and not (config.base / "sessions").exists():
        return {"sessions": [], "recovery_points": 0, "kept": []}
    from holdfast.session.opening import open_sessions

    store = open_sessions(config)
    limit = stamp(SystemClock().now() - timedelta(days=days)) if days is not None else ""
    gone: list[str] = []
    kept: list[str] = []
    removed = 0
    try:
        for brief in store.list():
            if brief.problem is None and brief.status in ("completed", "cancelled") and brief.updated_at and brief.updated_at < limit:
                try:
                    if not dry_run:
                        store.remove(brief.workflow_id)
                    gone.append(brief.workflow_id)
                except Locked:
                    kept.append(brief.workflow_id)
            elif points is not None and brief.problem is None and not dry_run:
                removed += store.prune_checkpoints(brief.workflow_id, keep=points)
    finally:
        close = getattr(store, "close", None)
        if close is not None:
            close()
    return {"sessions": gone, "recovery_points": removed, "kept": kept}


def _subagents(config: Config, days: int, *, dry_run: bool) -> list[str]:
    if not (config.base / "checkpoints.db").exists():
        return []
    from holdfast.agents.checkpoints import open_checkpoints
    from holdfast.agents.subagents.pruning import prune_subagents
    from holdfast.agents.threads import Threads
    from holdfast.context.archive import FileArchive

    kept, archive, now = open_checkpoints(config.base), FileArchive(config.base), SystemClock().now()
    try:
        threads = Threads(config.base, kept, archive)
        if dry_run:
            return sorted(threads.older_than(stamp(now - timedelta(days=days))))
        gone = prune_subagents(threads, archive, retain_days=days, now=now)
        kept.shrink()
        return gone
    finally:
        archive.close()
        kept.close()


def _draw(console: Console, value: dict[str, Any]) -> None:
    would = "would go" if value["dry_run"] else "removed"
    for what, names in (("sessions", value["sessions"]), ("sub-agents", value["subagents"])):
        console.print(f"{len(names)} {what} {would}" + (f": {', '.join(names[:10])}" if names else "."), markup=False, soft_wrap=True)
    if value["recovery_points"]:
        console.print(f"{value['recovery_points']} recovery points {would}.")
    for name in value["kept"]:
        console.print(f"{name} stays: somebody runs it.", markup=False)
