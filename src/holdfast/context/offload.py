"""Where the whole text of an oversize message goes, besides the archive: a file that the agent's own tools can read (A11, S10).

The file is in the thread's outputs, `{base}/threads/{thread}/user-data/outputs/moved/`, which an agent sees as
`/mnt/user-data/outputs/moved/`.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Protocol

from holdfast.context.archive import check_thread
from holdfast.durable.disk import REAL, make_folders
from holdfast.durable.folder import Folder

_SAFE = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)
_FOLDER = "moved"


class Outputs(Protocol):
    """Keeps texts that are too long for the window where an agent can read them."""

    def keep(self, thread: str, id: str, text: str) -> str:
        """Write durably, then return the path by which the agent finds it. The same id again gives the same path."""


class FileOutputs:
    """Outputs below the base directory. No thread and no id leads out of the thread's folder."""

    def __init__(self, base: str | PathLike[str], *, shown: str = "/mnt/user-data/outputs") -> None:
        self._base = Path(base)
        self._shown = shown

    def folder(self, thread: str) -> Path:
        """The folder on this machine."""
        return self._base / "threads" / check_thread(thread) / "user-data" / "outputs"

    def keep(self, thread: str, id: str, text: str) -> str:
        name = f"{id if _SAFE.fullmatch(id) else blake2b(id.encode('utf-8', 'surrogatepass'), digest_size=12).hexdigest()}.txt"
        folder = self.folder(thread)
        make_folders(REAL, str(folder.absolute()))
        with Folder(folder) as outputs:
            outputs.write(f"{_FOLDER}/{name}", text.encode("utf-8", "replace"))
        return f"{self._shown}/{_FOLDER}/{name}"
