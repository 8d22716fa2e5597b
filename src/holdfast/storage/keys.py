"""What a key may look like, and what is kept under it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.durable.blobs import is_blob_id
from holdfast.durable.replace import is_temp
from holdfast.errors import InputError
from holdfast.storage.backend import Append, Change, Delete, Put

LOG_ENDING = ".jsonl"
_PART = re.compile(r"(?!\.{1,2}(?:/|$))[^/\x00-\x1f\x7f\\]{1,255}")


LEASE_LOCK, LEASE_NOTE = "run.lock", "owner.json"
"""What a lease is in a folder of files."""


def check_key(key: str) -> str:
    """The key itself. InputError unless it is a relative path of plain parts: nothing empty, no `.` or `..`, no control characters."""
    if not isinstance(key, str) or len(key) > 1024 or not all(_PART.fullmatch(part) for part in key.split("/")):
        raise InputError(f"{key!r} cannot be a storage key.", hint="Use a relative path of plain names.")
    return key


def is_log(key: str) -> bool:
    """Whether a log is kept under this key: its name ends in `.jsonl`, and no other one does."""
    return key.endswith(LOG_ENDING)


def is_reserved(name: str) -> bool:
    """Whether a name belongs to the storage itself: locks, leases and drafts."""
    return name.endswith(".lock") or name in ("lock", LEASE_NOTE) or is_temp(name)


def check_document(key: str) -> str:
    """The key of a document. InputError for one that is a log's, or whose name the storage uses itself."""
    if is_reserved(check_key(key).rpartition("/")[2]):
        raise InputError(f"{key!r} cannot be the key of a document: the storage uses that name.", hint="Use another one.")
    if is_log(key):
        raise InputError(f"{key!r} is the key of a log, not of a document.", hint=f"The name of a document does not end in {LOG_ENDING}.")
    return key


def check_log(key: str) -> str:
    """The key of a log. InputError for one that is a document's."""
    if not is_log(check_key(key)):
        raise InputError(f"{key!r} is the key of a document, not of a log.", hint=f"The name of a log ends in {LOG_ENDING}.")
    return key


def check_blob(name: str) -> str:
    """The name of a blob. InputError for anything else."""
    if not isinstance(name, str) or not is_blob_id(name):
        raise InputError(f"{name!r} is not the name of a blob.", hint="It is `sha256-` and 64 hexadecimal digits.")
    return name


def check_prefix(prefix: str) -> str:
    """The beginning of keys up to a `/`, as whole folders are named. InputError for anything else."""
    if not prefix.endswith("/"):
        raise InputError(f"{prefix!r} does not name a whole folder of keys.", hint="End it with a slash.")
    check_key(prefix[:-1])
    return prefix


def check_changes(changes: Sequence[Change]) -> None:
    """InputError if a key does not fit what is to be done with it, or is changed twice in one step: which of the two should stand?"""
    seen: set[str] = set()
    for change in changes:
        match change:
            case Put(key):
                check_document(key)
            case Append(key):
                check_log(key)
            case Delete(key):
                check_key(key)
        if key in seen:
            raise InputError(f"{key!r} is changed twice in one step.")
        seen.add(key)
