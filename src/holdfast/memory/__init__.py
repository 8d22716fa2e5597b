"""What is known about the user: facts with origin, gate, history and undo.

May import `tokens`, `search`, `extract` and what is below them; never `context`, `knowledge` or `session`.
Start with `service.py`, which all others use; then `document.py` (the file), `memory_store.py` (how it is changed once) and `gate.py`.
"""
