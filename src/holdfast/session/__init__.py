"""Session state, the contract of a stage's output, and the stores that keep both.

May import `tokens`, `search`, `extract` and what is below them; never `context`, `memory` or `knowledge`.
Start with `store.py`, the promises; then `state.py` and `output.py`, the values; then `files.py`, the store that is the default.
"""
