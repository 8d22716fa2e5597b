"""The values of this room: a fact, where it came from, what somebody proposes to learn, and what becomes of the proposal.

Everything here is frozen and plain. A fact's fields that Holdfast does not know are in `extra` and survive every round trip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SourceKind = Literal["user", "assistant", "tool", "file", "web", "summary", "manual", "import", "unknown"]
"""Who said it. Only what a user typed is trusted without confirmation; a derived thing is as trusted as its least trusted source."""

SLOTS = ("workContext", "personalContext", "topOfMind", "recentMonths", "earlierContext", "longTermBackground")
"""The six summaries: the first three are the user's, the last three the history's."""


@dataclass(frozen=True)
class Origin:
    """Where a fact comes from: the thread, the messages, the words themselves, and who said them."""

    kind: SourceKind = "unknown"
    thread: str | None = None
    messages: tuple[str, ...] = ()
    quote: str | None = None


@dataclass(frozen=True)
class Fact:
    """Something that is known about the user. Times are ISO 8601 in UTC.

    `status` is `active`, or `provisional` while a weak source waits for confirmation. A fact that was replaced or removed is in the
    history.
    """

    id: str
    content: str
    category: str = "context"
    confidence: float = 0.5
    created: str = ""
    source: str = "unknown"
    origin: Origin = field(default_factory=Origin)
    status: Literal["active", "provisional"] = "active"
    confirmations: int = 1
    confirmed: str = ""
    valid_from: str = ""
    replaces: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """One message of a conversation as the extractors and the gate see it."""

    id: str
    kind: SourceKind
    text: str
    time: str = ""


@dataclass(frozen=True)
class Candidate:
    """A fact that an extractor proposes. `quote` is the user's own words for it, where the extractor gives them."""

    content: str
    category: str = "context"
    confidence: float = 0.5
    quote: str | None = None
    replaces: tuple[str, ...] = ()
    """Ids of facts that this one takes the place of, as the extractor thinks."""
    error: str | None = None
    """For a correction: what was wrong before."""


@dataclass(frozen=True)
class SlotUpdate:
    """A new text for one of the six summaries."""

    slot: str
    text: str


@dataclass(frozen=True)
class Proposal:
    """All that one extraction proposes."""

    candidates: tuple[Candidate, ...] = ()
    remove: tuple[str, ...] = ()
    slots: tuple[SlotUpdate, ...] = ()


Verdict = Literal["add", "confirm", "replace", "quarantine", "drop"]


@dataclass(frozen=True)
class Decision:
    """What the gate decides about one candidate, and why, in words that `memory review` shows.

    `fact` is what would be stored (redacted, rephrased as a description, confidence capped); `target` is the fact that is confirmed or
    replaced.
    """

    verdict: Verdict
    candidate: Candidate
    why: str
    fact: Fact | None = None
    target: str | None = None
    rule: str = ""
    """The short, stable name of the rule that decided."""
