"""W5, W6, W16, M6: real processes killed with SIGKILL while they write through a backend or hold a lease, for files and PostgreSQL."""

from __future__ import annotations

import multiprocessing
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.conftest import Effort
from tests.crash.backend_writer import DOCUMENTS, LOG, opened

from holdfast.errors import Locked
from holdfast.storage.backend import Backend, Lease, Put

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["files", "postgres"])
def what(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """How to open the backend, here and in another process."""
    return f"files:{tmp_path / 'base'}" if request.param == "files" else f"postgres:{request.getfixturevalue('postgres')}"


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.crash.backend_writer", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def found(what: str) -> tuple[int, int]:
    """The step that the storage stands at, and how often the log has it. All of its parts must agree."""
    backend = opened(what)
    try:
        numbers = {key: int(stored.data.partition(b":")[0]) if (stored := backend.get(key)) else 0 for key in DOCUMENTS}
        reading = backend.read(LOG)
        assert reading.damage == ()
        logged = [record["n"] for record in reading.records]
        newest = logged[-1] if logged else 0
        assert set(numbers.values()) == {newest}, f"{numbers}, log {logged[-5:]}"
        assert len(logged) % 2 == 0 and logged == sorted(logged)
        return newest, logged.count(newest)
    finally:
        backend.close()


@pytest.mark.prove
def test_a_killed_writer_leaves_all_of_a_step_or_none(what: str, effort: Effort) -> None:
    choose = random.Random(effort.seed)
    newest, written = 0, 0
    for run in range(effort(6, 200)):
        with running(what, str(newest), str(effort.seed + run)) as process:
            assert line_of(process) == "ready"
            heard = [line_of(process) for _ in range(choose.choice((0, 2, 7)) if run else 2)]  # what it began and what it finished, in turn
            time.sleep(choose.uniform(0.01, 0.15))
            process.kill()
            assert process.stdout is not None
            said = [*heard, *process.stdout.read().split("\n")]
        begun = max((int(line[2:]) for line in said[:-1] if line.startswith("+ ")), default=newest)
        done = max((int(line[2:]) for line in said[:-1] if line.startswith("= ")), default=newest)
        after, times = found(what)
        assert done <= after <= begun, f"run {run}: done {done}, begun {begun}, found {after}"
        assert times == 2 or after == 0
        written += done - newest
        newest = after
    assert written > 0


def test_a_lease_ends_with_its_process_and_not_before(what: str) -> None:
    """W6: one that lives is never taken over; one that was killed at once, and it is said who it was."""
    backend = opened(what)
    with running(what, "lease", "s/1", "ada") as process:
        assert line_of(process) == "held"
        holder = backend.holder("s/1")
        assert holder is not None and (holder.name, holder.pid) == ("ada", process.pid)
        with pytest.raises(Locked, match="ada"), backend.lease("s/1"):
            pass
        process.kill()
        process.wait()
        assert _soon(lambda: backend.holder("s/1") is None)
        with _taken(backend) as lease:
            assert lease.taken_over is not None and lease.taken_over.name == "ada"
            assert lease.holder.name == "bob"
    with backend.lease("s/1") as again:
        assert again.taken_over is None
    backend.close()


@contextmanager
def _taken(backend: Backend) -> Iterator[Lease]:
    """The lease, once the server has noticed that its holder's connection is gone."""
    deadline = time.monotonic() + 240
    while True:
        try:
            lease = backend.lease("s/1", holder="bob")
            held = lease.__enter__()
            break
        except Locked:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    try:
        yield held
    finally:
        lease.__exit__(None, None, None)


def _soon(is_true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 240
    while not is_true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_a_backend_works_on_in_a_forked_process(what: str) -> None:
    """A worker that forks gets connections and locks of its own."""
    backend = opened(what)
    backend.write(Put("a.json", b"1"))

    def child() -> None:
        backend.write(Put("a.json", b"2"))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(240)
    assert process.exitcode == 0
    assert backend.get("a.json").data == b"2"  # type: ignore[union-attr]  # put above
    backend.close()
