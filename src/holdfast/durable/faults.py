"""From the operating system's errors to ours, in one place. Nothing else in this room decides what an errno means.

A path that is absent, or present where a new one was asked for, is an answer and not a fault: `FileNotFoundError` and
`FileExistsError` pass through as they are. Everything else becomes one of the storage errors.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import DiskFull, NotWritable, StorageError, SyncFailed, WriteFailed

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_SYNCING = frozenset({"sync", "sync folder", "open to sync"})
_READING = frozenset({"open", "read", "size", "list", "look at"})


def storage_error(error: OSError, path: str, operation: str) -> StorageError:
    """The storage error for `error`, which `operation` met at `path`. The original belongs in its `__cause__`."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    what = f"could not {operation} {path}: {reason}."
    if operation in _SYNCING:
        return SyncFailed(
            what,
            path=path,
            operation=operation,
            hint="What was written since the last sync may be gone. Check the disk, then open it anew and write again.",
        )
    if error.errno in _FULL:
        return DiskFull(what, path=path, operation=operation, hint="Free space or inodes, or raise the quota; the old content stands.")
    if operation in _READING:
        return StorageError(what, path=path, operation=operation)
    if error.errno in _REFUSED:
        return NotWritable(what, path=path, operation=operation, hint="Check the owner, the mode and how the file system is mounted.")
    return WriteFailed(what, path=path, operation=operation, hint="The old content stands.")


@contextmanager
def faults(path: str, operation: str) -> Iterator[None]:
    """Turns an OSError raised inside into the storage error for it."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        raise storage_error(error, path, operation) from error
