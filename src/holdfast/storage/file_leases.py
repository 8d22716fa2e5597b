"""Leases in files: a lock of the kernel's that ends with its process, and a note beside it that says who holds it.

The note is for people and for `Locked`; whether the holder lives is asked of the lock alone, so a dead one is taken over at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from holdfast.clock import Clock, stamp
from holdfast.durable import strict_json
from holdfast.durable.disk import Disk
from holdfast.durable.replace import Draft, read_json
from holdfast.errors import Damaged, Locked, StorageError
from holdfast.storage.backend import LEASE_LOCK, LEASE_NOTE, Holder, Lease

_PATIENCE = 0.25  # seconds: somebody who only looks whether it is held has it for a moment


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


@contextmanager
def lease(key: str, folder: str, *, name: str | None, disk: Disk, clock: Clock, beat: float) -> Iterator[Lease]:
    """Hold the lease whose files are in `folder`; see `Backend.lease`."""
    note = f"{folder}/{LEASE_NOTE}"
    with ExitStack() as stack:
        try:
            stack.enter_context(disk.lock(f"{folder}/{LEASE_LOCK}", _PATIENCE))
        except Locked as error:
            raise held_by(folder, _read(note, disk), error.path) from error
        before = _read(note, disk)
        mine = this_process(name, clock)
        facts = strict_json.encode({"name": mine.name, "host": mine.host, "pid": mine.pid, "since": mine.since})
        Draft(note, facts, disk=disk, durable=False).put_in_place()  # a power cut ends the lease, so the note need not survive one
        stack.callback(_forget_note, note, disk)
        stack.enter_context(_beating(note, disk, beat))
        yield Lease(key, mine, before)


def who_holds(folder: str, disk: Disk) -> Holder | None:
    """The live holder. Asks the lock: a note whose writer died means nothing."""
    holder = _read(f"{folder}/{LEASE_NOTE}", disk)
    if holder is None:
        return None
    try:
        with disk.lock(f"{folder}/{LEASE_LOCK}", 0):
            return None
    except Locked:
        return holder


def _read(note: str, disk: Disk) -> Holder | None:
    try:
        facts: Any = read_json(note, disk=disk)
        beat = stamp(datetime.fromtimestamp(disk.modified(note), UTC))
        return Holder(str(facts["name"]), str(facts["host"]), int(facts["pid"]), str(facts["since"]), beat)
    except (FileNotFoundError, Damaged, KeyError, TypeError, ValueError):
        return None


def _forget_note(note: str, disk: Disk) -> None:
    with suppress(FileNotFoundError, StorageError):  # it says nothing without the lock
        disk.unlink(note)


@contextmanager
def _beating(note: str, disk: Disk, beat: float) -> Iterator[None]:
    """A sign of life every `beat` seconds: the time of the note."""
    over = threading.Event()

    def live() -> None:
        while not over.wait(beat):
            with suppress(StorageError, FileNotFoundError):
                disk.touch(note)

    thread = threading.Thread(target=live, name="lease-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
