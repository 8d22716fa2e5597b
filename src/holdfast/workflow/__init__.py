"""Running stages one after the other so that a kill at any moment loses nothing.

May import the layers below it (`context`, `memory`, `knowledge`, `session`) and what is below them. Start with `agent.py`, the seam;
then `transitions.py`, what comes next as a pure function, and `runner.py`, the loop.
"""
