"""Files beside a memory document that hold older content: what was set aside as damaged, and what a writer that died left behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.durable.disk import REAL
from holdfast.durable.replace import is_temp


def leavings(file: Path, folder: Path) -> Iterator[Path]:
    """Those of a memory file and of the folder that belongs to it. A temporary file of this very second may still be somebody's."""
    for place in (file.parent, folder):
        for path in sorted(place.iterdir()) if place.is_dir() else ():
            ours = path.name.startswith(f"{file.name}.damaged-") or (place != file.parent and ".damaged-" in path.name)
            with suppress(OSError):
                if path.is_file() and (ours or (is_temp(path.name) and time.time() - path.stat().st_mtime > 1.0)):
                    yield path


def remove_if(path: Path, which: Callable[[bytes], bool]) -> bool:
    """Remove a file, durably, if its bytes fit."""
    with suppress(OSError):
        if which(path.read_bytes()):
            path.unlink()
            REAL.sync_folder(os.fspath(path.parent))
            return True
    return False
