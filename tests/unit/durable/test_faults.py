"""W15: every file system call of a durable write fails once, or is the last one before a SIGKILL: the old state or the new one, and no lie.

The calls are those that the kernel sees (by `strace`), so nothing that Python or our own seam does in between can hide one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import Effort

import holdfast
from holdfast.durable.append import AppendLog
from holdfast.durable.database import open_database
from holdfast.durable.folder import Folder
from holdfast.durable.replace import Blobs, read_json, replace_json

CALLS = (
    "openat,openat2,write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,"
    "mkdir,mkdirat,fchmod,fchown,ftruncate,flock,close"
)
ERRORS = ("EIO", "ENOSPC", "EACCES", "EROFS", "EDQUOT", "EINTR")
ACTIONS = {
    "replace": 'replace_json(base + "/file.json", {"n": 2})',
    "append": 'AppendLog(base + "/log").append({"n": 2})',
    "blob": 'Blobs(base + "/raw").put(b"two")',
    "folder": 'Folder(base).write("deep/note.txt", b"two")',
    "database": "commit()",
}
SCRIPT = """
import os, sys
sys.path.insert(0, sys.argv[2])
from holdfast.durable.append import AppendLog
from holdfast.durable.replace import Blobs
from holdfast.durable.database import open_database, transaction
from holdfast.durable.folder import Folder
from holdfast.durable.lock import Lock
from holdfast.durable.replace import replace_json
from holdfast.durable import beneath
from holdfast.errors import HoldfastError
import socket

base = sys.argv[1]
beneath.openat2_works()
connection = open_database(base + "/store.db", migrations=["CREATE TABLE rows (n)"]) if sys.argv[3] == "database" else None
def commit():
    with transaction(connection):
        connection.execute("INSERT INTO rows VALUES (2)")
os.access("/BEGIN", 0)
try:
    ACTION
    outcome = "done"
except HoldfastError as error:
    outcome = type(error).__name__
os.access("/END", 0)
if outcome == "SyncFailed":
    before = connection and connection.given_up
    try:
        commit() if before else None
        outcome += ", written again" if before else ""
    except HoldfastError as error:
        outcome += ", then " + type(error).__name__
os.write(1, outcome.encode())
os._exit(0)
"""
SOURCE = str(Path(holdfast.__file__).parents[1])
SITES: dict[str, list[Site]] = {}  # by action, found once
TYPED = {"DiskFull", "NotWritable", "WriteFailed", "SyncFailed", "StorageError", "SyncFailed, then SyncFailed"}


@dataclass(frozen=True)
class Site:
    """The `nth` call of `call` since the process began."""

    call: str
    nth: int


class Bench:
    """A folder with old content, and a process that does one action on it under strace."""

    def __init__(self, strace: str, action: str, folder: Path) -> None:
        self.strace, self.action, self.folder, self.number = strace, action, folder, 0
        self.script = folder / "script.py"
        self.script.write_text(SCRIPT.replace("ACTION", ACTIONS[action]), encoding="utf-8")
        if action not in SITES:
            SITES[action] = self._sites()
        self.sites = SITES[action]

    def _base(self) -> Path:
        self.number += 1
        base = self.folder / str(self.number)
        if self.action == "replace":
            replace_json(base / "file.json", {"n": 1})
        elif self.action == "append":
            AppendLog(base / "log").append({"n": 1})
        elif self.action == "blob":
            Blobs(base / "raw").put(b"one")
        elif self.action == "folder":
            Folder(base, make=True).write("deep/note.txt", b"one")
        else:
            connection = open_database(base / "store.db", migrations=["CREATE TABLE rows (n)"])
            connection.execute("INSERT INTO rows VALUES (1)")
            connection.close()
        return base

    def _run(self, base: Path, *options: str) -> tuple[str, str, int]:
        trace = base.with_suffix(".trace")
        command = [
            self.strace,
            "-qq",
            "-o",
            str(trace),
            *options,
            sys.executable,
            "-B",
            "-I",
            "-S",
            str(self.script),
            str(base),
            SOURCE,
            self.action,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout, trace.read_text(encoding="utf-8", errors="replace"), done.returncode

    def _sites(self) -> list[Site]:
        """Which calls the action makes, numbered as strace numbers them."""
        self._run(self._base(), "-e", f"trace={CALLS}")  # the first run may write caches
        outcome, trace, _ = self._run(self._base(), "-e", f"trace={CALLS},access")
        assert outcome == "done"
        counts: Counter[str] = Counter()
        sites, inside = [], False
        for line in trace.splitlines():
            call = re.match(r"(\w+)\(", line)
            if call is None:
                continue
            inside = (inside or '"/BEGIN"' in line) and '"/END"' not in line
            counts[call.group(1)] += 1
            if inside and call.group(1) != "access":
                sites.append(Site(call.group(1), counts[call.group(1)]))
        return sites

    def try_at(self, site: Site, what: str) -> tuple[str, Path, bool]:
        base = self._base()
        outcome, trace, _ = self._run(base, "-e", f"trace={CALLS}", "-e", f"inject={site.call}:{what}:when={site.nth}")
        return outcome, base, "INJECTED" in trace or "killed by SIGKILL" in trace

    def state(self, base: Path) -> object:
        """What the next process finds: 1 for the old content, 2 for the new. Whatever else it may be is no number."""
        if self.action == "replace":
            return read_json(base / "file.json")["n"]
        if self.action == "append":
            reading = AppendLog(base / "log").read()
            return len(reading.records) if [r["n"] for r in reading.records] in ([1], [1, 2]) else reading
        if self.action == "blob":
            blobs = Blobs(base / "raw")
            return len([blobs.get(key) for key in blobs.list()])
        if self.action == "folder":
            return {b"one": 1, b"two": 2}.get((base / "deep" / "note.txt").read_bytes(), "torn")
        connection = open_database(base / "store.db", migrations=["CREATE TABLE rows (n)"])
        (count,) = connection.execute("SELECT count(*) FROM rows").fetchone()
        connection.close()
        return count


@pytest.fixture
def bench(strace: str, request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(strace, request.param, tmp_path)


@pytest.mark.prove
@pytest.mark.parametrize("bench", ACTIONS, indirect=True)
def test_a_call_that_fails_is_told_or_made_good_and_never_tears(bench: Bench, effort: Effort) -> None:
    fatal = {"fsync", "fdatasync", "write", "rename", "renameat", "renameat2"}  # `pwrite64` only signs the lock file
    assert {site.call for site in bench.sites} & {"fsync", "fdatasync"}
    share = effort(1, len(ERRORS))
    hit = 0
    sites = bench.sites if effort.proving or bench.action in ("replace", "append") else bench.sites[::3]
    for number, site in enumerate(sites):
        for error in (ERRORS * 2)[number % len(ERRORS) :][:share]:
            outcome, base, injected = bench.try_at(site, f"error={error}")
            hit += injected
            state = bench.state(base)
            where = f"{bench.action}, {site.call} {site.nth}, {error}: said {outcome!r}, found {state!r}"
            if outcome not in TYPED | {"done"} or state not in (1, 2):
                effort.fail(where)
            elif outcome == "done" and state != 2:
                effort.fail(f"a lie: {where}")
            elif outcome == "done" and injected and site.call in fatal and error != "EINTR" and bench.action != "database":
                effort.fail(f"silence: {where}")
            elif outcome not in ("done", "SyncFailed", "SyncFailed, then SyncFailed") and state != 1:
                effort.fail(f"the old content does not stand: {where}")
            left = [path.name for path in base.rglob("*.tmp")]
            if left and site.call not in ("unlink", "unlinkat"):
                effort.fail(f"left behind {left}: {where}")
    effort.runs = len(sites) * share
    assert hit >= len(sites) * share * 0.8, "the faults did not reach their calls"


@pytest.mark.prove
@pytest.mark.parametrize("bench", ACTIONS, indirect=True)
def test_a_process_killed_at_any_call_leaves_the_old_state_or_the_new(bench: Bench, effort: Effort) -> None:
    sites = bench.sites[:: effort(3, 1)]
    effort.runs = len(sites)
    for site in sites:
        outcome, base, _ = bench.try_at(site, "signal=SIGKILL")
        state = bench.state(base)
        if state not in (1, 2) or (outcome == "done" and state != 2):
            effort.fail(f"{bench.action}, killed at {site.call} {site.nth}: said {outcome!r}, found {state!r}")
