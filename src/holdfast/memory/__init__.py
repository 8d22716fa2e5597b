"""What is known about the user: facts with origin, gate, history and undo.

May import `tokens`, `search`, `extract` and what is below them; never `context`, `knowledge` or `session`.
Nothing is built here yet.
"""
