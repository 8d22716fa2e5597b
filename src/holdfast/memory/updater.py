"""Learning from a conversation: take what is due, ask the extractor, let the gate judge, write it down once (M9).

No lock is held while the extractor works. What it proposes is judged against the document as it is when the answer comes, so nothing that
others wrote meanwhile is lost; a summary that was rewritten meanwhile is asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, Protocol

from holdfast.amounts import counted
from holdfast.clock import stamp
from holdfast.errors import HoldfastError
from holdfast.events import FactsExtracted, MemoryPersisted, MemoryUpdated, UpdateStarted, within
from holdfast.ids import IdSource
from holdfast.memory.document import Document
from holdfast.memory.events import UpdateLeft
from holdfast.memory.facts import SLOTS, Decision, Fact, Origin, Proposal, SlotUpdate, Turn
from holdfast.memory.history import Change, Held
from holdfast.memory.queue import Item, MemoryQueue
from holdfast.memory.store import Edit, MemoryStore
from holdfast.secret_forms import replace_secrets
from holdfast.tracing import span

Aside = Callable[[], AbstractContextManager[None]]
_ASKS = 3  # how often a proposal is asked for anew because others rewrote the same summaries; after that the newest wins


class Extractor(Protocol):
    """Finds in a conversation what is worth knowing."""

    def extract(self, turns: Sequence[Turn], facts: Sequence[Fact]) -> Proposal:
        """What could be learned from these turns, given what is known. May take long; raises when it cannot answer."""


@dataclass(frozen=True)
class Learned:
    """What became of one item: `done` (with the change, if there was one), `failed` (it is tried again), or `lost` to another worker."""

    item: str
    thread: str
    state: Literal["done", "failed", "lost"]
    change: Change | None = None
    error: str = ""
    decisions: tuple[Decision, ...] = ()
    """What the gate decided about each proposed fact."""


class _Taken(Exception):
    """The item belongs to another worker by now."""


class _Overtaken(Exception):
    """Others rewrote a summary that the proposal is about."""


class Updater:
    """Works through the queue. Several may run at once, in threads and processes.

    In place of an extractor a function may be given that makes one for a document: for one that wants to know the summaries too.
    """

    def __init__(
        self,
        store: MemoryStore,
        queue: MemoryQueue,
        extractor: Extractor | Callable[[Document], Extractor],
        *,
        threshold: float = 0.7,
        max_facts: int = 100,
        shown: Callable[[str | None], str] | None = None,
    ) -> None:
        self.store = store
        self.queue = queue
        self.extractor = extractor
        self._threshold = threshold
        self._max_facts = max_facts
        self._shown = shown or (lambda agent: "")

    def process(self, item: Item, *, leaving: bool = False, aside: Aside = nullcontext) -> Learned:
        """Learn from an item that was claimed. A failure is a result: the item is tried again later.

        When the process is `leaving`, a failure says nothing about the item, and it is not counted. The extractor works within `aside()`.
        """
        with within(thread=item.thread, agent=item.agent), span("update_memory", item.agent or "user", "CHAIN") as traced:
            learned = self._processed(item, leaving, aside)
            judged = [f"{decision.verdict}/{decision.rule}" for decision in learned.decisions]
            traced.set({"holdfast.status": learned.state, "holdfast.gate": judged})
            return learned

    def _processed(self, item: Item, leaving: bool, aside: Aside) -> Learned:
        self._emit(UpdateStarted(thread=item.thread))
        try:
            change, decisions = self._learn(item, aside)
        except _Taken:
            return Learned(item.id, item.thread, "lost")
        except Exception as error:  # noqa: BLE001 - a provider, a model or an extractor of one's own may raise anything; the turns must stay
            said = replace_secrets(
                str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
            )  # it may show a key
            if leaving:
                self.queue.release(item)
                self.store.bus.emit(UpdateLeft(thread=item.thread, error=said))
            else:
                self.queue.fail(item, said)
            return Learned(item.id, item.thread, "failed", error=said)
        except BaseException:  # the process is being stopped: nobody's fault
            self.queue.release(item)
            raise
        self.queue.complete(item)
        return Learned(item.id, item.thread, "done", change, decisions=tuple(decisions))

    def _learn(self, item: Item, aside: Aside) -> tuple[Change | None, Sequence[Decision]]:
        if item.claims > 1:
            self.store.recover(item.agent)
            if self.store.has_item(item.id, item.agent):
                return None, ()  # a worker died between writing it down and taking it from the queue
        for ask in range(1, _ASKS + 1):
            seen = self.store.own(item.agent) or Document()
            with aside():
                proposal = self._extractor_for(seen).extract(item.turns, seen.facts)
            extracted: list[Fact] = []
            decided: list[Decision] = []
            try:
                change = self.store.change(item.agent, self._edit(item, proposal, seen, extracted, decided, last=ask == _ASKS))
            except _Overtaken:
                continue
            self._tell(item, change, extracted)
            return change, decided
        return None, ()  # not reached: the last ask is never overtaken

    def _extractor_for(self, document: Document) -> Extractor:
        return self.extractor(document) if callable(self.extractor) else self.extractor

    def _edit(
        self, item: Item, proposal: Proposal, seen: Document, extracted: list[Fact], decided: list[Decision], *, last: bool
    ) -> Callable[[Document], Edit | None]:
        """What the proposal makes of the document as it is when the lock is held."""
        from holdfast.memory import gate  # their tables of patterns are made when somebody first learns something

        injected = self._shown(item.agent)
        slots, refused = gate.admit_slots(proposal, item.turns, injected=injected)

        def edit(document: Document) -> Edit | None:
            if not self.queue.holds(item):
                raise _Taken
            if item.claims > 1 and self.store.has_item(item.id, item.agent):
                return None
            if not last and any(document.slot(update.slot) != seen.slot(update.slot) for update in slots):
                raise _Overtaken
            now = self.store.clock.now()
            decisions = gate.judge(
                proposal,
                item.turns,
                document.facts,
                threshold=self._threshold,
                injected=injected,
                now=now,
                new_id=lambda: new_fact_id(self.store.ids),
                thread=item.thread,
            )
            outcome = apply_decisions(document, decisions, now=now, thread=item.thread)
            removals, _ = gate.admit_removals(proposal, item.turns, document.facts)
            after, removed = apply_removals(outcome.document, removals, seen.facts)
            after, evicted = evict_from(apply_slots(after, slots, now), self._max_facts, now)
            extracted[:], decided[:] = outcome.added, decisions
            reasons = {**outcome.reasons, **{id: ("the user said that it is over or wrong", "removed") for id in removed}, **evicted}
            waiting = hold_slots(refused, item.turns, now=now, new_id=lambda: new_fact_id(self.store.ids), thread=item.thread)
            why = f"learned from {counted(len(item.turns), 'turn')}"
            return Edit(after, "updater", why, reasons, thread=item.thread, item=item.id, held=(*outcome.held, *waiting))

        return edit

    def _tell(self, item: Item, change: Change | None, added: Sequence[Fact]) -> None:
        if added:
            self._emit(FactsExtracted(confidences=tuple(round(fact.confidence, 2) for fact in added)))
        if change is not None and change.differences:
            for difference in change.differences:
                if difference.kind == "slot":
                    self._emit(MemoryUpdated(slot=difference.id))
            self._emit(MemoryPersisted(path=self.store.where(item.agent)))

    def _emit(self, event: UpdateStarted | FactsExtracted | MemoryUpdated | MemoryPersisted) -> None:
        self.store.bus.emit(event)


def new_fact_id(ids: IdSource) -> str:
    """An id for a fact, in the reference's manner."""
    return f"fact_{ids.new()}"


# Applying what the gate decided: pure, so that it can be done again on whatever the document is by then (M10, M11)


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
