"""Ids that count, so that a test sees the same ones in every run."""

from __future__ import annotations

import threading
from collections import Counter

from holdfast.ids import IdSource


class CountingIds(IdSource):
    """`run-000001`, `run-000002`, ...: each prefix counts for itself. Safe for many threads.

    >>> ids = CountingIds()
    >>> ids.new("run"), ids.new("run"), ids.new("fact"), ids.new()
    ('run-000001', 'run-000002', 'fact-000001', '000001')
    """

    def __init__(self, *, start: int = 1) -> None:
        self._lock = threading.Lock()
        self._made: Counter[str] = Counter()
        self._start = start

    def new(self, prefix: str = "") -> str:
        with self._lock:
            number = self._start + self._made[prefix]
            self._made[prefix] += 1
        return f"{prefix}-{number:06}" if prefix else f"{number:06}"
