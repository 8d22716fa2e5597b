"""Counting tokens, knowing a model's window, splitting it into a budget, and keeping accounts of usage and cost.

May import `text`, `config`, `durable` and what is below them.
Start with `counter.py`, the seam; then `budget.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazily import exports

if TYPE_CHECKING:
    from holdfast.tokens.accounts import Accounts, Charge, Entry, Limits, PriceUnknown, Tally
    from holdfast.tokens.approximate import ApproximateCounter
    from holdfast.tokens.budget import Budget, Share
    from holdfast.tokens.calibration import Calibration
    from holdfast.tokens.counter import BaseCounter, CallableCounter, TokenCounter, VocabularyMissing, open_counter
    from holdfast.tokens.exact import ExactCounter
    from holdfast.tokens.ledger import Ledger, MessageCounts
    from holdfast.tokens.messages import Message
    from holdfast.tokens.usage import Price, Usage
    from holdfast.tokens.windows import DEFAULT_WINDOW, Window, WindowUnknown, find_window, window_of

__all__ = [
    "DEFAULT_WINDOW",
    "Accounts",
    "ApproximateCounter",
    "BaseCounter",
    "Budget",
    "Calibration",
    "CallableCounter",
    "Charge",
    "Entry",
    "ExactCounter",
    "Ledger",
    "Limits",
    "Message",
    "MessageCounts",
    "Price",
    "PriceUnknown",
    "Share",
    "Tally",
    "TokenCounter",
    "Usage",
    "VocabularyMissing",
    "Window",
    "WindowUnknown",
    "find_window",
    "open_counter",
    "window_of",
]

_WHERE = {
    "accounts": ("Accounts", "Charge", "Entry", "Limits", "PriceUnknown", "Tally"),
    "approximate": ("ApproximateCounter",),
    "budget": ("Budget", "Share"),
    "calibration": ("Calibration",),
    "counter": ("BaseCounter", "CallableCounter", "TokenCounter", "VocabularyMissing", "open_counter"),
    "exact": ("ExactCounter",),
    "ledger": ("Ledger", "MessageCounts"),
    "messages": ("Message",),
    "usage": ("Price", "Usage"),
    "windows": ("DEFAULT_WINDOW", "Window", "WindowUnknown", "find_window", "window_of"),
}
__getattr__, __dir__ = exports(__name__, _WHERE)
