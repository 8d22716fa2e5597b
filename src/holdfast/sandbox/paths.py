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

How much room they may take (`sandbox.max_bytes`) counts by what the disk holds for everything below `user-data`: blocks, so that a sparse
file counts for what it really takes, each file once however many names it has, and also files that were removed and are still held open.
Folders that are mounted are the user's own and do not count. Counting walks the tree, which takes time; between two counts the free space
of the file system says how much the tree can have grown at most.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from holdfast.durable.beneath import Tree, check_path
from holdfast.durable.disk import REAL, faults, make_folders
from holdfast.durable.folder import Folder
from holdfast.errors import InputError, NotWritable, OutsideRoot, QuotaExceeded
from holdfast.text.normalise import find_invisible, without_tags
from holdfast.validation import THREAD_NOTE, thread_folder, thread_note

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

    def __init__(self, roots: Sequence[Root]) -> None:
        self.roots = tuple(sorted(roots, key=lambda root: root.parts))
        self._by_depth = sorted(self.roots, key=lambda root: -len(root.parts))  # a root inside of another one is tried first

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
        seen = ", ".join(root.virtual for root in self.roots)
        raise OutsideRoot(f"{path!r} is not in a folder that can be used.", path=path, operation="open", hint=f"There are {seen}.")

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
        return relative if path.startswith("/") else (*_parts(WORKSPACE), *relative)


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
            told, hint = f"{path!r} has a second name outside of this folder.", "Put a copy there instead of a link."
            raise OutsideRoot(told, path=path, operation="open", hint=hint)

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
        self._threads = Path(base) / "threads"

    def open(self, thread: str) -> ThreadFolder:
        """The folders of a thread, made if need be."""
        name, note = thread_folder(thread), thread_note(thread)
        make_folders(REAL, str(self._threads.absolute()))
        with Folder(self._threads) as threads:
            if note is not None and self._note(name) != note:
                threads.write(f"{name}/{THREAD_NOTE}", note)
            return ThreadFolder(thread, threads.folder(f"{name}/{_DATA}", make=True))

    def _note(self, folder: str) -> bytes | None:
        try:
            return (self._threads / folder / THREAD_NOTE).read_bytes() if folder.startswith("~") else None
        except OSError:
            return None  # then nobody can say whose it is


_PROC = Path("/proc")
_BLOCK = 512
_SLICE = 0.05  # seconds that one look may take: time limit and output of the command are looked at in between
_EVERY = 2.0
_MAPPED = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ (\d+) +(/.*) \(deleted\)$", re.MULTILINE)


class DiskQuota:
    """The room of one thread. `limit` in bytes; without one nothing is ever counted or refused. Safe for many threads.

    Close it when done: it keeps the folder open.
    """

    def __init__(self, data: Folder, limit: int | None) -> None:
        self.limit = limit
        self._data = data.folder(".")
        self._lock = threading.Lock()
        self._counted: int | None = None
        self._free = 0
        self._written = 0

    def used(self) -> int:
        """What the files take now, counted."""
        free = self.free()
        total = max(self.counting())
        self.note(total, free)
        return total

    def estimate(self) -> int:
        """What they take at most by now, as far as the free space tells; counted if they never were."""
        with self._lock:
            if self._counted is not None:
                return self._counted + max(self._free - self.free(), self._written, 0)
        return self.used()

    def check(self, more: int) -> None:
        """Raise QuotaExceeded if `more` bytes would not fit. What takes nothing more always fits."""
        if self.limit is None or more <= 0:
            return
        if self.estimate() + more > self.limit and (used := self.used()) + more > self.limit:
            raise QuotaExceeded(
                f"the files of this thread would take {used + more:,} bytes, and {self.limit:,} are allowed.",
                hint="Remove files that are not needed any more, or raise `sandbox.max_bytes`.",
            )
        with self._lock:
            self._written += more

    def watch(self) -> QuotaWatch | None:
        """Looks after one command; None without a limit."""
        return None if self.limit is None else QuotaWatch(self, self.limit)

    def counting(self) -> Iterator[int]:
        """The sum so far, after each file; the last one is the result."""
        total = 0
        seen: set[tuple[int, int]] = set()
        with self._data.folder(".") as data, Tree.at(data.descriptor) as tree:
            for entry in tree.walk({}):
                facts = entry.facts
                if facts is None:
                    continue
                if facts.st_nlink > 1 and not stat.S_ISDIR(facts.st_mode):
                    if (facts.st_dev, facts.st_ino) in seen:
                        continue
                    seen.add((facts.st_dev, facts.st_ino))
                total += blocks(facts)
                yield total
        yield total

    def free(self) -> int:
        """The free space of the file system that the files are on."""
        found = os.fstatvfs(self._data.descriptor)
        return found.f_bfree * found.f_frsize

    def nameless(self, processes: Iterator[int]) -> int:
        """What the files take that have no name any more and are held by these processes, open or mapped into memory."""
        places = (f"{self._data.path}/", f"{USER_DATA}/")
        device = os.fstat(self._data.descriptor).st_dev
        found: dict[int, int] = {}
        for process in processes:
            with suppress(OSError):  # ended meanwhile, or not ours to look at
                for one in (_PROC / str(process) / "fd").iterdir():
                    with suppress(OSError):
                        name = str(one.readlink())
                        facts = one.stat() if name.endswith(" (deleted)") else None
                        if facts is not None and stat.S_ISREG(facts.st_mode) and (facts.st_dev == device or name.startswith(places)):
                            found[facts.st_ino] = blocks(facts)
            with suppress(OSError):
                for start, end, inode, path in _MAPPED.findall((_PROC / str(process) / "maps").read_bytes()):
                    if os.fsdecode(path).startswith(places):
                        found.setdefault(int(inode), int(end, 16) - int(start, 16))
        return sum(found.values())

    def note(self, total: int, free: int) -> None:
        """The tree was counted, and this much space was free when that began."""
        with self._lock:
            self._counted, self._free, self._written = total, free, 0

    def close(self) -> None:
        self._data.close()


class QuotaWatch:
    """Looks ten times a second whether a command has written too much. For one thread.

    Where the files took too much before the command began it may remove, and write nothing (`is_full`): how could it make room otherwise?
    """

    def __init__(self, quota: DiskQuota, limit: int) -> None:
        self._quota = quota
        self._counted, self._free = quota.estimate(), quota.free()
        if self._counted >= limit:
            self._counted = quota.used()
        self.is_full = self._counted >= limit
        self._limit = max(limit, self._counted)
        self._walk: Iterator[int] | None = None
        self._began = self._began_free = 0.0
        self._next, self._not_before = 0.0, 0.0

    def is_over(self, processes: Iterator[int]) -> bool:
        """Whether it is too much now. `processes` are those of the command: what they hold open counts, also without a name."""
        now = time.monotonic()
        if self._walk is None:
            grown = self._counted + max(self._free - self._quota.free(), 0) > self._limit
            if now < (self._not_before if grown else self._next):
                return False
            self._began, self._began_free, self._walk = now, self._quota.free(), self._quota.counting()
        total = 0
        for total in self._walk:
            if total > self._limit:
                return True
            if time.monotonic() - now > _SLICE:
                return False  # goes on with the next look
        took = time.monotonic() - self._began
        self._walk = None
        self._next, self._not_before = now + max(_EVERY, 20 * took), now + 2 * took
        self._counted, self._free = total + self._quota.nameless(processes), int(self._began_free)
        return self._counted > self._limit

    def close(self) -> None:
        """The command is over: what it wrote is counted when somebody next asks."""
        self._quota.note(self._counted, self._free)


def blocks(facts: os.stat_result) -> int:
    """The bytes that something takes on the disk."""
    return getattr(facts, "st_blocks", -(-facts.st_size // _BLOCK)) * _BLOCK
