"""A process for `test_archive_kill.py`: archives messages in small steps and says on its output what was acknowledged."""

from __future__ import annotations

import random
import sys

from holdfast.context.archive import FileArchive
from holdfast.context.records import records_of
from holdfast.context.view import PlainMessage


def talk(owner: str, count: int) -> list[PlainMessage]:
    return [PlainMessage("human", f"{owner} says number {n}. " * 4, f"{owner}-{n}") for n in range(count)]


def main(base: str, owner: str, count: int, seed: int) -> None:
    archive = FileArchive(base, lock_timeout=240.0)
    rng = random.Random(seed)
    both = talk("shared", count)
    own = talk(owner, count)
    at = 0
    while at < count:
        stop = min(count, at + rng.randrange(1, 6))
        archive.add("t", records_of([*both[max(0, at - 2) : stop], *own[at:stop]]))
        for n in range(at, stop):
            print(f"shared-{n}")  # the test reads it
            print(f"{owner}-{n}", flush=True)
        if rng.random() < 0.1:
            archive.search("t", f"{owner} number {at}")
        at = stop


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
