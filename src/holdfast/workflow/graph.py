"""What waits for what: a stage for those it `needs`, or without that for all that stand before it, which makes a sequence (W13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.workflow.definition import Stage

Needs = Mapping[str, tuple[str, ...]]


def needs_of(stages: Sequence[Stage], added_by: Mapping[str, str] | None = None) -> dict[str, tuple[str, ...]]:
    """For each stage the stages it waits for, in the order of the workflow.

    Who needs a stage needs what that stage added as well: a plan is done when the work that it planned is.
    """
    order = {stage.name: number for number, stage in enumerate(stages)}
    offspring: dict[str, list[str]] = {}
    for name, parent in (added_by or {}).items():
        offspring.setdefault(parent, []).append(name)
    needs: dict[str, tuple[str, ...]] = {}
    open_ends: list[str] = []  # those before it that nobody before it waits for: to wait for them is to wait for all before it
    for stage in stages:
        wanted = open_ends if stage.needs is None else _with_offspring(stage, offspring)
        needs[stage.name] = found = tuple(sorted(dict.fromkeys(wanted), key=lambda name: order.get(name, len(order))))
        open_ends = [name for name in open_ends if name not in found] + [stage.name]
    return needs


def _with_offspring(stage: Stage, offspring: Mapping[str, list[str]]) -> list[str]:
    found: list[str] = []
    waiting = list(stage.needs or ())
    while waiting:
        name = waiting.pop(0)
        found.append(name)
        added = offspring.get(name, [])
        if stage.name not in added:  # what was added with it is its sibling, not what it waits for
            waiting.extend(child for child in added if child not in found)
    return found


def ancestors(name: str, needs: Needs) -> set[str]:
    """All stages that are done before this one can start."""
    found: set[str] = set()
    waiting = list(needs.get(name, ()))
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting.extend(needs.get(one, ()))
    return found


def cycle(needs: Needs) -> list[str] | None:
    """A circle of stages that wait for each other, first name repeated at the end, or None."""
    done: set[str] = set()
    for start in needs:
        path: list[str] = []
        trail = [(start, iter(needs[start]))] if start not in done else []
        path.extend(name for name, _ in trail)
        while trail:
            name, rest = trail[-1]
            child = next((one for one in rest if one not in done), None)
            if child is None:
                done.add(name)
                trail.pop()
                path.pop()
            elif child in path:
                return [*path[path.index(child) :], child]
            else:
                trail.append((child, iter(needs.get(child, ()))))
                path.append(child)
    return None


def final_stages(needs: Needs) -> tuple[str, ...]:
    """The stages that nobody depends on: their outputs are the session's result (W2)."""
    needed = {name for names in needs.values() for name in names}
    return tuple(name for name in needs if name not in needed)
