"""Working memory: what goes into the window, what leaves it, and the archive that holds everything that left.

May import `tokens`, `search`, `extract` and what is below them; never `memory`, `knowledge` or `session`.
Nothing is built here yet.
"""
