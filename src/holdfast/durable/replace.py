"""Whole files: replaced so that a reader, a crash or a power cut finds the old content or the new; or kept under their hash (`Blobs`).

The idiom: a new file with a name of its own in the same folder, write, sync, rename over the old one, sync the folder. Leave
out the first sync and a power cut leaves NUL bytes in place of both; leave out the second and what was acknowledged is undone.

A symbolic link is followed on purpose: people link their files into folders that they back up, and a rename would turn such a
link into a file. Paths that come from outside do not belong here but in `folder.py`, where a link never leads out.

A damaged file is moved out of the way under another name by `set_aside`; it is never overwritten and never removed. A blob is put in place
in the same way, once: it never changes, and is checked whenever it is read.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from os import PathLike
from typing import Any, NoReturn

from holdfast.clock import Clock, SystemClock
from holdfast.durable import strict_json
from holdfast.durable.disk import REAL, Disk, closing, make_folders, open_in, read_whole, write_all
from holdfast.errors import Damaged, InputError, StorageError, SyncFailed, WriteFailed

_TEMP_START, _TEMP_END = ".new-", ".tmp"


def replace(path: str | PathLike[str], data: bytes, *, disk: Disk = REAL, mode: int | None = None) -> None:
    """Make `data` the content of the file at `path`; on return it survives a power cut.

    WriteFailed (DiskFull, NotWritable) means that the old content stands. SyncFailed means that it is not known which of the
    two a power cut would leave. Missing folders are made. The mode and owner of an existing file are kept; a new one gets
    `mode`, or 0600. Does not prevent lost updates: who reads, changes and replaces holds a lock meanwhile.
    """
    draft = Draft(path, data, disk=disk, mode=mode)
    try:
        folder = draft.put_in_place()
    except StorageError:
        draft.drop()
        raise
    disk.sync_folder(folder)


class Draft:
    """New content for a file, written beside the old one and synced, but not yet in its place. For steps that put several in place at once.

    WriteFailed or SyncFailed at construction leaves nothing behind. Not `durable`: nothing is synced, for what can be made again.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        data: bytes,
        *,
        disk: Disk = REAL,
        mode: int | None = None,
        durable: bool = True,
    ) -> None:
        self.target = disk.resolve(os.fspath(path))
        self._disk = disk
        self._durable = durable
        self._folder = os.path.dirname(self.target)
        self._temp = os.path.join(self._folder, temp_name())
        self._is_new = False
        try:
            handle = open_in(disk, self._folder, lambda: disk.create(self._temp), durable=durable)
            with closing(disk, handle):
                write_all(disk, handle, data, at=0)
                self._dress(handle, mode)
                if durable:
                    disk.sync(handle)
        except (StorageError, OSError) as error:
            self.drop()
            self._raise(error)

    def put_in_place(self) -> str:
        """Give it the name of the file, in one step, and say which folder is to be synced so that this survives. WriteFailed otherwise."""
        try:
            self._disk.rename(self._temp, self.target, in_haste=not self._durable and not self._is_new)
        except (StorageError, OSError) as error:
            self._raise(error)
        return self._folder

    def drop(self) -> None:
        """Remove it. Harmless when it is in its place, or gone; `sweep` finds what stays behind."""
        with suppress(StorageError, OSError):
            self._disk.unlink(self._temp)

    def _dress(self, handle: int, mode: int | None) -> None:
        """The mode of the file that is replaced, unless another one is asked for."""
        kind = self._disk.kind(self.target)
        self._is_new = kind is None
        if mode is not None:
            self._disk.chmod(handle, mode)
        elif kind == "file":
            with suppress(FileNotFoundError):  # removed by somebody else just now: then there is nothing to keep
                self._disk.imitate(handle, self.target)

    def _raise(self, error: StorageError | OSError) -> NoReturn:
        _raise_write_error(error, self.target)


def write_new(path: str, data: bytes, *, disk: Disk = REAL) -> None:
    """A file that can be made again, in a folder that was made just now, so that there is nothing to look at. Whole or not there; no sync.

    WriteFailed means that it is not there.
    """
    temp = f"{path.rpartition('/')[0]}/{temp_name()}"
    try:
        with closing(disk, disk.create(temp)) as handle:
            write_all(disk, handle, data, at=0)
        disk.rename(temp, path)
    except (StorageError, OSError) as error:
        with suppress(StorageError, OSError):
            disk.unlink(temp)
        _raise_write_error(error, path)


def _raise_write_error(error: StorageError | OSError, path: str) -> NoReturn:
    if isinstance(error, (WriteFailed, SyncFailed)):
        raise error
    raise WriteFailed(f"could not replace {path}: {error}", path=path, operation="replace") from error


def replace_text(path: str | PathLike[str], text: str, *, disk: Disk = REAL, mode: int | None = None) -> None:
    """`replace` for text, as UTF-8."""
    replace(path, text.encode("utf-8"), disk=disk, mode=mode)


def replace_json(path: str | PathLike[str], value: Any, *, disk: Disk = REAL, mode: int | None = None) -> None:
    """`replace` for a value, as JSON that a person can read. InputError, before anything is written, if JSON has no form for it."""
    replace(path, strict_json.encode(value), disk=disk, mode=mode)


def read_json(path: str | PathLike[str], *, disk: Disk = REAL) -> Any:
    """The value in the file. FileNotFoundError if there is none, Damaged with the position if it is not strict JSON."""
    name = os.fspath(path)
    data = read_whole(disk, name)
    if not data.strip(b"\0"):
        raise Damaged(
            f"{name} is empty or holds only NUL bytes.",
            path=name,
            position=0,
            hint="Set it aside and restore it from a backup, or start anew.",
        )
    return strict_json.decode(data, path=name)


def temp_name() -> str:
    """A name that nobody else uses, and that `sweep` knows."""
    return f"{_TEMP_START}{os.urandom(8).hex()}{_TEMP_END}"


def is_temp(name: str) -> bool:
    """Whether this is the name of a file that was never put in place."""
    return name.startswith(_TEMP_START) and name.endswith(_TEMP_END)


def sweep(folder: str | PathLike[str], *, older_than: float = 3600.0, disk: Disk = REAL, clock: Clock | None = None) -> list[str]:
    """Remove what killed writers left behind in this folder, and say what it was.

    A replacing takes milliseconds, so a file that is older than an hour belongs to nobody. Under a lock that all writers of the
    folder take, `older_than=0` is right.
    """
    place = os.fspath(folder)
    now = (clock or SystemClock()).now().timestamp()
    removed = []
    for name in disk.list(place):
        path = os.path.join(place, name)
        with suppress(FileNotFoundError):  # its writer came to its end after all
            if is_temp(name) and now - disk.modified(path) >= older_than:
                disk.unlink(path)
                removed.append(path)
    if removed:
        disk.sync_folder(place)
    return removed


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


_ID = re.compile(r"sha256-[0-9a-f]{64}")
_SHARD = re.compile(r"[0-9a-f]{2}")


def blob_id(data: bytes) -> str:
    """The id of these bytes: `sha256-` and 64 hexadecimal digits."""
    return f"sha256-{hashlib.sha256(data).hexdigest()}"


def is_blob_id(name: str) -> bool:
    """Whether this is the id of a blob."""
    return _ID.fullmatch(name) is not None


class Blobs:
    """A store of blobs in a folder. Safe for many threads and processes without a lock: equal bytes have equal names."""

    def __init__(self, root: str | PathLike[str], *, disk: Disk = REAL) -> None:
        self.root = disk.resolve(os.fspath(root))
        self._disk = disk

    def put(self, data: bytes) -> str:
        """Keep the bytes and give their id; on return they survive a power cut. Putting them again is cheap and harmless."""
        key = blob_id(data)
        path = self.path(key)
        if self._sound(path, data):
            # whoever put it in place may have died before the name was on the disk
            make_folders(self._disk, os.path.dirname(path))
            self._disk.sync_folder(os.path.dirname(path))
        else:
            replace(path, data, disk=self._disk)  # also over a damaged copy: these bytes are known to be right
        return key

    def get(self, key: str) -> bytes:
        """The bytes. FileNotFoundError if they are not here, Damaged if what is here has another hash."""
        path = self.path(key)
        data = read_whole(self._disk, path)
        if blob_id(data) != key:
            raise Damaged(
                f"{path} does not have the content that its name promises.", path=path, hint="Set it aside, and put the original again."
            )
        return data

    def has(self, key: str) -> bool:
        """Whether a blob of this id is here. Does not read it."""
        return self._disk.kind(self.path(key)) == "file"

    def remove(self, key: str) -> bool:
        """Forget a blob; on return it stays forgotten after a power cut. False if it was not here."""
        path = self.path(key)
        there = True
        try:
            self._disk.unlink(path)
        except FileNotFoundError:
            there = False  # and yet, whoever removed it may have died before that was on the disk
        with suppress(FileNotFoundError):
            self._disk.sync_folder(os.path.dirname(path))
        return there

    def list(self) -> Iterator[str]:
        """The ids of all blobs, sorted."""
        for first in self._shards(self.root):
            for second in self._shards(first):
                yield from (name for name in self._disk.list(second) if _ID.fullmatch(name))

    def path(self, key: str) -> str:
        """Where a blob lies. InputError if `key` is not the id of one."""
        if not isinstance(key, str) or _ID.fullmatch(key) is None:
            raise InputError(f"{key!r} is not the id of a blob.", hint="An id is `sha256-` and 64 hexadecimal digits.")
        return os.path.join(self.root, key[7:9], key[9:11], key)

    def _sound(self, path: str, data: bytes) -> bool:
        try:
            return read_whole(self._disk, path) == data
        except FileNotFoundError:
            return False

    def _shards(self, folder: str) -> Sequence[str]:
        try:
            names = self._disk.list(folder)
        except FileNotFoundError:
            return []
        return [os.path.join(folder, name) for name in names if _SHARD.fullmatch(name)]
