"""Session state, the contract of a stage's output, and the stores that keep both.

May import `tokens`, `search`, `extract` and what is below them; never `context`, `memory` or `knowledge`.
Nothing is built here yet.
"""
