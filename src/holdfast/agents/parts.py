"""What all agents of a process share: checkpoints, archive, memory, accounts, the list of threads, the loop that they run on.

`open_parts(config)` makes them for a program that wants an agent and nothing else; `Harness` gives it those that it has opened already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, Unpack

from holdfast.agents.checkpoints import Checkpoints, open_checkpoints
from holdfast.agents.memory_service import open_memory
from holdfast.agents.middleware.accounting import RunAccounts
from holdfast.agents.middleware.lead_features import Titles
from holdfast.agents.threads import Threads, known_in
from holdfast.agents.tools.mcp_tools import McpServers, open_mcp
from holdfast.agents.turn import LoopThread
from holdfast.clock import Clock, SystemClock
from holdfast.context.archive import FileArchive
from holdfast.durable.disk import REAL, Disk, make_folders
from holdfast.errors import HoldfastError
from holdfast.events import Bus
from holdfast.events import bus as process_bus
from holdfast.ids import IdSource, RandomIds
from holdfast.models.abilities import require
from holdfast.models.factory import create_chat_model, summary_model

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from holdfast.config.sections import Config
    from holdfast.context.recall import LongTerm
    from holdfast.knowledge.store import KnowledgeStore
    from holdfast.memory.service import MemoryService


class Given(TypedDict, total=False):
    """What may be given to `open_parts`, and stays the caller's to close. The rest is made from the configuration."""

    clock: Clock | None
    ids: IdSource | None
    bus: Bus | None
    disk: Disk | None
    checkpointer: Checkpoints | None
    archive: FileArchive | None
    memory: MemoryService | None
    accounts: RunAccounts | None
    knowledge: Callable[[], KnowledgeStore] | None
    models: Mapping[str, BaseChatModel] | None
    """Chat models that were made already, by their names in the configuration."""


@dataclass(frozen=True)
class Parts:
    """What all agents of a process share. Close it when done; what was queued for memory is learned from then."""

    config: Config
    checkpoints: Checkpoints
    archive: FileArchive
    memory: MemoryService
    accounts: RunAccounts
    threads: Threads
    loop: LoopThread
    places: asyncio.Semaphore
    """As many sub-agents as may run at once."""
    titles: Titles
    mcp: McpServers
    """The MCP servers of the configuration; their sessions are held once in a process, whoever asks."""
    long_term: LongTerm | None
    """What the knowledge store has about a message, where `summarization.recall.knowledge` is on."""
    models: Mapping[str, BaseChatModel]
    clock: Clock
    ids: IdSource
    bus: Bus
    disk: Disk
    opened: ExitStack
    """Those of the parts that were made here and are closed here."""

    def close(self) -> None:
        """Stop what runs, and let go of files and databases."""
        self.loop.close()
        self.opened.close()


def open_parts(config: Config, **given: Unpack[Given]) -> Parts:
    """The parts as the configuration describes them. Those that are given stay the caller's to close."""
    clock, ids = given.get("clock") or SystemClock(), given.get("ids") or RandomIds()
    bus, disk = given.get("bus") or process_bus, given.get("disk") or REAL
    make_folders(disk, str(config.base))
    models = dict(given.get("models") or {})
    accounts = given.get("accounts") or RunAccounts.of(config, bus=bus)
    with ExitStack() as opened:  # what was opened is closed again if the next one cannot be
        checkpoints = given.get("checkpointer")
        if checkpoints is None:
            checkpoints = open_checkpoints(config.base)
            opened.callback(checkpoints.close)
        archive = given.get("archive")
        if archive is None:
            archive = FileArchive(config.base, disk=disk, clock=clock)
            opened.callback(archive.close)
        memory = given.get("memory")
        if memory is None:
            memory = open_memory(config, accounts=accounts, clock=clock, ids=ids, bus=bus, disk=disk)
            opened.callback(memory.close)
        return Parts(
            config,
            checkpoints,
            archive,
            memory,
            accounts,
            Threads(config.base, checkpoints, archive, clock=clock),
            LoopThread(),
            asyncio.Semaphore(config.subagents.max_concurrent),
            Titles.of(config, _title_model(config, models), accounts),
            opened.enter_context(closing(open_mcp(config, clock=clock, bus=bus))),
            _long_term(config, given.get("knowledge"), opened, bus),
            models,
            clock,
            ids,
            bus,
            disk,
            opened.pop_all(),
        )
    raise AssertionError  # for the type checker: nothing above is swallowed


def _long_term(config: Config, given: Callable[[], KnowledgeStore] | None, opened: ExitStack, bus: Bus) -> LongTerm | None:
    if not config.summarization.recall.knowledge:
        return None
    if given is None:
        from holdfast.knowledge.adapters import open_knowledge

        store = opened.enter_context(closing(open_knowledge(config)))
        given = lambda: store  # noqa: E731 - a name for what is one already
    return known_in(given, config.memory.long_term_memory.min_trust, bus)


def _title_model(config: Config, models: Mapping[str, BaseChatModel]) -> BaseChatModel | None:
    """The light model that may be asked for a title: one that can write a summary; None where there is none."""
    name = config.title.model_name
    if not config.title.enabled or (name is None and not config.models):
        return None
    try:
        if name is None:
            return summary_model(config)
        model = models.get(name) or create_chat_model(name, config=config)
        require(model, "summary")
    except HoldfastError:  # a title is never worth an error: the user's own words do as well
        return None
    return model
