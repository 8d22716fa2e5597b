"""Whether a path fits a pattern with `*`, `?`, `[abc]` and `**`. Takes time in proportion to both, whatever the pattern."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence


def matches(pattern: Sequence[str], path: Sequence[str]) -> bool:
    """Part by part: `**` stands for any number of parts, the rest for one. Names with a leading dot are not special.

    >>> matches(["**", "*.md"], ["notes", "today.md"]), matches(["*.md"], ["notes", "today.md"])
    (True, False)
    """
    reachable = {0}  # how many parts of the pattern may be used up so far
    reachable = _skip(pattern, reachable)
    for part in path:
        step = set()
        for index in reachable:
            if index < len(pattern) and pattern[index] == "**":
                step.add(index)
            elif index < len(pattern) and fnmatch.fnmatchcase(part, pattern[index]):
                step.add(index + 1)
        reachable = _skip(pattern, step)
    return len(pattern) in reachable


def _skip(pattern: Sequence[str], indices: set[int]) -> set[int]:
    """A `**` may also stand for nothing."""
    found = set(indices)
    for index in sorted(indices):
        while index < len(pattern) and pattern[index] == "**":
            index += 1
            found.add(index)
    return found
