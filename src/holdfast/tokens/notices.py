"""Saying a thing once: a warning that would come with every call is said the first time only."""

from __future__ import annotations

import threading


class Notices:
    """Remembers what was said. Safe for many threads; keeps at most `most` keys and then starts over, so that it cannot grow for ever."""

    def __init__(self, most: int = 1000) -> None:
        self._said: set[str] = set()
        self._most = most
        self._lock = threading.Lock()

    def first(self, key: str) -> bool:
        """True the first time that this key is asked for."""
        with self._lock:
            if key in self._said:
                return False
            if len(self._said) >= self._most:
                self._said.clear()
            self._said.add(key)
            return True
