"""An open memory: what is known about the user, read for prompts and searches, and the queue from which it learns.

`service.py` has what changes it. Reading is from caches that hold until somebody writes (M7, M12).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from holdfast.config.memory_sections import Memory
from holdfast.errors import HoldfastError, StorageError
from holdfast.memory.document import Document, FactIndex, Match, to_json
from holdfast.memory.document_file import Layout
from holdfast.memory.facts import Turn
from holdfast.memory.history import Change, Held
from holdfast.memory.memory_store import MemoryStore, StorageState, check_agent, scope_name
from holdfast.memory.queue import MemoryQueue, Retry
from holdfast.memory.queue_tables import PostgresTables
from holdfast.memory.rendering import BlockView, Rendering, blocks_of, compose, remind
from holdfast.memory.storage import FileMemoryStorage, open_storage
from holdfast.memory.updater import Extractor, Flushed, Updater, Worker
from holdfast.storage.postgres_backend import PostgresBackend
from holdfast.tokens.counter import TokenCounter, open_counter
from holdfast.tracing import asked_about, span

if TYPE_CHECKING:
    from holdfast.config.sections import Config


_P = TypeVar("_P")
_RENDERINGS = 256  # held at once: agents times budgets

Extracting = Extractor | Callable[[Document], Extractor]
"""An extractor, or a function that makes one for a document: for one that wants to know the summaries too."""


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


def _queue_of(store: MemoryStore, **parts: Any) -> MemoryQueue:
    """The queue, where the memory is: in files only this machine can learn into them; with PostgreSQL any machine can (W17).

    What waits in the file of a machine whose memory has moved to PostgreSQL moves after it.
    """
    local = MemoryQueue(store.layout.base / "memory.d" / "queue.db", clock=store.clock, **parts)
    if not isinstance(store.backend, PostgresBackend):
        return local
    return MemoryQueue(PostgresTables(store.backend), earlier=local, **parts)


class OpenMemory:
    """What memory reads and learns. Safe for many threads and processes."""

    def __init__(
        self,
        store: MemoryStore,
        *,
        settings: Memory | None = None,
        extractor: Extracting | None = None,
        counter: TokenCounter | None = None,
        queue: MemoryQueue | None = None,
        retry: Retry | None = None,
    ) -> None:
        self._store = store
        self.settings = settings or Memory()
        self._queue = queue or _queue_of(store, debounce=self.settings.debounce_seconds, retry=retry, ids=store.ids, bus=store.bus)
        self._counter = counter
        self._extractor = extractor
        self._worker: Worker | None = None
        self._renderings: dict[tuple[str | None, int], tuple[Document, Rendering]] = {}
        self._indexes: dict[str | None, tuple[Document, FactIndex]] = {}
        self._threads = threading.Lock()
        self._closed = False

    @classmethod
    def open(cls, config: Config, *, extractor: Extracting | None = None, counter: TokenCounter | None = None, **parts: Any) -> Self:
        """The memory that the configuration describes. `parts` (clock, ids, bus, disk) go to the storage."""
        return cls(open_storage(config, **parts), settings=config.memory, extractor=extractor, counter=counter)

    @classmethod
    def at(cls, base: str | Path, *, extractor: Extracting | None = None, settings: Memory | None = None, **parts: Any) -> Self:
        """Memory in a base directory, without any configuration file."""
        chosen = settings or Memory()
        layout = Layout.below(base, chosen.storage_path, inherit=chosen.inherit)
        return cls(FileMemoryStorage(layout, **parts), settings=chosen, extractor=extractor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed: it does not open again by itself."""
        return self._closed

    @property
    def store(self) -> MemoryStore:
        """The documents of all scopes. StorageError if memory was closed."""
        return self._opened(self._store)

    @property
    def queue(self) -> MemoryQueue:
        """What waits to be learned from. StorageError if memory was closed."""
        return self._opened(self._queue)

    def _opened(self, part: _P) -> _P:
        if self._closed:
            base = self._store.layout.base
            raise StorageError.closed(f"the memory in {base}", base)
        return part

    def close(self, timeout: float = 10.0) -> Flushed:
        """Learn from what waits, for at most `timeout` seconds, and let go of everything. What is left stays on disk.

        Harmless when done twice; everything else afterwards is a StorageError.
        """
        done = self._worker.close(timeout) if self._worker is not None else Flushed()
        self.let_go()
        return done

    def let_go(self) -> None:
        """Let go of everything without learning from what waits."""
        self._closed = True
        self._queue.close()
        with self._threads:
            for _, index in self._indexes.values():
                index.close()
            self._indexes.clear()
        self._store.close()

    def status(self) -> Status:
        """How memory is doing."""
        scopes = list(self.store.scopes())
        items = self.queue.items() if self.queue.is_there() else []
        return Status(
            enabled=self.settings.enabled,
            injection=self._injects,
            storage=self.store.state,
            facts={scope_name(agent): len(own.facts) for agent in scopes if (own := self.store.own(agent)) is not None},
            waiting=sum(1 for item in items if item.gave_up is None),
            given_up=sum(1 for item in items if item.gave_up is not None),
            held=sum(len(self.store.held(agent)) for agent in scopes),
        )

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
    def learns_by_rules(self) -> bool:
        """Whether no model is asked, so that learning takes no time to speak of. False also where the model cannot be made."""
        from holdfast.memory.rules import RulesExtractor

        try:
            extractor = self._extractor(Document()) if callable(self._extractor) else self._extractor
        except HoldfastError:
            return False
        return extractor is None or isinstance(extractor, RulesExtractor)

    def retry_given_up(self) -> int:
        """Put the conversations that were given up in line again, to be tried as if new; says how many."""
        return self.queue.retry_given_up() if self.queue.is_there() else 0

    @property
    def worker(self) -> Worker:
        """Who works through the queue."""
        with self._threads:
            if self._worker is None:
                self._worker = Worker(self._updater(), enabled=self.settings.enabled)
            return self._opened(self._worker)

    def _updater(self) -> Updater:
        extractor = self._extractor
        if extractor is None:
            from holdfast.memory.rules import RulesExtractor  # its tables of patterns are made when somebody first learns something

            extractor = RulesExtractor()
        settings = self.settings
        return Updater(
            self._store,
            self._queue,
            extractor,
            threshold=settings.fact_confidence_threshold,
            max_facts=settings.max_facts,
            shown=lambda agent: self._composed(agent, settings.max_injection_tokens).text,
        )

    # Reading: the text for the prompt, reminders, and search, from caches that hold until somebody writes (M7, M12)

    @property
    def counter(self) -> TokenCounter:
        """Counts the tokens of what is injected, as `memory.token_counter` says."""
        if self._counter is None:
            self._counter = open_counter(self.settings.token_counter, bus=self._store.bus)
        return self._counter

    @property
    def _injects(self) -> bool:
        return self.settings.enabled and self.settings.injection_enabled

    def document(self, agent: str | None = None) -> Document:
        """What an agent reads."""
        return self.store.document(agent)

    def render_for(self, agent: str | None = None, budget: int | None = None) -> str:
        """The text for the prompt; empty when injection is off. From a cache until somebody learns something."""
        return self.rendering_for(agent, budget).text

    def rendering_for(self, agent: str | None = None, budget: int | None = None) -> Rendering:
        """The text for the prompt with its tokens and the ids of the facts in it. `budget` may lower `max_injection_tokens`."""
        if not self._injects:
            check_agent(agent)
            return Rendering()
        most = self._opened(self.settings).max_injection_tokens
        return self._composed(agent, most if budget is None else min(budget, most))

    def _composed(self, agent: str | None, budget: int) -> Rendering:
        document = self._store.document(agent)  # also for a worker that has not finished when the service is closed
        held = self._renderings.get((agent, budget))
        if held is not None and (held[0] is document or held[0] == document):
            return held[1]
        rendering = compose(document, budget, self.counter.count_text)
        if len(self._renderings) >= _RENDERINGS:
            self._renderings.clear()
        self._renderings[agent, budget] = (document, rendering)
        return rendering

    def reminder_for(
        self, agent: str | None = None, question: str = "", *, shown: Collection[str] = (), budget: int = 300, top_k: int = 5
    ) -> Rendering:
        """Facts for a reminder in the conversation: those that the question is about and that are not `shown` already (S19).

        Empty unless `injection: relevant` is set. What was learned since is `learned_since`.
        """
        if not self._injects or self.settings.injection != "relevant" or not question.strip():
            return Rendering()
        found = self._index(agent).search(question, top_k, besides=(*shown, *self._unsettled(agent)))
        return remind((match.fact for match in found), budget, self.counter.count_text)

    def learned_since(self, moment: str, agent: str | None = None, *, shown: Collection[str] = (), budget: int = 300) -> Rendering:
        """Facts that were made after a moment (ISO) and are not shown yet, for a reminder (S19)."""
        if not self._injects:
            return Rendering()
        new = [fact for fact in self.store.document(agent).facts if fact.created > moment and fact.id not in shown]
        return remind(new, budget, self.counter.count_text)

    def search(self, question: str, agent: str | None = None, top_k: int = 10) -> list[Match]:
        """The facts that fit a question, best first; what waits for a person is not among them."""
        with span("search_memory", agent or "user", "RETRIEVER", asked_about(question)) as traced:
            found = self._index(agent).search(question, top_k, besides=self._unsettled(agent))
            traced.set({"holdfast.found": len(found)})
            return found

    def _unsettled(self, agent: str | None) -> tuple[str, ...]:
        return tuple(fact.id for fact in self.store.document(agent).facts if fact.status != "active")

    def _index(self, agent: str | None) -> FactIndex:
        document = self.store.document(agent)
        with self._threads:
            held = self._indexes.get(agent)
            if held is None or (held[0] is not document and held[0] != document):
                if held is not None:
                    held[1].close()
                held = self._indexes[agent] = (document, FactIndex(document))
            return held[1]

    def history(self, agent: str | None = None, *, fact: str | None = None, last: int | None = None) -> list[Change]:
        """The changes of a scope, oldest first; those of one fact; the last few."""
        self.store.recover(agent)  # a change that is written down but not carried out yet must not be told as if it were
        changes = self.store.changes(agent)
        if fact is not None:
            changes = [change for change in changes if any(one.id == fact for one in change.differences)]
        return changes[-last:] if last else changes

    def review(self, agent: str | None = None) -> list[Held]:
        """What waits for a person: candidates, and facts that an earlier version took in without the user's word."""
        why = "was taken in by an earlier version without being in the user's own words"
        weak = [fact for fact in self.store.document(agent).facts if fact.status == "provisional"]
        return [*self.store.held(agent), *(Held(fact.id, fact.created, fact, why, "provisional", fact.origin.thread) for fact in weak)]

    def export(self, agent: str | None = None) -> dict[str, Any]:
        """The document that an agent reads, in the form of `memory.json`. Damaged if it was damaged and nothing took its place."""
        self.store.check_lost(agent)
        return to_json(self.store.document(agent))

    def blocks(self, agent: str | None = None) -> list[BlockView]:
        """The editable blocks as they are now."""
        return blocks_of(self.store.document(agent), self.settings.blocks)

    def shown_blocks(self, agent: str | None = None) -> list[BlockView]:
        """The blocks that stand in the prompt; none when injection is off."""
        return self.blocks(agent) if self.settings.blocks and self._injects else []
