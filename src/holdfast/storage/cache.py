"""What was read and parsed once, kept until somebody writes. Written once for every store (M7).

sessions = DocumentCache(backend, parse_session)
sessions.get("sessions/trip.json")        # parsed anew only after a write by anybody: a process, a person with an editor

points = LogCache(backend, list, add_point)
points.get("sessions/trip/log.jsonl")     # reads on from where it left off, from the beginning after a rewriting
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from holdfast.storage.backend import ABSENT, Backend, Mark

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Known(Generic[_Value]):
    """What is known of a key, and the mark for which it is true. `damage` says in words what of a log could not be read."""

    value: _Value
    mark: Mark
    damage: tuple[str, ...] = ()


class _Newest(Generic[_Value]):
    """The newest so many entries. Safe for many threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._guard = threading.Lock()
        self._held: OrderedDict[str, Known[_Value]] = OrderedDict()

    def get(self, key: str) -> Known[_Value] | None:
        with self._guard:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: str, known: Known[_Value]) -> None:
        with self._guard:
            self._held[key] = known
            self._held.move_to_end(key)
            if len(self._held) > self._limit:
                self._held.popitem(last=False)

    def drop(self, key: str | None) -> None:
        with self._guard:
            if key is None:
                self._held.clear()
            else:
                self._held.pop(key, None)


class DocumentCache(Generic[_Value]):
    """Parsed documents by their keys. What `parse(data, key)` gives is shared: it must not be changed by who gets it."""

    def __init__(self, backend: Backend, parse: Callable[[bytes, str], _Value], *, limit: int = 256) -> None:
        self._backend = backend
        self._parse = parse
        self._newest: _Newest[_Value] = _Newest(limit)

    def get(self, key: str) -> Known[_Value] | None:
        """The document as it is now, or None. Whatever `parse` raises is raised, each time."""
        mark = self._backend.mark(key)
        held = self._newest.get(key)
        if held is not None and held.mark == mark:
            return held
        stored = self._backend.get(key) if mark is not None else None
        if stored is None:
            self._newest.drop(key)
            return None
        known = Known(self._parse(stored.data, key), stored.mark)
        self._newest.put(key, known)
        return known

    def put(self, key: str, value: _Value, mark: Mark) -> None:
        """Remember what was just written, and the mark that writing it gave."""
        self._newest.put(key, Known(value, mark))

    def drop(self, key: str | None = None) -> None:
        """Read a key (None: everything) anew next time."""
        self._newest.drop(key)


class LogCache(Generic[_Value]):
    """What logs come to, one record after the other: `add(value, record)` gives the next value, beginning with `start()`."""

    def __init__(
        self,
        backend: Backend,
        start: Callable[[], _Value],
        add: Callable[[_Value, Mapping[str, Any]], _Value],
        *,
        limit: int = 256,
    ) -> None:
        self._backend = backend
        self._start = start
        self._add = add
        self._newest: _Newest[_Value] = _Newest(limit)
        self._turn = threading.RLock()  # a value that grows in place must not grow twice at once

    def get(self, key: str) -> Known[_Value]:
        """What the log comes to now; what `start` gives where there is none."""
        with self._turn:
            held = self._newest.get(key)
            mark = self._backend.mark(key) or ABSENT
            if held is not None and held.mark == mark and mark != ABSENT:
                return held
            reading = self._backend.read(key, after=held.mark if held is not None else None)
            known = held if held is not None and not reading.whole else Known(self._start(), ABSENT)
            value = known.value
            try:
                for record in reading.records:
                    value = self._add(value, record)
            except BaseException:
                self._newest.drop(key)  # it may have grown by half of what is new
                raise
            found = Known(value, reading.mark, (*(known.damage if not reading.whole else ()), *reading.damage))
            self._newest.put(key, found)
            return found

    def drop(self, key: str | None = None) -> None:
        """Read a key (None: everything) from its beginning next time."""
        self._newest.drop(key)
