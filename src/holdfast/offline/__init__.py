"""Stage agents that work without a model: they split, select, group and quote, and generate nothing (W18).

May import `workflow`, and `memory`, `knowledge`, `session`, `extract`, `search`, `text` and what is below them. Start with
`planner.py`; then `researcher.py`, `synthesizer.py` and `writer.py` in the order in which they run. What they read comes from
`sources.py` as `documents.py`.
"""
