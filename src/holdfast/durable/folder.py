"""A folder that nobody leaves: every path given to it stays beneath its root, whatever links and renames go on meanwhile.

For paths that come from outside: a model, a user, an archive. Writing is durable as in `replace.py`, but relative to an open
descriptor of the parent folder, so that it lands in that very folder even if its name is swapped for a link during the call.

Links that stay inside are followed when reading if the kernel has `openat2`, and refused otherwise. A link is never written
through: `write` puts a file in its place. Hard links cannot be told from the file itself by any path; `single_links=True` refuses to
read files that have a second name anywhere.

What is made by the superuser in a folder of somebody else belongs to the owner of that folder: who works there can use it.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import stat
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from os import PathLike
from types import TracebackType
from typing import BinaryIO, Literal

from holdfast.durable.beneath import CLOEXEC, DIRECTORY, NOFOLLOW, Mechanism, Tree, check_path, drop, open_beneath, openat2_works
from holdfast.durable.disk import REAL, faults, flush, make_folders
from holdfast.durable.replace import is_temp, temp_name
from holdfast.errors import InputError, OutsideRoot, StorageError


def matches(pattern: Sequence[str], path: Sequence[str]) -> bool:
    """Part by part: `**` stands for any number of parts, the rest for one. Names with a leading dot are not special.

    >>> matches(["**", "*.md"], ["notes", "today.md"]), matches(["*.md"], ["notes", "today.md"])
    (True, False)
    """
    if pattern and path and pattern[-1] != "**" and not fnmatch.fnmatchcase(path[-1], pattern[-1]):
        return False  # most paths end otherwise, and deep ones have many parts
    reachable = {0}  # how many parts of the pattern may be used up so far
    reachable = _skip(pattern, reachable)
    for part in path:
        step = set()
        for index in reachable:
            if index < len(pattern) and pattern[index] == "**":
                step.add(index)
            elif index < len(pattern) and fnmatch.fnmatchcase(part, pattern[index]):
                step.add(index + 1)
        reachable = _skip(pattern, step)
    return len(pattern) in reachable


def _skip(pattern: Sequence[str], indices: set[int]) -> set[int]:
    """A `**` may also stand for nothing."""
    found = set(indices)
    for index in sorted(indices):
        while index < len(pattern) and pattern[index] == "**":
            index += 1
            found.add(index)
    return found


_FOLDER = os.O_RDONLY | DIRECTORY | CLOEXEC
_FILE = os.O_RDONLY | CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)  # a pipe must not make us wait
EntryKind = Literal["file", "folder", "link", "other"]


def open_outside(path: str | PathLike[str]) -> BinaryIO:
    """A file that somebody named, or that lay in a folder which somebody named, open for reading.

    OSError if it is no regular file: a pipe or a device could make the reader wait for ever, or never come to an end.
    """
    handle = os.open(path, _FILE)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    code, why = (errno.EISDIR, os.strerror(errno.EISDIR)) if stat.S_ISDIR(mode) else (errno.EINVAL, "it is not a regular file")
    raise OSError(code, why, os.fspath(path))


@dataclass(frozen=True)
class FolderEntry:
    """Something in a folder: its path relative to the root, what it is, its size and when it was last changed.

    `links` is how many names it has, and `identity` (device and inode) is the same for all of them.
    """

    path: str
    kind: EntryKind
    size: int
    modified: float
    links: int = field(default=1, compare=False)
    identity: tuple[int, int] = field(default=(0, 0), compare=False)


class Folder:
    """The folder at `root`, held open. Paths are relative to it, with `/` between parts, and `.` is the folder itself.

    OutsideRoot for a path that would lead out, InputError for a name that no file should have, FileNotFoundError for what is not
    there, StorageError for the rest. Safe for many threads. With `make` a missing root is made. What is there can be read, listed and
    removed under any name that somebody gave it; new names must be ones that can be seen.
    """

    def __init__(
        self, root: str | PathLike[str], *, make: bool = False, single_links: bool = False, mechanism: Mechanism | None = None
    ) -> None:
        self.path = os.path.realpath(os.fspath(root))
        if make:
            make_folders(REAL, self.path)
        with faults(self.path, "open"):
            handle = os.open(self.path, _FOLDER)
        self._adopt(handle, mechanism or ("openat2" if openat2_works() else "walk"), single_links)

    def _adopt(self, handle: int, mechanism: Mechanism, single_links: bool) -> None:
        self.mechanism: Mechanism = mechanism
        self.single_links = single_links
        self._handle = handle
        self._close = weakref.finalize(self, drop, handle)

    @property
    def descriptor(self) -> int:
        """The open descriptor of the folder, valid until it is closed."""
        return self._handle

    def close(self) -> None:
        """Let go of the folder. Everything after this fails."""
        self._close()
        self._handle = -1

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def folder(self, path: str, *, make: bool = False) -> Folder:
        """A handle on a folder below, which in turn is never left."""
        if make:
            self.make_folder(path)
        parts = check_path(path, existing=True)
        with faults(path, "open"):
            handle = open_beneath(self._handle, parts, _FOLDER, 0, self.mechanism)
        below = Folder.__new__(Folder)
        below.path = os.path.join(self.path, *parts)
        below._adopt(handle, self.mechanism, self.single_links)
        return below

    # Reading

    def open(self, path: str) -> BinaryIO:
        """The file, open for reading. InputError if it is not a regular file: a pipe or a device could make the reader wait for ever."""
        parts = check_path(path, existing=True)
        with faults(path, "open"):
            handle = open_beneath(self._handle, parts, _FILE, 0, self.mechanism)
        try:
            _check_file(os.fstat(handle), path, self.single_links)
            return os.fdopen(handle, "rb")
        except BaseException:
            drop(handle)
            raise

    def read_bytes(self, path: str, *, limit: int | None = None) -> bytes:
        """The content. InputError if it has more than `limit` bytes."""
        with faults(path, "read"), self.open(path) as file:
            data = file.read(-1 if limit is None else limit + 1)
        if limit is not None and len(data) > limit:
            raise InputError(f"{path!r} has more than {limit} bytes.", hint="Read a part of it.")
        return data

    def read_text(self, path: str, *, limit: int | None = None) -> str:
        """The content as UTF-8 text. InputError if it is not that."""
        try:
            return self.read_bytes(path, limit=limit).decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{path!r} is not UTF-8 text (byte {error.start}).", hint="Read it as bytes.") from error

    def exists(self, path: str) -> bool:
        """Whether there is something at this path. A link that leads out raises OutsideRoot."""
        try:
            self.stat(path)
        except FileNotFoundError:
            return False
        return True

    def stat(self, path: str) -> FolderEntry:
        """What is at this path; for a link, what it points to."""
        parts = check_path(path, existing=True)
        with faults(path, "look at"):
            handle = open_beneath(self._handle, parts, getattr(os, "O_PATH", _FILE), 0, self.mechanism)
        try:
            return _entry("/".join(parts) or ".", os.fstat(handle))
        finally:
            drop(handle)

    def list(self, path: str = ".") -> tuple[FolderEntry, ...]:
        """What is in a folder, by name. Links are listed as links. Files that are only being written are left out."""
        parts = check_path(path, existing=True)
        with faults(path, "list"):
            handle = open_beneath(self._handle, parts, _FOLDER, 0, self.mechanism)
            try:
                entries = []
                for name in sorted(os.listdir(handle)):
                    with suppress(FileNotFoundError):  # removed since
                        if not is_temp(name):
                            entries.append(_entry("/".join((*parts, name)), os.lstat(name, dir_fd=handle)))
            finally:
                drop(handle)
        return tuple(entries)

    def walk(self, path: str = ".", *, unread: dict[str, str] | None = None) -> Iterator[FolderEntry]:
        """Everything below a folder, each folder before its content, by name, however deep and whatever it is called.

        No link is followed. A folder that may not be entered goes to `unread` with the reason; without that it is a StorageError.
        """
        parts = check_path(path, existing=True)
        with faults(path, "list"):
            handle = open_beneath(self._handle, parts, _FOLDER, 0, self.mechanism)
        try:
            with Tree.at(handle) as tree:
                noted: dict[str, str] = {} if unread is None else unread
                for entry in tree.walk(noted, skip=lambda _, inner: is_temp(inner.rpartition("/")[2])):
                    if unread is None and noted:
                        break
                    if entry.facts is not None and not is_temp(entry.path.rpartition("/")[2]):
                        yield _entry("/".join((*parts, entry.path)), entry.facts)
                if unread is None and noted:
                    folder, reason = next(iter(noted.items()))
                    raise StorageError(f"the folder {folder!r} cannot be read: {reason}.", path=folder, operation="list")
        finally:
            drop(handle)

    def glob(self, pattern: str) -> Iterator[FolderEntry]:
        """Everything whose path fits: `*` and `?` within a name, `[abc]`, and `**` for any number of folders."""
        parts = check_path(pattern)
        return (entry for entry in self.walk() if matches(parts, entry.path.split("/")))

    # Writing

    def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Replace the content in one step; on return it survives a power cut. Missing folders are made.

        The mode of an existing file is kept; a new one gets `mode`, or 0600.
        """
        with self._parent(path, make=True) as (parent, name):
            temp = temp_name()
            with faults(path, "create"):
                handle = os.open(temp, os.O_RDWR | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC, 0o600, dir_fd=parent)
            try:
                _hand_over(handle, parent, path)
                self._fill(handle, data, path, mode if mode is not None else _mode_of(parent, name))
                with faults(path, "put in place"):
                    os.rename(temp, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temp, dir_fd=parent)
                raise
            _sync(parent, path)

    def write_text(self, path: str, text: str, *, mode: int | None = None) -> None:
        """`write` for text, as UTF-8."""
        self.write(path, text.encode("utf-8"), mode=mode)

    def append(self, path: str, data: bytes) -> None:
        """Add to the end of a file, made if need be; on return it survives a power cut. A crash may leave a part of `data`."""
        with self._parent(path, make=True) as (parent, name):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | NOFOLLOW | CLOEXEC | getattr(os, "O_NONBLOCK", 0)
            with faults(path, "open for writing"):
                handle = open_beneath(parent, (name,), flags, 0o600, "walk")
            try:
                facts = os.fstat(handle)
                _check_file(facts, path, self.single_links)
                if facts.st_size == 0:
                    _hand_over(handle, parent, path)
            except BaseException:
                drop(handle)
                raise
            self._fill(handle, data, path, None)
            if facts.st_size == 0:
                _sync(parent, path)

    def _fill(self, handle: int, data: bytes, path: str, mode: int | None) -> None:
        """Write all, sync, close. Whatever goes wrong, the descriptor is closed and never synced again."""
        try:
            with faults(path, "write to"):
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(handle, rest) :]
                if mode is not None:
                    os.fchmod(handle, mode)
            with faults(path, "sync"):
                flush(handle)
        except BaseException:
            drop(handle)
            raise
        with faults(path, "close"):
            os.close(handle)

    def make_folder(self, path: str, *, mode: int = 0o700) -> None:
        """Make a folder and the missing ones above it; on return they survive a power cut. Harmless if it is there."""
        drop(self._descend(check_path(path), path, make=True, mode=mode))

    def remove(self, path: str, *, tree: bool = False) -> None:
        """Remove a file, a link (not what it points to) or an empty folder; with `tree` a folder with all that is in it."""
        with self._parent(path, existing=True) as (parent, name):
            with faults(path, "remove"):
                try:
                    os.unlink(name, dir_fd=parent)
                except (IsADirectoryError, PermissionError):
                    if tree:
                        _remove_tree(parent, name)
                    else:
                        os.rmdir(name, dir_fd=parent)
            _sync(parent, path)

    def rename(self, old: str, new: str) -> None:
        """Move within the folder; a file that has the new name already is replaced. On return it survives a power cut."""
        with self._parent(old, existing=True) as (source, name), self._parent(new, make=True) as (target, new_name):
            with faults(new, "put in place"):
                os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
            _sync(target, new)
            _sync(source, old)

    @contextmanager
    def _parent(self, path: str, *, make: bool = False, existing: bool = False) -> Iterator[tuple[int, str]]:
        """An open descriptor of the folder that holds `path`, and the last part of it."""
        parts = check_path(path, existing=existing)
        if not parts:
            raise InputError("the folder itself cannot be written, moved or removed.", hint="Give the path of something in it.")
        handle = self._descend(parts[:-1], path, make=make)
        try:
            yield handle, parts[-1]
        finally:
            drop(handle)

    def _descend(self, parts: tuple[str, ...], path: str, *, make: bool, mode: int = 0o700) -> int:
        with faults(path, "open"):
            try:
                return open_beneath(self._handle, parts, _FOLDER, 0, self.mechanism)
            except FileNotFoundError:
                if not make:
                    raise
        above = self._descend(parts[:-1], path, make=True, mode=mode)
        try:
            with faults(path, "make folder"), suppress(FileExistsError):
                os.mkdir(parts[-1], mode, dir_fd=above)
            _sync(above, path)
            with faults(path, "open"):
                made = open_beneath(above, parts[-1:], _FOLDER, 0, "walk")  # just made: a link here is an attack
            try:
                _hand_over(made, above, path)
            except BaseException:
                drop(made)
                raise
            return made
        finally:
            drop(above)


def _check_file(facts: os.stat_result, path: str, single_links: bool) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise InputError(f"{path!r} is not a regular file.", hint="Give the path of a file.")
    if single_links and facts.st_nlink > 1:
        raise OutsideRoot(f"{path!r} has a second name, which may be outside of the folder.", path=path, hint="Copy the file.")


def _mode_of(parent: int, name: str) -> int | None:
    try:
        facts = os.lstat(name, dir_fd=parent)
    except OSError:
        return None
    return stat.S_IMODE(facts.st_mode) & 0o777 if stat.S_ISREG(facts.st_mode) else None


def _hand_over(made: int, folder: int, path: str) -> None:
    """Give what the superuser just made to the owner of the folder it is in. Harmless for everybody else."""
    if getattr(os, "geteuid", lambda: -1)() != 0:
        return
    with faults(path, "hand over"):
        owner = os.fstat(folder)
        if owner.st_uid != 0:
            os.fchown(made, owner.st_uid, owner.st_gid)


def _sync(folder: int, path: str) -> None:
    with faults(path, "sync folder"):
        flush(folder)


def _entry(path: str, facts: os.stat_result) -> FolderEntry:
    kinds: dict[int, EntryKind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(facts.st_mode), "other")
    return FolderEntry(path, kind, facts.st_size, facts.st_mtime, facts.st_nlink, (facts.st_dev, facts.st_ino))


def remove_tree(path: str | PathLike[str]) -> None:
    """Remove a folder with everything in it, however deep. Links are removed, never entered. FileNotFoundError if there is none."""
    place = os.path.abspath(os.fspath(path))
    parent = os.open(os.path.dirname(place), _FOLDER)
    try:
        _remove_tree(parent, os.path.basename(place))
    finally:
        drop(parent)


def _remove_tree(parent: int, name: str) -> None:
    """Remove a folder below another. Its own folders are moved up beside it one by one, so that no depth is too great.

    What was moved up and is left there by a killed process has the name of a temporary file. A folder swapped for a link is removed as the
    link it is.
    """
    waiting = [name]
    while waiting:
        here = _opened_to_empty(parent, waiting[-1])
        if here is None:
            waiting.pop()
            continue
        try:
            for inner in os.listdir(here):
                try:
                    os.unlink(inner, dir_fd=here)
                except (IsADirectoryError, PermissionError):
                    moved = temp_name()
                    os.rename(inner, moved, src_dir_fd=here, dst_dir_fd=parent)
                    waiting.insert(0, moved)
        finally:
            drop(here)
        os.rmdir(waiting.pop(), dir_fd=parent)


def _opened_to_empty(parent: int, name: str) -> int | None:
    """A folder that is to be emptied; None for a link or file, which is removed here. One that its owner may not enter is opened up."""
    try:
        here = os.open(name, _FOLDER | NOFOLLOW, dir_fd=parent)
    except OSError as error:
        if error.errno == errno.EACCES:
            _open_up(parent, name)
            return os.open(name, _FOLDER | NOFOLLOW, dir_fd=parent)
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        os.unlink(name, dir_fd=parent)
        return None
    if not os.fstat(here).st_mode & stat.S_IWUSR:
        os.fchmod(here, 0o700)
    return here


def _open_up(parent: int, name: str) -> None:
    """Let the owner enter a folder again; by a descriptor, so that it is this folder and not what a link leads to."""
    here = os.open(name, getattr(os, "O_PATH", 0) | DIRECTORY | NOFOLLOW | CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{here}", 0o700)
    finally:
        drop(here)
