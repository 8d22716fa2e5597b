"""Running a stage's code in the sandbox of its session, with or without a model that wrote it (W12)."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from holdfast.durable.replace import replace_text
from holdfast.errors import SandboxError
from holdfast.offline.coder import Ran, RunCode
from holdfast.sandbox.commands import Cancel, Sandbox
from holdfast.workflow.agent import StageRequest

PROGRAMS = {"python": ("program.py", "python3 program.py"), "bash": ("program.sh", "bash program.sh")}
"""For each language the file that code is written to, and the command that runs it."""


def run_code(open_sandbox: Callable[[str], Sandbox]) -> RunCode:
    """A way to run given code, for the coder that works without a model."""

    def run(code: str, *, language: str, folder: Path, request: StageRequest) -> Ran:
        if language not in PROGRAMS:
            raise SandboxError(f"code in {language!r} cannot be run.", hint=f"Use {' or '.join(PROGRAMS)}.")
        name, command = PROGRAMS[language]
        replace_text(folder / name, code)
        with closing(open_sandbox(sandbox_thread(request))) as sandbox, stopping(request) as cancel:
            sandbox.files.write(name, code)
            ran = sandbox.run(command, cancel=cancel)
        failed = ran.exit_code if ran.exit_code is not None else 1
        return Ran(failed, ran.text, timed_out=ran.ending == "timed_out")

    return run


def sandbox_thread(request: StageRequest) -> str:
    """The name of the thread whose folders the code of a session sees. Long session ids are shortened, and stay apart."""
    name = f"session-{request.session_id}"
    return name if len(name) <= 64 else f"{name[:51]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


@contextmanager
def stopping(request: StageRequest) -> Iterator[Cancel]:
    """A way to stop a command that is used as soon as the run is to stop."""
    cancel, done = Cancel(), threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            if request.cancelled():
                cancel.set()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield cancel
    finally:
        done.set()
        watcher.join()
