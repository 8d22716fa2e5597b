"""From the paths that tools and commands see to an open folder and a path beneath it.

A virtual path is compared part by part, never as text: `/mnt/user-data-x` does not begin with `/mnt/user-data`. What is left of it goes
to a `Folder`, which the kernel keeps from being left by links. Percent signs, backslashes and letters that look like dots are plain
names.

Names that cannot be shown as they are (line breaks, invisible signs, bytes that are no text) are written in the quotes of a shell,
`$'a\\nb.txt'`, and understood in them: so every file can be seen, read and removed, and no name forges a line of a result.

Hard links are told apart by counting: a file whose other names are not all found in the same root is refused, because a link to somebody
else's file would be read as our own. Files that a tool such as git linked among themselves are read as usual.

The folders of a thread are `{base}/threads/{thread}/user-data/{workspace,uploads,outputs}` (A9). Only these are ever shown to a command,
so that it can neither rename them nor put a link in their place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from holdfast.durable.beneath import check_path
from holdfast.durable.disk import REAL, faults, make_folders
from holdfast.durable.folder import Folder
from holdfast.durable.tree import Tree
from holdfast.errors import InputError, NotWritable, OutsideRoot
from holdfast.ids import THREAD_NOTE, thread_folder, thread_in, thread_note
from holdfast.sandbox.quota import DiskQuota
from holdfast.text.framing import without_tags
from holdfast.text.normalise import find_invisible

USER_DATA = "/mnt/user-data"
WORKSPACE = f"{USER_DATA}/workspace"
UPLOADS = f"{USER_DATA}/uploads"
OUTPUTS = f"{USER_DATA}/outputs"


@dataclass(frozen=True)
class Root:
    """A folder of this machine and the path under which tools and commands see it."""

    virtual: str
    folder: Folder
    read_only: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        return _parts(self.virtual)


@dataclass(frozen=True)
class Place:
    """Where a virtual path leads: a root, and a path relative to it (`.` for the root itself)."""

    root: Root
    relative: str

    @property
    def path(self) -> str:
        """The one spelling of the virtual path."""
        return self.root.virtual if self.relative == "." else f"{self.root.virtual}/{self.relative}"

    @property
    def folder(self) -> Folder:
        return self.root.folder


class VirtualPaths:
    """The roots that one thread can see. A relative path is one in the workspace."""

    def __init__(self, roots: Sequence[Root], *, home: str = WORKSPACE) -> None:
        self.roots = tuple(sorted(roots, key=lambda root: root.parts))
        self._by_depth = sorted(self.roots, key=lambda root: -len(root.parts))  # a root inside of another one is tried first
        self._home = home

    def resolve(self, path: str, *, writing: bool = False, existing: bool | None = None) -> Place:
        """Where the path leads. OutsideRoot if it leads nowhere that this thread may see, InputError if it is no path, and
        NotWritable for writing to what is only there to be read. What is `existing`, and not made anew, may have any name."""
        parts = self._absolute(path, existing=not writing if existing is None else existing)
        for root in self._by_depth:
            if parts[: len(root.parts)] == root.parts:
                if writing and root.read_only:
                    raise NotWritable(
                        f"{root.virtual} can only be read.", path=path, operation="write", hint=f"Write below {WORKSPACE} or {OUTPUTS}."
                    )
                return Place(root, "/".join(parts[len(root.parts) :]) or ".")
        raise self._outside(path)

    def below(self, path: str) -> tuple[Root, ...]:
        """The roots below a folder that exists only as a part of their paths, such as `/mnt/user-data`. None for every other path."""
        parts = self._absolute(path)
        return tuple(root for root in self.roots if len(root.parts) > len(parts) and root.parts[: len(parts)] == parts)

    def _absolute(self, path: str, *, existing: bool = True) -> tuple[str, ...]:
        if not isinstance(path, str) or not path:
            raise InputError("a path is needed.", hint=f"Give one such as {WORKSPACE}/notes.md.")
        path = unquoted(path)
        if path.startswith("~"):
            raise InputError(f"{path!r}: there is no home folder here.", hint=f"Give a path below {WORKSPACE}.")
        relative = check_path(path.lstrip("/") or ".", existing=existing)
        return relative if path.startswith("/") else (*_parts(self._home), *relative)

    def _outside(self, path: str) -> OutsideRoot:
        seen = ", ".join(root.virtual for root in self.roots)
        return OutsideRoot(f"{path!r} is not in a folder that can be used.", path=path, operation="open", hint=f"There are {seen}.")


_LETTERS = {"\n": "n", "\r": "r", "\t": "t", "\x1b": "e", "\a": "a", "\b": "b", "\f": "f", "\v": "v", "\\": "\\", "'": "'"}
_MEANT = {letter: sign for sign, letter in _LETTERS.items()} | {"E": "\x1b", '"': '"', "?": "?"}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))", re.DOTALL)


def quoted(path: str) -> str:
    """The path as it is, or in the quotes of a shell where it could not be seen or would be taken for something else: a line, a tag.

    >>> quoted("/mnt/a b.txt"), quoted("a\\nb"), quoted("zero\\u200bwidth")
    ('/mnt/a b.txt', "$'a\\\\nb'", "$'zero\\\\u200bwidth'")
    """
    hidden = {one.position for one in find_invisible(path)}
    if without_tags(path) != path:  # a name must not close the frame that it is listed in, or open one
        hidden |= {position for position, sign in enumerate(path) if sign in "<＜﹤‹[]"}
    if not hidden and path.isprintable() and path == path.strip() and not path.startswith("$'") and "/ " not in path and " /" not in path:
        return path
    return f"$'{''.join(_seen(sign, position in hidden) for position, sign in enumerate(path))}'"


def _seen(sign: str, hidden: bool) -> str:
    code = ord(sign)
    if sign in _LETTERS:
        return "\\" + _LETTERS[sign]
    if not hidden and sign.isprintable():
        return sign
    if code < 0x80 or 0xDC80 <= code <= 0xDCFF:  # the second are bytes that are no text
        return f"\\x{code & 0xFF:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def unquoted(path: str) -> str:
    """The path behind the quotes of a shell; every other path as it is.

    >>> unquoted("$'a\\\\nb'"), unquoted("plain.txt")
    ('a\\nb', 'plain.txt')
    """
    if not (path.startswith("$'") and path.endswith("'") and len(path) > 3):
        return path

    def meant(found: re.Match[str]) -> str:
        byte, short, long, octal, letter = found.groups()
        if byte or octal:
            return os.fsdecode(bytes([int(byte, 16) if byte else int(octal, 8) & 0xFF]))
        if letter:
            return _MEANT.get(letter, "\\" + letter)
        code = int(short or long, 16)
        return chr(code) if code <= 0x10FFFF else found.group()

    text = _ESCAPE.sub(meant, path[2:-1])
    try:
        return os.fsdecode(os.fsencode(text))  # bytes that together are a letter become it
    except UnicodeEncodeError:
        return text


def _parts(virtual: str) -> tuple[str, ...]:
    return tuple(part for part in virtual.split("/") if part)


def check_virtual(path: str) -> str:
    """The one spelling of an absolute virtual path under which something is to be seen, or an InputError."""
    if not path.startswith("/"):
        raise InputError(f"{path!r} is not an absolute path.", hint="Begin it with a slash, for example /mnt/data.")
    parts = check_path(path.lstrip("/") or ".")
    if not parts:
        raise InputError("the root of all files cannot be replaced.", hint="Choose a path such as /mnt/data.")
    return "/" + "/".join(parts)


_MOST_ENTRIES = 200_000


class SecondNames:
    """Looks for the other names of files, and walks the folder at most once for all of them."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._names: dict[tuple[int, int], int] | None = None

    def check(self, file: BinaryIO, path: str) -> None:
        """Raise OutsideRoot if the open file has a name that is not in the folder."""
        facts = os.fstat(file.fileno())
        if facts.st_nlink > 1 and self._count((facts.st_dev, facts.st_ino)) < facts.st_nlink:
            raise OutsideRoot(
                f"{path!r} has a second name outside of this folder.",
                path=path,
                operation="open",
                hint="Put a copy there instead of a link.",
            )

    def _count(self, identity: tuple[int, int]) -> int:
        if self._names is None:
            self._names = {}
            for number, entry in enumerate(self._folder.walk(unread={})):  # what cannot be looked at counts as outside
                if number >= _MOST_ENTRIES:
                    break  # what was not found counts as outside
                if entry.kind == "file" and entry.links > 1:
                    self._names[entry.identity] = self._names.get(entry.identity, 0) + 1
        return self._names.get(identity, 0)


_DATA = "user-data"
_VIRTUAL = {"workspace": WORKSPACE, "uploads": UPLOADS, "outputs": OUTPUTS}


@dataclass(frozen=True)
class ThreadSize:
    """What the folders of a thread hold."""

    files: int
    bytes: int


class ThreadFolder:
    """The open folders of one thread."""

    def __init__(self, thread: str, data: Folder) -> None:
        self.thread = thread
        self._data = data
        self.roots = tuple(Root(virtual, data.folder(name, make=True)) for name, virtual in _VIRTUAL.items())

    def quota(self, limit: int | None) -> DiskQuota:
        """The room that all of it may take. The caller's to close."""
        return DiskQuota(self._data, limit)

    @property
    def path(self) -> Path:
        """The folder `user-data` on this machine."""
        return Path(self._data.path)

    def hand_over(self, user: int, group: int) -> None:
        """Give the folders and what is in them to another user, under whom commands run. Only the superuser can.

        Files with several names are left alone: one of the names may be somebody else's.
        """
        for root in self.roots:
            with faults(root.folder.path, "hand over"):
                if Path(root.folder.path).lstat().st_uid != user:
                    for name, at in _everything(root.folder):
                        with suppress(FileNotFoundError):
                            os.chown(name, user, group, dir_fd=at, follow_symlinks=False)

    def close(self) -> None:
        for root in self.roots:
            root.folder.close()
        self._data.close()

    def __enter__(self) -> ThreadFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _everything(top: Folder) -> Iterator[tuple[str, int]]:
    """The names below a folder with the descriptor of the folder each is in; the folder itself comes last. No link is followed."""
    with Tree.at(top.descriptor) as tree:
        for entry in tree.walk({}):
            folder, _, name = entry.path.rpartition("/")
            if entry.facts is not None and (entry.kind == "folder" or entry.facts.st_nlink == 1):
                with suppress(FileNotFoundError):
                    yield name, tree.folder(folder or ".")
    yield ".", top.descriptor


class ThreadFolders:
    """The folders of all threads below a base directory. No thread's name leads out of it."""

    def __init__(self, base: str | PathLike[str]) -> None:
        self.base = Path(base)

    def open(self, thread: str) -> ThreadFolder:
        """The folders of a thread, made if need be."""
        name, note = thread_folder(thread), thread_note(thread)
        make_folders(REAL, str(self._threads.absolute()))
        with Folder(self._threads) as threads:
            if note is not None and self._note(name) != note:
                threads.write(f"{name}/{THREAD_NOTE}", note)
            return ThreadFolder(thread, threads.folder(f"{name}/{_DATA}", make=True))

    def exists(self, thread: str) -> bool:
        """Whether the thread has folders."""
        return (self._threads / thread_folder(thread) / _DATA).is_dir()

    def list(self) -> tuple[str, ...]:
        """The threads that have folders, by name."""
        try:
            names = sorted(entry.name for entry in self._threads.iterdir())
        except FileNotFoundError:
            return ()
        found = (thread_in(name, self._note(name)) for name in names if (self._threads / name / _DATA).is_dir())
        return tuple(sorted(thread for thread in found if thread is not None))

    def size(self, thread: str) -> ThreadSize:
        """How much is in the folders of a thread; nothing if it has none. A file with several names counts once."""
        if not self.exists(thread):
            return ThreadSize(0, 0)
        seen = {}
        with Folder(self._threads / thread_folder(thread) / _DATA) as data:
            for entry in data.walk(unread={}):
                if entry.kind == "file":
                    seen[entry.identity] = entry.size
        return ThreadSize(len(seen), sum(seen.values()))

    def remove(self, thread: str) -> bool:
        """Remove the folders of a thread with all that is in them, and say whether there were any.

        What else is kept about the thread, such as its archive, stays.
        """
        if not self.exists(thread):
            return False
        with Folder(self._threads) as threads:
            threads.remove(f"{thread_folder(thread)}/{_DATA}", tree=True)
        with suppress(OSError):  # something else of the thread is still there
            (self._threads / thread_folder(thread)).rmdir()
        return True

    def _note(self, folder: str) -> bytes | None:
        try:
            return (self._threads / folder / THREAD_NOTE).read_bytes() if folder.startswith("~") else None
        except OSError:
            return None  # then nobody can say whose it is

    @property
    def _threads(self) -> Path:
        return self.base / "threads"
