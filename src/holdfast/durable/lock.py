"""One holder at a time, across threads and processes, and nobody has to clean up after one that died.

The lock is the kernel's (`flock`) on a file of its own, which is never replaced or removed: a lock on the data file itself
would stay with the old file when that is replaced. Where there is no `flock` nothing is locked, and so nothing is written: a
StorageError says so.

Who waits looks again every few milliseconds, the more often the longer it has waited, and leaves a sign in the file. Who gives the lock
back and finds such a sign lets the others go first when it wants the lock again: so nobody starves beside a process that writes all the
time.

Servers, workers and conversations work with a folder for long (`Presence`): each holds a lock file of its own in `running/`, so that who
wants to put another folder in its place sees them there, by name, and a process that is there notices when it was replaced all the same.
"""

from __future__ import annotations

import functools
import json
import os
import random
import secrets
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from os import PathLike
from pathlib import Path
from types import TracebackType

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.durable.disk import faults
from holdfast.errors import Locked, NotWritable, StorageError

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]  # the absence is what is asked for below

_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_held: set[Lock] = set()
_SPARE = 32
_spare: OrderedDict[str, int] = OrderedDict()
"""Descriptors of lock files that were released here and may be wanted again soon, each for one holder at a time. None is locked."""
_SIGN_AT = 1024  # where in the file those who wait leave a sign; the holder's name is before it
_LOOK, _SOON, _LATE = 0.005, 0.001, 1.0  # seconds between two looks: at first, and after waiting so long
_GIVES_WAY = 2 * _LOOK
_awaited: OrderedDict[str, float] = OrderedDict()
"""Until when (by the system's monotonic clock) this process gives way at a lock that it released while somebody waited for it."""


class Lock:
    """A lock on `path`, a file that exists for this alone. Use it in a `with`, or `acquire` and `release`.

    Not reentrant: a thread that takes it twice waits for itself until `timeout` seconds are over (None waits for ever) and is
    then told so by `Locked`, as any other thread or process is. `owner()` says who holds it, as far as is known.
    """

    def __init__(self, path: str | PathLike[str], *, timeout: float | None = 10.0, clock: Clock | None = None) -> None:
        self.path = os.fspath(path)
        self.timeout = timeout
        self._clock = clock or SystemClock()
        self._threads = threading.Lock()  # threads that share this object queue here, the rest of the world at the file
        self._handle: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock now."""
        return self._handle is not None

    def acquire(self) -> None:
        """Take the lock, or raise Locked when it is not to be had in time."""
        deadline = None if self.timeout is None else self._clock.monotonic() + self.timeout
        if not self._threads.acquire(timeout=-1 if self.timeout is None else self.timeout):
            raise self._locked()
        try:
            handle = self._take(deadline)
        except BaseException:
            self._threads.release()
            raise
        self._handle = handle
        _held.add(self)
        self._sign(handle)

    def release(self) -> None:
        """Give it back. Harmless when it is not held."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        _held.discard(self)
        try:
            with suppress(OSError):
                if os.fstat(handle).st_size > _SIGN_AT:
                    _note_awaited(self.path)
                    os.ftruncate(handle, 0)
            fcntl.flock(handle, fcntl.LOCK_UN)  # closing is not enough while a forked child shares the descriptor
        except OSError:
            _close(handle)
        else:
            _keep(self.path, handle)
        finally:
            self._threads.release()

    def owner(self) -> str | None:
        """Who holds it, as the holder wrote it down: `process 4711 on host, since ...`. None if nobody does, or that is not known."""
        try:
            with open(self.path, "rb") as file:
                with suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    return None  # what stands there is the name of an owner who has left
                facts = json.loads(file.readline(_SIGN_AT))
            return f"process {int(facts['pid'])} on {facts['host']}, since {facts['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()

    def _take(self, deadline: float | None) -> int:
        if fcntl is None:
            raise StorageError(
                f"{self.path} cannot be locked: this system has no flock.", path=self.path, operation="lock", hint="Use Linux or macOS."
            )
        handle = self._open()
        try:
            if _awaited and self.timeout != 0:
                self._give_way()
            began = self._clock.monotonic()
            while not self._flocked(handle, wait=deadline is None):
                if not self._is_there(handle):  # somebody removed the file: a lock on it is a lock on nothing, so begin again
                    _close(handle)
                    handle = self._open()
                    continue
                self._pause(handle, began, deadline)
        except BaseException:
            _close(handle)
            raise
        return handle

    def _pause(self, handle: int, began: float, deadline: float | None) -> None:
        """Wait a little and let others know that somebody waits. Locked when the time is over."""
        now = self._clock.monotonic()
        if deadline is not None and now >= deadline:
            raise self._locked()
        with suppress(OSError):  # a full disk: then the others do not know, and it takes longer
            os.pwrite(handle, b"+", _SIGN_AT)
        pause = random.uniform(_SOON / 2, _LOOK if now - began < _LATE else _SOON)  # noqa: S311 - no secret
        self._clock.sleep(pause if deadline is None else min(pause, max(deadline - now, 0.0005)))

    def _give_way(self) -> None:
        """Let those go first who waited while this process had the lock."""
        until = _awaited.pop(self.path, None)
        if until is not None and (left := until - time.monotonic()) > 0:
            self._clock.sleep(left)

    def _flocked(self, handle: int, *, wait: bool) -> bool:
        """Whether the lock is ours now."""
        try:
            with faults(self.path, "lock"):
                fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except StorageError as error:
            if isinstance(error.__cause__, BlockingIOError):
                return False
            raise
        if self._is_there(handle):
            return True
        fcntl.flock(handle, fcntl.LOCK_UN)
        return False

    def _is_there(self, handle: int) -> bool:
        """Whether the file that was opened is still the one at the path."""
        try:
            with faults(self.path, "lock"):
                mine, there = os.fstat(handle), os.stat(self.path)
        except FileNotFoundError:
            return False
        return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)

    def _open(self) -> int:
        spare = _spare.pop(self.path, None)  # in one step: two threads never get the same
        if spare is not None:
            return spare
        with faults(self.path, "open for locking"):
            try:
                return os.open(self.path, _FLAGS, 0o600)
            except FileNotFoundError:
                with suppress(FileNotFoundError):
                    _make_folders(os.path.dirname(self.path))  # without syncs: a lock need not survive a power cut
                    return os.open(self.path, _FLAGS, 0o600)
        raise NotWritable(
            f"could not open for locking {self.path}: no folder can be made there.",
            path=self.path,
            operation="open for locking",
            hint="Choose another place for what is kept, for example with HOLDFAST_HOME.",
        )

    def _sign(self, handle: int) -> None:
        """Write down who holds it. For people only: a full disk must not keep anybody from locking."""
        facts = f'{{"pid": {os.getpid()}, "host": {_host()}, "since": "{stamp(self._clock.now())}"}}\n'
        with suppress(OSError):
            os.pwrite(handle, facts.encode(), 0)  # over the name of the last one: to cut the file each time would cost more than the lock

    def _locked(self) -> Locked:
        owner = self.owner()
        return Locked(
            f"{self.path} is held by {owner or 'somebody else'}.",
            path=self.path,
            owner=owner,
            hint="Wait until it is done, or end that process; the lock goes with it.",
        )

    def _forked(self) -> None:
        """In a child made by fork: the lock is the parent's. Drop our copy of its descriptor, which would outlive the parent."""
        handle, self._handle = self._handle, None
        self._threads = threading.Lock()
        if handle is not None:
            _close(handle)


def is_sign(head: bytes) -> bool:
    """Whether the file of a lock begins like this. That of another program (`poetry.lock`) holds something else."""
    return not head.strip(b"\0") or head.startswith(b'{"pid": ')


def _close(handle: int) -> None:
    with suppress(OSError):
        os.close(handle)


def _note_awaited(path: str) -> None:
    _awaited[path] = time.monotonic() + _GIVES_WAY
    if len(_awaited) > _SPARE:
        with suppress(KeyError):  # another thread was faster
            _awaited.popitem(last=False)


def _keep(path: str, handle: int) -> None:
    """Keep the descriptor of a lock that was released for the next one who wants it."""
    if _spare.setdefault(path, handle) != handle:
        _close(handle)
    elif len(_spare) > _SPARE:
        with suppress(KeyError):  # another thread was faster
            _close(_spare.popitem(last=False)[1])


@functools.cache
def _host() -> str:
    """The name of this machine, as JSON."""
    from socket import gethostname  # costs more to import than all the rest of this module

    return json.dumps(gethostname())


def _make_folders(path: str) -> None:
    """All missing folders with a mode that keeps others out; `os.makedirs` gives it to the last one only."""
    if path and not os.path.isdir(path):
        _make_folders(os.path.dirname(path))
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)


def _after_fork() -> None:
    for lock in list(_held):
        lock._forked()
    _held.clear()
    while _spare:  # the parent may lock these at any time, and what it locks a child that shares them would hold too
        _close(_spare.popitem()[1])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# Who works with a folder for long


FOLDER = "running"
"""The folder with a lock file for each process that works with a folder for long."""
_RESTORING = "restoring.lock"
_PATIENCE = 10.0  # seconds


class Presence:
    """That this process works with a folder, from now until `close`. Raises Locked while a copy is being put in its place."""

    def __init__(self, folder: str | os.PathLike[str], name: str, *, clock: Clock | None = None) -> None:
        self._folder = Path(folder).absolute()
        place = self._folder / FOLDER
        # nobody else wants it, but whoever looks who is there, or tidies up, may have its file for a moment
        self._lock = Lock(place / f"{name}-{os.getpid()}-{secrets.token_hex(3)}.lock", timeout=_PATIENCE, clock=clock)
        self._lock.acquire()
        self._handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | getattr(os, "O_CLOEXEC", 0))
        if (owner := Lock(place / _RESTORING).owner()) is not None:  # after our own sign is up: one of the two sees the other
            self.close()
            raise Locked(f"{self._folder} is just being restored by {owner}.", path=self._folder, owner=owner, hint="Wait for its end.")
        _remove_dead(place)

    def displaced(self) -> bool:
        """Whether another folder, or none, is at the path now: what this process still writes may go where nobody looks."""
        try:
            return not os.path.samestat(os.fstat(self._handle), os.stat(self._folder))
        except OSError:
            return True

    def others(self) -> list[str]:
        """Who else is there: `holdfast serve, process 4711 on host, since ...`."""
        return [words for words, path in _there(self._folder) if path != Path(self._lock.path)]

    def close(self) -> None:
        """Leave."""
        if self._lock.held:
            with suppress(OSError):
                os.unlink(self._lock.path)
            self._lock.release()
            os.close(self._handle)


def residents(folder: Path) -> list[str]:
    """Who works with a folder, in words."""
    return [words for words, _ in _there(folder)]


def restoring(folder: Path) -> Lock:
    """Held while another folder is put in the place of this one; nobody begins to work with it meanwhile."""
    return Lock(folder / FOLDER / _RESTORING, timeout=0)


def _there(folder: Path) -> list[tuple[str, Path]]:
    owners = [(path, Lock(path).owner()) for path in _files(folder / FOLDER)]
    return [(f"holdfast {path.name.partition('-')[0]}, {owner}", path) for path, owner in owners if owner is not None]


def _files(place: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(path for path in place.iterdir() if path.suffix == ".lock" and path.name != _RESTORING)
    return []


def _remove_dead(place: Path) -> None:
    """Remove the files of processes that were killed."""
    for path in _files(place):
        lock = Lock(path, timeout=0)
        with suppress(Locked), lock:
            path.unlink(missing_ok=True)
