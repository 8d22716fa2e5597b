"""Files with several names (hard links), and whether all of the names are in the folder.

No path tells a hard link from the file itself, so a link to somebody else's file would be read as our own. A command in the sandbox
cannot make one (the kernel refuses links across mounts) and unpacking makes none, but a person can. A file whose other names are not all
found in the same root is refused; files that a tool such as git or a package manager linked among themselves are read as usual.
"""

from __future__ import annotations

import os
from typing import BinaryIO

from holdfast.durable.folder import Folder
from holdfast.errors import OutsideRoot

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
