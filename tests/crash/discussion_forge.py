"""A process that runs a workflow with a discussion in children that can be killed; see `workflow_forge.py`.

The model notes each call in `BASE/asked` before it answers: the child's number, who is asked, and how many turns it was shown.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from tests.crash.workflow_forge import main
from tests.integration.panel_models import conclusion, said, speaker

from holdfast.agents.stages.stage_agents import stage_agents
from holdfast.config.loading import config_from_values
from holdfast.errors import HoldfastError, InputError
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import Request, structured
from holdfast.tokens.counter import open_counter
from holdfast.workflow.launcher import resume, run_workflow
from holdfast.workflow.run_settings import file_sessions

ID = "the-session"
NAMES = ("Optimist", "Sceptic", "Accountant")
TURNS = 8
WORKFLOW: dict[str, Any] = {
    "id": "killed",
    "task": "Survive.",
    "stages": [
        {
            "name": "panel",
            "agent_type": "discussion",
            "participants": [{"name": name, "prompt": f"You are the {name}."} for name in NAMES],
            "max_turns": TURNS,
        }
    ],
}


def child(command: str, base: Path, number: str) -> int:
    def answer(request: Request) -> Any:
        handle = os.open(base / "asked", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, f"{number} {speaker(request)} {said(request)}\n".encode())
        os.close(handle)
        time.sleep(0.002)
        return structured(conclusion("panel")) if speaker(request) == "output" else f"{speaker(request)} says {said(request) + 1}."

    config = config_from_values({}, environ={"HOLDFAST_HOME": str(base)})
    parts: Any = {"store": file_sessions(base / "sessions"), "agents": stage_agents(config, model=ScriptedModel(answer)), "config": config}
    try:
        try:
            session = resume(ID, **parts) if command == "resume" else run_workflow(WORKFLOW, session_id=ID, **parts)
        except InputError:  # it was killed before anything was kept of it
            session = run_workflow(WORKFLOW, session_id=ID, **parts)
    except HoldfastError as error:
        (base / f"error-{number}").write_text(f"{type(error).__name__}: {error}", "utf-8")
        return error.exit_code
    return 0 if session.status == "completed" else 99


if __name__ == "__main__":
    # What is loaded when it is first used, a child finds in memory.
    open_counter("exact").count_text("words")
    stage_agents(config_from_values({}), model=ScriptedModel([]))
    main(child)
