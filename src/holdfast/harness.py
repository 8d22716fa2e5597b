"""`build(config)`: the one place that knows the concrete classes.

Clock, ids, disk and bus are parameters here and nowhere else a choice, so the same code runs under a fake clock and a simulated disk.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.clock import Clock, SystemClock
from holdfast.config.loading import load_config
from holdfast.config.sections import Config
from holdfast.durable.disk import REAL, Disk, make_folders
from holdfast.events import Bus, Event
from holdfast.events import bus as process_bus
from holdfast.ids import IdSource, RandomIds
from holdfast.tokens.budget import Budget
from holdfast.tokens.counter import TokenCounter, open_counter
from holdfast.tokens.windows import find_window

if TYPE_CHECKING:
    from holdfast.agents.lead import LeadAgent
    from holdfast.context.archive import FileArchive
    from holdfast.knowledge.store import KnowledgeStore
    from holdfast.memory.service import MemoryService
    from holdfast.session.state import Session
    from holdfast.session.store import SessionStore
    from holdfast.workflow.launcher import WorkflowSource


@dataclass(frozen=True, kw_only=True)
class ConfigUpgraded(Event):
    """The configuration has an older schema and was read as the current one."""

    component: ClassVar[str] = "Config"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "{message}"
    message: str


@dataclass(frozen=True)
class Harness:
    """Everything that a program needs of Holdfast, made from one configuration. Parts are made when they are first asked for."""

    config: Config
    clock: Clock = field(default_factory=SystemClock)
    ids: IdSource = field(default_factory=RandomIds)
    disk: Disk = REAL
    bus: Bus = process_bus

    @property
    def base(self) -> Path:
        """The folder that holds all state."""
        return self.config.base

    def make_base(self) -> Path:
        """The base directory, made durably if it was not there. Raises NotWritable, naming it, when it cannot be."""
        make_folders(self.disk, str(self.base))
        return self.base

    @cached_property
    def counter(self) -> TokenCounter:
        """Counts tokens for the first configured model, in the way that `summarization.token_counter` says."""
        model = next(iter(self.config.models), None)
        return open_counter(self.config.summarization.token_counter, model=model.model if model else None, bus=self.bus)

    @cached_property
    def archive(self) -> FileArchive:
        """Everything that was ever said in a thread."""
        from holdfast.context.archive import FileArchive

        return FileArchive(self.base, disk=self.disk, clock=self.clock)

    @cached_property
    def memory(self) -> MemoryService:
        """What is known about the user, with the extractor that the configuration describes."""
        from holdfast.agents.memory_service import open_memory

        return open_memory(self.config, clock=self.clock, ids=self.ids, bus=self.bus, disk=self.disk)

    @cached_property
    def knowledge(self) -> KnowledgeStore:
        """Long-term records: the store that the configuration describes, or the one that its session sets (W1)."""
        from holdfast.knowledge.opening import open_knowledge

        return open_knowledge(self.config, clock=self.clock, bus=self.bus, counter=self.counter)

    @cached_property
    def sessions(self) -> SessionStore:
        """The sessions of workflows: files, or the database that the configuration names (W16)."""
        from holdfast.session.opening import open_sessions

        return open_sessions(self.config, disk=self.disk, clock=self.clock)

    def run_workflow(self, workflow: WorkflowSource, **settings: Any) -> Session:
        """Run a workflow with the sessions, the long-term memory and the models of this configuration. As `holdfast.run_workflow`."""
        from holdfast.workflow.launcher import run_workflow

        return run_workflow(workflow, **self._parts(settings))

    def resume(self, session_id: str, **settings: Any) -> Session:
        """Go on with a session. As `holdfast.resume`."""
        from holdfast.workflow.launcher import resume

        return resume(session_id, **self._parts(settings))

    def _parts(self, settings: dict[str, Any]) -> dict[str, Any]:
        model = settings.get("model")
        if "agents" not in settings and (self.config.models or model is not None):
            from holdfast.agents.stages.opening import stage_agents

            settings = {**settings, "agents": stage_agents(self.config, model=model)}
        own = {"config": self.config, "clock": self.clock, "ids": self.ids, "disk": self.disk, "bus": self.bus, "remember": True}
        return {**own, **settings}

    def lead_agent(self, name: str | None = None, **parts: Any) -> LeadAgent:
        """The agent that a user talks to, by the name of its settings. `parts` as in `make_lead_agent`. Close it when done."""
        from holdfast.agents.lead import make_lead_agent

        return make_lead_agent(self.config, agent=name, **{"clock": self.clock, "ids": self.ids, "bus": self.bus, **parts})

    def window(self, model: str | None = None) -> int:
        """The window of a configured model (the first one by default), in tokens."""
        settings = self.config.model(model) if model else next(iter(self.config.models), None)
        return find_window(settings, name=settings.name if settings else None, bus=self.bus).tokens

    def budget(self, model: str | None = None) -> Budget:
        """How that window is split."""
        return Budget.split(self.window(model), self.config.memory.max_injection_tokens)


def build(
    config: Config | str | Path | None = None,
    *,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    disk: Disk | None = None,
    bus: Bus | None = None,
) -> Harness:
    """A harness from a configuration, a path of one, or whatever `load_config` finds."""
    loaded = config if isinstance(config, Config) else load_config(config)
    harness = Harness(loaded, clock or SystemClock(), ids or RandomIds(), disk or REAL, bus or process_bus)
    for notice in loaded.warnings:
        if notice.kind == "upgraded":  # the others are for `config check`; this one says that the file is not what is in use
            harness.bus.emit(ConfigUpgraded(message=str(notice)))
    return harness
