"""What a compaction would do, decided purely: no clock, no I/O, no model (S2-S6, S10-S12).

Two pressures start one. The *trigger* is the user's wish: it takes the cheap tier (clearing stale tool results) where that is enough, and
else lets everything leave that `keep` does not hold; what `keep` holds stays word for word. The *cap* is the window: it always produces a
plan that fits, by keeping less, and if the fixed parts alone do not fit it raises a BudgetError that says what needs how much.

`spare` is what the next calls are expected to bring: a plan that would meet the cap again within them keeps less than `keep` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from holdfast.context.rules import RULES, Group, Rule, groups
from holdfast.context.triggers import AllOf, AnyOf, Measure, Messages, Never, Size, Tokens
from holdfast.context.view import Item
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
    fixed: int
    kept: list[Group]
    left: list[Group]
    room: int
    reference: int
    clear: set[int] = field(default_factory=set)
    clip: dict[int, int] = field(default_factory=dict)
    refold: bool = False
    """The earlier summary is made anew even if nothing else leaves: it alone is too large."""
    bounded: bool = False
    """The summary must fit, so its whole room is reckoned with; else only what was seen of earlier ones."""

    def cost(self, item: Item) -> int:
        if item.index in self.clear:
            return min(item.tokens, self.reference)
        return min(item.tokens, self.clip.get(item.index, item.tokens))

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
        leaving = sum(self.view[index].tokens for index in self.leaving)
        folds = self.bounded and (leaving or self.refold)
        summary = min(self.room, leaving + self._summarized) if folds else self._summarized
        return self.fixed + summary + sum(self.cost(item) for item in self.kept_items)

    @property
    def _summarized(self) -> int:
        return sum(item.tokens for item in self.summaries)

    def measure(self, tokens: int, window: int) -> Measure:
        """This draft, taken to have so many tokens."""
        return Measure(tokens, len(self.kept_items), window, self.fixed)


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
) -> Plan | None:
    """The compaction that this history needs now, or None. A trigger is met also by what the provider `reported`.

    `fixed` is what is sent besides the messages (system part, tools, response format); `cap` is the most that may be sent at all.
    Raises BudgetError when even the smallest request would be over the cap.
    """
    total = fixed + sum(item.tokens for item in view)
    keep = keep or policy.keep
    if total > cap:
        return _for_the_cap(view, policy, cap=cap, fixed=fixed, total=total, window=window, keep=keep, spare=spare)
    if force:
        return _finish(_drafted(view, policy, fixed, window, keep), "forced", "asked for", total)
    measure = Measure(total, sum(item.summary is None for item in view), window, fixed)
    met = policy.trigger.met(measure) or policy.trigger.met(measure._replace(tokens=max(measure.tokens, reported)))
    if met is None:
        return None
    return _for_the_trigger(view, policy, measure, cap=cap, spare=spare, why=_described(met))


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


def _for_the_trigger(view: Sequence[Item], policy: Policy, measure: Measure, *, cap: int, spare: int, why: str) -> Plan | None:
    fixed, window = measure.fixed, measure.window
    cheap = _Draft(view, fixed, list(groups(view, policy.rules)), [], 0, policy.reference_tokens)
    cheap.clear = set(_stale(cheap, policy))
    if cheap.clear and _is_quiet(cheap, policy, window) and cheap.tokens <= cap - spare:
        return _finish(cheap, "trigger", why, measure.tokens)
    draft = _drafted(view, policy, fixed, window, policy.keep)
    _hold_to(draft, policy.keep, policy, window)
    if not _is_quiet(draft, policy, window):
        draft.clear = set(_stale(draft, policy))
    _leave_room(draft, cap - spare, floor=fixed + _least_left(cap, fixed))
    return _finish(draft, "trigger", why, measure.tokens)


def _hold_to(draft: _Draft, keep: Size, policy: Policy, window: int) -> None:
    """A batch of calls stays whole, so it may bring far more than `keep` allows: then its results are clipped to one level."""
    allowed = keep.limit(window, 0)
    free = [item for group in draft.kept if not group.stays for item in map(draft.view.__getitem__, group.indexes)]
    if allowed is None or sum(map(draft.cost, free)) <= allowed:
        return
    results = [item for item in free if item.answers and not item.archived and item.index not in draft.clear]
    others = sum(map(draft.cost, free)) - sum(map(draft.cost, results))
    level = max(2 * policy.reference_tokens, _level([draft.cost(item) for item in results], max(0, allowed - others)))
    draft.clip.update({item.index: level for item in results if draft.cost(item) > level})


def _leave_room(draft: _Draft, most: int, *, floor: int) -> None:
    """Let more leave than `keep` says, oldest first, until the draft has at most so many tokens; but not below the floor."""
    for group in sorted((group for group in draft.kept if not group.stays), key=lambda group: group.newest):
        if draft.tokens <= most or draft.tokens - group.tokens < floor:
            return
        draft.kept.remove(group)
        draft.left.append(group)


def _for_the_cap(
    view: Sequence[Item], policy: Policy, *, cap: int, fixed: int, total: int, window: int, keep: Size, spare: int
) -> Plan | None:
    """Keep the newest groups that fit; what a rule holds is reserved first, and clipped if it must be."""
    every, start = groups(view, policy.rules), keep_from(view, keep, window)
    could_leave = sum(group.tokens for group in every if not group.stays) + sum(item.tokens for item in view if item.summary is not None)
    room = min(_summary_room(policy, window, fixed), max(policy.reference_tokens, cap // 4), could_leave)
    target = int(cap * policy.below) if cap * policy.below > fixed + room else cap
    target = max(min(target, cap - spare), min(target, fixed + room + _least_left(cap, fixed)))
    draft = _Draft(
        view,
        fixed,
        [group for group in every if group.stays],
        [group for group in every if not group.stays],
        room,
        policy.reference_tokens,
        refold=True,
        bounded=True,
    )
    draft.clear = set(_stale(_Draft(view, fixed, list(every), [], 0, policy.reference_tokens), policy))
    _shrink(draft, cap=cap, target=target, share=0.6 if draft.leaving else 1.0)
    for group in sorted(draft.left, key=lambda group: -group.newest):
        if group.newest < start or not _admit(draft, group, policy, target):
            break
    draft.refold = False
    draft.refold = bool(draft.summaries) and not draft.leaving and draft.tokens > cap
    _hold_to(draft, keep, policy, window)
    if not _is_quiet(draft, policy, window):  # what the trigger would do to this is done at once
        draft.clear |= set(_stale(draft, policy))
    return _finish(draft, "cap", f"{total} tokens do not fit {cap}", total)


def _least_left(cap: int, fixed: int) -> int:
    """What is kept of a conversation even if the next calls will then meet the cap again: a quarter of what it can have."""
    return (cap - fixed) // 4


def _is_quiet(draft: _Draft, policy: Policy, window: int) -> bool:
    """Whether the trigger would be silent after this, with something to spare."""
    return policy.trigger.met(draft.measure(int(draft.tokens / policy.below), window)) is None


def _admit(draft: _Draft, group: Group, policy: Policy, target: int) -> bool:
    """Keep one more group if it fits, its large messages clipped where that is what makes it fit."""
    draft.kept.append(group)
    draft.left.remove(group)
    before = dict(draft.clip)
    for item in (draft.view[index] for index in group.indexes):
        if draft.tokens > target and item.tokens >= policy.clip_at_least:
            draft.clip[item.index] = policy.clip_to
    if draft.tokens <= target:
        return True
    draft.kept.remove(group)
    draft.left.append(group)
    draft.clip = before
    return False


def _shrink(draft: _Draft, *, cap: int, target: int, share: float) -> None:
    """Make what must stay small enough: everything above one level is clipped to that level, and the level is as high as the
    target allows."""
    held = draft.kept_items
    floor = draft.fixed + draft.room + sum(min(draft.cost(item), draft.reference) for item in held)
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
    level = _level([draft.cost(item) for item in held], available)
    for item in held:
        if draft.cost(item) > max(level, draft.reference):
            draft.clip[item.index] = max(level, draft.reference)


def _level(costs: list[int], available: int) -> int:
    """The highest level L for which the sum of min(cost, L) is within what is available."""
    left, count = available, len(costs)
    for cost in sorted(costs):
        if cost * count > left:
            return left // count
        left -= cost
        count -= 1
    return max(costs, default=0)


def _drafted(view: Sequence[Item], policy: Policy, fixed: int, window: int, keep: Size) -> _Draft:
    start = keep_from(view, keep, window)
    every = groups(view, policy.rules)
    kept = [group for group in every if group.stays or group.newest >= start]
    left = [group for group in every if not (group.stays or group.newest >= start)]
    return _Draft(view, fixed, kept, left, _summary_room(policy, window, fixed), policy.reference_tokens)


def _stale(draft: _Draft, policy: Policy) -> list[int]:
    """Tool results in what is kept that are old and large enough to be cleared to a reference."""
    batches = [group for group in draft.kept if any(draft.view[index].answers for index in group.indexes)]
    old = sorted(batches, key=lambda group: group.newest)[: -policy.fresh_batches or None]
    return [
        index
        for group in old
        for index in group.indexes
        if draft.view[index].answers and not draft.view[index].archived and draft.view[index].tokens >= policy.clear_at_least
    ]


def _token_limits(policy: Policy, window: int, fixed: int) -> list[int]:
    """Below how many tokens of the request each entry of the trigger is silent; one of several conditions is below the largest of them."""
    limits = []
    for entry in policy.trigger.entries:
        sizes = entry.sizes if isinstance(entry, AllOf) else (entry,)
        found = [limit for size in sizes if (limit := size.limit(window, fixed)) is not None]
        if found:
            limits.append(max(found))
    return limits


def _summary_room(policy: Policy, window: int, fixed: int) -> int:
    """The most that a summary without a model, or one that the cap bounds, may take: a tenth of the window at most, and a quarter of the
    smallest trigger."""
    quarter = min(_token_limits(policy, window, fixed), default=window) // 4
    return min(policy.summary_tokens, max(policy.reference_tokens, min(window // 10, quarter)))


def _finish(draft: _Draft, pressure: Pressure, why: str, before: int) -> Plan | None:
    folds = bool(draft.leaving) or draft.refold
    held = [item.index for item in draft.kept_items]
    clear = tuple(sorted(draft.clear & set(held)))
    clip = tuple(sorted((index, tokens) for index, tokens in draft.clip.items() if index in held and index not in draft.clear))
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
