"""A pipe or a device where a file is expected is named, and never waited for: whatever is imported, run or taken over (K1, W1, C1, M14)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

MAIN = [sys.executable, "-m", "holdfast.app.main"]
PATIENCE = 60  # seconds: a wait without end is what fails here


def command(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command with a base directory and a working directory of its own."""
    environ = {**os.environ, "HOLDFAST_HOME": str(home / "base")}
    return subprocess.run([*MAIN, *words], capture_output=True, text=True, env=environ, cwd=home, timeout=PATIENCE, check=False)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "ok.md").write_text("# x\n\nThe depot is in Bern.\n")
    for name in ("p.md", "p.jsonl", "p.json.gz"):
        os.mkfifo(tmp_path / "docs" / name)
    return tmp_path / "docs" / "p.md"


def test_an_import_names_pipes_and_takes_in_the_rest(tmp_path: Path, pipe: Path) -> None:
    """K1: of the folder, and of one that is named by itself."""
    done = command(tmp_path, "knowledge", "import", "docs")
    assert done.returncode == 1, done.stderr
    said = done.stdout + done.stderr
    assert all(f"{name} cannot be read: it is not a regular file" in " ".join(said.split()) for name in ("p.md", "p.jsonl", "p.json.gz"))
    assert "depot" in command(tmp_path, "knowledge", "search", "depot").stdout
    assert "not a regular file" in command(tmp_path, "knowledge", "import", str(pipe)).stdout


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("schedule", "add", "morning", "0 7 * * 1-5"),
        ("memory", "import"),
        ("eval", "recall", "--data"),
        ("config", "check", "--config"),
    ],
    ids=" ".join,
)
def test_no_command_waits_for_a_pipe(tmp_path: Path, pipe: Path, words: tuple[str, ...]) -> None:
    """W1, C1: what is wrong is said at once."""
    done = command(tmp_path, *words, str(pipe))
    assert done.returncode in (1, 2, 3), (done.returncode, done.stderr)
    assert "not a regular file" in done.stderr or words[0] == "schedule"  # which asks for a queue first


WAITING = """
import os, sys, time
from holdfast.workflow import launcher
def slow(self, *args, **more):
    print("reading", flush=True)
    while True:
        time.sleep(0.05)
launcher.Launcher.run = slow
from holdfast.app.main import main
sys.argv = ["holdfast", "run", "w.yaml"]
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_before_a_session_begins_the_first_signal_ends_the_command(tmp_path: Path, number: signal.Signals) -> None:
    """W19: there is nothing yet that could be stopped cleanly."""
    environ = {**os.environ, "HOLDFAST_HOME": str(tmp_path / "base")}
    with subprocess.Popen([sys.executable, "-c", WAITING], stdout=subprocess.PIPE, env=environ, cwd=tmp_path) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"reading\n"
        running.send_signal(number)
        assert running.wait(PATIENCE) == 130
