"""What the runner works with: the store, the agents, the memory, the accounts, and how a stage is prepared with them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.clock import Clock
from holdfast.errors import StorageError
from holdfast.events import Bus
from holdfast.session.output import StageOutput
from holdfast.session.secrecy import clean_text
from holdfast.session.state import Session, SessionError
from holdfast.session.store import SessionStore
from holdfast.tokens.accounts import Accounts
from holdfast.workflow import events, transitions
from holdfast.workflow.agent import StageAgent, StageRequest, StageResult
from holdfast.workflow.agent_registry import Agents, find_agent
from holdfast.workflow.definition import Stage, Workflow
from holdfast.workflow.raw_access import SessionRaw
from holdfast.workflow.retry_policy import Tries
from holdfast.workflow.run_settings import RunSettings
from holdfast.workflow.scheduling import given_stages
from holdfast.workflow.stage_context import ContextBuilder, Material, StageContext, context_markdown, output_markdown
from holdfast.workflow.timed_executor import Attempt

if TYPE_CHECKING:
    from holdfast.knowledge.store import KnowledgeStore


@dataclass
class Work:
    """One stage while it is worked on."""

    stage: Stage
    agent: StageAgent
    began: float
    tries: Tries
    note: str | None = None
    number: int = 0
    attempt: Attempt = field(default_factory=lambda: Attempt(""))
    context: StageContext | None = None
    raw: SessionRaw | None = None
    folder: Path | None = None
    grown: tuple[Workflow, tuple[Stage, ...]] | None = None

    def again(self, tries: Tries, note: str | None) -> None:
        self.tries, self.note = tries, note

    def failure(self) -> StorageError | None:
        """The write that failed under the agent's hands."""
        return self.raw.failure if self.raw is not None else None

    def give_up(self) -> None:
        self.attempt.stop.set()
        if self.raw is not None:
            self.raw.give_up()


@dataclass
class Bench:
    """Everything that a run needs, made by `launching.py`."""

    store: SessionStore
    settings: RunSettings
    contexts: ContextBuilder
    accounts: Accounts
    clock: Clock
    bus: Bus
    folder: Callable[[str, str], Path]
    """Where the agent of a stage may write: of a session's id and the stage's numbered name."""
    agents: Agents | None = None
    knowledge: KnowledgeStore | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    session_id: str = ""
    run_id: str = "run"
    _found: dict[str, StageAgent] = field(default_factory=dict)

    @property
    def interval(self) -> int:
        """A recovery point is written after this many stages."""
        return self.settings.checkpoint_interval or 1

    def remembers(self, workflow: Workflow) -> bool:
        """Whether this session looks up and keeps long-term memory: short ones may not (W9)."""
        short = self.settings.short_max_stages
        return self.knowledge is not None and not (short is not None and len(workflow.stages) - len(workflow.added_by) <= short)

    def stopped(self) -> bool:
        """Whether somebody said stop: this process, or another one through the store."""
        return self.stop.is_set() or self.store.cancel_requested(self.session_id)

    def check_limits(self, session: Session) -> None:
        self.accounts.check(session=session.workflow_id, run=self.run_id)

    def usage(self) -> dict[str, Any]:
        """The accounts as the session file keeps them."""
        kept = self.accounts.snapshot()
        return kept if kept["entries"] else {}

    def work_on(self, workflow: Workflow, session: Session, name: str) -> Work:
        """A stage that begins."""
        stage = workflow.by_name[name]
        agent = self._found.get(stage.agent_type)
        if agent is None:
            agent = self._found[stage.agent_type] = find_agent(stage, self.agents, file=workflow.file)
        last: Mapping[str, Any] = next(iter(reversed(transitions.record_of(session, name).errors)), {})
        note = f"A person did not accept your last answer: {last.get('message')}" if last.get("kind") == "rejected" else None
        return Work(stage, agent, self.clock.monotonic(), Tries.of(stage), note, workflow.order[name] + 1)

    def request(self, workflow: Workflow, session: Session, work: Work) -> StageRequest:
        """What the agent is given for its next attempt."""
        stage = work.stage
        context = work.context = self.contexts.build(self._material(workflow, session, work))
        if context.evicted:
            names = tuple(str(one["name"]) for one in context.evicted)
            limit = self.contexts.max_tokens or 0
            self.bus.emit(events.ContextEvicted(session=session.workflow_id, stage=stage.name, evicted=names, limit=limit))
        work.attempt = Attempt(stage.name)
        work.raw = SessionRaw(self.store, session.workflow_id)
        work.folder = self.folder(session.workflow_id, f"{work.number:02d}-{stage.name}")
        return StageRequest(
            session_id=session.workflow_id,
            stage=stage,
            task=session.task,
            system_prompt=stage.system_prompt,
            prompt=context.prompt,
            given=context.given,
            provisional=frozenset(
                output.stage_name for output in context.given if transitions.record_of(session, output.stage_name).provisional
            ),
            retrieved=context.retrieved,
            feedback=work.note,
            attempt=transitions.record_of(session, stage.name).attempts + 1,
            raw=work.raw,
            knowledge=self.knowledge,
            folder=work.folder,
            home=Path(workflow.file).parent if workflow.file else None,
            budget=self.contexts.max_tokens,
            model=stage.model or self.settings.model,
            parameters=self.parameters,
            cancelled=work.attempt.stop.is_set,
            emit=lambda line: self.bus.emit(events.StageSaid(session=session.workflow_id, stage=stage.name, line=str(line))),
            charge=lambda usage, model: self._charge(usage, model, stage.name),
        )

    def _material(self, workflow: Workflow, session: Session, work: Work) -> Material:
        names = given_stages(workflow, session, work.stage.name)
        records = session.stages
        skipped = [name for name in records if records[name].status == "skipped"]
        return Material(
            stage=work.stage.name,
            system_prompt=work.stage.system_prompt,
            task=session.task,
            parameters=self.parameters,
            outputs=tuple(session.stage_outputs[name] for name in names),
            named=frozenset(work.stage.inputs or ()),
            provisional=frozenset(name for name in names if name in records and records[name].provisional),
            skipped=tuple(name for name in skipped if name in workflow.order and workflow.order[name] < work.number),
            retrieved=session.retrieved,
            note=work.note,
        )

    def _charge(self, usage: object, model: str, stage: str) -> None:
        self.accounts.charge(usage, model=model or "unknown", session=self.session_id, run=self.run_id, stage=stage)
        self.accounts.check(session=self.session_id, run=self.run_id)

    def charged(self, session: Session, work: Work, result: StageResult | None) -> Session:
        """The session with what the stage has used so far in its record."""
        name = work.stage.name
        if result is not None and result.usage is not None:
            model = result.model or work.stage.model or self.settings.model or "unknown"
            self.accounts.charge(result.usage, model=model, session=self.session_id, run=self.run_id, stage=name)
        model_name = (result.model if result is not None else None) or transitions.record_of(session, name).model
        spent = self.accounts.total(session=self.session_id, stage=name)
        if not spent.calls:
            return session if model_name is None else transitions.with_record(session, name, model=model_name)
        cost = float(spent.total_cost) if spent.total_cost is not None else None
        return transitions.with_record(session, name, tokens=spent.tokens, cost=cost, model=model_name)

    def write_files(
        self,
        workflow: Workflow,
        session: Session,
        work: Work,
        output: StageOutput | None,
        *,
        provisional: bool = False,
        error: SessionError | None = None,
    ) -> None:
        """Keep what the stage was given and what it wrote as Markdown (W7), before the stage counts as done."""
        context = work.context
        given = context_markdown(work.stage.system_prompt, context.prompt, context.evicted) if context is not None else None
        wrote = output_markdown(output, provisional=provisional) if output is not None else None
        if error is not None:
            wrote = f"{wrote or ''}# Failed ({error.kind})\n\n{clean_text(error.message)}\n"
        self.store.write_stage_files(session.workflow_id, work.number, work.stage.name, context=given, output=wrote)
        if work.folder is not None:
            with suppress(OSError):
                work.folder.rmdir()  # most agents write no files; an empty folder for each would only be in the way

    def completion(
        self, workflow: Workflow, session: Session, work: Work, output: StageOutput, seconds: float
    ) -> list[events.WorkflowEvent]:
        """What is to be said about a stage that has its output."""
        name = work.stage.name
        told: list[events.WorkflowEvent] = [
            events.StageCompleted(
                session=session.workflow_id,
                stage=name,
                number=workflow.order[name] + 1,
                stages=len(workflow.stages),
                seconds=round(seconds, 3),
                tokens=transitions.record_of(session, name).tokens or 0,
                confidence=output.confidence,
            )
        ]
        return [*told, events.StageWaiting(session=session.workflow_id, stage=name)] if work.stage.approve else told
