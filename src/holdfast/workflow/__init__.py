"""Running stages one after the other so that a kill at any moment loses nothing.

May import the layers below it (`context`, `memory`, `knowledge`, `session`) and what is below them.
Start with `agent.py`, the seam; then `planning.py`, what comes next as a pure function, and `runner.py`, the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazily import exports

if TYPE_CHECKING:
    from holdfast.workflow.agent import RawAccess, StageAgent, StageRequest, StageResult
    from holdfast.workflow.approval import approve, reject
    from holdfast.workflow.cancelling import cancel
    from holdfast.workflow.definition import Stage, Workflow, load_workflow, parse_workflow
    from holdfast.workflow.endings import failure_of, result_of
    from holdfast.workflow.launching import Launcher, resume, run_workflow

__all__ = [
    "Launcher",
    "RawAccess",
    "Stage",
    "StageAgent",
    "StageRequest",
    "StageResult",
    "Workflow",
    "approve",
    "cancel",
    "failure_of",
    "load_workflow",
    "parse_workflow",
    "reject",
    "result_of",
    "resume",
    "run_workflow",
]

_WHERE = {
    "agent": ("RawAccess", "StageAgent", "StageRequest", "StageResult"),
    "approval": ("approve", "reject"),
    "cancelling": ("cancel",),
    "definition": ("Stage", "Workflow", "load_workflow", "parse_workflow"),
    "endings": ("failure_of", "result_of"),
    "launching": ("Launcher", "resume", "run_workflow"),
}
__getattr__, __dir__ = exports(__name__, _WHERE)
