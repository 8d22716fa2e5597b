"""Adds records to a knowledge store until it is killed, and says each id once it was told that it is kept."""

from __future__ import annotations

import sys

from holdfast.knowledge.records import Record
from holdfast.knowledge.sqlite import SqliteStore


def main(path: str, owner: str, seed: str) -> None:
    with SqliteStore(path) as store:
        for number in range(100_000):
            batch = [Record(f"{owner} wrote {owner}x{number}x{part} in book {seed}.", id=f"{owner}-{number}-{part}") for part in range(3)]
            for id in store.add(batch).ids:
                sys.stdout.write(id + "\n")
            if number % 5 == 4:
                store.forget([f"{owner}-{number - 2}-0"])
                sys.stdout.write(f"-{owner}-{number - 2}-0\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
