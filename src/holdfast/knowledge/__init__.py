"""Records that can be searched for: the store contract and its adapters.

May import `tokens`, `search`, `extract` and what is below them; never `context`, `memory` or `session`.
Start with `store.py`, the contract; then `records.py`, and `adapters.py`, which chooses the adapter.
"""
