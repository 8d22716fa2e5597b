"""Forgetting for good: out of the document, its history, the queue, the quarantine, and whatever was set aside (M14).

Unlike a removal, which is a change that can be undone, nothing of it stays anywhere in this room. What was interrupted is done again by
asking again: every step looks for what is still there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.clock import stamp
from holdfast.errors import Damaged, NotThere
from holdfast.memory.document import Document, fact_from, fact_to_json
from holdfast.memory.facts import Fact, Turn
from holdfast.memory.history import Change, Difference, Held
from holdfast.memory.queue import MemoryQueue
from holdfast.memory.store import MemoryStore, check_agent, scope_name
from holdfast.text.needle import Needle
from holdfast.text.normalise import normalise

_TELLING = 12  # characters from which on a text may be looked for inside others; shorter ones must be the whole of it


@dataclass(frozen=True)
class Forgotten:
    """What was touched, and where: counts by the name of the place."""

    facts: tuple[str, ...] = ()
    touched: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """How many things were taken out."""
        return sum(self.touched.values())


@dataclass(frozen=True)
class _Target:
    """What is to be forgotten: facts by their ids, and their texts; with `anywhere`, whatever holds the text."""

    needle: Needle | None
    ids: frozenset[str] = frozenset()
    anywhere: bool = False

    def in_text(self, text: str) -> bool:
        return self.needle is not None and self.needle.in_text(text)

    def in_value(self, value: Any) -> bool:
        return self.needle is not None and self.needle.in_value(value)

    def in_bytes(self, data: bytes) -> bool:
        """Whether bytes that are no sound document any more still show it."""
        shown = self.needle is not None and self.needle.in_bytes(data)
        return shown or any(id.encode() in data for id in self.ids)

    def without(self, text: str) -> str:
        """The text without the sentences that hold it."""
        return text if self.needle is None else self.needle.without(text, "")

    def fact(self, value: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A fact, as JSON, without what is to be forgotten; None if it goes as a whole.

        Another fact that was learned from the same words stays, and only loses the quote.
        """
        if value.get("id") in self.ids or (self.anywhere and self.in_value(value)):
            return None
        if self.needle is not None and normalise(str(value.get("content", ""))) in self.needle.normal:
            return None
        origin = value.get("origin")
        if isinstance(origin, Mapping) and self.in_text(str(origin.get("quote", ""))):
            value = {**value, "origin": {key: member for key, member in origin.items() if key != "quote"}}
        if not self.ids.isdisjoint(value.get("replaces", ())):
            value = {**value, "replaces": [id for id in value["replaces"] if id not in self.ids]}
        return value


def forget_fact(store: MemoryStore, queue: MemoryQueue | None, id: str, agent: str | None = None) -> Forgotten:
    """Forget one fact of a scope, with what it replaced, and the words that it was learned from. NotThere if there is none."""
    agent = check_agent(agent)
    document, versions, held = find_fact(store, id, agent)
    ids = _ancestry(id, versions)
    mine = [fact for fact in versions if fact.id in ids] + [one.fact for one in held if one.id in ids]
    texts = [text for fact in mine for text in (fact.content, fact.origin.quote or "") if normalise(text)]
    target = _Target(Needle(*texts, whole_below=_TELLING) if texts else None, frozenset(ids))
    messages = {(fact.origin.thread, message) for fact in mine for message in fact.origin.messages}
    touched = _forget_queued(queue, target, messages)  # first, so that no worker brings it back
    touched |= _forget_in(store, agent, target)
    return Forgotten(tuple(sorted(ids & {fact.id for fact in document.facts})), touched)


def find_fact(store: MemoryStore, id: str, agent: str | None = None) -> tuple[Document, list[Fact], list[Held]]:
    """Where a fact may stand: the document, all versions of facts, also those that only the history has, and what is held. NotThere."""
    store.recover(agent)
    document = store.own(agent) or Document()
    versions, held = [*_versions(store, agent), *document.facts], _held(store, agent)
    if id not in {fact.id for fact in versions} | {one.id for one in held}:
        hint = f"`holdfast memory show` lists the ids; `holdfast memory forget --text {id!r}` forgets all that holds these words."
        raise NotThere(f"there is no fact {id!r} in the {scope_name(agent)} memory.", hint=hint)
    return document, versions, held


def forget_text(store: MemoryStore, queue: MemoryQueue | None, text: str) -> Forgotten:
    """Forget everything that holds a text, in every scope: facts as a whole, of summaries and blocks the sentences that hold it."""
    target = _Target(Needle(text), anywhere=True)
    touched = _forget_queued(queue, target, set())  # first, so that no worker brings it back
    facts: list[str] = []
    for agent in [*store.scopes()]:
        facts += [fact.id for fact in (store.own(agent) or Document()).facts if target.fact(fact_to_json(fact)) is None]
        touched |= _forget_in(store, agent, target)
    return Forgotten(tuple(facts), touched)


def _forget_in(store: MemoryStore, agent: str | None, target: _Target) -> dict[str, int]:
    done = store.scrub(
        agent, lambda held: _cleansed(held, target), lambda change: _without(change, target), lambda one: _takes(one, target)
    )
    before, after, place = done.before, done.after, scope_name(agent)
    counts = {
        f"{place}: facts": len(before.facts) - len(after.facts),
        f"{place}: summaries and blocks": sum(
            1 for old, new in ((before.slots, after.slots), (before.blocks, after.blocks)) for name in old if old[name] != new.get(name)
        ),
        f"{place}: history": done.changes,
        f"{place}: quarantine": done.held,
        f"{place}: files set aside": store.remove_set_aside(agent, target.in_bytes),
    }
    if any(counts.values()):  # the history says that something was forgotten, and not what
        revision = before.revision + (after != before)
        store.note(agent, Change(store.ids.new("change"), stamp(store.clock.now()), revision, "forget", "something was forgotten"))
    return {name: number for name, number in counts.items() if number}


def _cleansed(document: Document, target: _Target) -> Document:
    def kept(members: Mapping[str, Any]) -> dict[str, Any]:
        return {name: member for name, member in members.items() if not target.in_value([name, member])}

    slots = {name: replace(one, text=target.without(one.text), extra=kept(one.extra)) for name, one in document.slots.items()}
    blocks = {name: replace(one, text=target.without(one.text), extra=kept(one.extra)) for name, one in document.blocks.items()}
    left = ((fact, value, target.fact(value)) for fact in document.facts for value in (fact_to_json(fact),))
    facts = [fact if rest is value else fact_from(rest) for fact, value, rest in left if rest is not None]
    return replace(
        document,
        facts=tuple(facts),
        slots=slots,
        blocks=blocks,
        extra=kept(document.extra),
        user_extra=kept(document.user_extra),
        history_extra=kept(document.history_extra),
    )


def _without(change: Change, target: _Target) -> Change | None:
    """A change without what is to be forgotten; None if nothing else was in it."""
    left = tuple(_scrubbed(one, target) for one in change.differences)
    kept = tuple(one for one in left if one is not None)
    held = tuple(one for one in change.held if target.fact(one.get("fact", {})) is not None and one.get("id") not in target.ids)
    if kept == change.differences and held == change.held and not target.in_text(change.why):
        return change
    if not kept and not held and not change.item:
        return None  # one that comes from the queue stays, empty: the same turns must not be learned from again
    return replace(change, differences=kept, held=held, why="partly forgotten")


def _scrubbed(difference: Difference, target: _Target) -> Difference | None:
    if difference.kind != "fact":
        return None if target.in_value([difference.before, difference.after, difference.why]) else difference
    values = [value if value is None else target.fact(value) for value in (difference.before, difference.after)]
    if difference.id in target.ids or values.count(None) > (difference.before, difference.after).count(None):
        return None
    return replace(difference, before=values[0], after=values[1], why="" if target.in_text(difference.why) else difference.why)


def _takes(held: Held, target: _Target) -> bool:
    return held.id in target.ids or target.fact(fact_to_json(held.fact)) is None or target.in_text(held.fact.origin.quote or "")


def _forget_queued(queue: MemoryQueue | None, target: _Target, messages: set[tuple[str | None, str]]) -> dict[str, int]:
    if queue is None or not queue.path.exists():
        return {}

    def takes(thread: str, turn: Turn) -> bool:
        return (turn.id != "" and (thread, turn.id) in messages) or target.in_text(turn.text)

    gone = queue.forget(takes)
    return {"queue": gone} if gone else {}


def _versions(store: MemoryStore, agent: str | None) -> list[Fact]:
    differences = (one for change in store.changes(agent) for one in change.differences if one.kind == "fact")
    return [fact_from(value) for one in differences for value in (one.before, one.after) if isinstance(value, dict)]


def _held(store: MemoryStore, agent: str | None) -> list[Held]:
    try:
        return store.held(agent)
    except Damaged:
        return []


def _ancestry(id: str, versions: Iterable[Fact]) -> set[str]:
    """The fact and everything that it took the place of."""
    parents: dict[str, set[str]] = {}
    for fact in versions:
        parents.setdefault(fact.id, set()).update(fact.replaces)
    ids, pending = {id}, [id]
    while pending:
        for parent in parents.get(pending.pop(), set()) - ids:
            ids.add(parent)
            pending.append(parent)
    return ids
