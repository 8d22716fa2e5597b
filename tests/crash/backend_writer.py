"""A process that writes through a storage backend until it is killed, and says after each write what it was.

python -m tests.crash.backend_writer BACKEND FIRST SEED         writes; a line for each: `+ n` begun, `= n` done
python -m tests.crash.backend_writer BACKEND lease KEY NAME     takes a lease, says so, and keeps it
"""

from __future__ import annotations

import random
import sys
import time

from holdfast.storage.backend import Append, Backend, Change, Put
from holdfast.storage.files import FileBackend
from holdfast.storage.postgres_backend import PostgresBackend

DOCUMENTS = ("a.json", "d/b.json")
LOG = "d/l.jsonl"


def opened(what: str) -> Backend:
    kind, _, place = what.partition(":")
    return FileBackend(place) if kind == "files" else PostgresBackend(place)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def write(backend: Backend, first: int, seed: int) -> None:
    """Step n puts n into both documents and appends it twice to the log, as one; every few steps the log is rewritten."""
    choose = random.Random(seed)
    number = first
    backend.mark(LOG)
    say("ready")
    while True:
        number += 1
        padding = "x" * choose.choice((0, 10, 5000))
        say(f"+ {number}")
        changes: list[Change] = [Put(key, f"{number}:{padding}".encode()) for key in DOCUMENTS]
        backend.write(*changes, Append(LOG, [{"n": number}, {"n": number, "again": padding}]))
        if choose.random() < 0.1:
            backend.rewrite(LOG, [{"n": number}, {"n": number}])
        say(f"= {number}")


def main() -> None:
    backend = opened(sys.argv[1])
    if sys.argv[2] == "lease":
        with backend.lease(sys.argv[3], holder=sys.argv[4]):
            say("held")
            time.sleep(600)
    write(backend, int(sys.argv[2]), int(sys.argv[3]))


if __name__ == "__main__":
    main()
