"""Choosing the sentences that carry a text or answer a question, always word for word and with their source.

May import `text`, `tokens`, `search` and what is below them.
Start with `selection.py`; then `ranking.py`, what makes a sentence worth choosing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazily import exports

if TYPE_CHECKING:
    from holdfast.extract.disagreement import Disagreement, find_disagreements
    from holdfast.extract.grounding import Grounding, ground
    from holdfast.extract.passages import Passage, Source
    from holdfast.extract.selection import Extract, select

__all__ = ["Disagreement", "Extract", "Grounding", "Passage", "Source", "find_disagreements", "ground", "select"]

_WHERE = {
    "disagreement": ("Disagreement", "find_disagreements"),
    "grounding": ("Grounding", "ground"),
    "passages": ("Passage", "Source"),
    "selection": ("Extract", "select"),
}
__getattr__, __dir__ = exports(__name__, _WHERE)
