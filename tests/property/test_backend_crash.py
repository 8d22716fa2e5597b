"""W5, W6, W15, M6: whatever a storage backend acknowledged survives a crash, and several changes are all there or none.

Each story is a few processes one after the other that put, append, delete and rewrite, alone and several at once, until one is killed or
the power goes in the middle of any call; some meet failing writes and syncs before. The model is the set of states that may be found.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conftest import Effort

from holdfast.durable.disk import Disk
from holdfast.errors import RevisionConflict, StorageError, SyncFailed, WriteFailed
from holdfast.storage.backend import Append, Backend, Change, Delete, Put
from holdfast.storage.files import FileBackend
from holdfast.testing.disk import PowerCut, SimulatedDisk
from holdfast.testing.failing_disk import FailingDisk, Fault, ShortWrite

# A generator that is thrown away after the cut closes its file on a dead disk; Python reports that, and nobody could act on it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

DOCUMENTS = ("memory.json", "memory.d/quarantine.json", "agents/a/memory.json")
LOGS = ("memory.d/history.jsonl", "sessions/1/log.jsonl")
State = tuple[tuple[str, Any], ...]
"""What is under each key: bytes, or a tuple of numbers; keys without anything are not in it."""
Step = Callable[[dict[str, Any]], None]


def state_of(backend: Backend) -> State:
    found: dict[str, Any] = {}
    for key in DOCUMENTS:
        stored = backend.get(key)
        if stored is not None:
            found[key] = stored.data
    for key in LOGS:
        numbers = tuple(record["n"] for record in backend.read(key).records)
        if numbers:
            found[key] = numbers
    return frozen(found)


def frozen(state: dict[str, Any]) -> State:
    return tuple(sorted(state.items()))


def applied(state: State, changes: Sequence[Change]) -> State:
    after = dict(state)
    for change in changes:
        match change:
            case Put(key, data):
                after[key] = data
            case Append(key, records):
                after[key] = (*after.get(key, ()), *(record["n"] for record in records))
            case Delete(key):
                after.pop(key, None)
    return frozen(after)


def _short(state: State) -> str:
    return repr([(key, value.rstrip(b"x") if isinstance(value, bytes) else value) for key, value in state])


class Story:
    """One story: the disk, and which states a user may find."""

    def __init__(self, choose: random.Random, seed: int) -> None:
        self.random = choose
        self.disk = SimulatedDisk(seed, sector=choose.choice((1, 64, 512)))
        self.possible: set[State] = {()}
        self.number = 0
        self.violations: list[str] = []

    def tell(self) -> list[str]:
        for life in range(self.random.randint(1, 4)):
            self.live()
            cut = self.random.random() < 0.7
            self.disk = self.disk.crash() if cut else self.disk.kill()
            found = state_of(FileBackend("/base", disk=self.disk))
            if found not in self.possible:
                self.violations.append(
                    f"life {life}, {'power cut' if cut else 'kill'}: found {_short(found)}, possible {sorted(map(_short, self.possible))}"
                )
                return self.violations
            if cut:
                self.possible = {found}
        return self.violations

    def live(self) -> None:
        """One process. It ends at a random call, or goes on to the end of its work."""
        self.disk.cut_at = self.disk.calls + self.random.randint(1, 400)
        disk: Disk = self.disk
        if self.random.random() < 0.4:
            disk = FailingDisk(self.disk, [self.fault() for _ in range(self.random.randint(1, 2))])
        with suppress(PowerCut):
            backend = FileBackend("/base", disk=disk)
            for _ in range(self.random.randint(1, 8)):
                self.step(backend)
        if isinstance(disk, FailingDisk) and disk.synced_again_after_failing():
            self.violations.append("a sync was tried again on a descriptor that had failed")

    def fault(self) -> Fault | ShortWrite:
        if self.random.random() < 0.2:
            return ShortWrite(self.random.randint(1, 6), self.random.randint(1, 20), persistent=self.random.random() < 0.5)
        verbs = ("sync", "sync", "sync_folder", "write", "rename", "create", "open_log", "truncate", "close", "unlink", "*")
        number = self.random.choice((errno.EIO, errno.ENOSPC, errno.EACCES, errno.EDQUOT))
        return Fault(self.random.choice(verbs), self.random.randint(1, 12), number, persistent=self.random.random() < 0.2)

    def step(self, backend: FileBackend) -> None:
        if self.random.random() < 0.15:
            self.rewrite(backend)
            return
        changes = self.changes()
        before, self.possible = self.possible, self.possible | {applied(state, changes) for state in self.possible}
        view = [Put("view.json", b"v" * 50, durable=False)] if self.random.random() < 0.2 else []
        try:
            backend.write(*changes, *view)
        except SyncFailed:
            return  # all or none, and nobody knows which
        except WriteFailed as error:
            if not view:
                self.old_stands(before, error)
            return
        except RevisionConflict:
            raise
        except StorageError:
            return
        self.possible = {applied(state, changes) for state in before}

    def old_stands(self, before: set[State], error: StorageError) -> None:
        found = state_of(FileBackend("/base", disk=self.disk))
        if found not in before:
            self.violations.append(f"{error!r}, but the old state does not stand: {_short(found)}")
        self.possible = before

    def rewrite(self, backend: FileBackend) -> None:
        key = self.random.choice(LOGS)
        self.number += 1
        records = [{"n": self.number}]

        def after(state: State) -> State:
            return frozen({**dict(state), key: (self.number,)})

        before, self.possible = self.possible, self.possible | {after(state) for state in self.possible}
        try:
            backend.rewrite(key, records)
        except WriteFailed as error:
            self.old_stands(before, error)
        except StorageError:
            return
        else:
            self.possible = {after(state) for state in before}

    def changes(self) -> list[Change]:
        made: list[Change] = []
        for key in self.random.sample((*DOCUMENTS, *LOGS), self.random.choice((1, 1, 2, 3, 5))):
            self.number += 1
            if self.random.random() < 0.15:
                made.append(Delete(key))
            elif key in DOCUMENTS:
                made.append(Put(key, (f'{{"n": {self.number}}}' + "x" * self.random.choice((0, 10, 700))).encode()))
            else:
                numbers = range(self.number, self.number + self.random.choice((1, 3)))
                self.number = numbers[-1]
                records = [{"n": n, "text": "y" * self.random.choice((0, 600))} for n in numbers]
                made.append(Append(key, records, growing=self.random.random() < 0.5))
        return made


@given(st.randoms(use_true_random=False), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_all_of_several_changes_are_there_or_none(choose: random.Random, seed: int) -> None:
    assert Story(choose, seed).tell() == []


@pytest.mark.prove
def test_no_story_loses_what_was_acknowledged(effort: Effort) -> None:
    for number in range(effort(200, 20_000)):
        seed = effort.seed + number
        for violation in Story(random.Random(seed), seed).tell():
            effort.fail(f"story {seed}: {violation}")


# Each step of a write, one after the other

OLD: tuple[Change, ...] = (Put("a.json", b"old a"), Put("d/b.json", b"old b"), Append("d/l.jsonl", [{"n": 1}]), Put("gone", b"x"))
WRITES: dict[str, tuple[Change, ...]] = {
    "one document": (Put("a.json", b"new a" * 200),),
    "a new document": (Put("new/c.json", b"new"),),
    "one log": (Append("d/l.jsonl", [{"n": 2}, {"n": 3}]),),
    "a new log": (Append("new/l.jsonl", [{"n": 2}]),),
    "a log that is growing": (Append("d/l.jsonl", [{"n": 2}], growing=True),),
    "a new log that is growing": (Append("new/l.jsonl", [{"n": 2}], growing=True),),
    "a removal": (Delete("gone"),),
    "everything at once": (
        Append("d/l.jsonl", [{"n": 2}, {"n": 3}]),
        Put("a.json", b"new a" * 200),
        Put("d/b.json", b"new b"),
        Delete("gone"),
        Put("new/c.json", b"new"),
        Append("new/l.jsonl", [{"n": 9}]),
    ),
}
KEYS = ("a.json", "d/b.json", "gone", "new/c.json", "d/l.jsonl", "new/l.jsonl")


def everything(disk: Disk) -> State:
    backend = FileBackend("/base", disk=disk)
    found: dict[str, Any] = {}
    for key in KEYS:
        if key.endswith(".jsonl"):
            numbers = tuple(record["n"] for record in backend.read(key).records)
            found |= {key: numbers} if numbers else {}
        elif (stored := backend.get(key)) is not None:
            found[key] = stored.data
    return frozen(found)


def prepared(seed: int = 0) -> SimulatedDisk:
    disk = SimulatedDisk(seed)
    FileBackend("/base", disk=disk).write(*OLD)
    return disk


def calls_of(changes: Sequence[Change]) -> int:
    disk = FailingDisk(prepared())
    FileBackend("/base", disk=disk).write(*changes)
    return len(disk.calls)


@pytest.mark.parametrize("what", WRITES)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EACCES])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_failure_at_any_step_leaves_all_or_none(what: str, error: int, persistent: bool) -> None:
    """W15: the error comes at that moment; what is then found, also after a power cut, is the old state or all of the new one."""
    changes = WRITES[what]
    old = everything(prepared())
    new = applied(old, changes)
    failures = 0
    for step in range(1, calls_of(changes) + 1):
        disk = prepared(step)
        failing = FailingDisk(disk, [Fault("*", step, error, persistent=persistent)])
        allowed = {new}
        try:
            FileBackend("/base", disk=failing).write(*changes)
        except WriteFailed:
            allowed = {old}
        except StorageError:
            allowed = {old, new}
        failures += allowed != {new}
        assert not failing.synced_again_after_failing()
        assert everything(disk) in allowed, f"step {step}"
        after = disk.crash()
        found = everything(after)
        assert found in allowed, f"step {step}, after a power cut"
        FileBackend("/base", disk=after).write(*changes)  # nothing is in the way of another try
        assert everything(after) == applied(found, changes)
        assert not [name for name in after.list("/base/.pending") if name.endswith(".json")] if after.kind("/base/.pending") else True
    assert failures > 0


@pytest.mark.parametrize("what", WRITES)
def test_a_power_cut_or_kill_at_any_step_leaves_all_or_none(what: str, effort: Effort) -> None:
    """W6: also when the power goes once more while the step is being finished."""
    changes = WRITES[what]
    old = everything(prepared())
    new = applied(old, changes)
    for step in range(1, calls_of(changes) + 1):
        for seed in range(effort(3, 30)):
            disk = prepared(effort.seed + seed)
            disk.cut_at = disk.calls + step
            with suppress(PowerCut):
                FileBackend("/base", disk=disk).write(*changes)
            after = disk.kill(cut_at=step) if seed % 2 else disk.crash(cut_at=step)
            with suppress(PowerCut):
                everything(after)
            found = everything(last := after.crash())
            assert found in (old, new), f"step {step}, seed {seed}"
            assert everything(last) == found


def test_a_note_that_was_removed_stays_removed_after_a_kill_and_a_power_cut() -> None:
    """M6: a finished step that came back would undo what was written since."""
    for seed in range(200):
        disk = SimulatedDisk(seed)
        first = FileBackend("/base", disk=disk)
        first.write(Put("a", b"1"), Put("b", b"1"))
        calls = disk.calls
        first.write(Put("a", b"2"), Put("b", b"2"))
        disk.cut_at = disk.calls + (disk.calls - calls) - seed % 3  # at the very end of the next one
        with suppress(PowerCut):
            first.write(Put("a", b"3"), Put("b", b"3"))
        disk = disk.kill()
        FileBackend("/base", disk=disk).write(Put("a", b"2"))
        backend = FileBackend("/base", disk=disk.crash())
        assert (backend.get("a").data, backend.get("b").data) == (b"2", b"3") or (  # type: ignore[union-attr]
            backend.get("a").data,  # type: ignore[union-attr]
            backend.get("b").data,  # type: ignore[union-attr]
        ) == (b"2", b"2")


def test_the_story_has_teeth() -> None:
    """A backend that makes several changes one after the other without a note is caught."""

    class Careless(FileBackend):
        def write(self, *changes: Change) -> tuple[str, ...]:
            return tuple(mark for change in changes for mark in super(Careless, self).write(change))

    found = set()
    for step in range(1, calls_of(WRITES["everything at once"]) + 1):
        disk = prepared()
        disk.cut_at = disk.calls + step
        with suppress(PowerCut):
            Careless("/base", disk=disk).write(*WRITES["everything at once"])
        found.add(everything(disk.crash()))
    assert len(found) > 2
