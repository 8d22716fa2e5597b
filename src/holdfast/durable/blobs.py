"""Bytes kept under the hash of their content: stored once, never changed, checked whenever they are read."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from os import PathLike

from holdfast.durable.disk import REAL, Disk, make_folders, read_whole
from holdfast.durable.replace import replace
from holdfast.errors import Damaged, InputError

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
