"""W15, M6: a real file system loses its power while real processes write; what they acknowledged is there after the next mount.

The file system is an ext4 on a loop device. Its own shutdown call, the one that the kernel's tests use, cuts it off from the disk:
at once, or after its journal (names and lengths, not content) was written. Needs root and loop devices, and runs in `make prove`.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.conftest import Effort
from tests.crash.ledger import Ledger, parse, work

from holdfast.durable.folder import Folder
from holdfast.durable.replace import read_json, replace_json

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
AT_ONCE, AFTER_THE_JOURNAL = 2, 1


class SmallDisk:
    """An ext4 of 64 MB in a file."""

    def __init__(self, folder: Path) -> None:
        self.image, self.place = folder / "image", folder / "mounted"
        self.place.mkdir()
        with self.image.open("wb") as file:
            file.truncate(64 << 20)
        subprocess.run(["mkfs.ext4", "-q", self.image], check=True)

    def mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", self.image, self.place], check=True, capture_output=True)

    def unmount(self) -> None:
        """Until the kernel has let go of it: a mount before that would get the file system that was cut off, as it is in memory."""
        subprocess.run(["umount", self.place], check=True, capture_output=True)
        while subprocess.run(["losetup", "-j", self.image], check=True, capture_output=True).stdout:
            time.sleep(0.005)

    def cut(self, how: int) -> None:
        handle = os.open(self.place, os.O_RDONLY)
        fcntl.ioctl(handle, SHUTDOWN, struct.pack("I", how))
        os.close(handle)


@pytest.fixture
def disk(effort: Effort, tmp_path: Path) -> Iterator[SmallDisk]:
    if not effort.proving:
        pytest.skip("a power cut needs a mounted disk: only in `make prove`")
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("a power cut needs root and mkfs.ext4")
    small = SmallDisk(tmp_path)
    try:
        small.mount()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"a power cut needs a loop device: {error.stderr!r}")
    yield small
    with suppress(subprocess.CalledProcessError):
        small.unmount()


def write_until_the_cut(disk: SmallDisk, base: Path, first: int, seed: int, how: int) -> list[tuple[str, str, int]]:
    """What a writer began, and what it had acknowledged when the power went.

    The shutdown call takes a while, and a sync that runs meanwhile may come back as if nothing were wrong (SQLite's do, too). With a
    real cut nobody would hear of it; here, what is acknowledged after the call has begun does not count.
    """
    choose = random.Random(seed)
    acknowledged, moment = choose.randrange(8), choose.uniform(0, 0.01)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            os.close(reader)
            work(base, first, seed, writer)
        os._exit(0)
    os.close(writer)
    before = b""
    while before.count(b"+") < acknowledged and (part := os.read(reader, 1 << 16)):
        before += part
    time.sleep(moment)
    os.set_blocking(reader, False)
    with suppress(BlockingIOError):
        before += os.read(reader, 1 << 20)
    disk.cut(how)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    after = b""
    while part := os.read(reader, 1 << 20):
        after += part
    os.close(reader)
    said = parse((before + after).decode().splitlines(keepends=True))
    heard = before.count(b"\n")
    return said[:heard] + [entry for entry in said[heard:] if entry[0] == "-"]


@pytest.mark.prove
@pytest.mark.parametrize("how", [AT_ONCE, AFTER_THE_JOURNAL], ids=["at once", "after the journal"])
def test_nothing_acknowledged_is_lost_in_a_power_cut(disk: SmallDisk, effort: Effort, how: int) -> None:
    ledger, base = Ledger(), disk.place / "0"
    acknowledged = 0
    for run in range(effort(0, 200)):
        if run % 20 == 0:
            shutil.rmtree(base, ignore_errors=True)
            base, ledger = disk.place / str(run), Ledger()
        first = max((number for numbers in ledger.begun.values() for number in numbers), default=0)
        said = write_until_the_cut(disk, base, first, effort.seed + run, how)
        ledger.hear(said)
        acknowledged += sum(sign == "+" for sign, _, _ in said)
        disk.unmount()
        disk.mount()
        for fault in ledger.faults(base):
            effort.fail(f"cut {run}: {fault}")
    assert acknowledged > effort.runs


@pytest.mark.prove
@pytest.mark.parametrize("how", [AT_ONCE, AFTER_THE_JOURNAL], ids=["at once", "after the journal"])
def test_a_replaced_file_is_the_new_one_and_a_naive_one_is_not(disk: SmallDisk, effort: Effort, how: int) -> None:
    """The cut has teeth: the same content, put in place without syncing, is lost or filled with NUL bytes."""
    naive_failures = 0
    for number in range(effort(0, 15)):
        replace_json(disk.place / "durable.json", {"n": number})
        Folder(disk.place).write("in/folder.txt", str(number).encode())
        (disk.place / "naive.tmp").write_text(str(number))
        (disk.place / "naive.tmp").rename(disk.place / "naive.txt")
        disk.cut(how)
        disk.unmount()
        disk.mount()
        if read_json(disk.place / "durable.json") != {"n": number}:
            effort.fail(f"cut {number}: the file is old")
        if (disk.place / "in" / "folder.txt").read_text() != str(number):
            effort.fail(f"cut {number}: the file in the folder is old")
        naive = disk.place / "naive.txt"
        naive_failures += not naive.exists() or naive.read_text() != str(number)
    assert naive_failures > 0
