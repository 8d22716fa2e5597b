"""What an attempt at a stage is given (`RequestBuilder`), what it keeps as raw data (`SessionRaw`), and what it uses (`RunUsage`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import Cancelled, InputError, StorageError
from holdfast.events import Bus
from holdfast.redaction import redact_text
from holdfast.session.output import output_json
from holdfast.session.state import Session
from holdfast.session.store import SessionStore
from holdfast.session.stored import RawData
from holdfast.storage.backend import Append
from holdfast.tokens.accounts import Accounts
from holdfast.workflow import events, transitions
from holdfast.workflow.agent import Agents, RawAccess, StageAgent, StageJournal, StageRequest, StageResult, find_agent
from holdfast.workflow.definition import Stage, Workflow
from holdfast.workflow.outage import outlasted
from holdfast.workflow.stage_context import ContextBuilder, Material, StageContext
from holdfast.workflow.timed_executor import Attempt
from holdfast.workflow.transitions import Tries, given_stages, skipped_stages

if TYPE_CHECKING:
    from holdfast.knowledge.store import KnowledgeStore

T = TypeVar("T")


_TEXT_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}", re.ASCII)
_REF = re.compile(r"raw:(?:sha256-)?[0-9a-f]{4,64}", re.ASCII)


def raw_refs(value: object) -> Iterator[str]:
    """The raw references in an output or in settings: texts that are one as a whole, not those that only speak of one."""
    if isinstance(value, str):
        if _REF.fullmatch(value) is not None:
            yield value
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from raw_refs(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from raw_refs(member)


_IS_PROVISIONAL = attrgetter("provisional")


def _provisional(session: Session) -> frozenset[str]:
    """The stages whose results are of low confidence."""
    return frozenset(compress(session.stages, map(_IS_PROVISIONAL, session.stages.values())))


class SessionRaw(RawAccess):
    """Reads and keeps raw data in the session's store, for one attempt (W10).

    What can be read is what the stage was given references to, and what it keeps itself: never another stage's raw results (W7).
    An attempt that was given up (cancelled, timed out) can keep nothing more. A write that failed is remembered, because it stops the
    run even where the agent swallowed it (W15).
    """

    def __init__(
        self,
        store: SessionStore,
        session: str,
        given: Callable[[], Iterable[str]] = tuple,
        given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._clock = store.clock
        self._session = session
        self._references = given
        self._own: set[str] = set()
        self._given_up = given_up
        self.failure: StorageError | None = None

    def put(self, data: bytes | str, *, source: str | None = None, media_type: str | None = None) -> str:
        if self._given_up():
            raise Cancelled("this attempt at the stage was given up; nothing more is kept of it.", session=self._session)
        kind = media_type or ("text/plain" if isinstance(data, str) else "application/octet-stream")
        content = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
        try:
            ref = self._outlasted(lambda: self._store.raw_put(self._session, content, media_type=kind, source=source))
        except StorageError as error:
            self.failure = error
            raise
        self._own.add(ref)
        return ref

    def get(self, ref: str) -> bytes:
        return self._read(ref).data

    def text(self, ref: str) -> str:
        return self._read(ref).text()

    @cached_property
    def _given(self) -> tuple[str, ...]:
        """The references that may be read. Looked for when something is read: most stages read nothing."""
        return tuple(f"raw:sha256-{ref.removeprefix('raw:').removeprefix('sha256-')}" for ref in self._references())

    def _outlasted(self, work: Callable[[], T]) -> T:
        return outlasted(work, self._clock, is_over=self._given_up)

    def _read(self, ref: str) -> RawData:
        full = self._outlasted(lambda: self._store.raw(self._session).find(ref))
        if full not in self._own and not full.startswith(self._given):
            raise InputError(
                f"this stage was not given the raw data {ref[:100]!r}.", hint="Name the stage that keeps it under `inputs` or `needs`."
            )
        return self._outlasted(lambda: self._store.raw_get(self._session, full))


class SessionJournal(StageJournal):
    """A stage's own log in the session's store, for one attempt: whoever runs the stage next, on whatever machine, can read it."""

    def __init__(self, store: SessionStore, session: str, stage: str, given_up: Callable[[], bool]) -> None:
        self._backend = store.backend
        self._clock = store.clock
        self._session = session
        self._key = f"{store.prefix}/{session}/journal/{stage}.jsonl"
        self._given_up = given_up

    def read(self) -> tuple[Mapping[str, Any], ...]:
        return outlasted(lambda: self._backend.read(self._key).records, self._clock, is_over=self._given_up)

    def append(self, record: Mapping[str, Any]) -> None:
        if self._given_up():
            raise Cancelled("this attempt at the stage was given up; nothing more is kept of it.", session=self._session)
        outlasted(lambda: self._backend.write(Append(self._key, [record])), self._clock, is_over=self._given_up)


@dataclass
class RunUsage:
    """What a run uses, charged to its session, run and stages, and held to their limits (T5). Safe for many threads."""

    accounts: Accounts
    session: str
    run: str

    def check(self) -> None:
        """Raises LimitExceeded when nothing is left."""
        self.accounts.check(session=self.session, run=self.run)

    def charge(self, usage: object, model: str, stage: str, who: str | None = None) -> None:
        self.accounts.charge(usage, model=model or "unknown", session=self.session, run=self.run, stage=stage, subagent=who)

    def snapshot(self) -> dict[str, Any]:
        """All accounts as plain values, in the form in which the session file keeps them."""
        kept = self.accounts.snapshot()
        return kept if kept["entries"] else {}

    def recorded(self, session: Session, stage: Stage, result: StageResult | None, model: str | None) -> Session:
        """The session with what the stage has used so far in its record, the result's own usage included."""
        if result is not None and result.usage is not None:
            self.charge(result.usage, result.model or stage.model or model or "", stage.name)
        used_model = (result.model if result is not None else None) or transitions.record_of(session, stage.name).model
        spent = self.accounts.total(session=self.session, stage=stage.name)
        if not spent.calls:
            return session if used_model is None else transitions.with_record(session, stage.name, model=used_model)
        cost = float(spent.total_cost) if spent.total_cost is not None else None
        return transitions.with_record(session, stage.name, tokens=spent.tokens, cost=cost, model=used_model)


@dataclass
class StageRun:
    """One stage while it is worked on: its agent, what it may still try, and its newest attempt."""

    stage: Stage
    agent: StageAgent
    number: int
    began: float
    tries: Tries
    note: str | None = None
    """Why the agent is asked again."""
    attempt: Attempt = field(default_factory=lambda: Attempt(""))
    context: StageContext | None = None
    raw: SessionRaw | None = None
    folder: Path | None = None
    """Where the agent writes files, once it asked for that."""
    texts: dict[str, str] = field(default_factory=dict)
    """What the agent wrote for people, beside what it was given and its output."""
    raised: BaseException | None = None
    """What the newest attempt raised."""

    def failed_write(self) -> StorageError | None:
        """The write that failed under the agent's hands."""
        return self.raw.failure if self.raw is not None else None

    def show(self, name: str, text: str) -> None:
        """Keep a text for people, by the name of its file without the ending."""
        if _TEXT_NAME.fullmatch(name) is None or name in ("context", "output"):
            raise InputError(f"{name!r} cannot be the name of a stage's text.", hint="Use lower-case letters, digits and hyphens.")
        self.texts[name] = text

    def give_up(self) -> None:
        self.attempt.given_up = True


@dataclass
class RequestBuilder:
    """Finds the agent of a stage and builds what it is given. One for each run."""

    store: SessionStore
    contexts: ContextBuilder
    usage: RunUsage
    bus: Bus
    folder: Callable[[str, str], Path]
    """Where the agent of a stage may write: of a session's id and the stage's numbered name."""
    agents: Agents | None = None
    knowledge: KnowledgeStore | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    found: dict[str, StageAgent] = field(default_factory=dict)
    """The agents by their type, as far as they have been found."""

    def begin(self, workflow: Workflow, session: Session, name: str, *, began: float) -> StageRun:
        """A stage that starts. If a person rejected its last output, its agent is told why."""
        stage = workflow.by_name[name]
        agent = self.found.get(stage.agent_type)
        if agent is None:  # of a stage that was added
            agent = self.found[stage.agent_type] = find_agent(stage, self.agents, file=workflow.file, home=workflow.home)
        last: Mapping[str, Any] = next(iter(reversed(transitions.record_of(session, name).errors)), {})
        note = f"A person did not accept your last answer: {last.get('message')}" if last.get("kind") == "rejected" else None
        return StageRun(stage, agent, workflow.order[name] + 1, began, Tries.of(stage, agent), note)

    def build(self, workflow: Workflow, session: Session, run: StageRun) -> StageRequest:
        """The request for the next attempt. Raises BudgetError when what it must be given does not fit."""
        stage = run.stage
        material = self._material(workflow, session, run)
        context = run.context = self.contexts.build(material)
        if context.evicted:
            names = tuple(str(one["name"]) for one in context.evicted)
            limit = self.contexts.max_tokens or 0
            self.bus.emit(events.ContextEvicted(session=session.workflow_id, stage=stage.name, evicted=names, limit=limit))
        attempt = run.attempt = Attempt(stage.name)
        journal = SessionJournal(self.store, session.workflow_id, stage.name, attempt.is_given_up)
        run.raw = SessionRaw(
            self.store,
            session.workflow_id,
            lambda: raw_refs([stage.settings, journal.read(), *map(output_json, context.given)]),
            attempt.is_given_up,
        )
        return StageRequest(
            session_id=session.workflow_id,
            stage=stage,
            task=session.task,
            system_prompt=stage.system_prompt,
            prompt=context.prompt,
            given=context.given,
            provisional=material.provisional.intersection([output.stage_name for output in context.given]),
            retrieved=context.retrieved,
            feedback=run.note,
            attempt=transitions.record_of(session, stage.name).attempts + 1,
            raw=run.raw,
            journal=journal,
            show=run.show,
            knowledge=self.knowledge,
            folder=lambda: self._folder(session.workflow_id, run),
            home=workflow.home,
            budget=self.contexts.max_tokens,
            model=stage.model or self.model,
            parameters=self.parameters,
            cancelled=attempt.is_given_up,
            emit=lambda line: self.bus.emit(events.StageSaid(session=session.workflow_id, stage=stage.name, line=redact_text(str(line)))),
            charge=lambda usage, model, who=None: self._charge(usage, model, stage.name, who),
            charged=lambda who: self.usage.accounts.total(session=session.workflow_id, stage=stage.name, subagent=who).tokens,
        )

    def _folder(self, session: str, run: StageRun) -> Path:
        found = run.folder = self.folder(session, f"{run.number:02d}-{run.stage.name}")
        return found

    def _charge(self, usage: object, model: str, stage: str, who: str | None) -> None:
        self.usage.charge(usage, model, stage, who)
        self.usage.check()

    def _material(self, workflow: Workflow, session: Session, run: StageRun) -> Material:
        names = given_stages(workflow, session, run.stage.name)
        skipped = [name for name in skipped_stages(session) if workflow.order.get(name, run.number) < run.number]
        return Material(
            stage=run.stage.name,
            system_prompt=run.stage.system_prompt,
            task=session.task,
            parameters=self.parameters,
            outputs=tuple(map(session.stage_outputs.__getitem__, names)),
            named=frozenset(run.stage.inputs or ()),
            provisional=_provisional(session).intersection(names),
            skipped=tuple(sorted(skipped, key=workflow.order.__getitem__)),
            retrieved=session.retrieved,
            note=run.note,
        )
