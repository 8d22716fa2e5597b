"""What surviving costs: durable writes against the ways that do not survive, in the same run, on the disk of the working folder.

Prints one JSON object. Times are medians in milliseconds; ratios are what to look at, since the disk sets the times.
`--folder` chooses another disk, `--rounds` how often each is done.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.durable.append import AppendLog
from holdfast.durable.database import open_database, transaction
from holdfast.durable.disk import RealDisk
from holdfast.durable.folder import Folder
from holdfast.durable.replace import Blobs, replace
from holdfast.health import probe
from holdfast.testing.failing_disk import FailingDisk

DATA = b"x" * 4096
RECORD = {"event": "said", "text": "x" * 200}


def timed(rounds: int, *actions: Callable[[], object]) -> list[float]:
    """Median milliseconds of each action. They take turns, so that a busy moment of the machine meets all of them."""
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(rounds):
        for own, action in zip(times, actions, strict=True):
            begin = time.perf_counter()
            action()
            own.append((time.perf_counter() - begin) * 1000)
    return [statistics.median(own) for own in times]


def syncs(action: Callable[[FailingDisk], object]) -> int:
    """How many syncs an action asks of the disk, once its folders and files are there."""
    disk = FailingDisk(RealDisk())
    action(disk)
    disk.calls.clear()
    action(disk)
    return sum(call.operation in ("sync", "sync_folder") for call in disk.calls)


def files(base: Path, rounds: int) -> dict[str, object]:
    target, naive, plain, folder = base / "durable", base / "naive", base / "plain", Folder(base)

    def temp_and_rename() -> None:
        (base / "naive.tmp").write_bytes(DATA)
        (base / "naive.tmp").rename(naive)

    durable, beneath, renamed, in_place = timed(
        rounds,
        lambda: replace(target, DATA),
        lambda: folder.write("beneath", DATA),
        temp_and_rename,
        lambda: plain.write_bytes(DATA),
    )
    return {
        "bytes": len(DATA),
        "durable_replace_ms": round(durable, 4),
        "folder_write_ms": round(beneath, 4),
        "temp_rename_without_sync_ms": round(renamed, 4),
        "open_truncate_write_ms": round(in_place, 4),
        "times_temp_rename": round(durable / renamed, 1),
        "times_open_truncate_write": round(durable / in_place, 1),
        "syncs": syncs(lambda disk: replace(base / "counted", DATA, disk=disk)),
    }


def logs(base: Path, rounds: int) -> dict[str, object]:
    log, database = AppendLog(base / "log"), open_database(base / "store.db", migrations=["CREATE TABLE rows (text TEXT)"])

    def commit(count: int) -> None:
        with transaction(database):
            database.executemany("INSERT INTO rows VALUES (?)", [[json.dumps(RECORD)]] * count)

    one, hundred, one_row, hundred_rows = timed(
        rounds, lambda: log.append(RECORD), lambda: log.append_many([RECORD] * 100), lambda: commit(1), lambda: commit(100)
    )
    database.close()
    counted = FailingDisk(RealDisk())
    again = AppendLog(base / "counted-log", disk=counted)
    again.append(RECORD)
    counted.calls.clear()
    again.append_many([RECORD] * 100)
    begin = time.perf_counter()
    records = len(log.read().records)
    reading = time.perf_counter() - begin
    return {
        "append_ms": round(one, 4),
        "append_100_ms": round(hundred, 4),
        "append_100_per_record_ms": round(hundred / 100, 5),
        "sqlite_commit_ms": round(one_row, 4),
        "sqlite_commit_100_ms": round(hundred_rows, 4),
        "append_times_sqlite": round(one / one_row, 2),
        "append_100_times_sqlite": round(hundred / hundred_rows, 2),
        "syncs_per_append": sum("sync" in call.operation for call in counted.calls),
        "records_read_per_second": round(records / reading),
    }


def blobs(base: Path, rounds: int) -> dict[str, object]:
    store, number = Blobs(base / "raw"), iter(range(10**9))
    new, again = timed(rounds, lambda: store.put(b"%d" % next(number) + DATA), lambda: store.put(DATA))
    return {"put_ms": round(new, 4), "put_again_ms": round(again, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path())
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        base = Path(name)
        disk = probe(base)
        result = {
            "benchmark": "durable",
            "disk": {"file_system": disk.file_system, "fsync_ms": disk.fsync_ms, "fsync_stubbed": disk.fsync_stubbed},
            "rounds": options.rounds,
            "file": files(base, options.rounds),
            "log": logs(base, options.rounds),
            "blob": blobs(base, options.rounds),
        }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
