"""The contract of a storage backend. Its docstrings are the promises, and `tests/contract/test_backend.py` holds every backend to them.

A key is a relative path such as `memory.json`, `agents/coder/memory.json` or `sessions/ID/log.jsonl`: in a folder it is the file's path,
in PostgreSQL it is the name of the row. What is kept under a key is a document (bytes that are replaced as a whole), a log (records that
are only added; its name, and no other, ends in `.jsonl`) or a blob (bytes named by their hash). Above this seam there is no file and no
SQL; below it, nothing of any room. What a key may look like is checked here for every backend.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, Protocol

from holdfast.clock import Clock, stamp
from holdfast.durable.replace import is_blob_id, is_temp
from holdfast.errors import InputError, Locked

Kind = Literal["document", "log", "blob"]
Mark = str
"""Changes whenever what is kept under a key changes, by whoever: another process, a person with an editor or with SQL. Opaque."""

ABSENT: Mark = "absent"
"""As `expect`: there must be nothing under this key yet. Also the mark of a log that is not there."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A document as it was read, and the mark to give back as `expect`."""

    data: bytes
    mark: Mark


@dataclass(frozen=True, slots=True)
class Records:
    """The sound records of a log from a position on. `mark` is that of the log's end; `damage` says in words what could not be read.

    `whole` is true if they are read from the beginning, false if only those after the mark that was given. `places` says where each
    record stands, for `at`. `torn` holds the bytes that could not be read, one for each damage.
    """

    records: tuple[Mapping[str, Any], ...]
    mark: Mark
    damage: tuple[str, ...] = ()
    whole: bool = True
    places: tuple[int, ...] = ()
    torn: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """One key in a list. `modified` is in seconds since the epoch."""

    key: str
    kind: Kind
    size: int
    modified: float


@dataclass(frozen=True, slots=True)
class Put:
    """Replace a document. With `expect`, only if it is still the one with that mark. Not `durable`: a view that can be made again.

    Not `marked`: nobody asks for its new mark, which takes a while to work out of a large one; what is given for it means nothing.
    """

    key: str
    data: bytes
    expect: Mark | None = None
    durable: bool = True
    marked: bool = True


@dataclass(frozen=True, slots=True)
class Append:
    """Add records to a log, made if need be. With `expect`, only if nobody added anything since that mark was read."""

    key: str
    records: Sequence[Mapping[str, Any]]
    expect: Mark | None = None
    as_one: bool = True
    """Whether a reader shall see all of them or none; if not, each stands for itself, and damage to one does not hide the others."""
    growing: bool = False
    """Whether more will follow soon: room may be made for it, which an append that is the last one gives back."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a document or a log. Harmless where there is none."""

    key: str
    expect: Mark | None = None


Change = Put | Append | Delete


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a lease: a name, the machine, the process, since when, and the last sign of life."""

    name: str
    host: str
    pid: int
    since: str
    heartbeat: str

    def __str__(self) -> str:
        return f"{self.name} (process {self.pid} on {self.host}, since {self.since}, last sign of life {self.heartbeat})"


def this_process(name: str | None, clock: Clock) -> Holder:
    """This process as a holder, from now on."""
    from socket import gethostname  # costs more to import than all the rest of this module

    now = stamp(clock.now())
    return Holder(name or f"holdfast-{os.getpid()}", gethostname(), os.getpid(), now, now)


def held_by(what: str, holder: Holder | None, path: str | None = None) -> Locked:
    """That somebody has the lease, and who."""
    return Locked(
        f"{what} is held by {holder or 'somebody else'}.",
        path=path,
        owner=str(holder) if holder is not None else None,
        hint="Wait until it is done, or end that process; the lease goes with it.",
    )


def _never_lost() -> None:
    """A lease that ends with its process and not before."""


def _is_never_lost() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to something, inside the `with`. `taken_over` is the holder that died without giving it back, if there was one.

    `check()` raises Locked if the lease was lost meanwhile (its connection broke and somebody else has it by now): asked before what only
    the holder may write is written. It costs nothing in the ordinary case, and is a StoreUnavailable while nobody can be asked.
    `is_lost()` says whether that is known already, and asks nobody.
    """

    key: str
    holder: Holder
    taken_over: Holder | None = None
    check: Callable[[], None] = field(default=_never_lost, repr=False, compare=False)
    is_lost: Callable[[], bool] = field(default=_is_never_lost, repr=False, compare=False)


class Backend(Protocol):
    """Keeps documents, logs and blobs. Safe for many threads and processes.

    InputError for a key that is not a plain relative path. Whatever fails on the medium is a StorageError at that moment (DiskFull,
    NotWritable, StoreUnavailable), and then the old state stands (W15); only after SyncFailed is it not known whether all or none is there.
    """

    def get(self, key: str) -> Stored | None:
        """The document, or None."""

    def mark(self, key: str) -> Mark | None:
        """The mark of a document or of a log's end, or None if there is none. Much cheaper than reading it."""

    def read(self, key: str, *, after: Mark | None = None, limit: int | None = None) -> Records:
        """The records of a log; with `after`, a mark that a reading or a writing gave, only those that came later; at most `limit`.

        The mark is that of the end of what was read, to go on from there.
        An empty reading where there is no log. A mark that no longer stands for a position (the log was rewritten, or lost its tail)
        reads everything, and `whole` says so.
        """

    def last(self, key: str) -> Mapping[str, Any] | None:
        """The newest sound record of a log, without reading the others. None if there is none."""

    def at(self, key: str, place: int) -> Mapping[str, Any] | None:
        """One record of a log by its place, without reading the others. None if none begins there any more."""

    def write(self, *changes: Change) -> tuple[Mark, ...]:
        """Carry out all changes or none, and give the new mark of each (ABSENT for a removal). What was returned survives a power cut.

        RevisionConflict, naming the key, if an `expect` does not hold; nothing is written then. Each key may be named once. A reader at
        any moment finds each key whole. After a crash all of the changes are there or none, at the latest when one of their keys is next
        read or written through a backend. A put that is not `durable` is outside of that: it is carried out after all others, and a power
        cut may undo or tear it. One append, or one put, is one sync (plus one for a new name).
        """

    def rewrite(self, key: str, records: Sequence[Mapping[str, Any]], *, expect: Mark | None = None) -> Mark:
        """Put these records in place of all that a log has, in one step: for pruning and forgetting."""

    def put_blob(self, prefix: str, data: bytes) -> str:
        """Keep bytes below `prefix`, durably, and give their name, `sha256-<hex>`. The same bytes are kept once."""

    def get_blob(self, prefix: str, name: str) -> bytes | None:
        """The bytes, or None. Damaged if they are not the ones that were put."""

    def delete_blob(self, prefix: str, name: str) -> None:
        """Remove it. Harmless where there is none."""

    def remove(self, *prefixes: str, documents: Sequence[str] = ()) -> int:
        """Remove these documents, then everything below each prefix that ends in `/`, locks and leftovers included; how many keys went.

        Many cost hardly more than one: what goes is synced together. On return all are gone for good. Before, any prefix may be, most of
        them as a whole, and none while one of the documents is still there.
        """

    def list(self, prefix: str = "") -> Iterator[Item]:
        """Every key that begins with `prefix`, in order; a blob as `prefix/name`. Locks, leases and leftovers are not listed."""

    def glance(self, key: str) -> str | None:
        """As `mark`, but never reads what is there, and so may overlook an edit within the same tick of the clock. For lists."""

    def predates_start(self, key: str) -> bool:
        """Whether the document was last written before the machine started: a power cut may have torn what was put without `durable`.

        False where there is no document, and where nothing is ever torn.
        """

    def children(self, folder: str) -> Iterator[str]:
        """The names directly below `folder`, in order and each once: of keys, and of what holds keys. Never looks deeper than it must.

        `children("sessions")` of the keys `sessions/a.json` and `sessions/a/log.jsonl` gives `a` and `a.json`.
        """

    def recent(self, folder: str, *endings: str) -> Sequence[tuple[str, float]]:
        """The names below `folder` for which there is a key `FOLDER/NAME` with one of these endings, the one last written first.

        With each, when that was, in seconds since the epoch. Looks at nothing else, so that it stays quick where there are very many.
        """

    def locked(self, key: str, timeout: float | None = 10.0) -> AbstractContextManager[None]:
        """Held inside the `with`: nobody else, thread or process or machine, is inside for this key. Locked after `timeout` seconds.

        For a step of reading, deciding and writing; never around a model call. Not reentrant. It keeps out nobody who merely writes: that
        is what `expect` is for.
        """

    def lease(self, key: str, *, holder: str | None = None) -> AbstractContextManager[Lease]:
        """The right to work on something for long, inside the `with`. Locked, naming the holder, while a live one has it.

        A holder that died is taken over at once; one that lives never is. Not reentrant.
        """

    def idle(self, keys: Sequence[str]) -> AbstractContextManager[Sequence[str]]:
        """Those of the keys whose lease nobody has, and nobody can take inside the `with`. For a moment: no sign of life is given.

        Many cost hardly more than one.
        """

    def holder(self, key: str) -> Holder | None:
        """Who has the lease now. None if nobody has, or if the holder died."""

    def set_aside(self, key: str) -> str:
        """Keep a damaged document or log as a document of another name, `KEY.damaged-...`, which is given, and leave its key free.

        InputError if there is nothing under the key.
        """

    def sweep(self, prefix: str = "", *, holding: Callable[[bytes], bool] | None = None) -> Sequence[str]:
        """Remove what killed writers left behind below `prefix`: what is older than an hour or, if given, what `holding` says yes to."""

    def where(self, key: str) -> str:
        """What to call this place in a message to a person: the file's path, or the database and key, without secrets."""

    def close(self) -> None:
        """Give back connections and threads. Harmless when called twice."""


LOG_ENDING = ".jsonl"
_PART = re.compile(r"(?!\.{1,2}(?:/|$))[^/\x00-\x1f\x7f\\]{1,255}")


LEASE_LOCK, LEASE_NOTE = "run.lock", "owner.json"
"""What a lease is in a folder of files."""


@lru_cache(maxsize=1024)
def is_key(key: str) -> bool:
    """Whether something can be kept under this name: a relative path of plain parts."""
    folder, slash, name = key.rpartition("/")
    return len(key) <= 1024 and _PART.fullmatch(name) is not None and (not slash or _is_folder(folder))


@lru_cache(maxsize=256)
def _is_folder(folder: str) -> bool:
    return all(map(_PART.fullmatch, folder.split("/")))


def check_key(key: str) -> str:
    """The key itself. InputError unless it is a relative path of plain parts: nothing empty, no `.` or `..`, no control characters."""
    if not isinstance(key, str) or not is_key(key):
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


def check_removal(prefixes: Sequence[str], documents: Sequence[str]) -> None:
    """InputError for a prefix that names no whole folder, and for what is no document's key."""
    for prefix in prefixes:
        check_prefix(prefix)
    for key in documents:
        check_document(key)


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
