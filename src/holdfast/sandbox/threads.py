"""The folders of a thread: `{base}/threads/{thread}/user-data/{workspace,uploads,outputs}` (A9).

Only the three folders are ever shown to a command, so that it can neither rename them nor put a link in their place.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import TracebackType

from holdfast.context.archive import check_thread
from holdfast.durable.disk import REAL, faults, make_folders
from holdfast.durable.folder import Folder
from holdfast.sandbox.paths import OUTPUTS, UPLOADS, WORKSPACE, Root

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
                    for name, at in _everything(root.folder.path):
                        os.chown(name, user, group, dir_fd=at, follow_symlinks=False)

    def close(self) -> None:
        for root in self.roots:
            root.folder.close()
        self._data.close()

    def __enter__(self) -> ThreadFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _everything(top: str) -> Iterator[tuple[str, int]]:
    """The names below a folder with the descriptor of the folder each is in; the folder itself comes last. No link is followed."""
    for _, folders, files, at in os.fwalk(top, follow_symlinks=False):
        for name in (*folders, *files):
            with suppress(FileNotFoundError):
                facts = os.stat(name, dir_fd=at, follow_symlinks=False)
                if stat.S_ISDIR(facts.st_mode) or facts.st_nlink == 1:
                    yield name, at
    handle = os.open(top, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    try:
        yield ".", handle
    finally:
        os.close(handle)


class ThreadFolders:
    """The folders of all threads below a base directory. No thread's name leads out of it."""

    def __init__(self, base: str | PathLike[str]) -> None:
        self.base = Path(base)

    def open(self, thread: str) -> ThreadFolder:
        """The folders of a thread, made if need be."""
        name = check_thread(thread)
        make_folders(REAL, str(self._threads.absolute()))
        with Folder(self._threads) as threads:
            return ThreadFolder(name, threads.folder(f"{name}/{_DATA}", make=True))

    def exists(self, thread: str) -> bool:
        """Whether the thread has folders."""
        name = check_thread(thread)
        return (self._threads / name / _DATA).is_dir()

    def list(self) -> tuple[str, ...]:
        """The threads that have folders, by name."""
        try:
            names = sorted(entry.name for entry in self._threads.iterdir())
        except FileNotFoundError:
            return ()
        return tuple(name for name in names if (self._threads / name / _DATA).is_dir())

    def size(self, thread: str) -> ThreadSize:
        """How much is in the folders of a thread; nothing if it has none. A file with several names counts once."""
        if not self.exists(thread):
            return ThreadSize(0, 0)
        seen = {}
        with Folder(self._threads / check_thread(thread) / _DATA) as data:
            for entry in data.walk():
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
            threads.remove(f"{check_thread(thread)}/{_DATA}", tree=True)
        with suppress(OSError):  # something else of the thread is still there
            (self._threads / check_thread(thread)).rmdir()
        return True

    @property
    def _threads(self) -> Path:
        return self.base / "threads"
