"""What a person, or the agent by its tools, does to memory: adding, editing, undoing, reviewing, moving. Every step is in the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from holdfast.clock import stamp
from holdfast.errors import InputError
from holdfast.memory.applying import apply_decisions, evict_from
from holdfast.memory.changing import Edit
from holdfast.memory.document import Document, parse, to_json
from holdfast.memory.facts import SLOTS, Candidate, Decision, Fact, Origin, Proposal, Turn
from holdfast.memory.history import Author, Change, newest_undoable, undone
from holdfast.memory.quarantine import Held
from holdfast.memory.reading import MemoryReader
from holdfast.memory.rendering import BlockView, blocks_of, edited
from holdfast.memory.scopes import check_agent, scope_name
from holdfast.memory.updater import new_fact_id
from holdfast.text.secrets import redact

_LONGEST = 2000


class MemoryEditor(MemoryReader):
    """Reads and changes memory. Safe for many threads and processes."""

    def propose(self, content: str, agent: str | None = None, *, turns: Sequence[Turn] = (), thread: str | None = None) -> Decision:
        """Let the gate decide about something that an agent wants to remember, and do as it says."""
        from holdfast.memory.gate import judge

        candidate = Candidate(_checked(content), confidence=0.9)
        made: list[Decision] = []

        def edit(document: Document) -> Edit | None:
            made[:] = judge(
                Proposal((candidate,)),
                turns,
                document.facts,
                threshold=self.settings.fact_confidence_threshold,
                injected=self._composed(agent, self.settings.max_injection_tokens).text,
                now=self.store.clock.now(),
                new_id=self._new_id,
                thread=thread,
            )
            outcome = apply_decisions(document, made, now=self.store.clock.now(), thread=thread)
            after, evicted = evict_from(outcome.document, self.settings.max_facts, self.store.clock.now())
            reasons = {**outcome.reasons, **evicted}
            return Edit(after, "agent", "the agent's own note", reasons, thread=thread, held=outcome.held)

        self.store.change(agent, edit)
        return made[0] if made else Decision("drop", candidate, "the gate had nothing to say about it", rule="empty")

    def add(
        self, content: str, agent: str | None = None, *, category: str = "context", confidence: float = 1.0, by: Author = "user"
    ) -> Fact:
        """Remember a fact that somebody states. Secrets in it are redacted. InputError if it is empty, too long, or known already."""
        text = redact(_checked(content))
        now = self._now()
        kind: Literal["manual", "assistant"] = "assistant" if by == "agent" else "manual"
        fact = Fact(self._new_id(), text, category, _share(confidence), now, "manual", Origin(kind, quote=None), valid_from=now)

        def edit(document: Document) -> Edit:
            same = next((one for one in document.facts if one.content.casefold() == text.casefold()), None)
            if same is not None:
                raise InputError(f"that is known already, as {same.id}.", hint="Edit that one.")
            after, evicted = evict_from(document.with_fact(fact), self.settings.max_facts, self.store.clock.now())
            return Edit(after, by, "added by hand", evicted)

        self.store.change(agent, edit)
        return fact

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
        """Change a fact, or (id is one of the six slots) a summary's text. InputError if there is none."""
        made: list[Fact] = []

        def edit(document: Document) -> Edit:
            fact = self._fact(document, id, agent)
            new = replace(
                fact,
                content=fact.content if content is None else redact(_checked(content)),
                category=category or fact.category,
                confidence=fact.confidence if confidence is None else _share(confidence),
            )
            made[:] = [new]
            return Edit(document.with_fact(new), by, "edited by hand")

        self.store.change(agent, edit)
        return made[0]

    def write_slot(self, slot: str, text: str, agent: str | None = None) -> None:
        """Put another text into one of the six summaries; an empty one clears it."""
        if slot not in SLOTS:
            raise InputError(f"{slot!r} is not a summary.", hint=f"They are: {', '.join(SLOTS)}.")
        said = redact(" ".join(text.split()))
        self.store.change(agent, lambda document: Edit(document.with_slot(slot, said, self._now()), "user", f"{slot} edited by hand"))

    def remove(self, id: str, agent: str | None = None, *, by: Author = "user") -> Fact:
        """Take a fact out. It stays in the history and can be brought back; `forget` is for good."""
        gone: list[Fact] = []

        def edit(document: Document) -> Edit:
            gone[:] = [self._fact(document, id, agent)]
            return Edit(document.without([id]), by, "removed by hand")

        self.store.change(agent, edit)
        return gone[0]

    # History

    def history(self, agent: str | None = None, *, fact: str | None = None, last: int | None = None) -> list[Change]:
        """The changes of a scope, oldest first; those of one fact; the last few."""
        agent = check_agent(agent)
        self.store.recover(agent)  # a change that is written down but not carried out yet must not be told as if it were
        changes = self.store.history(agent).changes()
        if fact is not None:
            changes = [change for change in changes if any(one.id == fact for one in change.differences)]
        return changes[-last:] if last else changes

    def undo(self, change: str | None = None, agent: str | None = None) -> Change:
        """Take back a change, by default the newest that stands. Undoing is itself a change, and can be undone by its id."""
        agent = check_agent(agent)
        self.store.recover(agent)

        def edit(document: Document) -> Edit:
            changes = self.store.history(agent).changes()
            found = newest_undoable(changes) if change is None else next((one for one in changes if one.id == change), None)
            if found is None:
                what = f"there is no change {change!r}" if change else "there is nothing to undo"
                raise InputError(f"{what} in the {scope_name(agent)} memory.", hint="`holdfast memory history` lists the changes.")
            if any(one.undoes == found.id for one in changes) and not any(
                one.undoes == last.id for last in changes if last.undoes == found.id for one in changes
            ):
                raise InputError(f"{found.id} has been undone already.", hint="Undo the undoing by its own id to have it again.")
            return Edit(undone(document, found), "user", f"undid {found.id}", undoes=found.id)

        made = self.store.change(agent, edit)
        if made is None:
            raise InputError("that changes nothing: everything is as it was before already.")
        return made

    # Quarantine

    def review(self, agent: str | None = None) -> list[Held]:
        """What waits for a person."""
        return self.store.quarantine(check_agent(agent)).held()

    def accept(self, id: str, agent: str | None = None) -> Fact:
        """Let a candidate in as it stands: a person has read it."""
        held = self._held(id, agent)
        if held.slot is not None:
            return self._accept_slot(held, held.slot, agent)
        fact = replace(held.fact, status="active", confidence=max(held.fact.confidence, self.settings.fact_confidence_threshold))

        def edit(document: Document) -> Edit:
            after, evicted = evict_from(document.with_fact(fact), self.settings.max_facts, self.store.clock.now())
            reasons = {fact.id: ("accepted from quarantine", held.rule), **evicted}
            return Edit(after, "user", "accepted from quarantine", reasons, thread=held.thread, released=(id,))

        self.store.change(agent, edit)
        return fact

    def _accept_slot(self, held: Held, slot: str, agent: str | None) -> Fact:
        """Sentences for a summary go to the end of what it says by now, whoever wrote that since."""

        def edit(document: Document) -> Edit:
            said = document.slot(slot).text
            text = said if held.fact.content in said else f"{said} {held.fact.content}".strip()
            after = document if text == said else document.with_slot(slot, text, self._now())
            reasons = {slot: ("accepted from quarantine", held.rule)}
            return Edit(after, "user", "accepted from quarantine", reasons, thread=held.thread, released=(held.id,))

        self.store.change(agent, edit)
        return held.fact

    def reject(self, id: str, agent: str | None = None) -> Held:
        """Throw a candidate away."""
        held = self._held(id, agent)
        self.store.change(agent, lambda document: Edit(document, "user", "rejected from quarantine", released=(id,)))
        return held

    # Moving

    def export(self, agent: str | None = None) -> dict[str, Any]:
        """The document that an agent reads, in the form of `memory.json`."""
        return to_json(self.store.document(agent))

    def import_(self, data: Any, agent: str | None = None, *, mode: Literal["merge", "replace"] = "merge") -> Change | None:
        """Take in a document of either spelling. `merge` adds what is not there yet; `replace` puts it in place of all there is."""
        given = parse(data, path="the document to import")

        def edit(document: Document) -> Edit:
            after = given if mode == "replace" else _merged(document, given)
            after, evicted = evict_from(after, self.settings.max_facts, self.store.clock.now())
            return Edit(after, "import", f"imported ({mode})", evicted)

        return self.store.change(agent, edit)

    # Blocks

    def blocks(self, agent: str | None = None) -> list[BlockView]:
        """The editable blocks as they are now."""
        return blocks_of(self.store.document(agent), self.settings.blocks)

    def shown_blocks(self, agent: str | None = None) -> list[BlockView]:
        """The blocks that stand in the prompt, none when injection is off; read-only where the agent has no tool to write them."""
        if not (self.settings.blocks and self.settings.enabled and self.settings.injection_enabled):
            return []
        writable = self.settings.mode == "tool"
        return [view if writable else replace(view, read_only=True) for view in self.blocks(agent)]

    def write_block(self, name: str, text: str, agent: str | None = None, *, by: Author = "agent") -> BlockView:
        """Put another text into a block. InputError if there is none of this name, if it is read-only, or if the text is too long."""
        view = next((view for view in self.blocks(agent) if view.name == name), None)
        if view is None:
            known = ", ".join(self.settings.blocks) or "none"
            raise InputError(f"there is no block {name!r}.", hint=f"memory.blocks in config.yaml has: {known}.")
        text, now, chosen = redact(text), self._now(), view
        count = self.counter.count_text
        self.store.change(agent, lambda held: Edit(edited(held, chosen, text, count=count, now=now), by, f"block {name} written"))
        return replace(view, text=text, updated=now)

    def _fact(self, document: Document, id: str, agent: str | None) -> Fact:
        fact = document.fact(id)
        if fact is None:
            raise InputError(f"there is no fact {id!r} in the {scope_name(agent)} memory.", hint="`holdfast memory show` lists the ids.")
        return fact

    def _held(self, id: str, agent: str | None) -> Held:
        held = next((one for one in self.review(agent) if one.id == id), None)
        if held is None:
            raise InputError(f"nothing with the id {id!r} is in quarantine.", hint="`holdfast memory review` lists what is.")
        return held

    def _new_id(self) -> str:
        return new_fact_id(self.store.ids)

    def _now(self) -> str:
        return stamp(self.store.clock.now())


def _merged(document: Document, given: Document) -> Document:
    said = {fact.content.casefold() for fact in document.facts}
    for fact in given.facts:
        if fact.content.casefold() in said:
            continue
        taken = document.fact(fact.id) is not None
        document = document.with_fact(replace(fact, id=f"{fact.id}-imported") if taken else fact)
    slots = {**document.slots, **{name: summary for name, summary in given.slots.items() if not document.slot(name).text}}
    return replace(document, slots=slots, blocks={**given.blocks, **document.blocks}, extra={**given.extra, **document.extra})


def _checked(content: str) -> str:
    text = " ".join(content.split())
    if not text:
        raise InputError("a fact needs words.", hint='For example: "Prefers short answers".')
    if len(text) > _LONGEST:
        raise InputError(f"a fact has at most {_LONGEST} characters, and this one {len(text)}.", hint="Make several of it.")
    return text


def _share(value: float) -> float:
    if not 0.0 <= value <= 1.0:
        raise InputError(f"{value} is not a confidence.", hint="Give a number from 0 to 1.")
    return float(value)
