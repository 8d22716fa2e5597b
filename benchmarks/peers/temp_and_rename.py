"""The idiom that most programs use, write a temporary file and rename it, beside `holdfast.durable.replace`: power cuts, kills and writers.

Power cuts and kills are those of a simulated disk (`holdfast.testing.disk`), which keeps a random part of what was not synced, as ext4 and
XFS may. A story writes a file a few times and is cut off at a random call; it is broken when the file afterwards is neither what was
acknowledged last nor what was being written. Writers are real processes that read a file, add a line and write it back; what costs how
much is measured on the real disk of the working folder. Nothing is installed: the peer is five lines of Python.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.parts.peer_runs import Result, Row, compare

from holdfast.durable.disk import Disk, closing, read_whole, write_all
from holdfast.durable.replace import read_json, replace, replace_json
from holdfast.testing.disk import PowerCut, SimulatedDisk

_NOTE = (
    "The simulated disk is as harsh as the rules of POSIX allow. ext4 writes a file out before a rename by default, which makes the first "
    "row rare there; XFS and others promise no such thing. [Durability](durability.md) has the cuts of a real block device."
)
Write = Callable[[str, bytes, Disk], None]
FILE = "/base/state.json"


def ours(path: str, data: bytes, disk: Disk) -> None:
    replace(path, data, disk=disk)


def temp_and_rename(path: str, data: bytes, disk: Disk) -> None:
    with closing(disk, disk.create(path + ".tmp")) as handle:
        write_all(disk, handle, data)
    disk.rename(path + ".tmp", path)


def temp_sync_and_rename(path: str, data: bytes, disk: Disk) -> None:
    with closing(disk, disk.create(path + ".tmp")) as handle:
        write_all(disk, handle, data)
        disk.sync(handle)
    disk.rename(path + ".tmp", path)


def broken(write: Write, stories: int, *, power: bool, seed: int = 20261115) -> tuple[int, int]:
    """Stories after which the file is torn, empty or gone, and those after which it is an older state than the acknowledged one."""
    torn = stale = 0
    for number in range(stories):
        chance = random.Random(seed + number)
        disk = SimulatedDisk(seed + number, sector=chance.choice((16, 64, 512)))
        disk.make_folder("/base")
        disk.sync_folder("/")
        old = [f'{{"n": {n}}}{"x" * chance.choice((0, 40, 900))}'.encode() for n in range(5)]
        ours(FILE, old[0], disk)
        done, begun = 0, 0
        disk.cut_at = disk.calls + chance.randint(1, 40)
        with suppress(PowerCut):
            for begun in range(1, len(old)):
                write(FILE, old[begun], disk)
                done = begun
        after = disk.crash() if power else disk.kill()
        try:
            found = read_whole(after, FILE)
        except FileNotFoundError:
            found = b""
        torn += found not in old
        stale += found in old and found not in (old[done], old[begun])
    return torn, stale


WRITER = """
import json, os, sys
from pathlib import Path
path, me, count, locked = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "ours"
if locked:
    from holdfast.durable.lock import Lock
    from holdfast.durable.replace import read_json, replace_json
for number in range(count):
    if locked:
        with Lock(f"{path}.lock", timeout=120):
            lines = read_json(path)
            replace_json(path, [*lines, [me, number]])
    else:
        lines = json.loads(path.read_text())
        own = path.with_suffix(f".{me}.tmp")
        own.write_text(json.dumps([*lines, [me, number]]))
        os.replace(own, path)
"""


def lost_by_writers(folder: Path, way: str, count: int) -> int:
    """Acknowledged changes that are gone after four processes made theirs at once."""
    path = folder / f"{way}.json"
    replace_json(path, [])
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(me), str(count), way]) for me in range(4)]
    assert [writer.wait() for writer in writers] == [0] * 4
    return 4 * count - len(read_json(path))


def milliseconds(folder: Path, rounds: int) -> tuple[float, float]:
    """Median of a write of 4 KB, the two ways by turns."""
    ours_took, plain_took, data = [], [], b"x" * 4096
    for _ in range(rounds):
        began = time.perf_counter()
        replace(folder / "ours", data)
        ours_took.append(time.perf_counter() - began)
        began = time.perf_counter()
        (folder / "plain.tmp").write_bytes(data)
        (folder / "plain.tmp").rename(folder / "plain")
        plain_took.append(time.perf_counter() - began)
    return statistics.median(ours_took) * 1000, statistics.median(plain_took) * 1000


def measure(folder: Path, quick: bool) -> Result:
    stories, count = (300, 20) if quick else (5_000, 100)
    plain, synced = "temp and rename", "temp, fsync and rename"
    rows = []
    mine = broken(ours, stories, power=True)
    for name, way in ((plain, temp_and_rename), (synced, temp_sync_and_rename)):
        torn, stale = broken(way, stories, power=True)
        rows.append(Row(f"power cuts of {stories:,} after which the file is empty, torn or gone", mine[0], torn, "less", peer=name))
        rows.append(Row(f"power cuts of {stories:,} after which what was acknowledged is undone", mine[1], stale, "less", peer=name))
    killed, killed_theirs = (sum(broken(way, stories, power=False)) for way in (ours, temp_and_rename))
    rows.append(Row(f"kills of {stories:,} after which the file is wrong", killed, killed_theirs, "less", peer=plain))
    lost = {way: lost_by_writers(folder, way, count) for way in ("ours", "plain")}
    rows.append(Row(f"changes lost of {4 * count}, four writers at once", lost["ours"], lost["plain"], "less", peer=plain))
    took, theirs = milliseconds(folder, 20 if quick else 200)
    rows.append(Row("a write of 4 KB", round(took, 4), round(theirs, 4), "less", "ms", peer=plain))
    return Result(rows, [_NOTE])


if __name__ == "__main__":
    compare("temp-and-rename", [], measure)
