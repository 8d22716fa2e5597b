"""Which histories are legal: where a cut may be made, and mending what no provider would accept (S5, S6).

A rule says which messages may not leave (`stays`) and which ones stay or leave together (`ties`). `groups` folds all rules into the units
that the planner moves. `repair` makes a history in which each call is followed by its results and nothing else: late results move up,
missing ones are made up and say so, results that nobody asked for are taken out, calls without a name or with arguments that are none are
mended (the caller archives what changes first).
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Protocol

from holdfast.context.view import Forge, Item, calls_of, is_sound, marks_of, view_of
from holdfast.tokens.messages import Message

View = Sequence[Item]


class Rule(Protocol):
    """An invariant of the history. Looks at roles and ties, never at text."""

    def stays(self, view: View) -> Iterable[int]:
        """Messages that may not leave."""

    def ties(self, view: View) -> Iterable[Sequence[int]]:
        """Messages that stay or leave together."""


class WholePairs:
    """A call and its results, over all ids, in both directions, wherever the results are; parallel calls are one batch."""

    def stays(self, view: View) -> Iterator[int]:
        return iter(())

    def ties(self, view: View) -> Iterator[list[int]]:
        batches: dict[int, list[int]] = {}
        for result, asked in pairing(view).items():
            batches.setdefault(asked, []).append(result)
        for asked, results in batches.items():
            yield [asked, *results]


class PendingCalls:
    """Calls of the newest assistant message that have no result yet: they run, or wait for a person's approval."""

    def stays(self, view: View) -> Iterator[int]:
        newest = next((item for item in reversed(view) if item.role == "ai"), None)
        if newest is not None and newest.calls:
            answered = sum(1 for asked in pairing(view).values() if asked == newest.index)
            if answered < len(newest.calls):
                yield newest.index

    def ties(self, view: View) -> Iterator[list[int]]:
        return iter(())


class PinnedMessages:
    """The first goal, the newest user message, system messages, what was pinned, and the newest reminder of each kind."""

    def stays(self, view: View) -> Iterator[int]:
        people = [item for item in view if item.role == "human" and item.summary is None and item.reminder is None]
        yield from {item.index for item in (*people[:1], *people[-1:])}
        newest: dict[str, int] = {}
        for item in view:
            if item.pinned or (item.role == "system" and item.summary is None):
                yield item.index
            if item.reminder is not None:
                newest[item.reminder] = item.index
        yield from newest.values()

    def ties(self, view: View) -> Iterator[list[int]]:
        return iter(())


class Reasoning:
    """Reasoning that stands in a message of its own belongs to the assistant message after it: providers refuse a call whose
    reasoning is gone."""

    def stays(self, view: View) -> Iterator[int]:
        return iter(())

    def ties(self, view: View) -> Iterator[list[int]]:
        for item, following in pairwise(view):
            if item.reasoning and not item.calls and following.role == "ai":
                yield [item.index, following.index]


def pairing(view: View) -> dict[int, int]:
    """Which assistant message each tool result answers, by index; results that nobody asked for are left out.

    Some servers give every call the same id, so a result belongs to the nearest message before it whose call of that id is still
    open, else to the first one after
    it. A second result for a call that is answered belongs to nobody.
    """
    open_calls: dict[str, list[int]] = {}
    early: dict[str, list[int]] = {}
    pairs: dict[int, int] = {}
    for item in view:
        for call in item.calls:
            if early.get(call):
                pairs[early[call].pop(0)] = item.index
            else:
                open_calls.setdefault(call, []).append(item.index)
        if item.answers is not None:
            if open_calls.get(item.answers):
                pairs[item.index] = open_calls[item.answers].pop()
            else:
                early.setdefault(item.answers, []).append(item.index)
    return pairs


RULES: tuple[Rule, ...] = (WholePairs(), PendingCalls(), PinnedMessages(), Reasoning())


@dataclass(frozen=True)
class Group:
    """Messages that stay or leave together, in order. `stays` when a rule holds one of them."""

    indexes: tuple[int, ...]
    tokens: int
    stays: bool

    @property
    def newest(self) -> int:
        return self.indexes[-1]


def groups(view: View, rules: Sequence[Rule] = RULES) -> tuple[Group, ...]:
    """The units that a plan may move, ordered by their newest message."""
    parent = list(range(len(view)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    for rule in rules:
        for tie in rule.ties(view):
            for other in tie[1:]:
                parent[root(other)] = root(tie[0])
    held = {root(index) for rule in rules for index in rule.stays(view)}
    members: dict[int, list[int]] = {}
    for index in range(len(view)):
        members.setdefault(root(index), []).append(index)
    made = [Group(tuple(indexes), sum(view[i].tokens for i in indexes), head in held) for head, indexes in members.items()]
    return tuple(sorted(made, key=lambda group: group.newest))


MISSING = "No result: the run stopped before this call finished. It may have taken effect."


@dataclass(frozen=True)
class Repaired:
    """The history as it should be. `messages` is the very list that was given when nothing had to be done."""

    messages: Sequence[Message]
    dropped: tuple[Message, ...] = ()
    made: tuple[Message, ...] = ()

    changed: bool = False


def repair(messages: Sequence[Message], forge: Forge, *, answer_newest: bool = True) -> Repaired:
    """Put calls and results together.

    With `answer_newest=False` the unanswered calls of the newest assistant message are left alone: they are pending. Before a
    model call they have to be answered,
    because a provider refuses a request in which they are open.
    """
    stand_ins = {str(message.id): message for message in messages if marks_of(message).get("repaired")}
    real = [message for message in messages if str(message.id) not in stand_ins] if stand_ins else messages
    view = view_of(real, repeat(0, len(real)))
    results: dict[int, list[int]] = {}
    for result, asked in pairing(view).items():
        results.setdefault(asked, []).append(result)
    newest = next((item.index for item in reversed(view) if item.role == "ai"), None)
    ordered: list[Message] = []
    made: list[Message] = []
    for item in view:
        if item.role == "tool":
            continue
        asking = real[item.index]
        ordered.append(asking if item.role != "ai" or is_sound(asking) else forge.with_sound_calls(asking))
        answers: dict[str | None, list[Message]] = {}
        for index in sorted(results.get(item.index, ())):
            answers.setdefault(view[index].answers, []).append(real[index])
        for number, (call, name) in enumerate(calls_of(real[item.index]) if item.role == "ai" else ()):
            if answers.get(call):
                ordered.append(answers[call].pop(0))
            elif answer_newest or item.index != newest:
                id = f"repair-{item.id}-{number}"
                found = stand_ins.get(id)
                if found is None:
                    found = forge.result(MISSING, id=id, call=call, name=name)
                    made.append(found)
                ordered.append(found)
    if len(ordered) == len(messages) and all(a is b for a, b in zip(ordered, messages, strict=True)):
        return Repaired(messages)
    kept = set(map(builtins.id, ordered))
    dropped = tuple(message for message in messages if builtins.id(message) not in kept and str(message.id) not in stand_ins)
    return Repaired(ordered, dropped, tuple(made), changed=True)
