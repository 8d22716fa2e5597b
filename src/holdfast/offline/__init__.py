"""Stage agents that work without a model: they split, select, group and quote, and generate nothing (W18).

May import the other modules of `workflow`, and `memory`, `knowledge`, `session`, `extract`, `search`, `text` and what is below them.
Start with `planner.py` and `planning.py`; then `researcher.py`, `synthesizer.py` and `writer.py` in the order in which they run.
"""
