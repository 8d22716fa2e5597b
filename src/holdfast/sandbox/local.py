"""The default sandbox: files in the thread's folders, commands in bubblewrap on this machine; and opening the configured one (A9, A10).

With `sandbox.allow_host_bash` commands run on the host itself. That is no boundary: limits hold and the environment is the bare one, but
the command is the user and reaches whatever the user can. Folders of `sandbox.mounts` and the skills are shown to commands and file tools.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.clock import IdSource, RandomIds
from holdfast.context.compaction import FileOutputs, Outputs
from holdfast.durable.folder import Folder
from holdfast.errors import ConfigError, HoldfastError, InputError, SandboxError, SandboxUnavailable, StorageError
from holdfast.sandbox.bubblewrap import Bind, base_environment, find_bubblewrap, limited, unavailable_because
from holdfast.sandbox.commands import (
    Boundary,
    Cancel,
    CommandLimits,
    CommandResult,
    Finished,
    Program,
    Sandbox,
    end_marked,
    run_program,
    running_for,
    shortened,
)
from holdfast.sandbox.files import FileLimits, ThreadFiles
from holdfast.sandbox.paths import USER_DATA, WORKSPACE, QuotaWatch, Root, ThreadFolders, VirtualPaths, check_virtual
from holdfast.validation import load_dotted

if TYPE_CHECKING:
    from holdfast.config.sections import Config, Mount


_MARK = "HOLDFAST_COMMAND"


def host_program(
    command: Sequence[str], *, binds: Sequence[Bind], environment: Mapping[str, str], limits: CommandLimits, folder: str
) -> Program:
    """What to start. The folders that would be mounted are named in the environment: `WORKSPACE`, `UPLOADS`, `OUTPUTS`.

    Processes that detach themselves are found again by a mark in their environment.
    """
    bash = shutil.which("bash")
    if bash is None:
        raise SandboxUnavailable("there is no bash on this machine.", hint="Install the package bash.")
    mark, begun = secrets.token_hex(16), running_for()
    names = {bind.target.rsplit("/", 1)[-1].upper(): bind.source for bind in binds if bind.target.startswith("/mnt/user-data/")}
    around = {**base_environment(names), "HOME": folder, **environment, _MARK: mark}

    def sweep(process: int) -> None:
        with suppress(OSError):
            os.killpg(process, signal.SIGKILL)
        end_marked(_MARK, mark, since=begun)

    return Program(tuple(limited(command, limits, bash=bash, folder=folder, processes=False)), around, folder, sweep=sweep)


_LONGEST_COMMAND = 100_000


class LocalSandbox:
    """Files and commands of one thread on this machine.

    Without bubblewrap commands are refused, unless `allow_host_bash` lets them run on the host, which is no boundary; the file tools are
    the same everywhere. `boundary` says which of the two it is.
    """

    def __init__(
        self,
        thread: str,
        *,
        base: str | PathLike[str],
        mounts: Sequence[Root] = (),
        environment: Mapping[str, str] | None = None,
        network: bool = False,
        allow_host_bash: bool = False,
        limits: CommandLimits | None = None,
        file_limits: FileLimits | None = None,
        outputs: Outputs | None = None,
        ids: IdSource | None = None,
        bubblewrap: str | None = None,
    ) -> None:
        self._folder = ThreadFolders(base).open(thread)
        self._roots = (*self._folder.roots, *mounts)
        self._quota = self._folder.quota(file_limits.total_bytes if file_limits else None)
        self._files = ThreadFiles(VirtualPaths(self._roots), file_limits, self._quota)
        self.limits = limits or CommandLimits()
        self._environment, self._network, self._allow_host = dict(environment or {}), network, allow_host_bash
        self._outputs, self._ids = outputs or FileOutputs(base), ids or RandomIds()
        self._program = bubblewrap
        self._guard = threading.Lock()
        self._running: set[Cancel] = set()
        self._closed = False

    @property
    def thread(self) -> str:
        return self._folder.thread

    @property
    def files(self) -> ThreadFiles:
        return self._files

    @property
    def boundary(self) -> Boundary | None:
        """What commands would run in now; None where they are refused."""
        if unavailable_because(self._program) is None:
            return "bubblewrap"
        return "none" if self._allow_host else None

    def run(self, command: str, *, timeout: float | None = None, cancel: Cancel | None = None) -> CommandResult:
        """Run a bash command to its end. See `Sandbox.run` for what is promised."""
        _check_command(command)
        limits, watch, note = self._limits(timeout), self._quota.watch(), None
        if watch is not None and watch.is_full:  # the kernel keeps every file from growing; removing works
            limits = replace(limits, file_bytes=0)
            note = f"The files of this thread take all the room that they may ({self._quota.limit:,} bytes): remove some to write again."
        program, boundary = self._prepare(["bash", "--noprofile", "--norc", "-c", command], limits)
        return self._result(self._run(program, limits, cancel, watch), boundary, note)

    async def arun(self, command: str, *, timeout: float | None = None, cancel: Cancel | None = None) -> CommandResult:
        """`run` without blocking the event loop. Cancelling the task stops the command, and the task ends when it is stopped."""
        stop = cancel or Cancel()
        work = asyncio.ensure_future(asyncio.to_thread(self.run, command, timeout=timeout, cancel=stop))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            stop.set()
            with suppress(SandboxError):
                await work
            raise

    def close(self) -> None:
        with self._guard:
            self._closed = True
            running = tuple(self._running)
        for cancel in running:
            cancel.set()
        for root in self._roots:
            root.folder.close()
        self._quota.close()
        self._folder.close()

    def __enter__(self) -> LocalSandbox:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _limits(self, timeout: float | None) -> CommandLimits:
        if timeout is None:
            return self.limits
        if not timeout > 0:
            raise InputError(f"{timeout} seconds are no time.", hint="Give a number above zero.")
        return replace(self.limits, seconds=min(timeout, self.limits.seconds))

    def _prepare(self, command: Sequence[str], limits: CommandLimits) -> tuple[Program, Boundary]:
        binds = [Bind(root.folder.path, root.virtual, root.read_only) for root in self._roots]
        if self._allow_host and unavailable_because(self._program) is not None:
            folder = next(bind.source for bind in binds if bind.target == WORKSPACE)
            return host_program(command, binds=binds, environment=self._environment, limits=limits, folder=folder), "none"
        wrap = find_bubblewrap(self._program)
        if wrap.as_superuser:
            self._folder.hand_over(wrap.user, wrap.user)
        around = base_environment(self._environment)
        return wrap.program_for(command, binds=binds, environment=around, limits=limits, network=self._network), "bubblewrap"

    def _run(self, program: Program, limits: CommandLimits, cancel: Cancel | None, watch: QuotaWatch | None) -> Finished:
        mine = Cancel()
        forget = cancel.watch(mine.set) if cancel is not None else lambda: None
        with self._guard:
            self._running.add(mine)
            if self._closed:
                mine.set()
        try:
            ended = run_program(program, limits, mine, watch)
        finally:
            forget()
            if watch is not None:
                watch.close()
            with self._guard:
                self._running.discard(mine)
        if not ended.started and ended.ending == "exited":
            raise SandboxError(f"bubblewrap could not start the command: {ended.capture.text().strip()[-400:]}")
        return ended

    def _result(self, ended: Finished, boundary: Boundary, note: str | None) -> CommandResult:
        kept = ended.capture.text()
        shown, cut = shortened(kept, self.limits.shown_chars)
        missing = cut + ended.capture.dropped
        saved = None
        if missing:
            with suppress(StorageError):  # a full disk costs the file, not the result
                saved = self._outputs.keep(self.thread, self._ids.new("command"), kept)
        return CommandResult(ended.exit_code, shown, missing, ended.seconds, ended.ending, boundary, saved, note)


def _check_command(command: str) -> None:
    if not isinstance(command, str) or not command.strip():
        raise InputError("there is no command.", hint="Give one for bash.")
    if "\0" in command:
        raise InputError("a command cannot hold a NUL character.", hint="Write the data to a file.")
    if len(command.encode("utf-8", "replace")) > _LONGEST_COMMAND:
        raise InputError(f"a command of {len(command)} characters is too long.", hint="Write it to a file and run that.")


_TAKEN = frozenset(
    {"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "root", "run", "sbin", "sys", "tmp", "usr", "var"}
)


def open_mounts(settings: Sequence[Mount], *, beside: str | PathLike[str]) -> tuple[Root, ...]:
    """The roots for the mounts of a configuration; relative host paths are relative to `beside`. ConfigError for one that cannot be."""
    found: list[Root] = []
    for number, mount in enumerate(settings):
        key = f"sandbox.mounts[{number}]"
        root = open_mount(Path(beside) / Path(mount.host_path).expanduser(), mount.container_path, read_only=mount.read_only, key=key)
        if any(other.virtual == root.virtual for other in found):
            raise ConfigError(f"{root.virtual} is there twice.", key=f"{key}.container_path", hint="Give each mount a path of its own.")
        found.append(root)
    return tuple(found)


def open_mount(host: str | PathLike[str], virtual: str, *, read_only: bool, key: str = "mount") -> Root:
    """One folder under another path. ConfigError if the folder is not there, or the path belongs to the system or to the thread."""
    try:
        shown = check_virtual(virtual)
    except HoldfastError as error:
        raise ConfigError(error.message, key=f"{key}.container_path", hint=error.hint) from error
    parts = shown.split("/")[1:]
    if parts[0] in _TAKEN or shown == USER_DATA or shown.startswith(f"{USER_DATA}/") or USER_DATA.startswith(f"{shown}/"):
        raise ConfigError(f"{shown} is taken.", key=f"{key}.container_path", hint="Choose another path, for example /mnt/data.")
    if not Path(host).is_dir():
        raise ConfigError(f"{Path(host)} is not a folder.", key=f"{key}.host_path", hint="Make it, or remove the mount.")
    return Root(shown, Folder(host), read_only)


_LOCAL = "holdfast.sandbox.local:LocalSandbox"
_HINT = f"Leave it out, or write {_LOCAL}; docs/security.md says what a class of your own must have."
_PARTS = ("run", "arun", "close")
"""What a class must have; `thread` and `files` may be made with each object."""


def check_sandbox(config: Config) -> str | None:
    """The class of the user's own that `sandbox.use` names, if any. ConfigError if it cannot be loaded or lacks a part of `Sandbox`."""
    if config.sandbox.use in (None, _LOCAL):
        return None
    made = load_dotted(str(config.sandbox.use), "the sandbox", file=config.file, key="sandbox.use", hint=_HINT)
    missing = [name for name in _PARTS if not hasattr(made, name)] if isinstance(made, type) else []
    if missing:
        told = f"{config.sandbox.use} cannot be used as a sandbox: it has no {', '.join(missing)}."
        raise ConfigError(told, file=config.file, line=config.reading.line(("sandbox", "use")), key="sandbox.use", hint=_HINT)
    return str(config.sandbox.use)


def open_sandbox(config: Config, thread: str, **parts: Any) -> Sandbox:
    """The sandbox of a thread. The folder of the skills, if there is one, is shown read-only under `skills.container_path`.

    A class of the user's own is called as `LocalSandbox` is: with the thread and the keywords of `sandbox_arguments`. ConfigError if it
    cannot be loaded: commands never run in another place than the one that was asked for.
    """
    path = config.sandbox.use or _LOCAL
    key, hint = "sandbox.use", _HINT
    make = load_dotted(path, "the sandbox", file=config.file, key=key, hint=hint)
    try:
        made: Sandbox = make(thread, **sandbox_arguments(config), **parts)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path} cannot be used as a sandbox: {error}.", file=config.file, key=key, hint=hint) from error
    return made


def commands_available(config: Config) -> bool:
    """Whether bash is to be offered: in bubblewrap where that works, on the host where the user allows it (A10).

    A sandbox of the user's own is taken at its word.
    """
    own = config.sandbox.use not in (None, _LOCAL)
    return own or config.sandbox.allow_host_bash or unavailable_because() is None


def sandbox_arguments(config: Config) -> dict[str, Any]:
    """What the configuration says about a sandbox, as keywords: base, mounts, environment, network, allow_host_bash and the limits."""
    settings = config.sandbox
    return {
        "base": config.base,
        "mounts": _roots(config),
        "environment": dict(settings.environment),
        "network": settings.network,
        "allow_host_bash": settings.allow_host_bash,
        "limits": CommandLimits(
            file_bytes=min(CommandLimits().file_bytes, settings.max_bytes or CommandLimits().file_bytes),
            seconds=settings.timeout_seconds,
            memory_bytes=settings.memory_mb * 1024 * 1024 if settings.memory_mb is not None else None,
            shown_chars=settings.bash_output_max_chars or CommandLimits().kept_bytes,
        ),
        "file_limits": FileLimits(
            read_chars=settings.read_file_output_max_chars or FileLimits().edit_bytes,
            list_chars=settings.ls_output_max_chars or FileLimits().edit_bytes,
            total_bytes=settings.max_bytes,
        ),
    }


def _roots(config: Config) -> tuple[Root, ...]:
    roots = open_mounts(config.sandbox.mounts, beside=config.beside("."))
    skills = config.skills_in_use()
    if skills is not None:
        shown = open_mount(skills, config.skills.container_path, read_only=True, key="skills")
        if any(root.virtual == shown.virtual for root in roots):
            shown.folder.close()
            raise ConfigError(f"{shown.virtual} is where the skills are.", key="sandbox.mounts", hint="Choose another container_path.")
        roots = (*roots, shown)
    return roots
