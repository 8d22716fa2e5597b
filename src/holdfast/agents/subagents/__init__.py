"""Sub-agents: a part of the work handed to an agent with a window, a thread and limits of its own, which gives back a typed result.

May import what `agents` may; nothing here is imported before an agent is made.
Start with `executor.py`; the types of sub-agent and what comes back are in `task_types.py`.
"""
