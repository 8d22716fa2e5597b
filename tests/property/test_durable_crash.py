"""W15, M6: whatever was acknowledged survives a power cut on a disk that keeps a random part of what was not synced.

Each seed is a short story: a few processes one after the other write files, a log and blobs, until one is killed or the power
goes in the middle of any call; some meet failing writes and syncs before. The model knows only what was acknowledged.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from contextlib import suppress

import pytest
from tests.conftest import Effort

from holdfast.durable.append import AppendLog
from holdfast.durable.disk import Disk, closing, make_folders, read_whole, write_all
from holdfast.durable.replace import Blobs, blob_id, replace, sweep
from holdfast.errors import Damaged, StorageError, SyncFailed, WriteFailed
from holdfast.testing.disk import PowerCut, SimulatedDisk
from holdfast.testing.failing_disk import FailingDisk, Fault, ShortWrite

PATHS = ("/base/memory.json", "/base/agents/coder/memory.json")
LOG = "/base/threads/one/log.jsonl"
BLOBS = "/base/raw"
Replace = Callable[[str, bytes, Disk], None]


def durable_replace(path: str, data: bytes, disk: Disk) -> None:
    replace(path, data, disk=disk)


class Story:
    """One seed: the disk, and what a user was told."""

    def __init__(self, seed: int, *, write: Replace = durable_replace) -> None:
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(seed, sector=self.random.choice((1, 16, 64, 512)))
        self.write = write
        self.number = 0
        self.violations: list[str] = []
        self.files: dict[str, set[bytes | None]] = {path: {None} for path in PATHS}  # what each may hold now
        self.acknowledged: list[int] = []  # records of the log
        self.attempted: set[int] = set()
        self.blobs: dict[str, tuple[bytes, set[bool]]] = {}  # by id: the content, and whether it may be there

    def tell(self) -> list[str]:
        for life in range(self.random.randint(1, 4)):
            self.live()
            cut = self.random.random() < 0.7
            self.disk = self.disk.crash() if cut else self.disk.kill()
            self.look(f"life {life}, {'power cut' if cut else 'kill'}", settled=cut)
        return self.violations

    def live(self) -> None:
        """One process. It ends at a random call, or goes on to the end of its work."""
        self.disk.cut_at = self.disk.calls + self.random.randint(1, 160)
        disk: Disk = self.disk
        if self.random.random() < 0.4:
            disk = FailingDisk(self.disk, [self.fault() for _ in range(self.random.randint(1, 2))])
        with suppress(PowerCut):
            log, blobs = AppendLog(LOG, disk=disk, room=self.random.choice((100, 1500))), Blobs(BLOBS, disk=disk)
            for _ in range(self.random.randint(1, 8)):
                way = self.random.random()
                if way < 0.4:
                    self.replace(disk)
                elif way < 0.8:
                    log = self.append(log, disk)
                else:
                    self.blob(blobs)
        if isinstance(disk, FailingDisk) and disk.synced_again_after_failing():
            self.violations.append("a sync was tried again on a descriptor that had failed")

    def fault(self) -> Fault | ShortWrite:
        if self.random.random() < 0.2:
            return ShortWrite(self.random.randint(1, 4), self.random.randint(1, 20), persistent=self.random.random() < 0.5)
        verb = self.random.choice(("sync", "sync", "sync_folder", "write", "rename", "create", "open_log", "truncate", "close", "*"))
        number = self.random.choice((errno.EIO, errno.ENOSPC, errno.EACCES, errno.EDQUOT))
        return Fault(verb, self.random.randint(1, 6), number, persistent=self.random.random() < 0.2)

    def replace(self, disk: Disk) -> None:
        self.number += 1
        path = self.random.choice(PATHS)
        data = (f'{{"n": {self.number}}}' + "x" * self.random.choice((0, 10, 700))).encode()
        before = self.content(path)
        self.files[path].add(data)
        try:
            self.write(path, data, disk)
        except WriteFailed as error:
            if self.content(path) != before:
                self.violations.append(f"{error!r}, but the old content does not stand")
            self.files[path].discard(data)
        except StorageError:
            pass  # it may be there or not
        else:
            self.files[path] = {data}

    def append(self, log: AppendLog, disk: Disk) -> AppendLog:
        numbers = range(self.number + 1, self.number + 1 + self.random.choice((1, 1, 3)))
        self.number = numbers[-1]
        self.attempted.update(numbers)
        try:
            records = [{"n": n, "text": "y" * self.random.choice((0, 30, 600))} for n in numbers]
            log.append_many(records, growing=self.random.random() < 0.5)
        except SyncFailed:
            return AppendLog(LOG, disk=disk, room=self.random.choice((100, 1500)))
        except StorageError:
            return log
        self.acknowledged.extend(numbers)
        return log

    def blob(self, blobs: Blobs) -> None:
        if self.blobs and self.random.random() < 0.4:
            key = self.random.choice(sorted(self.blobs))
            data, there = self.blobs[key]
            if self.random.random() < 0.5:
                there.add(False)
                with suppress(StorageError):
                    blobs.remove(key)
                    self.blobs[key] = (data, {False})
                return
        else:
            self.number += 1
            data = f"blob {self.number} ".encode() * self.random.choice((1, 90))
            key = blob_id(data)
            there = {False}
        self.blobs[key] = (data, there | {True})
        with suppress(StorageError):
            blobs.put(data)
            self.blobs[key] = (data, {True})

    def content(self, path: str) -> bytes | None:
        try:
            return read_whole(self.disk, path)
        except FileNotFoundError:
            return None

    def look(self, when: str, *, settled: bool) -> None:
        """The next start: is all there that must be, and nothing that cannot be? After a power cut what is seen is on the disk."""
        for path, possible in self.files.items():
            found = self.content(path)
            if found not in possible:
                self.violations.append(f"{when}: {path} holds {found!r:.40}")
            if settled:
                self.files[path] = {found}
        self.look_at_log(when, settled=settled)
        for key, (data, there) in self.blobs.items():
            try:
                found = Blobs(BLOBS, disk=self.disk).get(key)
            except FileNotFoundError:
                found = None
            except Damaged:
                self.violations.append(f"{when}: blob damaged")
                continue
            if (found is not None) not in there:
                self.violations.append(f"{when}: blob {'back' if found else 'lost'}")
            if settled:
                self.blobs[key] = (data, {found is not None})
        for folder in ("/base", "/base/agents/coder", "/base/threads/one"):
            with suppress(FileNotFoundError):
                sweep(folder, older_than=0, disk=self.disk)
                if any(name.endswith(".tmp") for name in self.disk.list(folder)):
                    self.violations.append(f"{when}: something is left behind in {folder}")

    def look_at_log(self, when: str, *, settled: bool) -> None:
        found = [record["n"] for record in AppendLog(LOG, disk=self.disk).read().records]
        if len(set(found)) != len(found) or not set(found) <= self.attempted:
            self.violations.append(f"{when}: the log has records that were never written, or twice: {found}")
        if [n for n in found if n in set(self.acknowledged)] != self.acknowledged:
            self.violations.append(f"{when}: of the records {self.acknowledged} the log has {found}")
        if settled:
            self.acknowledged = found


@pytest.mark.prove
def test_nothing_acknowledged_is_lost_and_nothing_is_torn(effort: Effort) -> None:
    for number in range(effort(1000, 20_000)):
        seed = effort.seed + number
        for violation in Story(seed).tell():
            effort.fail(f"story {seed}: {violation}")


def test_the_same_seed_tells_the_same_story(effort: Effort) -> None:
    def ruins(seed: int) -> list[object]:
        story = Story(seed)
        story.tell()
        return [story.number, story.acknowledged, sorted(story.blobs), [story.content(path) for path in PATHS]]

    for seed in range(effort.seed, effort.seed + 20):
        assert ruins(seed) == ruins(seed)


# The simulation has teeth: each way of writing that is known to lose data is caught.


def in_place(path: str, data: bytes, disk: Disk) -> None:
    make_folders(disk, path.rpartition("/")[0])
    with closing(disk, disk.open_log(path)) as handle:
        disk.truncate(handle, 0)
        write_all(disk, handle, data)
        disk.sync(handle)


def rename_without_sync(path: str, data: bytes, disk: Disk) -> None:
    folder = path.rpartition("/")[0]
    make_folders(disk, folder)
    with closing(disk, disk.create(f"{folder}/{blob_id(data)}.tmp")) as handle:
        write_all(disk, handle, data)
    disk.rename(f"{folder}/{blob_id(data)}.tmp", path)
    disk.sync_folder(folder)


def rename_without_folder_sync(path: str, data: bytes, disk: Disk) -> None:
    folder = path.rpartition("/")[0]
    make_folders(disk, folder)
    with closing(disk, disk.create(f"{folder}/{blob_id(data)}.tmp")) as handle:
        write_all(disk, handle, data)
        disk.sync(handle)
    disk.rename(f"{folder}/{blob_id(data)}.tmp", path)


def sync_until_it_works(path: str, data: bytes, disk: Disk) -> None:
    folder = path.rpartition("/")[0]
    make_folders(disk, folder)
    with closing(disk, disk.create(f"{folder}/{blob_id(data)}.tmp")) as handle:
        write_all(disk, handle, data)
        for _ in range(3):
            with suppress(SyncFailed):
                disk.sync(handle)
                break
    disk.rename(f"{folder}/{blob_id(data)}.tmp", path)
    disk.sync_folder(folder)


@pytest.mark.parametrize("naive", [in_place, rename_without_sync, rename_without_folder_sync, sync_until_it_works])
def test_a_naive_way_of_writing_is_caught(naive: Replace, effort: Effort) -> None:
    said = [violation for seed in range(effort.seed, effort.seed + 300) for violation in Story(seed, write=naive).tell()]
    assert any("memory.json holds" in violation for violation in said)


def test_a_rename_without_sync_leaves_nul_bytes_as_it_does_on_ext4() -> None:
    seen = set()
    for seed in range(200):
        disk = SimulatedDisk(seed)
        replace("/a", b"old" * 100, disk=disk)
        with closing(disk, disk.create("/b")) as handle:
            write_all(disk, handle, b"new" * 100)
        disk.rename("/b", "/a")
        seen.add(read_whole(disk.crash(), "/a"))
    assert {b"old" * 100, b"new" * 100, b"\0" * 300, b""} <= seen
