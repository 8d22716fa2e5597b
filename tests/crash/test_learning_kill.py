"""M8, S18: learning runs by itself wherever the middleware is used, in real processes that are killed, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.memory.service import MemoryService

ROOT = Path(__file__).parents[2]
LONG = "3600"
"""A debounce that does not pass while a test runs."""


@contextmanager
def program(base: Path, way: str, kind: str, debounce: str, *said: str) -> Iterator[subprocess.Popen[str]]:
    """The program while it runs; killed at the end."""
    command = [sys.executable, "-m", "tests.crash.learning_program", str(base), way, kind, debounce, *said]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        yield running
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait(60)
        assert running.stdout is not None
        running.stdout.close()


def heard(running: subprocess.Popen[str], line: str) -> None:
    """Wait until the program says this."""
    assert running.stdout is not None
    for said in running.stdout:
        if said == f"{line}\n":
            return
    raise AssertionError(f"the program ended with {running.wait()} and never said {line!r}")


def learned(base: Path) -> list[str]:
    place = base / "memory.json"
    return [fact["content"] for fact in json.loads(place.read_text())["facts"]] if place.exists() else []


def learns(base: Path, *facts: str) -> None:
    """Wait until the file holds these facts, each once."""
    until = time.monotonic() + 60
    while sorted(learned(base)) != sorted(facts):
        assert time.monotonic() < until, f"learned {learned(base)}"
        time.sleep(0.05)


MIA, RAVI, INES, OTTO = (f"I know somebody called {name}." for name in ("Mia", "Ravi", "Ines", "Otto"))


def test_a_living_process_learns_without_being_asked_to(tmp_path: Path) -> None:
    """From `create_agent(...).invoke`, `ainvoke`, `stream`, and the graph of the lead agent."""
    with program(tmp_path, "invoke,async,stream,lead", "quotes", "0", MIA, RAVI, INES, OTTO) as running:
        heard(running, "answered")
        learns(tmp_path, MIA, RAVI, INES, OTTO)
        assert running.poll() is None, "and it still runs"


def test_what_a_killed_process_heard_is_learned_by_the_next_one_that_uses_the_middleware(tmp_path: Path) -> None:
    with program(tmp_path, "invoke", "quotes", "2", MIA) as running:
        heard(running, "answered")
    with program(tmp_path, "async", "quotes", "2", "Hello!") as running:
        heard(running, "answered")
        learns(tmp_path, MIA)


def test_a_process_killed_while_it_learned_leaves_the_work_to_the_next_one(tmp_path: Path) -> None:
    with program(tmp_path, "lead", "hang", "0", MIA) as running:
        heard(running, "extracting")
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


def test_a_short_script_learns_by_its_model_at_its_end(tmp_path: Path) -> None:
    """At the end of a process nothing may need a pool of threads any more."""
    with program(tmp_path, "invoke:end", "model", LONG, "I prefer Emacs.") as running:
        assert running.wait(60) == 0
    assert learned(tmp_path) == ["User prefers Emacs"]


def test_an_extractor_that_hangs_keeps_no_process_and_loses_nothing(tmp_path: Path) -> None:
    with program(tmp_path, "stream:end", "hang", "0", MIA) as running:
        heard(running, "extracting")
        assert running.wait(60) == 0
    with program(tmp_path, "invoke:end", "quotes", LONG, RAVI) as running:
        assert running.wait(60) == 0
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
        os._exit(not memory.document().facts)
    assert os.waitpid(child, 0)[1] == 0
print("learned by all children", flush=True)
"""


def test_children_made_by_fork_have_a_worker_of_their_own_and_hang_on_no_lock_of_the_parent(tmp_path: Path) -> None:
    """As the servers do it that load a program once and fork, here in the middle of learning."""
    names = ("Mia", "Ravi", "Ines", "Otto", "Lena", "Tom", "Anna", "Zoe")
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path), *names]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert "learned by all children" in done.stdout, done.stderr
    assert sorted(learned(tmp_path)) == sorted(f"I {how} somebody called {name}." for how in ("know", "taught") for name in names)
