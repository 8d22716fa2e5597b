"""Every change of a memory document as a value: what was there before, what after, why, when, from where. And the way back.

The log of a scope only grows. Undoing is itself a change, so it can be undone; only forgetting takes something out of the log. Beside it
is the quarantine: candidates that the gate would not let in by itself wait there until a person accepts or rejects them (M10, M14). What
the gate decided becomes a changed document, things held, and a reason for each, by the functions at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, cast, get_args

from holdfast.clock import stamp
from holdfast.durable import strict_json
from holdfast.errors import Damaged, InputError, InTheWay, StorageError
from holdfast.memory.document import (
    Document,
    Summary,
    block_from,
    block_to_json,
    fact_from,
    fact_to_json,
    is_summary_name,
    summary_from,
    summary_to_json,
)
from holdfast.memory.facts import SLOTS, Decision, Fact, Origin, SlotUpdate, Turn

SCHEMA = 1
Author = Literal["updater", "user", "agent", "import", "storage", "forget"]
"""Who made a change: learning from a conversation, a person, the agent by its tools, an import, a caller of `save`, or forgetting."""
Kind = Literal["fact", "slot", "block", "member"]
_PARTS = {"user": "user_extra", "history": "history_extra"}


@dataclass(frozen=True)
class Difference:
    """One thing that is different: a fact, a summary, a block, or a member that Holdfast does not know. None means: it was not there."""

    kind: Kind
    id: str
    before: Any = None
    after: Any = None
    why: str = ""
    rule: str = ""

    @property
    def what(self) -> str:
        """`added`, `removed` or `changed`."""
        return "added" if self.before is None else "removed" if self.after is None else "changed"


@dataclass(frozen=True)
class Change:
    """One step from a revision to the next."""

    id: str
    time: str
    revision: int
    by: Author
    why: str
    differences: tuple[Difference, ...] = ()
    thread: str | None = None
    item: str | None = None
    """The update of the queue that this change comes from: what was applied once is not applied again."""
    undoes: str | None = None
    held: tuple[Mapping[str, Any], ...] = ()
    """Candidates that went into quarantine in the same step."""


def to_record(change: Change) -> dict[str, Any]:
    """A change as it stands in the log."""
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "id": change.id,
        "time": change.time,
        "revision": change.revision,
        "by": change.by,
        "why": change.why,
        "thread": change.thread,
        "item": change.item,
        "undoes": change.undoes,
        "held": [dict(one) for one in change.held],
        "differences": [
            {key: member for key, member in vars(difference).items() if member not in (None, "")} for difference in change.differences
        ],
    }
    return {key: member for key, member in record.items() if member not in (None, [])}


def from_record(record: Mapping[str, Any]) -> Change:
    """The change in a record. Damaged if it is none."""
    try:
        return Change(
            id=str(record["id"]),
            time=str(record["time"]),
            revision=int(record["revision"]),
            by=record["by"] if record["by"] in get_args(Author) else "storage",
            why=str(record.get("why", "")),
            thread=record.get("thread"),
            item=record.get("item"),
            undoes=record.get("undoes"),
            held=tuple(record.get("held", ())),
            differences=tuple(_difference(one) for one in record.get("differences", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"a record of the memory's history is not a change ({error!r}).") from error


def _difference(value: Mapping[str, Any]) -> Difference:
    kind = cast("Kind", value["kind"])
    return Difference(kind, str(value["id"]), value.get("before"), value.get("after"), value.get("why", ""), value.get("rule", ""))


# Comparing, redoing, undoing


def differences(before: Document, after: Document, reasons: Mapping[str, tuple[str, str]] | None = None) -> tuple[Difference, ...]:
    """What is different, with the reason (why, rule) given for an id."""
    known = reasons or {}
    same = {id(fact) for fact in before.facts} & {id(fact) for fact in after.facts}  # most facts are the very same objects

    def compared() -> Iterator[Difference]:
        for (kind, id), old, new in _pairs(_parts(before, same), _parts(after, same)):
            if old != new:
                why, rule = known.get(id, ("", ""))
                yield Difference(kind, id, old, new, why, rule)

    return tuple(compared())


def redone(document: Document, change: Change) -> Document:
    """The document with a change applied, whatever it holds now: for a change that was written down, but not carried out."""
    for difference in change.differences:
        document = _put(document, difference.kind, difference.id, difference.after)
    return replace(document, revision=max(change.revision, document.revision), updated=change.time)


def undone(document: Document, change: Change) -> Document:
    """The document as it was before this change, as far as the things go that it touched.

    InputError, naming it, if one of them has been changed again since: then what is there now is somebody's newer wish.
    """
    parts = _parts(document)
    for difference in change.differences:
        if parts.get((difference.kind, difference.id)) != difference.after:
            raise InputError(
                f"{difference.kind} {difference.id} has been changed again since {change.id}.",
                hint="Undo the newer change first; `holdfast memory history` lists them.",
            )
        document = _put(document, difference.kind, difference.id, difference.before)
    return document


def chosen_to_undo(changes: Sequence[Change], id: str | None, scope: str) -> Change:
    """The change of this id, or without one the newest that stands. InputError if there is none, or if it has been undone already."""
    gone = {one.undoes for one in changes if one.undoes}
    newest = next((one for one in reversed(changes) if one.by == "forget" or one.differences), None)
    if id is None and newest is not None and newest.by == "forget":
        hint = "`holdfast memory history` lists the changes; `holdfast memory undo CHANGE` takes an older one back."
        raise InputError("the last change forgot something for good, and that cannot be undone.", hint=hint)
    standing = (one for one in reversed(changes) if one.differences and not one.undoes and one.id not in gone)
    found = next(standing, None) if id is None else next((one for one in changes if one.id == id), None)
    if found is None:
        what = f"there is no change {id!r}" if id else "there is nothing to undo"
        raise InputError(f"{what} in the {scope} memory.", hint="`holdfast memory history` lists the changes.")
    undoings = [one.id for one in changes if one.undoes == found.id]
    if undoings and not any(one.undoes in undoings for one in changes):
        raise InTheWay(f"{found.id} has been undone already.", hint="Undo the undoing by its own id to have it again.")
    return found


def _parts(document: Document, besides: Collection[int] = ()) -> dict[tuple[Kind, str], Any]:
    """Everything that can be different, by kind and id, as JSON; without the facts of these identities."""
    parts: dict[tuple[Kind, str], Any] = {("fact", fact.id): fact_to_json(fact) for fact in document.facts if id(fact) not in besides}
    for name, summary in document.slots.items():
        if summary != Summary():
            parts["slot", name] = summary_to_json(summary)
    for name, block in document.blocks.items():
        parts["block", name] = block_to_json(block)
    for name, member in document.extra.items():
        parts["member", name] = member
    for part, attribute in _PARTS.items():
        for name, member in getattr(document, attribute).items():
            parts["member", f"{part}/{name}"] = member
    return parts


def _pairs(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    for key in dict.fromkeys((*old, *new)):
        yield key, old.get(key), new.get(key)


def _put(document: Document, kind: Kind, id: str, value: Any) -> Document:
    if kind == "fact":
        return document.without([id]) if value is None else document.with_fact(fact_from(value))
    if kind == "block":
        return document.with_block(id, None if value is None else block_from(value))
    if kind == "slot":
        slots = {name: summary for name, summary in document.slots.items() if name != id}
        return replace(document, slots=slots if value is None else {**slots, id: summary_from(value)})
    part, _, name = id.rpartition("/")
    attribute = _PARTS.get(part, "extra")
    name = name if part in _PARTS else id
    members = {key: member for key, member in getattr(document, attribute).items() if key != name}
    if value is not None:
        members[name] = value
    member: dict[str, Any] = {attribute: members}
    return replace(document, **member)


LIMIT = 500
"""More than this is nobody's reading: the oldest make room, so that a flood cannot fill the disk."""


@dataclass(frozen=True)
class Held:
    """A candidate in quarantine: what would be stored, and why it was not.

    With a `slot` it is no fact, but sentences for that summary.
    """

    id: str
    time: str
    fact: Fact
    why: str
    rule: str = ""
    thread: str | None = None
    slot: str | None = None


def held_to_json(held: Held) -> dict[str, Any]:
    """As it stands in the document, and in the record of the change that put it there."""
    value = {
        "id": held.id,
        "time": held.time,
        "why": held.why,
        "rule": held.rule,
        "thread": held.thread,
        "slot": held.slot,
        "fact": fact_to_json(held.fact),
    }
    return {key: member for key, member in value.items() if member not in (None, "")}


def held_from(value: Mapping[str, Any]) -> Held:
    """The candidate in a JSON value. Damaged if it is none."""
    try:
        return Held(
            str(value["id"]),
            str(value["time"]),
            fact_from(value["fact"]),
            str(value.get("why", "")),
            str(value.get("rule", "")),
            value.get("thread"),
            value.get("slot") if is_summary_name(value.get("slot")) else None,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"this is not a candidate in quarantine ({error!r}).") from error


def read_held(data: bytes, path: str) -> list[Held]:
    """All candidates of a document, oldest first. Damaged if it is none."""
    value = strict_json.decode(data, path=path)
    if not isinstance(value, dict) or not isinstance(value.get("held"), list):
        raise Damaged(f"{path} is not a quarantine.", path=path, hint="Set it aside and start anew.")
    if isinstance(value.get("schema"), int) and value["schema"] > SCHEMA:
        raise StorageError(f"{path} has schema {value['schema']}, and this version knows up to {SCHEMA}.", path=path, operation="open")
    return [held_from(one) for one in value["held"]]


def written_held(held: Iterable[Held]) -> bytes:
    """The document of these candidates."""
    return strict_json.encode({"schema": SCHEMA, "held": [held_to_json(one) for one in held]})


def changed(held: Iterable[Held], new: Iterable[Held], released: Collection[str]) -> list[Held]:
    """The candidates with new ones, each once (same id, or the same words for the same reason), and without those that leave."""
    kept = list(held)
    for one in new:
        if not any(_is_same(other, one) for other in kept):
            kept.append(one)
    return [one for one in kept[-LIMIT:] if one.id not in released]


def _is_same(one: Held, other: Held) -> bool:
    return one.id == other.id or (one.fact.content, one.rule, one.slot) == (other.fact.content, other.rule, other.slot)


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


def evict_from(document: Document, before: Document, max_facts: int, now: datetime) -> tuple[Document, dict[str, tuple[str, str]]]:
    """The document within its limit, and the reason for each fact that made room (M11).

    No more go than have come since `before`: a memory that was over the limit (an import, a lower limit) is not cut down by what is next.
    """
    new = len(document.facts) - len(before.facts)
    if len(document.facts) <= max_facts or new <= 0:
        return document, {}
    from holdfast.memory import merge

    kept, gone = merge.evict(document.facts, max_facts, now, at_most=new)
    why = (f"made room: memory.max_facts is {max_facts}", "evicted")
    return replace(document, facts=tuple(kept)), {fact.id: why for fact in gone}
