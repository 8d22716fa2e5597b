"""The seam below every file that must survive: a small set of verbs over paths and descriptors.

`RealDisk` is the machine's. `holdfast.testing.disk` has one that loses what was not synced and one that fails on demand;
all of them pass the same contract suite, so what is shown with them holds for the real one.

What an errno means is decided here and nowhere else. A path that is absent, or present where a new one was asked for, is an answer and
not a fault: `FileNotFoundError` and `FileExistsError` pass through as they are. Everything else becomes one of the storage errors.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from operator import attrgetter
from types import TracebackType
from typing import Literal, NamedTuple, Protocol

from holdfast.errors import DiskFull, NotWritable, StorageError, SyncFailed, WriteFailed

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_SYNCING = frozenset({"sync", "sync folder", "open to sync"})
_READING = frozenset({"open", "read", "size", "list", "look at"})


_MOVE = "Move it away, or name another folder."


def _in_the_way(path: str) -> str | None:
    """What stands above a path and is no folder."""
    while (above := os.path.dirname(path)) not in ("", path):
        path = above
        if os.path.lexists(path):
            return None if os.path.isdir(path) else path
    return None


def not_made(path: str) -> NotWritable:
    """What is said where the system takes nothing new, although the folder is there: below /proc, for example."""
    return NotWritable(f"nothing can be made in {os.path.dirname(path)}.", path=path, operation="make", hint="Name another place.")


def storage_error(error: OSError, path: str, operation: str) -> StorageError:
    """The storage error for `error`, which `operation` met at `path`. The original belongs in its `__cause__`."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    what = f"could not {operation} {path}: {reason}."
    if error.errno == errno.ENOTDIR and (blocking := _in_the_way(path)) is not None:
        kind = StorageError if operation in _READING else WriteFailed
        return kind(f"{blocking} is in the way: it is not a folder.", path=blocking, operation=operation, hint=_MOVE)
    if operation in _SYNCING:
        return SyncFailed(
            what,
            path=path,
            operation=operation,
            hint="What was written since the last sync may be gone. Check the disk, then open it anew and write again.",
        )
    if error.errno in _FULL:
        return DiskFull(what, path=path, operation=operation, hint="Free space or inodes, or raise the quota; the old content stands.")
    if operation in _READING:
        return StorageError(what, path=path, operation=operation)
    if error.errno in _REFUSED:
        return NotWritable(what, path=path, operation=operation, hint="Check the owner, the mode and how the file system is mounted.")
    return WriteFailed(what, path=path, operation=operation, hint="The old content stands.")


class faults:  # noqa: N801 - used as a function; a class because a generator costs more than most of the calls inside
    """Turns an OSError raised inside into the storage error for it."""

    __slots__ = ("_operation", "_path")

    def __init__(self, path: str, operation: str) -> None:
        self._path = path
        self._operation = operation

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, OSError) and not isinstance(error, (FileNotFoundError, FileExistsError)):
            raise storage_error(error, self._path, self._operation) from error


Kind = Literal["file", "folder", "other"]
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_LOG = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # a pipe where a file is expected must not keep us waiting; for a file it means nothing
_SETTLED_LIMIT = 4096
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
_TICK = 20_000_000  # nanoseconds: two writes within one tick of a file system's clock have the same time
_COARSE_TICK = 2_000_000_000  # of file systems that count in seconds
_SINCE_START = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_CLOCK_SLACK = 2.0  # seconds by which a clock may have been set since


class Identity(NamedTuple):
    """Which file it is, its size and its times: other ones after any write. Not `settled` while one more write could look the same."""

    facts: tuple[int, ...]
    settled: bool


class Named(NamedTuple):
    """A name in a folder and what is there. `modified` is in seconds since the epoch; `link` if it is a symbolic link.

    Of a folder size and time mean nothing: they are not looked at.
    """

    name: str
    kind: Kind
    size: int
    modified: float
    link: bool


_NAME = attrgetter("name")


class Disk(Protocol):
    """Files and folders, as far as durable writing needs them.

    Every method raises FileNotFoundError or FileExistsError where that is the answer, and a StorageError for anything else that
    goes wrong. Nothing is promised to survive a power cut before `sync` (content) and `sync_folder` (names) have returned.
    A handle whose `sync` failed is given up: the kernel reports a lost write once, so a second sync on it would lie.
    """

    @property
    def settled(self) -> set[str]:
        """Folders whose own name is known to be on the disk, so that `make_folders` need not sync their parents again."""

    def resolve(self, path: str) -> str:
        """The absolute path with every symbolic link followed; the last part need not exist."""

    def kind(self, path: str) -> Kind | None:
        """What is there, or None for nothing."""

    def modified(self, path: str) -> float:
        """Seconds since the epoch at which the content last changed."""

    def identity(self, place: str | int) -> Identity | None:
        """What changes when the file at a path, or of a handle, is written by anybody; None for nothing."""

    def predates_start(self, path: str) -> bool:
        """Whether the file was last written, or named, before the machine started: then a power cut may have torn what was not synced."""

    def touch(self, path: str) -> None:
        """Set the time of the last change to now."""

    def create(self, path: str, mode: int = 0o600) -> int:
        """A handle on a new file. FileExistsError if there is anything at `path`, even a dangling link."""

    def open(self, path: str) -> int:
        """A handle on an existing file, for reading."""

    def open_log(self, path: str, mode: int = 0o600) -> int:
        """A handle on a file, made if need be, for reading and writing."""

    def imitate(self, handle: int, path: str) -> None:
        """Give the file the mode of the one at `path`, and its owner where this process may."""

    def chmod(self, handle: int, mode: int) -> None:
        """Set the permission bits."""

    def size(self, handle: int) -> int:
        """How many bytes the file has."""

    def read(self, handle: int, offset: int, count: int) -> bytes:
        """Up to `count` bytes from `offset`; fewer, or none, only at the end of the file."""

    def write(self, handle: int, data: bytes, at: int | None = None) -> int:
        """Write at the end, or at a position; says how many bytes were taken, which may be fewer than given. `write_all` writes all."""

    def truncate(self, handle: int, size: int) -> None:
        """Cut the file to `size` bytes."""

    def sync(self, handle: int, *, content_only: bool = False) -> None:
        """On return the content survives a power cut. SyncFailed otherwise; never call it again on this handle then.

        `content_only`: mode, owner and times need not survive, which spares a file of the same size as before most of the work.
        """

    def close(self, handle: int) -> None:
        """Close. An error that the system had kept back until now is raised; the handle is closed all the same."""

    def rename(self, old: str, new: str, *, in_haste: bool = False) -> None:
        """Give the file another name in one step; whatever had that name is gone.

        `in_haste` for content that need not survive: some systems write it out before they replace a file, and are spared that.
        """

    def unlink(self, path: str) -> None:
        """Remove a file."""

    def make_folder(self, path: str, mode: int = 0o700) -> None:
        """Make one folder in an existing one."""

    def sync_folder(self, path: str) -> None:
        """On return the names in this folder survive a power cut: makings, renamings, removals."""

    def list(self, path: str) -> list[str]:
        """The names in a folder, sorted."""

    def scan(self, path: str) -> Sequence[Named]:
        """The names in a folder with what is there, sorted by name; links that lead nowhere are left out."""

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder; nothing happens if there is something in it, or no folder."""

    def lock(self, path: str, timeout: float | None = 10.0) -> AbstractContextManager[object]:
        """Held inside the `with`: nobody else, thread or process, is inside for the same path. Locked after `timeout` seconds."""


class RealDisk:
    """The machine's own disk. Handles are file descriptors."""

    def __init__(self) -> None:
        self._settled: set[str] = set()
        self._real: dict[str, tuple[str, tuple[int, int]]] = {}  # folders with every link followed, and which folder that was
        self._paths: dict[int, str] = {}  # what each open descriptor stands for, so that errors can say it

    @property
    def settled(self) -> set[str]:
        return self._settled

    def resolve(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        with faults(path, "look at"):
            if folder and name not in ("", ".", "..") and not _is_link(path):
                return f"{self._real_folder(folder)}/{name}"
            return os.path.realpath(path)

    def _real_folder(self, folder: str) -> str:
        """As `realpath`, without looking at every part again: what is remembered holds while both names lead to the same folder."""
        facts = _which(folder)
        known = self._real.get(folder)
        if known is not None and known[1] == facts and (known[0] == folder or _which(known[0]) == facts):
            return known[0]
        above, _, name = folder.rpartition("/")
        plain = above and name not in ("", ".", "..") and not _is_link(folder)
        found = f"{self._real_folder(above)}/{name}" if plain else os.path.realpath(folder)
        if facts is not None:
            if len(self._real) >= _SETTLED_LIMIT:
                self._real.clear()
            self._real[folder] = (found, facts)
        return found

    def kind(self, path: str) -> Kind | None:
        try:
            with faults(path, "look at"):
                mode = os.stat(path).st_mode
        except FileNotFoundError:
            return None
        return _kind(mode)

    def modified(self, path: str) -> float:
        try:
            return os.stat(path).st_mtime
        except FileNotFoundError:
            raise
        except OSError as error:  # without `faults`, as in `identity`: a list of very many sessions asks this for each
            raise storage_error(error, path, "look at") from error

    def identity(self, place: str | int) -> Identity | None:
        try:
            found = os.stat(place)
        except FileNotFoundError:
            return None
        except OSError as error:  # without `faults`, which costs more than all the rest: this is asked before every reading
            raise storage_error(error, place if isinstance(place, str) else self._name(place), "look at") from error
        newest = max(found.st_mtime_ns, found.st_ctime_ns)
        tick = _COARSE_TICK if newest % 1_000_000_000 == 0 else _TICK
        facts = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        return Identity(facts, time.time_ns() - newest > tick)

    def predates_start(self, path: str) -> bool:
        with faults(path, "look at"):
            changed = os.stat(path).st_ctime
        return changed < time.time() - time.clock_gettime(_SINCE_START) + _CLOCK_SLACK

    def touch(self, path: str) -> None:
        with faults(path, "touch"):
            os.utime(path)

    def create(self, path: str, mode: int = 0o600) -> int:
        with faults(path, "create"):
            return self._note(os.open(path, _NEW, mode), path)

    def open(self, path: str) -> int:
        try:
            with faults(path, "open"):
                return self._note(os.open(path, _READ | _AT_ONCE), path)
        except StorageError as error:
            if isinstance(error.__cause__, NotADirectoryError):  # below a file there is nothing
                raise FileNotFoundError(path) from error
            raise

    def open_log(self, path: str, mode: int = 0o600) -> int:
        with faults(path, "open for writing"):
            return self._note(os.open(path, _LOG, mode), path)

    def imitate(self, handle: int, path: str) -> None:
        with faults(path, "copy the mode of"):
            like = os.stat(path)
            mine = os.fstat(handle)
            if (like.st_uid, like.st_gid) != (mine.st_uid, mine.st_gid):
                with suppress(PermissionError):  # only root may give files away; the mode is what protects them
                    os.fchown(handle, like.st_uid, like.st_gid)
            os.fchmod(handle, stat.S_IMODE(like.st_mode))

    def chmod(self, handle: int, mode: int) -> None:
        with faults(self._name(handle), "set the mode of"):
            os.fchmod(handle, mode)

    def size(self, handle: int) -> int:
        with faults(self._name(handle), "size"):
            return os.fstat(handle).st_size

    def read(self, handle: int, offset: int, count: int) -> bytes:
        parts = []
        with faults(self._name(handle), "read"):
            while count > 0 and (part := os.pread(handle, count, offset)):
                parts.append(part)
                offset += len(part)
                count -= len(part)
        return b"".join(parts)

    def write(self, handle: int, data: bytes, at: int | None = None) -> int:
        with faults(self._name(handle), "write to"):
            if at is not None:
                return os.pwrite(handle, data, at)
            os.lseek(handle, 0, os.SEEK_END)
            return os.write(handle, data)

    def truncate(self, handle: int, size: int) -> None:
        with faults(self._name(handle), "cut"):
            os.ftruncate(handle, size)

    def sync(self, handle: int, *, content_only: bool = False) -> None:
        with faults(self._name(handle), "sync"):
            flush(handle, content_only=content_only)

    def close(self, handle: int) -> None:
        name = self._name(handle)
        self._paths.pop(handle, None)
        try:
            with faults(name, "close"):
                os.close(handle)
        except StorageError as error:
            if not (isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EINTR):
                raise  # interrupted means closed: the descriptor may already belong to somebody else

    def _note(self, handle: int, path: str) -> int:
        self._paths[handle] = path
        return handle

    def _name(self, handle: int) -> str:
        return self._paths.get(handle, f"descriptor {handle}")

    def rename(self, old: str, new: str, *, in_haste: bool = False) -> None:
        with faults(new, "put in place"):
            if in_haste and exchange(old, new):
                os.unlink(old)
            else:
                os.replace(old, new)

    def unlink(self, path: str) -> None:
        with faults(path, "remove"):
            os.unlink(path)

    def make_folder(self, path: str, mode: int = 0o700) -> None:
        with faults(path, "make folder"):
            os.mkdir(path, mode)

    def sync_folder(self, path: str) -> None:
        with faults(path, "open to sync"):
            handle = os.open(path, _READ | os.O_DIRECTORY)
        try:
            with faults(path, "sync folder"):
                flush(handle)
        finally:
            with suppress(OSError):  # nothing was written through this descriptor
                os.close(handle)

    def list(self, path: str) -> list[str]:
        with faults(path, "list"):
            return sorted(os.listdir(path))

    def scan(self, path: str) -> Sequence[Named]:
        found = []
        with faults(path, "list"), os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):  # which is known without a look at it
                    found.append(Named(entry.name, "folder", 0, 0.0, False))
                    continue
                try:
                    facts = entry.stat()
                except FileNotFoundError:  # removed meanwhile, or a link that leads nowhere
                    continue
                found.append(Named(entry.name, _kind(facts.st_mode), facts.st_size, facts.st_mtime, entry.is_symlink()))
        found.sort(key=_NAME)
        return found

    def remove_folder(self, path: str) -> None:
        try:
            with faults(path, "remove"):
                os.rmdir(path)
        except FileNotFoundError:
            return
        except StorageError as error:
            if not (isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)):
                raise
            return
        self._settled.discard(path)

    def lock(self, path: str, timeout: float | None = 10.0) -> AbstractContextManager[object]:
        from holdfast.durable.lock import Lock

        return Lock(path, timeout=timeout)


REAL: Disk = RealDisk()


@functools.cache
def _renameat2() -> Callable[..., int] | None:
    """The system's call that can exchange two files, where the C library has it."""
    import ctypes

    found = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if found is not None:
        found.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return found


def exchange(old: str, new: str) -> bool:
    """Let two files or folders change their names in one step. False if that cannot be done here, or there is nothing at `new`."""
    call = _renameat2()
    return call is not None and call(_HERE, os.fsencode(old), _HERE, os.fsencode(new), _EXCHANGE) == 0


def _kind(mode: int) -> Kind:
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"


def _is_link(path: str) -> bool:
    try:
        os.readlink(path)
    except OSError:
        return False
    return True


def _which(folder: str) -> tuple[int, int] | None:
    """Which folder a path leads to."""
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def flush(handle: int, *, content_only: bool = False) -> None:
    """fsync that reaches the medium. macOS answers fsync from the drive's cache and has another call for what we mean."""
    if sys.platform == "darwin":
        import fcntl

        try:
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
        else:
            return
    if content_only and hasattr(os, "fdatasync"):
        os.fdatasync(handle)
    else:
        os.fsync(handle)


def write_all(disk: Disk, handle: int, data: bytes, at: int | None = None) -> None:
    """Write every byte, however few the disk takes at a time: at the end, or from a position on."""
    done = 0
    while done < len(data):
        done += disk.write(handle, data[done:] if done else data, None if at is None else at + done)


def read_whole(disk: Disk, path: str) -> bytes:
    """The whole content of a file."""
    with closing(disk, disk.open(path)) as handle:
        return disk.read(handle, 0, max(disk.size(handle), 1) + 1)


class closing:  # noqa: N801 - as `faults`
    """Closes at the end. An error of closing is raised unless another one is already on its way."""

    __slots__ = ("_disk", "_handle")

    def __init__(self, disk: Disk, handle: int) -> None:
        self._disk = disk
        self._handle = handle

    def __enter__(self) -> int:
        return self._handle

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._disk.close(self._handle)
        except StorageError:
            if error is None:
                raise


def make_folders(disk: Disk, path: str, mode: int = 0o700, *, durable: bool = True) -> None:
    """Make a folder and the missing ones above it; on return all of their names survive a power cut, unless not `durable`.

    A folder that is already there may have been made by a process that was killed before it synced, so the parent of each
    folder is synced once in the life of this process even if nothing had to be made.
    """
    pending: list[str] = []
    path = disk.resolve(path)
    while path not in disk.settled and (parent := os.path.dirname(path)) != path:
        pending.append(path)
        path = parent
    made = {folder for folder in reversed(pending) if _make(disk, folder, mode)}
    for folder in reversed(pending) if durable else ():  # all are made first: most systems then write them out at the first sync
        try:
            disk.sync_folder(os.path.dirname(folder))
        except StorageError as error:
            if folder in made or not _unreadable(error):
                raise  # only a parent that we may not even open, and did not change, is let be
        if len(disk.settled) >= _SETTLED_LIMIT:
            disk.settled.clear()
        disk.settled.add(folder)


def open_in(disk: Disk, folder: str, opening: Callable[[], int], *, durable: bool = True) -> int:
    """Make the folder, then open a file in it; once more if somebody removed the folder since this process last saw it."""
    if durable:
        make_folders(disk, folder)
    try:
        return opening()
    except FileNotFoundError:
        if not durable:
            with suppress(FileNotFoundError):  # most often the folder is new, and those above it are as they were
                make_folders(disk, folder, durable=False)
                return opening()
        disk.settled.clear()
        make_folders(disk, folder, durable=durable)
        return opening()


def _make(disk: Disk, folder: str, mode: int) -> bool:
    if disk.kind(folder) == "folder":
        return False
    try:
        disk.make_folder(folder, mode)
    except FileExistsError:
        if disk.kind(folder) != "folder":
            raise StorageError(f"{folder} is in the way: it is not a folder.", path=folder, operation="make folder", hint=_MOVE) from None
    except FileNotFoundError as error:
        if disk.kind(os.path.dirname(folder)) != "folder":
            raise  # somebody removed what is above it
        raise not_made(folder) from error
    return True


def _unreadable(error: StorageError) -> bool:
    return error.operation == "open to sync" and isinstance(error.__cause__, PermissionError)
