"""Sub-agents: a part of the work handed to an agent with a window, a thread and limits of its own, which gives back a typed result.

May import what `agents` may; nothing here is imported before an agent is made.
Start with `executor.py`; the types are in `registry.py`, what comes back is in `results.py`.
"""
