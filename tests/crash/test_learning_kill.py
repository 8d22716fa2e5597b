"""M8, S18: learning runs by itself wherever the middleware is used, in real processes that are killed, and nothing is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import pytest
from tests.conftest import Effort
from tests.crash.learning_program import answers_for_ever, run
from tests.crash.memory_worker import name, opened

from holdfast.memory.service import MemoryService

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
ROOT = Path(__file__).parents[2]
LONG = "3600"
"""A debounce that does not pass while a test runs."""


@contextmanager
def program(base: Path, ways: str, kind: str, debounce: str, *said: str) -> Iterator[TextIO]:
    """A process of its own that runs the program; gives what it says, and kills it at the end."""
    reader, writer = os.pipe()
    child = os.fork()  # all is loaded already: a new interpreter would take seconds for that
    if child == 0:
        with suppress(BaseException):  # whatever happens, the child must not go on as a second test run
            os.close(reader)
            os.dup2(writer, 1)
            run(os.fdopen(os.dup(1), "w", buffering=1), str(base), ways, kind, debounce, *said)
        os._exit(1)
    os.close(writer)
    try:
        with os.fdopen(reader, encoding="utf-8") as says:
            yield says
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "it was alive until it was killed"


def ended(base: Path, way: str, kind: str, debounce: str, *said: str) -> int:
    """Run the program in an interpreter of its own until it ends by itself; gives its exit code."""
    command = [sys.executable, "-m", "tests.crash.learning_program", str(base), f"{way}:end", kind, debounce, *said]
    return subprocess.run(command, check=False, timeout=240, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}).returncode


def heard(says: TextIO, line: str) -> None:
    """Wait until the program says this."""
    for said in says:
        if said == f"{line}\n":
            return
    raise AssertionError(f"the program ended and never said {line!r}")


def learned(base: Path) -> list[str]:
    place = base / "memory.json"
    return [fact["content"] for fact in json.loads(place.read_text())["facts"]] if place.exists() else []


def learns(base: Path, *facts: str) -> None:
    """Wait until the file holds these facts, each once."""
    until = time.monotonic() + 240
    while sorted(learned(base)) != sorted(facts):
        assert time.monotonic() < until, f"learned {learned(base)}"
        time.sleep(0.05)


MIA, RAVI, INES, OTTO = (f"I know somebody called {name}." for name in ("Mia", "Ravi", "Ines", "Otto"))


def test_a_living_process_learns_without_being_asked_to(tmp_path: Path) -> None:
    """From `create_agent(...).invoke`, `ainvoke`, `stream`, and the graph of the lead agent."""
    with program(tmp_path, "invoke,async,stream,lead", "quotes", "0", MIA, RAVI, INES, OTTO) as says:
        heard(says, "answered")
        learns(tmp_path, MIA, RAVI, INES, OTTO)


def test_what_a_killed_process_heard_is_learned_by_the_next_one_that_uses_the_middleware(tmp_path: Path) -> None:
    with program(tmp_path, "invoke", "quotes", "1", MIA) as says:
        heard(says, "answered")
    with program(tmp_path, "async", "quotes", "1", "Hello!"):
        learns(tmp_path, MIA)


def test_a_process_killed_while_it_learned_leaves_the_work_to_the_next_one(tmp_path: Path) -> None:
    with program(tmp_path, "lead", "hang", "0", MIA) as says:
        heard(says, "extracting")
    assert learned(tmp_path) == []
    with program(tmp_path, "invoke", "quotes", "0", RAVI):
        learns(tmp_path, MIA, RAVI)


def test_two_processes_on_one_store_learn_each_thing_once(tmp_path: Path) -> None:
    with (
        program(tmp_path, "invoke,stream", "quotes", "0", MIA, RAVI) as one,
        program(tmp_path, "lead,async", "quotes", "0", INES, OTTO) as other,
    ):
        heard(one, "answered")
        heard(other, "answered")
        learns(tmp_path, MIA, RAVI, INES, OTTO)
    with MemoryService.at(tmp_path) as memory:
        assert {fact.confirmations for fact in memory.document().facts} == {1}
        items = [change.item for change in memory.history()]
        assert len(items) == len(set(items)) == 4


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_nothing_that_was_answered_is_lost_or_learned_twice_when_the_process_is_killed(effort: Effort, tmp_path: Path) -> None:
    """At any moment, again and again, on the same store; each process goes on with what the one before it left."""
    choose, answered, begun = random.Random(effort.seed), set[int](), 0
    for turn in range(effort(5, 200)):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                answers_for_ever(tmp_path, begun, writer)
            os._exit(1)
        os.close(writer)
        with os.fdopen(reader, encoding="utf-8") as says:
            first = says.readline()
            time.sleep(choose.uniform(0, 0.5))
            os.kill(child, signal.SIGKILL)
            assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), f"run {turn} ended by itself"
            numbers = [int(line) for line in (first, *says) if line.endswith("\n")]
        answered |= set(numbers)
        begun = max(numbers) + 1  # the next one may have been begun
    memory = opened(tmp_path)
    memory.queue.recover()
    flushed = memory.flush()
    found = [fact.content for fact in memory.document().facts]
    lost = [number for number in sorted(answered) if f"I know somebody called {name(number)}." not in found]
    if lost or len(found) != len(set(found)) or flushed.failed or flushed.left:
        effort.fail(f"lost {lost}, {len(found) - len(set(found))} twice, {flushed}")
    assert {fact.confirmations for fact in memory.document().facts} == {1}
    assert len(answered) >= effort.runs
    memory.close()


def test_a_short_script_learns_by_its_model_at_its_end(tmp_path: Path) -> None:
    """At the end of a process nothing may need a pool of threads any more."""
    assert ended(tmp_path, "invoke", "model", LONG, "I prefer Emacs.") == 0
    assert learned(tmp_path) == ["User prefers Emacs"]


def test_an_extractor_that_hangs_keeps_no_process_and_loses_nothing(tmp_path: Path) -> None:
    assert ended(tmp_path, "stream", "hang", "0", MIA) == 0
    assert learned(tmp_path) == []
    with program(tmp_path, "invoke", "quotes", "0", RAVI):
        learns(tmp_path, MIA, RAVI)


FORK = """
import os, sys
from tests.crash.learning_program import talk
from tests.crash.memory_worker import Quotes
from holdfast.config.loading import config_from_values
from holdfast.memory.service import MemoryService

config = config_from_values({"memory": {"debounce_seconds": 0}}, environ={"HOLDFAST_HOME": sys.argv[1]})
memory = MemoryService.open(config, extractor=Quotes())
for number, name in enumerate(sys.argv[2:]):
    talk("invoke", f"I know somebody called {name}.", config, memory)  # the worker is at it when the process forks
    child = os.fork()
    if not child:
        talk("stream", f"I taught somebody called {name}.", config, memory)
        memory.close(30)
        os._exit(not MemoryService.open(config).document().facts)
    assert os.waitpid(child, 0)[1] == 0
print("learned by all children", flush=True)
"""


def test_children_made_by_fork_have_a_worker_of_their_own_and_hang_on_no_lock_of_the_parent(tmp_path: Path) -> None:
    """As the servers do it that load a program once and fork, here in the middle of learning."""
    names = ("Mia", "Ravi", "Ines", "Otto", "Lena", "Tom", "Anna", "Zoe")
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path), *names]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=240, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert "learned by all children" in done.stdout, done.stderr
    assert sorted(learned(tmp_path)) == sorted(f"I {how} somebody called {name}." for how in ("know", "taught") for name in names)
