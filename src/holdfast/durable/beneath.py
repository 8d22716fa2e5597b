"""Files by descriptors: a path that cannot lead out of a folder, and a tree (`Tree`) in which no link is followed.

Checking a path and then opening it are two moments, and between them a folder can become a link. `openat2` with
RESOLVE_BENEATH makes them one. Where it does not exist every part is opened by itself without following links.

In a tree no name is refused and no depth is too great: it is read and written as it is, for copies of what others made.
"""

from __future__ import annotations

import errno
import functools
import io
import os
import stat
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike
from types import TracebackType
from typing import Any, BinaryIO, Literal

from holdfast.durable.disk import REAL, faults, flush, make_folders
from holdfast.errors import InputError, OutsideRoot, SyncFailed

Mechanism = Literal["openat2", "walk"]
_SYSCALL = 437  # the same number on every architecture of Linux but alpha
_NO_MAGICLINKS, _BENEATH = 0x02, 0x08
_MAX_NAME, _MAX_PATH = 255, 4000
CLOEXEC = getattr(os, "O_CLOEXEC", 0)
NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
DIRECTORY = getattr(os, "O_DIRECTORY", 0)


def check_path(path: str, *, existing: bool = False) -> tuple[str, ...]:
    """The parts of a relative path; none for the folder itself (`.`).

    OutsideRoot for what would lead out, InputError for what no file should be called. With `existing` it names something that may be there
    already, under whatever name it was given by somebody else: then control characters and bytes that are no text are names like others.
    """
    if not isinstance(path, str) or not path:
        raise InputError("a path is needed.", hint="Give one relative to the folder, or `.` for the folder itself.")
    if path.startswith("/"):
        raise OutsideRoot(f"{path!r} is an absolute path.", path=path, operation="open", hint="Give a path relative to the folder.")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise OutsideRoot(f"{path!r} goes up with `..`.", path=path, operation="open", hint="Give a path that only goes down.")
    for part in parts:
        _check_part(part, path, existing=existing)
    if len(os.fsencode(path)) > _MAX_PATH:
        raise InputError(f"a path of {len(os.fsencode(path))} bytes is too long.", hint=f"Keep it under {_MAX_PATH} bytes.")
    return parts


def _check_part(part: str, path: str, *, existing: bool) -> None:
    try:
        length = len(os.fsencode(part) if existing else part.encode("utf-8"))
    except UnicodeEncodeError:
        raise InputError(f"{path!r} is not valid text.", hint="Use names that can be written as UTF-8.") from None
    if length > _MAX_NAME:
        raise InputError(f"the name {part[:40]!r}... has {length} bytes.", hint=f"Keep names within {_MAX_NAME} bytes.")
    if "\0" in part or (not existing and _is_unseen(part)):
        raise InputError(f"{path!r} holds a blank name or a control character.", hint="Use names that can be seen.")


def _is_unseen(part: str) -> bool:
    return not part.strip() or any(ord(sign) < 32 or ord(sign) == 127 for sign in part)


def open_beneath(root: int, parts: Sequence[str], flags: int, mode: int, mechanism: Mechanism) -> int:
    """A descriptor for `parts` below the folder that `root` is open on. OutsideRoot if the way leads out.

    With `openat2` links that stay inside are followed; with `walk` every link is refused. Raises OSError for everything else.
    """
    shown = "/".join(parts) or "."
    try:
        if mechanism == "openat2":
            return _openat2(root, shown, flags | CLOEXEC, mode)
        return _walk(root, parts, flags | CLOEXEC, mode)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.ELOOP):
            raise OutsideRoot(
                f"{shown!r} goes through a link that leads out of the folder, or nowhere.", path=shown, operation="open"
            ) from error
        raise


def _openat2(root: int, path: str, flags: int, mode: int) -> int:
    libc, how_type = _library()
    how = how_type(flags, mode if flags & os.O_CREAT else 0, _BENEATH | _NO_MAGICLINKS)
    import ctypes

    for _ in range(100):
        handle = libc.syscall(_SYSCALL, root, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
        if handle >= 0:
            return int(handle)
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: a folder on the way was renamed meanwhile
            break
    raise OSError(number, os.strerror(number), path)


@functools.cache
def _library() -> tuple[Any, Any]:
    import ctypes

    class OpenHow(ctypes.Structure):
        _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))

    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    libc.syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    return libc, OpenHow


@functools.cache
def openat2_works() -> bool:
    """Whether the kernel has `openat2` and lets us use it (some containers filter it)."""
    if not sys.platform.startswith("linux"):
        return False
    with suppress(OSError, AttributeError):
        root = os.open("/", os.O_RDONLY | DIRECTORY | CLOEXEC)
        try:
            drop(_openat2(root, ".", os.O_RDONLY | DIRECTORY | CLOEXEC, 0))
        finally:
            drop(root)
        return True
    return False


def drop(handle: int) -> None:
    """Close a descriptor through which nothing was written: there is nothing that an error could mean."""
    with suppress(OSError):
        os.close(handle)


def _walk(root: int, parts: Sequence[str], flags: int, mode: int) -> int:
    """Open part after part. A link in the way shows as ELOOP, or as ENOTDIR where a folder is asked for."""
    if not parts:
        return os.open(".", flags, dir_fd=root)
    here = os.dup(root)
    try:
        for part in parts[:-1]:
            below = _step(here, part, os.O_RDONLY | DIRECTORY | CLOEXEC, 0)
            drop(here)
            here = below
        return _step(here, parts[-1], flags, mode)
    finally:
        drop(here)


def _step(here: int, part: str, flags: int, mode: int) -> int:
    try:
        handle = os.open(part, flags | NOFOLLOW, mode, dir_fd=here)
    except NotADirectoryError:
        if _is_link(here, part):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), part) from None
        raise
    if flags & getattr(os, "O_PATH", 0) and stat.S_ISLNK(os.fstat(handle).st_mode):  # O_PATH opens the link itself
        drop(handle)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), part)
    return handle


def _is_link(here: int, part: str) -> bool:
    try:
        os.readlink(part, dir_fd=here)
    except OSError:
        return False
    return True


_FOLDER = os.O_RDONLY | DIRECTORY | CLOEXEC
_FILE = os.O_RDONLY | CLOEXEC | NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)  # a pipe must not make us wait
_OPEN = 64
_MODES = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """Something in a tree: its path from the root, with `/` between names and lone surrogates for bytes that are no text, and its kind."""

    path: str
    kind: str
    facts: os.stat_result | None = field(default=None, compare=False, repr=False)


class Tree:
    """The tree below a folder. Keeps the last folders open, so that a deep path is not walked again for each name in it. For one thread.

    A link at the top stands for what it leads to. `Tree.at` takes the folder from an open descriptor, and there no link is followed.
    """

    def __init__(self, root: str | PathLike[str], *, handle: int | None = None) -> None:
        self.path = os.fspath(root)
        self._open: OrderedDict[str, int] = OrderedDict()
        self._follows_top = handle is None
        self._root = os.open(self.path, _FOLDER) if handle is None else os.open(".", _FOLDER, dir_fd=handle)

    @classmethod
    def at(cls, handle: int, path: str = ".") -> Tree:
        """The tree below the folder that a descriptor is open on, which stays the caller's. `path` is what the folder is called."""
        return cls(path, handle=handle)

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        while self._open:
            drop(self._open.popitem()[1])
        drop(self._root)

    def walk(
        self, unread: dict[str, str], *, top_links: bool = False, skip: Callable[[Tree, str], bool] | None = None
    ) -> Iterator[TreeEntry]:
        """Everything below the root, a folder before what is in it, by name. A folder that cannot be read goes to `unread` with the reason.

        With `top_links` a link at the top that leads to a file or folder counts as that. What `skip` says yes to is passed over.
        """
        waiting = [TreeEntry(".", "folder")]
        while waiting:
            entry = waiting.pop()
            if entry.path != ".":
                if entry.kind == "folder" and skip is not None and skip(self, entry.path):
                    continue
                yield entry
            if entry.kind == "folder":
                try:
                    inside = self._entries(entry.path, top_links=top_links and entry.path == ".")
                except OSError as error:
                    if error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR) or entry.path == ".":  # else it went meanwhile
                        unread[f"{entry.path}/"] = error.strerror or str(error)
                    continue
                waiting += reversed(inside)

    def kind(self, path: str) -> str | None:
        """What is at a path; None if nothing is."""
        folder, _, name = path.rpartition("/")
        try:
            return _kind(os.lstat(name, dir_fd=self.folder(folder or ".")).st_mode)
        except OSError:
            return None

    def open(self, path: str) -> io.BufferedReader:
        """A file for reading. FileNotFoundError if it is gone; OSError for a link or a pipe."""
        folder, _, name = path.rpartition("/")
        flags = _FILE if folder or not self._follows_top else _FILE & ~NOFOLLOW  # at the top a link stands for its file
        handle = os.open(name, flags, dir_fd=self.folder(folder or "."))
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return os.fdopen(handle, "rb")
        drop(handle)
        raise OSError(errno.EINVAL, "it is not a file any more", path)

    def create(self, path: str) -> BinaryIO:
        """A new file for writing, for its owner alone, with the folders above it."""
        folder, _, name = path.rpartition("/")
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | CLOEXEC, 0o600, dir_fd=self.folder(folder or ".", make=True))
        return os.fdopen(handle, "w+b")

    def target(self, path: str) -> str:
        """Where a link says that it leads."""
        folder, _, name = path.rpartition("/")
        return os.readlink(name, dir_fd=self.folder(folder or "."))

    def link(self, path: str, to: str) -> str:
        """Make a link that says it leads `to`. Returns that."""
        folder, _, name = path.rpartition("/")
        os.symlink(to, name, dir_fd=self.folder(folder or ".", make=True))
        return to

    def sync_folders(self) -> None:
        """Make the names in every folder durable."""
        for entry in [TreeEntry(".", "folder"), *self.walk({})]:
            if entry.kind == "folder":
                os.fsync(self.folder(entry.path))

    def folder(self, path: str, *, make: bool = False) -> int:
        """A descriptor of a folder, valid until the next call of anything. With `make` missing ones are made, for their owner alone."""
        if path in (".", ""):
            return self._root
        if path in self._open:
            self._open.move_to_end(path)
            return self._open[path]
        parts = path.split("/")
        depth = next((n for n in range(len(parts) - 1, 0, -1) if "/".join(parts[:n]) in self._open), 0)
        here = self._open["/".join(parts[:depth])] if depth else self._root
        for end in range(depth + 1, len(parts) + 1):
            here = self._step(here, parts[end - 1], top=end == 1, make=make)
            self._open["/".join(parts[:end])] = here
            while len(self._open) > _OPEN:
                drop(self._open.popitem(last=False)[1])
        return here

    def _step(self, here: int, name: str, *, top: bool, make: bool) -> int:
        flags = _FOLDER if top and self._follows_top else _FOLDER | NOFOLLOW
        try:
            return os.open(name, flags, dir_fd=here)
        except FileNotFoundError:
            if not make:
                raise
            os.mkdir(name, 0o700, dir_fd=here)
            return os.open(name, flags, dir_fd=here)

    def _entries(self, path: str, *, top_links: bool) -> list[TreeEntry]:
        here = self.folder(path)
        found = []
        for name in sorted(os.listdir(here)):
            facts = None
            try:
                facts = os.lstat(name, dir_fd=here)
                mode = facts.st_mode
                if top_links and stat.S_ISLNK(mode):
                    with_target = os.stat(name, dir_fd=here).st_mode
                    mode = with_target if stat.S_ISDIR(with_target) or stat.S_ISREG(with_target) else mode
            except FileNotFoundError:  # removed since, or a link to nothing
                if not (top_links and _is_link(here, name)):
                    continue
                mode = stat.S_IFLNK
            found.append(TreeEntry(name if path == "." else f"{path}/{name}", _kind(mode), facts))
        return found


def sync_tree(root: str | PathLike[str]) -> None:
    """Make everything below a folder durable, whoever wrote it, the names of the folders on the way to it too. SyncFailed if that fails."""
    place = os.fspath(root)
    make_folders(REAL, place)
    unread: dict[str, str] = {}
    with faults(place, "sync"), Tree(place) as tree:
        for entry in tree.walk(unread):
            if entry.kind == "file":
                with tree.open(entry.path) as file:
                    flush(file.fileno())
        tree.sync_folders()
    for name, why in unread.items():
        raise SyncFailed(f"could not sync {place}/{name}: {why}.", path=f"{place}/{name}", operation="sync")


def _kind(mode: int) -> str:
    return _MODES.get(stat.S_IFMT(mode), "other")
