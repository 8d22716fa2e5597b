"""The output of a command within a fixed amount of memory: its beginning and its end, and how much was between."""

from __future__ import annotations

from collections import deque


class Capture:
    """Takes bytes without end and keeps the first and the last `size` of them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._size - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail.append(data)
            self._tail_size += len(data)
            while self._tail_size - len(self._tail[0]) >= self._size:
                self._tail_size -= len(self._tail.popleft())

    @property
    def dropped(self) -> int:
        """How many bytes between head and tail are gone."""
        return self.total - len(self._head) - min(self._tail_size, self._size)

    def text(self) -> str:
        """Everything that was kept, with a note in the place of what was not."""
        tail = b"".join(self._tail)[-self._size :] if self._size else b""
        note = f"\n[... {self.dropped} bytes left out ...]\n".encode() if self.dropped else b""
        return (bytes(self._head) + note + tail).decode("utf-8", "replace")


def shortened(text: str, room: int) -> tuple[str, int]:
    """Two thirds of `room` characters from the beginning and the rest from the end, and how many bytes that leaves out.

    >>> shortened("abcdefghij", 6)
    ('abcd\\n[...]\\nij', 4)
    """
    if len(text) <= room:
        return text, 0
    head = room * 2 // 3
    tail = room - head
    left_out = text[head : len(text) - tail]
    return f"{text[:head]}\n[...]\n{text[len(text) - tail :]}", len(left_out.encode("utf-8", "replace"))
