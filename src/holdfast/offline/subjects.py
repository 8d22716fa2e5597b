"""Which of several named things a sentence is about: the one it names, or the one that its paragraph, heading or document is about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from holdfast.extract.passages import Unit
from holdfast.offline.sources import Document
from holdfast.text.dates import find_dates

IDENTIFIER = re.compile(r"\b[A-Z]{2,}[A-Z0-9]*-\d+\b|\bCVE-\d{4}-\d+\b")
"""Numbers of tickets, defects and incidents: names that nobody shares."""
_POINTS_BACK = re.compile(
    r"^[\s\-*\"'“(]*(?:it|its|they|their|this|these|that|he|she|his|her|the latter|er|sie|es|il|elle|ils)\b", re.IGNORECASE
)
_NAME = re.compile(r"(?<=[a-z,;:’'\"] )[A-Z][a-z]\w+(?: \d+\b| [A-Z]\d+\b)?")
_REFERENCE = date(2000, 6, 15)
_DOMINANT = 0.75
Subject = frozenset[str]
_NOBODY: Subject = frozenset()


@dataclass(frozen=True)
class Names:
    """The names that matter in a task, as patterns. A name with a capital is not found in lower case: an osprey is no Osprey."""

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "_patterns", [(name, _pattern(name)) for name in self.names])

    def places(self, text: str) -> list[tuple[int, int, str]]:
        """Where names stand, in order; a name inside a longer one does not count."""
        patterns: list[tuple[str, re.Pattern[str]]] = self._patterns  # type: ignore[attr-defined]
        found = sorted(
            ((match.start(), match.end(), name) for name, pattern in patterns for match in pattern.finditer(text)),
            key=lambda one: (one[0], -one[1]),
        )
        kept: list[tuple[int, int, str]] = []
        for place in found:
            if not kept or place[0] >= kept[-1][1]:
                kept.append(place)
        return kept

    def named(self, text: str) -> Subject:
        return frozenset(name for _, _, name in self.places(text))

    def masked(self, text: str) -> str:
        """The text with its names blanked, so that the 9 of "Calder 9" is no figure."""
        for start, end, _ in reversed(self.places(text)):
            text = text[:start] + " " * (end - start) + text[end:]
        return text

    def of_document(self, document: Document, *, sure: bool = False) -> Subject:
        """What a document as a whole is about: the only name in its title, or (less surely) the one that it speaks of nearly always."""
        titled = self.named(document.title)
        if titled or sure:
            return titled if len(titled) == 1 else _NOBODY
        counted = Counter(name for _, _, name in self.places(document.text))
        if not counted:
            return _NOBODY
        name, count = min(counted.items(), key=lambda pair: (-pair[1], pair[0]))
        return frozenset((name,)) if count >= 2 and count >= _DOMINANT * counted.total() else _NOBODY

    def of_units(self, document: Document, *, sure: bool = False) -> list[Subject]:
        """What each unit of a document is about; several names when a sentence speaks of several, none when nothing tells.

        `sure` leaves out what only the rest of the document suggests: enough to find a sentence, not to hold it against another.
        """
        whole = self.of_document(document, sure=sure)
        found: list[Subject] = []
        before: tuple[int, Subject] = (-1, _NOBODY)
        for unit in document.units:
            subject = self.named(unit.passage.text) or self._supplied(unit, before, whole)
            if unit.kind != "heading":
                before = (unit.block, subject)
            found.append(subject)
        return found

    def _supplied(self, unit: Unit, before: tuple[int, Subject], whole: Subject) -> Subject:
        block, subject = before
        if block == unit.block and len(subject) == 1 and _POINTS_BACK.match(unit.passage.text):
            return subject
        for heading in reversed(unit.heading):
            named = self.named(heading)
            if named:
                return named if len(named) == 1 else _NOBODY
        if block == unit.block and len(subject) == 1 and not whole:
            return subject
        return whole


def names_told(documents: Iterable[Document]) -> list[str]:
    """The names that documents are about: in each, the one that it writes most often. For tasks that name nothing themselves."""
    found: dict[str, None] = {}
    for document in documents:
        counted = Counter(match.group() for match in _NAME.finditer(document.text))
        small = Counter(word for word in re.findall(r"\b[a-z]\w+", document.text))
        good = {name: count for name, count in counted.items() if count > small[name.lower()] and not find_dates(name, _REFERENCE)}
        if good:
            name, count = min(good.items(), key=lambda pair: (-pair[1], pair[0]))
            if count >= 3 or name in document.title:
                found[name] = None
    return list(found)


def _pattern(name: str) -> re.Pattern[str]:
    words = r"[\s-]+".join(re.escape(word) for word in name.split())
    before = r"(?<![\w-])" if name[:1].isascii() else ""
    after = r"(?![\w])" if name[-1:].isascii() else ""
    if name.lower() == name:
        return re.compile(f"{before}{words}{after}", re.IGNORECASE)
    return re.compile(f"{before}(?:{words}|{words.upper() if words.isalpha() else words}){after}")
