"""Running a program within limits of time, memory and output, and stopping it with everything it started."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from selectors import EVENT_READ, DefaultSelector

from holdfast.errors import SandboxError
from holdfast.sandbox.capture import Capture
from holdfast.sandbox.commands import Cancel, CommandLimits, Ending
from holdfast.sandbox.process_tree import gone, usage

_TICK = 0.1
_DRAIN = 2.0


@dataclass(frozen=True)
class Program:
    """What to start, and how it is told. `handles` are given to it, and closed here once it has started.

    `status` is the reading end of a pipe on which bubblewrap reports, if it is bubblewrap. `sweep` removes processes that got away; what
    is in a process namespace never does.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    handles: Sequence[int] = ()
    status: int | None = None
    sweep: Callable[[int], None] = field(default=lambda process: None)


@dataclass(frozen=True)
class Finished:
    """How a program ended, and what it wrote. `started` is False when bubblewrap did not get as far as the command."""

    exit_code: int | None
    capture: Capture
    seconds: float
    ending: Ending
    started: bool


def run_program(program: Program, limits: CommandLimits, cancel: Cancel | None = None) -> Finished:
    """Run to the end or to a limit. On return no process of it is left."""
    begun = time.monotonic()
    try:
        process = subprocess.Popen(  # noqa: S603 - running what was asked for is the task; what it may do is bounded by the caller
            list(program.arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(program.environment),
            cwd=program.folder,
            pass_fds=tuple(program.handles),
            start_new_session=True,
        )
    except OSError as error:
        if program.status is not None:
            os.close(program.status)
        raise SandboxError(f"the command could not be started: {error}.") from error
    finally:
        for handle in program.handles:
            os.close(handle)
    return _Run(process, program, limits, begun).to_the_end(cancel)


class _Run:
    """One program under way."""

    def __init__(self, process: subprocess.Popen[bytes], program: Program, limits: CommandLimits, begun: float) -> None:
        self._process, self._program, self._limits, self._begun = process, program, limits, begun
        self._capture = Capture(limits.kept_bytes)
        self._ending: Ending = "exited"
        self._status = b""
        self._stopped_at: float | None = None
        self._next_look = begun

    def to_the_end(self, cancel: Cancel | None) -> Finished:
        forget = cancel.watch(self._cancel) if cancel is not None else lambda: None
        try:
            self._read()
            self._process.wait()
        finally:
            forget()
            self._end()
        code = None if self._ending != "exited" else _exit_code(self._process.returncode)
        started = self._program.status is None or b'"exit-code"' in self._status
        return Finished(code, self._capture, time.monotonic() - self._begun, self._ending, started)

    def _read(self) -> None:
        """Read until nobody can write any more and the program is over."""
        output = self._process.stdout
        assert output is not None  # noqa: S101 - it was asked for
        with DefaultSelector() as selector:
            selector.register(output, EVENT_READ)
            if self._program.status is not None:
                selector.register(self._program.status, EVENT_READ)
            while not self._over(reading=output in selector.get_map()):
                for key, _ in selector.select(_TICK):
                    part = os.read(key.fd, 65_536)
                    if not part:
                        selector.unregister(key.fileobj)
                    elif key.fd == self._program.status:
                        self._status = (self._status + part)[:4096]
                    else:
                        self._capture.add(part)
                self._check_limits()

    def _over(self, *, reading: bool) -> bool:
        if not reading:
            with suppress(subprocess.TimeoutExpired):  # closed its output and goes on
                self._process.wait(_TICK / 10)
        ended = self._process.poll() is not None
        if ended and self._stopped_at is None:
            self._stopped_at = time.monotonic()
            if reading:
                self._program.sweep(self._process.pid)  # what it left behind holds the output open
        return ended and (not reading or time.monotonic() - (self._stopped_at or 0.0) > _DRAIN)

    def _check_limits(self) -> None:
        now = time.monotonic()
        if self._ending != "exited" or self._process.returncode is not None:
            return
        if now - self._begun >= self._limits.seconds:
            self._stop("timed_out")
        elif now >= self._next_look:
            self._next_look = now + _TICK
            used = usage(self._top() or self._process.pid)
            if self._limits.memory_bytes is not None and used.bytes > self._limits.memory_bytes:
                self._stop("killed_memory")
            elif used.processes > self._limits.processes + 8:  # the kernel's own limit comes first, except for the superuser
                self._stop("killed_processes")

    def _cancel(self) -> None:
        self._stop("cancelled")

    def _stop(self, ending: Ending) -> None:
        if self._process.returncode is None and self._ending == "exited":
            self._ending = ending
        self._process.kill()  # harmless when it is over; a namespace goes with its bubblewrap
        self._program.sweep(self._process.pid)

    def _top(self) -> int | None:
        """The topmost process of the namespace, as bubblewrap reported it."""
        first = self._status.partition(b"\n")[0]
        with suppress(ValueError, KeyError, TypeError):
            return int(json.loads(first)["child-pid"])
        return None

    def _end(self) -> None:
        if self._process.poll() is None:  # something was raised meanwhile: an interrupt from the keyboard, for example
            self._process.kill()
            self._process.wait()
        self._program.sweep(self._process.pid)
        top = self._top()
        if top is not None:
            gone(top)
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self._program.status is not None:
            os.close(self._program.status)


def _exit_code(code: int) -> int:
    return 128 - code if code < 0 else code
