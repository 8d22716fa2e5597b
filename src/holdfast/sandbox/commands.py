"""Running a command: the `Sandbox` contract, and a subprocess within limits of time, memory and output that is stopped with all it started.

Output is kept within a fixed amount of memory: its beginning and its end, and how much was between. What a process tree uses is read
from `/proc`; elsewhere nothing is known.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Literal, Protocol

from holdfast.errors import SandboxError
from holdfast.sandbox.files import ThreadFiles
from holdfast.sandbox.paths import QuotaWatch

Ending = Literal["exited", "timed_out", "killed_memory", "killed_processes", "killed_disk", "cancelled"]
Boundary = Literal["bubblewrap", "none"]
_MIB = 1024 * 1024


@dataclass(frozen=True)
class CommandLimits:
    """How much a command may use. `memory_bytes` holds for all its processes together; None means no limit.

    Of the output `kept_bytes` at the beginning and as many at the end are kept; everything between is counted and dropped.
    """

    seconds: float = 600.0
    memory_bytes: int | None = 2048 * _MIB
    processes: int = 512
    file_bytes: int = 1024 * _MIB
    open_files: int = 1024
    temp_bytes: int = 512 * _MIB
    kept_bytes: int = 2 * _MIB
    shown_chars: int = 20_000


@dataclass(frozen=True)
class CommandResult:
    """How a command ended. `exit_code` is None when it was stopped, and 128 plus the number when a signal ended it.

    `output` has both streams in the order they were written, and at most the characters that may be shown; `truncated_bytes` says how many
    bytes are missing from it. `saved` is the virtual path of a file with more of it, where there is one. With the boundary
    `none` the command ran on the host, with nothing between it and the files of the user. `note` says what held for it beforehand.
    """

    exit_code: int | None
    output: str
    truncated_bytes: int
    seconds: float
    ending: Ending
    boundary: Boundary
    saved: str | None = None
    note: str | None = None

    @property
    def ok(self) -> bool:
        return self.ending == "exited" and self.exit_code == 0

    @property
    def text(self) -> str:
        """What the model is shown: the output, and in brackets whatever is out of the ordinary."""
        notes = []
        if self.truncated_bytes:
            where = f" More of it is in {self.saved}." if self.saved else ""
            notes.append(f"[{self.truncated_bytes} bytes of the output are left out.{where}]")
        if self.ending != "exited":
            notes.append(f"[{_ENDINGS[self.ending]} after {self.seconds:.1f} s.]")
        elif self.exit_code:
            notes.append(f"[Exit code {self.exit_code}.]")
        if self.note:
            notes.append(f"[{self.note}]")
        return "\n".join(part for part in (self.output.rstrip("\n"), *notes) if part) or "(no output)"


_ENDINGS: dict[Ending, str] = {
    "exited": "Ended",
    "timed_out": "Stopped because its time was up",
    "killed_memory": "Stopped because it used too much memory",
    "killed_processes": "Stopped because it started too many processes",
    "killed_disk": "Stopped because the files of this thread took more room than they may: remove what is not needed; stopped",
    "cancelled": "Cancelled",
}


class Cancel:
    """Stops what it was given to, at once and from any thread. Once set it stays set."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False
        self._stops: list[Callable[[], None]] = []

    @property
    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        """Stop everything that is running under it, and everything that starts later."""
        with self._lock:
            self._set = True
            stops = list(self._stops)
        for stop in stops:
            stop()

    def watch(self, stop: Callable[[], None]) -> Callable[[], None]:
        """Call `stop` when it is set, or now if it is. Gives a function that takes it back."""
        with self._lock:
            self._stops.append(stop)
            already = self._set
        if already:
            stop()

        def forget() -> None:
            with self._lock:
                self._stops = [other for other in self._stops if other is not stop]

        return forget


class Sandbox(Protocol):
    """A place for the files and commands of one thread. Safe for many threads; a sub-agent shares the one of its parent."""

    @property
    def thread(self) -> str:
        """The thread whose files these are."""

    @property
    def files(self) -> ThreadFiles:
        """The files, by the same paths that commands see."""

    def run(self, command: str, *, timeout: float | None = None, cancel: Cancel | None = None) -> CommandResult:
        """Run a bash command to its end, in `/mnt/user-data/workspace`, with nothing on its input.

        When it returns, none of its processes is left. `timeout` can only shorten the configured time. SandboxUnavailable if there is no
        safe way to run commands here, InputError for what is no command, SandboxError if it could not be started.
        """

    async def arun(self, command: str, *, timeout: float | None = None, cancel: Cancel | None = None) -> CommandResult:
        """Run a command without blocking the event loop. Cancelling the task stops the command."""

    def close(self) -> None:
        """Let go of the folders. Commands that are running are stopped."""


class Capture:
    """Takes bytes without end and keeps the first and the last `size` of them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._size - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail.append(data)
            self._tail_size += len(data)
            while self._tail_size - len(self._tail[0]) >= self._size:
                self._tail_size -= len(self._tail.popleft())

    @property
    def dropped(self) -> int:
        """How many bytes between head and tail are gone."""
        return self.total - len(self._head) - min(self._tail_size, self._size)

    def text(self) -> str:
        """Everything that was kept, with a note in the place of what was not."""
        tail = b"".join(self._tail)[-self._size :] if self._size else b""
        note = f"\n[... {self.dropped} bytes left out ...]\n".encode() if self.dropped else b""
        return (bytes(self._head) + note + tail).decode("utf-8", "replace")


def shortened(text: str, room: int) -> tuple[str, int]:
    """Two thirds of `room` characters from the beginning and the rest from the end, and how many bytes that leaves out.

    >>> shortened("abcdefghij", 6)
    ('abcd\\n[...]\\nij', 4)
    """
    if len(text) <= room:
        return text, 0
    head = room * 2 // 3
    tail = room - head
    left_out = text[head : len(text) - tail]
    return f"{text[:head]}\n[...]\n{text[len(text) - tail :]}", len(left_out.encode("utf-8", "replace"))


_PROC = Path("/proc")
_HELD = re.compile(rb"^(?:RssAnon|RssShmem):\s*(\d+) kB", re.MULTILINE)
_MOST = 20_000
_UNIX_SOCKET = 212_992  # bytes that the kernel lets wait in one, unless the machine is set otherwise
_QUEUES = re.compile(rb"^ *\d+: \S+ \S+ \S+ ([0-9A-F]{8}):([0-9A-F]{8}) ", re.MULTILINE)  # bytes to be sent and to be read


@dataclass(frozen=True)
class Usage:
    """Processes, and the memory that they hold of their own or share among themselves."""

    processes: int
    bytes: int


def usage(top: int) -> Usage:
    """Of the process `top` and everything below it. In a process namespace orphans go to the topmost process, so that none is missed.

    What waits in sockets counts too: it belongs to no process, and there may be gigabytes of it.
    """
    seen, held = 0, _in_sockets(top)
    for process in process_tree(top):
        with suppress(OSError):  # ended meanwhile
            held += sum(int(size) for size in _HELD.findall((_PROC / str(process) / "status").read_bytes())) * 1024
            seen += 1
    return Usage(seen, held)


def _in_sockets(top: int) -> int:
    """What the sockets of a network namespace of its own hold. Of a UNIX socket nobody can tell: it counts as full."""
    place = _PROC / str(top)
    try:
        if (place / "ns" / "net").readlink() == (_PROC / "self" / "ns" / "net").readlink():  # ours: whose socket it is cannot be told
            return 0
        held = max(0, (place / "net" / "unix").read_bytes().count(b"\n") - 1) * _UNIX_SOCKET
        for kind in ("tcp", "tcp6", "udp", "udp6"):
            held += sum(int(sent, 16) + int(received, 16) for sent, received in _QUEUES.findall((place / "net" / kind).read_bytes()))
    except (OSError, ValueError):  # ended meanwhile, or a kernel without
        return 0
    return held


def process_tree(top: int) -> Iterator[int]:
    """The process `top` and everything below it."""
    pending, seen = [top], 0
    while pending and seen < _MOST:
        process = pending.pop()
        seen += 1
        yield process
        with suppress(OSError):  # ended meanwhile
            for task in (_PROC / str(process) / "task").iterdir():
                with suppress(OSError):
                    pending.extend(int(child) for child in (task / "children").read_bytes().split())


def gone(process: int) -> bool:
    """Wait until a process is over. The topmost process of a namespace is over only when all others in it are."""
    deadline = time.monotonic() + 2.0
    while time.monotonic() < deadline:
        try:
            if _state(_PROC / str(process))[0] in _OVER:
                return True
        except (OSError, IndexError):
            return True
        time.sleep(0.002)
    return False


def end_marked(name: str, value: str, *, since: float) -> None:
    """Kill the processes whose environment has this entry, however they have detached themselves, and wait until they are gone.

    One look is not enough: a process may start another behind the look, and shows no environment while it becomes another program. So it
    looks until two looks in a row found none. `since` is `running_for()` when the command began: what is older shows its environment.
    """
    wanted, deadline, clean = f"{name}={value}".encode(), time.monotonic() + 5.0, 0
    while clean < 2 and time.monotonic() < deadline:
        found, unsure = _with_entry(wanted, since)
        for process in found:
            with suppress(OSError):  # ended meanwhile
                os.kill(process, signal.SIGKILL)
        for process in found:
            gone(process)
        clean = 0 if found or unsure else clean + 1
        if unsure and not found:
            time.sleep(0.005)


def _with_entry(wanted: bytes, since: float) -> tuple[list[int], bool]:
    """The processes of ours with this entry, and whether one that is new shows no environment yet."""
    found, unsure = [], False
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):  # ended meanwhile, or not ours
            shown = (folder / "environ").read_bytes()
            if wanted in shown.split(b"\0"):
                found.append(int(folder.name))
            elif not shown:
                state = _state(folder)
                unsure |= state[0] not in _OVER and int(state[19]) / os.sysconf("SC_CLK_TCK") >= since - 0.1
    return found, unsure


def running_for() -> float:
    """For how many seconds this machine has been running, by the clock that `/proc` gives a process's beginning in."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


_OVER = (b"Z", b"X")


def _state(folder: Path) -> list[bytes]:
    """The fields of a process's `stat` behind its name: first the letter of its state."""
    return (folder / "stat").read_bytes().rpartition(b")")[2].split()


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


def run_program(program: Program, limits: CommandLimits, cancel: Cancel | None = None, quota: QuotaWatch | None = None) -> Finished:
    """Run to the end or to a limit, that of the disk (`quota`) included. On return no process of it is left."""
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
    return _Run(process, program, limits, begun, quota).to_the_end(cancel)


class _Run:
    """One program under way."""

    def __init__(
        self, process: subprocess.Popen[bytes], program: Program, limits: CommandLimits, begun: float, quota: QuotaWatch | None
    ) -> None:
        self._process, self._program, self._limits, self._begun, self._quota = process, program, limits, begun, quota
        self._capture = Capture(limits.kept_bytes)
        self._ending: Ending = "exited"
        self._status = b""
        self._stopped_at: float | None = None
        self._next_look = begun

    def to_the_end(self, cancel: Cancel | None) -> Finished:
        forget = cancel.watch(lambda: self._stop("cancelled")) if cancel is not None else lambda: None
        try:
            self._read()
            self._process.wait()
        finally:
            forget()
            self._end()
        ended = self._process.returncode
        code = None if self._ending != "exited" else 128 - ended if ended < 0 else ended
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
            top = self._top() or self._process.pid
            used = usage(top)
            if self._limits.memory_bytes is not None and used.bytes > self._limits.memory_bytes:
                self._stop("killed_memory")
            elif used.processes > self._limits.processes + 8:  # the kernel's own limit comes first, except for the superuser
                self._stop("killed_processes")
            elif self._quota is not None and self._quota.is_over(process_tree(top)):
                self._stop("killed_disk")

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
