"""The sandbox that is used by default: files in the thread's folders, commands in bubblewrap on this machine (A9, A10)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from types import TracebackType

from holdfast.context.offload import FileOutputs, Outputs
from holdfast.errors import InputError, SandboxError, StorageError
from holdfast.ids import IdSource, RandomIds
from holdfast.sandbox.bubblewrap import Bind, base_environment, find_bubblewrap, unavailable_because
from holdfast.sandbox.capture import shortened
from holdfast.sandbox.commands import Boundary, Cancel, CommandLimits, CommandResult
from holdfast.sandbox.files import FileLimits, ThreadFiles
from holdfast.sandbox.host import host_program
from holdfast.sandbox.paths import WORKSPACE, Root, VirtualPaths
from holdfast.sandbox.running import Finished, Program, run_program
from holdfast.sandbox.threads import ThreadFolders

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
        self._files = ThreadFiles(VirtualPaths(self._roots), file_limits)
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
        limits = self._limits(timeout)
        program, boundary = self._prepare(["bash", "--noprofile", "--norc", "-c", command], limits)
        return self._result(self._run(program, limits, cancel), boundary)

    async def arun(self, command: str, *, timeout: float | None = None, cancel: Cancel | None = None) -> CommandResult:
        """The same, awaited. Cancelling the task stops the command, and the task ends when it is stopped."""
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

    def _run(self, program: Program, limits: CommandLimits, cancel: Cancel | None) -> Finished:
        mine = Cancel()
        forget = cancel.watch(mine.set) if cancel is not None else lambda: None
        with self._guard:
            self._running.add(mine)
            if self._closed:
                mine.set()
        try:
            ended = run_program(program, limits, mine)
        finally:
            forget()
            with self._guard:
                self._running.discard(mine)
        if not ended.started and ended.ending == "exited":
            raise SandboxError(f"bubblewrap could not start the command: {ended.capture.text().strip()[-400:]}")
        return ended

    def _result(self, ended: Finished, boundary: Boundary) -> CommandResult:
        kept = ended.capture.text()
        shown, cut = shortened(kept, self.limits.shown_chars)
        missing = cut + ended.capture.dropped
        saved = None
        if missing:
            with suppress(StorageError):  # a full disk costs the file, not the result
                saved = self._outputs.keep(self.thread, self._ids.new("command"), kept)
        return CommandResult(ended.exit_code, shown, missing, ended.seconds, ended.ending, boundary, saved)


def _check_command(command: str) -> None:
    if not isinstance(command, str) or not command.strip():
        raise InputError("there is no command.", hint="Give one for bash.")
    if "\0" in command:
        raise InputError("a command cannot hold a NUL character.", hint="Write the data to a file.")
    if len(command.encode("utf-8", "replace")) > _LONGEST_COMMAND:
        raise InputError(f"a command of {len(command)} characters is too long.", hint="Write it to a file and run that.")
