"""`holdfast doctor`, `import`, `backup` and `prune`: look at an installation, take one over, copy it, keep it small."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast import deerflow as deerflow_files
from holdfast.app.commands.settings import agree_to_own
from holdfast.app.output import ALL_STATE, command, confirm, open_harness, plain, progress_of, prose, say, show, spans
from holdfast.config.loading import FILE_NAME, beside, policies_of
from holdfast.errors import ConfigError, InputError
from holdfast.validation import counted

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.backup import Backup
    from holdfast.forgetting import Pruned
    from holdfast.health import Check


app = typer.Typer(rich_markup_mode=None, add_completion=False)

_ROOM = 48  # columns that a finding needs beside its name; on a narrower terminal it stands below it
_MARKS = {"good": ("ok", "green"), "note": ("note", "yellow"), "bad": ("bad", "red")}


@command(app, epilog="Example: holdfast doctor --json")
def doctor() -> None:
    """Look at versions, configuration, model, base directory, sandbox, stores and disk. Exits with 1 when something is bad."""
    from holdfast.health import examine

    try:
        with open_harness() as harness:
            checks = examine(harness)
    except ConfigError as error:
        checks = examine(error)
    show([vars(check) for check in checks], lambda console: _draw_checks(console, checks))
    if any(check.state == "bad" for check in checks):
        raise typer.Exit(1)


def _draw_checks(console: Console, checks: list[Check]) -> None:
    wide = max(len(check.about) for check in checks)
    beside = not console.is_terminal or console.width - wide - 8 >= _ROOM
    for check in checks:
        word, colour = _MARKS[check.state]
        head = spans(plain(f"{word:<6}", colour), plain(f"{check.about:<{wide}}  ", "bold"))
        if beside:
            prose(console, check.text, mark=head)
        else:
            head.rstrip()
            prose(console, head)
            prose(console, check.text, mark="  ")


import_app = typer.Typer(
    help="Take over memory and configuration from another installation.",
    epilog="Example: holdfast import deerflow ~/deer-flow --dry-run",
    rich_markup_mode=None,
    add_completion=False,
)


@import_app.callback()
def take_over() -> None:
    """Take over memory and configuration from another installation."""


@command(import_app, epilog="Example: holdfast import deerflow ~/deer-flow --dry-run")
def deerflow(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Its folder: the one with config.yaml, or its .deer-flow folder.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be taken over and write nothing.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Also facts that were taken over before and removed here since.")] = False,
) -> None:
    """Take over memory (global, per agent, per user folder) and config from DeerFlow, without changing it.

    It can be done again: what is new there is merged in, what is known or was removed here stays as it is. As with `memory import` secrets
    are left out, which ends with 1, and orders wait in `memory review`.
    """
    with open_harness() as harness:
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
        "memory": [
            {"user": step.user, "agent": step.agent, "sources": step.sources, "target": step.where}
            | {name: getattr(step.effect, name) for name in ("added", "changed", "known", "left_out", "summaries")}
            | {"held": len(step.held), "refused": step.refused}
            for step in found.memory
        ],
        "unreadable": [{"file": path, "why": why} for path, why in found.unreadable],
        "notes": [*found.notes, *map(str, policies_of(found.config))],
    }
    show(value, lambda console: _draw_import(console, found, dry_run))
    if found.unreadable or any(step.refused for step in found.memory):
        raise typer.Exit(1)


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
        if step.held:
            waits = counted(len(step.held), "part waits", "parts wait") if not dry_run else f"{counted(len(step.held), 'part')} would wait"
            prose(console, f"  {waits} in quarantine: holdfast memory review", style="yellow")
        for one in step.refused:
            prose(console, plain(f"  {'would be left out' if dry_run else 'left out'}: {one}", "red"))
        if (facts := len(step.effect.document.facts)) > (limit := found.config.memory.max_facts):
            told = "What is put in stays and what is learned makes room: set memory.max_facts higher to keep more."
            prose(console, f"  {facts} of {limit} facts (memory.max_facts). {told}", style="yellow")
    for path, why in found.unreadable:
        prose(console, f"not taken over: {path}: {why}")
    for note in (*found.notes, *map(str, policies_of(found.config))):
        prose(console, note)
    for home in dict.fromkeys(step.home for step in found.memory if step.user):
        prose(console, f"A user's memory is used with HOLDFAST_HOME={shlex.quote(str(home))}")
    if not (found.files or any(step.effect.added or step.effect.changed or step.effect.summaries or step.held for step in found.memory)):
        prose(console, "There is nothing new to take over.")


@command(app, epilog="Example: holdfast backup --to ~/backups")
def backup(
    folder: Annotated[Path | None, typer.Argument(metavar="FOLDER", help="As --to.")] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="Where the copy is put, under a name with the time. Default: here.")
    ] = None,
) -> None:
    """Copy all state, as it is at one moment; `holdfast restore` puts it back. Exits with 1 when something could not be copied."""
    from holdfast.backup import back_up

    if folder is not None and to is not None:
        raise InputError(f"{folder} and --to {to} are two places for one copy.", hint="Give one of them.")
    with open_harness(*ALL_STATE) as harness:
        done = back_up(harness, (folder or to or Path()).expanduser())
    value: dict[str, Any] = {
        "path": str(done.copy.path),
        "files": len(done.copy.files),
        "bytes": done.copy.bytes,
        "complete": done.copy.complete,
        "left_out": dict(done.copy.left_out),
        "outside": dict(done.copy.outside),
        "elsewhere": done.elsewhere,
    }
    show(value, lambda console: _draw_backup(console, done))
    if not done.copy.complete:
        raise typer.Exit(1)


def _draw_backup(console: Console, done: Backup) -> None:
    prose(console, f"{counted(len(done.copy.files), 'file')}, {counted(done.copy.bytes, 'byte')}, in {done.copy.path}")
    for _, place in done.copy.outside:
        prose(console, plain(f"with {place}"))
    for name, why in done.copy.left_out:
        prose(console, plain(f"left out: {name} ({why})", "yellow"))
    for what in done.elsewhere:
        prose(console, f"not in it: {what}.", style="yellow")
    if done.elsewhere:
        prose(console, "Databases and servers have a backup of their own: use that too.")


@command(app, epilog="Example: holdfast restore ~/backups/holdfast-20261116T120000 --replace")
def restore(
    copy: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `holdfast backup` made.")],
    replace: Annotated[bool, typer.Option("--replace", help="Move what is in the base directory aside. Nothing is removed.")] = False,
) -> None:
    """Check every file of a backup and put it in the place of the base directory, in one step."""
    from holdfast.backup import put_back

    with open_harness(*ALL_STATE) as harness:
        done = put_back(harness, copy.expanduser(), replace=replace)
    before = str(done.before) if done.before else None
    value = {"path": str(done.path), "files": done.files, "before": before, "outside": dict(done.outside)}
    lines = [f"{counted(done.files, 'file was', 'files were')} checked and put back in {done.path}"]
    lines += [f"What was there is in {done.before}"] if done.before is not None else []
    say(value, "\n".join([*lines, *(f"{place}: {what}" for place, what in done.outside)]))


@command(app, epilog="Example: holdfast prune --dry-run --sessions 90")
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
) -> None:
    """Remove completed sessions and sub-agents that are too old, and give their space back. Conversations of yours are never removed.

    Says first how much would go, and asks.
    """
    from holdfast import forgetting

    wanted: dict[str, Any] = {"session_days": sessions, "subagent_days": subagents, "recovery_points": checkpoints, "memory_days": memory}
    with open_harness(*ALL_STATE) as harness:
        done = forgetting.prune(harness, **wanted, dry_run=True)
        if not dry_run:
            if much := _how_much(done):
                confirm(f"Remove {much}? This cannot be undone.", yes=yes)
            with progress_of("prune", "sessions") as told:
                done = forgetting.prune(harness, **wanted, told=told)
    value = {"dry_run": dry_run, **asdict(done)}
    show(value, lambda console: _draw_pruned(console, value))
    if done.unread:
        raise typer.Exit(1)


def _how_much(would: Pruned) -> str:
    """What a person is asked about, in words; empty if nothing would go but what killed processes left behind."""
    kinds = {
        "completed session": len(would.sessions),
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
