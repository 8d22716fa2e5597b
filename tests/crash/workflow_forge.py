"""A process that runs a ten-stage workflow in children made by fork, one for each line on standard input, so that they can be killed.

`run BASE` and `resume BASE` (which runs what was never kept) start a child and answer `pid N`; when it has ended, `exit CODE` (the
negative number of a signal). The agents note every execution in `BASE/executions`: the child's number, the stage, and whether it begins
or ends.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, InputError
from holdfast.session.state import Session
from holdfast.session.store import SessionStore
from holdfast.workflow.agent import StageRequest
from holdfast.workflow.launcher import resume, run_workflow
from holdfast.workflow.run_settings import file_sessions

NAMES = tuple(f"stage_{number:02d}" for number in range(10))
WORKFLOW: dict[str, Any] = {
    "id": "killed",
    "task": "Survive.",
    "stages": [{"name": name, "agent_type": "x"} for name in NAMES],
}
ID = "the-session"


class Worker:
    """The agent of all stages: a few milliseconds of work, raw data, and a result that depends on what it was given."""

    def __init__(self, base: Path, child: str) -> None:
        self._base = base
        self._child = child

    def __call__(self, request: StageRequest) -> dict[str, Any]:
        self._note(request.stage.name, "begins")
        ref = request.raw.put(f"page of {request.stage.name}\n" * 40, source="page")
        time.sleep(0.002)
        given = ",".join(output.stage_name for output in request.given)
        self._note(request.stage.name, "ends")
        return {
            "summary": f"{request.stage.name} after [{given}]",
            "key_findings": [{"fact": f"{request.stage.name} was here", "source": ref}],
            "confidence": "high",
            "raw_data_refs": [ref],
        }

    def _note(self, stage: str, what: str) -> None:
        handle = os.open(self._base / "executions", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, f"{self._child} {stage} {what}\n".encode())
        os.close(handle)


def _gone_on(store: SessionStore, agents: dict[str, Any]) -> Session | None:
    try:
        return resume(ID, store=store, agents=agents, config={})
    except InputError:  # it was killed before anything was kept of it
        return None


def child(command: str, base: Path, number: str) -> int:
    """What a child does. Its exit code is that of the error, if there is one."""
    store = file_sessions(base / "sessions")
    agents = {"x": Worker(base, number)}
    try:
        session = _gone_on(store, agents) if command == "resume" else None
        if session is None:
            session = run_workflow(WORKFLOW, store=store, agents=agents, config={}, session_id=ID)
    except HoldfastError as error:
        (base / f"error-{number}").write_text(f"{type(error).__name__}: {error}", "utf-8")
        return error.exit_code
    return 0 if session.status == "completed" else 99


def main(child: Callable[[str, Path, str], int]) -> None:
    """Do what standard input says, each line in a child."""
    for number, line in enumerate(sys.stdin):
        command, _, base = line.strip().partition(" ")
        pid = os.fork()
        if pid == 0:
            code = 98
            try:
                code = child(command, Path(base), str(number))
            except BaseException:  # noqa: BLE001 - the child must end here, whatever happened, and say what
                traceback.print_exc()
            os._exit(code)
        print(f"pid {pid}", flush=True)
        _, status = os.waitpid(pid, 0)
        print(f"exit {os.waitstatus_to_exitcode(status)}", flush=True)


if __name__ == "__main__":
    main(child)
