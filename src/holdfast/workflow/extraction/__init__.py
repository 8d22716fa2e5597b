"""Stage agents that work without a model: they split, select, group and quote, and generate nothing (W18).

May import the other modules of `workflow`, and `memory`, `knowledge`, `session`, `extract`, `search`, `text` and what is below them.
Start with `planner.py` and `planning.py`; then `researcher.py`, `synthesizer.py` and `writer.py` in the order in which they run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazily import exports

if TYPE_CHECKING:
    from holdfast.workflow.extraction.coder import Coder, Ran, RunCode
    from holdfast.workflow.extraction.llm import Plain
    from holdfast.workflow.extraction.planner import Planner
    from holdfast.workflow.extraction.planning import split_task
    from holdfast.workflow.extraction.questions import TaskQuestion
    from holdfast.workflow.extraction.report import render
    from holdfast.workflow.extraction.researcher import Researcher
    from holdfast.workflow.extraction.synthesis import Synthesis, synthesize
    from holdfast.workflow.extraction.synthesizer import Synthesizer
    from holdfast.workflow.extraction.writer import Writer

__all__ = [
    "Coder", "Plain", "Planner", "Ran", "Researcher", "RunCode", "Synthesis", "Synthesizer", "TaskQuestion", "Writer", "render",
    "split_task", "synthesize",
]  # fmt: skip

_WHERE = {
    "coder": ("Coder", "Ran", "RunCode"),
    "llm": ("Plain",),
    "planner": ("Planner",),
    "planning": ("split_task",),
    "questions": ("TaskQuestion",),
    "report": ("render",),
    "researcher": ("Researcher",),
    "synthesis": ("Synthesis", "synthesize"),
    "synthesizer": ("Synthesizer",),
    "writer": ("Writer",),
}
__getattr__, __dir__ = exports(__name__, _WHERE)
