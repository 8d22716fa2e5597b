"""Counting tokens, knowing a model's window, splitting it into a budget, and keeping accounts of usage and cost.

May import `text`, `config`, `durable` and what is below them.
Start with `counter.py`, the seam; then `budget.py`.
"""
