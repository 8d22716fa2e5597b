"""Session state, the contract of a stage's output, and the store that keeps both.

May import `tokens`, `search`, `extract` and what is below them; never `context`, `memory` or `knowledge`.
Start with `store.py`, the promises; then `log.py`, how a session is kept, and `edits.py`, what a person changed by hand.
"""
