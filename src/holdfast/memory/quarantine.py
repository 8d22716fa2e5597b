"""Candidates that the gate would not let in by itself. They wait here until a person accepts or rejects them (M10, M14)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Protocol

from holdfast.durable.disk import REAL, Disk
from holdfast.durable.replace import read_json, replace_json
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
    """As it stands in the file, and in the record of the change that put it there."""
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


def is_same(one: Held, other: Held) -> bool:
    """Whether two candidates are one: the same id, or the same words for the same reason."""
    return one.id == other.id or (one.fact.content, one.rule, one.slot) == (other.fact.content, other.rule, other.slot)


class Holding(Protocol):
    """The candidates held in one scope, wherever they are kept. Who changes them holds the scope's lock."""

    def held(self) -> list[Held]:
        """All that wait, oldest first. Damaged if one of them cannot be read."""

    def hold(self, new: Iterable[Held]) -> None:
        """Add candidates. One that is there already is not held twice."""

    def release(self, ids: Iterable[str]) -> list[Held]:
        """Take candidates out, accepted or rejected, and give them back."""

    def drop(self, which: Callable[[Held], bool]) -> list[Held]:
        """Take out every candidate that fits, and give them back."""


class Quarantine:
    """The candidates held in one scope. Who changes it holds the scope's lock."""

    def __init__(self, path: str | PathLike[str], *, disk: Disk = REAL) -> None:
        self.path = str(path)
        self._disk = disk

    def held(self) -> list[Held]:
        """All that wait, oldest first. No file is an empty quarantine; Damaged if it cannot be read."""
        try:
            value = read_json(self.path, disk=self._disk)
        except FileNotFoundError:
            return []
        if not isinstance(value, dict) or not isinstance(value.get("held"), list):
            raise Damaged(f"{self.path} is not a quarantine.", path=self.path, hint="Set it aside and start anew.")
        if isinstance(value.get("schema"), int) and value["schema"] > SCHEMA:
            raise StorageError(
                f"{self.path} has schema {value['schema']}, and this version knows up to {SCHEMA}.", path=self.path, operation="open"
            )
        return [held_from(one) for one in value["held"]]

    def hold(self, new: Iterable[Held]) -> None:
        """Add candidates. One that is there already (same id, or the same words for the same reason) is not held twice."""
        held = self.held()
        for one in new:
            if not any(is_same(other, one) for other in held):
                held.append(one)
        self._write(held[-LIMIT:])

    def release(self, ids: Iterable[str]) -> list[Held]:
        """Take candidates out, accepted or rejected, and give them back."""
        wanted = set(ids)
        return self.drop(lambda one: one.id in wanted)

    def drop(self, which: Callable[[Held], bool]) -> list[Held]:
        """Take out every candidate that fits, and give them back."""
        held = self.held()
        gone = [one for one in held if which(one)]
        if gone:
            self._write([one for one in held if not which(one)])
        return gone

    def _write(self, held: list[Held]) -> None:
        replace_json(self.path, {"schema": SCHEMA, "held": [held_to_json(one) for one in held]}, disk=self._disk)
