"""The folder of a Markdown store: which files there are, what they are called, writing many of them durably, removing them.

Readers take no lock: every file is put in place whole. Writers of one folder hold the lock of its store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from holdfast.durable.disk import REAL, make_folders, write_all
from holdfast.durable.replace import is_temp, temp_name
from holdfast.errors import StorageError
from holdfast.knowledge.records import Record
from holdfast.text.normalise import fold

OWN_FOLDER = ".index"
_ENDINGS = (".md", ".markdown")
_RACY = 20_000_000  # nanoseconds: a file may change twice within one tick of the file system's clock


class Stamp(NamedTuple):
    """By what a change is noticed."""

    modified: int
    size: int
    inode: int


def scan(root: Path) -> dict[str, Stamp]:
    """Every Markdown file below the folder, by its path with `/`. Hidden folders and links are not looked into."""
    found: dict[str, Stamp] = {}
    pending = [""]
    while pending:
        place = pending.pop()
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(root / place) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                path = f"{place}/{entry.name}" if place else entry.name
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path)
                elif entry.name.lower().endswith(_ENDINGS) and entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):
                        found[path] = stamp_of(entry.stat(follow_symlinks=False))
    return found


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of a file."""
    return Stamp(status.st_mtime_ns, status.st_size, status.st_ino)


def settled(stamp: Stamp) -> Stamp:
    """The stamp to remember of a file that was read: one that changed just now may change again without a trace, so it is read again."""
    return stamp if time.time_ns() - stamp.modified > _RACY else stamp._replace(modified=-1)


def name_of(record: Record) -> str:
    """Where a record goes: a folder for each part of its session, and a name that a person recognises."""
    folders = [_slug(part, 60) or "session" for part in (record.session or "").split("/") if part.strip()]
    tail = blake2b(record.id.encode(), digest_size=5).hexdigest()
    parts = [
        "" if record.position is None else f"{record.position:05d}",
        "" if record.time is None or record.position is not None else record.time.strftime("%Y-%m-%d"),
        _slug(record.speaker or "", 24) if record.position is not None else "",
        _slug(record.text[:200], 48),
        tail,
    ]
    return "/".join([*folders, "-".join(part for part in parts if part) + ".md"])


def _slug(text: str, limit: int) -> str:
    """Letters and digits of the text with hyphens between, at most `limit` bytes."""
    words = "".join(character if character.isalnum() else " " for character in fold(text)).split()
    whole = "-".join(words).encode("utf-8")
    if len(whole) <= limit:
        return whole.decode("utf-8")
    cut = whole[:limit].decode("utf-8", "ignore")
    return (cut.rpartition("-")[0] or cut).strip("-")


def put_all(root: Path, contents: Mapping[str, bytes]) -> dict[str, Stamp]:
    """Put these files in place; on return all of them survive a power cut. An error leaves some old and some new, none half.

    All are written before the first is synced: one commit of the file system's journal then carries most of them.
    """
    with ExitStack() as opened:
        new = [_written(opened, root / path, data) for path, data in contents.items()]
        stamps = {}
        for path, (_, handle) in zip(contents, new, strict=True):
            REAL.sync(handle)
            stamps[path] = stamp_of(os.fstat(handle))
    for path, (temp, _) in zip(contents, new, strict=True):
        REAL.rename(temp, str(root / path))
    for folder in dict.fromkeys(str((root / path).parent) for path in contents):
        REAL.sync_folder(folder)
    return stamps


def _written(opened: ExitStack, target: Path, data: bytes) -> tuple[str, int]:
    """A new file beside the target with this content, not synced yet. It goes away if something fails before it is put in place."""
    make_folders(REAL, str(target.parent))
    temp = str(target.with_name(temp_name()))
    handle = REAL.create(temp)
    opened.push(partial(_finish, temp, handle))
    write_all(REAL, handle, data)
    if REAL.kind(str(target)) == "file":
        REAL.imitate(handle, str(target))
    return temp, handle


def _finish(temp: str, handle: int, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
    if error is None:
        REAL.close(handle)
        return
    with suppress(StorageError, OSError):  # the first error is the one to tell
        REAL.close(handle)
    with suppress(StorageError, OSError):
        REAL.unlink(temp)


def remove_all(root: Path, paths: Iterable[str]) -> None:
    """Remove these files, and the folders that are empty then; on return that survives a power cut."""
    folders: dict[Path, None] = {}
    for path in paths:
        with suppress(FileNotFoundError):
            REAL.unlink(str(root / path))
        folders[(root / path).parent] = None
    for folder in folders:
        _drop_empty(root, folder)


def _drop_empty(root: Path, folder: Path) -> None:
    while folder != root and root in folder.parents:
        try:
            folder.rmdir()
        except OSError:
            break
        REAL.settled.discard(str(folder))
        folder = folder.parent
    with suppress(FileNotFoundError):
        REAL.sync_folder(str(folder))


def sweep_all(root: Path) -> None:
    """Remove what writers that died left behind. Only for who holds the lock of the store."""
    for path in list(_temps(root)):
        with suppress(FileNotFoundError):
            REAL.unlink(str(path))
            REAL.sync_folder(str(path.parent))


def _temps(root: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") or name == OWN_FOLDER]
        yield from (Path(place, name) for name in names if is_temp(name))
