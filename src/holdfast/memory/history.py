"""Every change of a memory document as a value: what was there before, what after, why, when, from where. And the way back.

The log of a scope only grows. Undoing is itself a change, so it can be undone; only forgetting takes something out of the log. Beside it
is the quarantine: candidates that the gate would not let in by itself wait there until a person accepts or rejects them (M10, M14).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

from holdfast.durable import strict_json
from holdfast.errors import Damaged, InputError, StorageError
from holdfast.memory.document import BlockText, Document, Summary, fact_from, fact_to_json
from holdfast.memory.facts import SLOTS, Fact

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
    standing = (one for one in reversed(changes) if one.differences and not one.undoes and one.id not in gone)
    found = next(standing, None) if id is None else next((one for one in changes if one.id == id), None)
    if found is None:
        what = f"there is no change {id!r}" if id else "there is nothing to undo"
        raise InputError(f"{what} in the {scope} memory.", hint="`holdfast memory history` lists the changes.")
    undoings = [one.id for one in changes if one.undoes == found.id]
    if undoings and not any(one.undoes in undoings for one in changes):
        raise InputError(f"{found.id} has been undone already.", hint="Undo the undoing by its own id to have it again.")
    return found


def _parts(document: Document, besides: Collection[int] = ()) -> dict[tuple[Kind, str], Any]:
    """Everything that can be different, by kind and id, as JSON; without the facts of these identities."""
    parts: dict[tuple[Kind, str], Any] = {("fact", fact.id): fact_to_json(fact) for fact in document.facts if id(fact) not in besides}
    for name, summary in document.slots.items():
        if summary != Summary():
            parts["slot", name] = {"summary": summary.text, "updatedAt": summary.updated, **summary.extra}
    for name, block in document.blocks.items():
        parts["block", name] = {"text": block.text, "updatedAt": block.updated, **block.extra}
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
        if value is None:
            return document.with_block(id, None)
        extra = {key: member for key, member in value.items() if key not in ("text", "updatedAt")}
        return document.with_block(id, BlockText(value.get("text", ""), value.get("updatedAt", ""), extra))
    if kind == "slot":
        slots = {name: summary for name, summary in document.slots.items() if name != id}
        if value is not None:
            extra = {key: member for key, member in value.items() if key not in ("summary", "updatedAt")}
            slots[id] = Summary(value.get("summary", ""), value.get("updatedAt", ""), extra)
        return replace(document, slots=slots)
    part, _, name = id.rpartition("/")
    attribute = _PARTS.get(part, "extra")
    name = name if part in _PARTS else id
    members = {key: member for key, member in getattr(document, attribute).items() if key != name}
    if value is not None:
        members[name] = value
    return {
        "extra": lambda: replace(document, extra=members),
        "user_extra": lambda: replace(document, user_extra=members),
        "history_extra": lambda: replace(document, history_extra=members),
    }[attribute]()


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
            value.get("slot") if value.get("slot") in SLOTS else None,
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
