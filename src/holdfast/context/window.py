"""What is sent: a history that is whole, within its triggers, and never over the window (S4, S5, S10).

`ContextWindow` holds what one process knows about its threads (running sums, back-off, a summary made but not yet stored) and
decides before each model call, in time proportional to what is new. It works on any message of the usual shape and does no I/O: what it
wants done it yields.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile
from typing import Any, ClassVar, NamedTuple

from holdfast.clock import Backoff
from holdfast.config.triggers import Measure, Size
from holdfast.context.compaction import Leave, Outcome, Settings, Store, Want, compact, reference_floor, summary_floor
from holdfast.context.planner import Floors, Plan, Policy, plan_compaction
from holdfast.context.view import Repaired, calls_of, is_sound, marks_of, repair, role_of, view_of
from holdfast.errors import BudgetError, StorageError, SummaryError
from holdfast.events import Bus, Compacted, CompactionPlanned, Event, SummaryMade, TokenCount, TriggerMet
from holdfast.redaction import replace_secrets
from holdfast.tokens.counter import TokenCounter
from holdfast.tokens.message_counts import Ledger, MessageCounts
from holdfast.tokens.messages import Message, mark_of
from holdfast.tokens.windows import Calibration
from holdfast.tracing import span

_TIGHTER = (1.0, 0.85, 0.7, 0.5)
"""An estimate may be a little low; each further try aims at this share of the cap."""

_SUMMARY_RETRY = Backoff(4, 64)
"""How many model calls pass before a summarizer that failed is asked again."""


@dataclass(frozen=True, kw_only=True)
class SummaryFailed(Event):
    """The summarizer gave no summary. Nothing is lost, but somebody should know."""

    component: ClassVar[str] = "SummarizationMiddleware"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "No summary: {reason} ({instead}; next try after {calls} calls)"
    reason: str
    instead: str
    calls: int


@dataclass(frozen=True, kw_only=True)
class CompactionWaits(Event):
    """A trigger is met and nothing is done about it yet. Said once for each time that this begins."""

    component: ClassVar[str] = "SummarizationMiddleware"
    level: ClassVar[int] = logging.INFO
    text: ClassVar[str] = "Trigger: {trigger} threshold met, waiting: {reason}"
    trigger: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class LeaveFailed(Event):
    """A callback of `on_leave` raised. What left is in the archive all the same."""

    component: ClassVar[str] = "SummarizationMiddleware"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "on_leave failed: {reason} (the messages are in the archive)"
    reason: str


_REST = 10
"""Model calls between two compactions, unless the window is full before."""


class WindowLimits(NamedTuple):
    """What a request may be: the model's window and the most that may be sent, in its own tokens; what is sent besides the messages, in our
    counting; how many of its tokens one of ours is; and how much of the fixed part is what the server itself adds."""

    window: int
    cap: int
    fixed: int
    factor: float = 1.0
    added: int = 0
    reported: int = 0
    """What the provider said of the newest answer of this history: a trigger that this reaches is met, whatever we count."""

    @classmethod
    def of(
        cls, calibration: Calibration, model: str, *, window: int, answer: int, fixed: int, factor: float = 1.0, margin: float = 1.0
    ) -> WindowLimits:
        """The limits of a model by what it was seen to do: that makes the room smaller, never larger (T1).

        `answer` is left free for what the model says; `factor` and `margin` are where our counts start (`tokens/windows.py: start_of`).
        """
        learned, real = calibration.factor(model), calibration.window(model, window)
        if real < window:
            answer = min(answer, real // 4)
        cap = max(1, int((real - answer) * min(1.0, learned / margin)))
        factor *= learned
        added = math.ceil(calibration.added(model) / factor)
        return cls(real, cap, fixed + added, factor, added)

    def tokens(self, counted: int) -> int:
        """Our count as the model's, rounded up."""
        return counted if self.factor == 1.0 else math.ceil(counted * self.factor - 1e-9)

    def counted(self, tokens: int) -> int:
        """The other way, rounded down."""
        return tokens if self.factor == 1.0 else math.floor(tokens / self.factor + 1e-9)

    def each(self, counts: Iterable[int]) -> Iterator[int]:
        """The counts of messages as the model's, so that they and the fixed part add up to `tokens` of the whole."""
        so_far = self.fixed
        for count in counts:
            yield self.tokens(so_far + count) - self.tokens(so_far)
            so_far += count

    def seen(self, measure: Measure) -> Measure:
        """The measure for a trigger: at least what the provider reported."""
        return measure if self.reported <= measure.tokens else measure._replace(tokens=self.reported)

    def measure(self, counted: int, messages: int) -> Measure:
        """A request of so many of our tokens, the fixed part not among them."""
        return Measure(self.tokens(self.fixed + counted), messages, self.window, self.tokens(self.fixed))


@dataclass(frozen=True)
class Prepared:
    """The messages to send. `changed` when they are not the ones that were given: then the state is to be rewritten with `messages`."""

    messages: Sequence[Message]
    tokens: int
    changed: bool = False
    outcome: Outcome | None = None
    repaired: Repaired | None = None


class _Beginning(NamedTuple):
    """A beginning of a history that was compacted: by what each of its messages is known again, and what stands for all of them."""

    known_by: tuple[Hashable, ...]
    now: tuple[Message, ...]
    kept: int
    """How many messages stayed after it word for word."""


@dataclass
class _Thread:
    ledger: Ledger
    tidy: int = 0
    failures: int = 0
    wait: int = 0
    left: frozenset[str] = frozenset()
    """Ids of the messages that the last compaction left in the window."""
    made: frozenset[str] = frozenset()
    """Those of them that it made: summaries and references. A history without them is not the one that it left."""
    given: Sequence[Message] = ()
    """The history as it came, while it is looked at closely."""
    compacted: _Beginning | None = None
    waiting: bool = False
    """It was said that a compaction waits."""
    memo: tuple[Plan, tuple[Any, ...], Outcome] | None = None


@dataclass
class ContextWindow:
    """Decides, for many threads, what is sent. Safe for many threads of one process."""

    policy: Policy
    settings: Settings
    counter: TokenCounter
    bus: Bus
    threads: int = 256
    """How many conversations are remembered; one that was forgotten is counted anew."""
    on_leave: Sequence[Callable[[str, tuple[Message, ...]], None]] = ()
    counted: int = 10_000
    """Messages whose tokens are remembered, of all conversations."""
    _known: OrderedDict[str, _Thread] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.counts = MessageCounts(self.counter, most=self.counted)

    def is_quiet(self, thread: str, messages: Sequence[Message], room: WindowLimits) -> bool:
        """Whether this history can be sent as it is: whole, named, far from every trigger, and nobody wants to know its size.

        This is what every model call pays for, so it is one pass over what is new and a comparison of the rest at C speed.
        """
        known = self._thread(thread)
        ledger = known.ledger
        at_most = room.measure(ledger.rough(messages), len(messages))
        start = ledger.unchanged
        tidy = known.tidy = _tidy_from(messages, min(known.tidy, start))
        if tidy < len(messages) or at_most.tokens > room.cap or known.wait or self.bus.wants(TokenCount):
            return False
        for message in messages[start:]:
            if not message.id:
                return False
        return self.policy.trigger.met(room.seen(at_most)) is None

    def rejoined(self, thread: str, messages: Sequence[Message]) -> list[Message] | None:
        """The history as the last compaction left it, with what came since; None where it is that already, or is another one.

        A program that keeps the conversation itself, and the parent of a subgraph, send again what had left, often as new messages of the
        same words. To be asked before each `prepare`.
        """
        known = self._thread(thread)
        known.given = messages
        beginning = known.compacted
        if beginning is None or len(messages) < len(beginning.known_by):
            return None
        if any(_known_by(message) != mark for message, mark in zip(messages, beginning.known_by, strict=False)):
            return None
        end = len(beginning.known_by)
        stayed = (*beginning.now, *messages[end : end + beginning.kept])  # the latter may have new ids
        known.left = frozenset(str(message.id) for message in stayed)
        return [*beginning.now, *messages[end:]]

    def prepare(
        self, thread: str, messages: Sequence[Message], room: WindowLimits, *, then: WindowLimits | None = None
    ) -> Generator[Want, Any, Prepared]:
        """The request for one model call that `is_quiet` does not let pass. `then` are its limits once something has left."""
        known = self._thread(thread)
        if not all(message.id for message in messages):
            messages = self._named(messages)
        measure = room.measure(known.ledger.total(messages), len(messages))
        self.bus.emit(TokenCount(tokens=measure.tokens, window=room.window))
        known.tidy = _tidy_from(messages, min(known.tidy, known.ledger.unchanged))
        repaired: Repaired | None = None
        if known.tidy < len(messages):
            repaired = repair(messages, self.settings.factory)
            if repaired.changed:
                yield Store(repaired.dropped, messages)
                messages = repaired.messages
                measure = room.measure(known.ledger.total(messages), len(messages))
                known.tidy = _tidy_from(messages, 0)
        if known.wait:
            known.wait -= 1
        met = self.policy.trigger.met(room.seen(measure._replace(messages=len(messages) - len(_summaries_in(messages)))))
        over, due = measure.tokens > room.cap, met is not None and not known.wait
        pause = self._pause(known, messages) if over or due else _NEVER
        if not over and not (due and self._is_time(known, met, pause, room)):
            return Prepared(messages, measure.tokens, bool(repaired and repaired.changed), None, repaired)
        room = then or room
        outcome = yield from self._compacted(known, messages, room, spare=pause.spare(room))
        if outcome is None:
            return Prepared(messages, measure.tokens, bool(repaired and repaired.changed), None, repaired)
        after = room.tokens(room.fixed + known.ledger.total(outcome.messages))
        known.tidy = _tidy_from(outcome.messages, 0)
        self.bus.emit(Compacted(messages=len(outcome.messages), tokens=after))
        yield from self._tell(thread, messages, outcome)
        return Prepared(outcome.messages, after, True, outcome, repaired)

    def _is_time(self, known: _Thread, met: object, pause: _Pause, room: WindowLimits) -> bool:
        """Whether a trigger that is met is acted on now, and not so soon after the last compaction that it must wait."""
        reason = pause.reason(self.policy, room)
        if reason and not known.waiting:
            self.bus.emit(CompactionWaits(trigger=type(met).__name__.lower(), reason=reason))
        known.waiting = bool(reason)
        return not reason

    def _pause(self, known: _Thread, messages: Sequence[Message]) -> _Pause:
        """What has come since the last compaction; where another process made it, its summary says until where."""
        summaries = _summaries_in(messages)
        left = known.left or {marks_of(summary).get("until") for summary in summaries} - {None}
        start = len(messages) if left else 0
        while start and str(messages[start - 1].id) not in left:
            start -= 1
        made = {str(message.id) for message in messages[:start] if not MADE.isdisjoint(marks_of(message))}
        if not start or not known.made <= made:
            return _NEVER
        calls = sum(role_of(message) == "ai" for message in messages[start:])
        between = known.ledger.between
        return _Pause(start, len(messages) - start, calls, between(0, start), between(start), len(summaries))

    def compact(
        self, thread: str, messages: Sequence[Message], room: WindowLimits, *, force: bool = True, keep: Size | None = None
    ) -> Generator[Want, Any, Prepared]:
        """A compaction that a person asked for. Pending calls stay pending; nothing happens when there is nothing to leave."""
        repaired = repair(self._named(messages), self.settings.factory, answer_newest=False)
        if repaired.changed:
            yield Store(repaired.dropped, messages)
        known = self._thread(thread)
        known.tidy = 0
        tokens = room.tokens(known.ledger.total(repaired.messages) + room.fixed)
        outcome = yield from self._compacted(known, repaired.messages, room, force=force, keep=keep)
        if outcome is None:
            return Prepared(repaired.messages, tokens, repaired.changed, None, repaired)
        yield from self._tell(thread, repaired.messages, outcome)
        return Prepared(outcome.messages, room.tokens(known.ledger.total(outcome.messages) + room.fixed), True, outcome, repaired)

    def count(self, thread: str, messages: Sequence[Message]) -> int:
        """The tokens of these messages, which `prepare` may have found it needless to count."""
        return self._thread(thread).ledger.total(messages)

    def stored(self, thread: str) -> None:
        """The state was rewritten: a summary that was held for a second try is no longer needed, and the next compaction can wait."""
        known = self._thread(thread)
        if known.memo is not None:
            after = known.memo[2].messages
            known.left, known.waiting = frozenset(str(message.id) for message in after), False
            known.made = frozenset(str(message.id) for message in after if not MADE.isdisjoint(marks_of(message)))
            known.compacted = _beginning(known.given, after)
        known.memo, known.given = None, ()

    def _compacted(
        self,
        known: _Thread,
        messages: Sequence[Message],
        room: WindowLimits,
        *,
        force: bool = False,
        keep: Size | None = None,
        spare: int = 0,
    ) -> Generator[Want, Any, Outcome | None]:
        view = view_of(messages, room.each(self.counts.each(messages)))
        limits: dict[str, Any] = {"window": room.window, "fixed": room.tokens(room.fixed), "force": force, "keep": keep, "spare": spare}
        limits["reported"], limits["floors"] = room.reported, self.floors(messages, room)
        last: tuple[int, Outcome] | None = None
        for share in _TIGHTER:
            plan = plan_compaction(view, self.policy, cap=int(room.cap * share) if last else room.cap, **limits)
            if plan is None:
                return None
            self._announce(plan)
            try:
                outcome = yield from self._carried_out(known, _in_our_counting(plan, room), messages, again=last is not None)
            except (SummaryError, StorageError) as error:
                if isinstance(error, StorageError) and plan.pressure != "trigger":
                    raise  # nothing may leave that is not kept, and the request does not fit
                self._failed(known, error.message, "nothing was changed")
                return None
            after = room.tokens(room.fixed + sum(self.counts.each(outcome.messages)))
            if after <= room.cap:
                return outcome
            last = after, outcome
        assert last is not None  # noqa: S101 - the loop ran at least once
        fixed = room.tokens(room.fixed)
        raise BudgetError(
            f"The request has {last[0]} tokens after everything was tried and the window allows {room.cap}.",
            window=room.cap,
            needs={"system prompt, memory and tools": fixed, "messages": last[0] - fixed},
            hint="Use a model with a larger window, fewer tools or a shorter system prompt.",
        )

    def floors(self, messages: Sequence[Message], room: WindowLimits) -> Floors:
        """What can be made of these messages at least, in the model's tokens."""
        reference = cache(lambda item: room.tokens(reference_floor(messages[item.index], item.tokens, self.settings)))
        return Floors(room.tokens(summary_floor(self.settings)), reference)

    def _carried_out(self, known: _Thread, plan: Plan, messages: Sequence[Message], *, again: bool) -> Generator[Want, Any, Outcome]:
        """The plan, done. A summary of the very same messages that was made before a failed model call is used again, also if what the
        summarizer reported has changed the sizes a little since."""
        history = tuple((message.id, mark_of(message)) for message in messages)  # an edited message is another one
        if known.memo is not None:
            held, seen, outcome = known.memo
            if seen == history and (held == plan or (not again and _moves(held) == _moves(plan))):
                return outcome
        settings = replace(self.settings, ask=False) if known.failures and known.wait else self.settings
        about = {"holdfast.compaction.reason": plan.why, "holdfast.compaction.tokens_before": plan.before}
        about["holdfast.compaction.pressure"] = plan.pressure
        with span("holdfast.compaction", "", "CHAIN", about, current=False) as traced:  # its steps may be taken in several threads
            outcome = yield from compact(plan, messages, settings)
            left = len(outcome.covers)
            traced.set({"holdfast.compaction.messages": left, "holdfast.compaction.tokens_after": plan.after})
            traced.set({"holdfast.compaction.how": outcome.how if outcome.summary is not None else "clear"})
        if outcome.why_not_model is not None:
            self._failed(known, outcome.why_not_model, "an extract takes its place")
        elif outcome.how == "model" and outcome.calls:
            known.failures = known.wait = 0
        if outcome.summary is not None:
            self.bus.emit(SummaryMade(tokens=self.counts.count(outcome.summary)))
        known.memo = (plan, history, outcome)
        return outcome

    def _failed(self, known: _Thread, reason: str, instead: str) -> None:
        """Say it, and let some calls pass before the next try."""
        known.failures += 1
        known.wait = int(_SUMMARY_RETRY.pause(known.failures))
        self.bus.emit(SummaryFailed(reason=replace_secrets(reason), instead=instead, calls=known.wait))

    def _named(self, messages: Sequence[Message]) -> list[Message]:
        """Every message with an id: without one it could not be told apart in the archive."""
        return [message if message.id else self.settings.factory.with_id(message, self.settings.new_id("message")) for message in messages]

    def _announce(self, plan: Plan) -> None:
        kind, _, value = plan.why.partition(" ")
        if plan.pressure == "trigger":
            self.bus.emit(TriggerMet(trigger=kind, value=float(value) if value else 0.0))
        self.bus.emit(CompactionPlanned(removed=len(plan.leave), kept=len(plan.keep)))

    def _tell(self, thread: str, messages: Sequence[Message], outcome: Outcome) -> Generator[Want, Any, None]:
        leaving = tuple(messages[index] for index in outcome.plan.leave)
        for hook in self.on_leave if leaving else ():
            try:
                yield Leave(hook, thread, leaving)
            except Exception as error:  # noqa: BLE001 - somebody else's code; what leaves is in the archive, and the turn goes on
                self.bus.emit(LeaveFailed(reason=replace_secrets(f"{type(error).__name__}: {error}")))

    def _thread(self, name: str) -> _Thread:
        with self._lock:
            known = self._known.pop(name, None) or _Thread(Ledger(self.counts))
            self._known[name] = known
            while len(self._known) > self.threads:
                self._known.popitem(last=False)
            return known


class _Pause(NamedTuple):
    """What has come since the last compaction: where it begins (0: there was none), its messages, model calls and tokens."""

    start: int
    added: int
    calls: int
    kept_tokens: int
    added_tokens: int
    summaries: int

    def reason(self, policy: Policy, room: WindowLimits) -> str:
        """Why a met trigger waits, or nothing (S11)."""
        if not self.start:
            return ""
        if self.calls < _REST:
            return f"the last compaction was {self.calls} calls ago, and there is one in {_REST} at most"
        left = room.measure(self.kept_tokens, self.start - self.summaries)
        quarter = self.added * 4 >= self.start or self.added_tokens * 4 >= self.kept_tokens
        if policy.trigger.met(left) is None or (quarter and self.added >= 4):
            return ""
        return "what was kept is alone at the threshold, and less than a quarter of it has been added"

    def spare(self, room: WindowLimits) -> int:
        """What as many calls as should lie between two compactions will bring, if it goes on as since the last one."""
        return room.tokens(self.added_tokens * _REST // self.calls) if self.start and self.calls else 0


_NEVER = _Pause(0, 0, 0, 0, 0, 0)
"""There was no compaction yet."""


MADE = frozenset({"summary", "archived"})
"""Marks of a message that a compaction made."""


def _known_by(message: Message) -> Hashable:
    """By what a message is known again that may have been made anew: who says what, and to which call. Not its id."""
    return role_of(message), mark_of(message), getattr(message, "tool_call_id", None)


def _beginning(given: Sequence[Message], after: Sequence[Message]) -> _Beginning | None:
    """What a compaction made of the beginning of a history: all of it but the end that stayed word for word."""
    ends = zip(reversed(given), reversed(after), strict=False)
    same = len([*takewhile(lambda pair: pair[0].id == pair[1].id and _known_by(pair[0]) == _known_by(pair[1]), ends)])
    if same == len(given):
        return None
    return _Beginning(tuple(map(_known_by, given[: len(given) - same])), tuple(after[: len(after) - same]), same)


def _summaries_in(messages: Sequence[Message]) -> list[Message]:
    """The summaries that lead the history, behind system messages."""
    found = []
    for message in messages:
        if marks_of(message).get("summary"):
            found.append(message)
        elif role_of(message) != "system":
            break
    return found


def _in_our_counting(plan: Plan, room: WindowLimits) -> Plan:
    """The plan with the sizes of what is to be made (clipped texts, the summary) as we count them."""
    if room.factor == 1.0:
        return plan
    return replace(
        plan, clip=tuple((index, room.counted(tokens)) for index, tokens in plan.clip), summary_room=room.counted(plan.summary_room)
    )


def _moves(plan: Plan) -> tuple[Any, ...]:
    """What a plan does to which messages, without the sizes."""
    return plan.leave, plan.previous, plan.keep, plan.clear, tuple(index for index, _ in plan.clip)


def _tidy_from(messages: Sequence[Message], start: int) -> int:
    """Up to where the history is whole, walking on from a place where it was: every call directly followed by exactly its results."""
    index, end = start, len(messages)
    while index < end:
        message = messages[index]
        role = role_of(message)
        if role == "tool":
            return index
        calls = [call for call, _ in calls_of(message)] if role == "ai" else []
        results = [
            getattr(later, "tool_call_id", None) for later in messages[index + 1 : index + 1 + len(calls)] if role_of(later) == "tool"
        ]
        if results != calls and (len(results) != len(calls) or sorted(map(str, results)) != sorted(calls)):
            return index
        if calls and not is_sound(message):
            return index
        index += 1 + len(calls)
    return index
