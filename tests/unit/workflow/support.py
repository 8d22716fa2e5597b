"""What the tests of workflows share: agents that say what they are told, and that note what they were given."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.session.state import Session
from holdfast.testing.clock import FakeClock
from holdfast.workflow.agent import StageRequest, StageResult
from holdfast.workflow.launcher import resume, run_workflow
from holdfast.workflow.run_settings import file_sessions

Answer = Mapping[str, Any] | str | BaseException | Callable[[StageRequest], object]


def output(stage: str, **changes: Any) -> dict[str, Any]:
    """A good output of a stage."""
    return {
        "stage_name": stage,
        "summary": f"{stage} is done",
        "key_findings": [{"fact": f"{stage} found something", "source": f"doc-{stage}"}],
        "confidence": "high",
        **changes,
    }


class Agent:
    """Answers from a script by stage, else with a good output. `requests` has what it was given, in the order of asking."""

    def __init__(self, script: Mapping[str, list[Answer]] | None = None) -> None:
        self.script = {stage: list(answers) for stage, answers in (script or {}).items()}
        self.requests: list[StageRequest] = []
        self._lock = threading.Lock()

    def run(self, request: StageRequest) -> StageResult:
        answer = self._answer(request)
        return answer if isinstance(answer, StageResult) else StageResult(output=answer)

    def _answer(self, request: StageRequest) -> object:
        with self._lock:
            self.requests.append(request)
            waiting = self.script.get(request.stage.name)
            answer: Answer = waiting.pop(0) if waiting else output(request.stage.name)
        if isinstance(answer, BaseException):
            raise answer
        return answer(request) if callable(answer) else answer

    @property
    def ran(self) -> list[str]:
        return [request.stage.name for request in self.requests]

    def prompts(self, stage: str) -> list[str]:
        return [f"{request.system_prompt}\n{request.prompt}" for request in self.requests if request.stage.name == stage]


def linear(*names: str, **common: Any) -> dict[str, Any]:
    """A workflow of stages one after the other."""
    return {"id": "demo", "task": "Find out.", "stages": [{"name": name, "agent_type": "x", **common} for name in names]}


class Place:
    """A folder with sessions, and the agent that runs them. Time does not pass by itself there."""

    def __init__(self, folder: Path, agent: Agent | None = None) -> None:
        self.clock = FakeClock()
        self.agent = agent or Agent()
        self.folder = folder
        self.store = file_sessions(folder / "sessions")

    def run(self, workflow: Any, **settings: Any) -> Session:
        parts = {"store": self.store, "agents": {"x": self.agent}, "config": {}, "clock": self.clock, "session_id": "s1", **settings}
        return run_workflow(workflow, **parts)

    def resume(self, session_id: str = "s1", **settings: Any) -> Session:
        parts = {"store": self.store, "agents": {"x": self.agent}, "config": {}, "clock": self.clock, **settings}
        return resume(session_id, **parts)

    def taking(self, seconds: float) -> Callable[[StageRequest], object]:
        """An answer that takes so long."""

        def answer(request: StageRequest) -> object:
            self.clock.advance(seconds)
            return output(request.stage.name)

        return answer

    @property
    def file(self) -> Path:
        return self.folder / "sessions" / "s1.json"


def saved(place: Place) -> dict[str, Any]:
    """The session file as it is on disk."""
    found: dict[str, Any] = json.loads(place.file.read_text("utf-8"))
    return found
