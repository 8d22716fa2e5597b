"""W5, W6: kill -9 at random moments of ten stages, then resume: nothing runs twice, nothing is missing, the file is always whole."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest
from tests.conftest import Effort
from tests.crash.workflow_forge import ID, NAMES

ROOT = Path(__file__).parents[2]


class Forge:
    """Starts children that run the workflow, and kills them."""

    def __init__(self, module: str = "tests.crash.workflow_forge") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        )

    def run(
        self, command: str, base: Path, kill_after: float | None = None, kill_when: Callable[[], bool] | None = None
    ) -> tuple[int, float]:
        """The exit code of a child, and how long it took. It is killed after so many seconds, or when something has come to pass."""
        self._stdin.write(f"{command} {base}\n")
        self._stdin.flush()
        pid = int(self._answer("pid"))
        began = time.monotonic()
        while kill_when is not None and not kill_when() and Path(f"/proc/{pid}/stat").exists():
            time.sleep(0.001)
        if kill_after is not None:
            time.sleep(kill_after)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return int(self._answer("exit")), time.monotonic() - began

    def _answer(self, word: str) -> str:
        assert self.process.stdout is not None
        said, _, value = self.process.stdout.readline().strip().partition(" ")
        assert said == word, f"the forge said {said!r}"
        return value

    @property
    def _stdin(self) -> IO[str]:
        assert self.process.stdin is not None
        return self.process.stdin

    def close(self) -> None:
        assert self.process.stdout is not None
        self._stdin.close()
        self.process.wait(240)
        self.process.stdout.close()


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a kill asks nothing of the disk, and syncing one takes most of the time."""
    memory = Path("/dev/shm")  # noqa: S108 - the folder in it has a name of its own
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.fixture
def forge() -> Iterator[Forge]:
    found = Forge()
    yield found
    found.close()


def document(base: Path) -> dict[str, Any] | None:
    """The session file as it is now; None when there is none yet. Raises when it is not whole."""
    try:
        found: dict[str, Any] = json.loads((base / "sessions" / f"{ID}.json").read_bytes())
    except FileNotFoundError:
        return None
    return found


def executions(base: Path) -> list[tuple[str, str, str]]:
    path = base / "executions"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [(child, stage, what) for child, stage, what in (line.split() for line in lines)]


@contextmanager
def reader(base: Path, faults: list[str]) -> Iterator[None]:
    """Somebody who looks at the file all the time."""
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            try:
                document(base)
            except ValueError as error:
                faults.append(f"the file did not parse: {error}")
            time.sleep(0.0005)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def faults_of(base: Path, undisturbed: dict[str, Any], done_before: list[tuple[str, list[str]]]) -> list[str]:
    found = document(base)
    if found is None:
        return ["there is no session"]
    faults = []
    if found["status"] != "completed" or found["completed_stages"] != list(NAMES):
        faults.append(f"it ended {found['status']} with {found['completed_stages']}")
    if found["stage_outputs"] != undisturbed["stage_outputs"]:
        faults.append("its outputs are not those of an undisturbed run")
    ran = executions(base)
    for child, completed in done_before:
        again = [stage for number, stage, _ in ran if int(number) > int(child) and stage in completed]
        if again:
            faults.append(f"ran again although completed: {again}")
    missing = [name for name in NAMES if not any(stage == name and what == "ends" for _, stage, what in ran)]
    return faults + ([f"never ran: {missing}"] if missing else [])


@pytest.mark.prove
@pytest.mark.timeout(3000)
def test_a_workflow_that_is_killed_at_any_moment_resumes_without_loss_or_repetition(forge: Forge, quick: Path, effort: Effort) -> None:
    choose = random.Random(effort.seed)
    plain = [quick / f"plain-{number}" for number in range(4)]
    for base in plain:
        base.mkdir()
    ran = [forge.run("run", base) for base in plain]
    assert [code for code, _ in ran] == [0] * len(plain)
    took = min(seconds for _, seconds in ran)  # the first one loads what the others have, and a busy machine makes any of them slow
    undisturbed = document(plain[0])
    assert undisturbed is not None and undisturbed["completed_stages"] == list(NAMES)
    killed_inside = 0
    children = len(plain)
    for number in range(effort(12, 1000)):
        base = quick / str(number)
        base.mkdir()
        done_before: list[tuple[str, list[str]]] = []
        torn: list[str] = []
        with reader(base, torn):
            command = "run"
            for _ in range(choose.randint(1, 3)):
                at_work = (base / "sessions" / f"{ID}.json").exists if choose.random() < 0.5 else None  # else at any time from its birth on
                code, _ = forge.run(command, base, kill_after=choose.uniform(0.0, took * (0.6 if at_work else 1.1)), kill_when=at_work)
                children += 1
                now = document(base)
                killed_inside += code == -signal.SIGKILL and now is not None
                command = "resume"  # a session may be kept and have no file yet: the file is a view of its log
                done_before.append((str(children - 1), now["completed_stages"] if now is not None else []))
            code, _ = forge.run(command, base)
            children += 1
        if code != 0:
            errors = [path.read_text("utf-8") for path in base.glob("error-*")]
            effort.fail(f"run {number}: the last process ended with {code}: {errors}")
        for fault in [*torn[:1], *faults_of(base, undisturbed, done_before)]:
            effort.fail(f"run {number}: {fault}")
    assert killed_inside > effort.runs / 3, "the kills came too early or too late to mean anything"
