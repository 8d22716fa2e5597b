"""What it means to run a command: the seam, its limits, how it is stopped, and what comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from holdfast.sandbox.files import ThreadFiles

Ending = Literal["exited", "timed_out", "killed_memory", "killed_processes", "cancelled"]
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
    `none` the command ran on the host, with nothing between it and the files of the user.
    """

    exit_code: int | None
    output: str
    truncated_bytes: int
    seconds: float
    ending: Ending
    boundary: Boundary
    saved: str | None = None

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
        return "\n".join(part for part in (self.output.rstrip("\n"), *notes) if part) or "(no output)"


_ENDINGS: dict[Ending, str] = {
    "exited": "Ended",
    "timed_out": "Stopped because its time was up",
    "killed_memory": "Stopped because it used too much memory",
    "killed_processes": "Stopped because it started too many processes",
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
        """The same, awaited. Cancelling the task stops the command."""

    def close(self) -> None:
        """Let go of the folders. Commands that are running are stopped."""
