"""The word lists of this room, kept as data in `lists/*.toml`, each read once, and the patterns that are built of them.

An entry is a text of alternatives, parted by ` | ` or a new line. `{name}` in one stands for any alternative of the entry of that name.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

_PARTING = re.compile(r" \| |\n")
_SLOT = re.compile(r"\{([a-z_]+)\}")


class WordLists:
    """One file of word lists. `tables` holds whatever else is in it, as it stands there."""

    def __init__(self, name: str) -> None:
        self.tables: dict[str, Any] = tomllib.loads(files("holdfast.memory").joinpath("lists", f"{name}.toml").read_text("utf-8"))
        self._entries: dict[str, str] = {**self.tables.get("words", {}), **self.tables.get("forms", {})}

    def words(self, name: str) -> tuple[str, ...]:
        """The alternatives of an entry, in their order."""
        return tuple(part for part in _PARTING.split(self._entries[name]) if part)

    def pattern(self, name: str, flags: re.RegexFlag = re.NOFLAG, **slots: str) -> re.Pattern[str]:
        """The entry as a pattern. `slots` are regular expressions for names that the file does not have."""
        return self.compiled(self._entries[name], flags, **slots)

    def compiled(self, text: str, flags: re.RegexFlag = re.NOFLAG, **slots: str) -> re.Pattern[str]:
        """Any text in the form of an entry as a pattern."""
        return re.compile(self._expression(text, slots), flags)

    def _expression(self, text: str, slots: dict[str, str]) -> str:
        joined = "|".join(part for part in _PARTING.split(text) if part)
        return _SLOT.sub(lambda slot: f"(?:{slots.get(slot[1]) or self._expression(self._entries[slot[1]], slots)})", joined)


@cache
def word_lists(name: str) -> WordLists:
    """The file of this name."""
    return WordLists(name)
