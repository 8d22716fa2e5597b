"""Moving oversize text out of the window: the file it goes to, and the reference that stands in its place (S10, S12, A11).

The file is in the thread's outputs, `{base}/threads/{thread}/user-data/outputs/moved/`, which an agent sees as
`/mnt/user-data/outputs/moved/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Protocol

from holdfast.durable.disk import REAL, make_folders
from holdfast.durable.folder import Folder
from holdfast.ids import check_thread

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


Count = Callable[[str], int]


def cleared(id: str, tokens: int, place: str | None = None) -> str:
    """The reference that a cleared tool result leaves behind."""
    return f"[This result of {tokens} tokens was cleared to save room. {_where(id, place)}]"


def left(count: int) -> str:
    """The reference that stands for the oldest messages when no summary is made of them."""
    where = "Use search_history to find them and read_history to read them."
    return f"[The {count} oldest messages of this conversation are in its archive. {where}]"


def clipped(text: str, allowed: int, *, id: str, count: Count, place: str | None = None) -> str:
    """Head, tail and reference within `allowed` tokens; only the reference when there is no room for more. Text that fits stays
    as it is."""
    total = count(text)
    if total <= allowed:
        return text
    middle = f"\n[... about {total} tokens in all; the middle was moved out. {_where(id, place)} ...]\n"
    low, high = 0, len(text)
    while low < high:  # the most characters that fit: counts grow with length, so halving finds them
        size = (low + high + 1) // 2
        if count(_ends(text, size, middle)) <= allowed:
            low = size
        else:
            high = size - 1
    return _ends(text, low, middle) if low >= 40 else middle.strip()


def _ends(text: str, size: int, middle: str) -> str:
    head = size * 2 // 3
    tail = size - head
    return text[:head] + middle + (text[-tail:] if tail else "")


def _where(id: str, place: str | None) -> str:
    file = f" It is in the file {place}." if place else ""
    return f'Read it with read_history("{id}").{file}'
