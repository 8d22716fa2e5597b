"""`build(config)`: the one place that knows the concrete classes.

    with holdfast.build() as harness:
        harness.conversation("thread-1").ask("Hello")
        harness.run_workflow("workflow.yaml")
        harness.memory.search("which database")

Every command of the program opens one harness and gets all else from it, and so does any other program that wants more than one part.
A part is opened when it is first asked for, and closed with the harness, also after an error. Clock, ids, disk and bus are parameters
here and reach every part, so the same code runs under a fake clock and a simulated disk. LangChain is imported only by what needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack, cast

from holdfast.clock import Clock, IdSource, RandomIds, SystemClock, stamp
from holdfast.config.loading import announce, config_from_values, load_config, read_file
from holdfast.config.sections import Config
from holdfast.durable.disk import REAL, Disk, make_folders
from holdfast.durable.replace import replace_json
from holdfast.durable.strict_json import decode
from holdfast.errors import HoldfastError, InputError, StorageError, WriteFailed
from holdfast.events import Bus
from holdfast.events import bus as process_bus
from holdfast.talk import Talk, ThreadInfo
from holdfast.tokens.budget import Budget
from holdfast.tokens.counter import TokenCounter, open_counter
from holdfast.tokens.windows import Window, find_window
from holdfast.validation import check_thread

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from holdfast.agents.agent_loop import Parts
    from holdfast.agents.checkpoints import Checkpoints
    from holdfast.agents.lead import LeadAgent
    from holdfast.agents.middleware.model_calls import RunAccounts
    from holdfast.agents.threads import Threads
    from holdfast.agents.tools.mcp_tools import McpServers
    from holdfast.context.archive import Archive, FileArchive, Stats
    from holdfast.durable.lock import Presence
    from holdfast.knowledge.store import KnowledgeStore
    from holdfast.memory.document import Document
    from holdfast.memory.service import MemoryService
    from holdfast.memory.updater import Extractor
    from holdfast.session.state import Session
    from holdfast.session.store import SessionStore
    from holdfast.skills import SkillLibrary
    from holdfast.storage.files import FileBackend
    from holdfast.workflow.agent import StageAgent
    from holdfast.workflow.launcher import Launcher, RunParts, WorkflowSource


_LAST_USED = "last_conversation.json"


class _Closable(Protocol):
    def close(self) -> Any: ...


_C = TypeVar("_C", bound=_Closable)
_T = TypeVar("_T")


class _part(cached_property[_T]):  # noqa: N801 - used like `property`
    """A part that is made when it is first asked for, and never again once the harness is closed."""

    if not TYPE_CHECKING:  # to a type checker it is a `cached_property`

        def __get__(self, harness: Harness | None, owner: type[Harness] | None = None) -> Any:
            if harness is not None:
                harness._check_open()
            return super().__get__(harness, owner)


@dataclass(frozen=True)
class Harness:
    """Everything that a program needs of Holdfast, made from one configuration. Parts are made when they are first asked for.

    Safe for many threads. Close it when done; what was queued for memory is learned from then. After that it, and what it gave, says that
    it is closed (StorageError); `build` opens another.
    """

    config: Config
    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=RandomIds)
    disk: Disk = REAL
    bus: Bus = process_bus
    _opened: ExitStack = field(default_factory=ExitStack, init=False, repr=False, compare=False)
    _closed: Event = field(default_factory=Event, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        """Where it keeps its state and what it was told by: the whole configuration would be a screenful."""
        told = f", {self.config.file}" if self.config.file is not None else ""
        return f"<Harness {self.base}{told}{', closed' if self._closed.is_set() else ''}>"

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close what was opened, the newest first. Harmless when done twice; what is asked for afterwards is a StorageError."""
        self._closed.set()  # first: what is opened while the others are being closed would never be
        try:
            self._opened.close()
        finally:
            for name in [name for name in vars(self) if isinstance(getattr(type(self), name, None), cached_property)]:
                del vars(self)[name]

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise StorageError.closed(f"the harness over {self.base}", self.base)

    def _kept(self, part: _C) -> _C:
        self._opened.callback(part.close)
        return part

    @property
    def base(self) -> Path:
        """The folder that holds all state."""
        return self.config.base

    def make_base(self) -> Path:
        """The base directory, made durably if it was not there. Raises NotWritable, naming it, when it cannot be."""
        make_folders(self.disk, str(self.base))
        return self.base

    def attend(self, name: str) -> Presence | None:
        """Let others see that this process works with the base directory until the harness is closed, as `holdfast NAME` (O7).

        A restore is refused meanwhile. None where nothing can be written, and so nothing can be lost. Raises Locked during a restore.
        """
        from holdfast.durable.lock import Presence

        self._check_open()
        try:
            return self._kept(Presence(self.make_base(), name, clock=self.clock))
        except WriteFailed:
            return None

    # what is kept

    @_part
    def storage(self) -> FileBackend:
        """The base directory behind the storage seam: documents, logs, blobs and leases by their keys."""
        from holdfast.storage.files import FileBackend

        return self._kept(FileBackend(self.base, disk=self.disk, clock=self.clock, bus=self.bus))

    @_part
    def archive(self) -> FileArchive:
        """Everything that was ever said in a thread."""
        from holdfast.context.archive import FileArchive

        return self._kept(FileArchive(self.base, disk=self.disk, clock=self.clock))

    @_part
    def memory(self) -> MemoryService:
        """What is known about the user, with the extractor that the configuration describes."""
        from holdfast.memory.service import MemoryService

        shared: dict[str, Any] = {"clock": self.clock, "ids": self.ids, "bus": self.bus, "disk": self.disk}
        return self._kept(MemoryService.open(self.config, extractor=self._extractor, **shared))

    def _extractor(self, document: Document) -> Extractor:
        """Made when something is learned: to look at memory no model is needed."""
        from holdfast.memory.rules import RulesExtractor

        make = self._model_extractor
        return make(document) if make is not None else RulesExtractor()

    @cached_property
    def _model_extractor(self) -> Callable[[Document], Extractor] | None:
        """Makes the extractor that asks a model; None where the rules are used."""
        from holdfast.models.factory import memory_model

        model = memory_model(self.config) if self.config.memory.extractor != "rules" else None
        if model is None:
            return None
        from holdfast.agents.middleware.memory import model_extractor

        return model_extractor(self.config, model=model, accounts=self.accounts)

    @_part
    def knowledge(self) -> KnowledgeStore:
        """Long-term records: the store that the configuration describes, or the one that its session sets (W1)."""
        return self._kept(self.open_knowledge())

    def open_knowledge(self, place: str | None = None) -> KnowledgeStore:
        """A knowledge store at a path or address; without one, as the configuration says. The caller's to close."""
        from holdfast.knowledge.adapters import open_knowledge

        self._check_open()
        shared: dict[str, Any] = {"clock": self.clock, "bus": self.bus, "counter": self.counter}
        if place is None:
            return open_knowledge(self.config, **shared)
        section = self.config.knowledge
        ranking = {name: getattr(section, name) for name in ("embedder", "rerank", "rerank_model") if name in section.model_fields_set}
        return open_knowledge(place, **ranking, **shared)

    @_part
    def sessions(self) -> SessionStore:
        """The sessions of workflows: files, or the database that the configuration names (W16)."""
        return self._kept(self.open_sessions())

    def open_sessions(self, session_config: Config | str | Path | None = None) -> SessionStore:
        """The store of sessions, as a session configuration sets it where one is given (W1). The caller's to close."""
        from holdfast.workflow.run_settings import open_session_store, settings_of

        self._check_open()
        own = load_config(session_config) if isinstance(session_config, str | Path) else session_config
        return open_session_store(settings_of([self.config, own]), self.config, disk=self.disk, clock=self.clock)

    @_part
    def checkpoints(self) -> Checkpoints:
        """The checkpoints of conversations, and the list of threads beside them."""
        from holdfast.agents.checkpoints import open_checkpoints

        return self._kept(open_checkpoints(self.make_base()))

    @property
    def has_checkpoints(self) -> bool:
        """Whether any conversation with a model was ever held here. Asking makes nothing."""
        place = self.base / "checkpoints.db"
        return place.exists() and place.stat().st_size > 0  # where a disk was full an empty file may be left

    @_part
    def threads(self) -> Threads:
        """The conversations with a model as a list, with their titles."""
        from holdfast.agents.threads import Threads

        return Threads(self.base, self.checkpoints, self.archive, clock=self.clock)

    def conversations(self, *, subagents: bool = False, last: int | None = None) -> list[ThreadInfo]:
        """Every conversation that is kept, with a model and without, the one that was used last first; at most the `last` ones.

        Of one without a title (held without a model, through the gateway, or by an agent of the user's own) it is its first words.
        """
        archived = set(self.archive.threads())
        return [self._with_messages(info, info.id in archived) for info in self._listed(subagents=subagents)[:last]]

    def _listed(self, *, subagents: bool) -> list[ThreadInfo]:
        archived = set(self.archive.threads())
        known = {info.id: info for info in self.threads.all(subagents=True)} if self.has_checkpoints else {}
        others = {name: self.archive.stats(name) for name in archived - known.keys()}
        found = [*known.values(), *(ThreadInfo(name, created=s.first, updated=s.last, archived_only=True) for name, s in others.items())]
        chosen = [info for info in found if subagents or not info.id.startswith("subagent-")]
        return sorted(chosen, key=lambda info: (info.updated, info.id), reverse=True)

    def thread_stats(self) -> list[Stats]:
        """How much was said in every conversation, the one with the newest message first; messages in the window count as well (S9)."""
        found = {name: self.archive.stats(name) for name in self.archive.threads()}
        for info in self.threads.all(subagents=True) if self.has_checkpoints else ():
            stats = found.get(info.id) or self.archive.stats(info.id)
            inside = len(self.threads.only_in_window(info.id))
            if stats.messages + inside:
                first, last = stats.first or info.created, max(stats.last, info.updated)
                found[info.id] = replace(stats, messages=stats.messages + inside, first=first, last=last)
        return sorted(found.values(), key=lambda stats: stats.last, reverse=True)

    def whole_thread(self, thread: str) -> Archive:
        """What was said in a thread: the archive, and what is still in the window of a conversation of ours."""
        if not self.has_checkpoints:
            return self.archive
        from holdfast.agents.threads import with_window  # LangChain, for who has held conversations
        from holdfast.context.call_log import CallLog

        return with_window(self.threads, self.archive, thread, CallLog(self.base, disk=self.disk))

    def thread_names(self) -> list[str]:
        """The ids of all conversations."""
        listed = [info.id for info in self.threads.all(subagents=True)] if self.has_checkpoints else []
        return list(dict.fromkeys([*listed, *self.archive.threads()]))

    def _first_words(self, info: ThreadInfo, archived: bool) -> str:
        """What was said first: the archive's first message, or what stayed in the window while an answer to it left."""
        first = self.archive.read(info.id, "#1") if archived else None
        words = first.record.text if first is not None else ""
        if info.archived_only or (first is not None and first.record.role == "human"):
            return words
        return self.threads.first_words(info.id) or words

    def _with_messages(self, info: ThreadInfo, archived: bool) -> ThreadInfo:
        """The conversation with its number of messages and a title."""
        from holdfast.memory.facts import without_uploads

        count = self.archive.stats(info.id).messages if archived else 0
        if not info.archived_only:
            count += len(self.threads.only_in_window(info.id))
        given = self.archive.title(info.id) if archived and info.title_by != "user" else ""
        said = " ".join(without_uploads(self._first_words(info, archived)).split()) if not (given or info.title) else ""
        most = self.config.title.max_chars
        short = said if len(said) <= most else f"{said[:most].rpartition(' ')[0] or said[:most]} …"
        return replace(info, messages=count, title=given or info.title or short)

    @cached_property
    def skills(self) -> SkillLibrary:
        """The skills that agents are shown, and which of them are switched on."""
        from holdfast.skills import open_skills

        return open_skills(self.config)

    # agents

    @cached_property
    def accounts(self) -> RunAccounts:
        """What models used and cost in this process, with the limits of the configuration (T5)."""
        from holdfast.agents.middleware.model_calls import RunAccounts

        return RunAccounts.of(self.config, bus=self.bus)

    @_part
    def agent_parts(self) -> Parts:
        """What all agents of this harness share."""
        from holdfast.agents.agent_loop import open_parts
        from holdfast.agents.middleware.memory import model_extractor

        if self.config.memory.extractor == "model":
            model_extractor(self.config)  # ModelNotConfigured now, not when the first conversation is to be learned from
        return self._kept(
            open_parts(
                self.config,
                clock=self.clock,
                ids=self.ids,
                bus=self.bus,
                disk=self.disk,
                checkpointer=self.checkpoints,
                archive=self.archive,
                memory=self.memory,
                accounts=self.accounts,
                knowledge=lambda: self.knowledge,
            )
        )

    def chat_model(self, name: str | None = None, *, thinking: bool = False) -> BaseChatModel:
        """The chat model of this name, for an agent; without one, the first that is configured or found."""
        from holdfast.models.factory import create_chat_model

        return create_chat_model(name, thinking, config=self.config, retries=False)

    def lead_agent(self, name: str | None = None, *, model: str | BaseChatModel | None = None, **parts: Any) -> LeadAgent:
        """The agent that a user talks to, by the name of its settings. `parts` as in `make_lead_agent`. Close it when done."""
        from holdfast.agents.lead import make_lead_agent

        self._check_open()
        chosen = self.chat_model(model) if isinstance(model, str) else model
        return make_lead_agent(self.config, agent=name, model=chosen, **{"parts": self.agent_parts, **parts})

    def conversation(
        self,
        thread: str | None = None,
        *,
        agent: str | None = None,
        model: str | BaseChatModel | None = None,
        resume: bool = False,
        **parts: Any,
    ) -> Talk:
        """A conversation, new or where it was left; with `resume`, the one that was used last. Close it when done.

        Without a model it answers by extraction, and says so (A15). A small model that merely happens to be installed, and is too weak
        to extract facts, is not talked to unless it is named. `parts` go to `make_lead_agent`. Raises NotTrusted where the models are those
        of a file that was merely found and nobody agreed to.

        A conversation keeps the agent that it was begun with, whose memory it feeds: InputError where another one is named.
        """
        self._check_open()
        if model is None:
            self.config.need("models")
        if resume and thread is None:
            thread = self._used_last(agent)
        agent = self._with_whom(thread, agent)
        if model is None and not self.talks():
            return self._offline_conversation(thread, agent)
        from holdfast.agents.conversation import Conversation

        made = self.lead_agent(agent, model=model, **parts)
        try:
            return Conversation(made, thread, owns_agent=True)
        except BaseException:
            made.close()
            raise

    def agent_of(self, thread: str) -> str | None:
        """The agent that a conversation was begun with; None for the default agent, and where nothing is known of it."""
        return self._begun_with(thread)[1]

    def _begun_with(self, thread: str) -> tuple[bool, str | None]:
        """Whether it is known with which agent a conversation was begun, and which one."""
        info = self.threads.find(thread) if self.has_checkpoints else None
        if info is not None and not thread.startswith("subagent-"):
            return True, info.agent
        first = self.archive.read(check_thread(thread), "#1") if info is None else None
        noted = first.record.marks.get("agent") if first is not None else None
        return isinstance(noted, str), noted if isinstance(noted, str) else None

    def _with_whom(self, thread: str | None, agent: str | None) -> str | None:
        """The agent to talk to: the one of the conversation, else the one that is named. InputError where these are two."""
        known, kept = self._begun_with(thread) if thread is not None else (False, None)
        if not known or (agent or "").lower() == (kept or "").lower():
            return agent
        if agent is None:
            return kept
        hint = "Leave the agent out to go on in it, or begin a conversation of its own with the other agent."
        raise InputError(f"the conversation {thread!r} is with {kept or 'the lead agent'}, and not with {agent}.", hint=hint)

    def _offline_conversation(self, thread: str | None, agent: str | None) -> Talk:
        from holdfast.offline.conversation import ExtractiveConversation

        return ExtractiveConversation(
            self.config,
            thread,
            agent=agent,
            memory=self.memory,
            archive=self.archive,
            knowledge=lambda: self.knowledge,
            clock=self.clock,
            ids=self.ids,
            bus=self.bus,
        )

    def _used_last(self, agent: str | None) -> str:
        """The conversation that was used last, with a model or without; where an agent is named, with that one if that is known."""
        found = [info for info in self._listed(subagents=False) if info.archived_only or agent in (None, info.agent)]
        noted = self._noted_use()
        if noted is not None and agent is not None and self.agent_of(noted[0]) != agent:
            noted = None
        if noted is not None and (not found or noted[1] > found[0].updated):
            return noted[0]
        if not found:
            raise InputError("there is no conversation to resume yet.", hint="Begin one: holdfast chat.")
        return found[0].id

    def note_used(self, thread: str) -> None:
        """Remember that somebody went on in this conversation: a branch has only messages from before, and is the one used last."""
        self._check_open()
        replace_json(self.base / _LAST_USED, {"thread": thread, "time": stamp(self.clock.now())})

    def _noted_use(self) -> tuple[str, str] | None:
        try:
            noted = decode((self.base / _LAST_USED).read_bytes(), path=_LAST_USED)
            return check_thread(noted["thread"]), str(noted["time"])
        except (OSError, HoldfastError, KeyError, TypeError):  # a note that is not there or cannot be read says nothing
            return None

    def talks(self) -> bool:
        """Whether there is a model to talk to that nobody had to name."""
        from holdfast.models.abilities import abilities_of, with_trial
        from holdfast.models.choice import pick

        chosen = pick(self.config).config
        return chosen is not None and (bool(self.config.models) or abilities_of(with_trial(chosen, self.base)).can("extraction"))

    # workflows

    def run_workflow(
        self,
        workflow: WorkflowSource,
        *,
        task: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        check: bool = False,
        **parts: Unpack[RunParts],
    ) -> Session:
        """Run a workflow with the sessions, the long-term memory and the models of this configuration. As `holdfast.run_workflow`."""
        from holdfast.workflow.launcher import run_workflow

        own = self._run_parts(parts)
        return run_workflow(workflow, task=task, parameters=parameters, session_id=session_id, check=check, **own)

    def resume(
        self,
        session_id: str,
        *,
        workflow: WorkflowSource | None = None,
        accept_changes: bool = False,
        as_started: bool = False,
        check: bool = False,
        **parts: Unpack[RunParts],
    ) -> Session:
        """Go on with a session. As `holdfast.resume`."""
        from holdfast.workflow.launcher import resume

        own = self._run_parts(parts)
        return resume(session_id, workflow=workflow, accept_changes=accept_changes, as_started=as_started, check=check, **own)

    def approve(self, session_id: str, stage: str | None = None) -> Session:
        """Agree with the output of a stage that waits, or with its call. As `holdfast.approve`, in the sessions of this configuration."""
        from holdfast.workflow.control import approve

        return approve(self.sessions, session_id, stage, bus=self.bus)

    def reject(self, session_id: str, stage: str | None = None, *, why: str) -> Session:
        """Refuse the output of a stage that waits, or its call, and say why. As `holdfast.reject`."""
        from holdfast.workflow.control import reject

        return reject(self.sessions, session_id, stage, why=why, clock=self.clock, bus=self.bus)

    def fix(self, session_id: str, stage: str, output: Mapping[str, Any] | str) -> Session:
        """Put a corrected output in place of what a stage wrote. As `holdfast.fix`."""
        from holdfast.workflow.control import fix
        from holdfast.workflow.decisions import output_text

        return fix(self.sessions, session_id, stage, output_text(output), bus=self.bus)

    def fork(self, session_id: str, new_id: str | None = None, *, checkpoint: str | None = None) -> Session:
        """A new session from the state of another. As `holdfast.fork`."""
        from holdfast.workflow.control import fork

        return fork(self.sessions, session_id, new_id, checkpoint=checkpoint)

    def launcher(self, **parts: Unpack[RunParts]) -> Launcher:
        """Starts and resumes sessions with the parts of this harness; `parts` are the other fields of `Launcher`."""
        from holdfast.workflow.launcher import Launcher

        return Launcher(**self._run_parts(parts))

    @_part
    def mcp(self) -> McpServers:
        """The MCP servers of the configuration. Nothing is started until their tools are asked for."""
        from holdfast.agents.tools.mcp_tools import open_mcp

        return self._kept(open_mcp(self.config, clock=self.clock, bus=self.bus))

    def stage_agents(self, model: str | BaseChatModel | None = None) -> dict[str, StageAgent]:
        """The agents that ask a model, if one is configured or named and is good enough; the others work by extraction (W18)."""
        from holdfast.agents.stages.stage_agents import coder_without_model, stage_agents

        self._check_open()
        if model is None:
            self.config.need("models")
        if not self.config.models and model is None:
            return {"coder": coder_without_model(self.config)}
        approve = (*self.config.sandbox.approve, *self.mcp.approvals)
        return stage_agents(self.config, model=model, tools=lambda request: self.mcp.tools(), approve=approve)

    def _run_parts(self, parts: RunParts) -> RunParts:
        self._check_open()
        if "agents" not in parts:
            parts = {**parts, "agents": self.stage_agents(parts.get("model"))}
        own: dict[str, Any] = {"config": self.config, "clock": self.clock, "ids": self.ids, "disk": self.disk, "bus": self.bus}
        own |= {"remember": True, "journal": True}
        return cast("RunParts", {**own, **parts})

    # tokens

    @cached_property
    def counter(self) -> TokenCounter:
        """Counts tokens for the first configured model, in the way that `summarization.token_counter` says."""
        model = next(iter(self.config.models), None)
        return open_counter(self.config.summarization.token_counter, model=model.model if model else None, bus=self.bus)

    def find_window(self, model: str | None = None) -> Window:
        """The window of a configured model (the first one by default), and where its size is from."""
        settings = self.config.model(model) if model else next(iter(self.config.models), None)
        return find_window(settings, name=settings.name if settings else None, bus=self.bus)

    def window(self, model: str | None = None) -> int:
        """The size of that window in tokens."""
        return self.find_window(model).tokens

    def budget(self, model: str | None = None, *, window: int | None = None) -> Budget:
        """How that window, or one of a given size, is split."""
        return Budget.split(self.window(model) if window is None else window, self.config.memory.max_injection_tokens)


def build(
    config: Config | Mapping[str, Any] | str | Path | None = None,
    *,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    disk: Disk | None = None,
    bus: Bus | None = None,
) -> Harness:
    """A harness from a configuration, its values, a path of one, or whatever `load_config` finds."""
    if not isinstance(config, Config):
        config = config_from_values(config) if isinstance(config, Mapping) else read_file(config)
        announce(config, bus or process_bus)
    return Harness(config, clock or SystemClock(), ids or RandomIds(), disk or REAL, bus or process_bus)
