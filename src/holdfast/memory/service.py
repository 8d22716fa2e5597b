"""`MemoryService`: memory as a middleware, the command line, the API and an agent's tools use it.

    with MemoryService.open(load_config()) as memory:
        memory.enqueue("thread-7", turns_of(messages))
        memory.render_for("coder")          # the text for the prompt

In a server `start()` lets a thread of its own work through the queue. In a short script nothing need be started: what is queued is on
disk, and `flush()`, or the end of the process, learns from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.config.memory_sections import Memory
from holdfast.memory.changing import StorageState, Store
from holdfast.memory.document import Document
from holdfast.memory.editing import MemoryEditor
from holdfast.memory.facts import Turn
from holdfast.memory.forgetting import Forgotten, forget_fact, forget_text
from holdfast.memory.queue import MemoryQueue, Retry
from holdfast.memory.scopes import Scopes, check_agent, scope_name
from holdfast.memory.storage import FileMemoryStorage, open_storage
from holdfast.memory.updater import Extractor, Updater
from holdfast.memory.worker import Flushed, Worker
from holdfast.tokens.counter import TokenCounter

if TYPE_CHECKING:
    from holdfast.config.sections import Config


@dataclass(frozen=True)
class Status:
    """How memory is doing, for `doctor` and the API."""

    enabled: bool
    injection: bool
    storage: StorageState
    facts: Mapping[str, int]
    waiting: int
    given_up: int
    held: int


class MemoryService(MemoryEditor):
    """One object for everything that is done with memory. Safe for many threads.

    `agent` is None for the global memory everywhere; names are checked. With `memory.enabled: false` nothing is queued, learned or
    injected, and everything can still be looked at and edited.
    """

    def __init__(
        self,
        store: Store,
        *,
        settings: Memory | None = None,
        extractor: Extractor | Callable[[Document], Extractor] | None = None,
        counter: TokenCounter | None = None,
        queue: MemoryQueue | None = None,
        retry: Retry | None = None,
    ) -> None:
        super().__init__(store, settings, counter)
        place = store.scopes.base / "memory.d" / "queue.db"
        self.queue = queue or MemoryQueue(
            place, debounce=self.settings.debounce_seconds, retry=retry, clock=store.clock, ids=store.ids, bus=store.bus
        )
        self._extractor = extractor
        self._worker: Worker | None = None

    @classmethod
    def open(
        cls,
        config: Config,
        *,
        extractor: Extractor | Callable[[Document], Extractor] | None = None,
        counter: TokenCounter | None = None,
        **parts: Any,
    ) -> MemoryService:
        """The memory that the configuration describes. `parts` (clock, ids, bus, disk) go to the storage."""
        return cls(open_storage(config, **parts), settings=config.memory, extractor=extractor, counter=counter)

    @classmethod
    def at(
        cls,
        base: str | Path,
        *,
        extractor: Extractor | Callable[[Document], Extractor] | None = None,
        settings: Memory | None = None,
        **parts: Any,
    ) -> MemoryService:
        """Memory in a base directory, without any configuration file."""
        chosen = settings or Memory()
        scopes = Scopes.below(base, chosen.storage_path, inherit=chosen.inherit)
        return cls(FileMemoryStorage(scopes, **parts), settings=chosen, extractor=extractor)

    def __enter__(self) -> MemoryService:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self, timeout: float = 10.0) -> Flushed:
        """Learn from what waits, for at most `timeout` seconds, and let go of everything. What is left stays on disk."""
        done = self._worker.close(timeout) if self._worker is not None else Flushed()
        self.let_go()
        return done

    def let_go(self) -> None:
        """Let go of everything without learning from what waits."""
        self.queue.close()
        self._close_indexes()
        self.store.close()

    # Learning

    def enqueue(self, thread: str, turns: Sequence[Turn], agent: str | None = None) -> str | None:
        """Queue turns to learn from; durable on return. None if memory is off or there is nothing new in them."""
        if not self.settings.enabled or self.settings.mode == "tool" or not turns:
            check_agent(agent)
            return None
        id = self.queue.put(thread, turns, agent)
        self.worker.notice()
        return id

    def start(self, *, signals: bool = True) -> None:
        """Work through the queue in a thread of its own, first of all what an earlier process left. For servers."""
        self.worker.start(signals=signals)

    def flush(self, timeout: float | None = None) -> Flushed:
        """Learn from everything that waits, now; says how many items are done, have failed, and are left."""
        return self.worker.flush(timeout)

    @property
    def worker(self) -> Worker:
        """Who works through the queue."""
        with self._threads:
            if self._worker is None:
                self._worker = Worker(self._updater(), enabled=self.settings.enabled)
            return self._worker

    def _updater(self) -> Updater:
        extractor = self._extractor
        if extractor is None:
            from holdfast.memory.rules import RulesExtractor

            extractor = RulesExtractor()
        settings = self.settings
        return Updater(
            self.store,
            self.queue,
            extractor,
            threshold=settings.fact_confidence_threshold,
            max_facts=settings.max_facts,
            shown=lambda agent: self._composed(agent, settings.max_injection_tokens).text,
        )

    def retry_given_up(self) -> int:
        """Put the conversations that were given up in line again, to be tried as if new; says how many."""
        return self.queue.retry_given_up() if self.queue.path.exists() else 0

    def forget(self, id: str, agent: str | None = None) -> Forgotten:
        """Forget a fact for good: nothing of it stays in memory, history, queue or quarantine."""
        return forget_fact(self.store, self.queue, id, agent)

    def forget_text(self, text: str) -> Forgotten:
        """Forget everything in memory that holds a text, in all scopes."""
        return forget_text(self.store, self.queue, text)

    def status(self) -> Status:
        """How memory is doing."""
        scopes = list(self.store.all_scopes())
        items = self.queue.items() if self.queue.path.exists() else []
        return Status(
            enabled=self.settings.enabled,
            injection=self.settings.enabled and self.settings.injection_enabled,
            storage=self.store.state,
            facts={scope_name(agent): len(own.facts) for agent in scopes if (own := self.store.own(agent)) is not None},
            waiting=sum(1 for item in items if item.gave_up is None),
            given_up=sum(1 for item in items if item.gave_up is not None),
            held=sum(len(self.store.quarantine(agent).held()) for agent in scopes),
        )
