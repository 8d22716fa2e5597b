"""What the tests of the extraction agents share: a desk that gives an agent a real request, with a real session store behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.knowledge.store import KnowledgeStore
from holdfast.session.output import StageOutput, parse_output
from holdfast.session.state import Session
from holdfast.workflow.agent import StageAgent, StageRequest, as_result
from holdfast.workflow.definition import Stage
from holdfast.workflow.run_settings import file_sessions
from holdfast.workflow.stage_request import SessionRaw

PUMPS = Path(__file__).parent / "heat_pumps"


class Desk:
    """Runs agents one after the other on one session; each output must pass the contract, and goes on to the next."""

    def __init__(self, folder: Path, task: str) -> None:
        self.folder = folder / "files"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.task = task
        self.store = file_sessions(folder / "sessions")
        self.store.create(Session("s1", task=task))
        self.raw = SessionRaw(self.store, "s1")
        self.given: tuple[StageOutput, ...] = ()
        self.said: list[str] = []

    def run(
        self,
        agent: StageAgent,
        name: str = "stage",
        *,
        settings: Mapping[str, Any] | None = None,
        given: Sequence[StageOutput] | None = None,
        retrieved: Sequence[Mapping[str, Any]] = (),
        knowledge: KnowledgeStore | None = None,
        system_prompt: str = "",
        cancelled: Callable[[], bool] = lambda: False,
    ) -> StageOutput:
        request = StageRequest(
            session_id="s1",
            stage=Stage(name, settings=settings or {}, line=7),
            task=self.task,
            system_prompt=system_prompt,
            prompt=self.task,
            given=tuple(self.given if given is None else given),
            retrieved=tuple(retrieved),
            raw=self.raw,
            knowledge=knowledge,
            folder=self.folder,
            cancelled=cancelled,
            emit=self.said.append,
        )
        output = parse_output(as_result(agent.run(request)).output, stage=name)
        self.given = (*self.given, output)
        return output


def write_corpus(folder: Path, documents: Mapping[str, str]) -> Path:
    """A folder with these documents."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in documents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
