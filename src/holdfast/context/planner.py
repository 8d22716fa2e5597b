"""What a compaction would do, decided purely: no clock, no I/O, no model (S2-S6, S10-S12).

Two pressures start one. The *trigger* is the user's wish: it prefers the cheap tier (clearing stale tool results), then lets the
old part leave by summary, then
clears and clips what is kept; if even that would not get below the trigger it waits until it is worth while. The *cap* is the
window: it always produces a plan that
fits, by keeping less, and if the fixed parts alone do not fit it raises a BudgetError that says what needs how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from holdfast.context.rules import RULES, Group, Rule, groups
from holdfast.context.triggers import AllOf, AnyOf, Measure, Messages, Never, Size, Tokens
from holdfast.context.view import Item
from holdfast.errors import BudgetError

Pressure = Literal["trigger", "cap", "forced"]
_ESTIMATE_ERROR = 1.25


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
    """Tokens that a kept message must have to be clipped for the trigger's sake."""
    reference_tokens: int = 60
    """What a reference costs."""
    clip_to: int = 400
    """What a clipped message may cost."""
    summary_tokens: int = 1_000
    """Room that is left for the summary; never more than a tenth of the window."""
    below: float = 0.9
    """How far below the trigger a compaction must get to be of use."""


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
    strained: bool = False
    """What is to be kept is alone over the trigger: the next compaction waits until the history has doubled."""


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
        summary = min(self.room, leaving + self._summarized) if leaving or self.refold else self._summarized
        return self.fixed + summary + sum(self.cost(item) for item in self.kept_items)

    @property
    def _summarized(self) -> int:
        return sum(item.tokens for item in self.summaries)

    @property
    def messages(self) -> int:
        return len(self.kept_items) + bool(self.leaving or self.summaries)


def plan_compaction(
    view: Sequence[Item], policy: Policy, *, window: int, cap: int, fixed: int = 0, force: bool = False, keep: Size | None = None
) -> Plan | None:
    """The compaction that this history needs now, or None.

    `fixed` is what is sent besides the messages (system part, tools, response format); `cap` is the most that may be sent at all.
    Raises BudgetError when even the smallest request would be over the cap.
    """
    total = fixed + sum(item.tokens for item in view)
    measure = Measure(total, len(view), window)
    met = policy.trigger.met(measure)
    if total > cap:
        return _for_the_cap(view, policy, cap=cap, fixed=fixed, total=total, window=window, keep=keep or policy.keep)
    if force:
        return _finish(_drafted(view, policy, fixed, window, keep or policy.keep), "forced", "asked for", total)
    if met is None:
        return None
    return _for_the_trigger(view, policy, measure, fixed=fixed, why=_described(met))


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


def _for_the_trigger(view: Sequence[Item], policy: Policy, measure: Measure, *, fixed: int, why: str) -> Plan | None:
    cheap = _Draft(view, fixed, list(groups(view, policy.rules)), [], 0, policy.reference_tokens)
    cheap.clear = set(_stale(cheap, policy))
    if cheap.clear and _is_quiet(cheap, policy, measure.window):
        return _finish(cheap, "trigger", why, measure.tokens)
    draft = _drafted(view, policy, fixed, measure.window, policy.keep)

    strained = not _is_quiet(draft, policy, measure.window)
    if strained:
        draft.clear = set(_stale(draft, policy))
    if not _is_quiet(draft, policy, measure.window):
        _clip_for(draft, policy, policy.below * min(_token_limits(policy, measure.window), default=float("inf")))
    if not _is_quiet(draft, policy, measure.window) and not is_doubled(measure.tokens, measure.messages, draft.tokens, draft.messages):
        return None  # it would start again on the next call: wait until it is worth while, or the cap decides
    return _finish(draft, "trigger", why, measure.tokens, strained=strained)


def is_doubled(tokens: int, messages: int, after_tokens: int, after_messages: int) -> bool:
    """Whether a history has grown so much over what a compaction leaves that another one is worth while."""
    return tokens >= 2 * after_tokens and (messages >= 2 * after_messages or tokens >= 4 * after_tokens)


def _clip_for(draft: _Draft, policy: Policy, goal: float) -> None:
    """Clip what is kept until the goal is reached: large messages first, then all tool results to one level."""
    for item in sorted(draft.kept_items, key=lambda item: -item.tokens):
        if item.tokens < policy.clip_at_least or draft.tokens < goal:
            break
        if item.role != "system" and item.index not in draft.clear:
            draft.clip[item.index] = policy.clip_to
    if draft.tokens < goal or goal == float("inf"):
        return
    results = [item for item in draft.kept_items if item.answers and item.index not in draft.clear]
    others = draft.tokens - sum(draft.cost(item) for item in results)
    level = max(2 * policy.reference_tokens, _level([draft.cost(item) for item in results], max(0, int(goal) - others - 1)))
    for item in results:
        if draft.cost(item) > level:
            draft.clip[item.index] = level


def _for_the_cap(view: Sequence[Item], policy: Policy, *, cap: int, fixed: int, total: int, window: int, keep: Size) -> Plan | None:
    """Keep the newest groups that fit; what a rule holds is reserved first, and clipped if it must be."""
    every, start = groups(view, policy.rules), keep_from(view, keep, window)
    could_leave = sum(group.tokens for group in every if not group.stays) + sum(item.tokens for item in view if item.summary is not None)
    room = min(_summary_room(policy, window), max(policy.reference_tokens, cap // 4), could_leave)
    wanted = [int(limit * policy.below) for limit in (cap, *_token_limits(policy, window))]
    target = min(limit for limit in (*wanted, cap) if limit > fixed + room or limit == cap)
    draft = _Draft(
        view, fixed, [group for group in every if group.stays], [group for group in every if not group.stays], room, policy.reference_tokens
    )
    draft.clear = set(_stale(_Draft(view, fixed, list(every), [], 0, policy.reference_tokens), policy))
    draft.refold = True
    _shrink(draft, cap=cap, target=target, share=0.6 if draft.leaving else 1.0)
    for group in sorted(draft.left, key=lambda group: -group.newest):
        if group.newest < start or not _admit(draft, group, policy, target):
            break
    draft.refold = False
    draft.refold = bool(draft.summaries) and not draft.leaving and draft.tokens > cap
    draft = _further(draft, policy, window)
    return _finish(draft, "cap", f"{total} tokens do not fit {cap}", total)


def _further(draft: _Draft, policy: Policy, window: int) -> _Draft:
    """What the trigger would do to this on the very next call is done at once."""
    if _is_quiet(draft, policy, window):
        return draft
    clipped = replace(draft, clear=draft.clear | set(_stale(draft, policy)), clip=dict(draft.clip))
    _clip_for(clipped, policy, policy.below * min(_token_limits(policy, window), default=float("inf")))
    spare = int(draft.tokens * _ESTIMATE_ERROR)  # what references and clipped texts really cost is known only when they are made
    worth = is_doubled(spare, draft.messages, clipped.tokens, clipped.messages)
    return clipped if worth or _is_quiet(clipped, policy, window) else draft


def _is_quiet(draft: _Draft, policy: Policy, window: int) -> bool:
    """Whether the trigger would be silent after this, with something to spare."""
    return policy.trigger.met(Measure(int(draft.tokens / policy.below), draft.messages, window)) is None


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
    return _Draft(view, fixed, kept, left, _summary_room(policy, window), policy.reference_tokens)


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


def _token_limits(policy: Policy, window: int) -> list[int]:
    """Below how many tokens each entry of the trigger is silent; one that needs several conditions is silent below the largest of them."""
    limits = []
    for entry in policy.trigger.entries:
        sizes = entry.sizes if isinstance(entry, AllOf) else (entry,)
        found = [limit for size in sizes if (limit := size.tokens(window)) is not None]
        if found:
            limits.append(max(found))
    return limits


def _summary_room(policy: Policy, window: int) -> int:
    """Room for the summary: a tenth of the window at most, and a quarter of the smallest trigger."""
    quarter = min(_token_limits(policy, window), default=window) // 4
    return min(policy.summary_tokens, max(policy.reference_tokens, min(window // 10, quarter)))


def _finish(draft: _Draft, pressure: Pressure, why: str, before: int, *, strained: bool = False) -> Plan | None:
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
        strained=strained,
    )


def _described(entry: object) -> str:
    name = type(entry).__name__.lower()
    value = getattr(entry, "value", None)
    return f"{name} {value:g}" if isinstance(value, int | float) else name
