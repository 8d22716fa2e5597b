"""`holdfast doctor`, `import`, `backup` and `prune`: look at an installation, take one over, copy it, keep it small."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast import deerflow as deerflow_files
from holdfast.amounts import counted
from holdfast.app.commands.config import agree_to_own
from holdfast.app.output import ALL_STATE, ConfigOption, JsonOption, confirm, open_harness, plain, prose, show, spans
from holdfast.config.loading import FILE_NAME, beside
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.backup import Backup
    from holdfast.durable.copying import Restored
    from holdfast.health import Check
    from holdfast.retention import Pruned

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_MARKS = {"good": ("ok", "green"), "note": ("note", "yellow"), "bad": ("bad", "red")}


@app.command(epilog="Example: holdfast doctor --json")
def doctor(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Look at versions, configuration, model, base directory, sandbox, stores and disk. Exits with 1 when something is bad."""
    from holdfast.health import examine

    try:
        with open_harness(config) as harness:
            checks = examine(harness)
    except ConfigError as error:
        checks = examine(error)
    show([vars(check) for check in checks], lambda console: _draw_checks(console, checks), as_json=as_json)
    if any(check.state == "bad" for check in checks):
        raise typer.Exit(1)


def _draw_checks(console: Console, checks: list[Check]) -> None:
    wide = max(len(check.about) for check in checks)
    for check in checks:
        word, colour = _MARKS[check.state]
        prose(console, check.text, mark=spans(plain(f"{word:<6}", colour), plain(f"{check.about:<{wide}}  ", "bold")))


importing = typer.Typer(
    help="Take over memory and configuration from another installation.",
    epilog="Example: holdfast import deerflow ~/deer-flow --dry-run",
    rich_markup_mode=None,
    add_completion=False,
)
app.add_typer(importing, name="import")


@importing.callback()
def take_over() -> None:
    """Take over memory and configuration from another installation."""


@importing.command(epilog="Example: holdfast import deerflow ~/deer-flow --dry-run")
def deerflow(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Its folder: the one with config.yaml, or its .deer-flow folder.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be taken over and write nothing.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Also facts that were taken over before and removed here since.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take over memory (global, per agent, per user folder) and config from DeerFlow, without changing it.

    It can be done again: what is new there is merged in, what is known or was removed here stays as it is.
    """
    with open_harness(config) as harness:
        target = Path.cwd() / FILE_NAME
        found = deerflow_files.plan(folder.expanduser(), ours=harness.config, target=target, again=again)
        if not dry_run:
            there = beside(target.parent)
            found = deerflow_files.apply(found, clock=harness.clock)
            if any(file.target == target for file in found.files):
                found = dataclasses.replace(found, notes=(*found.notes, f"{target}: {agree_to_own(target, there)}"))
    value = {
        "source": found.source,
        "base": found.config.base,
        "written": not dry_run,
        "files": [{"kind": s.kind, "source": s.source, "target": s.target} for s in found.files],
        "memory": [_memory_record(step) for step in found.memory],
        "unreadable": [{"file": path, "why": why} for path, why in found.unreadable],
        "notes": found.notes,
    }
    show(value, lambda console: _draw_import(console, found, dry_run), as_json=as_json)
    if found.unreadable:
        raise typer.Exit(1)


def _memory_record(step: deerflow_files.MemoryStep) -> dict[str, Any]:
    effect = step.effect
    counts = {name: getattr(effect, name) for name in ("added", "changed", "known", "left_out", "summaries")}
    return {"user": step.user, "agent": step.agent, "sources": step.sources, "target": step.where, **counts}


def _draw_import(console: Console, found: deerflow_files.Plan, dry_run: bool) -> None:
    for file in found.files:
        prose(console, f"{'would write' if dry_run else 'wrote'} {file.target}")
        prose(console, f"  from {file.source}")
    for step in found.memory:
        whose = (f" of agent {step.agent}" if step.agent else "") + (f" of user {step.user}" if step.user else "")
        prose(console, f"memory{whose}: {step.effect}")
        for source in step.sources:
            prose(console, f"  from {source}")
        prose(console, f"  {'would be in' if dry_run else 'is in'} {step.where}")
    for path, why in found.unreadable:
        prose(console, f"not taken over: {path}: {why}")
    for note in found.notes:
        prose(console, note)
    for home in dict.fromkeys(step.home for step in found.memory if step.user):
        prose(console, f"A user's memory is used with HOLDFAST_HOME={shlex.quote(str(home))}")
    if not (found.files or any(step.effect.added or step.effect.changed or step.effect.summaries for step in found.memory)):
        prose(console, "There is nothing new to take over.")


@app.command(epilog="Example: holdfast backup --to ~/backups")
def backup(
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Where the copy is put, under a name with the time.")] = Path(),
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy all state, as it is at one moment; `holdfast restore` puts it back. Exits with 1 when something could not be copied."""
    from holdfast.backup import back_up

    with open_harness(config, *ALL_STATE) as harness:
        done = back_up(harness, to.expanduser())
    value: dict[str, Any] = {
        "path": str(done.copy.path),
        "files": len(done.copy.files),
        "bytes": done.copy.bytes,
        "complete": done.copy.complete,
        "left_out": dict(done.copy.left_out),
        "outside": dict(done.copy.outside),
        "elsewhere": done.elsewhere,
    }
    show(value, lambda console: _draw_backup(console, done), as_json=as_json)
    if not done.copy.complete:
        raise typer.Exit(1)


def _draw_backup(console: Console, done: Backup) -> None:
    prose(console, f"{counted(len(done.copy.files), 'file')}, {counted(done.copy.bytes, 'byte')}, in {done.copy.path}")
    for _, place in done.copy.outside:
        prose(console, plain(f"with {place}"))
    for name, why in done.copy.left_out:
        prose(console, plain(f"left out: {name} ({why})", "yellow"))
    for what in done.elsewhere:
        prose(console, f"not in it: {what}; use its own backup.", style="yellow")


@app.command(epilog="Example: holdfast restore ~/backups/holdfast-20261116T120000 --replace")
def restore(
    copy: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `holdfast backup` made.")],
    replace: Annotated[bool, typer.Option("--replace", help="Move what is in the base directory aside. Nothing is removed.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check every file of a backup and put it in the place of the base directory, in one step."""
    from holdfast.backup import put_back

    with open_harness(config, *ALL_STATE) as harness:
        done = put_back(harness, copy.expanduser(), replace=replace)
    before = str(done.before) if done.before else None
    value = {"path": str(done.path), "files": done.files, "before": before, "outside": dict(done.outside)}
    show(value, lambda console: _draw_restored(console, done), as_json=as_json)


def _draw_restored(console: Console, done: Restored) -> None:
    prose(console, plain(f"{counted(done.files, 'file was', 'files were')} checked and put back in {done.path}"))
    if done.before is not None:
        prose(console, plain(f"What was there is in {done.before}"))
    for place, what in done.outside:
        prose(console, plain(f"{place}: {what}"))


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
    memory: Annotated[
        int | None, typer.Option("--memory", min=0, metavar="DAYS", help="Memory's history, and conversations it gave up. Facts stay.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove ended sessions and sub-agents that are too old, and give their space back. Conversations of yours are never removed.

    Says first how much would go, and asks.
    """
    from holdfast import retention

    wanted: dict[str, Any] = {"session_days": sessions, "subagent_days": subagents, "recovery_points": checkpoints, "memory_days": memory}
    with open_harness(config, *ALL_STATE) as harness:
        done = retention.prune(harness, **wanted, dry_run=True)
        if not dry_run:
            if much := _how_much(done):
                confirm(f"Remove {much}? This cannot be undone.", yes=yes)
            done = retention.prune(harness, **wanted)
    value = {"dry_run": dry_run, **asdict(done)}
    show(value, lambda console: _draw_pruned(console, value), as_json=as_json)
    if done.unread:
        raise typer.Exit(1)


def _how_much(would: Pruned) -> str:
    """What a person is asked about, in words; empty if nothing would go but what killed processes left behind."""
    kinds = {
        "ended session": len(would.sessions),
        "recovery point": would.recovery_points,
        "thread of sub-agents": len(would.subagents),
        "entry of memory's history": sum(would.memory.values()),
    }
    many = {"thread of sub-agents": "threads of sub-agents", "entry of memory's history": "entries of memory's history"}
    named = [counted(number, kind, many.get(kind)) for kind, number in kinds.items() if number]
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def _draw_pruned(console: Console, value: dict[str, Any]) -> None:
    would = "would go" if value["dry_run"] else "removed"
    for what, names in (("session", value["sessions"]), ("sub-agent", value["subagents"])):
        prose(console, f"{counted(len(names), what)} {would}" + (f": {', '.join(names[:10])}" if names else "."))
    if value["recovery_points"]:
        prose(console, f"{counted(value['recovery_points'], 'recovery point')} {would}.")
    for place, count in value["memory"].items():
        prose(console, f"memory, {place}: {count} {would}.")
    if value["leftovers"]:
        prose(console, f"{counted(len(value['leftovers']), 'leftover')} of killed processes {would}.")
    for name in value["kept"]:
        prose(console, f"{name} stays: somebody runs it.")
    for place, why in value["unread"].items():
        prose(console, f"not looked at: {place} ({why})")
