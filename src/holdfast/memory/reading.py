"""What is read from memory: the text for the prompt, reminders, and search. From caches that hold until somebody writes (M7, M12)."""

from __future__ import annotations

import threading
from collections.abc import Collection

from holdfast.config.memory_sections import Memory
from holdfast.memory.changing import Store
from holdfast.memory.document import Document
from holdfast.memory.lookup import FactIndex, Match
from holdfast.memory.rendering import Rendering, compose, remind
from holdfast.memory.scopes import check_agent
from holdfast.tokens.counter import TokenCounter, open_counter

_KEPT = 256  # renderings held at once: agents times budgets


class MemoryReader:
    """Reads memory for a prompt or a person. Safe for many threads."""

    def __init__(self, store: Store, settings: Memory | None = None, counter: TokenCounter | None = None) -> None:
        self.store = store
        self.settings = settings or Memory()
        self._counter = counter
        self._renderings: dict[tuple[str | None, int], tuple[Document, Rendering]] = {}
        self._indexes: dict[str | None, tuple[Document, FactIndex]] = {}
        self._threads = threading.Lock()

    @property
    def counter(self) -> TokenCounter:
        """Counts the tokens of what is injected, as `memory.token_counter` says."""
        if self._counter is None:
            self._counter = open_counter(self.settings.token_counter, bus=self.store.bus)
        return self._counter

    def render_for(self, agent: str | None = None, budget: int | None = None) -> str:
        """The text for the prompt; empty when injection is off. From a cache until somebody learns something."""
        return self.rendering_for(agent, budget).text

    def rendering_for(self, agent: str | None = None, budget: int | None = None) -> Rendering:
        """The same with its tokens and the ids of the facts in it. `budget` may lower `max_injection_tokens`."""
        if not (self.settings.enabled and self.settings.injection_enabled):
            check_agent(agent)
            return Rendering()
        most = self.settings.max_injection_tokens
        return self._composed(agent, most if budget is None else min(budget, most))

    def _composed(self, agent: str | None, budget: int) -> Rendering:
        document = self.store.document(agent)
        held = self._renderings.get((agent, budget))
        if held is not None and (held[0] is document or held[0] == document):
            return held[1]
        rendering = compose(document, budget, self.counter.count_text)
        if len(self._renderings) >= _KEPT:
            self._renderings.clear()
        self._renderings[agent, budget] = (document, rendering)
        return rendering

    def reminder_for(
        self, agent: str | None = None, question: str = "", *, shown: Collection[str] = (), budget: int = 300, top_k: int = 5
    ) -> Rendering:
        """Facts for a reminder in the conversation: those that the question is about and that are not `shown` already (S19).

        Empty unless `injection: relevant` is set. What was learned since is `learned_since`.
        """
        if not (self.settings.enabled and self.settings.injection_enabled) or self.settings.injection != "relevant" or not question.strip():
            return Rendering()
        found = self._index(agent).search(question, top_k, besides=shown)
        return remind((match.fact for match in found), budget, self.counter.count_text)

    def learned_since(self, moment: str, agent: str | None = None, *, shown: Collection[str] = (), budget: int = 300) -> Rendering:
        """Facts that were made after a moment (ISO) and are not shown yet, for a reminder (S19)."""
        if not (self.settings.enabled and self.settings.injection_enabled):
            return Rendering()
        new = [fact for fact in self.store.document(agent).facts if fact.created > moment and fact.id not in shown]
        return remind(new, budget, self.counter.count_text)

    def search(self, question: str, agent: str | None = None, top_k: int = 10) -> list[Match]:
        """The facts that fit a question, best first."""
        return self._index(agent).search(question, top_k)

    def _index(self, agent: str | None) -> FactIndex:
        document = self.store.document(agent)
        with self._threads:
            held = self._indexes.get(agent)
            if held is None or (held[0] is not document and held[0] != document):
                if held is not None:
                    held[1].close()
                held = self._indexes[agent] = (document, FactIndex(document))
            return held[1]

    def document(self, agent: str | None = None) -> Document:
        """What an agent reads."""
        return self.store.document(agent)

    def _close_indexes(self) -> None:
        with self._threads:
            for _, index in self._indexes.values():
                index.close()
            self._indexes.clear()
