"""What an installation is made of and what state it is in, for `holdfast doctor` and the API. Writes nothing but a probe file."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import shutil
import socket
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from holdfast import __version__
from holdfast.config.checks import missing_variables
from holdfast.config.section import all_errors
from holdfast.config.tool_sections import all_servers
from holdfast.durable import disk
from holdfast.durable.beneath import Tree, openat2_works
from holdfast.durable.database import open_plain
from holdfast.durable.disk import REAL, write_all
from holdfast.durable.replace import temp_name
from holdfast.errors import ConfigError, HoldfastError, NotWritable, StorageError
from holdfast.models.choice import pick
from holdfast.models.factory import side_choice
from holdfast.models.providers import LLAMA_CPP, is_loopback
from holdfast.sandbox.bubblewrap import unavailable_because
from holdfast.sandbox.local import check_sandbox
from holdfast.validation import counted

if TYPE_CHECKING:
    from holdfast.config.sections import Config
    from holdfast.harness import Harness


State = Literal["good", "note", "bad"]
_PATIENCE = 1.0  # seconds for a server on this machine
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
        return [*found, *(Check("configuration", "bad", str(error)) for error in all_errors(harness)), _bubblewrap()]
    config = harness.config
    many: tuple[tuple[str, Callable[[], Iterable[Check]]], ...] = (
        ("threads", lambda: _threads(config)),
        ("sessions", lambda: _sessions(harness)),
        ("queue", lambda: _queue(harness)),
        ("databases", lambda: _databases(config.base)),
        ("damaged files", lambda: _set_aside(config.base)),
    )
    parts: tuple[tuple[str, Callable[[], Iterable[Check]]], ...] = (
        ("configuration", lambda: [_configuration(config)]),
        ("model", lambda: [_model(config), *_side_model(config)]),
        ("base directory", lambda: [_base(config)]),
        ("memory", lambda: _memory(harness)),
        ("knowledge", lambda: _knowledge(harness)),
        *(many if whole else ()),
        ("search", _search),
        ("mcp", lambda: _mcp(harness)),
        ("sandbox", lambda: _sandbox(config)),
        ("disk", lambda: _disk(config.base)),
    )
    for about, look in parts:
        try:
            found += look()
        except Exception as error:  # noqa: BLE001 - whatever a store raises, also one of somebody's own, is a finding; the rest is looked at
            told = error if isinstance(error, HoldfastError | OSError | sqlite3.Error) else f"{type(error).__name__}: {error}"
            found.append(Check(about, "bad", f"could not be looked at: {told}"))
    return found


def _versions() -> Check:
    python = platform.python_version()
    state: State = "good" if sys.version_info >= (3, 11) else "bad"
    where = "" if sys.platform == "linux" else " Linux is the full platform; what needs it is switched off here."
    return Check("versions", state, f"holdfast {__version__}, Python {python}, {platform.system()} {platform.release()}.{where}")


def _search() -> list[Check]:
    """Whether records are searched by meaning: said here, and not before every answer."""
    if all(find_spec(name) is not None for name in ("onnxruntime", "tokenizers")):
        return []
    return [Check("search", "note", "by keywords alone; `pip install 'holdfast[vectors]'` adds search by meaning")]


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
    return Check("configuration", "note", f"{where}: {counted(len(config.warnings), 'notice')}, see `holdfast config check`")


def _model(config: Config) -> Check:
    choice = pick(config)
    detail = [{"what": one.what, "usable": one.usable, "seen": one.seen} for one in choice.considered]
    used = dict(choice.config.fields()) if choice.config is not None else {}
    unset = dict.fromkeys(name for name, _, _ in missing_variables(used))
    if unset:
        told = f"{choice.why} It cannot be used: {' and '.join(unset)} {'is' if len(unset) == 1 else 'are'} not set in the environment."
        return Check("model", "note", told, detail)
    reached = choice.config is not None and choice.config.path is None and choice.config.use != LLAMA_CPP
    silent = _silent(used.get("base_url")) if reached else ""
    if silent is None:
        return Check("model", "good", f"{choice.why} It was not asked: `holdfast models test` does.", detail)
    if silent:
        return Check("model", "note", f"{choice.why} {silent}", detail)
    return Check("model", "good" if choice.name else "note", choice.why, detail)


def _side_model(config: Config) -> list[Check]:
    """Why another model than the preferred one writes summaries and learns, where it does (S14)."""
    if config.summarization.model_name and config.memory.model_name:
        return []
    told = side_choice(config).passed_over
    return [Check("model", "note", f"{told}.")] if told else []


def _silent(address: object) -> str | None:
    """Why the server at an address of this machine cannot be reached; empty where it can. None for any other: asking could take long."""
    try:
        parts = urlsplit(address) if isinstance(address, str) else None
        port = (parts.port or (443 if parts.scheme == "https" else 80)) if parts is not None else 0
    except ValueError:
        parts = None
    if parts is None or parts.hostname is None or not is_loopback(parts.hostname):
        return None
    try:
        socket.create_connection((parts.hostname, port), _PATIENCE).close()
    except OSError as error:
        return f"Nothing answers at {parts.hostname}, port {port} ({error.strerror or error}): is its server running?"
    return ""


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
    aside = sorted(path for path in _kept_files(base) if ".damaged-" in path.name and path.suffix != ".lock")
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
    limit = harness.config.memory.max_facts
    counts = ", ".join(f"{name} {count}" + (f" of {limit} (memory.max_facts)" * (count > limit)) for name, count in status.facts.items())
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


def _knowledge(harness: Harness) -> list[Check]:
    """Whether a store that somebody configured can be searched: one that needs something that is missing says it only then."""
    section = harness.config.knowledge
    if not section.model_fields_set and harness.config.session.vector_store is None:
        return []
    with closing(harness.open_knowledge()) as store:
        store.search("holdfast", top_k=1)
        return [Check("knowledge", "good", f"{counted(store.stats().records, 'record')} ({section.adapter})")]


def _queue(harness: Harness) -> list[Check]:
    """The queue of sessions and who works at it, where there is one."""
    from holdfast.workers.session_queue import SessionQueue

    queue = SessionQueue.find(harness.sessions) if "session" in harness.config.raw else None
    if queue is None:
        return []
    found = queue.overview()
    told = f"{found['waiting']} waiting, {found['running']} running; {counted(len(found['workers']), 'worker')}"
    stuck = found["waiting"] and not found["workers"]
    return [Check("queue", "note" if stuck else "good", f"{told}{': start one with `holdfast worker`' if stuck else ''}")]


def _mcp(harness: Harness) -> list[Check]:
    """Each MCP server with its tools. They are started for it: whether one works cannot be seen otherwise."""
    known = all_servers(harness.config)
    if not known.origins and not known.problems:
        return []
    findings = [Check("mcp", "note", note) for note in known.notes]
    for one in harness.mcp.states():
        if one.state == "there":
            findings.append(Check("mcp", "good", f"{one.name} ({one.where}): {', '.join(one.tools) or 'no tools'}", list(one.tools)))
        elif one.state == "off":
            findings.append(Check("mcp", "note", f"{one.name} is switched off"))
        else:
            findings.append(Check("mcp", "bad", f"{one.name}: {one.problem}"))
    return [*findings, *(Check("mcp", "bad", problem) for problem in harness.mcp.problems)]


def _sandbox(config: Config) -> list[Check]:
    """The sandbox that is configured, and the folders that are to be seen in it."""
    settings = config.sandbox
    missing = [str(host) for mount in settings.mounts if not (host := config.beside(mount.host_path)).is_dir()]
    found = [Check("sandbox", "bad", f"every command fails: {', '.join(missing)} is not a folder (sandbox.mounts)")] if missing else []
    try:
        own = check_sandbox(config)
    except ConfigError as error:
        return [*found, Check("sandbox", "bad", str(error))]
    if own is not None:
        return [*found, Check("sandbox", "good", f"commands run in {own} (sandbox.use); what it holds off is its own affair")]
    if settings.allow_host_bash:
        told = "commands run on this machine, as you, where bubblewrap is not there (sandbox.allow_host_bash)"
        return [*found, Check("sandbox", "note", told)] if unavailable_because() else [*found, _bubblewrap()]
    return [*found, _bubblewrap()]


def _bubblewrap() -> Check:
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


# What the disk of a folder can promise, measured


_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "afs", "ceph"})
_ROUNDS = 5
_TOO_FAST_MS = 0.015  # a stubbed fsync takes 0.006 ms; the quickest drives with a protected cache take several times this


@dataclass(frozen=True)
class Probe:
    """What was found. `doubts` says in words why a write here may not survive; without any, the promises hold."""

    folder: str
    file_system: str
    writable: bool
    fsync_ms: float | None
    fsync_stubbed: bool
    free_bytes: int
    openat2: bool
    file_locks: bool
    doubts: tuple[str, ...]


def probe(folder: str | PathLike[str]) -> Probe:
    """Look at the disk under `folder`, which must exist, and time a few syncs of a small file in it."""
    place = REAL.resolve(os.fspath(folder))
    space = os.statvfs(place)
    kind = _file_system(place)
    doubts: list[str] = []
    sync_ms: float | None = None
    try:
        sync_ms = _time_sync(place)
    except (StorageError, OSError) as error:
        doubts.append(f"not writable: {error}")
    stubbed = _stub_reasons(kind, sync_ms)
    doubts += stubbed
    if kind in _REMOTE:
        doubts.append(f"{kind} is a network file system: locks and syncs are only as good as the server's.")
    locks = find_spec("fcntl") is not None
    if not locks:
        doubts.append("no flock on this platform: a process that dies while it holds a lock leaves the lock behind.")
    return Probe(
        folder=place,
        file_system=kind,
        writable=sync_ms is not None,
        fsync_ms=sync_ms,
        fsync_stubbed=bool(stubbed),
        free_bytes=space.f_bavail * space.f_frsize,
        openat2=openat2_works(),
        file_locks=locks,
        doubts=tuple(doubts),
    )


def check_writable(folder: str | PathLike[str], on: disk.Disk = REAL) -> None:
    """Write a small file into the folder and remove it. Raises the error that any other write would meet there: DiskFull, NotWritable."""
    path = str(Path(folder) / temp_name())
    try:
        created = on.create(path)
    except FileNotFoundError as error:
        told = f"there is no folder {folder}: was it unmounted or moved?"
        raise NotWritable(told, path=str(folder), operation="write", hint="Put it back, or name another one.") from error
    with disk.closing(on, created) as handle:
        try:
            write_all(on, handle, b"\0" * 4096)
            on.sync(handle)
        finally:
            on.unlink(path)


def _time_sync(place: str) -> float:
    """The median of a few syncs, each after a write, in milliseconds."""
    path = str(Path(place) / temp_name())
    times = []
    with disk.closing(REAL, REAL.create(path)) as handle:
        try:
            for _ in range(_ROUNDS):
                write_all(REAL, handle, b"\0" * 512)
                begin = time.perf_counter()
                REAL.sync(handle)
                times.append((time.perf_counter() - begin) * 1000)
        finally:
            REAL.unlink(path)
    return round(sorted(times)[_ROUNDS // 2], 4)


def _stub_reasons(kind: str, sync_ms: float | None) -> list[str]:
    reasons = []
    if kind in _IN_MEMORY:
        reasons.append(f"{kind} is memory: nothing in it survives a power cut.")
    if "eatmydata" in os.environ.get("LD_PRELOAD", "") or _is_mapped("libeatmydata"):
        reasons.append("libeatmydata is loaded: it turns every sync into nothing.")
    if not reasons and sync_ms is not None and sync_ms < _TOO_FAST_MS:
        reasons.append(f"a sync took {sync_ms} ms, which no disk can do: something answers in its place.")
    return reasons


def _is_mapped(library: str) -> bool:
    with suppress(OSError), Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as maps:
        return any(library in line for line in maps)
    return False


def _file_system(place: str) -> str:
    """The type of the mounted file system, from the kernel's list of mounts; `unknown` where there is none."""
    device = Path(place).stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError), Path("/proc/self/mountinfo").open(encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            fields = line.split()
            if len(fields) > 2 and fields[2] == wanted and "-" in fields:
                return fields[fields.index("-") + 1]
    return "unknown"
