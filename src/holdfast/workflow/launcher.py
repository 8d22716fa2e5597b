"""`run_workflow` and `resume`: from a file, a mapping or an id to a session that runs (P1, P2).

Both work without any configuration; everything that they open themselves can be given instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack, cast

from holdfast.clock import Clock, IdSource, RandomIds, SystemClock
from holdfast.config.loading import config_from_values, load_config
from holdfast.config.section import all_errors
from holdfast.config.sections import Config
from holdfast.durable.disk import REAL, Disk, make_folders
from holdfast.errors import (
    Cancelled,
    ConfigError,
    HoldfastError,
    InputError,
    Locked,
    OutputInvalid,
    StageFailed,
    StoreUnavailable,
    WorkflowChanged,
    WorkflowError,
)
from holdfast.events import Bus, within
from holdfast.events import bus as process_bus
from holdfast.session.state import Session
from holdfast.session.store import SessionStore
from holdfast.tokens.accounts import Accounts, Price
from holdfast.tokens.counter import TokenCounter, open_counter
from holdfast.tracing import span
from holdfast.validation import check_kind, spelled_out
from holdfast.workflow import events
from holdfast.workflow.agent import Agents, StageAgent, agent_errors, checked_agents, find_agents
from holdfast.workflow.control import WORKFLOW_FILE, check_stages_known, check_unchanged, reopened, stored_workflow, with_added_stages
from holdfast.workflow.definition import Workflow
from holdfast.workflow.events import SessionJournal
from holdfast.workflow.long_term_memory import SessionKnowledge, TrustedKnowledge
from holdfast.workflow.run_settings import RunSettings, open_knowledge_store, open_session_store, settings_of, workflow_config
from holdfast.workflow.runner import Runner, SessionRecorder
from holdfast.workflow.stage_context import ContextBuilder
from holdfast.workflow.stage_request import RequestBuilder, RunUsage
from holdfast.workflow.timed_executor import stopped_agent
from holdfast.workflow.transitions import Finish, next_step, placed
from holdfast.workflow.workflow_file import Further, load_workflow, parse_workflow

if TYPE_CHECKING:
    from holdfast.knowledge.store import KnowledgeStore


WorkflowSource = Workflow | Mapping[str, Any] | str | PathLike[str]
ConfigSource = Config | Mapping[str, Any] | str | PathLike[str] | None
_PARAMETERS = "parameters"
GOODBYE = 5.0
"""Seconds that `resume` waits for an agent that was stopped in this process and has not noticed yet."""
_GO_ON = "`resume` goes on with it."


class RunParts(TypedDict, total=False):
    """The parts that a run may be given, as keywords; the fields of `Launcher` say what each is."""

    config: ConfigSource
    session_config: ConfigSource
    store: SessionStore | None
    agents: Agents | None
    knowledge: KnowledgeStore | None
    remember: bool
    model: str | None
    folder: str | PathLike[str] | None
    clock: Clock
    ids: IdSource
    disk: Disk
    bus: Bus
    counter: TokenCounter | None
    stop: threading.Event
    leave: threading.Event
    owner: str | None
    started: Callable[[Session, Workflow, Path | None], None] | None
    journal: bool


@spelled_out(RunParts)
def run_workflow(
    workflow: WorkflowSource,
    *,
    task: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    session_id: str | None = None,
    check: bool = False,
    **parts: Unpack[RunParts],
) -> Session:
    """Start a session of this workflow and run it until it is completed, paused, halted or cancelled; that is its `status`.

    With `check` a session that does not complete raises what stopped it, from what the agent raised. LimitExceeded and StorageError are
    always raised; what was done is on disk then, and `resume` goes on. The keywords with `<default>` are the fields of
    `holdfast.workflow.launcher.Launcher`, which says what each is; all of them work without being given.
    """
    launcher = Launcher(**parts)
    session = launcher.run(workflow, task=task, parameters=parameters, session_id=session_id)
    return _checked(session, launcher.raised) if check else session


@spelled_out(RunParts)
def resume(
    session_id: str,
    *,
    workflow: WorkflowSource | None = None,
    accept_changes: bool = False,
    as_started: bool = False,
    check: bool = False,
    **parts: Unpack[RunParts],
) -> Session:
    """Go on with a session: completed stages do not run again, the interrupted one starts from its beginning (W6).

    The workflow is the one given, else the file that it was started from, else the one that the session keeps. One that has changed
    since is refused with WorkflowChanged, unless `accept_changes`; `as_started` takes the one that the session keeps.
    An agent that was stopped in this process and is still at work is waited for; Locked if it does not end. The keywords with `<default>`
    are those of `run_workflow`.
    """
    launcher = Launcher(**parts)
    session = launcher.resume(session_id, workflow=workflow, accept_changes=accept_changes, as_started=as_started)
    return _checked(session, launcher.raised) if check else session


@dataclass
class Launcher:
    """Starts and resumes sessions with the same parts. All of them have a working default."""

    config: ConfigSource = None
    """A configuration, a path of one, values of one; None is what `load_config` finds, which may be nothing."""
    session_config: ConfigSource = None
    """Settings of this session alone, in the same form. They win."""
    store: SessionStore | None = None
    agents: Agents | None = None
    knowledge: KnowledgeStore | None = None
    """Long-term memory. None is the one that the settings ask for by name, else none, or the usual one with `remember`."""
    remember: bool = False
    model: str | None = None
    folder: str | PathLike[str] | None = None
    """Where agents may write files. None is beside the session's own."""
    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=RandomIds)
    disk: Disk = REAL
    bus: Bus = process_bus
    counter: TokenCounter | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    """Set it, from any thread or a signal handler, and the run stops cleanly."""
    leave: threading.Event = field(default_factory=threading.Event)
    """Set it and the run ends before its next stage, `ready` for whoever resumes it; with `stop` as well, at once."""
    owner: str | None = None
    started: Callable[[Session, Workflow, Path | None], None] | None = None
    """Is told the session and its file, once it is on disk and before a stage starts."""
    journal: bool = False
    """Whether what happens is written beside the session, for others to follow (`events.SessionJournal`)."""
    raised: BaseException | None = field(default=None, init=False)
    """What an agent raised, if the last session halted because of that."""

    def __post_init__(self) -> None:
        hint = "`agents={'review': function}`: a stage names one by its `agent_type`."
        check_kind("agents", self.agents, (Mapping, type(None)), "a mapping of names to agents", hint=hint)

    def run(
        self,
        workflow: WorkflowSource,
        *,
        task: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """A new session, from its start."""
        definition, agents, configs, settings, goal, values = self._prepared(workflow, task, parameters, with_sources=True)
        with self._stores(settings, configs) as (store, knowledge):
            name = self._name(session_id, settings, store, definition)
            with store.lease(name, owner=self.owner), self._journal(store, name):
                session = store.create(_new_session(name, definition, goal, settings, values))
                store.clear_cancel(name)
                self.bus.emit(events.SessionStarted(session=name, stages=len(definition.stages)))
                ended = self._run(definition, session, settings, store, knowledge, values, agents)
            return _kept_or_not(ended, store, settings)

    def create(
        self,
        workflow: WorkflowSource,
        *,
        task: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        announce: Callable[[str], None] | None = None,
    ) -> Session:
        """A new session that is on disk, `ready`, and does not run: `resume` runs it, here or elsewhere. Checked as `run` checks it.

        `announce` is told its name before it is written.
        """
        definition, _, configs, settings, goal, values = self._prepared(workflow, task, parameters)
        with self._stores(settings, configs) as (store, _):
            name = self._name(session_id, settings, store, definition)
            if announce is not None:
                announce(name)
            return store.create(_new_session(name, definition, goal, settings, values))

    def _prepared(
        self, workflow: WorkflowSource, task: str | None, parameters: Mapping[str, Any] | None, *, with_sources: bool = False
    ) -> _Prepared:
        """Whatever is wrong with a new session is said before anything is written."""
        definition = _definition(workflow, further=lambda sound: agent_errors(sound, self.agents))
        agents = (checked_agents if with_sources else find_agents)(definition, self.agents)
        configs = [self._said, workflow_config(definition), self._session_config]
        goal = (task if task is not None else definition.task) or ""
        if not goal.strip():
            raise InputError(f"the workflow {definition.id} has no task.", hint="Give one: `task=...`, or `task:` in its file.")
        return _Prepared(
            definition, agents, configs, self._settings(definition, configs), goal, {**definition.parameters, **(parameters or {})}
        )

    def _name(self, wanted: str | None, settings: RunSettings, store: SessionStore, workflow: Workflow) -> str:
        return wanted or settings.session_id or store.new_session_id(workflow.id, self.clock.now().date())

    def _journal(self, store: SessionStore, session: str) -> AbstractContextManager[None]:
        return SessionJournal(store, session).kept(self.bus) if self.journal else nullcontext()

    def resume(
        self, session_id: str, *, workflow: WorkflowSource | None = None, accept_changes: bool = False, as_started: bool = False
    ) -> Session:
        """A session that is there, from where it stands."""
        given = _definition(workflow) if workflow is not None else None
        configs = [self._said, workflow_config(given) if given is not None else None, self._session_config]
        with self._stores(settings_of(configs), configs) as (store, knowledge):
            store.load(session_id)  # a name that nobody has is told before anything is made for it
            self._await_agents(store, session_id)
            with store.lease(session_id, owner=self.owner), self._journal(store, session_id):
                session = store.load(session_id)
                store.check_edit(session)
                definition = self._workflow_of(session, given, accept_changes=accept_changes, as_started=as_started)
                whole = with_added_stages(definition, session)
                agents = self._agents_again(whole, kept=given is None or not accept_changes)
                if session.status == "completed" and next_step(whole, session) == Finish():
                    if not accept_changes:
                        check_stages_known(session, whole)
                    return session
                is_new, left_running = session.revision == 1 and session.lineage is None, session.status == "running"
                session = reopened(session, whole, accept_changes=accept_changes)
                settings = self._settings(definition, configs, session.configuration)
                values = _mapping(session.configuration.get(_PARAMETERS))
                session = _adopted(session, definition, _configuration(settings, values))
                store.clear_cancel(session_id)
                stages, done = len(whole.stages), len(whole.by_name.keys() & {*session.completed_stages})
                self.bus.emit(
                    events.SessionStarted(session=session_id, stages=stages)  # it was created and never run
                    if is_new
                    else events.SessionResumed(session=session_id, completed=done, stages=stages, taken_over=left_running)
                )
                ended = self._run(whole, session, settings, store, knowledge, values, agents)
            return _kept_or_not(ended, store, settings)

    def _agents_again(self, workflow: Workflow, *, kept: bool) -> dict[str, StageAgent]:
        try:
            return find_agents(workflow, self.agents, kept=kept)
        except ConfigError as error:
            for one in all_errors(error) if self.agents is None else ():
                if (one.key or "").endswith(".agent_type"):
                    one.hint = f"{one.hint or ''} A session keeps no functions: give `agents=` again.".strip()
            raise

    def _await_agents(self, store: SessionStore, session_id: str) -> None:
        """Let agents that were stopped in this process come to their end. Locked if one does not: its stage would be worked on twice."""
        stage = stopped_agent(store.where(session_id), GOODBYE, self.stop.is_set)
        if stage is not None:
            raise Locked(
                f"the agent of stage {stage!r} of session {session_id} was stopped and is still at work in this process.",
                path=store.where(session_id),
                owner="this process",
                hint="Resume when it has ended; an agent that asks `request.cancelled()` ends at once. Another process need not wait.",
            )

    def _workflow_of(self, session: Session, given: Workflow | None, *, accept_changes: bool, as_started: bool) -> Workflow:
        if as_started:
            kept = stored_workflow(session)
            check_unchanged(session, kept)
            return kept
        found = given if given is not None else _from_file(session)
        found = found if found is not None else stored_workflow(session)
        if not accept_changes:
            check_unchanged(session, found)
        return found

    def _run(
        self,
        workflow: Workflow,
        session: Session,
        settings: RunSettings,
        store: SessionStore,
        knowledge: KnowledgeStore | None,
        parameters: Mapping[str, Any],
        agents: dict[str, StageAgent],
    ) -> Session:
        knowledge = cast("KnowledgeStore", TrustedKnowledge(knowledge, settings.min_trust)) if knowledge is not None else None
        name, counter = session.workflow_id, self.counter
        usage = RunUsage(self._accounts(session, settings), name, self.ids.new("run"))
        contexts = ContextBuilder(
            lambda: counter or open_counter(bus=self.bus), max_tokens=settings.max_tokens, policy=settings.eviction_policy
        )
        requests = RequestBuilder(
            store,
            contexts,
            usage,
            self.bus,
            self._work_folder(store),
            agents=self.agents,
            knowledge=knowledge,
            parameters=parameters,
            model=settings.model,
            found=agents,
        )
        points = settings.recovery_points
        placed_session = placed(workflow, session)
        stop_requested = partial(self._stop_requested, store, name)
        recorder = SessionRecorder(
            placed_session, workflow, store, self.bus, self.clock, contexts, usage.snapshot, points=points, stop_requested=stop_requested
        )
        memory = _memory(settings, workflow, knowledge, parameters)
        if self.started is not None:
            self.started(session, workflow, store.file(name))
        runner = Runner(
            recorder,
            requests,
            usage,
            self.clock,
            memory=memory,
            stop_requested=stop_requested,
            leave_requested=lambda: self.leave.is_set() and not _cancel_requested(store, name),
        )
        try:
            about = {"gen_ai.workflow.name": workflow.id}
            with within(session=name, run=usage.run), span("invoke_workflow", workflow.id, "CHAIN", about) as traced:
                ended = runner.run()
                traced.set({"holdfast.status": ended.status})
                return ended
        finally:
            self.raised = runner.raised

    def _stop_requested(self, store: SessionStore, name: str) -> bool:
        """Whether the run is to stop: somebody said so, or somebody else has the session by now."""
        return self.stop.is_set() or store.is_lost(name) or _cancel_requested(store, name)

    def _accounts(self, session: Session, settings: RunSettings) -> Accounts:
        """What the session used so far, and what it may use."""
        models = self._said.models if self._said is not None else []
        prices = {model.name: Price.of(model.pricing) for model in models if model.pricing is not None}
        accounts = Accounts(prices, run_limits=settings.run_limits, session_limits=settings.session_limits, bus=self.bus)
        if session.usage:
            accounts.restore(session.usage)
        return accounts

    def _settings(self, workflow: Workflow, configs: list[Config | None], kept: Mapping[str, Any] | None = None) -> RunSettings:
        settings = settings_of(configs, kept)
        if workflow.memory_retrieval_top_k is not None:
            settings = replace(settings, top_k=workflow.memory_retrieval_top_k)
        return replace(settings, model=self.model) if self.model else settings

    @property
    def _said(self) -> Config | None:
        """The configuration, unless it is a mapping that says nothing: then it is not made before somebody asks where the state is."""
        return None if isinstance(self.config, Mapping) and not self.config else self._config

    @property
    def _config(self) -> Config:
        if not isinstance(self.config, Config):
            self.config = config_from_values(self.config) if isinstance(self.config, Mapping) else load_config(self.config)
        return self.config

    @property
    def _session_config(self) -> Config | None:
        if self.session_config is not None and not isinstance(self.session_config, Config):
            said = self.session_config
            self.session_config = config_from_values(said) if isinstance(said, Mapping) else load_config(said)
        return self.session_config

    @contextmanager
    def _stores(self, settings: RunSettings, configs: list[Config | None]) -> Iterator[tuple[SessionStore, KnowledgeStore | None]]:
        """The stores that were given, or those of the settings, which are closed again."""
        with self.sessions(settings) as store:
            opened = None
            if self.knowledge is None:
                opened = open_knowledge_store(settings, configs, lambda: self._config, usual=self.remember, clock=self.clock, bus=self.bus)
            try:
                yield store, self.knowledge or opened
            finally:
                if opened is not None:
                    opened.close()

    @contextmanager
    def sessions(self, settings: RunSettings | None = None) -> Iterator[SessionStore]:
        """The sessions that were given, or those of the settings, which are closed again."""
        if self.store is not None:
            yield self.store
            return
        settings = settings or settings_of([self._said, self._session_config])
        store = open_session_store(settings, self._config, disk=self.disk, clock=self.clock)
        try:
            yield store
        finally:
            store.close()

    def _work_folder(self, store: SessionStore) -> Callable[[str, str], Path]:
        base = Path(self.folder) if self.folder is not None else None

        def folder(session: str, stage: str) -> Path:
            own = base / session if base is not None else store.folder(session)
            found = (own or self._config.base / "sessions" / session / "files") / stage
            if base is not None:
                found.mkdir(parents=True, exist_ok=True)
            else:  # what is kept is nobody else's to read
                make_folders(self.disk, str(found), durable=False)
            return found

        return folder


class _Prepared(NamedTuple):
    """A new session, before anything of it is written."""

    definition: Workflow
    agents: dict[str, StageAgent]
    configs: list[Config | None]
    settings: RunSettings
    goal: str
    values: dict[str, Any]


def _memory(
    settings: RunSettings, workflow: Workflow, knowledge: KnowledgeStore | None, parameters: Mapping[str, Any]
) -> SessionKnowledge | None:
    """Long-term memory as this session uses it; None for one without, and for a short one (W9)."""
    limit = settings.short_max_stages
    if knowledge is None or (limit is not None and len(workflow.stages) - len(workflow.added_by) <= limit):
        return None
    return SessionKnowledge(knowledge, parameters, settings.top_k, short_seconds=settings.short_max_seconds)


def failure_of(session: Session) -> HoldfastError | None:
    """The error that a session which is not completed stands for."""
    if session.status == "completed":
        return None
    name, error = session.workflow_id, session.error
    if session.status == "cancelled":
        return Cancelled(f"the session {name} was cancelled.", session=name, stage=session.current_stage, hint=_GO_ON)
    if error is None:
        if session.status != "paused":
            return WorkflowError(f"the session {name} is {session.status}.", session=name, stage=session.current_stage, hint=_GO_ON)
        return WorkflowError(
            f"the session {name} waits for a person to approve {session.current_stage}.",
            session=name,
            stage=session.current_stage,
            hint="`approve` agrees, `reject` refuses; then `resume` goes on.",
        )
    if error.kind == "malformed_output":
        return OutputInvalid(error.message, problems=error.problems, raw=error.raw_output, session=name, stage=error.stage, hint=error.hint)
    return StageFailed(error.message, session=name, stage=error.stage, hint=error.hint)


def _checked(session: Session, raised: BaseException | None) -> Session:
    """The session, if it is completed. Raises the error that it stands for if not, from what the agent raised."""
    error = failure_of(session)
    if error is not None:
        raise error from raised
    return session


def _definition(source: WorkflowSource, *, further: Further | None = None) -> Workflow:
    if isinstance(source, Workflow):
        return source
    return parse_workflow(source, further=further) if isinstance(source, Mapping) else load_workflow(source, further=further)


def _from_file(session: Session) -> Workflow | None:
    """The workflow as its file is now; None when there is no such file any more."""
    name = session.extra.get(WORKFLOW_FILE)
    if not isinstance(name, str) or not Path(name).is_file():
        return None
    try:
        return load_workflow(name)
    except ConfigError as error:
        raise WorkflowChanged(
            f"the workflow file of session {session.workflow_id} cannot be read any more: {error}",
            session=session.workflow_id,
            hint="Mend it, or go on with the definition that the session keeps: `as_started=True`.",
        ) from error


def _cancel_requested(store: SessionStore, name: str) -> bool:
    """Whether somebody asked for it. Not while the store is away: nobody can ask then, and the stage that runs is not given up for it."""
    try:
        return store.cancel_requested(name)
    except StoreUnavailable:
        return False


def _new_session(name: str, workflow: Workflow, task: str, settings: RunSettings, parameters: Mapping[str, Any]) -> Session:
    file = {WORKFLOW_FILE: str(Path(workflow.file).absolute())} if workflow.file is not None else {}
    session = Session(
        workflow_id=name,
        task=task.strip(),
        topic_tag=workflow.topic_tag,
        workflow=workflow.document(),
        workflow_hash=workflow.hash,
        configuration=_configuration(settings, parameters),
        extra=file,
    )
    return placed(workflow, session)


def _configuration(settings: RunSettings, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {**settings.kept(), **({_PARAMETERS: dict(parameters)} if parameters else {})}


def _adopted(session: Session, workflow: Workflow, configuration: Mapping[str, Any]) -> Session:
    """The session with the workflow and the settings that it goes on with."""
    same = session.workflow_hash == workflow.hash
    return replace(
        session,
        task=session.task or workflow.task or "",
        workflow=session.workflow if same else workflow.document(),
        workflow_hash=workflow.hash,
        configuration=configuration,
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _kept_or_not(session: Session, store: SessionStore, settings: RunSettings) -> Session:
    """With `session_memory.persist: false` nothing is left of a session that is completed."""
    if session.status == "completed" and not settings.persist and settings.backend == "file":
        store.remove(session.workflow_id)
    return session
