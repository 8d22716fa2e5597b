"""What one call used, in the forms that providers report it, what that costs, and limits that stop the work with everything kept.

Every call is charged once, to the session, run, sub-agent and stage it was made for, the model that answered, and the purpose: `answer`,
`summary` and `memory` stay apart. `check` is asked before a call starts; charging never raises, so no answer is lost to a limit.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal, InvalidOperation
from operator import add
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from holdfast.errors import ConfigError, Damaged, InputError, LimitExceeded
from holdfast.events import Bus, Event
from holdfast.events import bus as process_bus

if TYPE_CHECKING:
    from holdfast.config.memory_sections import Limit
    from holdfast.config.sections import Pricing

_MILLION = Decimal(1_000_000)
_CACHED = ("prompt_cache_hit_tokens", "cached_content_token_count", "cachedContentTokenCount")


@dataclass(frozen=True)
class Usage:
    """Tokens of one or more calls. `input_tokens` holds those read from and written to a cache, `output_tokens` those of reasoning.

    `estimated` says that at least a part is our own count, because the provider reported nothing.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    estimated: bool = False

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
            self.estimated or other.estimated,
        )

    @classmethod
    def read(cls, reported: object) -> Usage | None:
        """From a message with `usage_metadata`, or from a usage mapping of LangChain, OpenAI, Anthropic, Google or DeepSeek.

        None when nothing was reported: no mapping, no numbers, or zeros alone; nor is a report believed that has more than any window.
        """
        if isinstance(reported, Usage):
            return reported
        for mapping in _mappings(reported):
            usage = cls._from(mapping)
            if usage.total > 0 and max(usage.input_tokens, usage.output_tokens) <= _MOST_IN_A_CALL:
                return usage
        return None

    @classmethod
    def _from(cls, usage: Mapping[str, Any]) -> Usage:
        ins = _inner(usage, "input_token_details", "input_tokens_details", "prompt_tokens_details")
        outs = _inner(usage, "output_token_details", "output_tokens_details", "completion_tokens_details")
        read = _number(ins, "cache_read", "cached_tokens") or _number(usage, *_CACHED)
        by_lifetime = sum(_number(ins, key) for key in ins if str(key).startswith("ephemeral_"))
        written = max(_number(ins, "cache_creation", "cache_write_tokens"), by_lifetime)
        tokens_in = _number(usage, "input_tokens", "prompt_tokens", "prompt_token_count", "promptTokenCount")
        beside_read, beside_written = _number(usage, "cache_read_input_tokens"), _number(usage, "cache_creation_input_tokens")
        if beside_read or beside_written:  # Anthropic's own form: `input_tokens` leaves them out
            tokens_in, read, written = tokens_in + beside_read + beside_written, beside_read, beside_written
        elif read + written > tokens_in:  # reported beside the input, not within it
            tokens_in += read + written
        thoughts = _number(usage, "thoughts_token_count", "thoughtsTokenCount")
        candidates = _number(usage, "candidates_token_count", "candidatesTokenCount")
        tokens_out = _number(usage, "output_tokens", "completion_tokens") or thoughts + candidates
        reasoning = _number(outs, "reasoning", "reasoning_tokens") or thoughts
        return cls(tokens_in, tokens_out, read, written, reasoning)


def _mappings(reported: object) -> Iterable[Mapping[str, Any]]:
    if isinstance(reported, Mapping):
        yield reported
        return
    metadata = getattr(reported, "response_metadata", None)
    candidates = [getattr(reported, "usage_metadata", None)]
    if isinstance(metadata, Mapping):
        candidates += [metadata.get(key) for key in ("token_usage", "usage", "usage_metadata")]
    yield from (candidate for candidate in candidates if isinstance(candidate, Mapping))


def _inner(usage: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    return next((usage[key] for key in keys if isinstance(usage.get(key), Mapping)), {})


_MOST_IN_A_CALL = 20_000_000
"""Tokens that no call of any model has: a server that reports more counts something else, or wrongly."""


def _number(usage: Mapping[str, Any], *keys: str) -> int:
    """The first of these that is a count; 0 when none is."""
    for key in keys:
        value = usage.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
            return int(value)
    return 0


@dataclass(frozen=True)
class Price:
    """What a model costs for a million tokens. None is a price that is not known, never one of nothing.

    Tokens read from a cache cost `cache_read`, or the input price where that is not given (so never too little). Tokens written to a
    cache cost `cache_write`; who charges for writing charges more than for input, so without it such a call has no known cost.
    """

    input: Decimal | None = None
    output: Decimal | None = None
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    currency: str = "USD"

    @classmethod
    def of(cls, pricing: Pricing) -> Price:
        """As `pricing` of a model in the configuration says it."""
        amounts = (_exact(pricing.input), _exact(pricing.output), _exact(pricing.cache_read), _exact(pricing.cache_write))
        return cls(*amounts, pricing.currency.strip().upper() or "USD")

    def cost(self, usage: Usage) -> Decimal | None:
        """The cost of this usage to the last digit, or None when a price that it needs is not known."""
        plain = max(0, usage.input_tokens - usage.cache_read - usage.cache_write)
        cached = self.input if self.cache_read is None else self.cache_read
        parts = ((plain, self.input), (usage.cache_read, cached), (usage.cache_write, self.cache_write), (usage.output_tokens, self.output))
        total = Decimal(0)
        for tokens, price in parts:
            if tokens:
                if price is None:
                    return None
                total += tokens * price
        if self.input is None and self.output is None:
            return None  # nothing was used, but nothing is known either
        return total / _MILLION


def _exact(amount: float | None) -> Decimal | None:
    """An amount of money as it was written."""
    return None if amount is None else Decimal(str(amount))


ANSWER: Final = "answer"

Dimension = Literal["session", "run", "subagent", "stage", "model", "purpose"]
_SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class PriceUnknown(Event):
    """A cost limit is set, and a model without a price was used: its calls cannot count towards the limit."""

    component: ClassVar[str] = "Accounts"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "No price is known for model {model}: it does not count towards the cost limit. Set `pricing` for it in `models`."

    model: str


@dataclass(frozen=True)
class Limits:
    """How much may be used: tokens (input and output) and money. None is no limit."""

    tokens: int | None = None
    cost: Decimal | None = None

    @classmethod
    def of(cls, limit: Limit) -> Limits:
        """As `limits` in the configuration says it."""
        return cls(limit.tokens, _exact(limit.cost))


@dataclass(frozen=True)
class Entry:
    """Where a call is charged."""

    session: str | None
    run: str | None
    subagent: str | None
    stage: str | None
    model: str
    purpose: str


@dataclass(frozen=True)
class Tally:
    """The sum of some calls. `cost` holds the calls whose price is known; `total_cost` is None while there are others."""

    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: Decimal = Decimal(0)
    unpriced_calls: int = 0
    estimated_calls: int = 0

    @property
    def tokens(self) -> int:
        return self.usage.total

    @property
    def total_cost(self) -> Decimal | None:
        """What it all cost, or None when a part has no known price (and when nothing was charged, 0)."""
        return None if self.unpriced_calls else self.cost

    def __add__(self, other: Tally) -> Tally:
        return Tally(*map(add, vars(self).values(), vars(other).values()))


_NOTHING = Tally()


@dataclass(frozen=True)
class Charge:
    """What was charged for one call."""

    entry: Entry
    usage: Usage
    cost: Decimal | None


class Accounts:
    """All accounts of a process or session. Safe for many threads. `prices` are those of models by name, all in one currency."""

    def __init__(
        self,
        prices: Mapping[str, Price] | None = None,
        *,
        run_limits: Limits | None = None,
        session_limits: Limits | None = None,
        bus: Bus | None = None,
    ) -> None:
        self._prices = dict(prices or {})
        currencies = sorted({price.currency for price in self._prices.values() if price.input is not None or price.output is not None})
        if len(currencies) > 1:
            raise ConfigError(
                f"prices are given in {' and '.join(currencies)}: they cannot be added.",
                key="models[].pricing.currency",
                hint="Use one currency.",
            )
        self.currency = currencies[0] if currencies else "USD"
        self._limits = {"run": run_limits or Limits(), "session": session_limits or Limits()}
        self._bus = bus or process_bus
        self._unpriced: set[str] = set()
        self._entries: dict[Entry, Tally] = {}
        self._totals: dict[tuple[str, str | None, str | None], Tally] = {}
        self._lock = threading.Lock()

    def charge(
        self,
        usage: object,
        *,
        model: str,
        purpose: str = ANSWER,
        session: str | None = None,
        run: str | None = None,
        subagent: str | None = None,
        stage: str | None = None,
        estimate: Usage | None = None,
    ) -> Charge:
        """Note one call. `usage` is what the provider reported; where that says nothing, `estimate` is charged and marked so."""
        read = Usage.read(usage)
        if read is None:
            read = replace(estimate or Usage(), estimated=True)
        entry = Entry(session, run, subagent, stage, model, purpose)
        cost = self._prices.get(model, Price()).cost(read)
        tally = Tally(1, read, cost or Decimal(0), int(cost is None), int(read.estimated))
        with self._lock:
            self._add(entry, tally)
        if cost is None:
            self._say_unpriced(model)
        return Charge(entry, read, cost)

    def check(self, *, session: str | None = None, run: str | None = None) -> None:
        """Raise LimitExceeded when the run or the session has nothing left for another call."""
        for account, name, key in (("run", run, ("run", session, run)), ("session", session, ("session", session, None))):
            with self._lock:
                used = self._totals.get(key, _NOTHING)
            limits = self._limits[account]
            if limits.tokens is not None and used.tokens >= limits.tokens:
                raise _exceeded(account, name, "tokens", "tokens", used.tokens, limits.tokens)
            if limits.cost is not None and used.cost >= limits.cost:
                raise _exceeded(account, name, "cost", self.currency, used.cost, limits.cost)

    def total(self, **where: str | None) -> Tally:
        """The sum of all calls, or of those charged to what is named: `total(run="r1", purpose="summary")`."""
        return sum((tally for _, tally in self._charged(where)), _NOTHING)

    def by(self, dimension: Dimension, **where: str | None) -> dict[str | None, Tally]:
        """Usage and cost by group: for each model, run, sub-agent, stage, purpose or session, dearest in tokens first."""
        _known([dimension])
        sums: dict[str | None, Tally] = {}
        for entry, tally in self._charged(where):
            key = getattr(entry, dimension)
            sums[key] = sums.get(key, Tally()) + tally
        return dict(sorted(sums.items(), key=lambda item: -item[1].tokens))

    def _charged(self, where: Mapping[str, str | None]) -> list[tuple[Entry, Tally]]:
        """All that was charged to what is named."""
        _known(where)
        with self._lock:
            entries = list(self._entries.items())
        return [(entry, tally) for entry, tally in entries if all(getattr(entry, name) == value for name, value in where.items())]

    def snapshot(self) -> dict[str, Any]:
        """Plain JSON, to be kept. Money is written as text, so nothing is lost."""
        return {"schema": _SCHEMA, "currency": self.currency, "entries": [_written(*charged) for charged in self._charged({})]}

    def restore(self, snapshot: object) -> None:
        """Replace everything by a snapshot. Raises Damaged, and changes nothing, when it cannot be read whole: money is not guessed."""
        if not isinstance(snapshot, Mapping) or snapshot.get("schema") != _SCHEMA or not isinstance(snapshot.get("entries"), list):
            raise Damaged(f"these are no accounts of schema {_SCHEMA}.", hint="Start new ones, or restore them from a backup.")
        read = [_read(number, entry) for number, entry in enumerate(snapshot["entries"])]
        if read and snapshot.get("currency", self.currency) != self.currency and any(tally.cost for _, tally in read):
            raise Damaged(
                f"the accounts are in {snapshot.get('currency')}, the prices in {self.currency}.", hint="Give the prices in that currency."
            )
        with self._lock:
            self._entries, self._totals = {}, {}
            for entry, tally in read:
                self._add(entry, tally)

    def _add(self, entry: Entry, tally: Tally) -> None:
        self._entries[entry] = self._entries.get(entry, Tally()) + tally
        for account in {("run", entry.session, entry.run), ("session", entry.session, None)}:
            self._totals[account] = self._totals.get(account, Tally()) + tally

    def _say_unpriced(self, model: str) -> None:
        if all(limits.cost is None for limits in self._limits.values()):
            return
        with self._lock:
            new = model not in self._unpriced
            self._unpriced.add(model)
        if new:
            self._bus.emit(PriceUnknown(model=model))


_DIMENSIONS = tuple(part.name for part in fields(Entry))
_COUNTS = ("input_tokens", "output_tokens", "cache_read", "cache_write", "reasoning")


def _exceeded(account: str, name: str | None, kind: str, unit: str, used: int | Decimal, allowed: int | Decimal) -> LimitExceeded:
    who = f"the {account} {name}" if name else f"the {account}"
    told = f"{who} has used {used:,} of {allowed:,} {unit}. Everything done so far is kept."
    return LimitExceeded(told, account=account, kind=kind, used=float(used), allowed=float(allowed))


def _known(where: Iterable[str]) -> None:
    unknown = [name for name in where if name not in _DIMENSIONS]
    if unknown:
        raise InputError(f"accounts are not kept by {unknown[0]!r}.", hint=f"They are kept by {', '.join(_DIMENSIONS)}.")


def _written(entry: Entry, tally: Tally) -> dict[str, Any]:
    where = {name: getattr(entry, name) for name in _DIMENSIONS}
    counts = {name: getattr(tally.usage, name) for name in _COUNTS}
    calls = {"calls": tally.calls, "unpriced_calls": tally.unpriced_calls, "estimated_calls": tally.estimated_calls}
    return {**where, **counts, **calls, "cost": str(tally.cost)}


def _read(number: int, entry: object) -> tuple[Entry, Tally]:
    try:
        return _parsed(entry)
    except (KeyError, TypeError, ValueError, InvalidOperation) as error:
        raise Damaged(f"entry {number} of the accounts cannot be read: {error}.", hint="Restore them from a backup.") from error


def _parsed(entry: object) -> tuple[Entry, Tally]:
    if not isinstance(entry, Mapping):
        raise TypeError("it is no object")
    where = {name: entry[name] for name in _DIMENSIONS}
    for name, value in where.items():
        if not isinstance(value, str) and (value is not None or name in ("model", "purpose")):
            raise TypeError(f"{name} is {value!r}")
    usage = Usage(**{name: _count(entry, name) for name in _COUNTS}, estimated=_count(entry, "estimated_calls") > 0)
    cost = Decimal(entry["cost"])
    if not isinstance(entry["cost"], str) or not cost.is_finite() or cost < 0:
        raise ValueError(f"cost is {entry['cost']!r}")
    return Entry(**where), Tally(_count(entry, "calls"), usage, cost, _count(entry, "unpriced_calls"), _count(entry, "estimated_calls"))


def _count(entry: Mapping[str, Any], name: str) -> int:
    value = entry[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is {value!r}")
    return value
