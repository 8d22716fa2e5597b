"""Records that can be searched for: the store contract and its adapters.

May import `tokens`, `search`, `extract` and what is below them; never `context`, `memory` or `session`.
Start with `store.py`, the contract; then `records.py`, and `opening.py`, which chooses the adapter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazily import exports

if TYPE_CHECKING:
    from holdfast.knowledge.opening import of_vector_store, open_knowledge
    from holdfast.knowledge.records import Hit, Record, Why
    from holdfast.knowledge.store import AddReport, KnowledgeStore, Stats

__all__ = ["AddReport", "Hit", "KnowledgeStore", "Record", "Stats", "Why", "of_vector_store", "open_knowledge"]

_WHERE = {
    "opening": ("of_vector_store", "open_knowledge"),
    "records": ("Hit", "Record", "Why"),
    "store": ("AddReport", "KnowledgeStore", "Stats"),
}
__getattr__, __dir__ = exports(__name__, _WHERE)
