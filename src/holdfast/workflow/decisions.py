"""What a person does to a session, for Python programs: agree, refuse, correct, and begin another from it (W4, W5, W14).

    session = run_workflow("research.yaml", agents=agents)     # paused: a stage waits
    approve(session.workflow_id)
    session = resume(session.workflow_id, agents=agents)

They find the session as `resume` does, and take the same keywords. The work is done by `control`, which the command line and the server
use as well. Nothing runs here: it is `resume` that goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Unpack

from holdfast.errors import InputError
from holdfast.session.state import Session
from holdfast.validation import kind_of, spelled_out
from holdfast.workflow import control
from holdfast.workflow.launcher import Launcher, RunParts


@spelled_out(RunParts)
def approve(session_id: str, stage: str | None = None, **parts: Unpack[RunParts]) -> Session:
    """Agree with the output of a stage that waits, or with the call that it wants to make; without a name, of the only one that waits.

    It is on disk then, and `resume` goes on from there. InTheWay if nothing waits. The keywords with `<default>` are those of `resume`.
    """
    launcher = Launcher(**parts)
    with launcher.sessions() as store:
        return control.approve(store, session_id, stage, bus=launcher.bus)


@spelled_out(RunParts)
def reject(session_id: str, stage: str | None = None, *, why: str, **parts: Unpack[RunParts]) -> Session:
    """Refuse the output of a stage that waits, or the call that it wants to make, and say why: its agent is told when `resume` runs it
    again. The keywords with `<default>` are those of `resume`."""
    launcher = Launcher(**parts)
    with launcher.sessions() as store:
        return control.reject(store, session_id, stage, why=why, clock=launcher.clock, bus=launcher.bus)


@spelled_out(RunParts)
def fix(session_id: str, stage: str, output: Mapping[str, Any] | str, **parts: Unpack[RunParts]) -> Session:
    """Put a corrected output, a mapping or the same as JSON, in place of what a stage wrote. OutputInvalid if it does not fit the contract.

    A stage that halted goes on with it at `resume`; one whose output waits for a person still waits; stages that have read another one
    are to be run again. The keywords with `<default>` are those of `resume`.
    """
    launcher = Launcher(**parts)
    with launcher.sessions() as store:
        return control.fix(store, session_id, stage, output_text(output), bus=launcher.bus)


@spelled_out(RunParts)
def fork(session_id: str, new_id: str | None = None, *, checkpoint: str | None = None, **parts: Unpack[RunParts]) -> Session:
    """A new session from the state of another, or from a recovery point of it; `resume` goes on with it, the old one stays as it is.

    Without a name it is called `ID-fork-001` and so on. The keywords with `<default>` are those of `resume`.
    """
    with Launcher(**parts).sessions() as store:
        return control.fork(store, session_id, new_id, checkpoint=checkpoint)


def output_text(output: Mapping[str, Any] | str) -> str:
    """An output that a program gives, as JSON. InputError if it is none."""
    if isinstance(output, str):
        return output
    try:
        return json.dumps(dict(output), allow_nan=False)
    except (TypeError, ValueError) as error:
        hint = "Give a mapping such as {'summary': '...', 'key_findings': [], 'confidence': 'high'}, or the same as JSON."
        raise InputError(f"{kind_of(output)} is no output of a stage: {error}.", hint=hint) from None
