"""Forgetting for good: out of the document, its history, the queue, the quarantine, and whatever was set aside (M14).

Unlike a removal, which is a change that can be undone, nothing of it stays in any file of this room. What was interrupted is done again
by asking again: every step looks for what is still there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.clock import stamp
from holdfast.errors import Damaged, InputError
from holdfast.memory.changing import Store
from holdfast.memory.document import Document, Summary, fact_from, fact_to_json
from holdfast.memory.facts import Fact, Turn
from holdfast.memory.history import Change, Difference
from holdfast.memory.queue import MemoryQueue
from holdfast.memory.scopes import check_agent, scope_name
from holdfast.text.normalise import normalise
from holdfast.text.sentences import split_sentences

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


class _Target:
    """What is to be forgotten: facts by their ids, and texts, found in any case, style of quotes and spacing."""

    def __init__(self, ids: Iterable[str] = (), texts: Iterable[str] = (), *, anywhere: bool = False) -> None:
        self.ids = set(ids)
        self._needles = {needle for text in texts if (needle := normalise(text))}
        self._anywhere = anywhere

    def in_text(self, text: str) -> bool:
        shown = normalise(text)
        return any(needle == shown or ((self._anywhere or len(needle) >= _TELLING) and needle in shown) for needle in self._needles)

    def in_value(self, value: Any) -> bool:
        """Whether it stands anywhere in a JSON value."""
        return any(self.in_text(text) for text in _strings(value))

    def fact(self, value: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A fact, as JSON, without what is to be forgotten; None if it goes as a whole.

        Another fact that was learned from the same words stays, and only loses the quote.
        """
        if value.get("id") in self.ids or (self._anywhere and self.in_value(value)):
            return None
        if normalise(str(value.get("content", ""))) in self._needles:
            return None
        origin = value.get("origin")
        if isinstance(origin, Mapping) and self.in_text(str(origin.get("quote", ""))):
            value = {**value, "origin": {key: member for key, member in origin.items() if key != "quote"}}
        if not self.ids.isdisjoint(value.get("replaces", ())):
            value = {**value, "replaces": [id for id in value["replaces"] if id not in self.ids]}
        return value

    def in_bytes(self, data: bytes) -> bool:
        """Whether bytes that are no sound document any more still show it."""
        readable = data.decode("utf-8", "replace")
        with suppress(UnicodeDecodeError):
            readable += readable.encode("ascii", "backslashreplace").decode("unicode_escape", "replace")
        shown = normalise(readable)
        return any(needle in shown for needle in self._needles) or any(id in readable for id in self.ids)

    def out_of(self, text: str) -> str:
        """The text without the sentences that hold it."""
        sentences = [sentence.text for sentence in split_sentences(text)]
        kept = [sentence for sentence in sentences if not self.in_text(sentence)]
        rest = text if len(kept) == len(sentences) else " ".join(kept).strip()
        return "" if self.in_text(rest) else rest  # it may also run over the end of a sentence


def forget_fact(store: Store, queue: MemoryQueue | None, id: str, agent: str | None = None) -> Forgotten:
    """Forget one fact of a scope, with what it replaced, and the words that it was learned from. InputError if there is none."""
    agent = check_agent(agent)
    store.recover(agent)
    document = store.own(agent) or Document()
    versions = [*_versions(store, agent), *document.facts]
    known = {fact.id for fact in versions} | {held.id for held in _held(store, agent)}
    if id not in known:
        raise InputError(f"there is no fact {id!r} in the {scope_name(agent)} memory.", hint="`holdfast memory show` lists the ids.")
    ids = _ancestry(id, versions)
    mine = [fact for fact in versions if fact.id in ids] + [one.fact for one in _held(store, agent) if one.id in ids]
    texts = [text for fact in mine for text in (fact.content, fact.origin.quote or "")]
    messages = {(fact.origin.thread, message) for fact in mine for message in fact.origin.messages}
    touched = _forget_queued(queue, _Target(ids, texts), messages)  # first, so that no worker brings it back
    touched |= _forget_in(store, agent, _Target(ids, texts))
    return Forgotten(tuple(sorted(ids & {fact.id for fact in document.facts})), touched)


def forget_text(store: Store, queue: MemoryQueue | None, text: str) -> Forgotten:
    """Forget everything that holds a text, in every scope: facts as a whole, of summaries and blocks the sentences that hold it."""
    if not normalise(text):
        raise InputError("the text to forget is empty.", hint="Give some words of it.")
    target = _Target(texts=[text], anywhere=True)
    touched = _forget_queued(queue, target, set())  # first, so that no worker brings it back
    facts: list[str] = []
    for agent in store.all_scopes():
        facts += [fact.id for fact in (store.own(agent) or Document()).facts if target.fact(fact_to_json(fact)) is None]
        touched |= _forget_in(store, agent, target)
    return Forgotten(tuple(facts), touched)


def _forget_in(store: Store, agent: str | None, target: _Target) -> dict[str, int]:
    """One scope, under its lock: first the document, so that nobody reads it any more, then everything behind it."""
    place = scope_name(agent)
    with store.locked(agent):
        store.finish_pending(agent)
        found, _ = store.fresh(agent)
        document = found or Document()
        after = _cleansed(document, target)
        counts = {f"{place}: facts": len(document.facts) - len(after.facts)}
        counts[f"{place}: summaries and blocks"] = sum(
            1 for old, new in ((document.slots, after.slots), (document.blocks, after.blocks)) for name in old if old[name] != new.get(name)
        )
        if after != document:
            moment = stamp(store.clock.now())
            store.put(agent, replace(after, revision=document.revision + 1, updated=moment))
        counts[f"{place}: history"] = store.history(agent).rewrite(lambda change: _without(change, target))
        counts[f"{place}: quarantine"] = _forget_held(store, agent, target)
        counts[f"{place}: files set aside"] = store.remove_leavings(agent, target.in_bytes)
        if any(counts.values()):
            _note(store, agent, after, document)
    return {name: number for name, number in counts.items() if number}


def _cleansed(document: Document, target: _Target) -> Document:
    slots = {name: _cleansed_summary(summary, target) for name, summary in document.slots.items()}
    blocks = {name: replace(block, text=target.out_of(block.text)) for name, block in document.blocks.items()}
    left = (target.fact(fact_to_json(fact)) for fact in document.facts)
    facts = [fact_from(value) for value in left if value is not None]
    extra = {name: member for name, member in document.extra.items() if not target.in_value([name, member])}
    return replace(document, facts=tuple(facts), slots=slots, blocks=blocks, extra=extra)


def _cleansed_summary(summary: Summary, target: _Target) -> Summary:
    extra = {name: member for name, member in summary.extra.items() if not target.in_value([name, member])}
    return replace(summary, text=target.out_of(summary.text), extra=extra)


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


def _note(store: Store, agent: str | None, after: Document, before: Document) -> None:
    """Say in the history that something was forgotten, and not what."""
    revision = before.revision + (after != before)
    change = Change(store.ids.new("change"), stamp(store.clock.now()), revision, "forget", "something was forgotten")
    store.history(agent).append(change)


def _forget_held(store: Store, agent: str | None, target: _Target) -> int:
    quarantine = store.quarantine(agent)
    try:
        return len(
            quarantine.drop(
                lambda one: (
                    one.id in target.ids or target.fact(fact_to_json(one.fact)) is None or target.in_text(one.fact.origin.quote or "")
                )
            )
        )
    except Damaged as error:
        store.set_aside_quarantine(agent, error)
        return 0


def _forget_queued(queue: MemoryQueue | None, target: _Target, messages: set[tuple[str | None, str]]) -> dict[str, int]:
    if queue is None or not queue.path.exists():
        return {}

    def takes(thread: str, turn: Turn) -> bool:
        return (turn.id != "" and (thread, turn.id) in messages) or target.in_text(turn.text)

    gone = queue.forget(takes)
    return {"queue": gone} if gone else {}


def _versions(store: Store, agent: str | None) -> list[Fact]:
    differences = (one for change in store.history(agent).changes() for one in change.differences if one.kind == "fact")
    return [fact_from(value) for one in differences for value in (one.before, one.after) if isinstance(value, dict)]


def _held(store: Store, agent: str | None) -> list[Any]:
    try:
        return list(store.quarantine(agent).held())
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


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _strings(key)
            yield from _strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner)
