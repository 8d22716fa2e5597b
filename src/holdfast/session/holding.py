"""Who runs a session: a lock of the kernel's that ends with its process, and a file beside it that says who that is.

The file is for people and for `Locked`; whether the owner lives is asked of the lock alone, so a dead one is taken over at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from holdfast.clock import Clock, stamp
from holdfast.durable.disk import REAL, Disk
from holdfast.durable.replace import read_json, replace_json
from holdfast.errors import Damaged, Locked, StorageError
from holdfast.session.store import Held, Owner

_PATIENCE = 0.25  # seconds: somebody who only looks whether it is held has it for a moment


def default_owner() -> str:
    """What this process is called when it says no name."""
    return f"holdfast-{os.getpid()}"


def this_owner(name: str | None, clock: Clock) -> Owner:
    """This process as an owner, from now on."""
    from socket import gethostname

    now = stamp(clock.now())
    return Owner(name or default_owner(), gethostname(), os.getpid(), now, now)


def locked_by(workflow_id: str, path: str | None, owner: Owner | None) -> Locked:
    """That somebody runs it, and who."""
    return Locked(
        f"session {workflow_id!r} is being run by {owner or 'somebody else'}.",
        path=path,
        owner=str(owner) if owner is not None else None,
        hint=f"Wait until it is done, or stop it with `holdfast cancel {workflow_id}`.",
    )


@contextmanager
def hold(workflow_id: str, folder: str, *, owner: str | None, disk: Disk, clock: Clock, beat: float) -> Iterator[Held]:
    """Hold the session whose folder this is; see `SessionStore.hold`."""
    note = f"{folder}/owner.json"
    with ExitStack() as stack:
        try:
            stack.enter_context(disk.lock(f"{folder}/run.lock", _PATIENCE))
        except Locked as error:
            raise locked_by(workflow_id, error.path, _read(note, disk)) from error
        before = _read(note, disk)
        mine = this_owner(owner, clock)
        replace_json(note, {"name": mine.name, "host": mine.host, "pid": mine.pid, "since": mine.since}, disk=disk)
        stack.callback(_forget_note, note, disk)
        stack.enter_context(_beating(note, disk, beat))
        yield Held(workflow_id, mine, before)


def who_holds(folder: str, *, disk: Disk) -> Owner | None:
    """The live owner. Asks the lock: a note whose writer died means nothing."""
    owner = _read(f"{folder}/owner.json", disk)
    if owner is None:
        return None
    try:
        with disk.lock(f"{folder}/run.lock", 0):
            return None
    except Locked:
        return owner


def _read(note: str, disk: Disk) -> Owner | None:
    try:
        facts: Any = read_json(note, disk=disk)
        beat = _moment(disk.modified(note)) if disk is REAL else str(facts["since"])
        return Owner(str(facts["name"]), str(facts["host"]), int(facts["pid"]), str(facts["since"]), beat)
    except (FileNotFoundError, Damaged, KeyError, TypeError, ValueError):
        return None


def _moment(seconds: float) -> str:
    from datetime import UTC, datetime

    return stamp(datetime.fromtimestamp(seconds, UTC))


def _forget_note(note: str, disk: Disk) -> None:
    with suppress(FileNotFoundError, StorageError):  # it says nothing without the lock
        disk.unlink(note)


@contextmanager
def _beating(note: str, disk: Disk, beat: float) -> Iterator[None]:
    """A sign of life every `beat` seconds: the time of the note. A disk that is not the machine's has no such times."""
    if disk is not REAL:
        yield
        return
    over = threading.Event()

    def live() -> None:
        while not over.wait(beat):
            with suppress(OSError):
                os.utime(note)

    thread = threading.Thread(target=live, name="session-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
