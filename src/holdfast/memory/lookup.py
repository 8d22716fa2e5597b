"""Finding facts by words. The index lives in memory and is made from a document when somebody searches it: there is no file to forget."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from holdfast.memory.document import Document
from holdfast.memory.facts import Fact
from holdfast.search.fulltext import Document as Page
from holdfast.search.fulltext import FullTextIndex, Shape

_SHAPE = Shape({"content": 1.0, "category": 0.3, "quote": 0.5})


@dataclass(frozen=True)
class Match:
    """A fact that was found, how well it fits, and the words that it shares with the question."""

    fact: Fact
    score: float
    words: tuple[str, ...]


class FactIndex:
    """The facts of one document, ready to be searched. Safe for many threads."""

    def __init__(self, document: Document) -> None:
        self._facts = {fact.id: fact for fact in document.facts}
        self._index = FullTextIndex(":memory:", _SHAPE)
        self._index.add(
            Page(fact.id, {"content": fact.content, "category": fact.category, "quote": fact.origin.quote or ""}, time=fact.created)
            for fact in document.facts
        )

    def search(self, question: str, top_k: int = 10, *, besides: Collection[str] = ()) -> list[Match]:
        """The facts that fit best, best first, without those whose ids are in `besides`. Any text is a question."""
        among = self._facts.keys() - set(besides) if besides else None
        found = self._index.search(question, top_k, among=among)
        return [Match(self._facts[one.id], one.score, tuple(one.matched)) for one in found]

    def close(self) -> None:
        """Let go of the index."""
        self._index.close()
