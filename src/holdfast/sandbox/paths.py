"""From the paths that tools and commands see to an open folder and a path beneath it. Pure parsing: nothing is looked up on disk.

A virtual path is compared part by part, never as text: `/mnt/user-data-x` does not begin with `/mnt/user-data`. What is left of it goes
to a `Folder`, which the kernel keeps from being left by links. Percent signs, backslashes and letters that look like dots are plain
names.

Hard links are told apart by counting: a file whose other names are not all found in the same root is refused, because a link to somebody
else's file would be read as our own. Files that a tool such as git linked among themselves are read as usual.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

from holdfast.durable.beneath import check_path
from holdfast.durable.folder import Folder
from holdfast.errors import InputError, NotWritable, OutsideRoot

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

    def resolve(self, path: str, *, writing: bool = False) -> Place:
        """Where the path leads. OutsideRoot if it leads nowhere that this thread may see, InputError if it is no path, and
        NotWritable for writing to what is only there to be read."""
        parts = self._absolute(path)
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

    def _absolute(self, path: str) -> tuple[str, ...]:
        if not isinstance(path, str) or not path:
            raise InputError("a path is needed.", hint=f"Give one such as {WORKSPACE}/notes.md.")
        if path.startswith("~"):
            raise InputError(f"{path!r}: there is no home folder here.", hint=f"Give a path below {WORKSPACE}.")
        relative = check_path(path.lstrip("/") or ".")
        return relative if path.startswith("/") else (*_parts(self._home), *relative)

    def _outside(self, path: str) -> OutsideRoot:
        seen = ", ".join(root.virtual for root in self.roots)
        return OutsideRoot(f"{path!r} is not in a folder that can be used.", path=path, operation="open", hint=f"There are {seen}.")


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
            for number, entry in enumerate(self._folder.walk()):
                if number >= _MOST_ENTRIES:
                    break  # what was not found counts as outside
                if entry.kind == "file" and entry.links > 1:
                    self._names[entry.identity] = self._names.get(entry.identity, 0) + 1
        return self._names.get(identity, 0)
