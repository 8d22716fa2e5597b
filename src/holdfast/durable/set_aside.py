"""Damaged files are moved out of the way under another name. They are never overwritten and never removed."""

from __future__ import annotations

import os
from contextlib import suppress
from os import PathLike

from holdfast.clock import Clock, SystemClock
from holdfast.durable.disk import REAL, Disk

_COMPANIONS = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a database


def set_aside(path: str | PathLike[str], *, disk: Disk = REAL, clock: Clock | None = None, word: str = "damaged") -> str:
    """Rename the file to `name.damaged-<time>` (or another `word`) and give the new path; FileNotFoundError if there is none.

    The companions of a database go with it, and first: a write-ahead log that stayed behind would be played into the next
    database of that name. On return the renaming survives a power cut.
    """
    source = disk.resolve(os.fspath(path))
    moment = (clock or SystemClock()).now().strftime("%Y%m%dT%H%M%SZ")
    if disk.kind(source) is None:
        raise FileNotFoundError(f"there is no {source} to set aside")
    target = _reserve(disk, f"{source}.{word}-{moment}")
    try:
        for ending in _COMPANIONS:
            if disk.kind(source + ending) is not None:
                disk.rename(source + ending, target + ending)
        disk.rename(source, target)
    except BaseException:
        with suppress(Exception):  # the empty placeholder; the error on its way is the one to tell
            _drop_if_empty(disk, target)
        raise
    disk.sync_folder(os.path.dirname(source))
    return target


def _reserve(disk: Disk, name: str) -> str:
    """A name that nothing has, taken by an empty file: a rename would overwrite what another process put there meanwhile."""
    number = 0
    while True:
        candidate = f"{name}-{number}" if number else name
        number += 1
        if any(disk.kind(candidate + ending) is not None for ending in _COMPANIONS):
            continue
        with suppress(FileExistsError):
            disk.close(disk.create(candidate))
            return candidate


def _drop_if_empty(disk: Disk, path: str) -> None:
    handle = disk.open(path)
    empty = disk.size(handle) == 0
    disk.close(handle)
    if empty:
        disk.unlink(path)
