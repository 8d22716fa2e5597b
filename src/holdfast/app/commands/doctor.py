"""`holdfast doctor`: what this installation is made of and what state it is in. Looks, and changes nothing but a probe file."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from holdfast import __version__
from holdfast.app.logs import open_config
from holdfast.app.output import ConfigOption, JsonOption, show
from holdfast.config.sections import Config
from holdfast.durable.probe import probe
from holdfast.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(rich_markup_mode=None, add_completion=False)

State = Literal["good", "note", "bad"]
_MARKS = {"good": "[green]ok[/]  ", "note": "[yellow]note[/]", "bad": "[red]bad[/] "}
_PACKAGES = ("pydantic", "ruamel.yaml", "rs-bpe", "langchain", "langchain-core", "langgraph", "langchain-openai", "xllamacpp")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    about: str
    state: State
    text: str
    detail: Any = None


@app.command(epilog="Example: holdfast doctor --json")
def doctor(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Look at versions, configuration, model, base directory, sandbox, stores and disk. Exits with 1 when something is bad."""
    findings = [_versions(), *_packages()]
    try:
        loaded: Config | None = open_config(config)
    except ConfigError as error:
        loaded = None
        findings.append(Finding("configuration", "bad", str(error)))
    if loaded is not None:
        findings += [_configuration(loaded), _model(loaded), _base(loaded), *_stores(loaded)]
    findings += [_sandbox(), *(_disk(loaded.base) if loaded else ())]
    show([vars(finding) for finding in findings], lambda console: _draw(console, findings), as_json=as_json)
    if any(finding.state == "bad" for finding in findings):
        raise typer.Exit(1)


def _draw(console: Console, findings: list[Finding]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("state", "about", "text"):
        table.add_column(column, overflow="fold", no_wrap=column != "text")
    for finding in findings:
        table.add_row(_MARKS[finding.state], f"[bold]{escape(finding.about)}[/]", escape(finding.text))
    console.print(table)


def _versions() -> Finding:
    python = platform.python_version()
    state: State = "good" if sys.version_info >= (3, 11) else "bad"
    where = "" if sys.platform == "linux" else " Linux is the full platform; what needs it is switched off here."
    return Finding("versions", state, f"holdfast {__version__}, Python {python}, {platform.system()} {platform.release()}.{where}")


def _packages() -> list[Finding]:
    found, missing = [], []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    findings = [Finding("packages", "good", ", ".join(found))]
    if missing:
        findings.append(
            Finding("packages", "note", f"not installed: {', '.join(missing)} (optional; `pip install 'holdfast[agents,local]'`)")
        )
    return findings


def _configuration(config: Config) -> Finding:
    where = str(config.file) if config.file else "no config.yaml, every setting is a default"
    if not config.warnings:
        return Finding("configuration", "good", where)
    return Finding("configuration", "note", f"{where}: {len(config.warnings)} notices, see `holdfast config check`")


def _model(config: Config) -> Finding:
    from holdfast.models.choice import pick

    choice = pick(config)
    detail = [{"what": one.what, "usable": one.usable, "seen": one.seen} for one in choice.considered]
    return Finding("model", "good" if choice.name else "note", choice.why, detail)


def _base(config: Config) -> Finding:
    base = config.base
    if not base.exists():
        parent = next(folder for folder in base.parents if folder.exists())
        if os.access(parent, os.W_OK):
            return Finding(
                "base directory", "note", f"{base} is not there yet; it is made when something is stored ({config.base_source})."
            )
        return Finding("base directory", "bad", f"{base} cannot be made: {parent} is not writable. Set HOLDFAST_HOME to a folder that is.")
    if not base.is_dir():
        return Finding("base directory", "bad", f"{base} is not a folder. Set HOLDFAST_HOME to one.")
    if not os.access(base, os.W_OK):
        return Finding("base directory", "bad", f"{base} is not writable. Give yourself the right, or set HOLDFAST_HOME.")
    return Finding("base directory", "good", f"{base} ({config.base_source})")


def _stores(config: Config) -> list[Finding]:
    findings = _memory(config)
    threads = config.base / "threads"
    if threads.is_dir():
        findings.append(Finding("threads", "good", f"{sum(1 for folder in threads.iterdir() if folder.is_dir())} in {threads}"))
    aside = sorted(config.base.rglob("*.damaged-*")) if config.base.is_dir() else []
    if aside:
        findings.append(Finding("damaged files", "note", f"{len(aside)} were set aside, the newest is {aside[-1]}"))
    return findings


def _memory(config: Config) -> list[Finding]:
    from holdfast.memory.service import MemoryService

    try:
        with MemoryService.open(config) as memory:
            status, where = memory.status(), memory.store.where()
    except (StorageError, ConfigError) as error:
        return [Finding("memory", "bad", str(error))]
    counts = ", ".join(f"{name} {count}" for name, count in status.facts.items())
    said = f"facts: {counts}" if counts else "no facts yet"
    said += f"; {status.waiting} conversations wait to be learned from" if status.waiting else ""
    said += f"; {status.held} facts wait for `holdfast memory review`" if status.held else ""
    said += f"; kept in {where}" if status.storage.kind == "postgres" else ""
    findings = [Finding("memory", "good", f"{said}{'' if status.enabled else ' (switched off)'}")]
    findings += [Finding("memory", "note", f"set aside because it could not be read: {place}") for place in status.storage.set_aside]
    if status.given_up:
        findings.append(Finding("memory", "note", f"{status.given_up} conversations could not be learned from (`holdfast memory retry`)"))
    if status.storage.state != "good":
        findings.append(Finding("memory", "bad", status.storage.message))
    return findings


def _sandbox() -> Finding:
    from holdfast.sandbox.bubblewrap import unavailable_because

    reason = unavailable_because()  # tries it out: a bubblewrap that is installed may still be forbidden here
    if reason is not None:
        return Finding("sandbox", "note", f"bash is off: {reason} (Debian: apt-get install bubblewrap)")
    return Finding("sandbox", "good", f"commands run in bubblewrap ({shutil.which('bwrap')})")


def _disk(base: Path) -> list[Finding]:
    place = next(folder for folder in (base, *base.parents) if folder.is_dir())
    found = probe(place)
    sync = f"fsync {found.fsync_ms:.2f} ms" if found.fsync_ms is not None else "fsync not measured"
    text = f"{found.file_system}, {sync}, {found.free_bytes / 2**30:.1f} GiB free, openat2 {'there' if found.openat2 else 'missing'}"
    findings = [Finding("disk", "good", text, vars(found))]
    findings += [Finding("disk", "note", doubt) for doubt in found.doubts]
    if found.free_bytes < 100 * 2**20:
        findings.append(Finding("disk", "bad", "less than 100 MiB are free"))
    return findings
