"""Agents for tests that run the program itself: named in workflow files as `tests.integration.workflow_agents:NAME`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from holdfast.workflow.agent import StageRequest

BASE = Path(os.environ.get("AGENTS_BASE", "."))


def quick(request: StageRequest) -> dict[str, Any]:
    """Says at once that it is done, and notes that it ran."""
    with (BASE / "executions").open("a") as file:
        file.write(f"{request.stage.name}\n")
    return {"summary": f"{request.stage.name} is done", "key_findings": [], "confidence": "high"}


def endless(request: StageRequest) -> dict[str, Any]:
    """Works until there is a file `go`, and looks at nothing else."""
    quick(request)
    while not (BASE / "go").exists():
        time.sleep(0.01)
    return quick(request)


def malformed(request: StageRequest) -> dict[str, Any]:
    """Forgets the confidence as long as there is no file `go`."""
    return quick(request) if (BASE / "go").exists() else {"summary": "Half of it", "key_findings": []}


def filling(request: StageRequest) -> dict[str, Any]:
    """Fills the disk to its last byte, once, and returns more than the room that a running session's log has behind its end."""
    sign = BASE / "filled"
    if not sign.exists():
        sign.touch()
        with (BASE / "stuffing").open("wb", 0) as file:
            try:
                while file.write(b"s" * 4096) == 4096:
                    pass
            except OSError:
                pass
    return {"summary": "The disk is full now", "key_findings": [], "confidence": "high", "data": {"large": "x" * 300_000}}


def forbidding(request: StageRequest) -> dict[str, Any]:
    """Takes away the right to write the session's file, once."""
    sign = BASE / "forbidden"
    if not sign.exists():
        sign.touch()
        (BASE / ".holdfast" / "sessions").chmod(0o500)
    return {"summary": "Nobody may write now", "key_findings": [], "confidence": "high"}
