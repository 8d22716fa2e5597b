"""What the gate decided, made of a document: pure, so that it can be done again on whatever the document is by then (M9, M10, M11)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from holdfast.clock import stamp
from holdfast.memory.document import Document
from holdfast.memory.facts import SLOTS, Decision, Fact, Origin, SlotUpdate, Turn
from holdfast.memory.quarantine import Held


@dataclass(frozen=True)
class Outcome:
    """The document after the decisions, the new facts, what is held back, and the reason for each thing that changed."""

    document: Document
    added: tuple[Fact, ...] = ()
    held: tuple[Held, ...] = ()
    reasons: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def apply_decisions(document: Document, decisions: Sequence[Decision], *, now: datetime, thread: str | None = None) -> Outcome:
    """Carry out what was decided, one after the other."""
    from holdfast.memory import merge  # with its tables of patterns: needed when somebody learns something, not to read

    moment = stamp(now)
    merged = merge.apply(document.facts, decisions, moment)
    reasons = {
        one.fact.id: (one.why, one.rule) for one in decisions if one.fact is not None and one.verdict in ("add", "replace", "confirm")
    }
    for old in merged.superseded:
        since = f" from {old.valid_from[:10]}" if old.valid_from else ""
        reasons[old.fact.id] = (f"{old.by} took its place; it held{since} to {old.valid_to[:10]}", "superseded")
    held = tuple(
        Held(one.fact.id, moment, one.fact, one.why, one.rule, thread)
        for one in decisions
        if one.verdict == "quarantine" and one.fact is not None
    )
    added = tuple(fact for fact in merged.facts if fact.id in merged.added)
    return Outcome(replace(document, facts=merged.facts), added, held, reasons)


def apply_removals(document: Document, ids: Iterable[str], seen: Sequence[Fact]) -> tuple[Document, list[str]]:
    """Without the facts that are no longer true, as far as they still say what they said when that was decided."""
    before = {fact.id: fact.content for fact in seen}
    gone = [id for id in ids if (fact := document.fact(id)) is not None and before.get(id) == fact.content]
    return document.without(gone), gone


def apply_slots(document: Document, updates: Iterable[SlotUpdate], now: datetime) -> Document:
    """With the new summaries. A text that says the same changes nothing."""
    for update in updates:
        if update.text.strip() and update.text != document.slot(update.slot).text:
            document = document.with_slot(update.slot, update.text, stamp(now))
    return document


def hold_slots(
    refused: Iterable[tuple[SlotUpdate, str]], turns: Sequence[Turn], *, now: datetime, new_id: Callable[[], str], thread: str | None = None
) -> tuple[Held, ...]:
    """What the gate refused of new summaries, to wait for a person with its reason and origin (M10)."""
    moment = stamp(now)
    origin = Origin("summary", thread, tuple(turn.id for turn in turns if turn.id))
    held: list[Held] = []
    for update, why in refused:
        if not update.text.strip():
            continue
        slot = update.slot if update.slot in SLOTS else None
        fact = Fact(new_id(), update.text, confidence=0.5, created=moment, source=thread or "unknown", origin=origin, status="provisional")
        about = f"for the summary {slot}: {why}" if slot else f"a summary that {why}"
        held.append(Held(fact.id, moment, fact, about, "summary", thread, slot))
    return tuple(held)


def evict_from(document: Document, max_facts: int, now: datetime) -> tuple[Document, dict[str, tuple[str, str]]]:
    """The document within its limit, and the reason for each fact that made room (M11)."""
    if len(document.facts) <= max_facts:
        return document, {}
    from holdfast.memory import merge

    kept, gone = merge.evict(document.facts, max_facts, now)
    why = (f"made room: no more than {max_facts} facts are kept", "evicted")
    return replace(document, facts=tuple(kept)), {fact.id: why for fact in gone}
