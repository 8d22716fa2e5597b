"""What is known about the user: facts with origin, gate, history and undo.

May import `tokens`, `search`, `extract` and what is below them; never `context`, `knowledge` or `session`.
Start with `service.py`, which everybody outside uses; then `document.py` (the file), `store.py` (how it is changed once) and `gate.py`.
"""
