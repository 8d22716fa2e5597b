"""What a ranking knows of one record: its words, its place in a conversation, and the vectors of its pieces. Needs no numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Entry:
    """One record. `role` is 1 for a person, 2 for an assistant, 0 else; `moment` is in milliseconds since 1970."""

    number: int
    session: str | None
    position: int | None
    role: int
    moment: int | None
    speaker: str | None
    counts: Mapping[str, int]
    language: str
    meaning: int = 0
    """The number under which its vectors are kept, 0 for none."""
    scales: NDArray[np.float32] | None = None
    words: NDArray[np.uint16] | None = None
    vectors: NDArray[np.int8] | None = None
    size: int | None = None
    """How many terms it has, where `counts` holds only some of them."""

    @property
    def length(self) -> int:
        """How many terms it has."""
        return sum(self.counts.values()) if self.size is None else self.size
