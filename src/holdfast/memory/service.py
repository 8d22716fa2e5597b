"""`MemoryService`: memory as a middleware, the command line, the API and an agent's tools use it.

    with MemoryService.open(load_config()) as memory:
        memory.enqueue("thread-7", turns_of(messages))
        memory.render_for("coder")          # the text for the prompt

In a server `start()` lets a thread of its own work through the queue. In a short script nothing need be started: what is queued is on
disk, and `flush()`, or the end of the process, learns from it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from holdfast.clock import stamp
from holdfast.errors import Damaged, InputError, InTheWay, NotThere
from holdfast.events import Event
from holdfast.memory.document import Document, fact_from, fact_to_json
from holdfast.memory.facts import (
    SLOTS,
    Candidate,
    Decision,
    Fact,
    Origin,
    Proposal,
    Turn,
    let_go_of_secret,
    stated_confidence,
    stated_text,
    without_secret,
)
from holdfast.memory.history import Author, Change, Difference, Held, apply_decisions, chosen_to_undo, evict_from, undone
from holdfast.memory.memory_store import Edit, MemoryStore, check_agent, scope_name
from holdfast.memory.queue import MemoryQueue
from holdfast.memory.reading import OpenMemory
from holdfast.memory.rendering import BlockView, edited
from holdfast.memory.updater import new_fact_id
from holdfast.redaction import replace_secrets
from holdfast.text.needle import Needle
from holdfast.text.normalise import normalise
from holdfast.validation import counted


@dataclass(frozen=True, kw_only=True)
class MemoryFull(Event):
    """What a person put in by hand or by an import fills the memory, or passed its limit."""

    component: ClassVar[str] = "MemoryStorage"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = (
        "the {place} memory holds {facts} of {limit} facts (memory.max_facts){room}. "
        "What is put in stays and what is learned makes room: set memory.max_facts higher to keep more."
    )
    place: str
    facts: int
    limit: int
    room: str = ""


class MemoryService(OpenMemory):
    """One object for everything that is done with memory. Safe for many threads and processes; every change is in the history.

    `agent` is None for the global memory everywhere; names are checked. With `memory.enabled: false` nothing is queued, learned or
    injected, and everything can still be looked at and edited.
    """

    def propose(
        self,
        content: str,
        agent: str | None = None,
        *,
        turns: Sequence[Turn] = (),
        thread: str | None = None,
        replaces: str | None = None,
    ) -> Decision:
        """Let the gate decide about something that an agent wants to remember, in the place of another fact or not, and do as it says."""
        from holdfast.memory.gate import judge

        candidate = Candidate(stated_text(content), confidence=0.9, replaces=(replaces,) if replaces else ())
        made: list[Decision] = []

        def edit(document: Document) -> Edit | None:
            now = self.store.clock.now()
            made[:] = judge(
                Proposal((candidate,)),
                turns,
                document.facts,
                threshold=self.settings.fact_confidence_threshold,
                injected=self._composed(agent, self.settings.max_injection_tokens).text,
                now=now,
                new_id=self._new_id,
                thread=thread,
            )
            made[:] = [let_go_of_secret(one) for one in made]
            outcome = apply_decisions(document, made, now=now, thread=thread)
            after, evicted = self._within(outcome.document, document)
            reasons = {**outcome.reasons, **evicted}
            return Edit(after, "agent", "the agent's own note", reasons, thread=thread, held=outcome.held)

        self.store.change(agent, edit)
        return made[0] if made else Decision("drop", candidate, "the gate had nothing to say about it", rule="empty")

    def remove_said(self, id: str, agent: str | None = None, *, turns: Sequence[Turn] = (), thread: str | None = None) -> Fact:
        """Take a fact out for an agent: only if the user, in these turns, says that it is over or wrong. InputError if not (M10)."""
        from holdfast.memory.gate import admit_removals

        gone: list[Fact] = []

        def edit(document: Document) -> Edit:
            gone[:] = [_fact(document, id, agent)]
            admitted, _ = admit_removals(Proposal(remove=(id,)), turns, document.facts)
            if not admitted:
                raise InputError("the user did not say that it is over or wrong.", hint="Ask the user, or leave it.")
            return Edit(document.without([id]), "agent", "the user said that it is over or wrong", thread=thread)

        self.store.change(agent, edit)
        return gone[0]

    def add(
        self, content: str, agent: str | None = None, *, category: str = "context", confidence: float = 1.0, by: Author = "user"
    ) -> Fact:
        """Remember a fact that somebody states. InputError if it is empty, too long, known already, or tells a secret: nothing is kept.

        It takes the place of facts that say another value of the same thing ("Lives in Oslo" for "Lives in Bern"): `replaces` names them.
        """
        from holdfast.memory.merge import other_values

        text = without_secret(stated_text(content, by_hand=True))
        now = self._now()
        kind: Literal["manual", "assistant"] = "assistant" if by == "agent" else "manual"
        fact = Fact(self._new_id(), text, category, stated_confidence(confidence), now, "manual", Origin(kind, quote=None), valid_from=now)
        made: list[Fact] = []

        def edit(document: Document) -> Edit:
            same = next((one for one in document.facts if one.content.casefold() == text.casefold()), None)
            if same is not None:
                raise InTheWay(f"that is known already, as {same.id}.", hint="Edit that one.")
            replaced = [one.id for one in other_values(text, document.facts)]
            made[:] = [replace(fact, replaces=tuple(replaced))]
            after, evicted = self._within(document.without(replaced).with_fact(made[0]), document)
            taken = {id: (f"{fact.id} took its place", "superseded") for id in replaced}
            return Edit(after, by, "added by hand", {**taken, **evicted})

        self._tell_limit(self.store.change(agent, edit), agent)
        return made[0]

    def edit(
        self,
        id: str,
        agent: str | None = None,
        *,
        content: str | None = None,
        category: str | None = None,
        confidence: float | None = None,
        by: Author = "user",
    ) -> Fact:
        """Change a fact. InputError if there is none, or if the new words tell a secret."""
        made: list[Fact] = []

        def edit(document: Document) -> Edit:
            fact = _fact(document, id, agent)
            new = replace(
                fact,
                content=fact.content if content is None else without_secret(stated_text(content, by_hand=True)),
                category=category or fact.category,
                confidence=fact.confidence if confidence is None else stated_confidence(confidence),
            )
            made[:] = [new]
            return Edit(document.with_fact(new), by, "edited by hand")

        self.store.change(agent, edit)
        return made[0]

    def write_slot(self, slot: str, text: str, agent: str | None = None) -> None:
        """Put another text into a summary that there is; an empty one clears it. InputError if it tells a secret."""
        if slot not in SLOTS and slot not in self.store.document(agent).summaries():
            raise InputError(f"{slot!r} is not a summary.", hint=f"They are: {', '.join(SLOTS)}.")
        said = without_secret(" ".join(text.split()))
        self.store.change(agent, lambda document: Edit(document.with_slot(slot, said, self._now()), "user", f"{slot} edited by hand"))

    def remove(self, id: str, agent: str | None = None, *, by: Author = "user") -> Fact:
        """Take a fact out. It stays in the history and can be brought back; `forget` is for good."""
        gone: list[Fact] = []

        def edit(document: Document) -> Edit:
            gone[:] = [_fact(document, id, agent)]
            return Edit(document.without([id]), by, "removed by hand")

        self.store.change(agent, edit)
        return gone[0]

    def forget(self, id: str, agent: str | None = None) -> Forgotten:
        """Forget a fact for good: nothing of it stays in memory, history, queue or quarantine."""
        return forget_fact(self.store, self.queue, id, agent)

    def check_fact(self, id: str, agent: str | None = None) -> None:
        """NotThere if there is nothing to forget under this id: no fact, no older version of one, nothing that is held."""
        find_fact(self.store, id, check_agent(agent))

    def forget_text(self, text: str) -> Forgotten:
        """Forget everything in memory that holds a text, in all scopes."""
        return forget_text(self.store, self.queue, text)

    def facts_with(self, text: str) -> list[str]:
        """The ids of the facts, in every scope, that `forget_text` would take."""
        return _facts_with(self.store, _Target(Needle(text), anywhere=True))

    def prune(self, before: str, *, dry_run: bool = False) -> dict[str, int]:
        """Remove changes, and conversations that were given up, from before a moment (ISO); counts by place. Facts stay."""
        scopes = [*self.store.scopes()]
        counts = {f"{scope_name(agent)}: history": self.store.prune(before, agent, dry_run=dry_run) for agent in scopes}
        if self.queue.is_there():
            counts["queue"] = self.queue.prune(before, dry_run=dry_run)
        return {place: count for place, count in counts.items() if count}

    def undo(self, change: str | None = None, agent: str | None = None) -> Change:
        """Take back a change, by default the newest that stands. Undoing is itself a change, and can be undone by its id."""
        self.store.recover(agent)

        def edit(document: Document) -> Edit:
            found = chosen_to_undo(self.store.changes(agent), change, scope_name(check_agent(agent)))
            return Edit(undone(document, found), "user", f"undid {found.id}", undoes=found.id)

        made = self.store.change(agent, edit)
        if made is None:
            raise InputError("that changes nothing: everything is as it was before already.")
        return made

    def accept(self, id: str, agent: str | None = None) -> Fact:
        """Let a candidate in as it stands: a person has read it. Sentences for a summary go to the end of what it says by now."""
        held = self._held(id, agent)
        why = ("accepted from quarantine", held.rule)
        fact = replace(held.fact, status="active", confidence=max(held.fact.confidence, self.settings.fact_confidence_threshold))

        def edit(document: Document) -> Edit:
            if held.slot is None:
                after, evicted = self._within(document.with_fact(fact), document)
                return Edit(after, "user", why[0], {fact.id: why, **evicted}, thread=held.thread, released=(id,))
            said = document.slot(held.slot).text
            text = said if fact.content in said else f"{said} {fact.content}".strip()
            after = document if text == said else document.with_slot(held.slot, text, self._now())
            return Edit(after, "user", why[0], {held.slot: why}, thread=held.thread, released=(id,))

        self.store.change(agent, edit)
        return fact if held.slot is None else held.fact

    def reject(self, id: str, agent: str | None = None) -> Held:
        """Throw a candidate away."""
        held = self._held(id, agent)
        self.store.change(agent, lambda document: Edit(document.without([id]), "user", "rejected from quarantine", released=(id,)))
        return held

    def repair(self, agent: str | None = None) -> Change | None:
        """Bring back, from the history, what a damaged document lost. None if nothing is missing."""
        self.store.document(agent)  # sets aside what is damaged, and makes it again where the history holds all of it
        return self.store.rebuild(agent)

    def import_(self, data: Any, agent: str | None = None, *, mode: Literal["merge", "replace"] = "merge") -> Change | None:
        """Take in a document of either spelling. `merge` adds what is not there yet; `replace` puts it in place of all there is.

        A secret in it is left out, and what reads as an order waits for review, as `take_in` tells.
        """
        return self.take_in(data, agent, mode=mode)[0]

    def take_in(
        self, data: Any, agent: str | None = None, *, mode: Literal["merge", "replace"] = "merge"
    ) -> tuple[Change | None, tuple[str, ...]]:
        """Like `import_`: the change, which names what waits for review, and in words what was left out (M10)."""
        from holdfast.memory.importing import read_import, taken_in

        read, waiting = read_import(data, now=self._now(), new_id=self._new_id), self.store.held(agent)

        def edit(document: Document) -> Edit:
            after, held = taken_in(read, document, waiting, mode)
            left = f", {len(read.left_out)} left out" if read.left_out else ""
            return Edit(after, "import", f"imported ({mode}){left}", held=held)

        change = self.store.change(agent, edit)
        self._tell_limit(change, agent)
        return change, read.left_out

    def write_block(self, name: str, text: str, agent: str | None = None, *, by: Author = "agent") -> BlockView:
        """Put another text into a block. InputError if there is no such one, it is read-only, or the text is too long or tells a secret."""
        view, now = self._block(name, agent), self._now()
        if by == "user":  # what an agent writes has been through the gate
            for line in set(text.splitlines()) - set(view.text.splitlines()):
                without_secret(line)
        text, chosen = replace_secrets(text), view
        count = self.counter.count_text
        self.store.change(agent, lambda held: Edit(edited(held, chosen, text, count=count, now=now), by, f"block {name} written"))
        return replace(view, text=text, updated=now)

    def write_block_said(
        self, name: str, text: str, agent: str | None = None, *, turns: Sequence[Turn] = (), thread: str | None = None
    ) -> tuple[BlockView, tuple[str, ...]]:
        """Put what the gate admits of an agent's text into a block; the rest waits. Gives the block and what was left out (M10)."""
        from holdfast.memory.gate import admit_note

        known = next((view.text for view in self.blocks(agent) if view.name == name), "")
        kept, left = admit_note(text, known, turns)
        view = self.write_block(name, kept, agent) if kept.strip() or not left else self._block(name, agent)
        now = self._now()
        held = tuple(
            Held(fact.id, now, fact, f"for the block {name}: {why}", "block", thread)
            for line, why in left
            if line
            for fact in [Fact(self._new_id(), line, created=now, source="agent", origin=Origin("assistant", thread), status="provisional")]
        )
        if held:
            self.store.change(agent, lambda document: Edit(document, "agent", f"held back from the block {name}", held=held))
        return view, tuple(line or "a line that tells a secret" for line, _ in left)

    def _block(self, name: str, agent: str | None) -> BlockView:
        view = next((view for view in self.blocks(agent) if view.name == name), None)
        if view is None:
            known = ", ".join(self.settings.blocks) or "none"
            raise NotThere(f"there is no block {name!r}.", hint=f"memory.blocks in config.yaml has: {known}.")
        return view

    def _within(self, document: Document, before: Document) -> tuple[Document, dict[str, tuple[str, str]]]:
        return evict_from(document, before, self.settings.max_facts, self.store.clock.now())

    def _tell_limit(self, change: Change | None, agent: str | None) -> None:
        """Say so when what a person put in is more than the limit, or made a learned fact go: what is learned next has less room (M11)."""
        gone = sum(one.rule == "evicted" for one in change.differences) if change is not None else 0
        facts, limit = len((self.store.own(agent) or Document()).facts), self.settings.max_facts
        if change is not None and (gone or facts > limit):
            room = f", and {counted(gone, 'learned fact')} made room" if gone else ""
            self.store.bus.emit(MemoryFull(place=scope_name(agent), facts=facts, limit=limit, room=room))

    def _held(self, id: str, agent: str | None) -> Held:
        held = next((one for one in self.review(agent) if one.id == id), None)
        if held is None:
            raise NotThere(f"nothing with the id {id!r} is in quarantine.", hint="`holdfast memory review` lists what is.")
        return held

    def _new_id(self) -> str:
        return new_fact_id(self.store.ids)

    def _now(self) -> str:
        return stamp(self.store.clock.now())


def _fact(document: Document, id: str, agent: str | None) -> Fact:
    fact = document.fact(id)
    if fact is None:
        raise NotThere(f"there is no fact {id!r} in the {scope_name(agent)} memory.", hint="`holdfast memory show` lists the ids.")
    return fact


# Forgetting for good: out of the document, its history, the queue, the quarantine, and whatever was set aside (M14). Unlike a removal,
# which can be undone, nothing of it stays. What was interrupted is done again by asking again: every step looks for what is still there.

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
    facts = _facts_with(store, target)
    for agent in [*store.scopes()]:
        touched |= _forget_in(store, agent, target)
    return Forgotten(tuple(facts), touched)


def _facts_with(store: MemoryStore, target: _Target) -> list[str]:
    every = (fact for agent in [*store.scopes()] for fact in (store.own(agent) or Document()).facts)
    return [fact.id for fact in every if target.fact(fact_to_json(fact)) is None]


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
        return {name: member for name, member in members.items() if not target.in_value({name: member})}

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
    if queue is None or not queue.is_there():
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
