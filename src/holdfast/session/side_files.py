"""The folder beside a session's file: Markdown of the stages, and walking, copying and removing what is in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from holdfast.durable.disk import REAL, Disk, closing, read_whole, write_all
from holdfast.durable.replace import temp_name
from holdfast.errors import StorageError
from holdfast.session.names import stage_folder


def write_stage_file(disk: Disk, stages: str, number: int, stage: str, name: str, text: str) -> None:
    """Write `NN-stage/name.md` whole or not at all. Without a sync: it is a copy for people, and a run writes two for each stage."""
    folder = f"{stages}/{stage_folder(number, stage)}"
    _write(disk, f"{folder}/{name}.md", text.encode("utf-8", "replace"))


def files_below(disk: Disk, folder: str) -> Iterator[str]:
    """All files below a folder, sorted. Links are not followed into folders."""
    try:
        names = disk.list(folder)
    except FileNotFoundError:
        return
    for name in names:
        path = f"{folder}/{name}"
        kind = disk.kind(path)
        if kind == "file":
            yield path
        elif kind == "folder" and not (disk is REAL and os.path.islink(path)):  # noqa: PTH114 - paths of a Disk are texts
            yield from files_below(disk, path)


def copy_tree(disk: Disk, old: str, new: str) -> None:
    """Copy the files of a folder. Without syncs, as they were written."""
    for path in files_below(disk, old):
        _write(disk, new + path.removeprefix(old), read_whole(disk, path))


def remove_tree(disk: Disk, folder: str) -> None:
    """Remove a folder with everything in it."""
    for path in [*files_below(disk, folder)]:
        with suppress(FileNotFoundError):
            disk.unlink(path)
    if disk is REAL:  # others have no word for it; an empty folder says nothing
        for place, folders, links in os.walk(folder, topdown=False):
            for name in (*folders, *links):
                with suppress(OSError):
                    path = f"{place}/{name}"
                    os.unlink(path) if os.path.islink(path) else os.rmdir(path)  # noqa: PTH106, PTH108, PTH114
        with suppress(OSError):
            os.rmdir(folder)  # noqa: PTH106
        disk.settled.clear()


def _write(disk: Disk, path: str, data: bytes) -> None:
    folder = path.rpartition("/")[0]
    temp = f"{folder}/{temp_name()}"
    try:
        with closing(disk, _opened(disk, folder, temp)) as handle:
            write_all(disk, handle, data)
        disk.rename(temp, path)
    except StorageError:
        with suppress(StorageError, FileNotFoundError):
            disk.unlink(temp)
        raise


def _opened(disk: Disk, folder: str, temp: str) -> int:
    try:
        return disk.create(temp)
    except FileNotFoundError:
        _make_folders(disk, folder)
        return disk.create(temp)


def _make_folders(disk: Disk, folder: str) -> None:
    """Folders without syncs: what is in them is not synced either."""
    above = folder.rpartition("/")[0]
    if above and disk.kind(above) is None:
        _make_folders(disk, above)
    with suppress(FileExistsError):
        disk.make_folder(folder)
