"""Working memory: what goes into the window, what leaves it, and the archive that holds everything that left.

May import `tokens`, `search`, `extract` and what is below them; never `memory`, `knowledge` or `session`.
Start reading at `window.py`: what every model call asks.
"""
