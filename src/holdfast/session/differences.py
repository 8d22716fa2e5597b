"""What is different between two states of a session, place by place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.session.renderer import session_json
from holdfast.session.state import Session

_COUNTED = ("revision", "updated_at", "schema_version")  # always different, and nobody's question


@dataclass(frozen=True, slots=True)
class Difference:
    """One place: `stage_outputs.plan.summary`, what stood there before and what stands there after."""

    place: str
    kind: Literal["added", "removed", "changed"]
    before: Any = None
    after: Any = None


def differences(before: Session, after: Session) -> list[Difference]:
    """Every difference in the order of the file; a member that is wholly new or gone is one difference."""
    old, new = ({name: member for name, member in session_json(one).items() if name not in _COUNTED} for one in (before, after))
    return list(_compared(old, new, ""))


def _compared(old: Any, new: Any, place: str) -> Iterator[Difference]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*old, *new]):
            yield from _member(name in old, name in new, old.get(name), new.get(name), f"{place}.{name}" if place else name)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            was, there = index < len(old), index < len(new)
            yield from _member(was, there, old[index] if was else None, new[index] if there else None, f"{place}[{index}]")
    elif old != new:
        yield Difference(place, "changed", old, new)


def _member(was: bool, there: bool, old: Any, new: Any, place: str) -> Iterator[Difference]:
    if was and there:
        yield from _compared(old, new, place)
    else:
        yield Difference(place, "removed" if was else "added", old, new)
