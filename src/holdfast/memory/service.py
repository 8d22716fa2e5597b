"""`MemoryService`: memory as a middleware, the command line, the API and an agent's tools use it.

    with MemoryService.open(load_config()) as memory:
        memory.enqueue("thread-7", turns_of(messages))
        memory.render_for("coder")          # the text for the prompt

In a server `start()` lets a thread of its own work through the queue. In a short script nothing need be started: what is queued is on
disk, and `flush()`, or the end of the process, learns from it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from holdfast.clock import stamp
from holdfast.config.memory_sections import Memory
from holdfast.errors import HoldfastError, InputError, NotThere
from holdfast.memory.document import Document, FactIndex, Match, parse, to_json
from holdfast.memory.facts import SLOTS, Candidate, Decision, Fact, Origin, Proposal, Turn
from holdfast.memory.forgetting import Forgotten, find_fact, forget_fact, forget_text
from holdfast.memory.history import Author, Change, Held, chosen_to_undo, undone
from holdfast.memory.layout import Layout
from holdfast.memory.queue import MemoryQueue, Retry
from holdfast.memory.rendering import BlockView, Rendering, blocks_of, compose, edited, remind
from holdfast.memory.storage import FileMemoryStorage, open_storage
from holdfast.memory.store import Edit, MemoryStore, StorageState, check_agent, scope_name
from holdfast.memory.updater import Extractor, Updater, apply_decisions, evict_from, new_fact_id
from holdfast.memory.worker import Flushed, Worker
from holdfast.secret_forms import replace_secrets
from holdfast.tokens.counter import TokenCounter, open_counter
from holdfast.tracing import asked_about, span

if TYPE_CHECKING:
    from holdfast.config.sections import Config

_RENDERINGS = 256  # held at once: agents times budgets
_LONGEST = 2000  # characters of a fact that somebody states

Extracting = Extractor | Callable[[Document], Extractor]
"""An extractor, or a function that makes one for a document: for one that wants to know the summaries too."""


@dataclass(frozen=True)
class Status:
    """How memory is doing, for `doctor` and the API."""

    enabled: bool
    injection: bool
    storage: StorageState
    facts: Mapping[str, int]
    waiting: int
    given_up: int
    held: int


class MemoryService:
    """One object for everything that is done with memory. Safe for many threads and processes; every change is in the history.

    `agent` is None for the global memory everywhere; names are checked. With `memory.enabled: false` nothing is queued, learned or
    injected, and everything can still be looked at and edited.
    """

    def __init__(
        self,
        store: MemoryStore,
        *,
        settings: Memory | None = None,
        extractor: Extracting | None = None,
        counter: TokenCounter | None = None,
        queue: MemoryQueue | None = None,
        retry: Retry | None = None,
    ) -> None:
        self.store = store
        self.settings = settings or Memory()
        place = store.layout.base / "memory.d" / "queue.db"
        self.queue = queue or MemoryQueue(
            place, debounce=self.settings.debounce_seconds, retry=retry, clock=store.clock, ids=store.ids, bus=store.bus
        )
        self._counter = counter
        self._extractor = extractor
        self._worker: Worker | None = None
        self._renderings: dict[tuple[str | None, int], tuple[Document, Rendering]] = {}
        self._indexes: dict[str | None, tuple[Document, FactIndex]] = {}
        self._threads = threading.Lock()

    @classmethod
    def open(
        cls, config: Config, *, extractor: Extracting | None = None, counter: TokenCounter | None = None, **parts: Any
    ) -> MemoryService:
        """The memory that the configuration describes. `parts` (clock, ids, bus, disk) go to the storage."""
        return cls(open_storage(config, **parts), settings=config.memory, extractor=extractor, counter=counter)

    @classmethod
    def at(cls, base: str | Path, *, extractor: Extracting | None = None, settings: Memory | None = None, **parts: Any) -> MemoryService:
        """Memory in a base directory, without any configuration file."""
        chosen = settings or Memory()
        layout = Layout.below(base, chosen.storage_path, inherit=chosen.inherit)
        return cls(FileMemoryStorage(layout, **parts), settings=chosen, extractor=extractor)

    def __enter__(self) -> MemoryService:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self, timeout: float = 10.0) -> Flushed:
        """Learn from what waits, for at most `timeout` seconds, and let go of everything. What is left stays on disk."""
        done = self._worker.close(timeout) if self._worker is not None else Flushed()
        self.let_go()
        return done

    def let_go(self) -> None:
        """Let go of everything without learning from what waits."""
        self.queue.close()
        with self._threads:
            for _, index in self._indexes.values():
                index.close()
            self._indexes.clear()
        self.store.close()

    def status(self) -> Status:
        """How memory is doing."""
        scopes = list(self.store.scopes())
        items = self.queue.items() if self.queue.path.exists() else []
        return Status(
            enabled=self.settings.enabled,
            injection=self._injects,
            storage=self.store.state,
            facts={scope_name(agent): len(own.facts) for agent in scopes if (own := self.store.own(agent)) is not None},
            waiting=sum(1 for item in items if item.gave_up is None),
            given_up=sum(1 for item in items if item.gave_up is not None),
            held=sum(len(self.store.held(agent)) for agent in scopes),
        )

    # Learning

    def enqueue(self, thread: str, turns: Sequence[Turn], agent: str | None = None) -> str | None:
        """Queue turns to learn from; durable on return. None if memory is off or there is nothing new in them."""
        if not self.settings.enabled or self.settings.mode == "tool" or not turns:
            check_agent(agent)
            return None
        id = self.queue.put(thread, turns, agent)
        self.worker.notice()
        return id

    def start(self, *, signals: bool = True) -> None:
        """Work through the queue in a thread of its own, first of all what an earlier process left. For servers."""
        self.worker.start(signals=signals)

    def flush(self, timeout: float | None = None) -> Flushed:
        """Learn from everything that waits, now; says how many items are done, have failed, and are left."""
        return self.worker.flush(timeout)

    @property
    def learns_by_rules(self) -> bool:
        """Whether no model is asked, so that learning takes no time to speak of. False also where the model cannot be made."""
        from holdfast.memory.rules import RulesExtractor

        try:
            extractor = self._extractor(Document()) if callable(self._extractor) else self._extractor
        except HoldfastError:
            return False
        return extractor is None or isinstance(extractor, RulesExtractor)

    def retry_given_up(self) -> int:
        """Put the conversations that were given up in line again, to be tried as if new; says how many."""
        return self.queue.retry_given_up() if self.queue.path.exists() else 0

    @property
    def worker(self) -> Worker:
        """Who works through the queue."""
        with self._threads:
            if self._worker is None:
                self._worker = Worker(self._updater(), enabled=self.settings.enabled)
            return self._worker

    def _updater(self) -> Updater:
        extractor = self._extractor
        if extractor is None:
            from holdfast.memory.rules import RulesExtractor  # its tables of patterns are made when somebody first learns something

            extractor = RulesExtractor()
        settings = self.settings
        return Updater(
            self.store,
            self.queue,
            extractor,
            threshold=settings.fact_confidence_threshold,
            max_facts=settings.max_facts,
            shown=lambda agent: self._composed(agent, settings.max_injection_tokens).text,
        )

    # Reading: the text for the prompt, reminders, and search, from caches that hold until somebody writes (M7, M12)

    @property
    def counter(self) -> TokenCounter:
        """Counts the tokens of what is injected, as `memory.token_counter` says."""
        if self._counter is None:
            self._counter = open_counter(self.settings.token_counter, bus=self.store.bus)
        return self._counter

    @property
    def _injects(self) -> bool:
        return self.settings.enabled and self.settings.injection_enabled

    def document(self, agent: str | None = None) -> Document:
        """What an agent reads."""
        return self.store.document(agent)

    def render_for(self, agent: str | None = None, budget: int | None = None) -> str:
        """The text for the prompt; empty when injection is off. From a cache until somebody learns something."""
        return self.rendering_for(agent, budget).text

    def rendering_for(self, agent: str | None = None, budget: int | None = None) -> Rendering:
        """The text for the prompt with its tokens and the ids of the facts in it. `budget` may lower `max_injection_tokens`."""
        if not self._injects:
            check_agent(agent)
            return Rendering()
        most = self.settings.max_injection_tokens
        return self._composed(agent, most if budget is None else min(budget, most))

    def _composed(self, agent: str | None, budget: int) -> Rendering:
        document = self.store.document(agent)
        held = self._renderings.get((agent, budget))
        if held is not None and (held[0] is document or held[0] == document):
            return held[1]
        rendering = compose(document, budget, self.counter.count_text)
        if len(self._renderings) >= _RENDERINGS:
            self._renderings.clear()
        self._renderings[agent, budget] = (document, rendering)
        return rendering

    def reminder_for(
        self, agent: str | None = None, question: str = "", *, shown: Collection[str] = (), budget: int = 300, top_k: int = 5
    ) -> Rendering:
        """Facts for a reminder in the conversation: those that the question is about and that are not `shown` already (S19).

        Empty unless `injection: relevant` is set. What was learned since is `learned_since`.
        """
        if not self._injects or self.settings.injection != "relevant" or not question.strip():
            return Rendering()
        found = self._index(agent).search(question, top_k, besides=(*shown, *self._unsettled(agent)))
        return remind((match.fact for match in found), budget, self.counter.count_text)

    def learned_since(self, moment: str, agent: str | None = None, *, shown: Collection[str] = (), budget: int = 300) -> Rendering:
        """Facts that were made after a moment (ISO) and are not shown yet, for a reminder (S19)."""
        if not self._injects:
            return Rendering()
        new = [fact for fact in self.store.document(agent).facts if fact.created > moment and fact.id not in shown]
        return remind(new, budget, self.counter.count_text)

    def search(self, question: str, agent: str | None = None, top_k: int = 10) -> list[Match]:
        """The facts that fit a question, best first; what waits for a person is not among them."""
        with span("search_memory", agent or "user", "RETRIEVER", asked_about(question)) as traced:
            found = self._index(agent).search(question, top_k, besides=self._unsettled(agent))
            traced.set({"holdfast.found": len(found)})
            return found

    def _unsettled(self, agent: str | None) -> tuple[str, ...]:
        return tuple(fact.id for fact in self.store.document(agent).facts if fact.status != "active")

    def _index(self, agent: str | None) -> FactIndex:
        document = self.store.document(agent)
        with self._threads:
            held = self._indexes.get(agent)
            if held is None or (held[0] is not document and held[0] != document):
                if held is not None:
                    held[1].close()
                held = self._indexes[agent] = (document, FactIndex(document))
            return held[1]

    # Changing: what a person, or the agent by its tools, does to memory

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

        candidate = Candidate(_checked(content), confidence=0.9, replaces=(replaces,) if replaces else ())
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
            outcome = apply_decisions(document, made, now=now, thread=thread)
            after, evicted = evict_from(outcome.document, self.settings.max_facts, now)
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
        """Remember a fact that somebody states. Secrets in it are redacted. InputError if it is empty, too long, or known already."""
        text = replace_secrets(_checked(content))
        now = self._now()
        kind: Literal["manual", "assistant"] = "assistant" if by == "agent" else "manual"
        fact = Fact(self._new_id(), text, category, _share(confidence), now, "manual", Origin(kind, quote=None), valid_from=now)

        def edit(document: Document) -> Edit:
            same = next((one for one in document.facts if one.content.casefold() == text.casefold()), None)
            if same is not None:
                raise InputError(f"that is known already, as {same.id}.", hint="Edit that one.")
            after, evicted = self._within(document.with_fact(fact))
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
        """Change a fact. InputError if there is none."""
        made: list[Fact] = []

        def edit(document: Document) -> Edit:
            fact = _fact(document, id, agent)
            new = replace(
                fact,
                content=fact.content if content is None else replace_secrets(_checked(content)),
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
        said = replace_secrets(" ".join(text.split()))
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

    def prune(self, before: str, *, dry_run: bool = False) -> dict[str, int]:
        """Remove changes, and conversations that were given up, from before a moment (ISO); counts by place. Facts stay."""
        scopes = [*self.store.scopes()]
        counts = {f"{scope_name(agent)}: history": self.store.prune(before, agent, dry_run=dry_run) for agent in scopes}
        if self.queue.path.exists():
            counts["queue"] = self.queue.prune(before, dry_run=dry_run)
        return {place: count for place, count in counts.items() if count}

    def history(self, agent: str | None = None, *, fact: str | None = None, last: int | None = None) -> list[Change]:
        """The changes of a scope, oldest first; those of one fact; the last few."""
        self.store.recover(agent)  # a change that is written down but not carried out yet must not be told as if it were
        changes = self.store.changes(agent)
        if fact is not None:
            changes = [change for change in changes if any(one.id == fact for one in change.differences)]
        return changes[-last:] if last else changes

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

    def review(self, agent: str | None = None) -> list[Held]:
        """What waits for a person: candidates, and facts that an earlier version took in without the user's word."""
        why = "was taken in by an earlier version without being in the user's own words"
        weak = [fact for fact in self.store.document(agent).facts if fact.status == "provisional"]
        return [*self.store.held(agent), *(Held(fact.id, fact.created, fact, why, "provisional", fact.origin.thread) for fact in weak)]

    def accept(self, id: str, agent: str | None = None) -> Fact:
        """Let a candidate in as it stands: a person has read it. Sentences for a summary go to the end of what it says by now."""
        held = self._held(id, agent)
        why = ("accepted from quarantine", held.rule)
        fact = replace(held.fact, status="active", confidence=max(held.fact.confidence, self.settings.fact_confidence_threshold))

        def edit(document: Document) -> Edit:
            if held.slot is None:
                after, evicted = self._within(document.with_fact(fact))
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

    def export(self, agent: str | None = None) -> dict[str, Any]:
        """The document that an agent reads, in the form of `memory.json`. Damaged if it was damaged and nothing took its place."""
        self.store.check_lost(agent)
        return to_json(self.store.document(agent))

    def repair(self, agent: str | None = None) -> Change | None:
        """Bring back, from the history, what a damaged document lost. None if nothing is missing."""
        self.store.document(agent)  # sets aside what is damaged, and makes it again where the history holds all of it
        return self.store.rebuild(agent)

    def import_(self, data: Any, agent: str | None = None, *, mode: Literal["merge", "replace"] = "merge") -> Change | None:
        """Take in a document of either spelling. `merge` adds what is not there yet; `replace` puts it in place of all there is."""
        given = parse(data, path="the document to import")

        def edit(document: Document) -> Edit:
            after, evicted = self._within(given if mode == "replace" else document.joined(given))
            return Edit(after, "import", f"imported ({mode})", evicted)

        return self.store.change(agent, edit)

    # Blocks: texts that an agent edits itself (M15)

    def blocks(self, agent: str | None = None) -> list[BlockView]:
        """The editable blocks as they are now."""
        return blocks_of(self.store.document(agent), self.settings.blocks)

    def shown_blocks(self, agent: str | None = None) -> list[BlockView]:
        """The blocks that stand in the prompt; none when injection is off."""
        return self.blocks(agent) if self.settings.blocks and self._injects else []

    def write_block(self, name: str, text: str, agent: str | None = None, *, by: Author = "agent") -> BlockView:
        """Put another text into a block. InputError if there is none of this name, if it is read-only, or if the text is too long."""
        view = self._block(name, agent)
        text, now, chosen = replace_secrets(text), self._now(), view
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

    def _within(self, document: Document) -> tuple[Document, dict[str, tuple[str, str]]]:
        return evict_from(document, self.settings.max_facts, self.store.clock.now())

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


def _checked(content: str) -> str:
    if not isinstance(content, str):
        raise InputError(f"a fact is text, and not {type(content).__name__}.", hint='For example: "Prefers short answers".')
    text = " ".join(content.split())
    if not text:
        raise InputError("a fact needs words.", hint='For example: "Prefers short answers".')
    if len(text) > _LONGEST:
        raise InputError(f"a fact has at most {_LONGEST} characters, and this one {len(text)}.", hint="Make several of it.")
    return text


def _share(value: float) -> float:
    if not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise InputError(f"{value!r} is not a confidence.", hint="Give a number from 0 to 1.")
    return float(value)
