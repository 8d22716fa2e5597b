"""Choosing the sentences that carry a text or answer a question, always word for word and with their source.

May import `text`, `tokens`, `search` and what is below them.
Start with `selection.py`; then `ranking.py`, what makes a sentence worth choosing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.extract.disagreement import Disagreement, find_disagreements
    from holdfast.extract.grounding import Grounding, ground
    from holdfast.extract.passages import Passage, Source
    from holdfast.extract.selection import Extract, select

__all__ = ["Disagreement", "Extract", "Grounding", "Passage", "Source", "find_disagreements", "ground", "select"]

_WHERE = {
    "Disagreement": "disagreement",
    "Extract": "selection",
    "Grounding": "grounding",
    "Passage": "passages",
    "Source": "passages",
    "find_disagreements": "disagreement",
    "ground": "grounding",
    "select": "selection",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'holdfast.extract' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"holdfast.extract.{_WHERE[name]}"), name)
    globals()[name] = value
    return value
