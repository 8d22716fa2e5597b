"""Candidates that the gate would not let in by itself. They wait in a document until a person accepts or rejects them (M10, M14)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.durable import strict_json
from holdfast.errors import Damaged, StorageError
from holdfast.memory.document import fact_from, fact_to_json
from holdfast.memory.facts import SLOTS, Fact

SCHEMA = 1
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
