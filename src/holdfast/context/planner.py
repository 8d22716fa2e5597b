"""What a compaction would do, decided purely: no clock, no I/O, no model (S2-S6, S10-S12).

Two pressures start one. The *trigger* is the user's wish: it takes the cheap tier (clearing stale tool results) where that is enough, and
else lets everything leave that `keep` does not hold; what `keep` holds stays word for word. The *cap* is the window: it always produces a
plan that fits, by keeping less, and if the fixed parts alone do not fit it raises a BudgetError that says what needs how much.

`spare` is what the next calls are expected to bring: a plan that would meet the cap again within them keeps less than `keep` says.

Nothing is planned smaller than it can be made: `Floors` says what a summary and a reference take at least.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from holdfast.config.triggers import AllOf, AnyOf, Measure, Messages, Never, Size, Tokens
from holdfast.context.view import RULES, Group, Item, Rule, UnreadResults, groups
from holdfast.errors import BudgetError

Pressure = Literal["trigger", "cap", "forced"]


@dataclass(frozen=True)
class Policy:
    """What the user wants, and how the tiers behave."""

    trigger: AnyOf = Never
    keep: Size = field(default_factory=lambda: Messages(20))
    rules: Sequence[Rule] = RULES
    fresh_batches: int = 3
    """The newest tool batches whose results the cheap tier never clears."""
    clear_at_least: int = 200
    """Tokens that a result must have to be worth clearing."""
    clip_at_least: int = 1_000
    """Tokens that a message must have to be clipped so that the messages around it can stay."""
    reference_tokens: int = 60
    """What a reference costs."""
    clip_to: int = 400
    """What a clipped message may cost."""
    summary_tokens: int = 1_000
    """Room that is left for the summary; never more than a tenth of the window."""
    below: float = 0.9
    """How far below the trigger the cheap tier must get to be enough, and below the cap a request that was over it."""


@dataclass(frozen=True)
class Floors:
    """What cannot be made smaller, in the tokens of the view."""

    summary: int = 0
    """The smallest summary message."""
    reference: Callable[[Item], int] = lambda item: 0
    """A message of which only the reference to its text is left."""


NO_FLOORS = Floors()


@dataclass(frozen=True)
class Plan:
    """A compaction as a value. Indexes are those of the view it was made from."""

    pressure: Pressure
    why: str
    clear: tuple[int, ...] = ()
    clip: tuple[tuple[int, int], ...] = ()
    """(index, tokens allowed)"""
    leave: tuple[int, ...] = ()
    previous: tuple[int, ...] = ()
    """Earlier summaries: folded into the new one, then gone."""
    keep: tuple[int, ...] = ()
    before: int = 0
    after: int = 0
    summary_room: int = 0


@dataclass
class _Draft:
    """A plan in the making: what stays, and how small each of it may become."""

    view: Sequence[Item]
    policy: Policy
    floors: Floors
    window: int
    fixed: int
    kept: list[Group]
    left: list[Group] = field(default_factory=list)
    room: int = 0
    clear: set[int] = field(default_factory=set)
    clip: dict[int, int] = field(default_factory=dict)
    refold: bool = False
    """The earlier summary is made anew even if nothing else leaves: it alone is too large."""
    bounded: bool = False
    """The summary must fit, so its whole room is reckoned with; else only what was seen of earlier ones."""

    def cost(self, item: Item) -> int:
        if item.index in self.clear:
            return self.least(item)
        return max(self.least(item), min(item.tokens, self.clip[item.index])) if item.index in self.clip else item.tokens

    def least(self, item: Item) -> int:
        """What is left of a message that is cleared, or clipped as far as it can be."""
        return min(item.tokens, max(self.policy.reference_tokens, self.floors.reference(item)))

    @property
    def kept_items(self) -> list[Item]:
        return [self.view[index] for group in self.kept for index in group.indexes if self.view[index].summary is None]

    @property
    def leaving(self) -> list[int]:
        return sorted(index for group in self.left for index in group.indexes if self.view[index].summary is None)

    @property
    def summaries(self) -> list[Item]:
        return [item for item in self.view if item.summary is not None]

    @property
    def tokens(self) -> int:
        leaving, summary = sum(self.view[index].tokens for index in self.leaving), sum(item.tokens for item in self.summaries)
        if self.bounded and (leaving or self.refold):
            summary = min(self.room, leaving + summary + self.floors.summary)
        return self.fixed + summary + sum(self.cost(item) for item in self.kept_items)

    @property
    def stale(self) -> set[int]:
        """Tool results in what is kept that are old and large enough to be cleared to a reference."""
        batches = [group for group in self.kept if any(self.view[index].answers for index in group.indexes)]
        old = sorted(batches, key=lambda group: group.newest)[: -self.policy.fresh_batches or None]
        items = (self.view[index] for group in old for index in group.indexes)
        return {item.index for item in items if item.answers and not item.archived and item.tokens >= self.policy.clear_at_least}

    @property
    def is_quiet(self) -> bool:
        """Whether the trigger would be silent after this, with something to spare."""
        measure = Measure(int(self.tokens / self.policy.below), len(self.kept_items), self.window, self.fixed)
        return self.policy.trigger.met(measure) is None


def plan_compaction(
    view: Sequence[Item],
    policy: Policy,
    *,
    window: int,
    cap: int,
    fixed: int = 0,
    force: bool = False,
    keep: Size | None = None,
    spare: int = 0,
    reported: int = 0,
    floors: Floors = NO_FLOORS,
) -> Plan | None:
    """The compaction that this history needs now, or None. A trigger is met also by what the provider `reported`.

    `fixed` is what is sent besides the messages (system part, tools, response format); `cap` is the most that may be sent at all.
    Raises BudgetError when even the smallest request would be over the cap.
    """
    total = fixed + sum(item.tokens for item in view)
    keep = keep or policy.keep
    every = list(groups(view, policy.rules))
    whole = _Draft(view, policy, floors, window, fixed, every)
    if total > cap:
        try:
            return _for_the_cap(whole, cap=cap, total=total, keep=keep, spare=spare)
        except BudgetError:
            smaller = list(groups(view, _firm(policy)))
            if sum(group.stays for group in smaller) == sum(group.stays for group in every):
                raise
            return _for_the_cap(replace(whole, kept=smaller), cap=cap, total=total, keep=keep, spare=spare)
    if force:
        return _finish(_within(whole, keep), "forced", "asked for", total)
    measure = Measure(total, len(whole.kept_items), window, fixed)
    met = policy.trigger.met(measure) or policy.trigger.met(measure._replace(tokens=max(measure.tokens, reported)))
    if met is None:
        return None
    return _for_the_trigger(whole, total, cap=cap, spare=spare, why=_described(met))


def _firm(policy: Policy) -> list[Rule]:
    """The rules that hold in any case."""
    return [rule for rule in policy.rules if not isinstance(rule, UnreadResults)]


def keep_from(view: Sequence[Item], keep: Size, window: int) -> int:
    """The index from which on everything is within `keep`: a backward walk, no recount."""
    if isinstance(keep, Messages):
        return max(0, len(view) - keep.value)
    allowed = keep.value if isinstance(keep, Tokens) else int(keep.value * window)
    start = len(view)
    while start and view[start - 1].tokens <= allowed:
        start -= 1
        allowed -= view[start].tokens
    return start


def _for_the_trigger(whole: _Draft, total: int, *, cap: int, spare: int, why: str) -> Plan | None:
    cheap = replace(whole, clear=whole.stale)
    if cheap.clear and cheap.is_quiet and cheap.tokens <= cap - spare:
        return _finish(cheap, "trigger", why, total)
    draft = _within(whole, whole.policy.keep)
    _hold_to(draft, whole.policy.keep)
    if not draft.is_quiet:
        draft.clear = draft.stale
    _leave_room(draft, cap - spare, floor=draft.fixed + _least_left(cap, draft.fixed))
    return _finish(draft, "trigger", why, total)


def _hold_to(draft: _Draft, keep: Size) -> None:
    """A batch of calls stays whole, so it may bring far more than `keep` allows: then its results are clipped to one level."""
    allowed = keep.limit(draft.window, 0)
    held = {index for rule in _firm(draft.policy) for index in rule.stays(draft.view)}
    free = [item for group in draft.kept if held.isdisjoint(group.indexes) for item in map(draft.view.__getitem__, group.indexes)]
    if allowed is None or sum(map(draft.cost, free)) <= allowed:
        return
    results = [item for item in free if item.answers and not item.archived and item.index not in draft.clear]
    others = sum(map(draft.cost, free)) - sum(map(draft.cost, results))
    level = _level([(draft.least(item), draft.cost(item)) for item in results], max(0, allowed - others))
    level = max(2 * draft.policy.reference_tokens, level)
    draft.clip.update({item.index: level for item in results if draft.cost(item) > level})


def _leave_room(draft: _Draft, most: int, *, floor: int) -> None:
    """Let more leave than `keep` says, oldest first, until the draft has at most so many tokens; but not below the floor."""
    for group in sorted((group for group in draft.kept if not group.stays), key=lambda group: group.newest):
        if draft.tokens <= most or draft.tokens - group.tokens < floor:
            return
        draft.kept.remove(group)
        draft.left.append(group)


def _for_the_cap(whole: _Draft, *, cap: int, total: int, keep: Size, spare: int) -> Plan | None:
    """Keep the newest groups that fit; what a rule holds is reserved first, and clipped if it must be."""
    policy, fixed, view = whole.policy, whole.fixed, whole.view
    free = [group for group in whole.kept if not group.stays]
    start, summarized = keep_from(view, keep, whole.window), sum(item.tokens for item in whole.summaries)
    could_leave = sum(group.tokens for group in free) + summarized
    if could_leave <= whole.floors.summary:  # a summary would be larger than all that it could stand for
        free, could_leave = [], summarized
    room = min(max(whole.floors.summary, min(_summary_room(whole), max(policy.reference_tokens, cap // 4))), could_leave)
    target = int(cap * policy.below) if cap * policy.below > fixed + room else cap
    target = max(min(target, cap - spare), min(target, fixed + room + _least_left(cap, fixed)))
    held = [group for group in whole.kept if group not in free]
    draft = replace(whole, kept=held, left=free, room=room, clear=whole.stale, refold=True, bounded=True)
    _shrink(draft, cap=cap, target=target, share=0.6 if draft.leaving else 1.0)
    for group in sorted(draft.left, key=lambda group: -group.newest):
        if group.newest < start or not _admit(draft, group, target):
            break
    draft.refold = False
    draft.refold = bool(draft.summaries) and not draft.leaving and draft.tokens > cap
    _hold_to(draft, keep)
    if not draft.is_quiet:  # what the trigger would do to this is done at once
        draft.clear |= draft.stale
    return _finish(draft, "cap", f"{total} tokens do not fit {cap}", total)


def _least_left(cap: int, fixed: int) -> int:
    """What is kept of a conversation even if the next calls will then meet the cap again: a quarter of what it can have."""
    return (cap - fixed) // 4


def _admit(draft: _Draft, group: Group, target: int) -> bool:
    """Keep one more group if it fits, its large messages clipped where that is what makes it fit."""
    draft.kept.append(group)
    draft.left.remove(group)
    before = dict(draft.clip)
    for item in (draft.view[index] for index in group.indexes):
        if draft.tokens > target and item.tokens >= draft.policy.clip_at_least:
            draft.clip[item.index] = draft.policy.clip_to
    if draft.tokens <= target:
        return True
    draft.kept.remove(group)
    draft.left.append(group)
    draft.clip = before
    return False


def _shrink(draft: _Draft, *, cap: int, target: int, share: float) -> None:
    """Make what must stay small enough: everything above one level is clipped to that level, and the level is as high as the
    target allows."""
    least = {item.index: min(draft.cost(item), draft.least(item)) for item in draft.kept_items}
    floor = draft.fixed + draft.room + sum(least.values())
    if floor > cap:
        needs = {
            "system prompt, memory and tools": draft.fixed,
            "summary": draft.room,
            "messages that must stay": floor - draft.fixed - draft.room,
        }
        raise BudgetError(
            f"The smallest possible request needs {floor} tokens and the window allows {cap}.",
            window=cap,
            needs=needs,
            hint="Use a model with a larger window, fewer tools or a shorter system prompt.",
        )
    available = max(int((target - draft.fixed - draft.room) * share), floor - draft.fixed - draft.room)
    level = _level([(least[item.index], draft.cost(item)) for item in draft.kept_items], available)
    for item in draft.kept_items:
        if draft.cost(item) > max(level, least[item.index]):
            draft.clip[item.index] = max(level, draft.policy.reference_tokens)


def _level(bounds: Sequence[tuple[int, int]], available: int) -> int:
    """The highest level to which all costs can be held, none below its least, so that they are within what is available."""
    levels = range(1, max((cost for _, cost in bounds), default=0) + 1)
    return bisect_right(levels, available, key=lambda level: sum(max(least, min(cost, level)) for least, cost in bounds))


def _within(whole: _Draft, keep: Size) -> _Draft:
    """What `keep` and the rules hold stays, the rest leaves."""
    start = keep_from(whole.view, keep, whole.window)
    left = [group for group in whole.kept if not (group.stays or group.newest >= start)]
    return replace(whole, kept=[group for group in whole.kept if group not in left], left=left, room=_summary_room(whole), clip={})


def _token_limits(draft: _Draft) -> list[int]:
    """Below how many tokens of the request each entry of the trigger is silent; one of several conditions is below the largest of them."""
    limits = []
    for entry in draft.policy.trigger.entries:
        sizes = entry.all if isinstance(entry, AllOf) else (entry,)
        found = [limit for size in sizes if (limit := size.limit(draft.window, draft.fixed)) is not None]
        if found:
            limits.append(max(found))
    return limits


def _summary_room(draft: _Draft) -> int:
    """The most that a summary without a model, or one that the cap bounds, may take: a tenth of the window at most, and a quarter of the
    smallest trigger; but what the smallest summary takes in any case."""
    quarter = min(_token_limits(draft), default=draft.window) // 4
    most = max(draft.policy.reference_tokens, min(draft.window // 10, quarter))
    return max(draft.floors.summary, min(draft.policy.summary_tokens, most))


def _finish(draft: _Draft, pressure: Pressure, why: str, before: int) -> Plan | None:
    folds = bool(draft.leaving) or draft.refold
    held = [item.index for item in draft.kept_items]
    smaller = {item.index for item in draft.kept_items if draft.cost(item) < item.tokens}
    clear = tuple(sorted(draft.clear & smaller))
    clip = tuple(sorted((index, draft.clip[index]) for index in draft.clip.keys() & smaller - draft.clear))
    if not (folds or clear or clip):
        return None
    summaries = [item.index for item in draft.summaries]
    return Plan(
        pressure=pressure,
        why=why,
        clear=clear,
        clip=clip,
        leave=tuple(draft.leaving),
        previous=tuple(summaries) if folds else (),
        keep=tuple(sorted(held if folds else [*held, *summaries])),
        before=before,
        after=draft.tokens,
        summary_room=draft.room if folds else 0,
    )


def _described(entry: object) -> str:
    name = type(entry).__name__.lower()
    value = getattr(entry, "value", None)
    return f"{name} {value:g}" if isinstance(value, int | float) else name
