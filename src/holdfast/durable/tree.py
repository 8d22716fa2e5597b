"""A tree of files read and written by descriptors: no link is followed, no name is refused, and no depth is too great."""

from __future__ import annotations

import errno
import io
import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from os import PathLike
from types import TracebackType
from typing import BinaryIO

from holdfast.durable.beneath import CLOEXEC, DIRECTORY, NOFOLLOW, drop
from holdfast.durable.disk import REAL, faults, flush, make_folders
from holdfast.errors import SyncFailed

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


def _is_link(here: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(name, dir_fd=here).st_mode)
    except OSError:
        return False
