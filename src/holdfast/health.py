"""What an installation is made of and what state it is in, for `holdfast doctor` and the API. Writes nothing but a probe file."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from holdfast import __version__
from holdfast.amounts import counted
from holdfast.config.checks import missing_variables
from holdfast.config.mcp_servers import all_servers
from holdfast.config.problems import all_errors
from holdfast.durable.database import open_plain
from holdfast.durable.probe import probe
from holdfast.durable.tree import Tree
from holdfast.errors import ConfigError, HoldfastError, StorageError
from holdfast.models.choice import pick
from holdfast.sandbox.bubblewrap import unavailable_because

if TYPE_CHECKING:
    from holdfast.config.sections import Config
    from holdfast.harness import Harness

State = Literal["good", "note", "bad"]
_PACKAGES = ("pydantic", "ruamel.yaml", "rs-bpe", "langchain", "langchain-core", "langgraph", "langchain-openai", "xllamacpp")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    about: str
    state: State
    text: str
    detail: Any = None


def examine(harness: Harness | ConfigError, *, whole: bool = True) -> list[Check]:
    """Versions, packages, configuration, model, base directory, stores, sandbox and disk. Without a configuration, what can be seen.

    Not `whole`, nothing is looked at of which there may be very many: each session, each database, each file.
    """
    found = [_versions(), *_packages()]
    if isinstance(harness, ConfigError):
        return [*found, *(Check("configuration", "bad", str(error)) for error in all_errors(harness)), _sandbox()]
    config = harness.config
    many: tuple[tuple[str, Callable[[], Iterable[Check]]], ...] = (
        ("threads", lambda: _threads(config)),
        ("sessions", lambda: _sessions(harness)),
        ("databases", lambda: _databases(config.base)),
        ("damaged files", lambda: _set_aside(config.base)),
    )
    parts: tuple[tuple[str, Callable[[], Iterable[Check]]], ...] = (
        ("configuration", lambda: [_configuration(config)]),
        ("model", lambda: [_model(config)]),
        ("base directory", lambda: [_base(config)]),
        ("memory", lambda: _memory(harness)),
        *(many if whole else ()),
        ("mcp", lambda: _mcp(harness)),
        ("sandbox", lambda: [_sandbox()]),
        ("disk", lambda: _disk(config.base)),
    )
    for about, look in parts:
        try:
            found += look()
        except (HoldfastError, OSError, sqlite3.Error) as error:  # one that cannot be looked at is a finding, and the rest is looked at
            found.append(Check(about, "bad", f"could not be looked at: {error}"))
    return found


def _versions() -> Check:
    python = platform.python_version()
    state: State = "good" if sys.version_info >= (3, 11) else "bad"
    where = "" if sys.platform == "linux" else " Linux is the full platform; what needs it is switched off here."
    return Check("versions", state, f"holdfast {__version__}, Python {python}, {platform.system()} {platform.release()}.{where}")


def _packages() -> list[Check]:
    found, missing = [], []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    findings = [Check("packages", "good", ", ".join(found))]
    if missing:
        findings.append(
            Check("packages", "note", f"not installed: {', '.join(missing)} (optional; `pip install 'holdfast[agents,local]'`)")
        )
    return findings


def _configuration(config: Config) -> Check:
    where = f"{config.file}, which {config.trust.reason}" if config.file else "no config.yaml, every setting is a default"
    if (told := config.trust.told(config.file)) is not None:
        return Check("configuration", "note", told)
    if not config.warnings:
        return Check("configuration", "good", where)
    return Check(
        "configuration",
        "note",
        f"{where}: {counted(len(config.warnings), 'notice')}, see `holdfast config check`",
    )


def _model(config: Config) -> Check:
    choice = pick(config)
    detail = [{"what": one.what, "usable": one.usable, "seen": one.seen} for one in choice.considered]
    used = dict(choice.config.fields()) if choice.config is not None else {}
    unset = dict.fromkeys(name for name, _, _ in missing_variables(used))
    if unset:
        told = f"{choice.why} It cannot be used: {' and '.join(unset)} {'is' if len(unset) == 1 else 'are'} not set in the environment."
        return Check("model", "note", told, detail)
    return Check("model", "good" if choice.name else "note", choice.why, detail)


def _base(config: Config) -> Check:
    base = config.base
    if not base.exists():
        parent = next(folder for folder in base.parents if folder.exists())
        if os.access(parent, os.W_OK):
            return Check("base directory", "note", f"{base} is not there yet; it is made when something is stored ({config.base_source}).")
        return Check("base directory", "bad", f"{base} cannot be made: {parent} is not writable. Set HOLDFAST_HOME to a folder that is.")
    if not base.is_dir():
        return Check("base directory", "bad", f"{base} is not a folder. Set HOLDFAST_HOME to one.")
    if not os.access(base, os.W_OK):
        return Check("base directory", "bad", f"{base} is not writable. Give yourself the right, or set HOLDFAST_HOME.")
    if os.name == "posix" and base.stat().st_mode & 0o077:
        told = f"{base} can be read by others: `chmod -R go-rwx {shlex.quote(str(base))}` closes it ({config.base_source})."
        return Check("base directory", "note", told)
    return Check("base directory", "good", f"{base} ({config.base_source})")


def _threads(config: Config) -> list[Check]:
    threads = config.base / "threads"
    if not threads.is_dir():
        return []
    return [Check("threads", "good", f"{sum(1 for folder in threads.iterdir() if folder.is_dir())} in {threads}")]


def _sessions(harness: Harness) -> list[Check]:
    """Sessions that cannot be read, and recovery points that cannot: nobody would look for those before they are needed."""
    if not (harness.base / "sessions").is_dir() and "session" not in harness.config.raw:
        return []
    found = []
    for brief in harness.sessions.list():
        told = [brief.problem] if brief.problem is not None else []
        told += [f"a recovery point may be lost: {text}" for text in harness.sessions.damage(brief.workflow_id)]
        found += [Check("sessions", "bad", f"{brief.workflow_id}: {text}") for text in told]
    return found


def _set_aside(base: Path) -> list[Check]:
    aside = sorted(path for path in _kept_files(base) if ".damaged-" in path.name)
    return [Check("damaged files", "note", f"{len(aside)} were set aside, the newest is {aside[-1]}")] if aside else []


def _kept_files(base: Path) -> Iterator[Path]:
    """The files of the base directory that are Holdfast's own: not what agents keep in their folders."""
    if base.is_dir():
        with Tree(base) as tree:
            inside = tree.walk({}, top_links=True, skip=lambda _, path: path.rpartition("/")[2] == "user-data")
            yield from (base / entry.path for entry in inside if entry.kind == "file")


def _databases(base: Path) -> list[Check]:
    """Whether SQLite finds each database of the base sound. An index that is made again by itself does not count."""
    found: list[Check] = []
    for path in sorted(path for path in _kept_files(base) if path.suffix == ".db"):
        try:
            with closing(open_plain(path)) as connection:
                (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        except (StorageError, sqlite3.Error) as error:
            said = str(error)
        if said != "ok":
            told = f"{path} is damaged ({said}). Put a copy from a backup in its place, or move it away to begin anew."
            found.append(Check("databases", "bad", told))
    return found


def _memory(harness: Harness) -> list[Check]:
    status, where = harness.memory.status(), harness.memory.store.where()
    counts = ", ".join(f"{name} {count}" for name, count in status.facts.items())
    said = f"facts: {counts}" if counts else "no facts yet"
    said += f"; conversations that wait to be learned from: {status.waiting}" if status.waiting else ""
    said += f"; facts that wait for `holdfast memory review`: {status.held}" if status.held else ""
    said += f"; kept in {where}" if status.storage.kind == "postgres" else ""
    findings = [Check("memory", "good", f"{said}{'' if status.enabled else ' (switched off)'}")]
    findings += [Check("memory", "note", f"set aside because it could not be read: {place}") for place in status.storage.set_aside]
    if status.given_up:
        findings.append(
            Check("memory", "note", f"{counted(status.given_up, 'conversation')} could not be learned from (`holdfast memory retry`)")
        )
    if status.storage.state != "good":
        findings.append(Check("memory", "bad", status.storage.message))
    return findings


def _mcp(harness: Harness) -> list[Check]:
    """Each MCP server with its tools. They are started for it: whether one works cannot be seen otherwise."""
    known = all_servers(harness.config)
    if not known.origins and not known.problems:
        return []
    findings = []
    for one in harness.mcp.states():
        if one.state == "there":
            findings.append(Check("mcp", "good", f"{one.name} ({one.where}): {', '.join(one.tools) or 'no tools'}", list(one.tools)))
        elif one.state == "off":
            findings.append(Check("mcp", "note", f"{one.name} is switched off"))
        else:
            findings.append(Check("mcp", "bad", f"{one.name}: {one.problem}"))
    return [*findings, *(Check("mcp", "bad", problem) for problem in harness.mcp.problems)]


def _sandbox() -> Check:
    reason = unavailable_because()  # tries it out: a bubblewrap that is installed may still be forbidden here
    if reason is not None:
        return Check("sandbox", "note", f"bash is off: {reason} (Debian: apt-get install bubblewrap)")
    return Check("sandbox", "good", f"commands run in bubblewrap ({shutil.which('bwrap')})")


def _disk(base: Path) -> list[Check]:
    place = next(folder for folder in (base, *base.parents) if folder.is_dir())
    found = probe(place)
    sync = f"fsync {found.fsync_ms:.2f} ms" if found.fsync_ms is not None else "fsync not measured"
    text = f"{found.file_system}, {sync}, {found.free_bytes / 2**30:.1f} GiB free, openat2 {'there' if found.openat2 else 'missing'}"
    findings = [Check("disk", "good", text, vars(found))]
    findings += [Check("disk", "note", doubt) for doubt in found.doubts]
    if found.free_bytes < 100 * 2**20:
        findings.append(Check("disk", "bad", "less than 100 MiB are free"))
    return findings
